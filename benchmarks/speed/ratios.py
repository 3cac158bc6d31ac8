"""The ratios that the speed benchmark reports, and their limits."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks.report import Target


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """The ratio of two figures.

    :param name: its name in the JSON file.
    :param what: its description.
    :param of: the numerator.
    :param to: the denominator.
    :param at_least: the floor, for speeds.
    :param at_most: the ceiling, for times.
    :param aim: a value beyond the limit that we would like to reach.
    """

    name: str
    what: str
    of: str
    to: str
    at_least: float | None = None
    at_most: float | None = None
    aim: float | None = None

    def target(self, figures: Mapping[str, float]) -> Target:
        """Compute it."""
        return Target(
            what=self.what,
            value=figures[self.of] / figures[self.to],
            at_least=self.at_least,
            at_most=self.at_most,
            aim=self.aim,
            unit="x",
        )


def _speed(
    name: str, what: str, of: str, to: str, floor: float | None = None, aim: float | None = None
) -> Ratio:
    return Ratio(
        name=name,
        what=what,
        of=f"{of}_steps_per_s",
        to=f"{to}_steps_per_s",
        at_least=floor,
        aim=aim,
    )


RATIOS = (
    _speed(
        "atari_1env_medqn_r_c20_to_stock_dqn",
        "Atari, 1 env: our MeDQN(R), C 20, to stock DQN",
        "atari_1env_medqn_r_c20", "atari_1env_stock_dqn", 1.7, 2.5,
    ),
    _speed(
        "atari_1env_medqn_r_c40_to_stock_dqn",
        "Atari, 1 env: our MeDQN(R), C 40, to stock DQN",
        "atari_1env_medqn_r_c40", "atari_1env_stock_dqn", 2.4, 3.3,
    ),
    _speed(
        "atari_10env_medqn_r_c40_to_stock_dqn",
        "Atari, 10 envs: our MeDQN(R), C 40, to stock DQN with 10 envs",
        "atari_10env_medqn_r_c40", "atari_10env_stock_dqn", 2.6, 4.0,
    ),
    _speed(
        "atari_medqn_r_c20_to_bare_loop",
        "Atari, 1 env: our MeDQN(R), C 20, to the bare loop",
        "atari_1env_medqn_r_c20", "atari_1env_bare_medqn_r_c20", 0.85, 1.0,
    ),
    _speed(
        "atari_medqn_r_c40_to_bare_loop",
        "Atari, 1 env: our MeDQN(R), C 40, to the bare loop",
        "atari_1env_medqn_r_c40", "atari_1env_bare_medqn_r_c40", 0.85, 1.0,
    ),
    _speed(
        "atari_10env_medqn_r_c40_to_bare_loop",
        "Atari, 10 envs: our MeDQN(R), C 40, to the bare loop",
        "atari_10env_medqn_r_c40", "atari_10env_bare_medqn_r_c40", 0.85, 1.0,
    ),
    _speed(
        "atari_1env_dqn_to_stock_dqn",
        "Atari, 1 env: our DQN to stock DQN",
        "atari_1env_dqn", "atari_1env_stock_dqn", 1.35, 2.0,
    ),
    Ratio(
        name="update_time_medqn_r_to_stock_dqn",
        what="time of one MeDQN(R) update (32 + 32, E = 1) to one of stock DQN (32)",
        of="update_medqn_r_ms", to="update_stock_dqn_ms", at_most=1.2, aim=1.0,
    ),
    *(
        _speed(
            f"{race}_{run}_to_bare_loop", f"{game}: our {what}, to the bare loop",
            f"{race}_{run}", f"{race}_bare_{run}", floor, aim,
        )
        for race, game in (("minatar", "MinAtar Breakout"), ("seaquest", "MinAtar Seaquest"))
        for run, what, floor, aim in (
            ("medqn_u_c32", "MeDQN(U), C 32", 1.6, 2.5),
            ("medqn_r_c4_e2", "MeDQN(R), C 4, E 2", 1.8, 2.5),
            ("dqn_c1", "DQN, C 1", 2.2, 3.0),
        )
    ),
    _speed(
        "mountaincar_medqn_u_e4_to_stock_medqn",
        "MountainCar: our MeDQN(U), E 4, to stock MeDQN",
        "mountaincar_medqn_u_e4", "mountaincar_stock_medqn_u_e4", 10.0, 18.0,
    ),
    _speed(
        "mountaincar_dqn_c8_to_bare_loop",
        "MountainCar: our DQN, C 8, to the bare loop",
        "mountaincar_dqn_c8", "mountaincar_bare_dqn_c8", 1.3, 2.0,
    ),
    _speed(
        "mountaincar_medqn_u_e4_to_compiled_loop",
        "MountainCar: our MeDQN(U), E 4, to the compiled loop",
        "mountaincar_medqn_u_e4", "mountaincar_compiled_medqn_u_e4", 0.4, 0.7,
    ),
    *(
        _speed(
            f"lowdim_{name}_to_stock_medqn", f"{task}: our MeDQN(U) to stock MeDQN",
            f"lowdim_{name}", f"lowdim_stock_{name}", 8.0, 15.0,
        )
        for name, task in (
            ("acrobot", "Acrobot"), ("catcher", "Catcher"), ("pixelcopter", "Pixelcopter"),
        )
    ),
    *(
        Ratio(
            name=f"arithmetic_{name}",
            what=f"{what}: arithmetic per second, to torch.mm of 1024 x 1024",
            of=f"arithmetic_{name}_gflops", to="arithmetic_mm_gflops", at_least=floor, aim=aim,
        )
        for name, what, floor, aim in (
            ("breakout", "update of MinAtar Breakout (DQN)", 0.25, 0.5),
            ("seaquest", "update of MinAtar Seaquest (DQN)", 0.25, 0.5),
            ("mountaincar", "update of MountainCar (MeDQN(U), E 4)", None, None),
        )
    ),
    Ratio(
        name="contention_ours",
        what="Atari main job with two busy neighbours on two cores, to its speed alone",
        of="contention_ours_busy_steps_per_s", to="contention_ours_alone_steps_per_s",
        at_least=1 / 3,
    ),
    Ratio(
        name="contention_stock",
        what="the same for stock Tianshou",
        of="contention_stock_busy_steps_per_s", to="contention_stock_alone_steps_per_s",
    ),
)  # fmt: skip
"""All ratios with their limits."""


def known_ratios(figures: Iterable[str]) -> list[Ratio]:
    """Return the ratios whose figures are among the names."""
    names = set(figures)
    return [ratio for ratio in RATIOS if {ratio.of, ratio.to} <= names]


def summarize(measured: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Gather the figures of all parts, and their ratios, in flat form."""
    figures = {name: value for part in measured for name, value in part["figures"].items()}
    ratios = known_ratios(figures)
    targets = {ratio.name: ratio.target(figures) for ratio in ratios}
    return {
        "figures": figures,
        "ratios": {name: target.value for name, target in targets.items()},
        "limits": {
            ratio.name: {
                ("floor" if ratio.at_most is None else "at_most"): (
                    ratio.at_least if ratio.at_most is None else ratio.at_most
                ),
                "aim": ratio.aim,
                "met": targets[ratio.name].met,
            }
            for ratio in ratios
        },
    }

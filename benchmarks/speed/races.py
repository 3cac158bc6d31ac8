"""The parts of the speed benchmark in which contestants take turns."""

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.report import Part, Result, Section, Table, note
from benchmarks.speed.contestants import Entry, Kind, take_turns
from benchmarks.speed.ratios import known_ratios

QBERT = ("--task", "QbertNoFrameskip-v4", "--buffer-size", "100000", "--test-num", "1",
         "--eps-train", "0.05", "--eps-train-final", "0.05")  # fmt: skip
SMALL = ("--eps-train", "0.1", "--eps-train-final", "0.1")
BREAKOUT = ("--game", "breakout", *SMALL)
SEAQUEST_GAME = ("--game", "seaquest", *SMALL)
MOUNTAIN_CAR = ("--task", "MountainCar-v0", *SMALL)

DQN_C10 = (*QBERT, "--algo", "dqn", "--step-per-collect", "10")
MEDQN_C20 = (*QBERT, "--algo", "medqn", "--step-per-collect", "20")
MEDQN_C40 = (*QBERT, "--algo", "medqn", "--step-per-collect", "40")
TEN = ("--training-num", "10")
RAW = ("--replay", "raw")
OVERLAP = ("--overlap",)
ENVPOOL = ("--env-backend", "envpool")  # which Tianshou's example takes, if it is installed

ATARI_ENTRIES = {
    "stock_dqn": Entry("stock", "atari", (*DQN_C10, *ENVPOOL)),
    "stock_medqn_r_c20": Entry("stock", "atari", (*MEDQN_C20, *ENVPOOL)),
    "stock_medqn_r_c40": Entry("stock", "atari", (*MEDQN_C40, *ENVPOOL)),
    "dqn": Entry("ours", "atari", DQN_C10),
    "medqn_r_c20": Entry("ours", "atari", MEDQN_C20),
    "medqn_r_c20_raw": Entry("ours", "atari", (*MEDQN_C20, *RAW)),
    "medqn_r_c40": Entry("ours", "atari", MEDQN_C40),
    "medqn_r_c40_raw": Entry("ours", "atari", (*MEDQN_C40, *RAW)),
    "medqn_r_c20_overlap": Entry("ours", "atari", (*MEDQN_C20, *OVERLAP)),
    "medqn_r_c40_overlap": Entry("ours", "atari", (*MEDQN_C40, *OVERLAP)),
    "bare_dqn": Entry("bare", "atari", DQN_C10),
    "bare_medqn_r_c20": Entry("bare", "atari", MEDQN_C20),
    "bare_medqn_r_c40": Entry("bare", "atari", MEDQN_C40),
    "sb3_dqn": Entry("sb3", "atari", (*DQN_C10, *ENVPOOL)),
}
ATARI10_ENTRIES = {
    "stock_dqn": Entry("stock", "atari", (*DQN_C10, *TEN)),
    "stock_medqn_r_c40": Entry("stock", "atari", (*MEDQN_C40, *TEN)),
    "medqn_r_c40": Entry("ours", "atari", (*MEDQN_C40, *TEN)),
    "medqn_r_c40_overlap": Entry("ours", "atari", (*MEDQN_C40, *TEN, *OVERLAP)),
    "bare_medqn_r_c40": Entry("bare", "atari", (*MEDQN_C40, *TEN)),
}
Flags = dict[str, tuple[tuple[str, ...], int]]
"""By name: a command line, and the factor on the steps of a chunk."""
_MINATAR_FLAGS: Flags = {
    "medqn_u_c32": (("--algo", "medqn-u", "--step-per-collect", "32"), 8),
    "medqn_r_c4_e2": (
        ("--algo", "medqn-r", "--step-per-collect", "4", "--consolidation-epochs", "2"), 2,
    ),
    "dqn_c1": (("--algo", "dqn", "--step-per-collect", "1"), 1),
}  # fmt: skip
MOUNTAIN_CAR_FLAGS: Flags = {
    "medqn_u_e4": ((*MOUNTAIN_CAR, "--algo", "medqn-u", "--consolidation-epochs", "4"), 1),
    "dqn_c8": ((*MOUNTAIN_CAR, "--algo", "dqn", "--step-per-collect", "8"), 2),
}


def _three_ways(family: str, flags: Flags, *, more: tuple[str, ...] = ()) -> dict[str, Entry]:
    entries: dict[str, Entry] = {}
    for name, (own, chunk) in flags.items():
        line = (*own, *more)
        entries[f"stock_{name}"] = Entry("stock", family, line, chunk)
        entries[name] = Entry("ours", family, line, 2 * chunk)
        entries[f"bare_{name}"] = Entry("bare", family, line, chunk)
    return entries


MINATAR_ENTRIES = _three_ways("minatar", _MINATAR_FLAGS, more=BREAKOUT)
SEAQUEST_ENTRIES = _three_ways("minatar", _MINATAR_FLAGS, more=SEAQUEST_GAME)
MOUNTAIN_CAR_ENTRIES = _three_ways("lowdim", MOUNTAIN_CAR_FLAGS) | {
    f"compiled_{name}": Entry("compiled", "lowdim", line, 8 * chunk)
    for name, (line, chunk) in MOUNTAIN_CAR_FLAGS.items()
}
_BOTH: tuple[tuple[str, Kind, int], ...] = (("stock_", "stock", 1), ("", "ours", 4))
LOWDIM_ENTRIES = {
    f"{prefix}{name}": Entry(kind, "lowdim", ("--task", task, "--algo", "medqn-u", *SMALL), chunk)
    for name, task in (
        ("acrobot", "Acrobot-v1"), ("catcher", "Catcher"), ("pixelcopter", "Pixelcopter"),
    )
    for prefix, kind, chunk in _BOTH
}  # fmt: skip

UPDATE_ENTRIES = {
    "stock_dqn": ATARI_ENTRIES["stock_dqn"],
    "stock_medqn_r": ATARI_ENTRIES["stock_medqn_r_c20"],
    "dqn": ATARI_ENTRIES["dqn"],
    "medqn_r": ATARI_ENTRIES["medqn_r_c20"],
    "medqn_r_raw": ATARI_ENTRIES["medqn_r_c20_raw"],
}


def measure_race(prefix: str, entries: Mapping[str, Entry], sizes: Any) -> Result:
    """Measure the speed of contestants, in turns."""
    warmup, steps = sizes.races[prefix]
    with Team(entries, warmup) as team:
        chunks = {name: steps * entries[name].chunk for name in team.members}
        actions: dict[str, Callable[[], None]] = {
            name: partial(member.advance, chunks[name]) for name, member in team.members.items()
        }
        seconds = take_turns(actions, turns=sizes.turns, dropped=sizes.dropped)
    speeds = {name: [chunks[name] / taken for taken in times] for name, times in seconds.items()}
    return {
        "figures": {
            f"{prefix}_{name}_steps_per_s": median(values) for name, values in speeds.items()
        },
        "steps_per_s": speeds,
        "env_steps": {"warm-up": warmup, "chunk": chunks},
    }


def measure_updates(sizes: Any) -> Result:
    """Measure the time of one ``policy.update`` on Atari, in turns."""
    with Team(UPDATE_ENTRIES, sizes.races["atari_1env"][0]) as team:
        actions = {name: member.update for name, member in team.members.items()}
        seconds = take_turns(actions, turns=sizes.update_turns, dropped=5)
    times = {name: [1e3 * taken for taken in values] for name, values in seconds.items()}
    return {
        "figures": {f"update_{name}_ms": median(values) for name, values in times.items()},
        "ms": times,
    }


class Team:
    """Contestants that are built together and closed together.

    :param entries: the contestants; those whose library is not installed are left out.
    :param warmup: environment steps in their buffers at the start.
    """

    def __init__(self, entries: Mapping[str, Entry], warmup: int) -> None:
        self.members: dict[str, Any] = {}
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            for name, entry in entries.items():
                if entry.kind == "sb3" and find_spec("stable_baselines3") is None:
                    note(f"  {name}: stable-baselines3 is not installed, left out")
                    continue
                note(f"  {name}: filling its buffer")
                member = entry.build(folder / name, ["--warmup-steps", str(warmup)])
                stack.callback(member.close)
                self.members[name] = member
            self._stack = stack.pop_all()

    def __enter__(self) -> "Team":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()


def show_race(prefix: str, title: str, notes: str, result: Result) -> Section:
    """Show the speeds of contestants."""
    figures = {
        name: result["figures"][f"{prefix}_{name}_steps_per_s"] for name in result["steps_per_s"]
    }
    rows = [
        (
            name,
            f"{figures[name]:,.0f}",
            f"{min(values):,.0f} to {max(values):,.0f}",
            *(_by_counterpart(figures, name, kind) for kind in ("stock", "bare")),
        )
        for name, values in result["steps_per_s"].items()
    ]
    turns = len(next(iter(result["steps_per_s"].values())))
    chunks = sorted(set(result["env_steps"]["chunk"].values()))
    return Section(
        title=title,
        tables=[Table(("", "env steps/s, median", "range", "to stock", "to bare"), rows)],
        notes=(
            f"{turns} turns each, of {_either(chunks)} environment steps, after "
            f"{result['env_steps']['warm-up']:,} steps that fill the buffers. The last columns are "
            f"relative to the same algorithm and schedule. {notes}"
        ),
        targets=[ratio.target(result["figures"]) for ratio in known_ratios(result["figures"])],
    )


def _either(numbers: Sequence[int]) -> str:
    *first, last = (f"{number:,}" for number in numbers)
    return f"{', '.join(first)} or {last}" if first else last


def _by_counterpart(figures: Mapping[str, float], name: str, kind: str) -> str:
    base = re.sub(r"^(stock|bare|sb3|compiled)_|_(raw|overlap)$", "", name)
    counterpart = figures.get(f"{kind}_{base}")
    return "" if counterpart is None else f"{figures[name] / counterpart:.2f}"


def show_updates(result: Result) -> Section:
    """Show the times of updates."""
    stock = result["figures"]["update_stock_dqn_ms"]
    rows = [
        (
            name,
            f"{result['figures'][f'update_{name}_ms']:.1f}",
            f"{min(values):.1f} to {max(values):.1f}",
            f"{result['figures'][f'update_{name}_ms'] / stock:.2f}",
        )
        for name, values in result["ms"].items()
    ]
    turns = len(next(iter(result["ms"].values())))
    return Section(
        title="One update on Atari",
        tables=[Table(("", "ms, median", "range", "to stock_dqn"), rows)],
        notes=(
            f"`policy.update`, {turns} turns each, on 32 transitions and, for MeDQN(R), 32 more "
            "states. `raw` uses Tianshou's own buffer; our other rows use the compact buffer."
        ),
        targets=[ratio.target(result["figures"]) for ratio in known_ratios(result["figures"])],
    )


def _race(prefix: str, title: str, entries: Mapping[str, Entry], notes: str) -> Part:
    return Part(partial(measure_race, prefix, entries), partial(show_race, prefix, title, notes))


ATARI_NOTES = (
    "C (`c20`) is the number of environment steps between updates (DQN: 10). `raw` uses "
    "Tianshou's own buffer; our other rows use the compact buffer. `overlap` uses `--overlap`. A "
    "single environment of ours and of the bare loop runs on ale-py in the same thread, as in our "
    "script; all others run on EnvPool, as in Tianshou's example."
)
SMALL_NOTES = (
    "C (`c32`) is the number of environment steps between updates, E (`e2`) the number of epochs. "
    "`compiled` is the whole training, environment included, as one numba program that calls the "
    "same compiled update as ours."
)

ATARI = _race("atari_1env", "Atari Qbert, 1 environment", ATARI_ENTRIES, ATARI_NOTES)
ATARI10 = _race("atari_10env", "Atari Qbert, 10 environments", ATARI10_ENTRIES, ATARI_NOTES)
MINATAR = _race("minatar", "MinAtar Breakout", MINATAR_ENTRIES, SMALL_NOTES)
SEAQUEST = _race("seaquest", "MinAtar Seaquest", SEAQUEST_ENTRIES, SMALL_NOTES)
LOWDIM = _race(
    "lowdim",
    "Acrobot, Catcher, Pixelcopter",
    LOWDIM_ENTRIES,
    "MeDQN(U) with the paper's settings.",
)
MOUNTAIN_CAR_PART = _race("mountaincar", "MountainCar", MOUNTAIN_CAR_ENTRIES, SMALL_NOTES)
UPDATE = Part(measure_updates, show_updates)

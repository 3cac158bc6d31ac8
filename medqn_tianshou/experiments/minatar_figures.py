"""Figure 5, Tables 1 and 2, and the effect of --overlap; ``medqn reproduce fig5b``."""

from medqn_tianshou.commands.reproduce import Figure, Variant

FAMILY = "minatar"
BUFFER_SIZES = (100_000, 10_000, 1_000)


def _evaluation(game: str) -> Figure:
    return Figure(
        title=f"Figure 5: {game.replace('_', ' ').title()} (MinAtar)",
        family=FAMILY,
        task=f"--game {game}",
        variants=(
            Variant("MeDQN(R)", "medqn-r"),
            Variant("MeDQN(U)", "medqn-u"),
            Variant("DQN", "dqn"),
            Variant("DQN(S)", "dqn-s"),
        ),
        seeds=10,
    )


def _with_sizes(label: str, algo: str, flags: str = "") -> list[Variant]:
    return [
        Variant(f"{label}, {size:,}", algo, f"--buffer-size {size} {flags}".strip())
        for size in BUFFER_SIZES
    ]


FIGURES = {
    "fig5a": _evaluation("asterix"),
    "fig5b": _evaluation("breakout"),
    "fig5c": _evaluation("space_invaders"),
    "fig5d": _evaluation("seaquest"),
    "table1": Figure(
        title="Table 1: MeDQN(R) with and without consolidation, Seaquest (MinAtar)",
        family=FAMILY,
        task="--game seaquest",
        variants=(
            *_with_sizes("with consolidation", "medqn-r"),
            *_with_sizes("without", "medqn-r", "--lambda-start 0 --lambda-end 0"),
        ),
        seeds=10,
        note="The paper tunes E and C_current anew without consolidation; here Table 10 holds.",
    ),
    "table2": Figure(
        title="Table 2: buffer sizes, Seaquest (MinAtar)",
        family=FAMILY,
        task="--game seaquest",
        variants=(*_with_sizes("MeDQN(R)", "medqn-r"), *_with_sizes("DQN", "dqn")),
        seeds=10,
    ),
    "overlap": Figure(
        title="What --overlap does to learning, Breakout (MinAtar)",
        family=FAMILY,
        task="--game breakout",
        variants=(
            Variant("MeDQN(U)", "medqn-u"),
            Variant("MeDQN(U), overlap", "medqn-u", "--overlap"),
            Variant("MeDQN(R)", "medqn-r"),
            Variant("MeDQN(R), overlap", "medqn-r", "--overlap"),
        ),
        seeds=5,
        note="Not in the paper: actions are one update old, and collected during that update.",
    ),
}

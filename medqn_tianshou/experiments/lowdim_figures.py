"""Figures 3 and 4 of the paper, each with one command; ``medqn reproduce fig4a``."""

from medqn_tianshou.commands.reproduce import Figure, Variant

FAMILY = "lowdim"
MEDQN_U, DQN, DQN_S = (
    Variant("MeDQN(U)", "medqn-u"),
    Variant("DQN", "dqn"),
    Variant("DQN(S)", "dqn-s"),
)


def _evaluation(task: str, seeds: int) -> Figure:
    return Figure(
        title=f"Figure 4: {task}",
        family=FAMILY,
        task=f"--task {task}",
        variants=(MEDQN_U, DQN, DQN_S),
        seeds=seeds,
    )


FIGURES = {
    "fig3a": Figure(
        title="Figure 3(a): strategies for lambda, MeDQN(U) on MountainCar-v0",
        family=FAMILY,
        task="--task MountainCar-v0",
        variants=(
            *(
                Variant(
                    f"lambda {value}", "medqn-u", f"--lambda-start {value} --lambda-end {value}"
                )
                for value in (0.01, 0.1, 2, 4, 8)
            ),
            Variant("lambda 0.01 to 4", "medqn-u"),
        ),
        seeds=20,
        note="The paper picks the best learning rate for each lambda; here all have Table 3's.",
    ),
    "fig3b": Figure(
        title="Figure 3(b): buffer sizes on MountainCar-v0",
        family=FAMILY,
        task="--task MountainCar-v0",
        variants=(
            Variant("MeDQN(U), 32", "medqn-u"),
            *(
                Variant(f"DQN, {size}", "dqn", f"--buffer-size {size}")
                for size in (10_000, 1_000, 100, 32)
            ),
        ),
        seeds=20,
        note="The buffer sizes are our choice: the paper's text does not list them.",
    ),
    "fig4a": _evaluation("MountainCar-v0", 20),
    "fig4b": _evaluation("Acrobot-v1", 20),
    "fig4c": _evaluation("Catcher", 10),
    "fig4d": _evaluation("Pixelcopter", 10),
}

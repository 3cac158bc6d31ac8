#!/usr/bin/env python
"""Write docs/fidelity.md: every factor that can change learning, in the paper, the release, ours.

Run it as ``python docs/fidelity.py``. The column "ours" comes from the settings files.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from medqn_tianshou.experiments.settings import SETTINGS_CLASSES, resolve_settings

PAGE = Path(__file__).with_name("fidelity.md")
SAME = "the same"
NOTHING = "not stated"
Row = tuple[str, str, str, str]
"""The factor, the paper's text, the released code, and ours: {name} is the value of a setting."""

HEAD = """\
# Fidelity: the paper, the released code, ours

The authors published two code releases: one for Atari, built on Tianshou 0.4, and one for the other
tasks. Where the paper's text and a release differ, our default is the value of the release, which
produced the figures, and a flag selects the value of the text. Two defaults are not the release's:
MinAtar's returns are means of 500 episodes, as in the text (`--return-window 100`), and Seaquest is
the installed MinAtar's (`--seaquest-oxygen flash`). `python docs/fidelity.py` generates
the column "ours" from the [settings](../medqn_tianshou/experiments/settings), which contain the
source of each value. A run records values, sources and the git commit in its `config.json`.
[Tests](../tests/experiments/test_fidelity.py) check the factors that decide results. This page is
about the commands and scripts: in [your own code](own_code.md#pitfalls-and-details), the classes
have Tianshou's defaults, such as double DQN.
"""

ALL: Sequence[Row] = (
    ("loss", "TD loss + lambda x consolidation", SAME, SAME),
    ("consolidation, over actions", "sum", "mean; all lambdas were tuned with it",
     "{consolidation_reduction} (`--consolidation-reduction sum` for the other)"),
    ("consolidation, distance", "squared", "squared, also where the TD loss is Huber",
     "{consolidation_loss}"),
    ("epochs E", "one batch and its targets for E gradient steps, states sampled for each", SAME,
     SAME),
    ("lambda", "linear over the whole training", "linear over the whole training",
     "linear over the published length (`--lambda-steps`), also in a shorter run: its slope stays "
     "comparable"),
    ("states of MeDQN(R)", "a state buffer D_s", "random entries of the replay buffer", SAME),
    ("states of MeDQN(U)", "uniform within the bounds of received states",
     "bounds of the states the agent acted from; the last state of an episode does not enter",
     "as released"),
    ("integer observations of MeDQN(U)", NOTHING, "integers, both bounds included", SAME),
    ("batch of MeDQN(U)", "the one mini-batch", "all 32 transitions, without sampling", SAME),
    ("batch of DQN(S)", NOTHING, "32 sampled with replacement from a buffer of 32", SAME),
    ("double DQN", "no", "no", "{double}"),
    ("replay buffer", NOTHING, "Tianshou's, or an array",
     "{replay} (`--replay raw` for Tianshou's): the same transitions bit for bit, with exact "
     "successors where Tianshou's bootstraps from the state itself (the newest and truncated "
     "transitions)"),
)  # fmt: skip
FAMILY_ROWS: dict[str, tuple[str, str, str, Sequence[Row]]] = {
    "lowdim": ("Low-dimensional tasks", "MountainCar-v0", "medqn-u", (
        ("initial weights", NOTHING, "Kaiming-uniform in every linear layer, zero biases",
         "{init} (`--init torch`)"),
        ("gradient norm", NOTHING, "clipped at 5", "{max_grad_norm}"),
        ("a truncated episode", NOTHING, "terminal: nothing is bootstrapped",
         "bootstraps: {bootstrap_timeouts} (`--bootstrap-timeouts`)"),
        ("episode limit, MountainCar", NOTHING, "1,000 (Gymnasium: 200)", "{max_episode_steps}"),
        ("TD loss", "squared", "squared", "Huber: {huber}"),
        ("n-step", NOTHING, "1", "{n_step}"),
        ("target copy", "every C_target steps", "environment steps",
         "{target_update_env_steps} environment steps (MountainCar)"),
        ("epsilon", "1 to 0.01 over 1,000 steps", SAME,
         "{eps_train} to {eps_train_final} over {eps_decay_steps}"),
        ("warm-up", "1,000 random steps", "1,000, part of the run", "{warmup_steps}"),
        ("positions in Catcher, Pixelcopter", NOTHING,
         "truncated to pixels, by the pygame of that time", "truncated (`rect_rule=\"round\"`)"),
        ("returns in the figures", "last 20 training episodes (Catcher, Pixelcopter: 100)", SAME,
         "{return_window} (MountainCar)"),
    )),
    "minatar": ("MinAtar", "breakout", "medqn-r", (
        ("initial weights", NOTHING,
         "Kaiming-uniform output layer with zero bias, torch's default elsewhere",
         "{init} (`--init torch`)"),
        ("epsilon", "1 to 0.1 over 5,000 steps", "1 to 0.1 over 100,000 steps, from step 0",
         "{eps_train} to {eps_train_final} over {eps_decay_steps} (`--eps-decay-steps 5000`)"),
        ("warm-up", "5,000 random steps", "5,000, part of the run", "{warmup_steps}"),
        ("TD loss", "smooth L1", SAME, "Huber: {huber}"),
        ("optimizer", "RMSprop, centered", SAME, "{optimizer}"),
        ("gradient norm", NOTHING, "not clipped", "{max_grad_norm} (0: not clipped)"),
        ("a truncated episode (Seaquest, 10,000 steps)", NOTHING, "terminal",
         "bootstraps: {bootstrap_timeouts} (`--bootstrap-timeouts`)"),
        ("actions", NOTHING, "all 6, sticky with probability 0.1, difficulty ramping", SAME),
        ("Seaquest's oxygen bar", NOTHING,
         "very probably MinAtar 1.0.10: it flashes to nearly full one step before death",
         "the installed MinAtar's, fixed in 1.0.11 (`--seaquest-oxygen flash`)"),
        ("target copy", "every C_target steps", "environment steps",
         "{target_update_env_steps} environment steps (MeDQN(R), DQN)"),
    )),
    "atari": ("Atari", "NameThisGameNoFrameskip-v4", "medqn-r", (
        ("pixels", NOTHING, "0 to 255 into the network",
         "scaled: {scale_obs} (`--scale-obs 1` for [0, 1])"),
        ("initial weights", NOTHING, "torch's default", SAME),
        ("length", "50M frames", "125 epochs of 100,000 steps", "{epoch} x {step_per_epoch}"),
        ("lambda reaches its end after", "12.5M steps", SAME, "{lambda_steps}"),
        ("a game is truncated after", NOTHING, "108,000 steps (EnvPool 0.6.6)", "108,000 steps"),
        ("a lost life", NOTHING,
         "ends the episode; whether the game continues, depends on EnvPool 0.6.6 (not checked)",
         "ends the episode; the game continues ([details](atari.md#preprocessing))"),
        ("n-step", NOTHING, "3", "{n_step}"),
        ("target copy", NOTHING, "every 500 gradient steps", "{target_update_freq}"),
        ("epsilon", NOTHING, "1 to 0.05 over 1M steps; 0 in evaluations",
         "{eps_train} to {eps_train_final} over {eps_decay_steps}; {eps_test}"),
        ("evaluation", NOTHING, "5 games every 100,000 steps, own scores", "{test_num} games"),
        ("lambda, C_current per game", "picked per game for MeDQN(R)",
         "Qbert, Phoenix: 2, 20; the others: 4, 40",
         "the same; any other game: 4, 40 (our choice)"),
        ("optimizer", NOTHING, "Adam, 1e-4", "Adam, {lr}"),
    )),
}  # fmt: skip

FIGURES: Sequence[tuple[str, str, str]] = (
    ("Figure 3(a)", "the learning rate, tuned for each lambda",
     "Table 3's for all; `--sweep` runs the grid"),
    ("Figure 3(b)", "the learning rate, tuned at every buffer size, and C_current at all but 32",
     "Table 3's at every size; `--sweep` runs the grid. Size 32 is DQN(S) with its own settings"),
    ("Table 1", "E and C_current, tuned without consolidation",
     "Table 10's for both; `--sweep` runs the grid"),
    ("Table 2", "not stated whether settings were tuned per size",
     "Table 10's; `--sweep` runs a grid of our choice"),
    ("Tables 1, 2 (Seaquest)", "very probably made with MinAtar 1.0.10",
     "the installed version, or `--seaquest-oxygen flash`"),
    ("smoothing", "symmetric exponential average, decay of one grid step", SAME),
    ("final return", "last N episodes in the figures; the released analysis averages the last 100, "
     "standard error with ddof 0", "both columns"),
    ("Atari curves", "moving mean of 20 evaluations (2 million steps), median over seeds",
     "mean of the evaluations of the last 250,000 steps, as in the "
     "[published marks](data/atari_published.csv), median over seeds"),
    ("MinAtar curves", "mean of the last 500 episodes; in the released configurations, 100", "500"),
    ("Figure 1", "its code is in neither release", "as the text says"),
)  # fmt: skip


def ours(template: str, values: dict[str, Any]) -> str:
    """Fill in the values of settings."""
    written = {
        name: str(value) if not isinstance(value, int) or isinstance(value, bool) else f"{value:,}"
        for name, value in values.items()
    }
    return template.format(
        **{k: {"True": "yes", "False": "no"}.get(v, v) for k, v in written.items()}
    )


def table(rows: Sequence[Row], values: dict[str, Any]) -> str:
    """Write one table."""
    lines = ["| factor | paper | release | ours |", "|---|---|---|---|"]
    lines += [f"| {row[0]} | {row[1]} | {row[2]} | {ours(row[3], values)} |" for row in rows]
    return "\n".join(lines)


def page() -> str:
    """Write the page."""
    parts = [HEAD]
    for family, (title, task, algo, rows) in FAMILY_ROWS.items():
        settings = resolve_settings(SETTINGS_CLASSES[family], task=task, algo=algo)
        values = {name: entry["value"] for name, entry in settings.written().items()}
        if family == "lowdim":
            shared = {**values, "replay": "compact"}
            parts.append(f"## All tasks\n\n{table(ALL, shared)}\n")
        parts.append(f"## {title}\n\n{table(rows, values)}\n")
    lines = [f"| {' | '.join(row)} |" for row in (("", "paper and release", "ours"), *FIGURES)]
    lines.insert(1, "|---|---|---|")
    return "\n".join([*parts, "## Figures and tables", "", *lines, ""])


if __name__ == "__main__":
    PAGE.write_text(page())

"""The flags that the scripts share, and how they become the settings of a run."""

import argparse
from argparse import BooleanOptionalAction
from pathlib import Path
from typing import Any, get_args

from medqn_tianshou.algorithm.loss import ConsolidationKind, Reduction
from medqn_tianshou.commands.parsing import Parser, byte_size, existing_folder, number, torch_device
from medqn_tianshou.experiments.settings import (
    Setting,
    Settings,
    describe_default,
    load_settings,
    resolve_settings,
    setting_values,
)
from medqn_tianshou.replay.tianshou_buffers import Replay
from medqn_tianshou.training.checkpoints import DEFAULT_INTERVAL, checkpoint_interval
from medqn_tianshou.training.wandb_mirror import Mode

COUNT = number(int, at_least=1)
SHARE = number(float, at_least=0, at_most=1)
# Flags that say what to do with a run, but not how it learns.
NOT_SETTINGS = {
    "task", "algo", "seed", "device", "logdir", "no_progress", "resume_path", "watch", "render",
    "resume", "auto_resume", "checkpoint_every", "keep_checkpoints", "arguments",
    "wandb", "wandb_mode",
}  # fmt: skip

CONSOLIDATION_FLAGS = {
    "lambda_start", "lambda_end", "consolidation_epochs", "consolidation_batch_size",
    "consolidation_loss", "consolidation_reduction", "sampling",
}  # fmt: skip


class FlagGroup:
    """A titled group of flags whose defaults, unless given, are in the family's settings file.

    :param parser: the parser to add to.
    :param family: the settings file.
    :param title: the group's title in ``--help``.
    """

    def __init__(self, parser: Parser, family: str, title: str) -> None:
        self._family = family
        self._group = parser.add_argument_group(title)

    def add(self, flag: str, text: str, **options: Any) -> None:
        """Add a flag.

        :param flag: its name, e.g. ``--lr``.
        :param text: what it means and its unit.
        :param options: as for ``argparse``. Without ``default``, the settings file has it.
        """
        if "default" not in options:
            name = flag.removeprefix("--").replace("-", "_")
            text += f" (default: {describe_default(self._family, name)})"
            options["default"] = None
        self._group.add_argument(flag, help=text.replace("%", "%%"), **options)


def add_run_flags(parser: Parser, family: str, *, device: str) -> FlagGroup:
    """Add what to run and where; return the group for the family's own flags.

    :param parser: the parser to add to.
    :param family: the settings file.
    :param device: the default device.
    """
    group = FlagGroup(parser, family, "what to run")
    group.add(
        "--algo",
        f"the algorithm (default: {_first_algo(family)})",
        choices=list(load_settings(family)["algo"]),
        default=_first_algo(family),
    )
    group.add(
        "--seed",
        "seeds environments, exploration, replay and torch (default: 0)",
        type=number(int, at_least=0),
        default=0,
    )
    group.add(
        "--device",
        f"torch device (default here: {device})",
        type=torch_device,
        default=device,
    )
    return group


def add_dqn_flags(parser: Parser, family: str) -> FlagGroup:
    """Add the settings of DQN itself; return the group for the family's own flags."""
    group = FlagGroup(parser, family, "DQN")
    group.add("--buffer-size", "transitions in the replay buffer", type=COUNT)
    group.add("--batch-size", "transitions per update", type=COUNT)
    group.add("--lr", "learning rate", type=number(float, above=0))
    group.add("--gamma", "discount factor", type=SHARE)
    group.add("--n-step", "steps of reward before bootstrapping", type=COUNT)
    group.add("--step-per-collect", "C_current: environment steps between updates", type=COUNT)
    group.add("--eps-train", "first exploration rate", type=SHARE)
    group.add("--eps-train-final", "last exploration rate", type=SHARE)
    group.add("--eps-decay-steps", "environment steps from the first to the last", type=COUNT)
    group.add("--double", "double DQN targets", action=BooleanOptionalAction)
    group.add("--dueling", "dueling network", action=BooleanOptionalAction)
    group.add("--huber", "Huber TD loss instead of squared error", action=BooleanOptionalAction)
    return group


def add_consolidation_flags(parser: Parser, family: str) -> FlagGroup:
    """Add the settings of knowledge consolidation; return the group for the family's own flags."""
    group = FlagGroup(parser, family, "knowledge consolidation")
    weight = number(float, at_least=0)
    group.add("--lambda-start", "weight of the term at the start", type=weight)
    group.add("--lambda-end", "weight at the end, reached linearly by env step", type=weight)
    group.add("--consolidation-epochs", "E: gradient steps per mini-batch", type=COUNT)
    group.add(
        "--consolidation-batch-size",
        "states per gradient step (default: batch-size)",
        type=COUNT,
        default=None,
    )
    group.add(
        "--consolidation-loss",
        "distance to the target network",
        choices=get_args(ConsolidationKind),
    )
    group.add(
        "--consolidation-reduction",
        "over actions: mean as released, or sum as in the paper's equation",
        choices=get_args(Reduction),
    )
    return group


def add_file_flags(parser: Parser, family: str) -> FlagGroup:
    """Add memory and output; return the group for the family's own flags."""
    group = FlagGroup(parser, family, "memory and files")
    group.add(
        "--replay",
        "compact: lossless, in a fraction of the memory; raw: Tianshou's own buffer",
        choices=get_args(Replay),
    )
    group.add(
        "--memory-cap",
        "most bytes the replay buffer may take, e.g. 800M or 1.5G (default: what is free); compact "
        "holds as many transitions as fit, and gives up the oldest when the whole process comes "
        "near the cap, unless that is less than a process without a buffer takes",
        type=byte_size,
        default=None,
    )
    group.add("--logdir", "where run folders go (default: log)", type=Path, default=Path("log"))
    group.add("--no-progress", "draw no progress bar", action="store_true", default=False)
    group.add(
        "--resume",
        "go on with the run in this folder, by its own settings, from its last checkpoint",
        type=existing_folder,
        default=None,
    )
    group.add(
        "--auto-resume",
        "go on with the newest unfinished run of these settings in --logdir, else start one",
        action="store_true",
        default=False,
    )
    group.add(
        "--checkpoint-every",
        "environment steps (50000), minutes (10m) or both (50000,10m), whichever comes first "
        f"(default: {DEFAULT_INTERVAL})",
        type=checkpoint_interval,
        default=checkpoint_interval(DEFAULT_INTERVAL),
    )
    group.add(
        "--keep-checkpoints", "how many checkpoints to keep (default: 2)", type=COUNT, default=2
    )
    group.add(
        "--wandb",
        "log to this project of Weights & Biases, too: PROJECT or ENTITY/PROJECT",
        metavar="PROJECT",
        default=None,
    )
    group.add(
        "--wandb-mode",
        "with --wandb: offline writes files for `wandb sync` (default: W&B's own, WANDB_MODE)",
        choices=get_args(Mode),
        default=None,
    )
    return group


def add_speed_flags(parser: Parser, family: str) -> None:
    """Add what makes a run faster, at a price."""
    group = FlagGroup(parser, family, "speed")
    group.add(
        "--overlap",
        "collect the next steps during the update, with the weights from before it",
        action=BooleanOptionalAction,
    )
    group.add(
        "--compile",
        "translate the networks with torch.compile, which takes a minute at the start",
        action=BooleanOptionalAction,
    )
    group.add(
        "--threads",
        "threads of torch on the CPU; 0: as many as torch chooses",
        type=number(int, at_least=0),
    )


def add_env_clock_flags(parser: Parser, family: str) -> FlagGroup:
    """Add all flags of a family with one environment, whose clocks all count its steps.

    :return: the group for the family's own flags.
    """
    # The networks are so small that a GPU would spend its time waiting.
    run = add_run_flags(parser, family, device="cpu")
    run.add("--steps", "environment steps, warm-up included", type=COUNT)
    run.add(
        "--max-episode-steps",
        "steps after which an episode is cut; 0: never",
        type=number(int, at_least=0),
    )
    run.add("--return-window", "training episodes that a return averages over", type=COUNT)
    run.add(
        "--eval-every",
        "environment steps between evaluations, which also find the best policy; 0: never",
        type=number(int, at_least=0),
    )
    run.add("--eval-episodes", "episodes per evaluation", type=COUNT)
    run.add(
        "--eps-test",
        "exploration rate in evaluations",
        type=number(float, at_least=0, at_most=1),
    )
    run.add(
        "--timeout-is-terminal",
        "treat a cut episode as ended, as the authors' code does, instead of bootstrapping",
        action=BooleanOptionalAction,
    )
    dqn = add_dqn_flags(parser, family)
    dqn.add(
        "--target-update-env-steps",
        "C_target: environment steps between target network copies",
        type=COUNT,
    )
    dqn.add("--warmup-steps", "environment steps before the first update", type=COUNT)
    dqn.add(
        "--max-grad-norm",
        "clip the gradient to this norm; 0 does not clip",
        type=number(float, at_least=0),
    )
    add_consolidation_flags(parser, family)
    add_speed_flags(parser, family)
    add_file_flags(parser, family)
    return run


def settle_env_clocks(parser: Parser, args: argparse.Namespace, family: str) -> Settings:
    """Settle all settings of a run whose clocks count environment steps.

    :param parser: reports errors.
    :param args: the parsed command line.
    :param family: the settings file.
    """
    settings = settle(parser, args, family)
    value = setting_values(settings)
    if value.steps <= value.warmup_steps:
        parser.bad(
            "--steps", value.steps, f"must exceed the {value.warmup_steps} steps of --warmup-steps"
        )
    if value.buffer_size < value.batch_size:
        parser.bad(
            "--buffer-size",
            value.buffer_size,
            f"is less than a batch; take at least {value.batch_size} or a smaller --batch-size",
        )
    if value.buffer_size <= value.n_step:
        parser.bad(
            "--n-step",
            value.n_step,
            f"is more than a buffer of {value.buffer_size} can look ahead; take at most "
            f"{value.buffer_size - 1} or a larger --buffer-size",
        )
    if value.warmup_steps < value.batch_size:
        parser.bad(
            "--warmup-steps",
            value.warmup_steps,
            f"does not fill a batch; take at least {value.batch_size}",
        )
    return settings


def settle(parser: Parser, args: argparse.Namespace, family: str) -> Settings:
    """Settle all settings of a run and check those that every script has against each other.

    :param parser: reports errors.
    :param args: the parsed command line.
    :param family: the settings file.
    """
    flags = {name: value for name, value in vars(args).items() if name not in NOT_SETTINGS}
    settings = resolve_settings(family, algo=args.algo, task=args.task, flags=flags)
    value = setting_values(settings)
    settings.setdefault("consolidation_batch_size", Setting(value.batch_size, "derived"))
    settings.setdefault("memory_cap", Setting(None, "derived"))
    if args.algo not in _consolidating_algos(family):
        for name in sorted(CONSOLIDATION_FLAGS & flags.keys()):
            if flags[name] not in (None, 0.0):
                choices = " or ".join(_consolidating_algos(family))
                problem = f"has no use with --algo {args.algo}; take --algo {choices}"
                parser.bad(f"--{name.replace('_', '-')}", flags[name], problem)
    return settings


def _consolidating_algos(family: str) -> list[str]:
    algos = load_settings(family)["algo"]
    return [algo for algo in algos if algos[algo]["lambda_start"]["value"] > 0]


def _first_algo(family: str) -> str:
    return str(next(iter(load_settings(family)["algo"])))

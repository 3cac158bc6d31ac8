"""A run before it is started: its command line, checked; its folder; the resources it needs."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import gymnasium as gym
import torch

from medqn_tianshou.commands.flags import add_train_flags
from medqn_tianshou.commands.parsing import Parser
from medqn_tianshou.commands.train import settings_from
from medqn_tianshou.experiments.families import FAMILIES
from medqn_tianshou.training.memory_plan import plan_memory, predict_buffer, predict_states
from medqn_tianshou.training.run_config import find_runs, is_finished
from medqn_tianshou.training.settings import TrainingSettings


class PlanError(ValueError):
    """A command line that cannot run; the text is that of the parser."""


class _PlanParser(Parser):
    def error(self, message: str) -> NoReturn:
        raise PlanError(message)


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """A run of ``medqn train``.

    :param name: a name that can be a file's, and is no other run's.
    :param flags: its command line after ``medqn train FAMILY``, without ``--logdir``.
    :param parent: the folder in ``logdir`` that the run's folder is in.
    :param memory_nbytes: the most memory it will take, predicted.
    """

    name: str
    family: str
    flags: tuple[str, ...]
    logdir: Path
    parent: Path
    identity: dict[str, Any]
    env_steps: int
    cpus: int
    gpus: int
    memory_nbytes: int

    @property
    def typed(self) -> str:
        """The command as a user would type it."""
        return shlex.join(["medqn", "train", self.family, *self.flags])

    @property
    def arguments(self) -> list[str]:
        """The arguments of :mod:`medqn_tianshou.commands.sweep.guarded`."""
        own = ["--logdir", str(self.logdir), "--no-progress", "--auto-resume"]
        return [self.family, *self.flags, *own]

    def folder(self) -> Path | None:
        """Find the run's folder; None before it has started."""
        return next(find_runs(self.parent, self.identity), None)

    def finished_folder(self) -> Path | None:
        """Find the run's folder if it has finished."""
        return next(filter(is_finished, find_runs(self.parent, self.identity)), None)


def plan_run(family: str, flags: Sequence[str], *, name: str, logdir: Path) -> RunPlan:
    """Check a command line with the real parser, and predict the resources of the run.

    :raises PlanError: if the command line is wrong.
    """
    parser = parser_of(family)
    given = vars(parser.parse_args(flags))
    with parser.reporting():
        settings = settings_from(FAMILIES[family].settings_class, given)
        FAMILIES[family].check(settings)
        space = _space_of(settings)
        nbytes = predict_buffer(settings, space) + predict_states(settings, space)
        if settings.memory is not None:  # refused now, rather than when the run starts
            plan_memory(settings, space, rss=0)
    device = settings.options_class(device=given.get("device")).torch_device
    logdir = logdir.absolute()
    return RunPlan(
        name=name,
        family=family,
        flags=tuple(flags),
        logdir=logdir,
        parent=logdir.joinpath(*settings.run_names),
        identity=settings.identity,
        env_steps=settings.total_env_steps,
        cpus=settings.threads or torch.get_num_threads(),
        gpus=int(torch.device(device).type == "cuda"),
        memory_nbytes=settings.memory or settings.process_nbytes + nbytes,
    )


@cache
def parser_of(family: str) -> Parser:
    """Build the command line of ``medqn train FAMILY``, whose errors are :class:`PlanError`."""
    parser = _PlanParser(prog=f"medqn train {family}")
    add_train_flags(parser, FAMILIES[family].settings_class)
    return parser


_spaces: dict[tuple[str, ...], gym.Space[Any]] = {}


def _space_of(settings: TrainingSettings) -> gym.Space[Any]:
    key = settings.family, settings.task, str(settings.buffer_options)
    if key not in _spaces:  # building an environment takes a moment
        _spaces[key] = FAMILIES[settings.family].observation_space(settings)
    return _spaces[key]

"""A run before it runs: its command line checked, where its folder will be, what it will take."""

import argparse
import io
import shlex
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from tianshou.data import ReplayBuffer

from medqn_tianshou.commands.parsing import Parser
from medqn_tianshou.experiments import atari, lowdim, minatar
from medqn_tianshou.experiments.settings import Settings, setting_values
from medqn_tianshou.replay.tianshou_buffers import predict_replay_nbytes
from medqn_tianshou.training.build import env_clock_run_names, example_transitions
from medqn_tianshou.training.memory import MB
from medqn_tianshou.training.resuming import find_runs, is_finished, run_identity

FAMILIES: dict[str, ModuleType] = {"atari": atari, "minatar": minatar, "lowdim": lowdim}
PROCESS_NBYTES = {"atari": 1000 * MB, "minatar": 800 * MB, "lowdim": 800 * MB}
"""What the process of a run takes beside its replay buffer: measured peaks, and a tenth more."""
COMPACT_FRAME_NBYTES = 500
"""Of a frame in a compact buffer; the largest in docs/results/memory is 422."""
COMPACT_ROW_NBYTES = 20
"""Of all else in a transition of a compact buffer."""


class PlanError(ValueError):
    """A command line that cannot run; its text is that of the parser."""


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """A run of ``medqn train``.

    :param name: a name that can be a file's, and is no other run's.
    :param family: whose experiment it is.
    :param flags: its command line after ``medqn train FAMILY``, without ``--logdir``.
    :param logdir: where its folder goes, an absolute path.
    :param parent: the folder in it that holds the run's folder.
    :param identity: what makes it this run, see :func:`run_identity`.
    :param env_steps: its length.
    :param cpus: how many threads it has.
    :param gpus: how many GPUs it uses.
    :param memory_nbytes: the most it will take, predicted.
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
        """What :mod:`medqn_tianshou.commands.sweep.guarded` is called with."""
        own = ["--logdir", str(self.logdir), "--no-progress", "--auto-resume"]
        return [self.family, *self.flags, *own]

    def folder(self) -> Path | None:
        """Find the run's folder; None if it has not begun."""
        return next(find_runs(self.parent, self.identity), None)

    def finished_folder(self) -> Path | None:
        """Find the run's folder if it has come to its end."""
        return next(filter(is_finished, find_runs(self.parent, self.identity)), None)


def plan_run(family: str, flags: Sequence[str], *, name: str, logdir: Path) -> RunPlan:
    """Check a command line with the real parser, and predict what the run will take.

    :param family: whose experiment it is.
    :param flags: the command line after ``medqn train FAMILY``.
    :param name: the run's name.
    :param logdir: where its folder goes.
    :raises PlanError: if the command line is wrong.
    """
    args, settings = settle(family, flags)
    value = setting_values(settings)
    logdir = logdir.absolute()
    return RunPlan(
        name=name,
        family=family,
        flags=tuple(flags),
        logdir=logdir,
        parent=logdir.joinpath(*run_names(family, args, settings)),
        identity=run_identity(args, settings),
        env_steps=value.epoch * value.step_per_epoch if family == "atari" else value.steps,
        cpus=value.threads or torch.get_num_threads(),
        gpus=int(torch.device(args.device).type == "cuda"),
        memory_nbytes=PROCESS_NBYTES[family] + predict_buffer(family, args.task, settings),
    )


def settle(family: str, flags: Sequence[str]) -> tuple[argparse.Namespace, Settings]:
    """Parse a command line and settle its settings.

    :param family: whose experiment it is.
    :param flags: the command line after ``medqn train FAMILY``.
    :raises PlanError: if the command line is wrong.
    """
    parser = parser_of(family)
    errors = io.StringIO()
    try:
        with redirect_stderr(errors):  # warnings, too: each run tells its own
            args = parser.parse_args(flags)
            return args, FAMILIES[family].resolve(parser, args)
    except SystemExit:
        raise PlanError(errors.getvalue().strip().partition("error: ")[2]) from None


@cache
def parser_of(family: str) -> Parser:
    """The command line of ``medqn train FAMILY``."""
    parser: Parser = FAMILIES[family].make_parser(f"medqn train {family}")
    return parser


def run_names(family: str, args: argparse.Namespace, settings: Settings) -> tuple[str, ...]:
    """Name the folders in ``--logdir`` that lead to a run's."""
    return atari.run_names(args, settings) if family == "atari" else env_clock_run_names(args)


def predict_buffer(family: str, task: str, settings: Settings) -> int:
    """Predict the bytes of a full replay buffer.

    :param family: whose experiment it is.
    :param task: the task.
    :param settings: all settings of the run.
    """
    value = setting_values(settings)
    space = _observation_space(family, task, getattr(value, "frames_stack", 0))
    if value.replay == "raw":
        options = atari.buffer_options(settings) if family == "atari" else {}
        # A VectorReplayBuffer takes seconds to compile; it has the same, and the indices again.
        nbytes = predict_replay_nbytes(
            lambda size: ReplayBuffer(size, **options),
            example_transitions(space, 1),
            value.buffer_size,
        )
        return nbytes + int(value.buffer_size) * np.dtype(np.intp).itemsize
    cells = int(np.prod(space.shape or ()))
    row = {"uint8": COMPACT_FRAME_NBYTES, "bool": -(-cells // 8)}.get(
        str(space.dtype), cells * np.dtype(space.dtype).itemsize
    )
    nbytes = int(value.buffer_size) * (row + COMPACT_ROW_NBYTES)
    return nbytes if value.memory_cap is None else min(nbytes, int(value.memory_cap))


@cache
def _observation_space(family: str, task: str, frames_stack: int) -> gym.Space[Any]:
    if family == "atari":  # known without the game, which takes a second to load
        return gym.spaces.Box(0, 255, (frames_stack, 84, 84), np.uint8)
    try:
        limit = {"max_episode_steps": argparse.Namespace(value=1)}
        env: gym.Env[Any, Any] = FAMILIES[family].make_env(task, limit)
    except ImportError as error:
        raise PlanError(f"argument --game: {error}") from None
    space: gym.Space[Any] = env.observation_space
    env.close()  # type: ignore[no-untyped-call]
    return space

"""A trained policy from a run folder, and the episodes it plays."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from medqn_tianshou.algorithm.networks import action_values
from medqn_tianshou.commands.finding import newest_run
from medqn_tianshou.experiments.families import FAMILIES
from medqn_tianshou.experiments.settings import settings_of
from medqn_tianshou.files.extras import install_command
from medqn_tianshou.files.parameters import read_parameters
from medqn_tianshou.training.errors import ConfigError, reason_of
from medqn_tianshou.training.run_config import RunConfigError, read_config

POLICIES = ("policy_best", "policy_last")
"""In this order; runs without evaluation have no best one."""
SUFFIXES = (".safetensors", ".pth")
"""Earlier versions wrote .pth files."""


class AgentError(Exception):
    """A policy that cannot be played; its text is for the user."""


@dataclass(frozen=True, kw_only=True)
class Moment:
    """A step of an episode: the state, its action values, the action and the score."""

    step: int
    q_A: NDArray[np.float32]
    """The value of each action."""
    action: int
    score: float
    """The sum of rewards, that of this action included."""
    picture: NDArray[np.uint8] | None
    """What the environment shows in this state, if it renders."""


class Agent:
    """A trained network and its environment.

    :param path: a run folder, or a policy file in it.
    :param epsilon: how often to act at random; None is the run's own for evaluations.
    :param renders: whether the environment draws itself.
    """

    def __init__(
        self, path: Path, *, seed: int = 0, epsilon: float | None = None, renders: bool = False
    ) -> None:
        self.file = find_policy(path)
        try:
            settings = settings_of(read_config(self.file.parent))
        except (RunConfigError, ConfigError) as error:
            raise AgentError(str(error)) from error
        self.task, self.algo = settings.task, settings.algo
        self._family = FAMILIES[settings.family]
        self.epsilon: float = settings.eps_test if epsilon is None else epsilon
        self._seed: int | None = seed
        self._random = np.random.default_rng(seed)
        mode = "rgb_array" if renders else None
        try:
            self.env = self._family.make_env(settings, seed=seed, render_mode=mode)
        except (ImportError, ValueError) as error:
            extra = self._family.extra
            remedy = f"; {install_command(extra)}" if extra else ""
            raise AgentError(f"{self.task} cannot be played here ({error}){remedy}") from error
        self.model: torch.nn.Module = self._family.make_network(settings, self.env)
        self.model.load_state_dict(_read_parameters(self.file, self.model))
        self.model.eval()

    @property
    def family(self) -> str:
        """The name of the family of the task."""
        return self._family.name

    @property
    def action_names(self) -> tuple[str, ...]:
        """What the actions do."""
        names = getattr(self.env.unwrapped, "action_names", None) or ACTION_NAMES.get(self.task)
        action_space: Any = self.env.action_space
        return tuple(names or (f"action {index}" for index in range(int(action_space.n))))

    def play(self) -> Iterator[Moment]:
        """Play one episode."""
        observation, _ = self.env.reset(seed=self._seed)
        self._seed = None  # further episodes follow from the environment's own generator
        score, step, over = 0.0, 0, False
        while not over:
            picture: Any = self.env.render() if self.env.render_mode == "rgb_array" else None
            q_A = self.q_values(observation)
            action = int(q_A.argmax())
            if self._random.random() < self.epsilon:
                action = int(self._random.integers(len(q_A)))
            observation, reward, terminated, truncated, _ = self.env.step(action)
            score += float(reward)
            over = terminated or truncated
            yield Moment(step=step, q_A=q_A, action=action, score=score, picture=picture)
            step += 1

    @torch.no_grad()
    def q_values(self, observation: NDArray[Any]) -> NDArray[np.float32]:
        """Return the values of all actions in a state."""
        q_BA = action_values(self.model, np.asarray(observation)[None])
        return np.asarray(q_BA[0].numpy(), np.float32)


ACTION_NAMES = {
    "MountainCar-v0": ("left", "none", "right"),
    "Acrobot-v1": ("torque -1", "none", "torque +1"),
}
"""Actions of the environments that do not name them."""


def find_policy(path: Path) -> Path:
    """Find a policy file: the path, or that of a run folder, or of the newest run of a name."""
    run = newest_run(path, lambda folder: _policy_in(folder) is not None) or path
    if run.is_file():
        return run
    if (file := _policy_in(run)) is not None:
        return file
    if run.is_dir():
        raise AgentError(f"contains no {' or '.join(POLICIES)} file; name a run folder, or a file")
    raise AgentError("does not exist; name a run folder such as log/TASK/ALGO/SEED/TIME, or a task")


def _policy_in(folder: Path) -> Path | None:
    files = (folder / f"{name}{suffix}" for name in POLICIES for suffix in SUFFIXES)
    return next((file for file in files if file.is_file()), None)


def _read_parameters(file: Path, model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Read a policy's Q network; the file has its target network as well."""
    try:
        loaded = read_parameters(file)
        parameters = {name: loaded[f"model.{name}"] for name in model.state_dict()}
        for name, own in model.state_dict().items():
            found = parameters[name]
            if found.shape != own.shape or found.dtype != own.dtype or not found.isfinite().all():
                raise ValueError(f"{name} is of {found.dtype} and {tuple(found.shape)}")
    except Exception as error:  # of many kinds, for a foreign file
        raise AgentError(
            f"is not a policy of this run ({reason_of(error)}); name another"
        ) from error
    return parameters

"""A trained policy from a run folder, and the episodes it plays."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from numpy.typing import NDArray

from medqn_tianshou.experiments import atari, lowdim, minatar
from medqn_tianshou.experiments.settings import Setting, Settings, load_settings

POLICY_FILES = ("policy_best.pth", "policy_last.pth")
"""In this order; runs without evaluation have no best one."""


class AgentError(Exception):
    """A policy that cannot be played; its text is for the user."""


@dataclass(frozen=True, kw_only=True)
class Moment:
    """A state in an episode, what the agent thinks of it and does, and what it gets for that."""

    step: int
    q_A: NDArray[np.float32]
    """The value of each action."""
    action: int
    score: float
    """The sum of rewards, that of this action included."""
    picture: NDArray[np.uint8] | None
    """What the environment shows in this state, if it renders."""
    is_last: bool


class Agent:
    """A trained network and its environment.

    :param path: a run folder, or a policy file in it.
    :param seed: the episodes follow from it.
    :param epsilon: how often to act at random; None is the run's own for evaluations, else 0.
    :param renders: whether the environment is to draw itself.
    """

    def __init__(
        self, path: Path, *, seed: int = 0, epsilon: float | None = None, renders: bool = False
    ) -> None:
        self.file = find_policy(path)
        config = _read_config(self.file.parent)
        self.task: str = config["task"]
        self.algo: str = config["algo"]
        self.family = family_of(config)
        settings: Settings = {name: Setting(**entry) for name, entry in config["settings"].items()}
        own_epsilon = settings["eps_test"].value if "eps_test" in settings else 0.0
        self.epsilon: float = own_epsilon if epsilon is None else epsilon
        self._seed: int | None = seed
        self._random = np.random.default_rng(seed)
        self.env = self._make_env(settings, seed=seed, renders=renders)
        make_model = {"atari": atari, "minatar": minatar, "lowdim": lowdim}[self.family].make_model
        self.model: torch.nn.Module = make_model(settings, self.env)
        self.model.load_state_dict(_read_parameters(self.file, self.model))
        self.model.eval()

    @property
    def action_names(self) -> tuple[str, ...]:
        """What the actions do."""
        names = getattr(self.env.unwrapped, "action_names", None) or ACTION_NAMES.get(self.task)
        action_space: Any = self.env.action_space
        return tuple(names or (f"action {index}" for index in range(int(action_space.n))))

    def play(self) -> Iterator[Moment]:
        """Play one episode."""
        observation, _ = self.env.reset(seed=self._seed)
        self._seed = None  # further episodes go on with the environment's own stream
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
            yield Moment(
                step=step,
                q_A=q_A,
                action=action,
                score=score,
                picture=picture,
                is_last=over,
            )
            step += 1

    @torch.no_grad()
    def q_values(self, observation: NDArray[Any]) -> NDArray[np.float32]:
        """Value all actions in a state.

        :param observation: the state.
        """
        q_BA = self.model(np.asarray(observation)[None])[0]
        return np.asarray(q_BA[0].numpy(), np.float32)

    def _make_env(self, settings: Settings, *, seed: int, renders: bool) -> gym.Env[Any, Any]:
        mode = "rgb_array" if renders else None
        try:
            if self.family == "atari":
                return atari.make_env(self.task, settings, seed=seed, render_mode=mode)
            if self.family == "minatar":
                return minatar.make_env(self.task, settings, render_mode=mode)
            return lowdim.make_env(self.task, settings, render_mode=mode)
        except (ImportError, ValueError) as error:
            extra = f"; pip install 'medqn-tianshou[{self.family}]'"
            raise AgentError(
                f"{self.task} cannot be played here ({error}){extra * (self.family != 'lowdim')}"
            ) from error


ACTION_NAMES = {
    "MountainCar-v0": ("left", "none", "right"),
    "Acrobot-v1": ("torque -1", "none", "torque +1"),
}
"""Of the environments that do not name them."""


def find_policy(path: Path) -> Path:
    """Find the policy file that a path means.

    :param path: a run folder, or a policy file.
    """
    if path.is_file():
        return path
    for name in POLICY_FILES:
        if (path / name).is_file():
            return path / name
    if path.is_dir():
        raise AgentError(f"holds no {' or '.join(POLICY_FILES)}; name a run folder, or a file")
    raise AgentError("does not exist; name a run folder such as log/TASK/ALGO/SEED/TIME")


def family_of(config: dict[str, Any]) -> str:
    """Tell which family's experiment a run is.

    :param config: its ``config.json``.
    """
    for family in ("lowdim", "minatar"):
        if config["task"] in load_settings(family)["task"]:
            return family
    if "frames_stack" in config["settings"]:
        return "atari"
    raise AgentError(f"is of the task {config['task']!r}, which is none of this version's")


def _read_config(folder: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise AgentError(
            f"has no readable config.json beside it ({error}); keep a policy in its run folder"
        ) from error
    if not {"task", "algo", "settings"} <= config.keys():
        raise AgentError("has a config.json that is not a run's; name a run folder")
    return config


def _read_parameters(file: Path, model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Read a policy's Q network; the file has its target network as well."""
    try:
        loaded = torch.load(file, map_location="cpu", weights_only=True)
        parameters = {name: loaded[f"model.{name}"] for name in model.state_dict()}
    except Exception as error:  # torch raises many kinds for a foreign file
        reason = str(error).splitlines()[0]
        raise AgentError(f"is not a policy of this run ({reason}); name another") from error
    return parameters

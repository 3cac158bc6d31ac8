"""The contestants of the speed benchmark, and the timing in turns."""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym

from benchmarks.report import note
from benchmarks.setups import Setup
from benchmarks.speed.bare_loop import BareAtariLoop, BareLoop
from benchmarks.speed.compiled_loop import CompiledLoop
from benchmarks.speed.stock import Stock, TrainerContestant

Kind = Literal["stock", "ours", "bare", "compiled", "sb3"]


class Ours(TrainerContestant):
    """A training as our script runs it."""

    def __init__(self, setup: Setup, folder: Path) -> None:
        self.training: Any = setup.prepare(folder)
        self.training.checkpoints = None  # not measured, like evaluation
        self.training.warm_up()
        super().__init__(self.training.trainer)
        self.training.policy.set_env_step(0)

    def advance(self, env_steps: int) -> None:
        """Train for some environment steps; afterwards no work is left in the background."""
        super().advance(env_steps)
        self.training.train_collector.settle()

    def close(self) -> None:
        """Free what it holds."""
        self.training.train_collector.stop()
        super().close()


class StableBaselines:
    """Stable-Baselines3's DQN on the same game and schedule, where it is installed."""

    def __init__(self, setup: Setup) -> None:
        value = setup.value
        self._model = import_module("stable_baselines3").DQN(
            "CnnPolicy",
            _OneOfAVector(setup.make_vector_envs()),
            learning_rate=value.lr,
            buffer_size=value.buffer_size,
            learning_starts=value.warmup_steps,
            batch_size=value.batch_size,
            gamma=value.gamma,
            train_freq=value.step_per_collect,
            gradient_steps=1,
            target_update_interval=setup.target_update_env_steps,
            exploration_initial_eps=setup.epsilon,
            exploration_final_eps=setup.epsilon,
            # Twice the memory otherwise.
            optimize_memory_usage=True,
            replay_buffer_kwargs={"handle_timeout_termination": False},
            device="cpu",
        )
        self.advance(value.warmup_steps)

    def advance(self, env_steps: int) -> None:
        """Train for some environment steps."""
        self._model.learn(env_steps, reset_num_timesteps=False, log_interval=None)

    def close(self) -> None:
        """Free the environment."""
        self._model.env.close()


class _OneOfAVector(gym.Env[Any, Any]):
    """A vector of one environment as this environment."""

    def __init__(self, envs: Any) -> None:
        self._envs = envs
        self.observation_space = envs.observation_space[0]
        self.action_space = envs.action_space[0]

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Start the next episode."""
        obs, info = self._envs.reset()
        return obs[0], info[0]

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Act."""
        obs, rew, terminated, truncated, info = self._envs.step([action])
        return obs[0], float(rew[0]), bool(terminated[0]), bool(truncated[0]), info[0]

    def close(self) -> None:
        """Free the environment."""
        self._envs.close()


@dataclass(frozen=True)
class Entry:
    """A contestant to be built.

    :param kind: whose training it is.
    :param family: the script whose settings it follows.
    :param flags: that script's flags.
    :param chunk: factor on the steps of a chunk, for fast contestants.
    """

    kind: Kind
    family: str
    flags: Sequence[str]
    chunk: int = 1

    def build(self, folder: Path, more_flags: Sequence[str] = ()) -> Any:
        """Build it, with flags that all contestants share, and fill its buffer."""
        setup = Setup(self.family, [*self.flags, *more_flags])
        if self.kind == "stock":
            return Stock(setup, folder)
        if self.kind == "ours":
            return Ours(setup, folder)
        if self.kind == "sb3":
            return StableBaselines(setup)
        if self.kind == "compiled":
            return CompiledLoop(setup)
        return BareAtariLoop(setup) if self.family == "atari" else BareLoop(setup)


def take_turns(
    actions: Mapping[str, Callable[[], None]], *, turns: int, dropped: int
) -> dict[str, list[float]]:
    """Time actions in turns, the order reversed with each round.

    :param dropped: rounds before the timed ones, in which libraries choose and compile kernels.
    :return: for each action, the seconds of each turn.
    """
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    names = list(actions)
    gc.collect()
    gc.freeze()  # otherwise a collection would also visit the objects of all others
    try:
        for turn in range(dropped + turns):
            for name in names if turn % 2 == 0 else reversed(names):
                gc.collect()
                start = time.perf_counter()
                actions[name]()
                elapsed = time.perf_counter() - start
                if turn >= dropped:
                    seconds[name].append(elapsed)
            if turn % 5 == 4:
                note(f"  round {turn + 1} of {dropped + turns}")
    finally:
        gc.unfreeze()
    return seconds

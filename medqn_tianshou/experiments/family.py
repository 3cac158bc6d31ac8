"""Families of experiments: how settings become environments, a network and a training."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, Generic, TypeVar

import gymnasium as gym
import torch
from tianshou.env import BaseVectorEnv

from medqn_tianshou.algorithm.heads import make_head
from medqn_tianshou.algorithm.networks import QNetwork
from medqn_tianshou.algorithm.normalized import NormalizedQNetwork
from medqn_tianshou.envs.single import SingleVectorEnv
from medqn_tianshou.experiments.settings import (
    EnvClockSettings,
    algorithms,
    load_settings,
    resolve_settings,
)
from medqn_tianshou.host.api import Agent
from medqn_tianshou.training import build
from medqn_tianshou.training.errors import ConfigError
from medqn_tianshou.training.loop import Training
from medqn_tianshou.training.options import RunOptions
from medqn_tianshou.training.replay_free import ReplayFreeTraining, make_learner
from medqn_tianshou.training.replay_memory import make_replay
from medqn_tianshou.training.resuming import restore
from medqn_tianshou.training.seeding import seed_everything
from medqn_tianshou.training.settings import REPLAY_FREE, TrainingSettings

S = TypeVar("S", bound=TrainingSettings)
E = TypeVar("E", bound=EnvClockSettings)


class Family(ABC, Generic[S]):
    """A family of experiments: its settings, environments, network and training."""

    settings_class: type[S]
    network_class: Callable[..., QNetwork]
    extra: ClassVar[str | None] = None
    """The extra of this package that the family's environments need."""

    @property
    def name(self) -> str:
        """The name of the family, as ``medqn train`` has it."""
        return self.settings_class.family

    @property
    def tasks(self) -> list[str]:
        """The tasks in the family's settings file."""
        return list(load_settings(self.name)["task"])

    @property
    def algorithms(self) -> list[str]:
        """The algorithms of the family; the first is the default."""
        return algorithms(self.name)

    def settings(
        self, task: str | None = None, *, algo: str | None = None, seed: int = 0, **overrides: Any
    ) -> S:
        """Look up the paper's settings of a task and an algorithm.

        :param task: None is the family's first; likewise the algorithm.
        :param overrides: settings with other values.
        :raises ConfigError: if a value does not fit.
        """
        settings = resolve_settings(
            self.settings_class, task=task, algo=algo, seed=seed, overrides=overrides
        )
        self.check(settings)
        return settings

    def check(self, settings: S) -> None:
        """Check what the settings cannot check by themselves, e.g. that a game is installed."""

    @abstractmethod
    def make_train_envs(self, settings: S, seed: int) -> BaseVectorEnv:
        """Build the environments to learn in."""

    @abstractmethod
    def make_test_envs(self, settings: S, seed: int) -> BaseVectorEnv | None:
        """Build the environments to evaluate in; None if the settings ask for no evaluation."""

    @abstractmethod
    def make_env(
        self, settings: S, *, seed: int = 0, render_mode: str | None = None
    ) -> gym.Env[Any, Any]:
        """Build one environment with whole episodes and unclipped scores.

        :param seed: where the environment's play follows from a seed given now.
        :param render_mode: ``"rgb_array"`` or None.
        """

    def make_network(self, settings: S, env: Any, device: str = "cpu") -> torch.nn.Module:
        """Build the Q network on its device.

        :param env: an environment, or whatever has its spaces.
        """
        if settings.algo in REPLAY_FREE:
            return self._replay_free_network(settings, env).to(device)

        def make_body(outputs: int) -> QNetwork:
            return self.network_class(
                observation_shape=env.observation_space.shape or (),
                action_count=outputs,
                dueling=settings.dueling,
                **self.network_options(settings, device),
            )

        head: Any = settings.head
        return make_head(head, make_body, int(env.action_space.n)).to(device)

    def _replay_free_network(self, settings: S, env: Any) -> torch.nn.Module:
        return NormalizedQNetwork(
            observation_shape=env.observation_space.shape,
            action_count=int(env.action_space.n),
            hidden_sizes=getattr(settings, "hidden_sizes", (128,)),  # MinAtar's own
            streaming=settings.algo == "stream-q",
        )

    def network_options(self, settings: S, device: str) -> dict[str, Any]:
        """Return the arguments of the network that other families' networks do not have."""
        return {}

    def observation_space(self, settings: S) -> gym.Space[Any]:
        """Return the space of one observation."""
        env = self.make_env(settings)
        space: gym.Space[Any] = env.observation_space
        env.close()  # type: ignore[no-untyped-call]
        return space

    def make_policy(self, settings: S, *, envs: Any, sampler_seed: int, device: str) -> Agent:
        """Build network, optimizer and policy.

        :param envs: vector environments, for their spaces.
        """
        spaces = {name: getattr(envs, name)[0] for name in ("observation_space", "action_space")}
        network = self.make_network(settings, SimpleNamespace(**spaces), device)
        return build.build_policy(settings, model=network, sampler_seed=sampler_seed, **spaces)

    def make_training(
        self,
        settings: S,
        options: RunOptions | None = None,
        *,
        watch_policy: Callable[[Agent, int], None] | None = None,
    ) -> Training | ReplayFreeTraining:
        """Build all that trains, and open the run folder; ``run()`` of the result trains.

        :param watch_policy: called with the policy and the environment step before each collect.
        :raises ConfigError: if a setting or an option cannot be used here.
        """
        options = options or self.settings_class.options_class()
        if settings.algo in REPLAY_FREE:
            return self._make_replay_free(settings, options)
        seeds = seed_everything(settings.seed)
        train_envs = self.make_train_envs(settings, seeds.train_envs)
        test_envs = self.make_test_envs(settings, seeds.test_envs)
        device, sampler_seed = options.torch_device, seeds.state_sampler
        policy = self.make_policy(
            settings, envs=train_envs, sampler_seed=sampler_seed, device=device
        )
        if options.resume_path is not None:
            build.load_parameters(policy, options.resume_path)
        replay = make_replay(settings, train_envs, seed=seeds.replay)
        return build.make_training(
            settings,
            options,
            policy=policy,
            replay=replay,
            train_collector=build.make_collector(settings, policy, train_envs, replay),
            test_envs=test_envs,
            on_collect=None if watch_policy is None else partial(watch_policy, policy),
        )

    def _make_replay_free(self, settings: S, options: RunOptions) -> ReplayFreeTraining:
        for name, usual in (
            ("device", (None, "cpu")),
            ("wandb", (None,)),
            ("resume_path", (None,)),
        ):
            if (value := getattr(options, name)) not in usual:
                raise ConfigError(name, value, f"is not for --algo {settings.algo}; leave it out")
        seeds = seed_everything(settings.seed)
        env = self.make_env(settings)
        network: Any = self.make_network(settings, env)
        learner = make_learner(settings, network)
        envs = [env, *(self.make_env(settings) for _ in range(learner.env_count - 1))]
        for number, each in enumerate(envs):
            each.reset(seed=seeds.train_envs + number)
        run, is_new, checkpoints, logs = build.open_folder(settings, options, 0)
        training = ReplayFreeTraining(
            settings=settings, learner=learner, envs=envs, run=run, checkpoints=checkpoints
        )
        print(f"{settings.algo} on {settings.task}, seed {settings.seed}: {run.path}", flush=True)
        if not is_new:
            restore(training, run, checkpoints, logs)
        return training

    def watch(self, settings: S, options: RunOptions) -> None:
        """Play with the policy of ``options.resume_path`` and print the scores."""
        raise ConfigError("watch", True, f"is not for {self.name}; use medqn play RUN")


class EnvClockFamily(Family[E]):
    """A family that trains in one environment, whose steps all clocks count."""

    def make_train_envs(self, settings: E, seed: int) -> BaseVectorEnv:
        """Build the environment to learn in."""
        return self._single(settings, seed, timeouts_terminate=not settings.bootstrap_timeouts)

    def make_test_envs(self, settings: E, seed: int) -> BaseVectorEnv | None:
        """Build the environment to evaluate in, if the settings ask for evaluations."""
        return self._single(settings, seed) if settings.eval_every else None

    def _single(self, settings: E, seed: int, *, timeouts_terminate: bool = False) -> BaseVectorEnv:
        envs = SingleVectorEnv(self.make_env(settings), timeouts_terminate=timeouts_terminate)
        envs.seed(seed)
        return envs

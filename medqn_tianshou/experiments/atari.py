"""The Atari experiments: games, network, watching a trained policy."""

from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from tianshou.env import BaseVectorEnv

from medqn_tianshou.algorithm.networks import NatureQNetwork
from medqn_tianshou.collecting.lean import LeanCollector
from medqn_tianshou.envs.atari import atari_tasks, make_atari_envs, nearest_task
from medqn_tianshou.experiments.family import Family
from medqn_tianshou.experiments.settings import AtariSettings
from medqn_tianshou.files.extras import install_command
from medqn_tianshou.training.build import load_parameters
from medqn_tianshou.training.errors import ConfigError
from medqn_tianshou.training.options import RunOptions
from medqn_tianshou.training.seeding import seed_everything


class AtariFamily(Family[AtariSettings]):
    """Atari games on EnvPool or ale-py."""

    settings_class = AtariSettings
    network_class = NatureQNetwork
    extra = "atari"

    def check(self, settings: AtariSettings) -> None:
        """Check that the game is installed."""
        tasks, task = atari_tasks(), settings.task
        if not tasks:
            remedy = f"cannot be played, as no games are installed; {install_command('atari')}"
            raise ConfigError("task", task, remedy)
        if task not in tasks:
            near = nearest_task(task)
            hint = f"did you mean {near}?" if near else "for example QbertNoFrameskip-v4 is one"
            raise ConfigError("task", task, f"is not an Atari task; {hint}")

    def make_train_envs(self, settings: AtariSettings, seed: int) -> BaseVectorEnv:
        """Build games that end with each life, with clipped rewards."""
        return self._envs(settings, num_envs=settings.training_num, seed=seed, training=True)

    def make_test_envs(self, settings: AtariSettings, seed: int) -> BaseVectorEnv:
        """Build whole games with unclipped scores."""
        return self._envs(settings, num_envs=settings.test_env_num, seed=seed, training=False)

    def make_env(
        self, settings: AtariSettings, *, seed: int = 0, render_mode: str | None = None
    ) -> gym.Env[Any, Any]:
        """Build one whole game with its unclipped score."""
        env: gym.Env[Any, Any]
        (env,) = self._one_env(settings, seed, render_mode).get_env_attr("unwrapped")
        return env

    def _one_env(self, settings: AtariSettings, seed: int, mode: str | None) -> BaseVectorEnv:
        on_ale = replace(settings, env_backend="ale")
        return self._envs(on_ale, num_envs=1, seed=seed, training=False, render_mode=mode)

    def _envs(self, settings: AtariSettings, **options: Any) -> BaseVectorEnv:
        return make_atari_envs(
            task=settings.task,
            backend=settings.env_backend,
            frames_stack=settings.frames_stack,
            **options,
        )

    def network_options(self, settings: AtariSettings, device: str) -> dict[str, Any]:
        """Return how pixels are scaled and laid out."""
        return {
            "scale_uint8": bool(settings.scale_obs),
            "channels_last": torch.device(device).type == "cpu",  # faster there, see docs/speed.md
        }

    def observation_space(self, settings: AtariSettings) -> gym.Space[Any]:
        """Return the space of one observation, without the game, which takes a second to load."""
        return gym.spaces.Box(0, 255, (settings.frames_stack, 84, 84), np.uint8)

    def watch(self, settings: AtariSettings, options: RunOptions) -> None:
        """Play with the policy of ``options.resume_path`` and print the scores."""
        seeds = seed_everything(settings.seed)
        if options.render:
            envs = self._one_env(settings, seeds.test_envs, "human")
        else:
            envs = self.make_test_envs(settings, seeds.test_envs)
        policy = self.make_policy(
            settings, envs=envs, sampler_seed=seeds.state_sampler, device=options.torch_device
        )
        if options.resume_path is not None:
            load_parameters(policy, options.resume_path)
        policy.set_eps(settings.eps_test)
        collector = LeanCollector(policy, envs, exploration_noise=True)
        collector.reset()
        stats = collector.collect(n_episode=settings.test_num, render=options.render or None)
        print(f"returns {stats.returns.tolist()}, mean {stats.returns.mean():.2f}")


ATARI = AtariFamily()

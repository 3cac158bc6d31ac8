"""The limit for MountainCar: the whole training, environment included, as one compiled program."""
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from typing import Any

import numpy as np
from numba import njit

from benchmarks.setups import Setup
from medqn_tianshou.algorithm.networks import MLPQNetwork
from medqn_tianshou.fast.flat import FlatNetwork, aligned_zeros, make_work
from medqn_tianshou.fast.kernels import values_of
from medqn_tianshou.fast.updates import ADAM, LOSS_TERMS, update

LIMIT = 1000
"""Steps of an episode."""


class CompiledLoop:
    """DQN or MeDQN(U) on MountainCar in numba, with the update that our training calls."""

    def __init__(self, setup: Setup) -> None:
        value = setup.value
        if value.task != "MountainCar-v0" or value.optimizer != "adam":
            raise ValueError(f"{value.task} with {value.optimizer} is not compiled")
        shape, actions = (2,), 3
        networks: list[Any] = [
            FlatNetwork.of(
                MLPQNetwork(
                    observation_shape=shape, action_count=actions, hidden_sizes=value.hidden_sizes
                )
            )
            for _ in range(2)
        ]
        online, target = networks
        target.values[:] = online.values
        size = value.buffer_size
        epochs = value.consolidation_epochs
        self._network = (online.values, target.values, online.layout)
        self._optimizer = tuple(aligned_zeros(len(online.values)) for _ in range(3))
        self._ring = (
            np.zeros((size, 2), np.float32), np.zeros((size, 2), np.float32),
            np.zeros(size, np.int64), np.zeros(size), np.zeros(size),
        )  # fmt: skip
        self._bounds = np.array([[np.inf, np.inf], [-np.inf, -np.inf]])
        self._game = np.array([-0.5, 0.0, 0.0])  # position, velocity, steps of the episode
        count = value.batch_size
        self._coef = float(value.lambda_start) if setup.consolidates else 0.0
        states = count if self._coef else 0
        self._work = make_work(online.layout, count + states)
        self._one = make_work(online.layout, 1)
        self._scratch = (np.zeros(count, np.float32), np.zeros(LOSS_TERMS))
        self._numbers = (float(value.lr), 0.9, 0.999, 1e-8)
        self._constants = (
            count, states, epochs, value.step_per_collect, setup.target_update_env_steps,
            setup.whole_buffer, setup.epsilon, float(value.gamma), float(value.max_grad_norm),
        )  # fmt: skip
        self._env_steps = 0
        self._run(value.warmup_steps, learns=False)

    def advance(self, env_steps: int) -> None:
        """Train for some environment steps."""
        self._run(env_steps, learns=True)

    def _run(self, env_steps: int, *, learns: bool) -> None:
        _train(
            self._env_steps, env_steps, learns, self._network, self._optimizer, self._ring,
            self._bounds, self._game, self._work, self._one, self._scratch, self._numbers,
            self._coef, self._constants,
        )  # fmt: skip
        self._env_steps += env_steps

    def close(self) -> None:
        """Nothing is held."""


@njit
def _train(  # pragma: no cover
    start, env_steps, learns, network, optimizer, ring, bounds, game, work, one, scratch, numbers,
    coef, constants,
):  # fmt: skip
    params, target, layout = network
    grads, first, second = optimizer
    obs, obs_next, act, rew, factor = ring
    count, states_count, epochs, interval, sync, whole, epsilon, gamma, max_norm = constants
    errors, losses = scratch
    size = len(act)
    state = np.empty((1, 2), np.float32)
    states = np.empty((states_count * epochs, 2), np.float32)
    for step in range(start, start + env_steps):
        state[0, 0], state[0, 1] = game[0], game[1]
        action = np.random.randint(3)
        if learns and np.random.random() >= epsilon:
            action = int(np.argmax(values_of(state, params, layout, one)[0]))
        for i in range(2):
            bounds[0, i] = min(bounds[0, i], state[0, i])
            bounds[1, i] = max(bounds[1, i], state[0, i])
        velocity = game[1] + (action - 1) * 0.001 - np.cos(3 * game[0]) * 0.0025
        velocity = min(max(velocity, -0.07), 0.07)
        position = min(max(game[0] + velocity, -1.2), 0.6)
        if position == -1.2 and velocity < 0:
            velocity = 0.0
        game[0], game[1], game[2] = position, velocity, game[2] + 1
        done = (position >= 0.5 and velocity >= 0) or game[2] >= LIMIT
        slot = step % size
        obs[slot] = state[0]
        obs_next[slot, 0], obs_next[slot, 1] = position, velocity
        act[slot], rew[slot], factor[slot] = action, -1.0, 0.0 if done else gamma
        if done:
            game[0], game[1], game[2] = np.random.uniform(-0.6, -0.4), 0.0, 0
        if not learns:
            continue
        if step % sync == 0:
            target[:] = params
        if step % interval == 0:
            stored = min(step + 1, size)
            index = np.arange(count) if whole else np.random.randint(0, stored, count)
            for k in range(len(states)):
                for i in range(2):
                    states[k, i] = np.random.uniform(bounds[0, i], bounds[1, i])
            update(
                obs[index], act[index], rew[index], factor[index], obs_next[index], states, params,
                target, grads, first, second, layout, work, epochs, (step // interval) * epochs, 1,
                2**62, False, False, True, coef, max_norm, ADAM, numbers, errors, losses,
            )  # fmt: skip

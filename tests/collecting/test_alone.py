"""One environment with a ring buffer is collected by a loop of its own, with the same results."""

import gymnasium as gym
import numpy as np
import pytest
from frames import Frames, make_policy
from learners import build
from tianshou.env import DummyVectorEnv

from medqn_tianshou import FastMeDQNPolicy, LeanCollector
from medqn_tianshou.collecting import alone
from medqn_tianshou.collecting.alone import suits_alone
from medqn_tianshou.envs.single import SingleVectorEnv
from medqn_tianshou.replay.ring import RingReplayBuffer


class Swing(gym.Env):
    """Ends in both ways, and pays whole numbers and single-precision ones."""

    observation_space = gym.spaces.Box(-9, 9, (4,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def __init__(self):
        self.at = np.zeros(4, np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at[:] = self.np_random.normal(size=4)
        self.left = 7
        return self.at, {}

    def step(self, action):
        self.at += self.np_random.normal(size=4).astype(np.float32) * action
        self.left -= 1
        reward = 2 if action == 1 else np.float32(0.1)
        return self.at, reward, bool(self.at[0] > 1), self.left == 0, {}


def collected(envs, make, n_step):
    np.random.seed(0)
    envs.seed(3)
    policy = make()
    policy.set_eps(0.4)
    buffer = RingReplayBuffer(9, 1)
    seen, ended = [], []
    collector = LeanCollector(
        policy,
        envs,
        buffer,
        exploration_noise=True,
        on_states=lambda obs: seen.append(obs.copy()),
        on_episode_end=lambda *episode: ended.append(episode),
    )
    collector.reset()
    stats = [collector.collect(n_step=n_step) for _ in range(60 // n_step)]
    state = collector.state_dict()
    state["clocks"].pop()  # seconds
    part = buffer.buffers[0]
    return {
        "buffer": [buffer._meta[name] for name in sorted(buffer._meta.get_keys())],
        "part": [part._insertion_idx, part._size, part._ep_return, part._ep_len, part._ep_start_idx,
                 part.last_index, buffer.last_index, len(buffer)],
        "stats": [(each.n_collected_steps, each.n_collected_episodes, each.returns, each.lens,
                   each.returns_stat and each.returns_stat.mean) for each in stats],
        "state": state,
        "hooks": (seen, ended),
        "draws": np.random.get_state()[1:3],
    }  # fmt: skip


@pytest.mark.parametrize("n_step", [1, 4, 20])
@pytest.mark.parametrize(
    ("game", "make"), [(Swing, lambda: build(FastMeDQNPolicy)), (Frames, make_policy)]
)
def test_it_collects_what_a_vector_of_one_environment_gives(game, make, n_step, monkeypatch):
    taken = []
    take = alone.take_alone
    monkeypatch.setattr(
        "medqn_tianshou.collecting.lean.take_alone",
        lambda *given: taken.append(given) or take(*given),
    )
    ours = collected(SingleVectorEnv(game()), make, n_step)
    assert len(taken) == 60 // n_step - 1  # the first collect lays the storage out
    expected = collected(DummyVectorEnv([game]), make, n_step)
    assert len(taken) == 60 // n_step - 1
    assert len(expected["hooks"][1]) > 2
    np.testing.assert_equal(ours, expected)


@pytest.mark.parametrize("vector", [SingleVectorEnv, lambda env: DummyVectorEnv([lambda: env])])
def test_a_limit_of_episodes_holds_beside_one_of_steps(vector):
    policy = build(FastMeDQNPolicy)
    collector = LeanCollector(policy, vector(Swing()), RingReplayBuffer(99, 1))
    collector.reset()
    collector.collect(n_step=3)
    stats = collector.collect(n_step=50, n_episode=2)
    assert stats.n_collected_episodes == 2
    assert stats.n_collected_steps < 50


def test_it_steps_aside():
    def collector(**options):
        made = LeanCollector(
            make_policy(), SingleVectorEnv(Frames()), RingReplayBuffer(9, 1), **options
        )
        made.reset()
        made.collect(n_step=2)
        return made

    plain = collector()
    assert suits_alone(plain)
    plain.env.step = plain.env.step  # replaced
    assert not suits_alone(plain)
    assert not suits_alone(collector(on_step_hook=lambda *_: None))
    other = collector()
    other.buffer.reset()
    other.buffer._meta.__dict__.pop("done")
    assert not suits_alone(other)

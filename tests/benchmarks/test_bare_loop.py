"""The bare loop of the speed benchmark trains as the others do."""

import numpy as np
import pytest

from benchmarks import setups
from benchmarks.speed import bare_loop, bare_replay, races

pytestmark = pytest.mark.slow

SMALL_ATARI = ["--buffer-size", "500"]


def test_frames_are_stacked_within_episodes_and_rewards_end_with_them():
    generator = np.random.default_rng(0)
    env_count, length, gamma, n_step = 2, 30, 0.9, 3
    ring = bare_replay.FrameRing(
        capacity=env_count * length,
        env_count=env_count,
        n_step=n_step,
        gamma=gamma,
        generator=generator,
    )
    history = []
    age = np.zeros(env_count, np.int64)
    for step in range(50):
        rew = generator.random(env_count).astype(np.float32)
        done = generator.random(env_count) < 0.15
        act = generator.integers(5, size=env_count)
        frames = np.zeros((env_count, 84, 84), np.uint8)
        frames[:] = np.array([step, 100 + step])[:, None, None]
        ring.add(frames, age, act, rew, done)
        history.append((age.copy(), act, rew, done))
        age = np.where(done, 0, age + 1)

    step, env = ring.draw(400)
    assert set(zip(step, env, strict=True)) == {
        (t, e) for t in range(50 - length + 3, 50 - n_step) for e in range(env_count)
    }
    act, rewards, factors = ring.targets(step, env)
    stacks = ring.stacks(step, env)
    for i, (t, e) in enumerate(zip(step, env, strict=True)):
        start = t - history[t][0][e]
        expected = [100 * e + max(t - back, start) for back in (3, 2, 1, 0)]
        np.testing.assert_array_equal(stacks[i, :, 5, 7], expected)
        reward, factor = 0.0, 1.0
        for later in range(t, t + n_step):
            reward += factor * history[later][2][e]
            factor *= gamma
            if history[later][3][e]:
                factor = 0.0
                break
        assert act[i] == history[t][1][e]
        assert rewards[i] == pytest.approx(reward, rel=1e-6)
        assert factors[i] == pytest.approx(factor, rel=1e-6)
    assert 0 < np.count_nonzero(factors) < len(factors)


def test_the_bare_loop_sees_the_game_that_the_others_see():
    setup = setups.Setup("atari", [*races.MEDQN_C20, *SMALL_ATARI, "--warmup-steps", "40"])
    loop = bare_loop.BareAtariLoop(setup)
    generator = np.random.default_rng(setup.value.seed)
    envs = setup.make_vector_envs()
    obs, _ = envs.reset()
    shown = []
    ends = 0
    for step in range(400):
        shown.append(obs[0])
        act = generator.integers(envs.action_space[0].n, size=1)
        obs, _, terminated, truncated, _ = envs.step(act)
        if terminated | truncated:
            ends += 1
            obs, _ = envs.reset()
        if step >= 40:  # the loop's warm-up has taken the first
            loop.step(act)
        if step >= 39:
            np.testing.assert_array_equal(loop.stacks, obs)
    assert ends > 1
    # ... and replays it.
    stacks = loop.ring.stacks(np.arange(400), np.zeros(400, np.int64))
    np.testing.assert_array_equal(stacks, shown)


def capture_update(loop, monkeypatch):
    captured = []
    monkeypatch.setattr(loop.learner, "update", lambda *args: captured.append(args))
    loop._update()
    ((states, *targets),) = captured
    return states.numpy(), *(target.numpy() for target in targets)


def test_the_bare_loop_learns_from_successors_n_steps_on(monkeypatch):
    setup = setups.Setup("atari", [*races.MEDQN_C20, *SMALL_ATARI, "--warmup-steps", "400"])
    loop = bare_loop.BareAtariLoop(setup)
    states, act, rew, factor = capture_update(loop, monkeypatch)
    assert states.shape == (96, 4, 84, 84)
    assert act.shape == rew.shape == factor.shape == (32,)
    going_on = factor > 0
    assert going_on.sum() > 16
    # The newest frame of a state is the oldest of the stack three steps on.
    np.testing.assert_array_equal(states[:32, -1][going_on], states[-32:, 0][going_on])
    assert (states[:32] != states[-32:]).any(axis=(1, 2, 3)).sum() > 16


def test_the_bare_loop_learns_from_all_it_holds_and_from_uniform_states(monkeypatch):
    flags = races.MOUNTAIN_CAR_FLAGS["medqn_u_e4"][0]
    loop = bare_loop.BareLoop(setups.Setup("lowdim", [*flags, "--warmup-steps", "200"]))
    loop.ring.alive[5] = 0.0
    states, act, rew, factor = capture_update(loop, monkeypatch)
    obs, drawn, obs_next = np.split(states, [32, 32 + 4 * 32])
    for given, held in zip(
        (obs, obs_next, act, rew), ("obs", "obs_next", "act", "rew"), strict=True
    ):
        np.testing.assert_array_equal(given, getattr(loop.ring, held))
    np.testing.assert_array_equal(factor == 0, np.arange(32) == 5)
    assert factor.max() == np.float32(0.99)
    assert len(np.unique(drawn, axis=0)) == 4 * 32
    assert (drawn.min(axis=0) < obs.min(axis=0)).any()  # the bounds are those of all states


def test_uniform_states_stay_within_what_was_seen():
    generator = np.random.default_rng(0)
    seen = np.zeros((3, 2, 4), np.bool_)
    seen[:, 0, 0] = True
    seen[1, 0, 1] = True
    floats = np.array([[0.5, -1.0], [0.25, 1.0]], np.float32)
    for states, low, high in ((seen, seen.all(axis=0), seen.any(axis=0)), (floats, None, None)):
        low = states.min(axis=0) if low is None else low
        high = states.max(axis=0) if high is None else high
        bounds = bare_replay.Bounds(example=states[0], generator=generator)
        for state in states[1:]:
            bounds.widen(state)
        drawn = bounds.draw(200)
        assert drawn.dtype == states.dtype
        assert (drawn >= low).all()
        assert (drawn <= high).all()
        assert (drawn.std(axis=0)[low != high] > 0.05).all()

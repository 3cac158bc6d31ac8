"""The speed benchmark: contestants do the same work, and ratios are of what was measured."""

import json
import sys
from statistics import median

import numpy as np
import pytest
import torch
from scripts import load_script
from tianshou.data import Batch

report = load_script("benchmarks/report.py")
speed = load_script("benchmarks/speed.py")
# Those that it imports.
(
    bare_learner, bare_loop, bare_replay, breakdown, contestants, options, races, ratios, setups,
    stock,
) = (
    sys.modules[name]
    for name in (
        "bare_learner", "bare_loop", "bare_replay", "breakdown", "contestants", "options", "races",
        "ratios", "setups", "stock",
    )
)  # fmt: skip

TINY = speed.Sizes(
    races={
        "atari_1env": (50, 20),
        "minatar": (40, 4),
        "mountaincar": (40, 8),
    },
    turns=3,
    dropped=1,
    update_turns=1,
    breakdown_chunks=1,
)
SMALL_ATARI = ["--buffer-size", "500"]


def test_figures_and_ratios_have_the_names_of_the_table(tmp_path, capsys):
    flags = ["--quick", "--parts", "mountaincar,minatar", "--out", str(tmp_path / "page")]
    assert speed.main([*flags, "--json", str(tmp_path / "speed.json")], TINY) == 0
    content = json.loads((tmp_path / "speed.json").read_text())
    page = (tmp_path / "page" / "README.md").read_text()
    assert capsys.readouterr().out.endswith(page + "\n")
    assert list(content["parts"]) == ["minatar", "mountaincar"]

    figures = content["figures"]
    for prefix, algorithms in {
        "minatar": ("medqn_u_c32", "medqn_r_c4_e2", "dqn_c1"),
        "mountaincar": ("medqn_u_e4", "dqn_c8"),
    }.items():
        measured = content["parts"][prefix]["measured"]["steps_per_s"]
        for algorithm in algorithms:
            for name in (f"stock_{algorithm}", algorithm, f"bare_{algorithm}"):
                assert len(measured[name]) == TINY.turns
                assert figures[f"{prefix}_{name}_steps_per_s"] == median(measured[name]) > 0
                assert f"| {name} " in page
    assert len(figures) == 15

    expected = {
        "minatar_medqn_u_c32_to_stock_medqn": ("medqn_u_c32", "stock_medqn_u_c32"),
        "minatar_medqn_r_c4_e2_to_bare_loop": ("medqn_r_c4_e2", "bare_medqn_r_c4_e2"),
        "minatar_dqn_c1_to_bare_loop": ("dqn_c1", "bare_dqn_c1"),
        "mountaincar_medqn_u_e4_to_stock_medqn": ("medqn_u_e4", "stock_medqn_u_e4"),
    }
    assert content["ratios"].keys() == content["limits"].keys() == expected.keys()
    for name, (of, to) in expected.items():
        prefix = name.partition("_")[0]
        above, below = (figures[f"{prefix}_{figure}_steps_per_s"] for figure in (of, to))
        value, limits = content["ratios"][name], content["limits"][name]
        assert value == pytest.approx(above / below)
        assert limits["met"] == (value >= limits["floor"])
        assert limits["floor"] < limits["aim"]
        assert f"| {value:.3g} x " in page


def test_every_ratio_is_of_figures_that_a_part_measures():
    measured = {f"update_{name}_ms" for name in races.UPDATE_ENTRIES}
    for prefix, entries in {
        "atari_1env": races.ATARI_ENTRIES,
        "atari_10env": races.ATARI10_ENTRIES,
        "minatar": races.MINATAR_ENTRIES,
        "mountaincar": races.MOUNTAIN_CAR_ENTRIES,
    }.items():
        measured |= {f"{prefix}_{name}_steps_per_s" for name in entries}
        for sizes in (speed.Sizes(), speed.QUICK):
            assert sizes.races[prefix][1] > 0
    assert ratios.known_ratios(measured) == list(ratios.RATIOS)
    assert len({ratio.name for ratio in ratios.RATIOS}) == len(ratios.RATIOS) == 12


@pytest.mark.parametrize("sizes", [speed.Sizes(), speed.QUICK], ids=["full", "quick"])
def test_chunks_end_with_an_update(sizes):
    for prefix, entries in {
        "atari_1env": races.ATARI_ENTRIES,
        "atari_10env": races.ATARI10_ENTRIES,
        "minatar": races.MINATAR_ENTRIES,
        "mountaincar": races.MOUNTAIN_CAR_ENTRIES,
    }.items():
        for entry in entries.values():
            setup = setups.Setup(entry.family, entry.flags)
            assert sizes.races[prefix][1] * entry.chunk % setup.value.step_per_collect == 0


def test_a_floor_is_met_from_its_value_on():
    options = {"what": "x", "at_least": 1.7, "unit": "x"}
    assert report.Target(value=1.7, **options).met
    assert not report.Target(value=1.69, **options).met


def test_turns_alternate_and_the_first_are_not_counted(monkeypatch):
    calls = []
    actions = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    ticks = iter(range(100))
    monkeypatch.setattr(contestants.time, "perf_counter", lambda: next(ticks) ** 2)
    seconds = contestants.take_turns(actions, turns=2, dropped=1)
    assert calls == ["a", "b", "b", "a", "a", "b"]
    # The n-th call took from (2n)^2 to (2n + 1)^2.
    assert seconds == {"a": [13, 17], "b": [9, 21]}


class Recorded:
    """Stands in for state samplers: gives what it was given, in order."""

    def __init__(self, batches):
        self._batches = iter(batches)

    def sample(self, batch_size, buffer):
        return next(self._batches)

    draw = sample


UPDATES = {
    "atari": ("atari", races.MEDQN_C20),
    "minatar": ("minatar", races.MINATAR_FLAGS["medqn_r_c4_e2"][0]),
    "mountaincar": ("lowdim", races.MOUNTAIN_CAR_FLAGS["medqn_u_e4"][0]),
}


def our_policy(setup, states):
    envs = setup.make_vector_envs()
    policy = setup.family.make_policy(setup.value, device="cpu", envs=envs, sampler_seed=0)
    envs.close()
    policy.set_consolidation_coef(setup.value.lambda_end)
    policy.state_sampler = states
    return policy


@pytest.mark.parametrize("make_policy", [our_policy, stock.make_stock_policy])
@pytest.mark.parametrize("task", UPDATES)
def test_an_update_of_the_bare_loop_is_that_of_the_policies(task, make_policy):
    torch.manual_seed(0)
    generator = np.random.default_rng(0)
    setup = setups.Setup(*UPDATES[task])
    count, epochs = setup.value.batch_size, setup.value.consolidation_epochs
    space, actions = setup.spaces
    shape = (count * (2 + epochs), *space.shape)
    all_states = (
        generator.integers(0, 256, shape).astype(np.uint8)
        if task == "atari"
        else generator.integers(0, 2, shape).astype(space.dtype)
    )
    obs, *drawn, obs_next = np.split(all_states, 2 + epochs)
    act = generator.integers(actions.n, size=count)
    rew, factor = generator.random((2, count)).astype(np.float32)

    learner = bare_learner.BareLearner(setup)
    policy = make_policy(setup, Recorded(drawn))
    with torch.no_grad():
        for parameter in learner.target.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
        for mine, theirs in ((learner.network, policy.model), (learner.target, policy.model_old)):
            for one, other in zip(mine.parameters(), theirs.parameters(), strict=True):
                other.copy_(one)
        before = [parameter.clone() for parameter in learner.network.parameters()]
        value = policy.model_old(obs_next)[0].max(dim=1).values
    returns = torch.from_numpy(rew) + torch.from_numpy(factor) * value
    policy._iter = 1  # no copy to the target network now
    policy._replay = None
    policy.learn(Batch(obs=obs, act=act, returns=returns[:, None], info=[]))

    to_floats = bare_loop.to_floats if task == "atari" else lambda x: torch.from_numpy(x).float()
    learner.update(to_floats(all_states), *map(torch.from_numpy, (act, rew, factor)))
    for one, other, old in zip(
        learner.network.parameters(), policy.model.parameters(), before, strict=True
    ):
        # Adam's first steps are of the learning rate's size, whatever the gradient.
        close = (one - other).abs() <= 0.01 * setup.value.lr
        assert close.float().mean() > 0.999
        assert (one - old).abs().max() > 0.1 * setup.value.lr


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


@pytest.mark.parametrize("kind", ["stock", "ours", "bare"])
@pytest.mark.parametrize("envs", [(), races.TEN], ids=["1 env", "10 envs"])
def test_a_contestant_updates_once_in_c_current_steps(kind, envs, tmp_path, monkeypatch):
    updates = []
    update = bare_learner.BareLearner.update
    monkeypatch.setattr(
        bare_learner.BareLearner, "update", lambda *args: updates.append(update(*args))
    )
    entry = contestants.Entry(kind, "atari", (*races.MEDQN_C20, *SMALL_ATARI, *envs))
    member = entry.build(tmp_path, ["--warmup-steps", "50"])
    member.advance(20)
    member.advance(40)
    if kind != "bare":
        assert member.trainer.env_step == 60
        assert member.trainer.policy.eps == 0.05
        updates = range(member.trainer.policy._iter)
        member.update()
        assert member.trainer.policy._iter == 4
    assert len(updates) == 3
    member.close()


def test_a_vector_of_one_is_an_environment_for_peers():
    setup = setups.Setup("atari", races.DQN_C10)
    env = contestants._OneOfAVector(setup.make_vector_envs())
    vector = setup.make_vector_envs()
    obs, info = env.reset(seed=3)
    np.testing.assert_array_equal(obs, vector.reset()[0][0])
    assert env.observation_space.contains(obs)
    assert isinstance(info, dict)
    for _ in range(20):
        act = env.action_space.sample()
        obs, rew, terminated, truncated, info = env.step(act)
        expected = vector.step([act])
        np.testing.assert_array_equal(obs, expected[0][0])
        assert (rew, terminated, truncated) == tuple(column[0] for column in expected[1:4])
        assert isinstance(info, dict)


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


def test_the_breakdown_covers_every_piece():
    result = breakdown.measure_breakdown(TINY)
    atari, minatar = result["us_per_env_step"].values()
    assert minatar.keys() == breakdown.PIECES.keys()
    assert atari.keys() == breakdown.PIECES.keys() - {"bounds"}
    assert min(*atari.values(), *minatar.values()) > 0
    assert result["figures"]["breakdown_minatar_medqn_u_c32_env_us"] == minatar["env"]
    table = breakdown.show_breakdown(result).tables[1]
    shares = [float(row[-1].removesuffix(" %")) for row in table.rows]
    assert sum(shares[:-1]) == pytest.approx(shares[-1], abs=0.5)


def test_a_stopwatch_leaves_out_what_inner_functions_take(monkeypatch):
    clock = iter([0, 1, 4, 10])
    monkeypatch.setattr(breakdown.time, "perf_counter", lambda: next(clock))
    stopwatch = breakdown.Stopwatch()
    inner = stopwatch.wrap("inner", lambda: 5)
    assert stopwatch.wrap("outer", lambda: inner())() == 5
    assert stopwatch.seconds == {"inner": 3, "outer": 7}


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--parts", "atari,minatr"], "--parts: 'minatr' is not a part; choose from atari,atari10"),
        (["--json", "{tmp}/foreign.json"], "is not a file of this version of the benchmark"),
        (["--json", "{tmp}/quick.json"], "holds results of a quick run; name another --out"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(tmp_path, capsys, flags, problem):
    (tmp_path / "foreign.json").write_text("[]x")
    (tmp_path / "quick.json").write_text('{"quick": true, "parts": {}}')
    with pytest.raises(SystemExit) as stopped:
        speed.main([flag.format(tmp=tmp_path) for flag in flags])
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert problem in line


def test_options_change_the_time_of_an_update_and_not_its_result():
    every = options.choices(cores=2)
    defaults = {choice.family: choice for choice in reversed(every)}
    assert list(every[:1]) == [defaults["atari"]]
    for family, default in defaults.items():
        expected, update = options.make_update(default)
        update()
        others = [choice for choice in every if choice.family == family and choice != default]
        assert len(others) >= 4
        for choice in others:
            if choice.compiled:  # takes half a minute
                continue
            network, update = options.make_update(choice)
            update()
            assert torch.get_num_threads() == choice.threads
            for one, other in zip(network.parameters(), expected.parameters(), strict=True):
                # The first step of Adam is as large for a tiny gradient as for a large one.
                torch.testing.assert_close(one, other, rtol=0, atol=2.1e-3)
                assert ((one - other).abs() > 1e-5).float().mean() < 0.01
    torch.set_num_threads(1)

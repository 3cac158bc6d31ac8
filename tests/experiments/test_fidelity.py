"""The experiments do what the released code did; docs/fidelity.md lists each factor."""

from math import sqrt

import gymnasium as gym
import numpy as np
import pytest
import torch
from scripts import ROOT, load_script
from tianshou.data import Batch

from medqn_tianshou import (
    CompactVectorReplayBuffer,
    LeanCollector,
    MeDQNPolicy,
    MLPQNetwork,
    UniformStateSampler,
)
from medqn_tianshou.envs.single import TimeoutIsTerminal
from medqn_tianshou.experiments.families import FAMILIES
from medqn_tianshou.training.build import build_policy
from medqn_tianshou.training.options import RunOptions


def network(family, **settings):
    torch.manual_seed(0)
    family = FAMILIES[family]
    settings = family.settings(**settings)
    return family.make_network(settings, family.make_env(settings))


def assert_uniform(weight, bound):
    """The largest of n draws of U(0, bound) is above bound * (1 - 10 / n), but for e**-10."""
    weight = weight.detach()
    assert bound * (1 - 10 / weight.numel()) < weight.abs().max() <= bound
    assert weight.std().item() == pytest.approx(bound / sqrt(3), rel=0.15)


@pytest.mark.parametrize("task", ["MountainCar-v0", "Catcher"])
def test_low_dimensional_networks_start_kaiming_uniform_with_zero_biases(task):
    *hidden, last = (
        layer
        for layer in network("lowdim", task=task).advantage
        if isinstance(layer, torch.nn.Linear)
    )
    for layer in hidden:
        assert_uniform(layer.weight, sqrt(6 / layer.in_features))
    assert_uniform(last.weight, sqrt(3 / last.in_features))
    for layer in (*hidden, last):
        assert not layer.bias.any()


def test_minatar_networks_start_with_a_kaiming_output_layer_and_torchs_others():
    model = network("minatar", task="breakout")
    convolution, (hidden, _, last) = model.features[0], model.advantage
    assert_uniform(convolution.weight, 1 / sqrt(convolution.weight[0].numel()))
    assert_uniform(hidden.weight, 1 / sqrt(hidden.in_features))
    assert hidden.bias.any()
    assert_uniform(last.weight, sqrt(3 / last.in_features))
    assert not last.bias.any()


@pytest.mark.parametrize(("family", "task"), [("lowdim", "Acrobot-v1"), ("minatar", "asterix")])
def test_a_flag_gives_torchs_initialization(family, task):
    model = network(family, task=task, init="torch")
    last = model.advantage[-1]
    assert_uniform(last.weight, 1 / sqrt(last.in_features))
    assert last.bias.any()


def test_a_users_network_keeps_torchs_initialization():
    torch.manual_seed(0)
    ours = MLPQNetwork(observation_shape=(3,), action_count=2)
    torch.manual_seed(0)
    theirs = torch.nn.Linear(3, 32)
    assert torch.equal(ours.advantage[0].weight, theirs.weight)
    with pytest.raises(ValueError, match=r"initialization='xavier' must be one of torch"):
        MLPQNetwork(observation_shape=(3,), action_count=2, initialization="xavier")


def test_atari_pixels_enter_as_bytes():
    settings = FAMILIES["atari"].settings()
    assert settings.scale_obs == 0
    space = gym.spaces.Discrete(6)
    env = Batch(observation_space=gym.spaces.Box(0, 255, (4, 84, 84), np.uint8), action_space=space)
    torch.manual_seed(0)
    model = FAMILIES["atari"].make_network(settings, env)
    frames = np.random.default_rng(0).integers(0, 256, (8, 4, 84, 84), np.uint8)
    with torch.no_grad():
        assert torch.equal(model(frames)[0], model(frames.astype(np.float32))[0])
        assert not torch.allclose(model(frames)[0], model(frames.astype(np.float32) / 255)[0])


@pytest.mark.parametrize(
    ("family", "task", "length", "at", "expected"),
    [
        ("atari", "NameThisGameNoFrameskip-v4", {"epoch": 20}, 2_000_000, 0.6484),
        ("atari", "QbertNoFrameskip-v4", {"epoch": 1}, 2_000_000, 0.3284),
        ("minatar", "breakout", {"steps": 500_000}, 500_000, 0.01 + 0.1 * (4 - 0.01)),
        ("minatar", "seaquest", {"steps": 2_000_000}, 2_000_000, 0.01 + 0.2 * (4 - 0.01)),
        ("lowdim", "MountainCar-v0", {"steps": 20_000}, 20_000, 0.01 + 0.2 * (4 - 0.01)),
        ("lowdim", "MountainCar-v0", {"steps": 20_000, "lambda_steps": 20_000}, 20_000, 4.0),
    ],
)
def test_lambda_keeps_its_slope_in_a_shortened_run(family, task, length, at, expected):
    algo = {"minatar": "medqn-r", "lowdim": "medqn-u", "atari": "medqn"}[family]
    settings = FAMILIES[family].settings(task, algo=algo, **length)
    space = gym.spaces.Box(-1, 1, (2,), np.float32)
    policy = build_policy(
        settings,
        model=MLPQNetwork(observation_shape=(2,), action_count=3),
        observation_space=space,
        action_space=gym.spaces.Discrete(3),
        sampler_seed=0,
    )
    policy.set_env_step(at)
    assert policy.consolidation_coef == pytest.approx(expected)


def test_a_shortened_run_says_how_far_lambda_gets(tmp_path, capsys):
    lowdim = FAMILIES["lowdim"]
    options = RunOptions(logdir=tmp_path, show_progress=False)
    lowdim.make_training(lowdim.settings(algo="medqn-u", steps=20_000), options).abandon()
    expected = "lambda 0.01 to 4 over 100,000 env steps, 0.808 at the end of this run"
    assert expected in capsys.readouterr().out


@pytest.mark.parametrize(
    ("step", "expected"), [(0, 1.0), (5_000, 0.955), (50_000, 0.55), (100_000, 0.1), (10**6, 0.1)]
)
def test_minatar_explores_over_100_000_steps_from_step_0(step, expected, tmp_path):
    minatar = FAMILIES["minatar"]
    options = RunOptions(logdir=tmp_path, show_progress=False)
    training = minatar.make_training(minatar.settings("breakout", algo="dqn"), options)
    training.abandon()
    assert training._epsilon(step) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("family", "task", "limit"),
    [("lowdim", "MountainCar-v0", 5), ("lowdim", "Catcher", 5), ("minatar", "seaquest", 5)],
)
@pytest.mark.parametrize("bootstraps", [False, True])
def test_nothing_is_bootstrapped_at_a_timeout(family, task, limit, bootstraps):
    family = FAMILIES[family]
    settings = family.settings(
        task, algo="dqn", max_episode_steps=limit, bootstrap_timeouts=bootstraps
    )
    envs = family.make_train_envs(settings, seed=0)
    policy = family.make_policy(settings, envs=envs, sampler_seed=0, device="cpu")
    buffer = CompactVectorReplayBuffer(10, 1, random_seed=0)
    collector = LeanCollector(policy, envs, buffer)
    collector.reset()
    collector.collect(n_step=limit)
    last = np.array([limit - 1])
    batch = policy.process_fn(buffer[last], buffer, last)
    with torch.no_grad():
        value = policy.model_old(batch.obs_next)[0].max()
    expected = batch.rew[0] + bootstraps * settings.gamma * value
    assert batch.returns.item() == pytest.approx(float(expected), rel=1e-5)
    assert isinstance(envs, TimeoutIsTerminal) != bootstraps


class Ladder(gym.Env):
    """Its only observation counts up to 3, where the episode ends."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.height = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.height += 1
        return np.full(1, self.height, np.float32), 0.0, self.height == 3, False, {}


@pytest.mark.parametrize("by_hook", [False, True])
def test_the_last_state_of_an_episode_does_not_widen_the_bounds(by_hook):
    from tianshou.env import DummyVectorEnv

    sampler = UniformStateSampler(observation_space=Ladder.observation_space, seed=0)
    model = MLPQNetwork(observation_shape=(1,), action_count=2)
    policy = MeDQNPolicy(
        model=model,
        optim=torch.optim.Adam(model.parameters()),
        action_space=Ladder.action_space,
        target_update_freq=1,
        state_sampler=sampler,
    )
    hooks = {"on_step_hook": policy.observe_step} if by_hook else {"on_states": sampler.observe}
    collector = LeanCollector(
        policy, DummyVectorEnv([Ladder]), CompactVectorReplayBuffer(9, 1, random_seed=0), **hooks
    )
    collector.reset()
    assert np.isinf(sampler.bounds.high).all()  # a reset is no step
    collector.collect(n_step=7)  # two episodes, and a step of the third
    assert (sampler.bounds.low.item(), sampler.bounds.high.item()) == (0.0, 2.0)


def test_the_page_of_fidelity_is_current():
    page = (ROOT / "docs/fidelity.md").read_text()
    assert page == load_script("docs/fidelity.py").page(), "run: python docs/fidelity.py"

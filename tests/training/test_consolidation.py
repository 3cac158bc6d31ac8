"""The settings of the consolidation: what follows from others, and what is refused."""

import numpy as np
import pytest
from gymnasium import spaces
from tianshou.data import Batch

from medqn_tianshou import ReservoirStateSampler
from medqn_tianshou.algorithm import adaptive
from medqn_tianshou.algorithm.networks import action_values
from medqn_tianshou.experiments.minatar import MINATAR
from medqn_tianshou.host.api import HEADS
from medqn_tianshou.training import consolidation
from medqn_tianshou.training.build import make_coefficient, make_sampler
from medqn_tianshou.training.dashboard import policy_figures
from medqn_tianshou.training.errors import ConfigError
from medqn_tianshou.training.memory_plan import plan_memory, predict_states
from medqn_tianshou.training.run_config import difference

CELLS = spaces.MultiBinary((4, 10, 10))
CELLS.dtype = np.dtype(np.bool_)


def test_a_reservoir_has_a_size_and_other_samplers_have_none():
    assert MINATAR.settings(algo="medqn-u").state_buffer_size is None
    reservoir = MINATAR.settings(algo="medqn-u", sampling="reservoir")
    assert reservoir.state_buffer_size == 10_000
    assert reservoir.uses_whole_buffer
    sampler = make_sampler(reservoir, CELLS, 0)
    assert isinstance(sampler, ReservoirStateSampler)
    assert sampler.capacity == 10_000


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"algo": "medqn-r", "state_buffer_size": 5}, "add --sampling reservoir"),
        ({"head": "qr", "dueling": True}, "dueling=True is not for the distributional heads"),
        ({"head": "iqn", "overlap": True}, "overlap=True is not for the distributional heads"),
        ({"head": "c51", "consolidation_loss": "kl"}, "have a distance of their own"),
        ({"algo": "medqn-r", "drift": 0.1}, "add --lambda auto"),
        ({"algo": "dqn", "lambda_schedule": "auto"}, "has no effect with --algo dqn"),
        (
            {"algo": "medqn-r", "lambda_schedule": "auto", "lambda_start": 0.0},
            "not within 0.001 to 8",
        ),
        ({"algo": "dqn", "sampling": "reservoir"}, "has no effect with --algo dqn"),
        ({"algo": "medqn-r", "sampling": "reservoir", "state_buffer_size": 0}, "at least 1"),
    ],
)
def test_what_has_no_use_is_refused(options, error):
    with pytest.raises(ConfigError, match=error):
        MINATAR.settings(**options)


def test_the_limits_of_an_adaptive_lambda_are_those_of_the_algorithm():
    assert (consolidation.LOW, consolidation.HIGH) == (adaptive.LOW, adaptive.HIGH)
    coef = make_coefficient(MINATAR.settings(algo="medqn-r", lambda_schedule="auto", drift=0.2))
    assert coef == adaptive.AdaptiveCoefficient(0.2, start=0.01)


@pytest.mark.parametrize("head", ["qr", "c51", "iqn"])
def test_a_head_has_its_policy_and_its_network_acts(head):
    settings = MINATAR.settings(algo="medqn-r", head=head)
    envs = MINATAR.make_train_envs(settings, 0)
    policy = MINATAR.make_policy(settings, envs=envs, sampler_seed=0, device="cpu")
    assert type(policy) is HEADS[head][0]
    obs = np.stack([envs.observation_space[0].sample() for _ in range(3)]).astype(np.bool_)
    assert action_values(policy.model, obs).shape == (3, 6)
    assert policy(Batch(obs=obs, info=Batch())).act.shape == (3,)


def test_a_run_of_an_earlier_version_had_a_linear_lambda():
    settings = MINATAR.settings(algo="medqn-r")
    earlier = {
        name: v for name, v in settings.identity.items() if name not in ("lambda_schedule", "head")
    }
    assert difference(earlier, settings.identity) is None
    adapts = MINATAR.settings(algo="medqn-r", lambda_schedule="auto")
    assert difference(earlier, adapts.identity) is not None


def test_a_memory_plan_includes_the_reservoir_and_caps_it():
    options = {"algo": "medqn-r", "memory": 10**9}
    plain = MINATAR.settings(**options)
    reservoir = MINATAR.settings(**options, sampling="reservoir", state_buffer_size=400_000)
    planned = [plan_memory(settings, CELLS, rss=0) for settings in (plain, reservoir)]
    nbytes = predict_states(reservoir, CELLS)
    assert nbytes == 400_000 * (50 + 20)
    assert planned[1].process - planned[0].process == planned[0].room - planned[1].room == nbytes
    sampler = make_sampler(reservoir, CELLS, 0)
    assert isinstance(sampler, ReservoirStateSampler)
    assert sampler._max_bytes == nbytes


def test_the_log_has_the_size_of_a_reservoir(tmp_path):
    settings = MINATAR.settings(algo="medqn-u", sampling="reservoir")
    envs = MINATAR.make_train_envs(settings, 0)
    policy = MINATAR.make_policy(settings, envs=envs, sampler_seed=0, device="cpu")
    policy.state_sampler.observe(np.zeros((3, 4, 10, 10), np.bool_))
    figures = policy_figures(policy)
    assert figures["memory/state_buffer_states"] == 3
    assert figures["memory/state_buffer_mb"] > 0

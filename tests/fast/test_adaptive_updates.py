"""An adaptive coefficient in both policies, and compiled: the same lambda after each update."""

import pytest
from learners import update
from small_networks import make_policy
from test_compiled_updates import make_buffer

from medqn_tianshou import AdaptiveCoefficient, FastMeDQNPolicy, MeDQNPolicy


@pytest.mark.parametrize("policy_class", [MeDQNPolicy, FastMeDQNPolicy])
@pytest.mark.parametrize(("set_point", "rises"), [(1e-9, True), (1e9, False)])
def test_the_policy_adapts_after_each_update_and_its_state_goes_on(policy_class, set_point, rises):
    coef = AdaptiveCoefficient(set_point, start=0.1, rate=0.1)
    policy = make_policy(policy_class, "vector", "adam", consolidation_coef=coef)
    stats = [update(policy, make_buffer("vector"))[0] for _ in range(4)]
    values = [each.consolidation_coef for each in stats]
    assert values[0] == 0.1
    # In the first update both networks are equal, and the drift is 0.
    assert values[1:] == sorted(values[1:], reverse=not rises)
    assert values[1] < values[0]
    assert stats[-1].consolidation_drift > 0
    assert policy.consolidation_coef == coef.value != values[-1]
    policy.set_env_step(5)
    assert policy.consolidation_coef == coef.value
    fresh = AdaptiveCoefficient(set_point, start=0.1, rate=0.1)
    other = make_policy(policy_class, "vector", "adam", consolidation_coef=fresh)
    other.load_state_dict(policy.state_dict())
    assert other.consolidation_coef == fresh.value == coef.value


@pytest.mark.parametrize("name", ["vector", "grid"])
@pytest.mark.parametrize("epochs", [1, 3])
def test_compiled_updates_adapt_as_plain_ones_do(name, epochs):
    policies = [
        make_policy(
            policy_class, name, "adam", consolidation_epochs=epochs,
            consolidation_coef=AdaptiveCoefficient(0.01, start=0.1, rate=0.2),
        )
        for policy_class in (FastMeDQNPolicy, MeDQNPolicy)
    ]  # fmt: skip
    buffers = [make_buffer(name) for _ in policies]
    for _ in range(20):
        found, expected = (update(*each)[0] for each in zip(policies, buffers, strict=True))
        assert found.consolidation_drift == pytest.approx(
            expected.consolidation_drift, rel=1e-2, abs=1e-6
        )
    fast, plain = policies
    assert fast._learner._work is not None  # compiled code it was
    assert fast.consolidation_coef == pytest.approx(plain.consolidation_coef, rel=1e-2)
    assert fast.consolidation_coef != pytest.approx(0.1, rel=0.1)


def test_no_clock_is_needed(recwarn):
    coef = AdaptiveCoefficient(0.1)
    make_policy(MeDQNPolicy, "vector", "adam", consolidation_coef=coef)._warn_of_unknown_time()
    assert not [warning for warning in recwarn if "set_env_step" in str(warning.message)]

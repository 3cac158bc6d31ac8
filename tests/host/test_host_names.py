"""Each version of Tianshou has its own class; the other's name says which."""

import pytest

import medqn_tianshou
from medqn_tianshou.host import TIANSHOU

MISSING = {
    1: {"MeDQN": "MeDQNPolicy", "FastMeDQN": "FastMeDQNPolicy"},
    2: {
        "MeDQNPolicy": "MeDQN",
        "FastMeDQNPolicy": "FastMeDQN",
        "MeDQNExperimentBuilder": "MeDQN with OffPolicyTrainer",
    },
}[TIANSHOU]


@pytest.mark.parametrize(("name", "remedy"), MISSING.items())
def test_a_name_of_the_other_version_is_an_import_error_that_names_the_right_one(name, remedy):
    expected = (
        f"{name} is for Tianshou {3 - TIANSHOU}; with the installed {TIANSHOU}, use {remedy}$"
    )
    with pytest.raises(ImportError, match=expected):
        getattr(medqn_tianshou, name)
    assert name not in medqn_tianshou.__all__
    assert name not in dir(medqn_tianshou)


def test_every_public_name_of_this_version_can_be_imported():
    for name in medqn_tianshou.__all__:
        assert getattr(medqn_tianshou, name) is not None

"""Every failure has a reason in one line."""

import pytest
import torch

from medqn_tianshou.training.build import load_parameters
from medqn_tianshou.training.errors import ConfigError, reason_of


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("one\ntwo"), "one"),
        (ValueError("\n  indented\n"), "indented"),
        (EOFError(), "EOFError"),
    ],
)
def test_the_reason_is_the_first_line_or_the_type(error, expected):
    assert reason_of(error) == expected


def test_parameters_that_fail_to_load_without_a_text_are_refused(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise EOFError

    monkeypatch.setattr(torch, "load", fail)
    with pytest.raises(ConfigError, match=r"does not fit this task and network \(EOFError\)"):
        load_parameters(torch.nn.Linear(1, 1), tmp_path / "policy.pth")

"""The code for Tianshou 2 in the docs runs as it stands, but for its length."""

import re

import pytest
from scripts import ROOT

from medqn_tianshou.host import TIANSHOU

if TIANSHOU == 1:
    pytest.skip("of Tianshou 2", allow_module_level=True)


def run(page, *shorter):
    text = (ROOT / page).read_text()
    (code,) = re.findall(r"<!-- tianshou 2 -->\n```python\n(.*?)```", text, re.DOTALL)
    for old, new in shorter:
        assert old in code
        code = code.replace(old, new)
    scope = {}
    exec(code, scope)  # noqa: S102
    return scope


def test_the_example_with_medqn_trains(capsys):
    shorter = (("max_epochs=4", "max_epochs=1"), ("epoch_num_steps=5_000", "epoch_num_steps=300"))
    scope = run("docs/own_code.md", *shorter)
    assert scope["algorithm"].consolidation_coef == pytest.approx(0.07, abs=0.01)
    assert capsys.readouterr().out == "gradient steps: 300\n"


def test_the_example_with_the_buffer_alone_makes_one():
    buffer = run("docs/tianshou2.md")["buffer"]
    assert (buffer.maxsize, buffer.buffer_num, buffer.hasnull()) == (100_000, 10, False)

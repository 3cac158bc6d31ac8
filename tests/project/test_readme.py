"""The code in the README and in the docs runs as it stands, but for its length."""

import re

import pytest
from scripts import ROOT

SHORTER = {
    "README.md": {"step_per_epoch=8_000": "step_per_epoch=300"},
    "docs/own_code.md": {
        "max_epoch=4": "max_epoch=1",
        "step_per_epoch=5_000": "step_per_epoch=300",
    },
}


def code_of(page):
    code, *_ = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    return code


@pytest.mark.parametrize(
    ("page", "coef"),
    [("README.md", 0.5), pytest.param("docs/own_code.md", 0.07, marks=pytest.mark.slow)],
)
def test_the_example_trains(page, coef, capsys):
    code = code_of(page)
    for text, shorter in SHORTER[page].items():
        assert text in code
        code = code.replace(text, shorter)
    scope = {}
    exec(code, scope)  # noqa: S102
    assert scope["policy"].gradient_steps == 300
    assert scope["policy"].consolidation_coef == pytest.approx(coef, abs=0.01)
    printed = capsys.readouterr()
    assert len((printed.out + printed.err).splitlines()) == 1
    if page == "README.md":
        assert float(printed.out.removeprefix("mean return of 10 episodes: ")) >= 8  # of CartPole
    else:
        assert printed.out == "gradient steps: 300\n"


def test_the_quick_start_has_twenty_lines():
    assert len([line for line in code_of("README.md").splitlines() if line]) <= 20

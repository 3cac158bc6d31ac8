"""The README's code runs as it stands, but for its length."""

import re

from scripts import ROOT


def test_quick_start_trains(capsys):
    text = (ROOT / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    shorter = code.replace("max_epoch=4", "max_epoch=1").replace(
        "step_per_epoch=5_000", "step_per_epoch=300"
    )
    assert shorter != code
    scope = {}
    exec(shorter, scope)  # noqa: S102
    assert scope["policy"].gradient_steps == 300
    assert 0.06 < scope["policy"].consolidation_coef < 0.08
    assert "gradient_step=300" in capsys.readouterr().out.replace(" ", "").replace("'", "")

"""The low-dimensional and MinAtar scripts do what their commands do."""

import json
import subprocess
import sys

import pytest
import torch
from conftest import SHORT_RUNS
from scripts import ROOT, load_script

TASK_FLAGS = {"lowdim": "--task", "minatar": "--game"}
SHORT = [*SHORT_RUNS["minatar"].split(), "--no-progress"]
pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("family", "task", "algo"),
    [("lowdim", "Catcher", "medqn-u"), ("minatar", "breakout", "medqn-r")],
)
def test_the_script_and_the_command_give_the_same_parameters(
    family, task, algo, tmp_path, short_run, run_folder, last_policy
):
    flags = ("--eval-every", "150", "--eval-episodes", "1", "--bootstrap-timeouts")
    flags = [TASK_FLAGS[family], task, "--algo", algo, *flags]
    one = last_policy(short_run(family, tmp_path / "command", *flags))
    script = load_script(f"{family}/{family}_medqn.py")
    assert script.main([*flags, *SHORT, "--logdir", str(tmp_path / "script")]) == 0
    other = last_policy(run_folder(tmp_path / "script"))
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.process
def test_a_run_from_the_shell_prints_its_summary(tmp_path, run_folder):
    script = "minatar/minatar_medqn.py"
    command = [sys.executable, script, "--game", "breakout", "--logdir", tmp_path, *SHORT]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    summary = json.loads((run_folder(tmp_path) / "summary.json").read_text())
    assert f"final return  {summary['final_return']:.2f}" in result.stdout
    assert f"{summary['gradient_steps']} gradient steps" in result.stdout

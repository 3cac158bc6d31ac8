"""The low-dimensional and MinAtar scripts do what their commands do."""

import json
import subprocess
import sys

import pytest
import torch
from scripts import ROOT, load_script

from medqn_tianshou.commands import train

TASK_FLAGS = {"lowdim": "--task", "minatar": "--game"}
SHORT = ["--steps", "300", "--warmup-steps", "100", "--no-progress"]


def run_folder(logdir):
    (config,) = logdir.glob("**/config.json")
    return config.parent


@pytest.mark.parametrize(
    ("family", "task", "algo"),
    [("lowdim", "Catcher", "medqn-u"), ("minatar", "breakout", "medqn-r")],
)
def test_the_script_and_the_command_give_the_same_parameters(family, task, algo, tmp_path):
    flags = ("--eval-every", "150", "--eval-episodes", "1", "--bootstrap-timeouts")
    arguments = [TASK_FLAGS[family], task, "--algo", algo, *SHORT, *flags]
    assert train.main(family, [*arguments, "--logdir", str(tmp_path / "command")]) == 0
    script = load_script(f"{family}/{family}_medqn.py")
    assert script.main([*arguments, "--logdir", str(tmp_path / "script")]) == 0
    one, other = (
        torch.load(run_folder(tmp_path / name) / "policy_last.pth", weights_only=True)
        for name in ("command", "script")
    )
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_from_the_shell_prints_its_summary(tmp_path):
    script = "minatar/minatar_medqn.py"
    command = [sys.executable, script, "--game", "breakout", "--logdir", tmp_path, *SHORT]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    summary = json.loads((run_folder(tmp_path) / "summary.json").read_text())
    assert f"final return  {summary['final_return']:.2f}" in result.stdout
    assert f"{summary['gradient_steps']} gradient steps" in result.stdout

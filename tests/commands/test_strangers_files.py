"""Run folders, policies and sweeps of strangers: checked, escaped, refused in one line."""

import json
import re
import subprocess
import sys

import pytest
import torch
from report_helpers import CAMPAIGN, write_raw
from scripts import ROOT
from test_workbench import error_of, make_run

from medqn_tianshou.commands import main as command
from medqn_tianshou.commands.report.runs import UnusableRunError, read_run
from medqn_tianshou.commands.report.tables import escape, table
from medqn_tianshou.commands.sweep import executors
from medqn_tianshou.commands.sweep.runner import Runner
from medqn_tianshou.files.parameters import parameter_bytes, read_parameters

SWEEP = """family = "lowdim"
tasks = ["MountainCar-v0"]
algorithms = ["medqn-u"]
"""


def changed(path, way, value):
    content = json.loads(path.read_text())
    *names, last = way.split(".")
    place = content
    for name in names:
        place = place[name]
    place[last] = value
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("way", "value"),
    [
        ("settings.hidden_sizes.value", [10**9, 10**9]),
        ("settings.hidden_sizes.value", ["wide"]),
        ("settings.eps_test.value", "often"),
        ("settings.lr.value", 10**400),
        ("settings", []),
        ("settings.lr", {"value": 1}),
        ("seed", "x"),
        ("task", "Catcher\nand more"),
        ("family", {}),
        ("hardware", {"torch_threads": -1}),
    ],
)
def test_a_config_that_no_run_has_is_refused_in_one_line(tmp_path, capsys, way, value):
    run = make_run(tmp_path / "run", "lowdim")
    changed(run / "config.json", way, value)
    assert "RUN_OR_POLICY" in error_of(capsys, "evaluate", run)


@pytest.mark.parametrize(
    "change",
    [
        lambda values: {name: value[..., :1] for name, value in values.items()},
        lambda values: {name: value.double() for name, value in values.items()},
        lambda values: {name: value * float("nan") for name, value in values.items()},
        lambda values: dict.fromkeys(values, "text"),
        lambda values: [],
        lambda values: {name: value[:1, :1].expand(2**40, 2**10) for name, value in values.items()},
    ],
)
def test_a_policy_of_other_shapes_or_values_is_refused_in_one_line(tmp_path, capsys, change):
    run = make_run(tmp_path / "run", "lowdim")
    values = torch.load(run / "policy_last.pth", weights_only=True)
    shrunk = {name: value for name, value in values.items() if "weight" in name}
    torch.save({**values, **change(shrunk)} if change(shrunk) else [], run / "policy_last.pth")
    assert "is not a policy of this run" in error_of(capsys, "evaluate", run)


def to_safetensors(run, change=lambda values: values):
    """Write the policy of a run as a safetensors file alone."""
    old = run / "policy_last.pth"
    new = old.with_suffix(".safetensors")
    new.write_bytes(parameter_bytes(change(read_parameters(old))))
    old.unlink()
    return new


@pytest.mark.parametrize(
    "change",
    [
        lambda values: {name: value[..., :1] for name, value in values.items()},
        lambda values: {name: value.double() for name, value in values.items()},
        lambda values: {name: value * float("nan") for name, value in values.items()},
        lambda values: {},
    ],
)
def test_a_safetensors_policy_of_other_shapes_or_values_is_refused_in_one_line(
    tmp_path, capsys, change
):
    run = make_run(tmp_path / "run", "lowdim")
    to_safetensors(run, change)
    assert "is not a policy of this run" in error_of(capsys, "evaluate", run)


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: b"",
        lambda content: content[:7],
        lambda content: content[:-1],
        lambda content: b"\xff" * 8 + content[8:],  # the length of the header
        lambda content: content[:8] + b"{" * 40 + content[48:],
        lambda content: content.replace(b'"F32"', b'"F99"'),
        lambda content: b"PK\x03\x04" + content,
    ],
)
def test_a_damaged_safetensors_policy_is_refused_in_one_line(tmp_path, capsys, damage):
    run = make_run(tmp_path / "run", "lowdim")
    file = to_safetensors(run)
    file.write_bytes(damage(file.read_bytes()))
    assert "is not a policy of this run" in error_of(capsys, "evaluate", run)


@pytest.fixture
def raw(tmp_path):
    """The files of a run of ours, to be changed."""
    path = tmp_path / "dqn_seed0.json"
    write_raw(CAMPAIGN / "Acrobot-v1/dqn/0", path)
    return path


@pytest.mark.parametrize(
    ("way", "value"),
    [
        ("summary.status", ["finished"]),
        ("summary.env_steps", float("nan")),
        ("summary.steps_per_s", "quick"),
        ("summary.buffer_mb", {}),
        ("settings.eps_train.value", "x"),
        ("settings.return_window.value", "x"),
        ("settings.max_episode_steps.value", [1]),
        ("algo", "<b>new</b>"),
    ],
)
def test_a_summary_or_setting_that_no_run_has_is_left_out(raw, way, value):
    read_run(raw)
    changed(raw, way, value)
    with pytest.raises(UnusableRunError):
        read_run(raw)


def test_a_return_that_is_no_number_is_left_out(raw):
    raw.with_suffix(".csv").write_text("env_step,return,length\n10,nan,3\n")
    with pytest.raises(UnusableRunError):
        read_run(raw).curve("train", None)


def test_names_in_a_page_are_text():
    name = "<script>x</script> | `a` [b](c) & \n# d"
    assert escape(name) == "&lt;script&gt;x&lt;/script&gt; &#124; &#96;a&#96; [b&#93;(c) &amp;  # d"
    _, _, row, _ = table(["task"], [[name]])
    assert row == f"| {escape(name)} |"
    assert escape("MeDQN(U) (lr 0.1), -1.0 [-2.0, 3.0]") == "MeDQN(U) (lr 0.1), -1.0 [-2.0, 3.0]"


@pytest.mark.parametrize("name", ["../../../x", "a/b", "..", "a\\\\b", ""])
def test_the_name_of_a_sweep_does_not_leave_its_folder(tmp_path, capsys, name):
    file = tmp_path / "study.toml"
    file.write_text(f'name = "{name}"\n{SWEEP}')
    assert "must be a name" in error_of(capsys, "sweep", file, "--dry-run")


@pytest.mark.parametrize("lines", ["seeds = 1000000", "seeds = 1000\n[settings]\nlr = [1, 2, 3]"])
def test_very_many_runs_are_told_at_once(tmp_path, capsys, monkeypatch, lines):
    file = tmp_path / "study.toml"
    file.write_text(f"{SWEEP}{lines}\n".replace("1000\n", "10000\n"))
    line = error_of(capsys, "sweep", file, "--dry-run")
    assert re.search(
        r"0,000 runs, the first of 100,000 env steps and [\d.]+ MB; at most 10,000", line
    )


@pytest.mark.parametrize(
    "runs", [[], {"a": 3}, {"a": {}}, {"a": {"attempts": -1}}, {"a": {"attempts": 10**30}}]
)
def test_a_status_that_no_sweep_wrote_is_not_taken(tmp_path, runs):
    (tmp_path / "status.json").write_text(json.dumps({"runs": runs}))
    assert Runner([], folder=tmp_path, retries=0)._read_status() == {}


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:text"])
def test_an_address_that_does_not_answer_is_given_up(address):
    with pytest.raises(executors.RayError, match="nothing answers there"):
        executors._check_reachable(address)


@pytest.mark.process
@pytest.mark.slow
def test_wandb_is_imported_with_its_flag_only():
    code = (
        "import sys; from medqn_tianshou.startup import prepare_process; prepare_process();"
        "import tianshou.utils; assert 'wandb' not in sys.modules;"
        "from medqn_tianshou.training.wandb_mirror import check_wandb; check_wandb(None, None);"
        "assert 'wandb' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_an_error_is_one_line_whatever_it_quotes(capsys):
    with pytest.raises(SystemExit):
        command.main(["evaluate", "no\nsuch\x1b[31mrun"])
    (line,) = capsys.readouterr().err.splitlines()
    assert "no\\nsuch\\x1b[31mrun" in line

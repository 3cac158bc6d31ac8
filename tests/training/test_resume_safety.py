"""Signals, locks, full disks, damaged and foreign checkpoints: a clear line, nothing is lost."""

import errno
import io
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
import torch
from resume_runs import (
    LOWDIM,
    SCRIPTS,
    assert_same_run,
    at_collect,
    resume,
    rows,
    run_folder,
    train,
    train_and_kill,
)
from scripts import ROOT

from medqn_tianshou.training import run_folder as run_folder_module
from medqn_tianshou.training.run_folder import RunFolder

FLAGS = f"--task MountainCar-v0 --algo medqn-u {LOWDIM}".split()
OFTEN = ("--checkpoint-every", "60")
main = SCRIPTS["lowdim"].main
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train("lowdim", tmp_path_factory.mktemp("whole"), *FLAGS)


@pytest.fixture(scope="module")
def killed_once(tmp_path_factory):
    """A run that ended at step 350, with checkpoints of steps 280 and 340."""
    logdir = tmp_path_factory.mktemp("killed")
    train_and_kill("lowdim", logdir, pytest.MonkeyPatch(), 251, *FLAGS, *OFTEN)
    return logdir


@pytest.fixture
def killed(tmp_path, killed_once):
    folder = run_folder(shutil.copytree(killed_once, tmp_path / "killed"))
    assert checkpoints(folder) == ["000000000280.checkpoint", "000000000340.checkpoint"]
    return folder


def checkpoints(folder):
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def error_of(capsys, *flags):
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit_info:
        main([str(flag) for flag in flags])
    assert exit_info.value.code == 2
    return capsys.readouterr().err.splitlines()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)]
)
def test_a_signal_ends_a_run_after_its_step_with_a_checkpoint(
    tmp_path, monkeypatch, capsys, whole, number, code
):
    handler = signal.getsignal(number)
    with at_collect(monkeypatch, 200, lambda: os.kill(os.getpid(), number)):
        assert main([*FLAGS, "--no-progress", "--logdir", str(tmp_path)]) == code
    assert signal.getsignal(number) is handler
    folder = run_folder(tmp_path)
    assert checkpoints(folder) == ["000000000300.checkpoint"]
    assert json.loads((folder / "summary.json").read_text())["status"] == "interrupted"
    captured = capsys.readouterr()
    assert "stopping after this training step" in captured.err
    assert captured.out.splitlines()[-7].startswith("interrupted after 300 env steps")
    assert resume("lowdim", folder, capsys) == 300
    assert_same_run(whole, folder)


def test_a_second_ctrl_c_stops_at_once(tmp_path, monkeypatch):
    def twice():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    with at_collect(monkeypatch, 200, twice):
        assert main([*FLAGS, "--no-progress", "--logdir", str(tmp_path)]) == 130
    assert not (run_folder(tmp_path) / "checkpoints").exists()


@pytest.mark.process
def test_a_killed_process_leaves_a_run_that_goes_on(tmp_path, capsys, whole):
    command = [sys.executable, ROOT / "lowdim/lowdim_medqn.py", *FLAGS, "--logdir", tmp_path]
    with subprocess.Popen(
        [*command, "--checkpoint-every", "7", "--no-progress"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while not list(tmp_path.glob("**/*.checkpoint")):
            assert process.poll() is None, process.stderr.read()
        process.kill()
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    folder = run_folder(tmp_path)
    assert resume("lowdim", folder, capsys) > 100
    assert_same_run(whole, folder)


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def truncate(path):
    os.truncate(path, path.stat().st_size // 2)


def empty(path):
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [flip_a_bit, truncate, empty])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(killed, capsys, whole, damage):
    damage(killed / "checkpoints" / "000000000340.checkpoint")
    capsys.readouterr()
    assert main(["--resume", str(killed), "--no-progress"]) == 0
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert re.match(r"warning: .*000000000340\.checkpoint: .*; trying the one before$", line)
    assert "resumed at env step 280" in captured.out
    assert_same_run(whole, killed)


def test_a_run_that_lost_its_checkpoints_is_refused_unless_told_to_start_over(
    killed, capsys, whole
):
    for path in (killed / "checkpoints").iterdir():
        path.unlink()
    before = {path: path.read_bytes() for path in killed.rglob("*") if path.is_file()}
    (line,) = error_of(capsys, "--resume", killed)
    assert str(killed) in line
    assert "has lost its checkpoints; restore them, or delete its logs with --start-over" in line
    assert {path: path.read_bytes() for path in killed.rglob("*") if path.is_file()} == before
    assert main(["--resume", str(killed), "--start-over", "--no-progress"]) == 0
    assert_same_run(whole, killed)


def test_where_all_are_damaged_nothing_is_touched(killed, capsys):
    for path in (killed / "checkpoints").iterdir():
        truncate(path)
    before = {path: path.read_bytes() for path in killed.rglob("*") if path.is_file()}
    *warnings, line = error_of(capsys, "--resume", killed)
    assert len(warnings) == 2
    assert str(killed) in line
    assert "no checkpoint that can be used; start a new run" in line
    assert {path: path.read_bytes() for path in killed.rglob("*") if path.is_file()} == before


def test_a_checkpoint_of_another_run_is_refused(killed, tmp_path, monkeypatch, capsys):
    other = train_and_kill(
        "lowdim", tmp_path / "other", monkeypatch, 251, *FLAGS, *OFTEN, "--seed", "1"
    )
    shutil.rmtree(killed / "checkpoints")
    shutil.copytree(other / "checkpoints", killed / "checkpoints")
    first, *_ = error_of(capsys, "--resume", killed)
    assert "of another run (seed was 1, not 0)" in first


def test_a_write_that_was_cut_short_does_not_count(killed, capsys, whole):
    newest = killed / "checkpoints" / "000000000340.checkpoint"
    half = newest.read_bytes()[:1000]
    (killed / "checkpoints" / ".000000000349.checkpoint.part").write_bytes(half)
    assert resume("lowdim", killed, capsys) == 340
    assert_same_run(whole, killed)


def test_a_full_disk_ends_the_run_with_a_line_and_earlier_checkpoints_intact(
    tmp_path, monkeypatch, capsys, whole
):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill():
        resource.setrlimit(resource.RLIMIT_FSIZE, (9000, limits[1]))

    try:
        with at_collect(monkeypatch, 200, fill):
            assert main([*FLAGS, *OFTEN, "--no-progress", "--logdir", str(tmp_path)]) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    folder = run_folder(tmp_path)
    (line,) = capsys.readouterr().err.splitlines()
    assert re.match(r"error: the checkpoint of env step 340 could not be written to .*"
                    r"\(File too large\); earlier ones are intact: make room", line)  # fmt: skip
    assert checkpoints(folder) == ["000000000220.checkpoint", "000000000280.checkpoint"]
    assert resume("lowdim", folder, capsys) == 280
    assert_same_run(whole, folder)


def test_two_processes_on_one_run_folder_the_second_is_refused(killed, capsys):
    run = RunFolder(killed)
    (line,) = error_of(capsys, "--resume", killed)
    assert f"argument --resume: {killed} is in use by process {os.getpid()}" in line
    flags = [*FLAGS, "--auto-resume", "--logdir", killed.parents[3]]
    (line,) = error_of(capsys, *flags)
    assert f"argument --auto-resume: {killed} is in use" in line
    run.unlock()
    assert resume("lowdim", killed, capsys) == 340


def test_a_folder_that_cannot_be_written_to_is_refused(killed, capsys):
    (killed / "run.lock").unlink()
    (killed / "run.lock").mkdir()
    (line,) = error_of(capsys, "--resume", killed)
    assert f"argument --resume: {killed} cannot be written to" in line


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        ("--lr 0.5", ["--lr", "0.5", "0.001"]),
        ("--seed 2", ["--seed", "2", "which has 0"]),
        ("--task Catcher", ["--task", "Catcher", "MountainCar-v0"]),
        ("--algo dqn", ["--algo", "dqn", "medqn-u"]),
        ("--steps 900", ["--steps", "900", "500"]),
        ("--auto-resume", ["--auto-resume", "leave"]),
    ],
)
def test_a_flag_that_contradicts_the_run_is_refused_with_both_values(killed, capsys, flags, parts):
    (line,) = error_of(capsys, "--resume", killed, *flags.split())
    for part in parts:
        assert part in line


def test_flags_that_agree_with_the_run_are_accepted(killed, whole):
    more = ["--steps", "500", "--lr", "1e-3", "--seed", "0", "--no-progress"]
    assert main(["--resume", str(killed), *more]) == 0
    assert_same_run(whole, killed)


def test_a_finished_run_cannot_be_resumed(whole, capsys):
    (line,) = error_of(capsys, "--resume", whole)
    assert "has finished; start a new run" in line


def test_a_run_of_another_version_is_refused(killed, capsys):
    config = json.loads((killed / "config.json").read_text())
    config["settings"]["gamma"]["value"] = 0.5
    (killed / "config.json").write_text(json.dumps(config))
    (line,) = error_of(capsys, "--resume", killed)
    assert "another version: gamma was 0.5, not 0.99" in line


def test_a_run_of_an_earlier_version_is_refused_with_one_line(killed, capsys):
    config = json.loads((killed / "config.json").read_text())
    assert config.pop("family") == "lowdim"
    config["settings"]["compile"] = {"value": False, "source": "ours"}
    (killed / "config.json").write_text(json.dumps(config))
    (line,) = error_of(capsys, "--resume", killed)
    assert f"argument --resume: {killed} is a run of an earlier version" in line
    assert "start a new run" in line


def test_a_run_of_another_family_is_refused_with_its_command(killed, capsys):
    with pytest.raises(SystemExit):
        SCRIPTS["minatar"].main(["--resume", str(killed)])
    assert "is a run of lowdim; resume it with medqn train lowdim" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"arguments": 3}', '{"arguments": [1]}'])
def test_a_config_that_is_none_is_refused(killed, capsys, content):
    (killed / "config.json").write_text(content)
    (line,) = error_of(capsys, "--resume", killed)
    assert str(killed) in line
    assert "config.json" in line


def test_a_loss_that_is_no_number_stops_the_run_and_overwrites_nothing(tmp_path, capsys):
    flags = [*FLAGS, "--algo", "dqn-s", "--lr", "1e8", "--checkpoint-every", "1"]
    assert main([*flags, "--no-progress", "--logdir", str(tmp_path)]) == 1
    folder = run_folder(tmp_path)
    (line,) = capsys.readouterr().err.splitlines()
    for part in ("error: the loss is", "gradient step", "env step", "try a smaller --lr"):
        assert part in line
    last = checkpoints(folder)[-1]
    assert f"the last checkpoint is {folder / 'checkpoints' / last}" in line
    assert json.loads((folder / "summary.json").read_text())["status"] == "failed"
    assert not (folder / "policy_last.pth").exists()


def test_a_disk_that_fills_while_a_policy_is_saved_is_one_line(tmp_path, monkeypatch, capsys):
    class Full(io.BytesIO):
        def write(self, content):
            raise OSError(errno.ENOSPC, "No space left on device")

    @contextmanager
    def full_disk(path):
        yield Full()

    monkeypatch.setattr(run_folder_module, "atomic_write", full_disk)
    assert main([*FLAGS, "--no-progress", "--logdir", str(tmp_path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "error: [Errno 28] No space left on device"


def test_logs_hold_each_step_once_after_many_resumes(tmp_path, monkeypatch, whole):
    folder = train_and_kill("lowdim", tmp_path, monkeypatch, 60, *FLAGS, *OFTEN)
    for collects in (90, 100, 70):
        with at_collect(monkeypatch, collects, lambda: os.kill(os.getpid(), signal.SIGTERM)):
            code = main(["--resume", str(folder), "--no-progress"])
        assert code == 143
    assert main(["--resume", str(folder), "--no-progress"]) == 0
    assert_same_run(whole, folder)
    assert torch.load(folder / "policy_last.pth", weights_only=True)
    assert len(rows(folder, "progress.csv")) == len(rows(whole, "progress.csv"))

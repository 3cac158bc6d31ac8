"""Signals, kills, damaged files and full disks: a clear line, and the run resumes from there."""

import errno
import io
import json
import os
import re
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from resume_runs import (
    FLAGS,
    OFTEN,
    SCRIPTS,
    assert_same_run,
    at_collect,
    checkpoints,
    resume,
    rows,
    run_folder,
    train_and_kill,
    truncate,
)
from scripts import ROOT

from medqn_tianshou.files.parameters import read_parameters
from medqn_tianshou.training import run_folder as run_folder_module
from medqn_tianshou.training.progress_line import ProgressLine

main = SCRIPTS["lowdim"].main
pytestmark = pytest.mark.slow


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
    assert any(
        line.startswith("interrupted after 300 env steps") for line in captured.out.splitlines()
    )
    assert resume("lowdim", folder, capsys) == 300
    assert_same_run(whole, folder)


def test_on_a_terminal_the_signals_message_is_below_the_progress_line(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with at_collect(monkeypatch, 200, lambda: os.kill(os.getpid(), signal.SIGINT)):
        main([*FLAGS, "--no-progress", "--logdir", str(tmp_path)])
    assert "\nstopping after this training step" in capsys.readouterr().err


def test_a_resumed_run_shows_no_warm_up(tmp_path, monkeypatch):
    folder = train_and_kill("lowdim", tmp_path, monkeypatch, 200, *FLAGS, *OFTEN)
    shown = []
    monkeypatch.setattr(ProgressLine, "update", lambda _, activity, *a, **b: shown.append(activity))
    assert main(["--resume", str(folder)]) == 0
    assert (shown[0], shown[-1]) == ("training", "finished")


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
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, limits[1]))

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
    assert not list(folder.glob("policy_last*"))


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
    assert read_parameters(folder / "policy_last.safetensors")
    assert len(rows(folder, "progress.csv")) == len(rows(whole, "progress.csv"))

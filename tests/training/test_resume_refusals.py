"""What cannot be resumed is refused with a clear line, and nothing of the run is lost."""

import json
import os
import shutil

import pytest
from resume_runs import (
    ATARI,
    FLAGS,
    OFTEN,
    SCRIPTS,
    KilledError,
    assert_same_run,
    at_collect,
    resume,
    train,
    train_and_kill,
    truncate,
)

from medqn_tianshou.training.run_folder import RunFolder

main = SCRIPTS["lowdim"].main
pytestmark = pytest.mark.slow


def error_of(capsys, *flags):
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit_info:
        main([str(flag) for flag in flags])
    assert exit_info.value.code == 2
    return capsys.readouterr().err.splitlines()


def test_a_run_that_lost_its_checkpoints_is_refused_unless_told_to_start_over(
    killed, monkeypatch, capsys, whole
):
    for path in (killed / "checkpoints").iterdir():
        path.unlink()
    before = {path: path.read_bytes() for path in killed.rglob("*") if path.is_file()}
    (line,) = error_of(capsys, "--resume", killed)
    assert str(killed) in line
    assert "has lost its checkpoints; restore them, or delete its logs with --start-over" in line
    assert {path: path.read_bytes() for path in killed.rglob("*") if path.is_file()} == before

    def die():
        raise KilledError

    with at_collect(monkeypatch, 0, die), pytest.raises(KilledError):
        main(["--resume", str(killed), "--start-over", "--no-progress"])
    # It had no checkpoint yet, so none is missing.
    assert main(["--resume", str(killed), "--no-progress"]) == 0
    assert_same_run(whole, killed)


def test_event_files_that_were_renamed_or_copied_are_never_deleted(killed, capsys):
    (own,) = killed.glob("events.out.tfevents.*")
    content = own.read_bytes()
    copies = [
        killed / "events.out.tfevents.old",
        killed / f"{own.name}.bak",
        killed / "events.out.tfevents.1700000000.another-host.1.0",
    ]
    for path in copies:
        path.write_bytes(content)
    resume("lowdim", killed, capsys)
    copies[2] = killed / "set-aside.1700000000.another-host.1.0"  # it would log steps twice
    assert [path.read_bytes() for path in copies] == [content] * 3


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


def test_parameters_that_a_run_began_with_are_not_needed_again(tmp_path, monkeypatch, capsys):
    flags = [*ATARI.split(), "--env-backend", "ale", "--test-num", "1"]
    begin = next(train("atari", tmp_path / "first", *flags).glob("policy_last.*"))
    flags += ["--resume-path", str(begin), "--checkpoint-every", "20"]
    killed = train_and_kill("atari", tmp_path / "killed", monkeypatch, 25, *flags)
    begin.unlink()
    with pytest.raises(SystemExit):
        SCRIPTS["atari"].main(["--resume", str(killed), "--steps", "240"])
    assert "--steps: 240 contradicts the run, which has 160" in capsys.readouterr().err
    assert resume("atari", killed, capsys) > 60


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

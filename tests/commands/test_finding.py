"""A folder such as log, or a task, stands for its runs, or for its newest one."""

import json
import os
import signal

import pytest
from resume_runs import SCRIPTS, at_collect

from medqn_tianshou.commands import agent, train
from medqn_tianshou.commands.finding import find_folders, newest_run


@pytest.fixture
def log(tmp_path, monkeypatch):
    """Run folders in log, as (task, time): the rest of their path is the same."""
    monkeypatch.chdir(tmp_path)

    def add(task, time, family="lowdim", status=None, policy=False):
        folder = tmp_path.joinpath("log", task, "dqn", "0", time)
        folder.mkdir(parents=True)
        config = {"family": family, "task": task, "algo": "dqn", "settings": {}, "arguments": []}
        (folder / "config.json").write_text(json.dumps(config))
        if status:
            numbers = ("final_return", "steps_per_s", "peak_rss_mb", "buffer_mb")
            summary = {"status": status, "env_steps": 10, **dict.fromkeys(numbers)}
            (folder / "summary.json").write_text(json.dumps(summary))
        if policy:
            (folder / "policy_last.pth").touch()
        return folder.relative_to(tmp_path)

    return add


def any_run(folder):
    return True


def test_a_task_is_found_in_any_spelling_and_an_exact_name_wins(log, tmp_path):
    log("QbertNoFrameskip-v4", "20260101-120000")
    log("BreakoutNoFrameskip-v4", "20260101-120000")
    log("breakout", "20260101-120000")
    os.chdir(tmp_path)
    names = {
        "ALE/Qbert-v5": ["QbertNoFrameskip-v4"],
        "breakout": ["breakout"],
        "Breakout": ["BreakoutNoFrameskip-v4", "breakout"],
    }
    for name, folders in names.items():
        assert sorted(path.name for path in find_folders(type(tmp_path)(name))) == folders
    assert find_folders(tmp_path / "none") == [tmp_path / "none"]


def test_the_newest_run_is_taken_over_all_tasks_and_a_run_stays_itself(log, tmp_path):
    older = log("MountainCar-v0", "20260101-120000")
    newer = log("Acrobot-v1", "20260102-120000")
    path = type(tmp_path)
    assert newest_run(path("log"), any_run) == newer
    assert newest_run(path("mountaincar"), any_run) == older
    assert newest_run(older, any_run) == older
    assert newest_run(path("Catcher"), any_run) is None


def test_a_policy_is_that_of_the_newest_run_that_has_one(log, tmp_path):
    played = log("MountainCar-v0", "20260101-120000", policy=True)
    log("MountainCar-v0", "20260102-120000")
    path = type(tmp_path)
    assert agent.find_policy(path("log")) == played / "policy_last.pth"
    assert agent.find_policy(path("MountainCar")) == played / "policy_last.pth"


def test_resume_passes_over_finished_runs_and_other_families(log, tmp_path, capsys):
    log("MountainCar-v0", "20260104-120000", status="finished")
    log("breakout", "20260103-120000", family="minatar")
    given = {"resume": type(tmp_path)("log")}
    parser = train.make_parser("lowdim", "medqn train lowdim")
    settings_class = train.SETTINGS_CLASSES["lowdim"]
    with pytest.raises(train.ConfigError, match="contains no unfinished run of lowdim"):
        train._merge_with_run(parser, settings_class, dict(given))
    meant = log("MountainCar-v0", "20260101-120000", status="interrupted")
    assert train._merge_with_run(parser, settings_class, dict(given))[0]["resume"] == meant


def test_a_run_of_another_family_is_named_as_such(log, error_line):
    run = log("QbertNoFrameskip-v4", "20260101-120000", family="atari")
    line = error_line(SCRIPTS["minatar"].main, "--resume", run)
    assert line.endswith("is a run of atari; resume it with medqn train atari")


@pytest.mark.slow
def test_an_interrupted_run_prints_the_command_that_resumes_it(log, capsys, monkeypatch):
    flags = ["--task", "MountainCar-v0", "--steps", "500", "--warmup-steps", "100", "--no-progress"]
    with at_collect(monkeypatch, 50, lambda: os.kill(os.getpid(), signal.SIGINT)):
        assert train.main("lowdim", flags) == 130
    last = capsys.readouterr().out.splitlines()[-1]
    command, _, folder = last.rpartition(" --resume ")
    assert command.startswith("to resume: ")
    assert command.endswith("medqn train lowdim")
    assert train.main("lowdim", ["--resume", folder, "--no-progress"]) == 0
    assert f"from {folder}/checkpoints" in capsys.readouterr().out

"""Sweeps: every run is run once, whatever happens to it."""

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from scripts import ROOT
from sweep_files import GOOD, SHORT, write

from medqn_tianshou.commands import main as command
from medqn_tianshou.commands.sweep import command as sweep
from medqn_tianshou.commands.sweep.executors import LocalExecutor, has_ray
from medqn_tianshou.commands.sweep.runner import Runner
from medqn_tianshou.files.extras import install_command

pytestmark = [pytest.mark.slow, pytest.mark.process]
needs_ray = pytest.mark.skipif(not has_ray(), reason="needs the extra sweep")
STEPS = 2900
ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT),
}


def short_sweep(folder, steps, seeds, more=""):
    return write(folder / "short.toml", SHORT.format(steps=steps, seeds=seeds) + more)


def start(file, out, *flags):
    return subprocess.Popen(
        [sys.executable, "-m", "medqn_tianshou", "sweep", str(file), "--out", str(out), *flags],
        cwd=ROOT,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell's background job, which the tests may be, passes on that Ctrl-C is ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def finish(process):
    """Wait for a sweep; return its exit code and all it said."""
    out, errors = process.communicate()
    assert "Traceback" not in errors
    return process.returncode, out + errors


def status(out):
    return json.loads((out / "status.json").read_text())["runs"]


def folders(out):
    return sorted(path.parent for path in out.glob("runs/**/config.json"))


def name_of(out, folder):
    (name,) = [name for name, run in status(out).items() if out / str(run["folder"]) == folder]
    return name


def is_finished(folder):
    path = folder / "summary.json"
    return path.exists() and json.loads(path.read_text())["status"] == "finished"


def last_checkpoint(folder):
    return max((int(path.stem) for path in folder.glob("checkpoints/*.checkpoint")), default=0)


def catch(process, out, but=()):
    """Halt a run that has a checkpoint and is not at its end; return its folder and process."""
    while True:
        assert process.poll() is None, finish(process)
        for folder in set(folders(out)) - set(but):
            if 0 < last_checkpoint(folder) < STEPS:
                try:
                    run = psutil.Process(int((folder / "run.lock").read_text()))
                    halt(run)
                except (ValueError, psutil.NoSuchProcess, OSError):  # it is ending
                    continue
                if last_checkpoint(folder) < STEPS:
                    return folder, run
                run.resume()
        time.sleep(0.02)


def halt(run):
    """Suspend a process; in the middle of a write to the disk, it goes on until that is done."""
    run.suspend()
    while True:
        threads = Path(f"/proc/{run.pid}/task").glob("*/status")
        if all(re.search(r"State:\s*[TZ]", thread.read_text()) for thread in threads):
            return
        time.sleep(0.02)


def await_pending(run, number):
    """Wait until a halted process has been sent this signal."""
    while True:
        text = Path(f"/proc/{run.pid}/status").read_text()
        if int(re.search(r"ShdPnd:\s*(\w+)", text)[1], 16) >> (number - 1) & 1:
            return
        time.sleep(0.02)


def assert_every_step_once(folder, steps):
    """Each episode begins where the one before ended, and there are as many as there must be."""
    with (folder / "episodes.csv").open() as file:
        rows = [(int(row["env_step"]), int(row["length"])) for row in csv.DictReader(file)]
    end = 0
    for env_step, length in rows:
        end += length
        assert env_step == end
    assert steps - 50 < end <= steps
    assert json.loads((folder / "summary.json").read_text())["env_steps"] == steps


def resumed_at(out, run):
    text = (out / run["output"]).read_text()
    return int(re.search(r"resumed at env step ([\d,]+)", text)[1].replace(",", ""))


@needs_ray
def test_eight_runs_on_ray_survive_the_death_of_a_run_and_of_a_worker(tmp_path):
    out = tmp_path / "out"
    text = SHORT.replace('["dqn"]', '["dqn", "medqn-u"]').format(steps=STEPS, seeds=4)
    process = start(write(tmp_path / "eight.toml", text), out)
    killed, run = catch(process, out)
    run.kill()  # as when memory runs out
    orphaned, run = catch(process, out, but=[killed])
    worker = run.parent()
    worker.kill()  # the run then ends by itself, with a checkpoint
    worker.wait()
    run.resume()
    code, said = finish(process)
    assert code == 0, said
    assert "8 of 8 runs finished" in said
    assert f"medqn report {out / 'runs'} --out {out / 'report'}" in said

    assert len(folders(out)) == 8
    for folder in folders(out):
        assert is_finished(folder)
        assert_every_step_once(folder, STEPS)
    runs = status(out).values()
    assert {out / entry["folder"] for entry in runs} == set(folders(out))
    assert {entry["state"] for entry in runs} == {"finished"}
    tried_again = {out / entry["folder"]: entry for entry in runs if entry["attempts"] > 1}
    assert tried_again.keys() == {killed, orphaned}
    for entry in tried_again.values():
        assert entry["attempts"] == 2
        assert 0 < resumed_at(out, entry) < STEPS
    assert f"failed   {name_of(out, killed)}" not in said  # what is tried again has not failed
    assert f"waiting  {name_of(out, killed)}: killed by SIGKILL" in said
    assert f"waiting  {name_of(out, orphaned)}: lost by Ray" in said


@pytest.mark.parametrize("flags", [("--no-ray",), pytest.param((), marks=needs_ray)])
def test_ctrl_c_stops_with_checkpoints_and_the_same_command_goes_on(tmp_path, flags):
    out = tmp_path / "out"
    file = short_sweep(tmp_path, STEPS, 2)
    process = start(file, out, "--jobs", "1", *flags)
    folder, run = catch(process, out)
    process.send_signal(signal.SIGINT)
    await_pending(run, signal.SIGTERM)  # on a fast machine it would otherwise end before
    run.resume()
    code, said = finish(process)
    assert code == 130
    assert "the same command resumes from the checkpoints" in said
    assert not run.is_running()
    assert [entry["state"] for entry in status(out).values()] == ["stopped", "waiting"]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "interrupted"
    assert summary["env_steps"] in {int(path.stem) for path in folder.glob("checkpoints/*")}
    if flags:
        code, said = finish(start(file, out, *flags))
        assert code == 0, said
        first, second = status(out).values()
        assert [out / first["folder"], out / second["folder"]] == folders(out)
        assert (first["attempts"], second["attempts"]) == (2, 1)
        assert resumed_at(out, first) == summary["env_steps"]
        for folder in folders(out):
            assert_every_step_once(folder, STEPS)


def test_a_failed_run_fails_the_sweep_and_finished_ones_are_skipped(tmp_path, capsys):
    out = tmp_path / "out"
    file = short_sweep(tmp_path, 300, 1, "lr = [0.001, 1e30]\n")
    code, said = finish(start(file, out, "--no-ray", "--retries", "1"))
    assert code == 1
    assert "without Ray: 1 at a time, on this machine" in said
    assert "1 of 2 runs finished" in said
    good, bad = status(out).values()
    assert (good["state"], good["attempts"], good["reason"]) == ("finished", 1, "")
    assert (bad["state"], bad["attempts"]) == ("failed", 2)
    assert re.match(r"the loss is (nan|inf) at gradient step \d+", bad["reason"])
    assert f"lr=1e+30_seed0 failed after 2 attempts: {bad['reason']}" in said
    assert bad["reason"] in (out / bad["output"]).read_text()
    assert (out / "sweep.toml").read_text() == file.read_text()
    finished = (out / good["folder"] / "summary.json").stat().st_mtime_ns

    assert command.main(["sweep", str(file), "--out", str(out), "--dry-run"]) == 0
    assert re.search(r"lr=0.001_seed0 +skip: finished", capsys.readouterr().out)

    write(file, file.read_text().replace(", 1e30", ""))  # without the bad one, all is done
    assert command.main(["sweep", str(file), "--out", str(out)]) == 0
    assert "finished MountainCar-v0_dqn_lr=0.001_seed0: return" in capsys.readouterr().out
    assert (out / good["folder"] / "summary.json").stat().st_mtime_ns == finished

    write(file, file.read_text().replace("steps = 300", "steps = 301", 1))
    with pytest.raises(SystemExit) as exit_info:
        command.main(["sweep", str(file), "--out", str(out)])
    assert exit_info.value.code == 2
    assert "other settings: steps was 300, not 301; name another" in capsys.readouterr().err


def test_bad_command_lines_get_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("medqn_tianshou.commands.sweep.executors.has_ray", lambda: False)
    file = write(tmp_path / "good.toml", GOOD)
    for flags, expected in (
        (["none.toml"], "none.toml cannot be read (No such file or directory)"),
        ([str(file), "--address", "auto", "--no-ray"], "--address: auto is Ray's"),
        ([str(file), "--address", "auto"], f"needs Ray; {install_command('sweep')}"),
        ([str(file), "--retries", "-1"], "'-1' must be a whole number of at least 0"),
    ):
        with pytest.raises(SystemExit) as exit_info:
            command.main(["sweep", *flags, "--out", str(tmp_path / "out")])
        assert exit_info.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert expected in line


def test_without_ray_installed_the_sweep_says_so_and_uses_processes(tmp_path, capsys, monkeypatch):
    used = []
    monkeypatch.setattr(sweep, "has_ray", lambda: False)
    monkeypatch.setattr(Runner, "run", lambda self, executor: used.append(executor))
    file = write(tmp_path / "good.toml", GOOD)
    command.main(["sweep", str(file), "--out", str(tmp_path / "out")])
    assert isinstance(used[0], LocalExecutor)
    line = f"Ray is not installed ({install_command('sweep')}): 1 at a time"
    assert line in capsys.readouterr().out


@needs_ray
def test_where_ray_cannot_start_the_sweep_names_the_way_without_it(tmp_path, capsys, monkeypatch):
    def fail(**_):
        raise Exception("The current node timed out during startup.\nIt may be overloaded.")

    monkeypatch.setattr("ray.init", fail)
    file = write(tmp_path / "good.toml", GOOD)
    with pytest.raises(SystemExit) as exit_info:
        command.main(["sweep", str(file), "--out", str(tmp_path / "out")])
    assert exit_info.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    reason = "The current node timed out during startup."
    assert f"Ray cannot be started here ({reason}); add --no-ray" in line


def test_a_second_sweep_in_the_folder_is_refused(tmp_path, capsys, monkeypatch):
    file = write(tmp_path / "good.toml", GOOD)
    arguments = ["sweep", str(file), "--out", str(tmp_path / "out"), "--no-ray"]

    def start_another(self, executor):
        with pytest.raises(SystemExit):
            command.main(arguments)

    monkeypatch.setattr(Runner, "run", start_another)
    command.main(arguments)
    assert "is in use by another sweep" in capsys.readouterr().err

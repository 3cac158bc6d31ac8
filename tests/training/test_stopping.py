"""Signals end a run soon, and cost little: also during an evaluation, twice, without a terminal."""

import errno
import json
import os
import signal
import sys

import pytest
from resume_runs import (
    FLAGS,
    SCRIPTS,
    assert_same_run,
    at_collect,
    checkpoints,
    resume,
    run_folder,
    train,
)

from medqn_tianshou import LeanCollector
from medqn_tianshou.training.checkpoint import Checkpoints
from medqn_tianshou.training.progress_line import ProgressLine

main = SCRIPTS["lowdim"].main
# Evaluations at 0, 150, 300, 450 and 500. Training begins at 100: only before the one at 300 are a
# tenth of 1,000 steps over.
EVALUATED = (*FLAGS, "--eval-every", "150", "--checkpoint-every", "1000")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """A run with evaluations that was not interrupted; do not change it."""
    return train("lowdim", tmp_path_factory.mktemp("evaluated"), *EVALUATED)


@pytest.fixture
def evaluation_steps(monkeypatch):
    """Count the steps of each evaluation; send a signal at a step of one of them."""
    steps, store, collect = [], LeanCollector._store, LeanCollector.collect

    def patch(evaluation=None, step=None, number=signal.SIGTERM):
        def begin(self, *args, **kwargs):
            if not self._stores:
                steps.append(0)
            return collect(self, *args, **kwargs)

        def count(self, played):
            if not self._stores:
                steps[-1] += 1
                if (len(steps) - 1, steps[-1]) == (evaluation, step):
                    os.kill(os.getpid(), number)
            return store(self, played)

        monkeypatch.setattr(LeanCollector, "collect", begin)
        monkeypatch.setattr(LeanCollector, "_store", count)
        return steps

    return patch


def start(logdir):
    return main([*EVALUATED, "--no-progress", "--logdir", str(logdir)])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_during_an_evaluation_does_not_wait_for_its_end(
    tmp_path, capsys, evaluated, evaluation_steps, number, code
):
    steps = evaluation_steps(2, 3, number)
    assert start(tmp_path) == code
    assert steps[-1] == 3
    captured = capsys.readouterr()
    assert "stopping in the middle of an evaluation" in captured.err
    assert "to resume: " in captured.out
    folder = run_folder(tmp_path)
    assert json.loads((folder / "summary.json").read_text())["status"] == "interrupted"
    assert checkpoints(folder) == ["000000000299.checkpoint"]
    assert resume("lowdim", folder, capsys) == 299
    assert_same_run(evaluated, folder)


def test_a_signal_right_before_an_evaluation_does_not_wait_for_it(
    tmp_path, monkeypatch, capsys, evaluated, evaluation_steps
):
    write = Checkpoints.write

    def write_slowly(self, env_step, *args):
        if env_step == 299:
            os.kill(os.getpid(), signal.SIGTERM)
        write(self, env_step, *args)

    steps = evaluation_steps()
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "write", write_slowly)
        assert start(tmp_path) == 143
    assert len(steps) == 2
    folder = run_folder(tmp_path)
    assert resume("lowdim", folder, capsys) == 299
    assert_same_run(evaluated, folder)


@pytest.mark.parametrize("moment", ["warm-up", "first evaluation"])
def test_a_run_that_is_stopped_before_its_first_step_starts_over(
    tmp_path, monkeypatch, capsys, evaluated, evaluation_steps, moment
):
    steps = evaluation_steps(0, 3)
    if moment == "warm-up":
        with at_collect(monkeypatch, 0, lambda: os.kill(os.getpid(), signal.SIGTERM)):
            assert start(tmp_path) == 143
    else:
        assert start(tmp_path) == 143
    assert steps == ([] if moment == "warm-up" else [3])
    folder = run_folder(tmp_path)
    assert not (folder / "checkpoints").exists()
    steps.extend([0])  # the next evaluation is not the first
    flags = [*EVALUATED, "--no-progress", "--logdir", str(tmp_path), "--auto-resume"]
    assert main(flags) == 0
    assert "no checkpoint yet: the run starts over" in capsys.readouterr().err
    assert_same_run(evaluated, folder)


def test_no_checkpoint_precedes_an_evaluation_that_follows_the_last_one_soon(tmp_path):
    folder = train("lowdim", tmp_path, *FLAGS, "--eval-every", "150")  # every 10 minutes
    assert not (folder / "checkpoints").exists()


def test_a_second_sigterm_does_not_cost_the_checkpoint(tmp_path):
    def twice():  # as a service manager and the sweep send it
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)

    with at_collect(pytest.MonkeyPatch(), 200, twice):
        assert main([*FLAGS, "--no-progress", "--logdir", str(tmp_path)]) == 143
    assert checkpoints(run_folder(tmp_path)) == ["000000000300.checkpoint"]


def test_a_closed_terminal_leaves_a_checkpoint(tmp_path, monkeypatch):
    class Closed:
        def isatty(self):
            return True

        def write(self, text):
            raise OSError(errno.EIO, "Input/output error")

        def flush(self):
            pass

    def hang_up():
        monkeypatch.setattr(sys, "stderr", Closed())
        os.kill(os.getpid(), signal.SIGHUP)

    with at_collect(monkeypatch, 200, hang_up):
        assert main([*FLAGS, "--logdir", str(tmp_path)]) == 129
    folder = run_folder(tmp_path)
    assert checkpoints(folder) == ["000000000300.checkpoint"]
    assert json.loads((folder / "summary.json").read_text())["status"] == "interrupted"


def test_a_progress_line_whose_terminal_is_gone_is_not_drawn_again(monkeypatch):
    drawn = []

    def fail(text, **_):
        drawn.append(text)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("builtins.print", fail)
    line = ProgressLine(10, shown=True)
    for step in (1, 2):
        line.update("training", step, 0.0, {"RSS": "1 MB"}, now=True)
    line.close()
    assert len(drawn) == 1


def test_below_nohup_a_run_ignores_the_end_of_its_terminal(tmp_path):
    handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with at_collect(pytest.MonkeyPatch(), 200, lambda: os.kill(os.getpid(), signal.SIGHUP)):
            assert main([*FLAGS, "--no-progress", "--logdir", str(tmp_path)]) == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, handler)

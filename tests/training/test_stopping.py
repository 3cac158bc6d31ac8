"""A signal during an evaluation stops the run at once; the resumed run repeats the evaluation."""

import json
import os
import signal

import pytest
from resume_runs import FLAGS, SCRIPTS, assert_same_run, checkpoints, resume, run_folder, train

from medqn_tianshou import LeanCollector
from medqn_tianshou.training import checkpoint

main = SCRIPTS["lowdim"].main
EVALUATED = (*FLAGS, "--eval-every", "150")
pytestmark = pytest.mark.slow


@pytest.fixture
def evaluated_steps(monkeypatch):
    """Count the steps of each evaluation; send a signal at a step of one of them."""
    steps, store = [], LeanCollector._store
    collect = LeanCollector.collect

    def patch(evaluation, step, number=signal.SIGTERM):
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


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_during_an_evaluation_does_not_wait_for_its_end(
    tmp_path, monkeypatch, capsys, evaluated_steps, number, code
):
    whole = train("lowdim", tmp_path / "whole", *EVALUATED)
    monkeypatch.setattr(checkpoint, "MOST_SECONDS_BEFORE_EVALUATION", 0.0)
    steps = evaluated_steps(2, 3, number)
    capsys.readouterr()
    assert main([*EVALUATED, "--no-progress", "--logdir", str(tmp_path / "cut")]) == code
    assert steps[-1] == 3
    captured = capsys.readouterr()
    assert "stopping in the middle of an evaluation" in captured.err
    assert "to resume: " in captured.out
    folder = run_folder(tmp_path / "cut")
    assert json.loads((folder / "summary.json").read_text())["status"] == "interrupted"
    assert checkpoints(folder) == ["000000000149.checkpoint", "000000000299.checkpoint"]
    assert resume("lowdim", folder, capsys) == 299
    assert_same_run(whole, folder)


def test_a_run_that_is_stopped_in_its_first_evaluation_starts_over(
    tmp_path, capsys, evaluated_steps
):
    whole = train("lowdim", tmp_path / "whole", *EVALUATED)
    steps = evaluated_steps(0, 3)
    flags = [*EVALUATED, "--no-progress", "--logdir", str(tmp_path / "cut")]
    assert main(flags) == 143
    assert steps == [3]
    folder = run_folder(tmp_path / "cut")
    assert not (folder / "checkpoints").exists()
    assert main([*flags, "--auto-resume"]) == 0
    assert "no checkpoint yet: the run starts over" in capsys.readouterr().err
    assert_same_run(whole, folder)


def test_checkpoints_before_evaluations_are_a_minute_apart(tmp_path):
    folder = train("lowdim", tmp_path, *EVALUATED)
    assert not (folder / "checkpoints").exists()

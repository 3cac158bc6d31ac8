"""The progress line: the speed of the last minute, and what a narrow terminal shows."""

import sys

import pytest

from medqn_tianshou.commands import train
from medqn_tianshou.training import progress_line
from medqn_tianshou.training.progress_line import ProgressLine

FIGURES = {"return": "-1,000.00", "eval": "-985.00", "RSS": "764.3 MB", "replay": "1.6 kB"}


def feed(line, samples):
    for seconds, step in samples:
        line.update("training", step, seconds, FIGURES)


def test_the_speed_of_a_resumed_run_leaves_out_the_steps_before():
    line = ProgressLine(5_000_000, shown=False)
    feed(line, [(30_000.0, 4_000_000), (30_400.0, 4_000_001)])  # the first step compiles code
    assert line.steps_per_s is None
    feed(line, [(30_410.0, 4_000_501)])
    assert line.steps_per_s == 50
    assert "50 steps/s | 5:33:10 left" in line.text("training", 4_000_501, FIGURES, None)


@pytest.mark.parametrize("before", [["warm-up"], ["warm-up", "evaluating", "evaluated"]])
def test_the_first_step_is_left_out_also_after_a_warm_up_and_an_evaluation(before):
    line = ProgressLine(10_000, shown=False)
    for activity in before:
        line.update(activity, 0, 0.0, FIGURES)
    feed(line, [(0.001, 1_000), (20.0, 1_001)])  # the first step compiles code
    line.update("interrupted", 1_001, 20.1, FIGURES)
    assert line.steps_per_s is None
    feed(line, [(30.0, 2_001)])
    assert line.steps_per_s == 100


def test_the_speed_is_that_of_the_last_minute():
    line = ProgressLine(10_000, shown=False)
    feed(line, [(second, 100 * second) for second in range(1_000)])
    feed(line, [(1_000 + second, 100_000 + second) for second in range(progress_window() + 1)])
    assert line.steps_per_s == pytest.approx(1)


def progress_window():
    return int(progress_line.WINDOW_SECONDS)


def test_an_evaluation_does_not_count_as_training():
    line = ProgressLine(10_000, shown=False)
    feed(line, [(0.0, 0), (5.0, 1), (15.0, 1_001), (15.0, 1_001), (15.0, 1_001)])
    assert line.steps_per_s == 100


def test_eighty_columns_keep_the_returns_and_the_memory():
    line = ProgressLine(5_000_000, shown=False)
    feed(line, [(0.0, 1_233_999), (5.0, 1_234_000), (15.0, 1_234_567)])
    wide = line.text("training", 1_234_567, FIGURES, 200)
    assert wide == (
        "training 25% | return -1,000.00 | eval -985.00 | RSS 764.3 MB | 57 steps/s | 18:26:50 left"
        " | 1,234,567 of 5,000,000 steps | replay 1.6 kB"
    )
    narrow = line.text("training", 1_234_567, FIGURES, 79)
    assert wide.startswith(narrow)
    assert narrow.endswith("| 57 steps/s")
    assert line.text("training", 1_234_567, FIGURES, 20) == "training 25%"


class Terminal:
    def __init__(self):
        self.written = ""

    def isatty(self):
        return True

    def write(self, text):
        self.written += text

    def flush(self):
        pass


def test_a_terminal_has_one_line_and_messages_stand_above_it(monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setattr(sys, "stderr", Terminal())
    line = ProgressLine(100, shown=True)
    line.update("warm-up", 0, 0.0, FIGURES)
    line.update("training", 1, 1.0, FIGURES)  # too soon to be drawn
    line.write("memory: full")
    line.close()
    text = sys.stderr.written
    assert text == "\rwarm-up 0% | return -1,000.00 | eval -985.00\x1b[K\r\x1b[Kmemory: full\n\n"


def test_a_file_has_lines_and_no_progress_has_none(capsys):
    for shown, expected in ((True, "warm-up 0% | return"), (False, "")):
        line = ProgressLine(100, shown=shown)
        line.update("warm-up", 0, 0.0, FIGURES)
        line.close()
        printed = capsys.readouterr().err
        assert printed.startswith(expected)
        assert "\r" not in printed
        assert printed.count("\n") == int(shown)


def test_an_evaluation_counts_its_episodes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress_line, "_FILE_SECONDS", 0.0)
    flags = "--steps 60 --warmup-steps 40 --max-episode-steps 10 --eval-every 60 --eval-episodes 3"
    flags += f" --task MountainCar-v0 --algo dqn --logdir {tmp_path}"
    assert train.main("lowdim", flags.split()) == 0
    shown = capsys.readouterr().err
    counts = [shown.count(f"evaluating ({episode} of 3 episodes)") for episode in range(1, 5)]
    assert counts == [2, 2, 2, 0]  # before the first step, and at the end

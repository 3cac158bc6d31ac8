"""Unexpected errors, a reader that is gone, and signals: one line, the right exit code."""

import signal
import subprocess
import sys

import pytest
from scripts import ROOT

from medqn_tianshou.commands.edge import exit_code, run_main


@pytest.mark.parametrize(
    "error", [RuntimeError("first\nsecond"), MemoryError(), OverflowError("too large")]
)
def test_an_unexpected_error_is_one_line(monkeypatch, capsys, error):
    def fail(arguments):
        assert arguments == ["train"]
        raise error

    monkeypatch.setattr(sys, "argv", ["medqn", "train"])
    assert run_main(fail, "medqn") == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"medqn: error: {type(error).__name__}")
    assert line.endswith("; --traceback shows where")
    monkeypatch.setattr(sys, "argv", ["medqn", "--traceback", "train"])
    with pytest.raises(type(error)):
        run_main(fail, "medqn")


def test_an_interruption_has_the_exit_code_of_its_signal(monkeypatch):
    def stop(arguments):
        raise KeyboardInterrupt(signal.SIGTERM)

    monkeypatch.setattr(sys, "argv", ["medqn"])
    assert run_main(stop) == 143
    assert exit_code(KeyboardInterrupt()) == 130


@pytest.mark.process
def test_a_reader_that_is_gone_ends_the_command_without_a_traceback():
    command = [sys.executable, "-m", "medqn_tianshou", "train", "atari", "--help"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        errors = process.stderr.read()
    assert errors == b""

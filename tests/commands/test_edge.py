"""Unexpected errors, a reader that is gone, and signals: one line, the right exit code."""

import signal
import subprocess
import sys

import pytest
from scripts import ROOT

from medqn_tianshou.commands.edge import exit_code, loading, run_main


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("first\nsecond"),
        RecursionError(),
        MemoryError(),
        OverflowError("too large"),
        OSError(28, "No space left on device", "README.md"),
    ],
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
def test_ctrl_c_while_libraries_are_imported_ends_the_process_at_once():
    script = """
import os, signal, sys
from medqn_tianshou.commands.edge import loading
with loading():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000): pass
    except KeyboardInterrupt:
        print("a library continues")
print("and so does the command")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_ctrl_c_raises_again_once_they_are_loaded():
    with loading():
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    ignored = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with loading():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, ignored)


@pytest.mark.process
@pytest.mark.parametrize("arguments", [["train", "atari", "--help"], ["--version"]])
def test_a_reader_that_is_gone_ends_the_command_without_a_traceback(arguments):
    command = [sys.executable, "-m", "medqn_tianshou", *arguments]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        errors = process.stderr.read()
    assert errors == b""

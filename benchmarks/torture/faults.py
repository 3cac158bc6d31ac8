"""Runs with faults: the message, the exit code, and whether the run still ends as it should."""

import os
import shutil
import signal
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.report import Part, Result, Section, Table, Target
from benchmarks.torture.life import Life, fingerprint, load_script, run_folder

FAULT_RUN = (
    "--task MountainCar-v0 --algo medqn-u --steps 600 --warmup-steps 100 --checkpoint-every 60"
)


def measure_faults(sizes: Any) -> Result:
    """Damage a run in several ways; record the message and whether its end is still the same."""
    script, faults = load_script("lowdim"), {}
    flags = FAULT_RUN.split()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        output = folder / "output.txt"
        if Life(script, [*flags, "--logdir", str(folder / "whole")], output).wait() != 0:
            raise RuntimeError(f"the run that nothing befalls failed: {output.read_text()}")
        whole = fingerprint(run_folder(folder / "whole"))
        full = Life(script, [*flags, "--logdir", str(folder / "r")], output, largest_file=9000)
        faults["disk full"] = {"code": full.wait(), "said": _last_line(output)}
        shutil.rmtree(folder / "r")
        life = Life(script, [*flags, "--logdir", str(folder / "r")], output)
        life.wait_for("run folder")
        while len(list((folder / "r").glob("**/*.checkpoint"))) < 2:
            time.sleep(0.001)
        life.kill_after(0)
        run = run_folder(folder / "r")
        for fault, spoil in (
            ("newest truncated", partial(_truncate, 1)),
            ("newest bit-flipped", partial(_flip, 1)),
            ("all truncated", partial(_truncate, 2)),
        ):
            copy = folder / fault.replace(" ", "-")
            shutil.copytree(run, copy)
            spoil(copy)
            code = Life(script, ["--resume", str(copy)], output).wait()
            entry = {"code": code, "said": _warning(output) if code == 0 else _last_line(output)}
            if code == 0:
                entry["equal"] = fingerprint(copy) == whole
            faults[fault] = entry
        first = Life(script, ["--resume", str(run)], folder / "first.txt")
        first.wait_for("resumed at env step")
        os.kill(first.pid, signal.SIGSTOP)  # it holds the folder for as long as it takes
        code = Life(script, ["--resume", str(run)], output).wait()
        faults["second process"] = {"code": code, "said": _last_line(output)}
        os.kill(first.pid, signal.SIGCONT)
        faults["first process, meanwhile"] = {
            "code": first.wait(),
            "said": "",
            "equal": fingerprint(run) == whole,
        }
        for entry in faults.values():
            entry["said"] = str(entry["said"]).replace(str(folder), "...")
    return faults


def _truncate(count: int, folder: Path) -> None:
    for path in sorted(folder.glob("checkpoints/*.checkpoint"))[-count:]:
        os.truncate(path, path.stat().st_size // 2)


def _flip(count: int, folder: Path) -> None:
    for path in sorted(folder.glob("checkpoints/*.checkpoint"))[-count:]:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)


def _last_line(output: Path) -> str:
    return (output.read_text().splitlines() or [""])[-1]


def _warning(output: Path) -> str:
    lines = output.read_text().splitlines()
    return next((line for line in lines if line.startswith("warning")), "")


def show_faults(measured: Result) -> Section:
    """Make the section on faults."""
    rows = [
        (fault, str(entry["code"]), {True: "yes", False: "**no**", None: ""}[entry.get("equal")],
         entry["said"])
        for fault, entry in measured.items()
    ]  # fmt: skip
    refused = ("disk full", "all truncated", "second process")
    wrong = sum(measured[name]["code"] == 0 for name in refused)
    wrong += sum(not entry.get("equal", True) for entry in measured.values())
    return Section(
        title="Faults",
        tables=[Table(("fault", "exit code", "same end", "said"), rows)],
        notes=f"`lowdim/lowdim_medqn.py {FAULT_RUN}`; disk full: no file may exceed 9,000 bytes.",
        targets=[Target(what="faults not dealt with", value=wrong, at_most=0, unit="")],
    )


FAULTS = Part(measure_faults, show_faults)

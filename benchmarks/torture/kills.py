"""Runs of the scripts, killed at random instants and resumed."""

import random
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import Part, Result, Section, Table, Target, note
from benchmarks.torture.life import Life, fingerprint, load_script, run_folder

RUNS = {
    "lowdim": "--task MountainCar-v0 --algo medqn-u --steps 4000 --checkpoint-every 25",
    "lowdim, evaluation": "--task Catcher --algo dqn --steps 3000 --checkpoint-every 25 "
    "--eval-every 400 --eval-episodes 2 --eps-test 0.1",
    "minatar": "--game breakout --algo medqn-r --steps 8000 --warmup-steps 500 --buffer-size 2000 "
    "--checkpoint-every 50",
    "minatar, evaluation": "--game space_invaders --algo dqn --steps 3000 --warmup-steps 500 "
    "--buffer-size 2000 --checkpoint-every 50 --eval-every 400 --eval-episodes 2 --eps-test 0.1",
    "minatar, overlap": "--game seaquest --algo medqn-u --steps 4000 --warmup-steps 500 "
    "--checkpoint-every 50 --overlap",
    # Random play keeps the evaluation games short.
    "atari": "--task QbertNoFrameskip-v4 --epoch 4 --step-per-epoch 400 --step-per-collect 8 "
    "--buffer-size 500 --test-num 1 --eps-test 1 --device cpu --checkpoint-every 24",
    "atari, several environments": "--task QbertNoFrameskip-v4 --env-backend ale --training-num 2 "
    "--epoch 2 --step-per-epoch 400 --step-per-collect 8 --buffer-size 500 --test-num 1 "
    "--eps-test 0.9 --device cpu --checkpoint-every 24 --overlap",
}
"""Runs by their family and what is special about them; every environment can be restored."""
_LATE_SHARE = 0.9
"""The share of runs that are killed only after their first checkpoint."""


@dataclass
class Tally:
    """The outcome of a number of kills."""

    kills: int = 0
    resumes: int = 0
    fallbacks: int = 0
    """Resumes that had to take an earlier checkpoint than the newest."""
    starts_over: int = 0
    """Kills before the first checkpoint."""
    runs: int = 0
    equal: int = 0
    """Runs whose end is that of the run that was never killed."""
    lost: int = 0
    """Resumes that failed."""


def kill_again_and_again(
    family: str, flags: Sequence[str], folder: Path, *, kills: int, seconds: float, seed: int = 0
) -> Tally:
    """Kill runs of a script at random instants, resume each time, and compare their ends.

    :param flags: a short run with frequent checkpoints.
    :param seconds: the longest life.
    """
    script, rng, tally = load_script(family), random.Random(seed), Tally()
    output = folder / "output.txt"
    if Life(script, [*flags, "--logdir", str(folder / "whole")], output).wait() != 0:
        raise RuntimeError(f"the run that is not killed failed: {output.read_text()}")
    whole = fingerprint(run_folder(folder / "whole"))
    while tally.kills < kills:
        tally.runs += 1
        logdir = folder / str(tally.runs)
        arguments = [*flags, "--logdir", str(logdir)]
        code: int | None = None
        begun = "run folder: .*\n"
        while code is None:
            life = Life(script, arguments, output)
            if not life.wait_for(begun):
                code = life.wait()
            elif tally.kills < kills:
                if rng.random() < _LATE_SHARE:
                    life.wait_for_file(logdir, "*.checkpoint")
                code = life.kill_after(rng.uniform(0, seconds))
                tally.kills += code is None
            else:
                code = life.wait()
            said = output.read_text()
            tally.resumes += "resumed at env step" in said
            tally.starts_over += "the run starts over" in said
            tally.fallbacks += "trying the one before" in said
            arguments = ["--resume", str(run_folder(logdir))]
            begun = "resumed at env step .*\n|the run starts over\n"
        tally.lost += code != 0
        tally.equal += code == 0 and fingerprint(run_folder(logdir)) == whole
    return tally


def measure_kills(sizes: Any) -> Result:
    """Kill and resume runs of each script."""
    tallies = {}
    for name, flags in RUNS.items():
        family = name.partition(",")[0]
        with tempfile.TemporaryDirectory() as folder:
            tally = kill_again_and_again(
                family, flags.split(), Path(folder), kills=sizes.kills, seconds=sizes.seconds
            )
        note(f"  {name}: {tally}")
        tallies[name] = asdict(tally)
    return tallies


def show_kills(measured: Result) -> Section:
    """Make the section on kills."""
    tallies = {family: Tally(**tally) for family, tally in measured.items()}
    names = ("kills", "resumes", "starts_over", "fallbacks", "runs", "equal", "lost")
    rows = [(family, *(str(getattr(t, n)) for n in names)) for family, t in tallies.items()]
    different = sum(tally.runs - tally.equal for tally in tallies.values())
    return Section(
        title="Kills",
        tables=[Table(("script", *(name.replace("_", " ") for name in names)), rows)],
        notes="SIGKILL at random times in short runs with frequent checkpoints, nine in ten of "
        "them after the first checkpoint, each followed by `--resume`. *Starts over*: the run had "
        "no checkpoint yet. *Equal*: the final parameters, `episodes.csv` and `progress.csv` "
        "(except speed and memory) equal those of an uninterrupted run, bit for bit.\n\n"
        + "\n\n".join(f"{name}: `{RUNS[name]}`" for name in tallies),
        targets=[
            Target(what="resumes that failed", value=_sum(tallies, "lost"), at_most=0, unit=""),
            Target(what="runs that ended differently", value=different, at_most=0, unit=""),
        ],
    )


def _sum(tallies: dict[str, Tally], name: str) -> int:
    return sum(getattr(tally, name) for tally in tallies.values())


KILLS = Part(measure_kills, show_kills)

#!/usr/bin/env python
"""What a run survives: kills at random instants, a full disk, damaged checkpoints, long hours.

Writes a page and its figures to --out. Needs the extras atari and minatar. Examples:

  python benchmarks/torture.py
  python benchmarks/torture.py --quick --parts kills --out torture-quick
"""

import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from faults import measure_faults, show_faults
from kills import Life, Tally, kill_again_and_again, load_script, run_folder
from report import Part, Report, Result, Section, Table, Target, note
from tianshou.data import Batch

from medqn_tianshou.commands.parsing import Parser
from medqn_tianshou.envs.atari import make_atari_envs
from medqn_tianshou.replay import CompactVectorReplayBuffer
from medqn_tianshou.training.checkpoint import read_checkpoint, write_checkpoint

OUT = Path("docs/results/torture")
TITLE = "What a run survives"
RUNS = {
    "lowdim": "--task MountainCar-v0 --algo medqn-u --steps 4000 --checkpoint-every 25",
    "minatar": "--game breakout --algo medqn-r --steps 8000 --warmup-steps 500 --buffer-size 2000 "
    "--checkpoint-every 50",
    # Random play keeps the evaluation games short.
    "atari": "--task QbertNoFrameskip-v4 --epoch 4 --step-per-epoch 400 --step-per-collect 8 "
    "--buffer-size 500 --test-num 1 --eps-test 1 --device cpu --checkpoint-every 24",
}


_FEWEST_STEPS_PER_SECOND = 20.0


@dataclass(frozen=True)
class Sizes:
    """How much to do."""

    kills: int = 50
    seconds: float = 1.5
    soak_env_steps: int = 300_000
    transitions: int = 100_000


QUICK = Sizes(kills=3, seconds=1.0, soak_env_steps=20_000, transitions=3_000)


def measure_kills(sizes: Sizes) -> Result:
    """Kill and resume runs of each script."""
    tallies = {}
    for family, flags in RUNS.items():
        with tempfile.TemporaryDirectory() as folder:
            tally = kill_again_and_again(
                family, flags.split(), Path(folder), kills=sizes.kills, seconds=sizes.seconds
            )
        note(f"  {family}: {tally}")
        tallies[family] = asdict(tally)
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
        notes="SIGKILL at random instants of short runs with frequent checkpoints, nine in ten of "
        "them after the first checkpoint, each followed by `--resume`; "
        "*starts over*: there was no checkpoint yet. A run is *equal* if its last "
        "parameters, `progress.csv` (but for speed and memory) and `episodes.csv` are, bit for "
        "bit, those of the run that was never killed. All train on one environment that can be "
        "put back.\n\n" + "\n\n".join(f"{f}: `{flags}`" for f, flags in RUNS.items()),
        targets=[
            Target(what="resumes that failed", value=_sum(tallies, "lost"), at_most=0, unit=""),
            Target(what="runs that ended differently", value=different, at_most=0, unit=""),
        ],
    )


def _sum(tallies: dict[str, Tally], name: str) -> int:
    return sum(getattr(tally, name) for tally in tallies.values())


def measure_soak(sizes: Sizes) -> Result:
    """Train for long, with evaluation and checkpoints, and look at the memory."""
    steps = sizes.soak_env_steps
    flags = (
        f"--game breakout --algo medqn-r --steps {steps} --checkpoint-every {steps // 15} "
        f"--eval-every {steps // 60} --eval-episodes 2"
    )
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "output.txt"
        script = load_script("minatar")
        life = Life(script, [*flags.split(), "--logdir", folder], output)
        if life.wait(seconds=steps / _FEWEST_STEPS_PER_SECOND) != 0:
            raise RuntimeError(output.read_text())
        lines = (run_folder(Path(folder)) / "progress.csv").read_text().splitlines()
    header, *rows = (line.split(",") for line in lines)
    step, rss = header.index("env_step"), header.index("rss_mb")
    return {
        "flags": flags,
        "env_step": [int(row[step]) for row in rows],
        "rss_mb": [float(row[rss]) for row in rows],
    }


def show_soak(measured: Result) -> Section:
    """Make the section on the soak."""
    env_step, rss_mb = np.array(measured["env_step"]), np.array(measured["rss_mb"])
    settled = env_step >= env_step[-1] // 4
    drift = float(np.polyfit(env_step[settled] / 1e5, rss_mb[settled], 1)[0])
    picked = np.linspace(0, len(env_step) - 1, 7).astype(int)
    return Section(
        title="Soak",
        tables=[
            Table(
                ("env step", "RSS"), [(f"{env_step[i]:,}", f"{rss_mb[i]:.1f} MB") for i in picked]
            )
        ],
        notes=f"`minatar/minatar_medqn.py {measured['flags']}`. The drift is the slope of a line "
        "through the RSS, at each evaluation, after the first quarter, when the buffer has long "
        "been full.",
        targets=[
            Target(what="drift per 100,000 steps", value=drift, at_most=2.0, unit="MB"),
        ],
    )


def measure_saving(sizes: Sizes) -> Result:
    """Write and read a checkpoint with a buffer full of Atari frames."""
    buffer = CompactVectorReplayBuffer(
        sizes.transitions, 1, stack_num=4, save_only_last_obs=True, random_seed=0
    )
    envs = make_atari_envs(task="QbertNoFrameskip-v4", num_envs=1, seed=0, training=True)
    rng = np.random.default_rng(0)
    obs = envs.reset()[0]
    for _ in range(sizes.transitions):
        act = np.array([rng.integers(6)])
        answer: Any = envs.step(act)
        obs_next, rew, terminated, truncated, _ = answer
        done = terminated | truncated
        step = {"obs": obs, "act": act, "rew": rew, "obs_next": obs_next, "done": done}
        buffer.add(Batch(**step, terminated=terminated, truncated=truncated))
        obs = envs.reset()[0] if done[0] else obs_next
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "buffer.checkpoint"
        with _RssPeak() as peak:
            start = time.perf_counter()
            write_checkpoint(path, {}, buffer)
            write_seconds = time.perf_counter() - start
        start = time.perf_counter()
        read = read_checkpoint(path)[1]
        read_seconds = time.perf_counter() - start
        nbytes = path.stat().st_size
    if read is None or len(read) != len(buffer):
        raise RuntimeError("the buffer that was read is not the one that was written")
    return {
        "transitions": len(buffer),
        "buffer_bytes": buffer.nbytes,
        "file_bytes": nbytes,
        "write_seconds": write_seconds,
        "read_seconds": read_seconds,
        "extra_bytes": peak.extra,
    }


class _RssPeak:
    """Watches by how much the process grows within a block."""

    extra = 0

    def __enter__(self) -> "_RssPeak":
        self._process = psutil.Process()
        self._start = self._process.memory_info().rss
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._stop.wait(0.002):
            self.extra = max(self.extra, self._process.memory_info().rss - self._start)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def show_saving(measured: Result) -> Section:
    """Make the section on saving."""
    share = 100 * measured["extra_bytes"] / measured["buffer_bytes"]
    rows = [
        ("transitions", f"{measured['transitions']:,}"),
        ("buffer", f"{measured['buffer_bytes'] / 1e6:.1f} MB"),
        ("file", f"{measured['file_bytes'] / 1e6:.1f} MB"),
        ("written in", f"{measured['write_seconds']:.2f} s"),
        ("read in", f"{measured['read_seconds']:.2f} s"),
    ]
    return Section(
        title="Saving a buffer of Atari frames",
        tables=[Table(("", "Qbert, random play"), rows)],
        notes="One checkpoint with the compact buffer, synced to the disk.",
        targets=[
            Target(what="extra memory to save", value=share, at_most=20, unit="%"),
            Target(what="time to save", value=measured["write_seconds"], at_most=10, unit="s"),
        ],
    )


# Saving last: its games must not run before a fork.
PARTS = {
    "kills": Part(measure_kills, show_kills),
    "faults": Part(measure_faults, show_faults),
    "soak": Part(measure_soak, show_soak),
    "saving": Part(measure_saving, show_saving),
}


def main(arguments: Sequence[str] | None = None, sizes: Sizes | None = None) -> int:
    """Run the command line; return the exit code.

    :param arguments: the command line.
    :param sizes: how much to do; None is what the command line says.
    """
    parser = Parser(description=__doc__)
    parser.add_argument("--parts", default=",".join(PARTS), help="which parts, by commas")
    parser.add_argument("--quick", action="store_true", help="a few kills, short runs")
    parser.add_argument(
        "--out", type=Path, default=OUT, help=f"folder of the page (default: {OUT})"
    )
    args = parser.parse_args(arguments)
    names = args.parts.split(",")
    for name in names:
        if name not in PARTS:
            parser.bad("--parts", repr(name), f"is not a part; choose from {','.join(PARTS)}")
    if args.quick and args.out == OUT:
        parser.error(f"argument --quick: is not for {OUT}; name another --out")
    try:
        report = Report(args.out / "torture.json", quick=args.quick)
    except ValueError as error:
        parser.bad("--out", args.out, str(error))
    for name in [name for name in PARTS if name in names]:
        note(f"{name} ...")
        report.measure(name, PARTS[name], sizes or (QUICK if args.quick else Sizes()))
        report.write(args.out / "README.md", TITLE, PARTS)
    print((args.out / "README.md").read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Forged files, valid except for one change and with a correct digest, for all readers."""

import json
import random
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from tianshou.data import Batch

from benchmarks.report import Part, Result, Section, Table, Target, note
from benchmarks.torture.life import Life, Main, load_script, run_folder
from benchmarks.torture.mutations import mutate_container, mutate_json, split_containers
from medqn_tianshou.commands.main import main as medqn
from medqn_tianshou.replay import CompactVectorReplayBuffer
from medqn_tianshou.replay.codecs import DamagedBlockError
from medqn_tianshou.replay.file import ReplayFileError
from medqn_tianshou.training.memory import MB

RUNS = {
    "lowdim": "--task MountainCar-v0 --algo medqn-u --steps 190 --warmup-steps 100 "
    "--max-episode-steps 40 --checkpoint-every 30 --eval-every 60 --eval-episodes 1",
    "minatar": "--game seaquest --algo medqn-r --steps 190 --warmup-steps 100 --buffer-size 90 "
    "--checkpoint-every 30 --overlap",
    "atari": "--task QbertNoFrameskip-v4 --epoch 2 --step-per-epoch 40 --step-per-collect 4 "
    "--batch-size 8 --buffer-size 60 --test-num 1 --eps-test 1 --device cpu --checkpoint-every 16",
}
"""Short runs that leave two checkpoints."""
EVALUATED = "--task Catcher --algo dqn --steps 190 --warmup-steps 100 --eval-every 60"
"""A run whose games always end, for the commands that play."""
MEMORY = 1500 * MB
"""What a process may allocate beyond what it has at its start."""
_SECONDS = 120.0
_EMULATOR = frozenset({"emulator"})
"""What only ale-py can read."""

OUTCOMES = ("accepted", "fell back", "refused", "broken")


def outcome(life: Life) -> str:
    """Wait for a process, and say what it made of its file."""
    try:
        code = life.wait(_SECONDS)
    except RuntimeError:
        return "broken"
    said = life.output.read_text()
    if code == 0:
        return "fell back" if "trying the one before" in said else "accepted"
    errors = [line for line in said.splitlines() if "error: " in line]
    return (
        "refused" if code in (1, 2) and len(errors) == 1 and errors[0].isprintable() else "broken"
    )


def _use_replay(arguments: list[str]) -> int:
    """Load a replay buffer, read all of it, sample from it and add to it."""
    try:
        buffer = CompactVectorReplayBuffer.load(arguments[0])
    except ReplayFileError as error:
        print(f"error: {error}")
        return 1
    try:
        _add(buffer, 40)
        buffer.sample(16)
        buffer[:]
        buffer.save(arguments[0])
    except (DamagedBlockError, ValueError) as error:  # what it holds is of another kind
        print(f"error: {error}")
        return 1
    return 0


def _add(buffer: CompactVectorReplayBuffer, count: int) -> None:
    rng = np.random.default_rng(0)
    obs = np.zeros((2, 6, 6), np.uint8)
    for t in range(count):
        obs_next = rng.integers(0, 2, (2, 6, 6), np.uint8)
        done = np.array([t % 9 == 8, t % 7 == 6])
        transition: Any = Batch(
            obs=obs,
            act=rng.integers(4, size=2),
            rew=rng.random(2),
            terminated=done,
            truncated=np.zeros(2, bool),
            obs_next=obs_next,
        )
        buffer.add(transition)
        obs = obs_next


class Fuzzer:
    """Changes valid files, and counts what becomes of them.

    :param folder: where everything is written.
    """

    def __init__(self, folder: Path, *, seed: int = 0) -> None:
        self._folder = folder
        self._output = folder / "output.txt"
        self._rng = random.Random(seed)
        self.counts: dict[str, Counter[str]] = {}
        self.broken: list[str] = []
        """What was changed where something broke, and the last line that was printed."""

    def replay(self, count: int) -> None:
        """Change replay buffers."""
        path = self._folder / "replay"
        buffer = CompactVectorReplayBuffer(120, 2, stack_num=2, random_seed=0)
        _add(buffer, 90)
        buffer.save(path)
        data = path.read_bytes()
        for _ in range(count):
            changed, what = mutate_container(data, self._rng)
            path.write_bytes(changed)
            self._count("replay", what, _use_replay, [str(path)])

    def checkpoints(self, family: str, count: int) -> None:
        """Change checkpoints of a run, and resume it to its end."""
        script, run = load_script(family), self._run(family)
        newest = max(run.glob("checkpoints/*.checkpoint"))
        containers = split_containers(newest.read_bytes())
        copy = self._folder / "copy"
        for _ in range(count):
            place = self._rng.randrange(len(containers))
            mutated, what = mutate_container(containers[place], self._rng, spare=_EMULATOR)
            shutil.copytree(run, copy)
            changed = [*containers[:place], mutated, *containers[place + 1 :]]
            (copy / "checkpoints" / newest.name).write_bytes(b"".join(changed))
            self._count(f"checkpoint, {family}", what, script, ["--resume", str(copy)])
            shutil.rmtree(copy)

    def run_files(self, count: int) -> None:
        """Change the JSON files of a run and of a sweep, and give them to the commands."""
        script, run, logdir = load_script("lowdim"), self._run("lowdim"), self._folder / "catcher"
        with redirect_stdout(StringIO()):
            script([*EVALUATED.split(), "--logdir", str(logdir)])
        finished = run_folder(logdir)
        readers: list[tuple[Path, str, Main, Callable[[Path], list[str]]]] = [
            (run, "config.json", script, lambda path: ["--resume", str(path)]),
            *(
                (finished, name, medqn, partial(_command, words))
                for name in ("config.json", "summary.json")
                for words in (["evaluate", "--episodes", "1"], ["report", "--bootstrap", "100"])
            ),
            (self._sweep(), "status.json", medqn, partial(_command, ["sweep", "--no-ray"])),
        ]
        copy = self._folder / "copy"
        for _ in range(count):
            source, name, command, arguments = self._rng.choice(readers)
            shutil.copytree(source, copy)
            (file,) = copy.rglob(name)
            tree, what = mutate_json(json.loads(file.read_text()), self._rng)
            file.write_text(json.dumps(tree))
            words = arguments(copy)
            self._count(f"run folder, {words[0].strip('-')}", f"{name}: {what}", command, words)
            shutil.rmtree(copy)

    def _count(self, kind: str, what: str, command: Main, arguments: list[str]) -> None:
        life = Life(command, arguments, self._output, memory=MEMORY)
        found = outcome(life)
        self.counts.setdefault(kind, Counter())[found] += 1
        if found == "broken":
            last = (self._output.read_text().splitlines() or [f"exit {life.exit_code()}"])[-1]
            self.broken.append(f"{kind}: {what}: {last}".replace(str(self._folder), "..."))
            note(f"  broken: {self.broken[-1]}")

    def _run(self, family: str, *, to_its_end: bool = False) -> Path:
        """Run a script, killed after its second checkpoint unless it shall end."""
        logdir = self._folder / f"{family}{'-ended' * to_its_end}"
        if logdir.exists():
            return run_folder(logdir)
        flags = [*RUNS[family].split(), "--logdir", str(logdir)]
        if to_its_end:  # in this process: what it loads and compiles, its children need not
            with redirect_stdout(StringIO()):
                load_script(family)(flags)
            return run_folder(logdir)
        self._run(family, to_its_end=True)
        life = Life(load_script(family), flags, self._output)
        life.wait_for("run folder")
        while len(list(logdir.glob("**/*.checkpoint"))) < 2 and life.exit_code() is None:
            time.sleep(0.001)
        if life.kill_after(0) is not None:
            raise RuntimeError(f"the run ended too early: {self._output.read_text()}")
        return run_folder(logdir)

    def _sweep(self) -> Path:
        folder = self._folder / "sweep"
        if not folder.exists():
            folder.mkdir()
            (folder / "study.toml").write_text(
                'family = "lowdim"\ntasks = ["MountainCar-v0"]\nalgorithms = ["medqn-u"]\n'
                "seeds = 1\n[settings]\nsteps = 150\nwarmup-steps = 100\n"
            )
            life = Life(medqn, _command(["sweep", "--no-ray"], folder), self._output)
            if life.wait() != 0:
                raise RuntimeError(self._output.read_text())
        return folder


def _command(words: list[str], folder: Path) -> list[str]:
    """Complete a command line for a copy of a run or of a sweep."""
    command, *flags = words
    if command == "sweep":
        return [command, str(folder / "study.toml"), *flags, "--out", str(folder)]
    out = ["--out", str(folder / "report")] if command == "report" else []
    return [command, str(folder), *flags, *out]


def measure_fuzz(sizes: Any) -> Result:
    """Change files of all three kinds, and read them."""
    third = -(-sizes.mutations // 3)
    with tempfile.TemporaryDirectory() as folder:
        fuzzer = Fuzzer(Path(folder))
        fuzzer.replay(third)
        fuzzer.run_files(third)
        for family in RUNS:
            fuzzer.checkpoints(family, -(-third // len(RUNS)))
        return {"counts": fuzzer.counts, "broken": fuzzer.broken}


def show_fuzz(measured: Result) -> Section:
    """Make the section on changed files."""
    rows = [
        (kind, *(str(counts.get(name, 0)) for name in OUTCOMES))
        for kind, counts in measured["counts"].items()
    ]
    total = sum(sum(counts.values()) for counts in measured["counts"].values())
    return Section(
        title="Forged files",
        tables=[Table(("file", *OUTCOMES), rows)],
        notes=f"{total:,} files, each valid except for one field of its header or one number of an "
        "array, and with a correct digest. Replay buffers are loaded, read, sampled from and added "
        "to; checkpoints are resumed to the end of the run; the JSON files of run folders and "
        "sweeps are passed to the commands. *Fell back*: to the previous checkpoint. *Refused*: "
        f"with one line. *Broken*: a traceback, a signal, no end within {_SECONDS:.0f} s, or more "
        f"than {MEMORY // MB:,} MB of memory. Of an emulator's own bytes, only the size is changed."
        + "".join(f"\n\n`{line}`" for line in measured["broken"]),
        targets=[
            Target(what="files that broke it", value=len(measured["broken"]), at_most=0, unit="")
        ],
    )


FUZZ = Part(measure_fuzz, show_fuzz)

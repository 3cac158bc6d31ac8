"""Short runs of the scripts that are killed, resumed and compared."""

import csv
import json
import os
import re
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from scripts import load_script
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from medqn_tianshou import LeanCollector
from medqn_tianshou.files.parameters import read_parameters

SCRIPTS = {
    family: load_script(f"{family}/{family}_medqn.py") for family in ("lowdim", "minatar", "atari")
}
LOWDIM = "--steps 500 --warmup-steps 100 --return-window 3 --max-episode-steps 45"
FLAGS = f"--task MountainCar-v0 --algo medqn-u {LOWDIM}".split()
OFTEN = ("--checkpoint-every", "60")
# Random play keeps the evaluation games short.
ATARI = (
    "--task QbertNoFrameskip-v4 --epoch 2 --step-per-epoch 80 --step-per-collect 4 --batch-size 8 "
    "--buffer-size 60 --eps-test 1 --eps-decay-steps 200 --target-update-freq 7"
)


class KilledError(BaseException):
    """Ends a run at once, wherever it is."""


def run_folder(logdir):
    (config,) = logdir.glob("**/config.json")
    return config.parent


def checkpoints(folder):
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def truncate(path):
    os.truncate(path, path.stat().st_size // 2)


def train(family, logdir, *flags):
    script = SCRIPTS[family]
    assert script.main([*flags, "--no-progress", "--logdir", str(logdir)]) == 0
    return run_folder(logdir)


def train_and_kill(family, logdir, monkeypatch, collects, *flags):
    """Run until so many training collects were begun, then end without a word."""

    def die():
        raise KilledError

    with at_collect(monkeypatch, collects, die), pytest.raises(KilledError):
        train(family, logdir, *flags)
    return run_folder(logdir)


@contextmanager
def at_collect(monkeypatch, collects, act):
    """Do something after so many training collects."""
    begun = 0
    collect = LeanCollector.collect

    def collect_after_act(self, *args, **kwargs):
        nonlocal begun
        if self._stores:
            begun += 1
            if begun == collects + 1:
                act()
        return collect(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(LeanCollector, "collect", collect_after_act)
        yield


def resume(family, folder, capsys):
    """Go on with a run to its end; return the environment step at which it went on."""
    # A generator that is not restored must show.
    np.random.seed(123)
    torch.manual_seed(123)
    capsys.readouterr()
    assert SCRIPTS[family].main(["--resume", str(folder), "--no-progress"]) == 0
    return int(
        re.search(r"resumed at env step ([\d,]+)", capsys.readouterr().out)[1].replace(",", "")
    )


def rows(folder, name, leave_out=("steps_per_s", "rss_mb")):
    with (folder / name).open(newline="") as file:
        table = list(csv.DictReader(file))
    return [{key: row[key] for key in row if key not in leave_out} for row in table]


def scalars(folder):
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    timed = ("memory/", "timing", "time", "speed", "per_s", "_mb")
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
        if not any(word in tag for word in timed)
    }


def assert_same_run(one, other):
    for name in ("policy_last.safetensors", "policy_best.safetensors"):
        if (one / name).exists():
            first, second = (read_parameters(f / name) for f in (one, other))
            assert first.keys() == second.keys()
            for key, value in first.items():
                assert torch.equal(value, second[key]), (name, key)
    for name in ("progress.csv", "episodes.csv"):
        assert rows(one, name) == rows(other, name)
    assert scalars(one) == scalars(other)
    first, second = (json.loads((f / "summary.json").read_text()) for f in (one, other))
    for name in ("status", "env_steps", "gradient_steps", "best_return", "final_return"):
        assert first[name] == second[name]

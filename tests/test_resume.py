"""A run that was killed and resumed is the run that was not: parameters, logs, everything."""

import csv
import json
import re

import numpy as np
import pytest
import torch
from scripts import load_script
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from medqn_tianshou import LeanCollector

SCRIPTS = {
    family: load_script(f"{family}/{family}_medqn.py") for family in ("lowdim", "minatar", "atari")
}
LOWDIM = "--steps 500 --warmup-steps 100 --return-window 3 --max-episode-steps 45"
ATARI = (
    "--epoch 2 --step-per-epoch 160 --step-per-collect 4 --buffer-size 120 --test-num 2 "
    "--eps-test 0.9 --eps-decay-steps 240 --target-update-freq 7"
)


class KilledError(BaseException):
    """Ends a run at once, wherever it is."""


def run_folder(logdir):
    (config,) = logdir.glob("**/config.json")
    return config.parent


def train(family, logdir, *flags):
    script = SCRIPTS[family]
    assert script.main([*flags, "--no-progress", "--logdir", str(logdir)]) == 0
    return run_folder(logdir)


def train_and_kill(family, logdir, monkeypatch, collects, *flags):
    """Run until so many training collects were begun, then end without a word."""
    begun = 0
    collect = LeanCollector.collect

    def collect_or_die(self, *args, **kwargs):
        nonlocal begun
        if self._stores:
            begun += 1
            if begun > collects:
                raise KilledError
        return collect(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(LeanCollector, "collect", collect_or_die)
        with pytest.raises(KilledError):
            train(family, logdir, *flags)
    return run_folder(logdir)


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
    timed = ("memory/", "timing", "time", "speed")
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
        if not any(word in tag for word in timed)
    }


def assert_same_run(one, other):
    for name in ("policy_last.pth", "policy_best.pth"):
        if (one / name).exists():
            first, second = (torch.load(f / name, weights_only=True) for f in (one, other))
            assert first.keys() == second.keys()
            for key, value in first.items():
                assert torch.equal(value, second[key]), (name, key)
    for name in ("progress.csv", "episodes.csv"):
        assert rows(one, name) == rows(other, name)
    assert scalars(one) == scalars(other)
    first, second = (json.loads((f / "summary.json").read_text()) for f in (one, other))
    for name in ("status", "env_steps", "gradient_steps", "best_return", "final_return"):
        assert first[name] == second[name]


@pytest.mark.parametrize(
    ("family", "flags"),
    [
        ("lowdim", f"--task MountainCar-v0 --algo medqn-u {LOWDIM}"),
        ("lowdim", f"--task MountainCar-v0 --algo dqn {LOWDIM} --overlap --step-per-collect 3"),
        ("lowdim", f"--task Acrobot-v1 --algo medqn-u {LOWDIM} --replay raw"),
        ("lowdim", f"--task Catcher --algo dqn {LOWDIM} --replay raw --buffer-size 70"),
        ("lowdim", f"--task Pixelcopter --algo medqn-u {LOWDIM}"),
        ("lowdim", f"--task Catcher --algo dqn-s {LOWDIM} --timeout-is-terminal"),
        *(
            ("minatar", f"--game {game} --algo {algo} {LOWDIM} --buffer-size 90")
            for game, algo in (
                ("asterix", "medqn-r"),
                ("breakout", "dqn"),
                ("freeway", "medqn-r"),
                ("seaquest", "medqn-r"),
                ("space_invaders", "dqn"),
            )
        ),
        ("minatar", f"--game breakout --algo medqn-u {LOWDIM} --overlap"),
    ],
)
def test_a_killed_run_goes_on_as_if_nothing_had_happened(
    tmp_path, monkeypatch, capsys, family, flags
):
    flags = flags.split()
    whole = train(family, tmp_path / "whole", *flags)
    settings = json.loads((whole / "config.json").read_text())["settings"]
    collects = 250 // settings["step_per_collect"]["value"]
    often = ("--checkpoint-every", "60")
    killed = train_and_kill(family, tmp_path / "killed", monkeypatch, collects, *flags, *often)
    assert rows(killed, "progress.csv") != rows(whole, "progress.csv")
    assert resume(family, killed, capsys) > 150
    assert_same_run(whole, killed)


@pytest.mark.parametrize(
    "flags",
    [
        "--env-backend ale --sampling mixed --algo medqn",
        "--algo dqn --overlap --dueling",
        "--algo medqn --replay raw",
    ],
)
@pytest.mark.parametrize("collects", [30, 60])
def test_an_atari_run_on_ale_goes_on_in_mid_game_and_mid_epoch(
    tmp_path, monkeypatch, capsys, flags, collects
):
    flags = ["--task", "BreakoutNoFrameskip-v4", *flags.split(), *ATARI.split()]
    whole = train("atari", tmp_path / "whole", *flags)
    often = ("--checkpoint-every", "12")
    killed = train_and_kill("atari", tmp_path / "killed", monkeypatch, collects, *flags, *often)
    assert resume("atari", killed, capsys) > 4 * (collects - 6)
    assert_same_run(whole, killed)

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
    ("flags", "collects"),
    [
        ("--env-backend ale --test-num 1 --sampling mixed", 12),
        ("--test-num 2 --algo dqn --overlap --dueling", 33),
        ("--test-num 1 --replay raw --n-step 2", 28),
    ],
)
def test_an_atari_run_on_ale_goes_on_in_mid_game_and_mid_epoch(
    tmp_path, monkeypatch, capsys, flags, collects
):
    flags = [*ATARI.split(), *flags.split()]
    whole = train("atari", tmp_path / "whole", *flags)
    often = ("--checkpoint-every", "12")
    killed = train_and_kill("atari", tmp_path / "killed", monkeypatch, collects, *flags, *often)
    assert 4 * (collects - 6) < resume("atari", killed, capsys) < 4 * collects
    assert_same_run(whole, killed)


@pytest.mark.parametrize("replay", ["compact", "raw"])
def test_environments_that_cannot_be_put_back_start_new_episodes(
    tmp_path, monkeypatch, capsys, replay
):
    flags = [*ATARI.split(), "--training-num", "2", "--test-num", "1", "--replay", replay]
    often = ("--checkpoint-every", "12")
    killed = train_and_kill("atari", tmp_path, monkeypatch, 25, *flags, *often)
    assert resume("atari", killed, capsys) > 60
    table = rows(killed, "progress.csv")
    assert [int(row["env_step"]) for row in table] == [0, 80, 160]
    assert [int(row["gradient_step"]) for row in table] == [0, 20, 40]
    steps = {tag: [step for step, _ in points] for tag, points in scalars(killed).items()}
    assert steps["test/returns_stat/mean"] == [0, 80, 160]
    # The clocks are logged with each evaluation, and at the start and the end, as ever.
    assert steps["train/epsilon"] == [0, 0, 80, 160, 160]
    for tag_steps in steps.values():
        assert tag_steps == sorted(tag_steps)


def test_a_run_killed_before_its_first_checkpoint_starts_over(tmp_path, monkeypatch, capsys):
    flags = f"--task MountainCar-v0 {LOWDIM}".split()
    whole = train("lowdim", tmp_path / "whole", *flags)
    killed = train_and_kill("lowdim", tmp_path / "killed", monkeypatch, 200, *flags)
    assert SCRIPTS["lowdim"].main(["--resume", str(killed), "--no-progress"]) == 0
    assert "no checkpoint yet: the run starts over" in capsys.readouterr().err
    assert_same_run(whole, killed)


def test_auto_resume_goes_on_with_the_same_command_only_and_else_starts_anew(
    tmp_path, monkeypatch, capsys
):
    flags = f"--task MountainCar-v0 {LOWDIM} --auto-resume --checkpoint-every 60".split()
    killed = train_and_kill("lowdim", tmp_path, monkeypatch, 300, *flags)
    capsys.readouterr()
    main = SCRIPTS["lowdim"].main
    here = ["--logdir", str(tmp_path), "--no-progress"]
    for others in (["--lr", "0.5"], ["--seed", "3"]):
        assert main([*flags, *others, *here]) == 0
        assert "resumed" not in capsys.readouterr().out
    assert main([*flags, *here]) == 0
    assert f"from {killed}" in capsys.readouterr().out
    assert main([*flags, *here]) == 0  # the run has ended: a new one
    assert "resumed" not in capsys.readouterr().out
    assert len(list(tmp_path.glob("**/config.json"))) == 4


def test_only_as_many_checkpoints_as_asked_for_are_kept(tmp_path):
    flags = f"--task MountainCar-v0 {LOWDIM} --checkpoint-every 50 --keep-checkpoints 3".split()
    folder = train("lowdim", tmp_path, *flags)
    names = sorted(path.name for path in (folder / "checkpoints").iterdir())
    assert names == [f"{step:012d}.checkpoint" for step in (350, 400, 450)]

"""A run that was killed and resumed is the run that was not: parameters, logs, everything."""

import json

import pytest
from resume_runs import (
    ATARI,
    FLAGS,
    LOWDIM,
    OFTEN,
    SCRIPTS,
    assert_same_run,
    resume,
    rows,
    scalars,
    train,
    train_and_kill,
)

pytestmark = pytest.mark.slow
HOST = pytest.mark.host


@pytest.mark.parametrize(
    ("family", "flags"),
    [
        pytest.param("lowdim", f"--task MountainCar-v0 --algo medqn-u {LOWDIM}", marks=HOST),
        ("lowdim", f"--task MountainCar-v0 --algo dqn {LOWDIM} --overlap --step-per-collect 3"),
        pytest.param(
            "lowdim", f"--task Acrobot-v1 --algo medqn-u {LOWDIM} --replay raw", marks=HOST
        ),
        ("lowdim", f"--task Catcher --algo dqn {LOWDIM} --replay raw --buffer-size 70"),
        ("lowdim", f"--task Pixelcopter --algo medqn-u {LOWDIM}"),
        ("lowdim", f"--task Catcher --algo dqn-s {LOWDIM} --bootstrap-timeouts"),
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
        pytest.param("minatar", f"--game breakout --algo medqn-u {LOWDIM} --overlap", marks=HOST),
        ("minatar", f"--game breakout --algo medqn-u {LOWDIM} --sampling reservoir"),
        ("lowdim", f"--task Catcher {LOWDIM} --sampling reservoir --state-buffer-size 50"),
        ("lowdim", f"--task Catcher {LOWDIM} --lambda auto --drift 0.01"),
        ("minatar", f"--game breakout --algo medqn-r {LOWDIM} --buffer-size 90 --head iqn"),
        ("minatar", f"--game breakout --algo medqn-r {LOWDIM} --eval-every 90 --eps-test 0.2"),
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
        ("--env-backend ale --test-num 1 --sampling reservoir --state-buffer-size 70", 28),
        pytest.param("--env-backend ale --training-num 2 --test-num 2", 28, marks=HOST),
        ("--env-backend ale --training-num 2 --test-num 1 --overlap --eps-test 0.9", 30),
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
    assert steps["train/epsilon"] == [0, 80, 160]
    for tag_steps in steps.values():
        assert tag_steps == sorted(tag_steps)


def test_the_peak_of_memory_is_that_of_all_processes_of_a_run(tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr("medqn_tianshou.training.memory._high_water_mark", lambda: 10**12)
        killed = train_and_kill("lowdim", tmp_path, monkeypatch, 200, *FLAGS, *OFTEN)
    assert resume("lowdim", killed, capsys) > 100
    assert json.loads((killed / "summary.json").read_text())["peak_rss_mb"] == 1e6


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

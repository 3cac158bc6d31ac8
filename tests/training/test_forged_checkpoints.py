"""A checkpoint that a stranger changed, with a right digest: the one before is taken."""

import json
import shutil

import numpy as np
import pytest
import torch
from resume_runs import LOWDIM, SCRIPTS, run_folder, train_and_kill

from medqn_tianshou.experiments.lowdim import LOWDIM as FAMILY
from medqn_tianshou.replay import CompactVectorReplayBuffer
from medqn_tianshou.training.checkpoint import read_checkpoint, write_checkpoint
from medqn_tianshou.training.options import RunOptions

pytestmark = pytest.mark.slow
FLAGS = (
    f"--task Catcher --algo dqn {LOWDIM} --buffer-size 300 --eval-every 90 --eval-episodes 1 "
    "--threads 0"
)


@pytest.fixture(scope="module")
def killed_once(tmp_path_factory):
    """Two runs that ended at step 350, with checkpoints of steps 269 and 329."""
    folders = {}
    for replay in ("compact", "raw"):
        logdir = tmp_path_factory.mktemp(replay)
        flags = [*FLAGS.split(), "--replay", replay, "--checkpoint-every", "60"]
        folders[replay] = train_and_kill("lowdim", logdir, pytest.MonkeyPatch(), 251, *flags)
    return folders


@pytest.fixture
def killed(tmp_path, killed_once):
    return {
        replay: shutil.copytree(folder, tmp_path / replay) for replay, folder in killed_once.items()
    }


def change(folder, way, value):
    """Change the state of the newest checkpoint; a function changes what is there."""
    path = max(folder.glob("checkpoints/*.checkpoint"))
    content, buffer = read_checkpoint(path)
    *names, last = way
    place = content["state"]
    for name in names:
        place = place[name]
    place[last] = value(place[last]) if callable(value) else value
    write_checkpoint(path, content, buffer)


def resumed(folder, capsys):
    """Resume to the end; return what was said on the way."""
    capsys.readouterr()
    assert SCRIPTS["lowdim"].main(["--resume", str(folder), "--no-progress"]) == 0
    captured = capsys.readouterr()
    return captured.out + captured.err


def with_first(value):
    def changed(array):
        array.flat[0] = value
        return array

    return changed


@pytest.mark.parametrize(
    ("replay", "way", "value"),
    [
        ("raw", "raw_replay.fields.act", with_first(1000)),
        ("raw", "raw_replay.fields.obs", lambda obs: obs.astype(np.float64)),
        ("raw", "raw_replay.lengths", lambda lengths: lengths + 1000),
        ("raw", "raw_replay.fields", {}),
        ("compact", "policy.optimizer", {"0": {}}),
        ("compact", "policy.networks", lambda networks: dict(list(networks.items())[1:])),
        ("compact", "policy.eps", 7),
        ("compact", "policy.lr", [float("nan")]),
        ("compact", "trainer.best_score", "high"),
        ("compact", "trainer.env_step", 10**9),
        ("compact", "trainer.recent_losses", [{"loss": None}]),
        ("compact", "train_collector.obs", lambda obs: obs[:, :-1]),
        ("compact", "train_collector.episode_length", [-1]),
        ("compact", "train_collector.envs.elapsed", ["late"]),
        ("compact", "train_collector.envs.game.fruit_y", float("inf")),
        ("compact", "test_collector.resets", with_first(10**12)),
        ("compact", "logger.last_row", ""),
        ("compact", "logger.probe", {"states": None, "greedy": np.zeros(3, np.int64)}),
        ("compact", "random.torch", None),
    ],
)
def test_a_changed_field_falls_back_to_the_checkpoint_before(killed, capsys, replay, way, value):
    folder = killed[replay]
    change(folder, way.split("."), value)
    said = resumed(folder, capsys)
    assert "trying the one before" in said
    assert "resumed at env step 269" in said
    assert (folder / "checkpoints/000000000329.checkpoint.damaged").exists()


def test_actions_and_observations_of_another_task_fall_back(killed, capsys):
    path = max(killed["compact"].glob("checkpoints/*.checkpoint"))
    content, buffer = read_checkpoint(path)
    buffer.buffers[0].columns["act"].values[3] = 77
    write_checkpoint(path, content, buffer)
    assert "actions beyond 3" in resumed(killed["compact"], capsys)


def test_a_sound_checkpoint_is_taken(killed, capsys):
    for folder in killed.values():
        change(folder, ["trainer", "seconds"], 1.5)
        if folder.name == "raw":  # the system's clock was set back by an hour
            for way in (["trainer", "seconds"], ["trainer", "policy_update_time"]):
                change(folder, way, -3599.5)
            change(folder, ["train_collector", "clocks", 2], -3599.5)
        assert "resumed at env step 329" in resumed(folder, capsys)


def test_a_resumed_buffer_keeps_within_the_memory_of_this_machine(killed, capsys, monkeypatch):
    def limited(self, *args, max_bytes=None, **options):
        build(self, *args, max_bytes=8_000, **options)

    build = CompactVectorReplayBuffer.__init__
    with monkeypatch.context() as patch:
        patch.setattr(CompactVectorReplayBuffer, "__init__", limited)
        said = resumed(killed["compact"], capsys)
    assert "resumed at env step 329" in said
    assert "warning: the replay buffer evicted its oldest" in said


def test_a_checkpoint_that_is_larger_than_the_memory_left_is_refused(killed, capsys, monkeypatch):
    from medqn_tianshou.training import resuming
    from medqn_tianshou.training.memory import MemoryLimit

    little = MemoryLimit(nbytes=10_000, available=1_000, source="host")
    monkeypatch.setattr(resuming, "memory_limit", lambda: little)
    with pytest.raises(SystemExit):
        SCRIPTS["lowdim"].main(["--resume", str(killed["compact"]), "--no-progress"])
    assert "this host has only 1.0 kB left" in capsys.readouterr().err


def test_a_resumed_run_takes_the_threads_it_began_with(killed, capsys):
    before = torch.get_num_threads()
    path = killed["compact"] / "config.json"
    config = json.loads(path.read_text())
    config["hardware"]["torch_threads"] = before + 1
    path.write_text(json.dumps(config))
    try:
        said = resumed(killed["compact"], capsys)
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)
    assert f"threads: {before + 1}, as at the start of the run, instead of {before}" in said


def test_a_run_begun_on_a_gpu_resumes_on_the_cpu(killed, capsys):
    path = killed["compact"] / "config.json"
    config = json.loads(path.read_text())
    config["arguments"] += ["--device", "cuda:7"]
    path.write_text(json.dumps(config))
    folder = str(killed["compact"])
    with pytest.raises(SystemExit):
        SCRIPTS["lowdim"].main(["--resume", folder, "--no-progress"])
    assert "cuda:7" in capsys.readouterr().err
    assert SCRIPTS["lowdim"].main(["--resume", folder, "--no-progress", "--device", "cpu"]) == 0


def test_a_run_says_how_exactly_it_can_be_resumed(tmp_path, capsys):
    settings = FAMILY.settings("Catcher", algo="dqn", steps=200, warmup_steps=100)
    FAMILY.make_training(settings, RunOptions(logdir=tmp_path)).abandon()
    assert "\nresume: exact\n" in capsys.readouterr().out
    assert run_folder(tmp_path).exists()

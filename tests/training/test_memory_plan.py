"""A run plans for the memory budget of its process."""

from dataclasses import replace

import pytest

from medqn_tianshou.commands import doctor
from medqn_tianshou.commands.main import main
from medqn_tianshou.experiments.families import FAMILIES
from medqn_tianshou.replay import CompactVectorReplayBuffer
from medqn_tianshou.training import replay_memory
from medqn_tianshou.training.errors import ConfigError
from medqn_tianshou.training.memory import MB, MemoryLimit, parse_bytes
from medqn_tianshou.training.memory_plan import BUDGET_SHARE, plan_memory
from medqn_tianshou.training.replay_memory import make_replay, make_watch

GB = 1000 * MB


def plan(family, budget, rss=0, **overrides):
    settings = FAMILIES[family].settings(memory=budget, **overrides)
    return plan_memory(settings, FAMILIES[family].observation_space(settings), rss=rss)


def test_process_and_buffer_are_within_the_share_of_the_budget():
    planned = plan("atari", 600 * MB)
    assert planned.process + planned.room == BUDGET_SHARE * 600 * MB
    assert planned.process == FAMILIES["atari"].settings_class.process_nbytes
    assert "600.0 MB" in str(planned)
    assert "100,000" in str(planned)


def test_a_process_that_is_larger_than_usual_leaves_less_room():
    assert plan("atari", GB, rss=600 * MB).room < plan("atari", GB).room


def test_the_smallest_budget_of_the_refusal_works_and_less_does_not():
    with pytest.raises(ConfigError) as refused:
        plan("atari", 100 * MB)
    smallest = parse_bytes(refused.value.remedy.split()[-1])
    assert plan("atari", smallest).room > 0
    with pytest.raises(ConfigError, match="memory"):
        plan("atari", smallest - MB)


def test_a_raw_buffer_becomes_compact_where_only_that_fits_and_no_flag_asks_for_it():
    settings = FAMILIES["minatar"].settings(
        algo="dqn", memory=500 * MB, replay="raw", buffer_size=200_000
    )
    space = FAMILIES["minatar"].observation_space(settings)
    with pytest.raises(ConfigError, match="--replay compact"):
        plan_memory(settings, space, rss=0)
    by_default = replace(settings, sources={**settings.sources, "replay": "ours"})
    assert plan_memory(by_default, space, rss=0).replay == "compact"


@pytest.mark.parametrize(
    ("available", "cap", "error"),
    [
        (GB, 1000, r"memory_cap='1.0 kB' is too small"),
        (MB, None, r"buffer_size=10000 transitions, and even a few, take more than the 0 B that "),
        (MB, 5 * MB, r"buffer_size=10000 .* this host has left for it; free some memory"),
    ],
)
def test_a_compact_buffer_that_cannot_be_built_names_what_limits_it(
    monkeypatch, available, cap, error
):
    limit = MemoryLimit(nbytes=GB, available=available, source="host")
    monkeypatch.setattr(replay_memory, "memory_limit", lambda: limit)
    settings = FAMILIES["lowdim"].settings(algo="dqn", replay="compact", memory_cap=cap)
    envs = FAMILIES["lowdim"].make_train_envs(settings, 0)
    with pytest.raises(ConfigError, match=error):
        make_replay(settings, envs, seed=0)


def test_a_budget_limits_the_buffer_and_watches_the_process():
    budget = 4 * GB  # the process of the tests is large
    settings = FAMILIES["atari"].settings(memory=budget, memory_cap=5 * MB)
    envs = FAMILIES["atari"].make_train_envs(settings, 0)
    replay = make_replay(settings, envs, seed=0)
    assert replay.buffer.max_bytes == 5 * MB  # the smaller of the two
    assert replay.plan.room > 5 * MB
    wide = make_replay(replace(settings, memory_cap=None), envs, seed=0)
    assert wide.buffer.max_bytes <= BUDGET_SHARE * budget

    process = [0.85 * budget]
    watch = make_watch(settings, wide.buffer, lambda: int(process[0]))
    assert watch.check() is None
    process[0] = 0.91 * budget
    assert "--memory 4.00 GB" in watch.check()
    assert make_watch(replace(settings, memory=None, memory_cap=None), wide.buffer, int) is None
    assert isinstance(wide.buffer, CompactVectorReplayBuffer)


@pytest.mark.slow
def test_the_command_prints_the_plan_or_refuses(capsys, tmp_path):
    flags = ["train", "lowdim", "--steps", "1100", "--no-progress", "--logdir", str(tmp_path)]
    assert main([*flags, "--memory", "5G"]) == 0
    assert "memory: 5.00 GB, the run uses at most 90%" in capsys.readouterr().out
    with pytest.raises(SystemExit) as stopped:
        main([*flags, "--memory", "50M"])
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "argument --memory: 50.0 MB is too small" in line
    assert "the smallest that works is" in line


def test_doctor_prints_the_plans(capsys):
    assert main(["doctor", "--memory", "5G"]) == 0
    out = capsys.readouterr().out
    assert all(f"{family}, " in out for family in FAMILIES)
    assert main(["doctor", "--memory", "20M"]) == 1
    assert capsys.readouterr().out.count("the smallest that works is") == len(FAMILIES)


def test_doctor_warns_of_a_torch_built_for_a_gpu_that_is_not_there(monkeypatch):
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    monkeypatch.setattr(doctor.torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(doctor.torch.version, "cuda", None)
    assert "built for the CPU" in doctor.check_devices().found
    monkeypatch.setattr(doctor.torch.version, "cuda", "13.0")
    check = doctor.check_devices()
    assert (check.status, "built for CUDA 13.0" in check.found) == ("warning", True)
    assert "whl/cpu" in check.remedy

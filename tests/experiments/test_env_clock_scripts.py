"""The low-dimensional and MinAtar scripts: settings, clocks, and short runs of all of them."""

import json
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch

from medqn_tianshou import MeDQNPolicy
from medqn_tianshou.commands import train
from medqn_tianshou.experiments.families import FAMILIES
from medqn_tianshou.experiments.settings import load_settings
from medqn_tianshou.training.seeding import RunSeeds

pytestmark = pytest.mark.slow

TASK_FLAGS = {"lowdim": "--task", "minatar": "--game"}
RUNS = [
    (family, task, algo)
    for family in TASK_FLAGS
    for task in load_settings(family)["task"]
    for algo in load_settings(family)["algo"]
    if algo not in ("pqn", "stream-q")  # which have their own loop and tests
]


@pytest.fixture(scope="session")
def run(short_run):
    def train_short(family, task, algo, logdir, *flags):
        return short_run(family, logdir, TASK_FLAGS[family], task, "--algo", algo, *flags)

    return train_short


@pytest.mark.parametrize(
    ("family", "task", "algo", "expected"),
    [
        # learning rate, buffer, E, lambda_end, C_target, C_current: Tables 3 to 10
        ("lowdim", "MountainCar-v0", "dqn", (1e-2, 10_000, 1, 0, 100, 8)),
        ("lowdim", "MountainCar-v0", "dqn-s", (1e-3, 32, 1, 0, 100, 1)),
        ("lowdim", "MountainCar-v0", "medqn-u", (1e-3, 32, 4, 4, 100, 1)),
        ("lowdim", "Acrobot-v1", "dqn", (1e-3, 10_000, 1, 0, 100, 1)),
        ("lowdim", "Acrobot-v1", "dqn-s", (3e-4, 32, 1, 0, 100, 1)),
        ("lowdim", "Acrobot-v1", "medqn-u", (3e-4, 32, 1, 2, 100, 1)),
        ("lowdim", "Catcher", "dqn", (1e-4, 10_000, 1, 0, 200, 1)),
        ("lowdim", "Catcher", "dqn-s", (1e-5, 32, 1, 0, 200, 1)),
        ("lowdim", "Catcher", "medqn-u", (3e-5, 32, 4, 4, 200, 2)),
        ("lowdim", "Pixelcopter", "dqn", (3e-5, 10_000, 1, 0, 200, 1)),
        ("lowdim", "Pixelcopter", "dqn-s", (1e-5, 32, 1, 0, 200, 1)),
        ("lowdim", "Pixelcopter", "medqn-u", (3e-4, 32, 1, 1, 200, 8)),
        ("minatar", "asterix", "dqn", (1e-4, 100_000, 1, 0, 1000, 1)),
        ("minatar", "asterix", "dqn-s", (3e-5, 32, 1, 0, 1000, 1)),
        ("minatar", "asterix", "medqn-u", (1e-3, 32, 2, 2, 300, 16)),
        ("minatar", "asterix", "medqn-r", (3e-4, 10_000, 2, 2, 1000, 8)),
        ("minatar", "breakout", "dqn", (1e-3, 100_000, 1, 0, 1000, 1)),
        ("minatar", "breakout", "dqn-s", (3e-5, 32, 1, 0, 1000, 1)),
        ("minatar", "breakout", "medqn-u", (3e-3, 32, 1, 2, 300, 8)),
        ("minatar", "breakout", "medqn-r", (3e-4, 10_000, 2, 4, 1000, 4)),
        ("minatar", "space_invaders", "dqn", (3e-4, 100_000, 1, 0, 1000, 1)),
        ("minatar", "space_invaders", "dqn-s", (3e-5, 32, 1, 0, 1000, 1)),
        ("minatar", "space_invaders", "medqn-u", (1e-3, 32, 1, 4, 300, 32)),
        ("minatar", "space_invaders", "medqn-r", (3e-4, 10_000, 2, 2, 1000, 4)),
        ("minatar", "seaquest", "dqn", (1e-4, 100_000, 1, 0, 1000, 1)),
        ("minatar", "seaquest", "dqn-s", (3e-5, 32, 1, 0, 1000, 1)),
        ("minatar", "seaquest", "medqn-u", (3e-3, 32, 1, 2, 300, 32)),
        ("minatar", "seaquest", "medqn-r", (3e-4, 10_000, 1, 4, 1000, 4)),
    ],
)
def test_settings_are_those_of_the_papers_tables(family, task, algo, expected):
    settings = FAMILIES[family].settings(task, algo=algo)
    assert (
        settings.lr, settings.buffer_size, settings.consolidation_epochs, settings.lambda_end,
        settings.target_update_env_steps, settings.step_per_collect,
    ) == expected  # fmt: skip


@pytest.mark.parametrize(("family", "task", "algo"), RUNS)
def test_every_setting_trains_past_its_first_updates(family, task, algo, tmp_path, run, read_csv):
    folder = run(family, task, algo, tmp_path)
    summary = json.loads((folder / "summary.json").read_text())
    settings = json.loads((folder / "config.json").read_text())["settings"]
    epochs, interval = (
        settings[name]["value"] for name in ("consolidation_epochs", "step_per_collect")
    )
    assert summary["gradient_steps"] == 200 // interval * epochs
    assert summary["status"] == "finished"
    rows = read_csv(folder / "progress.csv")
    assert int(rows[0]["env_step"]) == 100
    assert int(rows[-1]["env_step"]) == summary["env_steps"] == 300


def expected_sync_updates(interval, target_interval, start, stop):
    """Which updates see a new target network, stepping through the paper's Algorithm 1."""
    syncs, due, update = [], False, 0
    for env_step in range(start + 1, stop + 1):
        if (env_step - start) % interval == 0:
            if due:
                syncs.append(update)
            update, due = update + 1, False
        if env_step % target_interval == 0:  # after the update of this step
            due = True
    return syncs


@pytest.mark.parametrize(
    ("family", "task", "algo"),
    [
        ("lowdim", "MountainCar-v0", "medqn-u"),
        ("lowdim", "MountainCar-v0", "dqn"),
        ("lowdim", "Catcher", "medqn-u"),
        ("lowdim", "Pixelcopter", "medqn-u"),
        ("minatar", "asterix", "medqn-u"),
        ("minatar", "asterix", "medqn-r"),
        ("minatar", "seaquest", "medqn-u"),
    ],
)
def test_the_target_network_is_copied_at_the_papers_env_steps(
    family, task, algo, tmp_path, monkeypatch, run, on_learn
):
    """C_target counts environment steps, also where C_current does not divide it."""
    syncs, updates = [], []
    sync_weight = MeDQNPolicy.sync_weight

    def noted_sync(policy):
        syncs.append(len(updates))
        sync_weight(policy)

    @on_learn
    def note(policy, batch):
        policy._iter = policy._iter or 1  # without the copy at the very first gradient step
        updates.append(len(batch))

    monkeypatch.setattr(MeDQNPolicy, "sync_weight", noted_sync)
    run(family, task, algo, tmp_path, "--steps", "1700")
    settings = FAMILIES[family].settings(task, algo=algo)
    interval, target_interval = settings.step_per_collect, settings.target_update_env_steps
    stop = 100 + len(updates) * interval
    expected = expected_sync_updates(interval, target_interval, 100, stop)
    # Not those before the first update: the networks are equal then.
    assert [update for update in syncs if 0 < update < len(updates)] == [
        update for update in expected if update > 0
    ]
    assert len(expected) >= 1


def test_medqn_u_trains_on_its_whole_buffer(tmp_path, run, on_learn):
    seen = []
    on_learn(lambda _, batch: seen.append(batch.obs.copy()))
    run("lowdim", "MountainCar-v0", "medqn-u", tmp_path, "--steps", "200")
    assert len(seen) == 100
    for earlier, later in pairwise(seen):
        assert len(np.unique(later, axis=0)) == 32
        np.testing.assert_array_equal(earlier[1:], later[:-1])  # one in, one out, in order


def test_episodes_are_recorded_with_their_exact_env_step(tmp_path, run, read_csv):
    folder = run("lowdim", "Acrobot-v1", "dqn", tmp_path, "--max-episode-steps", "70")
    rows = read_csv(folder / "episodes.csv")
    ends = [int(row["env_step"]) for row in rows]
    assert np.diff([0, *ends]).tolist() == [int(row["length"]) for row in rows]
    assert len(rows) >= 4
    assert all(float(row["return"]) <= -1 for row in rows)


def test_a_timeout_is_terminal_unless_told_otherwise(tmp_path, run, on_learn):
    flags = []
    on_learn(lambda _, batch: flags.append((batch.terminated.any(), batch.truncated.any())))
    limit = ["--max-episode-steps", "20", "--steps", "180"]
    run("lowdim", "MountainCar-v0", "medqn-u", tmp_path / "a", *limit)
    assert set(flags) == {(True, False)}
    flags.clear()
    run("lowdim", "MountainCar-v0", "medqn-u", tmp_path / "b", *limit, "--bootstrap-timeouts")
    assert set(flags) == {(False, True)}


def test_dqn_s_draws_from_its_buffer(tmp_path, run, on_learn):
    distinct = []
    on_learn(lambda _, batch: distinct.append(len(np.unique(batch.obs, axis=0))))
    run("lowdim", "MountainCar-v0", "dqn-s", tmp_path)
    assert 15 < np.mean(distinct) < 25  # 32 draws with replacement from 32 give 20.4 on average


def test_the_warm_up_plays_at_random(tmp_path, monkeypatch, run):
    rates = []
    exploration_noise = MeDQNPolicy.exploration_noise

    def noted(policy, act, batch):
        rates.append(policy.eps)
        return exploration_noise(policy, act, batch)

    monkeypatch.setattr(MeDQNPolicy, "exploration_noise", noted)
    run("lowdim", "MountainCar-v0", "dqn", tmp_path, "--eps-decay-steps", "100")
    assert rates == [1.0] * 100 + [pytest.approx(0.01)] * 200


@pytest.mark.parametrize(
    "source", sorted(set(RunSeeds.__dataclass_fields__) - {"test_envs", "evaluation"})
)
def test_every_source_of_randomness_follows_its_seed(
    source, tmp_path, monkeypatch, run, last_policy
):
    seeds = RunSeeds.from_run_seed(0)

    def parameters(name):
        folder = run("lowdim", "Catcher", "medqn-r", tmp_path / name)
        return last_policy(folder)["model.advantage.0.weight"]

    monkeypatch.setattr(RunSeeds, "from_run_seed", lambda seed: seeds)
    first = parameters("first")
    changed = replace(seeds, **{source: 12345})
    monkeypatch.setattr(RunSeeds, "from_run_seed", lambda seed: changed)
    assert not torch.equal(first, parameters("second"))


@pytest.mark.parametrize(
    ("family", "task", "algo"),
    [("lowdim", "Catcher", "medqn-u"), ("minatar", "breakout", "medqn-r")],
)
def test_the_same_seed_gives_the_same_run_and_another_seed_another(
    family, task, algo, tmp_path, run, last_policy
):
    def parameters(name, *flags):
        folder = run(family, task, algo, tmp_path / name, *flags)
        return last_policy(folder)["model.advantage.0.weight"]

    first = parameters("a")
    assert torch.equal(first, parameters("b"))
    assert not torch.equal(first, parameters("c", "--seed", "1"))


@pytest.mark.parametrize(
    ("family", "flags", "parts"),
    [
        ("lowdim", "--task MountainCart", ["--task", "'MountainCart'", "MountainCar-v0"]),
        ("lowdim", "--task Zork", ["--task", "'Zork'", "Acrobot-v1"]),
        ("lowdim", "--steps 1000", ["--steps", "1000", "--warmup-steps"]),
        ("lowdim", "--buffer-size 16", ["--buffer-size", "16", "at least 32"]),
        ("lowdim", "--warmup-steps 8", ["--warmup-steps", "8", "at least 32"]),
        (
            "lowdim",
            "--algo dqn --lambda-end 1",
            ["--lambda-end", "1.0", "--algo medqn-u or medqn-r"],
        ),
        ("minatar", "--game brekout", ["--task", "'brekout'", "breakout"]),
        ("minatar", "--eps-train 2", ["--eps-train", "'2'", "at most 1"]),
    ],
)
def test_bad_input_gets_one_line_with_argument_value_and_remedy(error_line, family, flags, parts):
    line = error_line(partial(train.main, family), *flags.split())
    for part in parts:
        assert part in line


def test_evaluations_come_at_multiples_and_at_the_end_and_leave_training_alone(
    tmp_path, run, read_csv, last_policy
):
    flags = ("--steps", "520", "--eval-every", "200", "--eval-episodes", "2", "--eps-test", "0.5")
    evaluated = run("minatar", "breakout", "medqn-r", tmp_path / "evaluated", *flags)
    plain = run("minatar", "breakout", "medqn-r", tmp_path / "plain", *flags[:2])
    rows = read_csv(evaluated / "progress.csv")
    assert [int(row["env_step"]) for row in rows] == [100, 200, 400, 520]
    assert all(float(row["eval_return_mean"]) >= 0 for row in rows)
    summary = json.loads((evaluated / "summary.json").read_text())
    assert summary["final_return"] == float(rows[-1]["eval_return_mean"])
    assert (evaluated / "policy_best.safetensors").exists()
    assert not list(plain.glob("policy_best*"))
    # Evaluations have random numbers of their own.
    states = [last_policy(folder) for folder in (evaluated, plain)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[1])


@pytest.mark.parametrize("interval", [50, 5000])
def test_a_run_ends_where_it_was_told_to(tmp_path, run, interval):
    folder = run(
        "lowdim", "MountainCar-v0", "dqn", tmp_path, "--steps", "303",
        "--step-per-collect", str(interval),
    )  # fmt: skip
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["env_steps"] == 303
    assert summary["gradient_steps"] == (303 - 100) // interval

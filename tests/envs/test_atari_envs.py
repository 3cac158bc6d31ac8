"""The two Atari backends: the same play, and the promises the rest of the package builds on."""

import importlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from tianshou.data import Batch, Collector, ReplayBuffer, VectorReplayBuffer
from tianshou.env import BaseVectorEnv
from tianshou.policy import DQNPolicy

ale_py = pytest.importorskip("ale_py")
cv2 = pytest.importorskip("cv2")
envpool = pytest.importorskip("envpool")
roms = pytest.importorskip("ale_py.roms")

from medqn_tianshou.envs.atari import (  # noqa: E402
    atari_tasks,
    make_atari_envs,
    nearest_task,
)

both_backends = pytest.mark.parametrize("backend", ["envpool", "ale"])
both_modes = pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])


@contextmanager
def atari(game: str = "Breakout", **kwargs: Any) -> Iterator[BaseVectorEnv]:
    """One training environment of a game without random no-ops, unless told otherwise."""
    settings = {"num_envs": 1, "seed": 0, "training": True, "noop_max": 1} | kwargs
    envs = make_atari_envs(task=f"{game}NoFrameskip-v4", **settings)
    yield envs
    envs.close()


def random_play(envs: BaseVectorEnv, *, seed: int = 4) -> Iterator[dict[str, Any]]:
    """Play randomly in the first environment, yielding all that each reset and step returns."""
    actions = np.random.default_rng(seed)
    ended = True
    while True:
        if ended:
            obs, infos = envs.reset([0])
            yield {"first": True, "obs": obs[0], **infos[0]}
        action = actions.integers(envs.action_space[0].n, size=1)
        obs, rew, terminated, truncated, infos = envs.step(action, [0])
        ended = terminated[0] or truncated[0]
        step = {"first": False, "obs": obs[0], "rew": rew[0], **infos[0]}
        yield step | {"terminated": terminated[0], "truncated": truncated[0]}


@both_modes
@pytest.mark.parametrize(
    ("game", "seed", "steps", "lives_lost", "games_over"),
    [
        ("Qbert", 3, 310, 4, 1),
        ("Phoenix", 3, 460, 5, 1),
        ("BattleZone", 3, 250, 2, 0),
        ("DoubleDunk", 3, 250, 0, 0),
        ("NameThisGame", 7, 340, 1, 0),
        ("Breakout", 4, 250, 5, 1),
        ("Frogger", 3, 295, 4, 0),  # goes on with 0 lives
        ("JourneyEscape", 3, 20, 0, 0),  # has no action FIRE, and a taller screen
    ],
)
def test_both_backends_give_the_same_play_bit_by_bit(
    game: str, seed: int, steps: int, lives_lost: int, games_over: int, training: bool
) -> None:
    with (
        atari(game, training=training, backend="envpool") as pool,
        atari(game, training=training, backend="ale") as ale,
    ):
        assert pool.action_space == ale.action_space
        assert pool.observation_space == ale.observation_space
        lives, over = [], 0
        plays = zip(random_play(pool, seed=seed), random_play(ale, seed=seed), strict=True)
        for expected, actual in islice(plays, steps):
            np.testing.assert_array_equal(actual.pop("obs"), expected.pop("obs"))
            actual.pop("env_id", None)  # added by Tianshou's own vector environments
            assert actual == expected
            lives.append(actual["lives"])
            over += actual.get("terminated", False) and actual["lives"] == 0
    # The comparison has gone across the ends it is about.
    assert np.sum(np.diff(lives) < 0) >= lives_lost
    assert over >= games_over


@cache
def breakout(*, backend: str, training: bool) -> list[dict[str, Any]]:
    """Two games of Breakout, reset by reset and step by step."""
    with atari(backend=backend, training=training) as envs:
        return list(islice(random_play(envs), 200))


@both_modes
@both_backends
def test_stacks_can_be_rebuilt_from_the_newest_frames_of_their_episode(
    backend: str, training: bool
) -> None:
    frames: list[np.ndarray] = []
    for moment in breakout(backend=backend, training=training):
        newest = moment["obs"][-1]
        frames = [newest] * 4 if moment["first"] else [*frames[1:], newest]
        np.testing.assert_array_equal(moment["obs"], frames)


@both_backends
def test_in_training_a_game_goes_on_after_each_lost_life_until_it_is_over(backend: str) -> None:
    play = breakout(backend=backend, training=True)
    starts = [moment["lives"] for moment in play if moment["first"]]
    ends = [moment["lives"] for moment in play if moment.get("terminated")]
    assert starts[:7] == [5, 4, 3, 2, 1, 5, 4]
    assert ends[:6] == [4, 3, 2, 1, 0, 4]


@both_backends
def test_evaluation_plays_whole_games(backend: str) -> None:
    play = breakout(backend=backend, training=False)
    starts = [moment["lives"] for moment in play if moment["first"]]
    ends = [moment["lives"] for moment in play if moment.get("terminated")]
    assert len(starts) >= 2
    assert set(starts) == {5}
    assert set(ends) == {0}


@both_backends
def test_a_reset_in_the_middle_of_an_episode_starts_a_new_game(backend: str) -> None:
    with atari(backend=backend) as envs:
        play = random_play(envs)
        first = next(play)
        after_a_life = next(moment for moment in play if moment["first"])
        assert after_a_life["lives"] == 4
        next(play)
        obs, infos = envs.reset()
        assert infos[0]["lives"] == 5
        np.testing.assert_array_equal(obs[0], first["obs"])


@both_backends
def test_only_training_clips_rewards_and_info_keeps_the_raw_ones(backend: str) -> None:
    totals = []
    for training in (True, False):
        with atari("Qbert", backend=backend, training=training) as envs:
            steps = [m for m in islice(random_play(envs), 150) if not m["first"]]
        raw = np.array([step["reward"] for step in steps])
        assert raw.max() >= 25  # points for a cube
        shown = np.array([step["rew"] for step in steps])
        np.testing.assert_array_equal(shown, np.sign(raw) if training else raw)
        totals.append(shown.sum())
    assert totals[0] < totals[1]


@both_backends
def test_the_cap_truncates_a_game_over_all_its_lives(backend: str) -> None:
    with atari(backend=backend, max_episode_steps=60) as envs:
        play = list(islice(random_play(envs), 140))
    steps = [moment for moment in play if not moment["first"]]
    assert [i + 1 for i, step in enumerate(steps) if step["truncated"]] == [60, 120]
    assert any(step["terminated"] for step in steps[:60])  # a life was lost before the cut
    assert not any(step["terminated"] and step["truncated"] for step in steps)
    cuts = [i for i, moment in enumerate(play) if moment.get("truncated")]
    assert play[cuts[0] + 1]["lives"] == 5  # a new game


@both_backends
def test_a_life_lost_at_the_cap_is_a_cut(backend: str) -> None:
    lost_at = next(
        i for i, m in enumerate(breakout(backend=backend, training=True)) if m["lives"] == 4
    )
    with atari(backend=backend, max_episode_steps=lost_at) as envs:
        *_, last, new_game = islice(random_play(envs), lost_at + 2)
    assert (last["lives"], last["truncated"], last["terminated"]) == (4, True, False)
    assert new_game["lives"] == 5


def test_the_default_cap_is_108_000_frames() -> None:
    default = inspect.signature(make_atari_envs).parameters["max_episode_steps"].default
    assert default * 4 == 108_000


@both_backends
def test_play_follows_from_the_seed(backend: str) -> None:
    def first_frames(seed: int) -> np.ndarray:
        with atari("Freeway", backend=backend, seed=seed, num_envs=2, noop_max=30) as envs:
            randomly = [space.sample() for space in envs.action_space for _ in range(20)]
            assert randomly[:20] != randomly[20:]
            actions.append(randomly)
            return np.stack([envs.reset()[0][:, -1] for _ in range(3)], axis=1)

    actions: list[list[int]] = []
    plays = [first_frames(seed) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(plays[0], plays[1])
    # By environment: neither alike, nor is one environment of a run alike one of the next run.
    distinct = {env.tobytes() for play in plays[1:] for env in play}
    assert len(distinct) == 4
    assert actions[0] == actions[1] != actions[2]


@both_backends
@pytest.mark.parametrize(
    ("game", "rom", "has_fire"), [("Qbert", "qbert", 1), ("MsPacman", "ms_pacman", 0)]
)
def test_a_game_starts_after_1_to_noop_max_frames_the_last_of_them_fire(
    backend: str, game: str, rom: str, has_fire: bool
) -> None:
    expected = set()
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(roms.get_rom_path(rom))
    for noops in range(4):
        ale.reset_game()
        for action in [0] * noops + [1 if has_fire else 0]:
            ale.act(action)
        screen = ale.getScreenGrayscale()
        expected.add(cv2.resize(screen, (84, 84), interpolation=cv2.INTER_AREA).tobytes())
    with atari(game, backend=backend, noop_max=4) as envs:
        starts = {envs.reset()[0][0, -1].tobytes() for _ in range(20)}
    assert len(starts) == 4
    assert starts == expected


@both_backends
def test_environments_can_be_stepped_and_reset_apart(backend: str) -> None:
    noop, right = 0, 2
    with (
        atari(backend=backend, num_envs=3) as envs,
        atari(backend=backend) as still,
        atari(backend=backend) as moving,
    ):
        start = still.reset()[0][0]
        moving.reset()
        envs.reset()
        for _ in range(5):
            obs = envs.step(np.array([right, noop]), np.array([2, 0]))[0]
            expected = [moving.step(np.array([right]))[0][0], still.step(np.array([noop]))[0][0]]
            np.testing.assert_array_equal(obs, expected)
        assert (expected[0] != expected[1]).any()
        not_moved_yet = envs.step(np.array([noop]), np.array([1]))[0][0]
        np.testing.assert_array_equal(not_moved_yet[:-1], start[:-1])
        np.testing.assert_array_equal(envs.reset(np.array([2]))[0][0], start)


class RandomPolicy(DQNPolicy):
    """A policy that acts randomly, remembers what it was shown, and never learns."""

    def __init__(self, envs: BaseVectorEnv) -> None:
        model = torch.nn.Linear(1, 1)
        super().__init__(model=model, optim=None, action_space=envs.action_space[0])
        self.seen: list[np.ndarray] = []
        self.actions = np.random.default_rng(0)

    def _compile(self) -> None:
        """Skip five seconds of compiling what is not used here."""

    def forward(self, batch: Batch, state: Any = None, **kwargs: Any) -> Batch:
        self.seen.append(batch.obs.copy())
        return Batch(act=self.actions.integers(self.action_space.n, size=len(batch.obs)))


class PlainBuffer(VectorReplayBuffer):
    """A buffer that is only filled."""

    def _compile(self) -> None:
        """Skip five seconds of compiling what is not used here."""


@both_backends
def test_a_buffer_of_newest_frames_rebuilds_what_the_policy_saw(backend: str) -> None:
    with atari(backend=backend, noop_max=30) as envs:
        policy = RandomPolicy(envs)
        buffer = ReplayBuffer(150, stack_num=4, save_only_last_obs=True, ignore_obs_next=True)
        collector = Collector(policy, envs, buffer)
        collector.reset()
        stats = collector.collect(n_step=150)
    assert stats.n_collected_episodes > 1  # lost lives
    np.testing.assert_array_equal(buffer[np.arange(150)].obs, np.concatenate(policy.seen))


@both_backends
def test_tianshou_collects_from_several_environments(backend: str) -> None:
    with atari(backend=backend, num_envs=3) as envs:
        collector = Collector(RandomPolicy(envs), envs, PlainBuffer(180, 3))
        collector.reset()
        collector.collect(n_step=90)
        collector.collect(n_step=90, random=True)
    buffer = collector.buffer
    assert len(buffer) == 180
    assert buffer.terminated.sum() >= 3
    assert set(buffer.info.lives) <= {0, 1, 2, 3, 4, 5}
    np.testing.assert_array_equal(np.sign(buffer.info.reward), buffer.rew)


@both_backends
def test_tianshou_evaluates_whole_games(backend: str) -> None:
    with atari(backend=backend, num_envs=2, training=False, noop_max=30) as envs:
        buffer = PlainBuffer(1000, 2, save_only_last_obs=True)
        collector = Collector(RandomPolicy(envs), envs, buffer)
        stats = collector.collect(n_episode=3, reset_before_collect=True)
    assert stats.n_collected_episodes == 3
    assert stats.lens.min() > 100  # a life of random play is some 25 steps


@both_backends
def test_an_observation_is_a_stack_of_as_many_frames_as_asked_for(backend: str) -> None:
    with atari(backend=backend, frames_stack=2) as envs:
        (space,) = envs.observation_space
        obs = np.stack([envs.reset()[0][0], *(envs.step(np.array([2]))[0][0] for _ in range(3))])
    assert obs.shape[1:] == space.shape == (2, 84, 84)
    assert obs.dtype == space.dtype == np.uint8
    np.testing.assert_array_equal(obs[1:, 0], obs[:-1, 1])


@both_backends
def test_rendering_gives_the_picture_of_each_game_in_colour(backend: str) -> None:
    with atari(backend=backend, num_envs=2, render_mode="rgb_array") as envs:
        envs.reset()
        pictures = envs.render()
    assert len(pictures) == 2
    assert pictures[0].shape == (210, 160, 3)
    assert pictures[0].std(axis=2).max() > 0  # not gray


@both_backends
def test_building_and_playing_print_nothing(
    backend: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with atari(backend=backend) as envs:
        envs.reset()
    assert capfd.readouterr() == ("", "")


def test_the_tasks_are_the_games_of_both_backends() -> None:
    def names(games: list[str], *, ending: str) -> set[str]:
        return {name.removesuffix(ending).lower() for name in games if name.endswith(ending)}

    of_ale = {rom.replace("_", "") for rom in roms.get_all_rom_ids()}
    of_envpool = names(envpool.list_all_envs(), ending="-v5")
    assert names(list(atari_tasks()), ending="NoFrameskip-v4") == of_ale & of_envpool
    assert len(atari_tasks()) == len(set(atari_tasks())) > 100


@pytest.mark.parametrize(
    ("task", "nearest"),
    [
        ("QbertNoFrameskip-v4", "QbertNoFrameskip-v4"),
        ("Qbert", "QbertNoFrameskip-v4"),
        ("qbert", "QbertNoFrameskip-v4"),
        ("QbertNoFrameskip-v5", "QbertNoFrameskip-v4"),
        ("ALE/Qbert-v5", "QbertNoFrameskip-v4"),
        ("Qbrt", "QbertNoFrameskip-v4"),
        ("QbrtNoFrameskip-v4", "QbertNoFrameskip-v4"),
        ("name_this_game", "NameThisGameNoFrameskip-v4"),
        ("BattlezoneDeterministic-v4", "BattleZoneNoFrameskip-v4"),
        ("Pacman", "PacmanNoFrameskip-v4"),
        ("CartPole-v1", None),
        ("", None),
    ],
)
def test_the_nearest_task_is_the_one_meant(task: str, nearest: str | None) -> None:
    assert nearest_task(task) == nearest


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"task": "QbrtNoFrameskip-v4"}, "QbrtNoFrameskip-v4.*did you mean 'QbertNoFrameskip-v4'"),
        ({"task": "CartPole-v1"}, "CartPole-v1.*atari_tasks"),
        ({"backend": "gym"}, "gym.*envpool.*ale"),
        ({"num_envs": 0}, "num_envs=0"),
        ({"frames_stack": 0}, "frames_stack=0"),
        ({"noop_max": 0}, "noop_max=0"),
        ({"render_mode": "ascii"}, "render_mode"),
        ({"render_mode": "ascii", "backend": "ale"}, "render_mode='ascii'"),
    ],
)
def test_a_wrong_argument_is_named(wrong: dict[str, Any], message: str) -> None:
    right = {"task": "QbertNoFrameskip-v4", "num_envs": 1, "seed": 0, "training": True}
    with pytest.raises(ValueError, match=message):
        make_atari_envs(**(right | wrong))


def test_naming_tasks_loads_no_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("ale_py", "envpool"):
        monkeypatch.setitem(sys.modules, package, None)  # an import would raise
    monkeypatch.delitem(sys.modules, "medqn_tianshou.envs.atari")
    fresh = importlib.import_module("medqn_tianshou.envs.atari")
    assert fresh.nearest_task("qbert") == "QbertNoFrameskip-v4"

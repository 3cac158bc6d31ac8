"""The two Atari backends: the same play, and what the rest of the package relies on."""

from itertools import islice

import numpy as np
import pytest
from atari_play import atari, both_backends, both_modes, breakout, random_play

pytestmark = pytest.mark.slow

ale_py = pytest.importorskip("ale_py")
cv2 = pytest.importorskip("cv2")
envpool = pytest.importorskip("envpool")
roms = pytest.importorskip("ale_py.roms")


@both_modes
@pytest.mark.parametrize(
    ("game", "seed", "steps", "lives_lost", "games_over"),
    [
        ("Breakout", 4, 250, 5, 1),
        ("Frogger", 3, 295, 4, 0),  # goes on with 0 lives
        ("JourneyEscape", 3, 20, 0, 0),  # has no action FIRE, and a taller screen
        ("Qbert", 3, 310, 4, 1),
        ("Phoenix", 3, 460, 5, 1),
        ("BattleZone", 3, 250, 2, 0),
        ("DoubleDunk", 3, 250, 0, 0),
        ("NameThisGame", 7, 340, 1, 0),
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


def test_ale_truncates_a_game_after_108_000_steps() -> None:
    with atari(backend="ale") as envs:
        envs.reset()
        envs.env._game_steps = 107_998
        assert [envs.step(np.array([0]))[3][0] for _ in range(2)] == [False, True]


def test_envpool_truncates_a_game_after_108_000_steps() -> None:
    """EnvPool counts steps, not frames, as the tests of smaller limits show."""
    with atari(backend="envpool") as envs:
        assert envs.pool.config["max_episode_steps"] == 108_000


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

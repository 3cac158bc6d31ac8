"""Catcher and Pixelcopter against recordings of the original games."""

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ple_play import GAMES, RULES, feed

from medqn_tianshou.envs.catcher import Catcher
from medqn_tianshou.envs.pixelcopter import Pixelcopter
from medqn_tianshou.envs.ple import PLEGame

DATA = Path(__file__).parent / "data"
FULL_DATA = Path(__file__).parents[3] / "shared" / "ple"  # present on the machine we develop on


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("folder", [DATA, FULL_DATA], ids=["part", "full"])
def test_recorded_play_is_reproduced_to_the_last_bit(game: str, folder: Path) -> None:
    path = folder / f"{game}_golden.npz"
    if folder == FULL_DATA and not path.is_file():
        pytest.skip("the full recordings are not on this machine")
    with np.load(path) as file:
        gold = dict(file)

    draws = defaultdict(list)
    columns = ("episode", "step", "kind", "a", "b", "c", "value")
    rows = zip(*(gold[f"draw_{name}"].tolist() for name in columns), strict=True)
    for episode, step, kind, a, b, c, value in rows:
        name = ("choice", "randint", "uniform")[kind]
        draws[episode, step].append((name, a, b, c if name == "choice" else None, value))

    played: dict[str, list[Any]] = defaultdict(list)
    envs = [GAMES[game](rect_rule=rule) for rule in RULES]
    for episode, rule in enumerate(gold["ep_center_rule"]):
        env = envs[rule]
        left = feed(env, draws[episode, -1])
        observation, _ = env.reset()
        played["ep_gym_obs_reset"].append(observation)
        played["ep_raw_obs_reset"].append(env.raw_state())
        assert not left
        score = 0.0
        actions = gold["action"][gold["episode"] == episode]
        for step, action in enumerate(actions):
            left = feed(env, draws[episode, step])
            observation, reward, terminated, truncated, info = env.step(action)
            assert not left, f"a draw is missing in episode {episode}, step {step}"
            assert not truncated
            assert info == {}
            score += reward
            played["gym_obs_after"].append(observation)
            played["raw_obs_after"].append(env.raw_state())
            played["reward"].append(reward)
            played["terminated"].append(terminated)
            played["lives_after"].append(env.lives)
            played["score_after"].append(score)
            if isinstance(env, Pixelcopter):
                played["n_blocks_after"].append(len(env.blocks))
                played["n_terrain_after"].append(len(env.terrain_x))
        played["ep_return"].append(score)

    for name, values in played.items():
        expected = gold[name]
        got = np.array(values)
        if name not in ("lives_after", "n_blocks_after", "n_terrain_after"):
            assert got.dtype == expected.dtype, name
        got = got.astype(expected.dtype)
        differs = np.argwhere(np.atleast_2d((got != expected).T).any(axis=0))
        assert got.tobytes() == expected.tobytes(), f"{name} differs at rows {differs[:5].ravel()}"


@pytest.mark.parametrize(
    ("game", "rewards", "longest"),
    # Pixelcopter's second batch of terrain comes at tick 222 and reaches the player 50 ticks later.
    [("catcher", {-6, -1, 0, 1}, 380), ("pixelcopter", {-5, -4, 0, 1, 2}, 300)],
)
def test_the_shipped_recordings_cover_what_matters(
    game: str, rewards: set[float], longest: int
) -> None:
    with np.load(DATA / f"{game}_golden.npz") as gold:
        steps_by_rule = gold["ep_center_rule"][gold["episode"]]
        for rule in (0, 1):
            assert set(gold["reward"][steps_by_rule == rule]) == rewards
            in_rule = gold["ep_center_rule"] == rule
            assert set(gold["ep_terminated"][in_rule]) == {True, False}
            assert (gold["ep_seed"][in_rule] < 0).any()  # a reset that goes on with the stream
            assert (gold["ep_seed"][in_rule] >= 0).any()
            assert gold["ep_length"][in_rule].max() >= longest


# Means and standard errors of the original games, from episodes seeded otherwise than ours.
@pytest.mark.parametrize(
    ("game", "rule", "p", "episodes", "length", "score"),
    [
        (Catcher, "trunc", (1, 1, 1), 200, (154.15, 1.38), (-6.812, 0.041)),
        (Catcher, "round", (1, 1, 1), 200, (166.07, 1.59), (-6.741, 0.043)),
        (Pixelcopter, "trunc", (1, 1), 1000, (7.149, 0.064), (-4.812, 0.010)),
        (Pixelcopter, "round", (1, 1), 1000, (7.029, 0.058), (-4.828, 0.009)),
        (Pixelcopter, "trunc", (1, 9), 500, (32.60, 0.45), (-0.679, 0.076)),
        (Pixelcopter, "round", (1, 9), 500, (32.98, 0.47), (-0.626, 0.080)),
        (Pixelcopter, "trunc", (0, 1), 300, (21.04, 0.06), (-2.614, 0.022)),
    ],
)
def test_own_random_numbers_give_the_original_statistics(
    game: type[PLEGame],
    rule: str,
    p: tuple[int, ...],
    episodes: int,
    length: tuple[float, float],
    score: tuple[float, float],
) -> None:
    env = game(rect_rule=rule)
    env.reset(seed=1)
    rng = np.random.default_rng(2)
    played = []
    for _ in range(episodes):
        env.reset()
        rewards = []
        terminated = False
        for action in rng.choice(len(p), 2000, p=np.array(p) / sum(p)).tolist():
            _, reward, terminated, *_ = env.step(action)
            rewards.append(reward)
            if terminated:
                break
        assert terminated
        played.append((len(rewards), sum(rewards)))
    for values, (mean, error) in zip(np.array(played).T, (length, score), strict=True):
        own_error = values.std() / math.sqrt(episodes)
        assert abs(values.mean() - mean) < 4 * math.hypot(error, own_error)

"""Games of the PLE in positions that the tests choose."""

from collections import deque
from typing import Any

import pytest

from medqn_tianshou.envs.catcher import Catcher
from medqn_tianshou.envs.pixelcopter import Block, Pixelcopter
from medqn_tianshou.envs.ple import PLEGame

GAMES: dict[str, type[PLEGame]] = {"catcher": Catcher, "pixelcopter": Pixelcopter}
RULES = ("trunc", "round")
LEFT, RIGHT, WAIT = range(3)
UP, GLIDE = range(2)
both_rules = pytest.mark.parametrize("rule", RULES)
both_games = pytest.mark.parametrize("game", list(GAMES.values()))


def feed(env: PLEGame, draws: list[tuple[Any, ...]]) -> deque[tuple[Any, ...]]:
    """Make the game draw these (kind, a, b, c, value), and refuse any other request."""
    queue = deque(draws)

    def draw(kind: str, a: float, b: float, c: float | None = None) -> float:
        *request, value = queue.popleft()
        assert request == [kind, a, b, c]
        return float(value)

    env.draw = draw  # type: ignore[method-assign]
    return queue


def new_catcher(rule: str, *, fruit: tuple[int, int] = (44, 16)) -> Catcher:
    """Start a game whose first fruit is given; later ones are random."""
    env = Catcher(rect_rule=rule)
    feed(env, [("choice", 8, 56, 4, fruit[0]), ("choice", 4, 32, 4, fruit[1])])
    env.reset(seed=0)
    del env.draw
    return env


def new_copter(rule: str, *, block: tuple[int, int] = (64, 13)) -> Pixelcopter:
    """Start a game whose first block is given; the rest is random."""
    env = Pixelcopter(rect_rule=rule)
    env.reset(seed=0)
    env.blocks = [Block(*block)]
    return env


def hover(env: Pixelcopter) -> float:
    """Play a tick with the player held in mid-screen and given all the lives it needs."""
    env.y, env.momentum, env.lives = 24.0, 0.0, 1000
    return env.step(GLIDE)[1]


def overlap(a: tuple[int, int, int, int], b: tuple[int, int, int, int]) -> bool:
    """Whether two (left, top, width, height) overlap; touching edges do not."""
    return a[0] < b[0] + b[2] and a[0] + a[2] > b[0] and a[1] < b[1] + b[3] and a[1] + a[3] > b[1]


def around(x: int, y: int, width: int, height: int) -> tuple[int, int, int, int]:
    return x - width // 2, y - height // 2, width, height

"""The common base of two games of the PyGame Learning Environment (PLE), without pygame.

The paper plays Catcher and Pixelcopter as gym-games wraps them. One environment step is one game
tick of 1/30 s. The games test collisions between rectangles of whole pixels: how a fractional
centre becomes a whole pixel is therefore part of the dynamics (see :data:`RECT_RULES`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Literal

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from medqn_tianshou.envs.game import Game, set_fields

TICK_MS = 1000.0 / 30
LOSS_REWARD = -5.0
"""Added to the reward of the tick that ends the game."""

Colour = tuple[int, int, int]
Rectangle = tuple[int, int, int, int, Colour]
"""Left, top, width, height and colour of a sprite; it may lie outside the screen."""


def round_half_away(value: float) -> int:
    """Return the nearest whole number, ties away from zero.

    Neither ``round`` (ties to even) nor ``floor(value + 0.5)`` (wrong just below 0.5) does this.
    """
    whole = int(value)
    return whole + int(2.0 * (value - whole))  # the fraction and its double are exact


RECT_RULES: dict[str, Callable[[float], int]] = {"trunc": int, "round": round_half_away}
"""How a centre becomes a whole pixel: pygame up to 2.2 truncates it, pygame from 2.3 on rounds.

The paper's experiments predate pygame 2.3 (March 2023), so "trunc" is the default.
"""


class PLEGame(Game, ABC):
    """A game of the PLE as a Gymnasium environment.

    A subclass implements the rules; this class implements seeds, the end of the game and rendering.
    Stepping a finished game changes nothing and returns reward 0.

    :param rect_rule: one of :data:`RECT_RULES`; the paper's is ``"trunc"``.
    :param render_mode: ``"rgb_array"`` or None.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012 (as Gymnasium's)
    screen_size: ClassVar[int]
    state_names: ClassVar[tuple[str, ...]]
    _saved_fields: ClassVar[tuple[str, ...]]

    lives: int = 0

    def __init__(self, *, rect_rule: str = "trunc", render_mode: str | None = None) -> None:
        if rect_rule not in RECT_RULES:
            raise ValueError(f"rect_rule={rect_rule!r} is unknown; use one of {list(RECT_RULES)}")
        super().__init__(type(self).__name__, render_mode)
        self.rect_rule = rect_rule
        self.observation_space = spaces.Box(-np.inf, np.inf, (len(self.state_names),), np.float32)
        self._to_pixel = RECT_RULES[rect_rule]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.float32], dict[str, Any]]:
        """Start a new game; without a seed, the stream of :attr:`np_random` continues."""
        super().reset(seed=seed)
        self._new_game()
        self._started = True
        return self._observation(), {}

    def step(
        self, action: int | np.int64
    ) -> tuple[NDArray[np.float32], float, bool, bool, dict[str, Any]]:
        """Play one tick with an index into :attr:`action_names`, a key held for this tick only."""
        self._check_action(action)
        reward = 0.0
        if self.lives > 0:
            reward = self._tick(int(action))
            if self.lives <= 0:
                reward += LOSS_REWARD
        return self._observation(), reward, self.lives <= 0, False, {}

    def _picture(self) -> NDArray[np.uint8]:
        frame = np.zeros((self.screen_size, self.screen_size, 3), np.uint8)
        for left, top, width, height, colour in self._sprites():
            rows = slice(max(top, 0), max(top + height, 0))
            columns = slice(max(left, 0), max(left + width, 0))
            frame[rows, columns] = colour
        return frame

    def draw(
        self,
        kind: Literal["choice", "randint", "uniform"],
        a: float,
        b: float,
        c: float | None = None,
    ) -> float:
        """Sample a number: a choice of ``range(a, b, c)``, or an integer or float in [a, b).

        All random numbers of a game come from this method: overriding it replays a recorded game.
        """
        if kind == "uniform":
            return a + (b - a) * self.np_random.random()
        if kind == "randint":
            return int(self.np_random.integers(int(a), int(b)))
        if kind == "choice" and c is not None:
            options = range(int(a), int(b), int(c))
            return options[self.np_random.integers(len(options))]
        raise ValueError(
            f"kind={kind!r} with c={c!r} is not a draw; use 'choice' with a stride c, 'randint' "
            "or 'uniform'"
        )

    def game_state(self) -> dict[str, Any]:
        """Return everything that later play depends on, except :attr:`np_random`."""
        return {name: getattr(self, name) for name in self._saved_fields}

    def set_game_state(self, state: dict[str, Any]) -> None:
        """Continue from what :meth:`game_state` returned, in a game that was reset once."""
        set_fields(self, self._saved_fields, state)
        self.check_playable()

    @abstractmethod
    def raw_state(self) -> tuple[float, ...]:
        """Return the game's own numbers, named by :attr:`state_names`, in double precision."""

    @abstractmethod
    def _new_game(self) -> None:
        """Set the start of a game, lives included."""

    @abstractmethod
    def _tick(self, action: int) -> float:
        """Advance the game by one tick and return its reward, without :data:`LOSS_REWARD`."""

    @abstractmethod
    def _sprites(self) -> Iterable[Rectangle]:
        """Yield the sprites to paint on the black screen, in order."""

    def _observation(self) -> NDArray[np.float32]:
        return np.array(self.raw_state(), np.float32)

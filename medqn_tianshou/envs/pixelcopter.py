"""Pixelcopter: fly through a cave and around the blocks in it; one touch ends the game."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from math import sin
from typing import Any, NamedTuple

from medqn_tianshou.envs.ple import TICK_MS, PLEGame, Rectangle

SCREEN = 48
PLAYER_X = 16
PLAYER_HEIGHT = SCREEN * 0.05  # in the ceiling test; the player's rectangle is 2 x 2
HALF_CORRIDOR = SCREEN * 0.25
TOP_LIMIT, BOTTOM_LIMIT = SCREEN * 0.125, SCREEN * 0.875
BLOCK_HEIGHT = 9
PIECE_STRIDE = 4
BATCH_WIDTH = 4 * SCREEN
OUT_X = -4  # a sprite is gone at this x

_SPEED = 0.0004 * SCREEN
SCROLL = _SPEED * TICK_MS
CLIMB = _SPEED * -0.875 * TICK_MS
FALL = _SPEED * 0.09 * TICK_MS
DAMPING = 0.99

# A sprite 4 pixels wide overlaps the player's 2 columns iff its whole x is one of these.
FIRST_TOUCHING_X, LAST_TOUCHING_X = 14, 18


class Block(NamedTuple):
    """An obstacle of 4 x 9 pixels, by its centre."""

    x: float
    y: int


class Pixelcopter(PLEGame):
    """The PLE's Pixelcopter on its 48 x 48 screen; the observation is not normalised.

    The cave scrolls to the left. Each piece of it that leaves the screen gives +1, and so does each
    block whose centre reaches the player's. The end of the game gives -5.

    The code relies on two facts. Pieces stay ordered by x, as each batch is added behind the last
    piece. There are one or two blocks: the newest is always ahead of the player, and the other is
    at or behind the player (though it may still overlap).
    """

    screen_size = SCREEN
    action_names = ("up", "no-op")
    state_names = (
        "player_y",
        "player_momentum",
        "distance_to_ceiling",
        "distance_to_floor",
        "distance_to_next_block",
        "next_block_y",  # gym-games calls it the top, but it is the centre
        "next_block_bottom",  # the centre plus the height: not the real bottom either
    )

    _saved_fields = ("lives", "y", "momentum", "blocks", "terrain_x", "terrain_y")

    y: float
    momentum: float
    blocks: list[Block]
    terrain_x: list[float]
    terrain_y: list[int]

    def raw_state(self) -> tuple[float, ...]:
        """Return the numbers of :attr:`state_names`."""
        y, block = self.y, self.blocks[-1]
        piece_y = self.terrain_y[self._first_touching()]
        return (
            y,
            self.momentum,
            y - (piece_y - HALF_CORRIDOR),
            (piece_y + HALF_CORRIDOR) - y,
            block.x - PLAYER_X,
            block.y,
            block.y + BLOCK_HEIGHT,
        )

    def set_game_state(self, state: dict[str, Any]) -> None:
        """Continue from what :meth:`game_state` returned, in a game that was reset once."""
        x, y = state["terrain_x"], state["terrain_y"]
        if len(x) != len(y) or sorted(x) != x or not 1 <= len(state["blocks"]) <= 2:
            raise ValueError("a cave or blocks that Pixelcopter never has")
        super().set_game_state({**state, "blocks": [Block(*block) for block in state["blocks"]]})

    def _new_game(self) -> None:
        self.lives = 1
        self.y = SCREEN / 2
        self.momentum = 0.0
        self.blocks = []
        self.terrain_x = []
        self.terrain_y = []
        self._add_block()
        self._add_terrain(0)

    def _add_block(self) -> None:
        x = self.draw("randint", SCREEN, SCREEN * 1.5)
        y = self.draw("randint", SCREEN * 0.25, SCREEN * 0.75)
        self.blocks.append(Block(x, int(y)))

    def _add_terrain(self, start: int) -> None:
        # A sine wave with a random frequency and, per piece, a random phase.
        frequency = 4.5 / SCREEN + self.draw("uniform", -0.01, 0.01)
        for x in range(start + 2, start + 2 + BATCH_WIDTH, PIECE_STRIDE):
            phase = frequency * x + self.draw("uniform", 0.0, 0.5)
            self.terrain_x.append(x)
            self.terrain_y.append(int(SCREEN / 2 + SCREEN * 0.125 * sin(phase)))

    def _first_touching(self) -> int:
        """Return the index of the first piece whose columns overlap the player's."""
        return bisect_left(self.terrain_x, FIRST_TOUCHING_X, key=self._to_pixel)

    def _tick(self, action: int) -> float:
        self.momentum = (self.momentum + (CLIMB if action == 0 else FALL)) * DAMPING
        self.y = y = self.y + self.momentum
        # Repeated subtraction, as in the original game: a closed form differs in the last bits,
        # which is enough to land on another pixel.
        self.blocks = [Block(x - SCROLL, block_y) for x, block_y in self.blocks]
        self.terrain_x = [x - SCROLL for x in self.terrain_x]

        self.lives -= self._hits(y, self._to_pixel(y))
        reward = 0.0
        # Everything below, random numbers and rewards included, happens in the fatal tick too.
        if self.blocks[-1].x <= PLAYER_X:
            reward += 1.0
            self._add_block()
        if self.blocks[0].x <= OUT_X:
            del self.blocks[0]
        if self.terrain_x[0] <= OUT_X:  # one at most: a tick scrolls less than the pieces' stride
            reward += 1.0
            del self.terrain_x[0], self.terrain_y[0]
        if len(self.terrain_x) <= 13:
            self._add_terrain(SCREEN)
        return reward

    def _hits(self, y: float, pixel_y: int) -> int:
        """Return how many lives the current positions cost."""
        hits = 0
        for block in self.blocks:
            if FIRST_TOUCHING_X <= self._to_pixel(block.x) <= LAST_TOUCHING_X:
                hits += block.y - 4 <= pixel_y <= block.y + 5
        # A piece's rectangle is taller than the screen, so only its columns matter. The tests for
        # ceiling and floor use the fractional y.
        first = self._first_touching()
        last = bisect_right(self.terrain_x, LAST_TOUCHING_X, lo=first, key=self._to_pixel)
        for piece_y in self.terrain_y[first:last]:
            hits += y - PLAYER_HEIGHT <= piece_y - HALF_CORRIDOR
            hits += y >= piece_y + HALF_CORRIDOR
        return hits + (y < TOP_LIMIT) + (y > BOTTOM_LIMIT)

    def _sprites(self) -> Iterable[Rectangle]:
        green = (120, 240, 80)
        for x, piece_y in zip(self.terrain_x, self.terrain_y, strict=True):
            left = self._to_pixel(x) - 2
            yield left, piece_y - 36, 4, 24, green
            yield left, piece_y + 14, 4, 22, green
        for block in self.blocks:
            yield self._to_pixel(block.x) - 2, block.y - 4, 4, BLOCK_HEIGHT, green
        yield PLAYER_X - 1, self._to_pixel(self.y) - 1, 2, 2, (255, 255, 255)

"""Catcher: catch falling fruit with a paddle; three misses end the game."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from medqn_tianshou.envs.ple import TICK_MS, PLEGame, Rectangle

SCREEN = 64
LIVES = 3
FRUIT_SIZE = 4
PADDLE_WIDTH, PADDLE_HEIGHT = 13, 3
PADDLE_Y = 58
PUSH = 0.021 * SCREEN
FRICTION = 0.9
FALL = 0.00095 * SCREEN * TICK_MS

# gym-games normalises the state, in single precision, by these ranges.
_CENTRE = np.array([26.0, 0.0, 26.0, 20.0], np.float32)
_SCALE = np.array([26.0, 8.0, 26.0, 45.0], np.float32)


class Catcher(PLEGame):
    """The PLE's Catcher on its 64 x 64 screen, observed as gym-games normalises it.

    A catch gives +1, a miss -1, and the third miss ends the game with -5 more. These rewards come
    one tick after the observation that shows the event. The lives are not observed.

    The paddle's position is rounded to a whole pixel each tick. Under ``"trunc"`` the paddle
    therefore ignores a velocity in [0, 1) but moves left a pixel per tick at any negative one.
    """

    screen_size = SCREEN
    action_names = ("left", "right", "no-op")
    state_names = ("paddle_x", "paddle_velocity", "fruit_x", "fruit_y")
    _saved_fields = ("lives", "paddle_x", "velocity", "fruit_x", "fruit_y")

    paddle_x: int
    velocity: float
    fruit_x: int
    fruit_y: int

    def raw_state(self) -> tuple[float, ...]:
        """Return the numbers of :attr:`state_names`."""
        return self.paddle_x, self.velocity, self.fruit_x, self.fruit_y

    def _new_game(self) -> None:
        self.lives = LIVES
        self.velocity = 0.0
        self.paddle_x = self._to_pixel(SCREEN / 2 - PADDLE_WIDTH / 2)  # 25.5: the rules differ
        self._place_fruit()

    def _place_fruit(self) -> None:
        size = FRUIT_SIZE
        self.fruit_x = int(self.draw("choice", 2 * size, SCREEN - 2 * size, size))
        self.fruit_y = -int(self.draw("choice", size, SCREEN // 2, size))

    def _tick(self, action: int) -> float:
        # Both tests use the positions of the previous tick; then everything moves, including a
        # fruit that was placed in this tick.
        reward = 0.0
        if self.fruit_y >= SCREEN:
            reward = -1.0
            self.lives -= 1
            self._place_fruit()
        # The paddle's 13 x 3 pixels overlap with the fruit's 4 x 4; touching edges do not count.
        elif -7 <= self.fruit_x - self.paddle_x <= 8 and 56 <= self.fruit_y <= 61:
            reward = 1.0
            self._place_fruit()

        self.velocity = (self.velocity + (-PUSH, PUSH, 0.0)[action]) * FRICTION
        x = self.paddle_x + self.velocity
        if x <= 0:
            self.velocity, x = 0.0, 0.0
        elif x + PADDLE_WIDTH >= SCREEN:
            self.velocity, x = 0.0, float(SCREEN - PADDLE_WIDTH)
        self.paddle_x = self._to_pixel(x)
        self.fruit_y = self._to_pixel(self.fruit_y + FALL)
        return reward

    def _observation(self) -> NDArray[np.float32]:
        observation = super()._observation()
        observation -= _CENTRE
        observation /= _SCALE
        return observation

    def _sprites(self) -> Iterable[Rectangle]:
        # The original game takes the centres for corners: sprites are painted off their rectangles.
        yield self.paddle_x, PADDLE_Y, PADDLE_WIDTH, PADDLE_HEIGHT, (255, 255, 255)
        yield self.fruit_x, self.fruit_y, FRUIT_SIZE, FRUIT_SIZE, (255, 120, 120)

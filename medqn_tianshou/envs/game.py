"""The common base of our games: checked actions, pictures, fields that can be restored."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray


class Game(gym.Env[NDArray[Any], np.int64]):
    """A game whose actions have names; a subclass sets them before it calls this constructor."""

    action_names: tuple[str, ...]

    def __init__(self, game: str, render_mode: str | None) -> None:
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode={render_mode!r} is unknown; use 'rgb_array' or None")
        self.game = game
        self.render_mode = render_mode
        self.action_space = spaces.Discrete(len(self.action_names))
        self._actions = range(len(self.action_names))
        self._started = False

    def _check_action(self, action: Any) -> None:
        if action not in self._actions:
            choices = ", ".join(f"{i} ({name})" for i, name in enumerate(self.action_names))
            raise ValueError(f"action={action!r} is not an action of {self.game}; use {choices}")
        self._check_started()

    def _check_started(self) -> None:
        if not self._started:
            raise gym.error.ResetNeeded("the game has not started; call reset() first")

    def render(self) -> NDArray[np.uint8] | None:  # type: ignore[override]
        """Return the screen as (height, width, 3), or None without a render mode."""
        if self.render_mode is None:
            return None
        self._check_started()
        return self._picture()

    def _picture(self) -> NDArray[np.uint8]:
        raise NotImplementedError


def set_fields(owner: Any, names: tuple[str, ...], state: dict[str, Any]) -> None:
    """Set the named fields of an object from a state that has exactly these, of the same types."""
    if state.keys() != set(names):
        raise ValueError(f"a state of {sorted(state)} is not one of {sorted(names)}")
    for name in names:
        old, new = getattr(owner, name), state[name]
        known = old is not None and new is not None
        if known and _kind(old) is not _kind(new):
            raise ValueError(f"{name}={new!r} is of the wrong type")
        if isinstance(old, np.ndarray) and known and old.shape != new.shape:
            raise ValueError(f"{name} has the wrong shape {new.shape}")
        setattr(owner, name, new)


def _kind(value: Any) -> type:
    # Games switch between integers and floats, numpy's and Python's: all numbers are one kind.
    return float if isinstance(value, bool | int | float | np.generic) else type(value)

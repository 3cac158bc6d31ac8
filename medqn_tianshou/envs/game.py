"""The common base of our games: checked actions, pictures, fields that can be restored."""

from copy import deepcopy
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

_NUMBERS: Any = bool | int | float | np.generic
_MOST = 2**40


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

    def check_playable(self) -> None:
        """Raise ValueError unless a copy of the game plays every action from here."""
        trial = deepcopy(self)
        try:
            for action in self._actions:
                trial.step(np.int64(action))
        except Exception as error:  # of rules that never expected this
            raise ValueError(f"a state from which {self.game} cannot be played ({error})") from None


def set_fields(owner: Any, names: tuple[str, ...], state: dict[str, Any]) -> None:
    """Set the named fields of an object from a state that has exactly these, of the same types."""
    if state.keys() != set(names):
        raise ValueError(f"a state of {sorted(state)} is not one of {sorted(names)}")
    for name in names:
        if not _is_like(getattr(owner, name), state[name]):
            raise ValueError(f"{name}={state[name]!r:.40} is not what this game has there")
    for name in names:
        setattr(owner, name, state[name])


def _is_like(old: Any, new: Any) -> bool:
    """Whether a value can be the later value of a field."""
    if isinstance(old, np.ndarray):
        is_array = isinstance(new, np.ndarray) and (new.dtype, new.shape) == (old.dtype, old.shape)
        return is_array and bool(np.isfinite(new).all())
    # Games switch between integers and floats, numpy's and Python's: all numbers are one kind.
    if isinstance(old, _NUMBERS):
        return isinstance(new, _NUMBERS) and abs(new) <= _MOST
    return isinstance(old, list) and isinstance(new, list) and _is_plain(new)


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or (isinstance(value, _NUMBERS) and abs(value) <= _MOST)

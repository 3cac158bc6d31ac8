"""Observations as networks and buffers expect them."""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box
from numpy.typing import NDArray


def has_channels_last(space: gym.Space[Any]) -> bool:
    """Whether observations are images with the axes height, width, channels."""
    shape = space.shape or ()
    return isinstance(space, Box) and len(shape) == 3 and shape[2] in (1, 3, 4) and shape[0] > 4


class ChannelsFirst(gym.ObservationWrapper[Any, Any, Any]):
    """Moves the channels of images from the last axis to the first."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        space: Any = env.observation_space
        low, high = (np.moveaxis(bound, -1, 0) for bound in (space.low, space.high))
        self.observation_space = Box(low, high, dtype=space.dtype)

    def observation(self, observation: NDArray[Any]) -> NDArray[Any]:
        """Return the image with its channels first."""
        return np.ascontiguousarray(np.moveaxis(observation, -1, 0))


class DeclaredDtype(gym.ObservationWrapper[Any, Any, Any]):
    """Gives observations the type that their space declares; not all environments do."""

    def observation(self, observation: Any) -> NDArray[Any]:
        """Return the observation, with its type changed if necessary."""
        given, dtype = np.asarray(observation), self.observation_space.dtype
        if given.dtype == dtype:
            return given
        if not np.can_cast(given.dtype, dtype, "same_kind"):
            raise ValueError(
                f"observations are {given.dtype}, but the observation space of "
                f"{self.unwrapped} declares {dtype}; declare what reset() and step() return"
            )
        return given.astype(dtype)

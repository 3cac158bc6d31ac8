"""Element-wise bounds of every state the agent has received, and uniform samples within them."""

from math import isfinite
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray


class StateBounds:
    """The paper's s_LOW and s_HIGH.

    :param observation_space: the space of one observation. It decides the shape and whether samples
        are integers; its own limits are not used, only what was observed.
    """

    def __init__(self, observation_space: gym.Space[Any]) -> None:
        if observation_space.shape is None or observation_space.dtype is None:
            raise ValueError(
                f"observation_space={observation_space} has no shape and dtype: uniform states "
                "need a Box, Discrete, MultiDiscrete or MultiBinary space"
            )
        self.shape: tuple[int, ...] = observation_space.shape
        self.integer_valued = not np.issubdtype(observation_space.dtype, np.floating)
        self.dtype = np.dtype(observation_space.dtype)
        """Of the observations, and so of the samples."""
        # float64 cannot represent integers beyond 2**53, and integers cannot represent infinities.
        # Flags are bytes, which are compared without a conversion.
        kind = np.int8 if self.dtype == np.bool_ else np.int64
        self._unseen: list[Any]
        bound_dtype, *self._unseen = (
            (kind, np.iinfo(kind).max, np.iinfo(kind).min)
            if self.integer_valued
            else (np.float64, np.inf, -np.inf)
        )
        self.low: NDArray[Any] = np.full(self.shape, self._unseen[0], dtype=bound_dtype)
        self.high: NDArray[Any] = np.full(self.shape, self._unseen[1], dtype=bound_dtype)

    def update(self, obs: NDArray[Any]) -> None:
        """Widen the bounds.

        Values that are not finite are ignored, because a uniform distribution needs finite bounds.

        :param obs: one observation or a batch of them.
        """
        obs = np.asarray(obs)
        if obs.shape == self.shape:
            obs = obs[None]
        if obs.shape[1:] != self.shape:
            raise ValueError(f"obs of shape {obs.shape} does not match the space's {self.shape}")
        self.dtype = obs.dtype
        if obs.dtype == np.bool_:
            obs = obs.view(np.int8)
        lowest, highest = obs, obs
        # The sum of squares is quicker to compute; one that overflows changes nothing.
        if not self.integer_valued and not isfinite(np.vdot(obs, obs)):
            finite = np.isfinite(obs)
            lowest, highest = np.where(finite, obs, np.inf), np.where(finite, obs, -np.inf)
        if len(obs) == 1:  # nothing to search for
            lowest, highest = lowest[0], highest[0]
        else:
            lowest, highest = lowest.min(axis=0), highest.max(axis=0)
        np.minimum(self.low, lowest, out=self.low)
        np.maximum(self.high, highest, out=self.high)

    def sample(self, batch_size: int, generator: np.random.Generator) -> NDArray[Any]:
        """Sample states uniformly within the bounds, both ends included.

        :return: states in the dtype of the observations.
        """
        if (self.low > self.high).any():
            raise ValueError(
                "no state was observed yet, or an element of it never had a finite value: pass "
                "policy.observe_step as on_step_hook to the training Collector, or call "
                "observe(obs), before the first sample"
            )
        size = (batch_size, *self.shape)
        states: NDArray[Any]
        if self.dtype == np.bool_:
            # As below, ten times as fast: a cell is free where it was seen both on and off.
            states = generator.integers(2, size=size, dtype=np.bool_)
            states &= self.high > self.low
            states |= self.low > 0
        elif self.integer_valued or self.dtype.kind in "iu":  # whatever their space declares
            low, high = (bound.astype(np.int64, copy=False) for bound in (self.low, self.high))
            states = generator.integers(low, high, size=size, endpoint=True)
        else:
            share = generator.random(size)
            # Not low + share * (high - low): that overflows for the widest ranges.
            states = (1.0 - share) * self.low + share * self.high
            # ... and rounding may step over a bound, which a constant element must not do.
            np.minimum(np.maximum(states, self.low, out=states), self.high, out=states)
        return states.astype(self.dtype)

    def state_dict(self) -> dict[str, Any]:
        """Return both bounds and the observations' dtype."""
        return {"low": self.low.copy(), "high": self.high.copy(), "dtype": self.dtype.str}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        dtype = np.dtype(state["dtype"])
        saved = [  # a policy's state dict has lists
            np.array(bound, self.low.dtype) if isinstance(bound, list) else bound
            for bound in (state["low"], state["high"])
        ]
        for bound in saved:
            if np.shape(bound) != self.shape or bound.dtype != self.low.dtype:
                raise ValueError(
                    f"saved bounds of shape {np.shape(bound)} and {bound.dtype} do not match the "
                    f"space's {self.shape} and {self.low.dtype}"
                )
        low, high = saved
        unseen = (low == self._unseen[0]) & (high == self._unseen[1])
        if not (unseen | (np.isfinite(low) & np.isfinite(high) & (low <= high))).all():
            raise ValueError("saved bounds are invalid: a lower bound is above its upper bound")
        if dtype.kind not in ("biu" if self.integer_valued else "biuf"):
            raise ValueError(f"saved bounds of {dtype} do not match the space's {self.dtype}")
        self.low[...], self.high[...], self.dtype = low, high, dtype

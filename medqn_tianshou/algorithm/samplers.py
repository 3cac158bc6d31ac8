"""Samplers of the states for the consolidation loss: MeDQN(R), MeDQN(U), or both.

This module does not import Tianshou: samplers use only the methods of a replay buffer that
:class:`ObservationBuffer` declares.
"""

from typing import Any, Literal, Protocol, get_args, runtime_checkable

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from medqn_tianshou.algorithm.bounds import StateBounds

Observations = NDArray[Any]


def network_input(obs: Any) -> Any:
    """Return the observation itself, where Tianshou wraps it together with an action mask."""
    return getattr(obs, "obs", obs)


class ObservationBuffer(Protocol):
    """The methods of a replay buffer that samplers use; all of Tianshou's buffers have them."""

    @property
    def subbuffer_edges(self) -> NDArray[np.int_]:
        """Where each environment's part starts, and the end of the last."""

    def __len__(self) -> int: ...

    def get(self, index: NDArray[np.int_], key: str) -> Any:
        """Return one field of some entries, frames stacked."""


@runtime_checkable
class StateSampler(Protocol):
    """Samples the states on which the Q network is kept close to its target network."""

    def sample(self, batch_size: int, buffer: ObservationBuffer) -> Observations:
        """Sample states.

        :param buffer: the replay buffer of the training collector.
        :return: observations in the shape and dtype in which the buffer returns them.
        """

    def observe(self, obs: Observations) -> None:
        """Record received states, whether or not the replay buffer stores them.

        :param obs: one observation or a batch of them.
        """

    def state_dict(self) -> dict[str, Any]:
        """Return what later samples depend on: the generator, and what was observed."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from what :meth:`state_dict` returned."""


class SeededSampler:
    """Base of the samplers: a random generator of its own.

    :param seed: seed of the generator; None takes fresh entropy.
    """

    def __init__(self, *, seed: int | None = None) -> None:
        self._generator = np.random.default_rng(seed)

    def observe(self, obs: Observations) -> None:
        """Ignore received states; a sampler that needs them overrides this."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the generator."""
        return {"generator": self._generator.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume the stream of random numbers from a saved state."""
        self._generator.bit_generator.state = state["generator"]


class RealStateSampler(SeededSampler):
    """MeDQN(R): states of random entries of the replay buffer, independent of the TD batch.

    It reads observations only: no action, reward or successor. It has its own generator, so
    its samples are independent of the buffer's.

    :param seed: seed of the generator; None takes fresh entropy.
    """

    def sample(self, batch_size: int, buffer: ObservationBuffer) -> Observations:
        """Sample states from the buffer uniformly, with replacement."""
        states = network_input(buffer.get(self.draw_indices(batch_size, buffer), "obs"))
        return states if hasattr(states, "get_keys") else np.asarray(states)  # a Batch of arrays

    def draw_indices(self, batch_size: int, buffer: ObservationBuffer) -> NDArray[np.int_]:
        """Sample only the indices, so that a caller can read them together with others."""
        if len(buffer) == 0:
            raise ValueError("the replay buffer is empty; collect before the first update")
        index_of_entries = getattr(buffer, "index_of_entries", None)
        if index_of_entries is not None:
            return np.asarray(
                index_of_entries(self._generator.integers(len(buffer), size=batch_size))
            )
        # A part fills from its first slot on, so its entries are the first `length` slots.
        parts = getattr(buffer, "buffers", [buffer])
        ends = np.cumsum([len(part) for part in parts])
        entries = self._generator.integers(ends[-1], size=batch_size)
        part_of_entry = np.searchsorted(ends, entries, side="right")
        entries_before_part = np.concatenate(([0], ends[:-1]))
        shift = buffer.subbuffer_edges[:-1] - entries_before_part
        return np.asarray(entries + shift[part_of_entry])


class UniformStateSampler(SeededSampler):
    """MeDQN(U): states sampled uniformly within the bounds of all states ever received.

    The sampler stores the bounds itself, because the replay buffer may contain only one mini-batch.
    For integer-valued observation spaces (MultiBinary, Discrete, MultiDiscrete, Box of an integer
    or boolean dtype) the samples are integers, both bounds included: a cell that was always 0
    stays 0.

    :param observation_space: the space of one observation, frames stacked.
    :param seed: seed of the generator; None takes fresh entropy.
    """

    def __init__(self, *, observation_space: gym.Space[Any], seed: int | None = None) -> None:
        super().__init__(seed=seed)
        self.bounds = StateBounds(observation_space)

    def sample(self, batch_size: int, buffer: ObservationBuffer | None = None) -> Observations:
        """Sample states within the bounds; the buffer is not read."""
        return self.bounds.sample(batch_size, self._generator)

    def observe(self, obs: Observations) -> None:
        """Widen the bounds to include the given observations (Algorithm 1, line 7)."""
        self.bounds.update(obs)

    def state_dict(self) -> dict[str, Any]:
        """Return the bounds and the state of the generator."""
        return {**super().state_dict(), "bounds": self.bounds.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from saved bounds and generator."""
        super().load_state_dict(state)
        self.bounds.load_state_dict(state["bounds"])


class MixedStateSampler(SeededSampler):
    """A fraction of real states, the rest uniform, as the paper's conclusion suggests.

    :param real_share: the expected share of real states in each batch. Where it is not a whole
        number of states, it is rounded up or down at random so that the share is right on average.
    :param seed: seed of the generator for rounding; None takes fresh entropy.
    """

    def __init__(
        self,
        *,
        real: StateSampler,
        uniform: StateSampler,
        real_share: float = 0.5,
        seed: int | None = None,
    ) -> None:
        if not 0.0 <= real_share <= 1.0:
            raise ValueError(f"real_share={real_share} must lie between 0 and 1")
        super().__init__(seed=seed)
        self.real = real
        self.uniform = uniform
        self.real_share = real_share
        self.saved_with_policy = all(getattr(s, "saved_with_policy", True) for s in (real, uniform))

    def sample(self, batch_size: int, buffer: ObservationBuffer) -> Observations:
        """Sample real states and uniform states, in this order, as one batch."""
        real_size = int(self.real_share * batch_size + self._generator.random())
        parts = [
            sampler.sample(size, buffer)
            for sampler, size in ((self.real, real_size), (self.uniform, batch_size - real_size))
            if size > 0
        ]
        return np.concatenate(parts)

    def observe(self, obs: Observations) -> None:
        """Pass received states on to both samplers."""
        self.real.observe(obs)
        self.uniform.observe(obs)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of both samplers and of the generator."""
        return {
            **super().state_dict(),
            "real": self.real.state_dict(),
            "uniform": self.uniform.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume both samplers and the generator."""
        super().load_state_dict(state)
        self.real.load_state_dict(state["real"])
        self.uniform.load_state_dict(state["uniform"])


Sampling = Literal["real", "uniform", "mixed"]


def make_state_sampler(
    sampling: Sampling, *, observation_space: gym.Space[Any], seed: int
) -> StateSampler:
    """Build a sampler by name, each of its generators seeded differently.

    :param sampling: ``"real"``, ``"uniform"`` or ``"mixed"`` (half of each).
    :param observation_space: the space of one observation, frames stacked.
    :param seed: the sampler's seed.
    """
    real_seed, uniform_seed, mixed_seed = np.random.SeedSequence(seed).generate_state(3)
    if sampling not in get_args(Sampling):
        raise ValueError(f"sampling={sampling!r} must be one of {', '.join(get_args(Sampling))}")
    real = RealStateSampler(seed=int(real_seed))
    if sampling == "real":
        return real
    uniform = UniformStateSampler(observation_space=observation_space, seed=int(uniform_seed))
    if sampling == "uniform":
        return uniform
    return MixedStateSampler(real=real, uniform=uniform, seed=int(mixed_seed))

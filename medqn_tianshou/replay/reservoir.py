"""A uniform sample of every state ever seen, stored as compactly as the replay buffer's frames."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from medqn_tianshou.files.generators import set_generator_state
from medqn_tianshou.replay.codecs import ChangeCodec
from medqn_tianshou.replay.rows import ARRAY_OVERHEAD, BYTES_OVERHEAD, FixedRows, Numbers

_BLOCK_LEN = 1024


class _FixedSlots(FixedRows):
    """Replaceable states of equal size: booleans as bits, others unchanged."""

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], capacity: int, max_bytes: int | None
    ) -> None:
        super().__init__(shape, dtype, min(capacity, _BLOCK_LEN), tail=1)
        row = self._width * self._packed_dtype.itemsize
        if max_bytes is not None:
            self.block_len = min(self.block_len, (max_bytes - ARRAY_OVERHEAD) // row)
            capacity = min(capacity, max_bytes // self._block_nbytes * self.block_len)
        self.capacity = capacity

    def __len__(self) -> int:
        return self.next

    def replace(self, slot: int, state: NDArray[Any]) -> None:
        block, place = divmod(slot, self.block_len)
        self._blocks[block][place] = self._pack(state)

    def load(self, slots: Numbers, out: NDArray[Any]) -> None:
        self.read(slots, np.arange(len(slots)), out)


class _EncodedSlots:
    """States of uint8, each compressed separately: its frames are the rows of one block."""

    def __init__(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], capacity: int, max_bytes: int | None
    ) -> None:
        self.capacity = capacity
        self._frames = shape[0] if len(shape) > 1 else 1
        self._codec = ChangeCodec(int(np.prod(shape, dtype=np.int64)) // self._frames)
        self._slots: list[bytes] = []
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._slots)

    def append(self, state: NDArray[Any]) -> None:
        self._add(self._codec.encode(state.reshape(self._frames, -1)))

    def _add(self, encoded: bytes) -> None:
        self._slots.append(encoded)
        self.nbytes += len(encoded) + BYTES_OVERHEAD

    def replace(self, slot: int, state: NDArray[Any]) -> None:
        encoded = self._codec.encode(state.reshape(self._frames, -1))
        self.nbytes += len(encoded) - len(self._slots[slot])
        self._slots[slot] = encoded

    def remove(self, slot: int) -> None:
        self.nbytes -= len(self._slots[slot]) + BYTES_OVERHEAD
        self._slots[slot] = self._slots[-1]
        del self._slots[-1]

    def load(self, slots: Numbers, out: NDArray[Any]) -> None:
        every = np.arange(self._frames)
        frames = out.reshape(len(slots), self._frames, self._codec.cells)
        for place, slot in enumerate(slots.tolist()):
            self._codec.decode(self._slots[slot], self._frames, every, every, frames[place])

    def pieces(self) -> list[Any]:
        return self._slots

    def describe(self) -> list[int]:
        return list(map(len, self._slots))

    def restore(self, sizes: list[int], take: Callable[[int], bytes]) -> bool:
        for size in sizes:
            encoded = take(size)
            if not self._codec.check(encoded, self._frames):
                return False
            self._add(encoded)
        return True


class ReservoirStateSampler:
    """Samples from all states that the agent has ever acted from, each with the same probability.

    Consolidation then covers the whole history, even if the replay buffer stores only one mini-
    batch. Reservoir sampling adds the n-th state with probability ``capacity / n`` and replaces a
    random stored one, so that the reservoir is always a uniform sample, without replacement, of all
    states so far. Booleans are stored as bits and uint8 frames compressed, each state separately
    and without loss.

    If compressed states exceed ``max_bytes``, the reservoir evicts random ones and lowers its
    capacity to the remaining number. The sample stays uniform, up to the correlation of a state's
    size with the time of the eviction.

    :param observation_space: the space of one observation, frames stacked.
    :param capacity: the maximum number of states.
    :param max_bytes: the maximum number of bytes; None is no limit.
    :param seed: seed of the generator; None takes fresh entropy.
    """

    saved_with_policy = False
    """The file of a policy does not contain its states, which may be many; a checkpoint does."""

    def __init__(
        self,
        *,
        observation_space: gym.Space[Any],
        capacity: int,
        max_bytes: int | None = None,
        seed: int | None = None,
    ) -> None:
        shape, dtype = observation_space.shape, observation_space.dtype
        if shape is None or dtype is None or np.dtype(dtype).hasobject:
            raise ValueError(f"observation_space={observation_space} must have a shape and a dtype")
        if capacity < 1:
            raise ValueError(f"capacity={capacity} must be at least 1")
        self._shape: tuple[int, ...] = shape
        self._capacity, self._max_bytes = capacity, max_bytes
        self._generator = np.random.default_rng(seed)
        self.seen = 0
        """States observed so far."""
        self._make_slots(np.dtype(dtype))

    def _make_slots(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        one = int(np.prod(self._shape, dtype=np.int64)) * dtype.itemsize + ARRAY_OVERHEAD
        if self._max_bytes is not None and self._max_bytes < one:
            raise ValueError(
                f"max_bytes={self._max_bytes} is too small for one state; use at least {one}"
            )
        kind = _EncodedSlots if dtype == np.uint8 else _FixedSlots
        self._slots: Any = kind(self._shape, dtype, self._capacity, self._max_bytes)

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def capacity(self) -> int:
        """The maximum number of states, which a limit in bytes may have lowered."""
        return int(self._slots.capacity)

    @property
    def nbytes(self) -> int:
        """Bytes stored: states, and the Python objects around them."""
        return int(self._slots.nbytes)

    def observe(self, obs: NDArray[Any]) -> None:
        """Add states to the reservoir, each with its probability (Vitter's Algorithm R).

        :param obs: one observation or a batch of them.
        """
        obs = np.asarray(obs)
        if obs.shape == self._shape:
            obs = obs[None]
        if obs.shape[1:] != self._shape:
            raise ValueError(f"obs of shape {obs.shape} does not match the space's {self._shape}")
        if obs.dtype != self._dtype:
            if self.seen:
                raise ValueError(f"obs of {obs.dtype} follows states of {self._dtype}")
            self._make_slots(obs.dtype)
        slots = self._slots
        for state in obs:
            self.seen += 1
            if len(slots) < slots.capacity:
                slots.append(state)
            # The same as integers(seen) up to 2**-53 * seen, in a tenth of the time.
            elif (slot := int(self._generator.random() * self.seen)) < slots.capacity:
                slots.replace(slot, state)
            else:
                continue
            while self._max_bytes is not None and slots.nbytes > self._max_bytes:
                slots.remove(int(self._generator.integers(len(slots))))
                slots.capacity = len(slots)

    def sample(self, batch_size: int, buffer: Any = None) -> NDArray[Any]:
        """Sample states from the reservoir uniformly, with replacement; no buffer is read."""
        if not len(self):
            raise ValueError(
                "no state was observed yet: pass policy.observe_step as on_step_hook to the "
                "training Collector, or call observe(obs), before the first sample"
            )
        slots = self._generator.integers(len(self), size=batch_size)
        states = np.empty((batch_size, int(np.prod(self._shape, dtype=np.int64))), self._dtype)
        self._slots.load(slots, states)
        return states.reshape(batch_size, *self._shape)

    def state_dict(self) -> dict[str, Any]:
        """Return the states, how many were seen, and the state of the generator."""
        pieces = [np.frombuffer(piece, np.uint8) for piece in self._slots.pieces()]
        return {
            "generator": self._generator.bit_generator.state,
            "seen": self.seen,
            "capacity": self.capacity,
            "dtype": self._dtype.str,
            "sizes": np.array(self._slots.describe(), np.int64),
            "states": np.concatenate([np.empty(0, np.uint8), *pieces]),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from what :meth:`state_dict` returned.

        :raises ValueError: if it is not the state of such a sampler.
        """
        dtype, seen, capacity = np.dtype(state["dtype"]), int(state["seen"]), int(state["capacity"])
        sizes, content = state["sizes"].tolist(), memoryview(state["states"].tobytes())
        if dtype.hasobject or not 1 <= capacity <= self._capacity:
            raise ValueError(f"saved states of {dtype}, at most {capacity}, do not fit")
        self._make_slots(dtype)
        position = 0

        def take(count: int) -> bytes:
            nonlocal position
            position += count
            if count < 0 or position > len(content):
                raise ValueError("saved states are truncated")
            return bytes(content[position - count : position])

        self._slots.capacity = min(capacity, self.capacity)
        sound = (
            len(sizes) <= capacity
            and self._slots.restore(sizes, take)
            and position == len(content)
            and len(self) == min(seen, self.capacity)
        )
        if not sound:
            raise ValueError("saved states are invalid")
        set_generator_state(self._generator, state["generator"])
        self.seen = seen

"""Adding a batch of transitions, one for each of some environments."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tianshou.data.types import RolloutBatchProtocol

from medqn_tianshou.replay.part import TERMINATED, TRUNCATED
from medqn_tianshou.replay.reading import Index
from medqn_tianshou.replay.storage import Storage
from medqn_tianshou.replay.trees import leaves

_REQUIRED = {"obs", "act", "rew", "terminated", "truncated", "obs_next"}


def add_transitions(
    storage: Storage,
    batch: RolloutBatchProtocol,
    part_ids: Sequence[int],
    *,
    stacked: bool,
    keep: Sequence[str],
) -> tuple[Index, NDArray[Any], Index, Index]:
    """Add one transition for each of some environments.

    :param stacked: whether observations come stacked; only their newest frames are stored.
    :param keep: optional fields to store.
    :return: for each, its index, and return, length and first index of its episode.
    """
    keys = batch.__dict__.keys()
    if not keys >= _REQUIRED:
        missing = sorted(_REQUIRED - keys)
        raise ValueError(f"the batch has no {missing}, which a transition needs")
    parts = storage.parts
    stacks = leaves(batch.obs)
    successors = leaves(batch.obs_next)
    if stacked:
        successors = {name: value[:, -1] for name, value in successors.items()}
    else:
        stacks = {name: value[:, None] for name, value in stacks.items()}
    fields = leaves(batch.act, "act")
    fields["rew"] = np.asarray(batch.rew, float)
    for key in keep:
        if key in keys:
            fields |= leaves(batch[key], key)
    storage.prepare(successors, fields)
    for name, store in parts[0].stores.items():
        if stacks[name].dtype != store.dtype:  # as in an array, the first dtype decides
            stacks[name] = stacks[name].astype(store.dtype)
            successors[name] = successors[name].astype(store.dtype)
    # Python's own numbers are quicker to handle one by one than numpy's.
    values = {name: v.tolist() if v.ndim == 1 else v for name, v in fields.items()}
    values["flags"] = [
        TERMINATED * bool(terminated) + TRUNCATED * bool(truncated)
        for terminated, truncated in zip(
            np.asarray(batch.terminated).tolist(),
            np.asarray(batch.truncated).tolist(),
            strict=True,
        )
    ]
    results = []
    for i, (part_id, flags) in enumerate(zip(part_ids, values["flags"], strict=True)):
        part = parts[part_id]
        storage.add(
            part,
            {name: value[i] for name, value in stacks.items()},
            {name: value[i] for name, value in successors.items()},
            {name: value[i] for name, value in values.items()},
        )
        returned, length, start = part.count_step(values["rew"][i], flags != 0)
        offset = part_id * part.maxsize
        index, start = offset + (part.next - 1) % part.ring, offset + start % part.ring
        results.append((index, returned, length, start))
    columns = zip(*results, strict=True) if results else ([], [], [], [])
    indices, returns, lengths, starts = map(np.array, columns)
    return indices, returns, lengths, starts

"""A compact replay buffer as a file: its parts, and the options that it was built with."""

from typing import Any, BinaryIO

import numpy as np

from medqn_tianshou.files.container import Container, Format, write_container
from medqn_tianshou.files.generators import State, generator_state, set_generator_state
from medqn_tianshou.replay.columns import TightColumn
from medqn_tianshou.replay.part import Part
from medqn_tianshou.replay.rows import make_rows
from medqn_tianshou.replay.runs import Runs

_LARGEST_STACK = 2**16


class ReplayFileError(ValueError):
    """A file that is no replay buffer, or is damaged."""


FORMAT = Format(name="replay", version=2, noun="replay buffer", error=ReplayFileError)
_require, _count = FORMAT.require, FORMAT.count


def write_replay(
    file: BinaryIO, options: dict[str, Any], generator: State, parts: list[Part]
) -> None:
    """Write a buffer at the file's position, piece by piece.

    :param options: the arguments to build the buffer with, but for the seed.
    :param generator: the state of the buffer's own generator; each part has another one.
    """
    example = parts[0]
    content = {
        "options": options,
        "block_len": next((store.block_len for store in example.stores.values()), 0),
        "rows": {name: [store.dtype.str, store.shape] for name, store in example.stores.items()},
        "columns": {
            name: [column.dtype.str, column.values.shape[1:]]
            for name, column in example.columns.items()
        },
        "generator": generator,
        "parts": [_describe(part) for part in parts],
    }
    stores = [store for part in parts for store in part.stores.values()]
    write_container(file, FORMAT, content, [piece for store in stores for piece in store.pieces()])


def _describe(part: Part) -> dict[str, Any]:
    return {
        "first": part.first,
        "next": part.next,
        "ring": part.ring,
        "run_is_open": part.run_is_open,
        "run_layout": part.runs.layout,
        "runs": part.runs.table,
        "broken": np.array(part.broken, np.int64),
        "episode_return": np.asarray(part.episode_return, float),
        "episode_length": part.episode_length,
        "columns": {name: column.values for name, column in part.columns.items()},
        "first_row": next((store.first for store in part.stores.values()), 0),
        "rows": {name: np.array(store.describe(), np.int64) for name, store in part.stores.items()},
        "generator": generator_state(part._random_state),
    }


def read_replay(file: BinaryIO) -> tuple[dict[str, Any], State, list[Part]]:
    """Read options, generator and parts, as :func:`write_replay` wrote them, up to the file's end.

    :raises ReplayFileError: if it is damaged, or no replay buffer.
    """
    container = Container(file, FORMAT)
    if container.trailing_nbytes:
        raise ReplayFileError("truncated or altered: bytes follow its end")
    with FORMAT.checking():
        content = container.content
        options = content["options"]
        sizes = [_count(options[name]) for name in ("total_size", "buffer_num", "stack_num")]
        total_size, buffer_num, stack_num = sizes
        _require(len(content["parts"]) == buffer_num > 0, "environments")
        _require(0 < stack_num <= _LARGEST_STACK, "stack")
        _require(total_size > 0 and total_size % buffer_num == 0, "size")
        _require(options["max_bytes"] is None or _count(options["max_bytes"]) >= 0, "size")
        types = {
            kind: {name: FORMAT.array_type(*entry) for name, entry in content[kind].items()}
            for kind in ("rows", "columns")
        }
        parts = [Part(total_size // buffer_num, stack_num) for _ in range(buffer_num)]
        for part, fields in zip(parts, content["parts"], strict=True):
            _restore(part, fields, types, _count(content["block_len"]), container)
        container.finish()
        generator = content["generator"]
    return options, generator, parts


def _restore(part: Part, fields: Any, types: Any, block_len: int, container: Container) -> None:
    """Fill a part from a file, and check every number first."""
    set_generator_state(part._random_state, fields["generator"])
    part.first, part.next, part.ring = (_count(fields[name]) for name in ("first", "next", "ring"))
    part.run_is_open = bool(fields["run_is_open"])
    part.broken.extend(fields["broken"].astype(np.int64, casting="safe").tolist())
    returned = fields["episode_return"]
    part.episode_return = returned if returned.ndim else float(returned)
    part.episode_length = _count(fields["episode_length"])
    layout = [_count(number) for number in fields["run_layout"]]
    count, first, _ = layout
    runs = fields["runs"]
    _require(Runs.is_layout(layout) and runs.shape == (count - first, 3), "runs")
    part.runs.restore(runs.astype(np.int64, casting="safe"), layout)
    for name, (dtype, shape, _) in types["columns"].items():
        values = fields["columns"][name]
        _require(values.shape == (part.ring, *shape), "column")
        _require(name != "flags" or not values.size or 0 <= values.min() <= values.max() <= 3, name)
        part.columns[name] = TightColumn(shape, dtype, 0)
        part.columns[name].values = values
    for name, (dtype, shape, nbytes) in types["rows"].items():
        _require(nbytes > 0, "shape")  # or a forged number of empty rows would fill the memory
        store = make_rows(shape, dtype, block_len, part.stack_num)
        store.first = _count(fields["first_row"])
        sizes = [_count(size) for size in fields["rows"][name].tolist()]
        _require(store.restore(sizes, container.take), "block")
        part.stores[name] = store
    _require(part.is_sound(), "bookkeeping")

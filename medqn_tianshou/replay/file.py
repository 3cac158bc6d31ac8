"""A compact replay buffer as a file: its parts, and the options that it was built with."""

from typing import Any, BinaryIO

import numpy as np

from medqn_tianshou.files.container import Container, Format, check_shape, write_container
from medqn_tianshou.files.generators import (
    State,
    check_generator_state,
    generator_state,
    set_generator_state,
)
from medqn_tianshou.files.schema import (
    MOST,
    anything,
    array,
    fields,
    flag,
    items,
    list_of,
    mapping,
    one_of,
    optional,
    text,
    whole,
)
from medqn_tianshou.replay import storage
from medqn_tianshou.replay.columns import TightColumn
from medqn_tianshou.replay.part import TERMINATED, TRUNCATED, Part
from medqn_tianshou.replay.rows import make_rows
from medqn_tianshou.replay.runs import Runs
from medqn_tianshou.replay.trees import belongs_to

MOST_ENVIRONMENTS, MOST_STACKED = 2**14, 2**8
"""The maximum for a buffer, so that a small file cannot allocate much memory."""


class ReplayFileError(ValueError):
    """A file that is no replay buffer, or is damaged."""


FORMAT = Format(name="replay", version=2, noun="replay buffer", error=ReplayFileError)
_require = FORMAT.require

_TYPES = mapping(items(text, check_shape))
_NUMBERS = array(np.int64, None, at_least=0, at_most=MOST)
_PART = fields(
    {
        **dict.fromkeys(("first", "next", "ring", "first_row", "episode_length"), whole()),
        "run_is_open": flag,
        "run_layout": list_of(whole(), 3),
        "runs": array(np.int64, None, 3, at_least=0, at_most=MOST),
        "broken": _NUMBERS,
        "episode_return": anything,  # like a reward
        "columns": mapping(anything),
        "rows": mapping(_NUMBERS),
        "generator": check_generator_state,
    }
)
_HEADER = fields(
    {
        "options": fields(
            {
                "total_size": whole(1),
                "buffer_num": whole(1, MOST_ENVIRONMENTS),
                "stack_num": whole(1, MOST_STACKED),
                **dict.fromkeys(("ignore_obs_next", "save_only_last_obs", "sample_avail"), flag),
                "max_bytes": optional(whole()),
                "keep": list_of(one_of("info", "policy"), at_most=2),
            }
        ),
        "block_len": whole(),
        "rows": _TYPES,
        "columns": _TYPES,
        "generator": check_generator_state,
        "parts": list_of(_PART),
    }
)
"""The schema of a header; relations between parts are checked when they are restored."""


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
        _HEADER(content)
        options, parts_saved = content["options"], content["parts"]
        total_size, buffer_num = options["total_size"], options["buffer_num"]
        _require(len(parts_saved) == buffer_num, "environments")
        _require(total_size % buffer_num == 0, "size")
        types = {
            kind: {name: FORMAT.array_type(*entry) for name, entry in content[kind].items()}
            for kind in ("rows", "columns")
        }
        _check_types(types, content["block_len"])
        parts = [Part(total_size // buffer_num, options["stack_num"]) for _ in range(buffer_num)]
        for part, saved in zip(parts, parts_saved, strict=True):
            _restore(part, saved, types, content["block_len"], container)
        container.finish()
    return options, content["generator"], parts


def _check_types(types: Any, block_len: int) -> None:
    """Check what is stored: nothing yet, or rows and columns of transitions."""
    rows, columns = types["rows"], types["columns"]
    _require(bool(rows) == bool(columns), "columns")
    if not rows:
        return
    _require(columns.get("flags") == (np.dtype(np.uint8), (), 1), "columns")
    _require(columns.get("rew", (None,))[0] == np.float64, "columns")
    _require(all(dtype.kind != "c" for dtype, *_ in columns.values()), "columns")
    _require(any(belongs_to(name, "act") for name in columns), "columns")
    # A row without bytes, or a longer block, would take memory that the file does not have.
    _require(all(nbytes > 0 for *_, nbytes in rows.values()), "shape")
    encoded = any(dtype == np.uint8 for dtype, *_ in rows.values())
    most = storage.FRAMES_PER_BLOCK if encoded else storage.MOST_ROWS_PER_BLOCK
    _require(0 < block_len <= most, "block")


def _restore(part: Part, saved: Any, types: Any, block_len: int, container: Container) -> None:
    """Fill a part from a file, and check every number first."""
    set_generator_state(part._random_state, saved["generator"])
    part.first, part.next, part.ring = (saved[name] for name in ("first", "next", "ring"))
    _require((part.ring > 0) == bool(types["columns"]), "ring")
    part.run_is_open = saved["run_is_open"]
    part.broken.extend(saved["broken"].tolist())
    returned = saved["episode_return"]
    part.episode_return = returned if returned.ndim else float(returned)
    part.episode_length = saved["episode_length"]
    layout, runs = saved["run_layout"], saved["runs"]
    _require(Runs.is_layout(layout) and len(runs) == layout[0] - layout[1], "runs")
    part.runs.restore(runs, layout)
    _require(saved["columns"].keys() == types["columns"].keys(), "columns")
    for name, (dtype, shape, _) in types["columns"].items():
        values = saved["columns"][name]
        _require(values.shape == (part.ring, *shape), "column")
        _require(np.can_cast(values.dtype, dtype, "safe"), "column")
        _require(name != "flags" or values.max() < TERMINATED + TRUNCATED + 1, "flags")
        part.columns[name] = TightColumn(shape, dtype, 0)
        part.columns[name].values = values
    _require(returned.shape in ((), types["columns"].get("rew", ((), ()))[1]), "return")
    _require(saved["rows"].keys() == types["rows"].keys(), "rows")
    for name, (dtype, shape, _) in types["rows"].items():
        store = make_rows(shape, dtype, block_len, part.stack_num)
        store.first = saved["first_row"]
        _require(store.restore(saved["rows"][name].tolist(), container.take), "block")
        part.stores[name] = store
    _require(part.is_sound(), "bookkeeping")

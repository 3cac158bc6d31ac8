"""Forges files: changes one field of the header, or one number of an array, of a valid file.

The digest of the file is right again afterwards: only what the reader checks can refuse it.
"""

import hashlib
import json
import random
import struct
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np

_PRELUDE = struct.Struct("<16sQQ")
_DIGEST_NBYTES = 32
Path = tuple[Any, ...]

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 5, 100, 1000, -1000, 2**31, 2**40, 2**63, 10**60, 0.5, -1.5,
    1e300, float("nan"), float("inf"), "", "x", "../../x", "<b>x</b>", [], [0], [[]], {}, {"x": 0},
    {"__array__": 0},
)  # fmt: skip
"""What a field is replaced by."""
_NUMBERS = (0, 1, -1, 7, 200, 1000, 2**20, 2**31 - 1, -(2**31), 2**62)
_FLOATS = (-1.0, 1e30, -1e300, float("nan"), float("inf"))


def mutate_json(tree: Any, rng: random.Random) -> tuple[Any, str]:
    """Change one field of a tree; return the new tree, and what has changed."""
    tree = deepcopy(tree)
    places: dict[Path, list[Path]] = {}
    for path in _paths(tree):
        # One kind of field for all items of a list: otherwise long lists would get most changes.
        kind = tuple("*" if isinstance(key, int) else key for key in path)
        places.setdefault(kind, []).append(path)
    *way, last = rng.choice(places[rng.choice(sorted(places, key=str))])
    node = tree
    for key in way:
        node = node[key]
    old = node[last]
    numeric = type(old) in (int, float)
    acts = ["replace"] * 4 + ["remove", "repeat"] + ["nudge"] * 2 * numeric
    act = rng.choice(acts)
    if act == "remove":
        del node[last]
    elif act == "repeat":
        node[f"{last}2" if isinstance(node, dict) else slice(0, 0)] = (
            deepcopy(old) if isinstance(node, dict) else [deepcopy(old)]
        )
    else:
        nudged = [old + 1, old - 1, -old, 2 * old] if act == "nudge" else VALUES
        node[last] = deepcopy(rng.choice(nudged))
    now = "" if act in ("remove", "repeat") else f" = {node[last]!r}"
    return tree, f"{act} {'.'.join(map(str, (*way, last)))}{now}"


def _paths(tree: Any) -> Iterator[Path]:
    keys = tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ()
    for key in keys:
        yield (key,)
        for rest in _paths(tree[key]):
            yield (key, *rest)


def mutate_container(
    data: bytes, rng: random.Random, *, spare: frozenset[str] = frozenset()
) -> tuple[bytes, str]:
    """Change a container in one place; return its bytes with a right digest, and what has changed.

    :param data: the container, and nothing behind it.
    :param spare: names of arrays whose numbers stay.
    """
    magic, header_nbytes, _ = _PRELUDE.unpack_from(data)
    start = _PRELUDE.size + header_nbytes
    header = json.loads(data[_PRELUDE.size : start])
    payload = data[start:-_DIGEST_NBYTES]
    if rng.random() < 0.25 and header["arrays"]:
        payload, what = _mutate_array(header, payload, rng, spare)
    else:
        header, what = mutate_json(header, rng)
    text = json.dumps(header).encode()
    body = _PRELUDE.pack(magic, len(text), len(payload)) + text + payload
    return body + hashlib.blake2b(body, digest_size=_DIGEST_NBYTES).digest(), what


def _mutate_array(
    header: Any, payload: bytes, rng: random.Random, spare: frozenset[str]
) -> tuple[bytes, str]:
    """Change a number of an array."""
    names = {
        path[-1]: path[:-1]
        for path in (
            (*path[1:], _get(header, path)) for path in _paths(header) if path[-1] == "__array__"
        )
    }
    sizes = [np.dtype(dtype).itemsize * int(np.prod(shape)) for dtype, shape in header["arrays"]]
    chosen = [n for n in names if sizes[n] and not spare & set(map(str, names[n]))]
    if not chosen:
        return payload, "nothing"
    number = rng.choice(chosen)
    dtype, at = np.dtype(header["arrays"][number][0]), sum(sizes[:number])
    array = np.frombuffer(payload[at : at + sizes[number]], dtype).copy()
    values = _NUMBERS + _FLOATS if dtype.kind == "f" else _NUMBERS
    place, value = rng.randrange(len(array)), rng.choice(values)
    array[place] = np.array(value).astype(dtype)
    way = ".".join(map(str, names[number][:-1]))
    changed = payload[:at] + array.tobytes() + payload[at + sizes[number] :]
    return changed, f"{way}[{place}] = {array[place]}"


def _get(tree: Any, path: Path) -> Any:
    for key in path:
        tree = tree[key]
    return tree


def split_containers(data: bytes) -> list[bytes]:
    """Split a file into the containers in it."""
    containers = []
    while data:
        _, header_nbytes, payload_nbytes = _PRELUDE.unpack_from(data)
        end = _PRELUDE.size + header_nbytes + payload_nbytes + _DIGEST_NBYTES
        containers.append(data[:end])
        data = data[end:]
    return containers

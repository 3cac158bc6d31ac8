"""Schemas: what fits is silent, what does not is named with its place."""

import numpy as np
import pytest

from medqn_tianshou.files import schema as s

SCHEMA = s.fields(
    {
        "count": s.whole(1, 9),
        "share": s.number(0, 1),
        "kind": s.one_of("a", "b"),
        "flag": s.flag,
        "maybe": s.optional(s.text),
        "list": s.list_of(s.whole(), 2),
        "pair": s.items(s.text, s.whole()),
        "names": s.mapping(s.whole()),
        "array": s.array(np.int64, None, 2, at_least=0, at_most=5),
    },
    others=("extra",),
)
SOUND = {
    "count": 3,
    "share": 0.5,
    "kind": "a",
    "flag": True,
    "maybe": None,
    "list": [1, 2],
    "pair": ["x", 1],
    "names": {"x": 1},
    "array": np.array([[0, 5]]),
}


def test_what_fits_is_silent():
    SCHEMA(SOUND)
    SCHEMA({**SOUND, "extra": object(), "maybe": "text", "share": 1})


@pytest.mark.parametrize(
    ("name", "value", "where"),
    [
        *(("count", value, "count") for value in (0, 10, 2.0, True, "3", None, 10**400)),
        *(("share", value, "share") for value in (-0.1, float("nan"), float("inf"), "x", 10**400)),
        *(("kind", value, "kind") for value in ("c", None, ["a"])),
        *(("flag", value, "flag") for value in (0, 1, "yes")),
        ("maybe", 3, "maybe"),
        *(("list", value, "list") for value in ([1], [1, 2, 3], (1, 2), "ab", {})),
        ("list", [1, -1], "list.1"),
        ("pair", ["x", "y"], "pair.1"),
        ("names", {"x": -1}, "names.x"),
        ("array", [[0, 5]], "array"),
        ("array", np.array([[0, 6]]), "array"),
        ("array", np.array([[0, -1]]), "array"),
        ("array", np.array([[0.0, 1.0]]), "array"),
        ("array", np.array([0, 1]), "array"),
        ("unknown", 1, "has unknown"),
    ],
)
def test_what_does_not_fit_is_named(name, value, where):
    with pytest.raises(s.MisfitError) as info:
        SCHEMA({**SOUND, name: value})
    assert str(info.value).startswith(where)
    assert len(str(info.value)) < 120


def test_a_missing_field_and_another_kind_of_value_are_named():
    with pytest.raises(s.MisfitError, match="lacks count"):
        SCHEMA({name: value for name, value in SOUND.items() if name != "count"})
    for other in (None, [], 3, "text"):
        with pytest.raises(s.MisfitError):
            SCHEMA(other)


def test_an_array_that_is_not_finite_is_refused():
    check = s.array(np.float32, 2, at_least=-1e30, at_most=1e30)
    check(np.zeros(2, np.float32))
    for value in (np.nan, np.inf, -np.inf):
        with pytest.raises(s.MisfitError):
            check(np.array([0, value], np.float32))

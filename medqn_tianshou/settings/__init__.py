"""The experiments' settings as data: one TOML file per family, each value with its source.

A file holds ``[common]`` values, then ``[algo.<algorithm>]`` values that win over them, then
``[task.<task>.<algorithm>]`` values that win over both.
"""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class Setting:
    """A value and where it comes from: a key of the file's ``[sources]``, or ``flag``."""

    value: Any
    source: str


@cache
def load_settings(family: str) -> dict[str, Any]:
    """Read a family's file.

    :param family: ``"atari"``.
    """
    return tomllib.loads(resources.files(__name__).joinpath(f"{family}.toml").read_text())


def resolve_settings(
    family: str, *, algo: str, task: str, flags: dict[str, Any] | None = None
) -> dict[str, Setting]:
    """Settle every setting of a run.

    :param family: which file to read.
    :param algo: the algorithm.
    :param task: the task; one the file does not name gets the algorithm's values.
    :param flags: values given by hand, which win; None is "not given".
    """
    data = load_settings(family)
    resolved: dict[str, Setting] = {}
    for table in (
        data["common"],
        data["algo"][algo],
        data.get("task", {}).get(task, {}).get(algo, {}),
    ):
        resolved.update({name: Setting(**entry) for name, entry in table.items()})
    for name, value in (flags or {}).items():
        if value is not None:
            resolved[name] = Setting(value, "flag")
    return resolved


def describe_default(family: str, name: str) -> str:
    """Say in a few words what a setting's default is, for ``--help``.

    :param family: which file to read.
    :param name: the setting.
    """
    data = load_settings(family)
    if name in data["common"]:
        entry = data["common"][name]
        return f"{entry['value']:,} ({entry['source']})".replace(",", "_")
    parts = [
        f"{algo} {table[name]['value']:,}".replace(",", "_")
        for algo, table in data["algo"].items()
        if name in table
    ]
    for task, algos in data.get("task", {}).items():
        parts += [
            f"{task.removesuffix('NoFrameskip-v4')} {table[name]['value']:,}"
            for table in algos.values()
            if name in table
        ]
    return ", ".join(parts)

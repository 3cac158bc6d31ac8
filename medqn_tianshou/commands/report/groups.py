"""Groups of runs with the same task and settings but different seeds, and their labels."""

import json
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from medqn_tianshou.commands.report.runs import LeftOut, RecordedRun

Groups = dict[tuple[str, str], list[RecordedRun]]
"""Runs by task and label."""

_ORDER = (
    "MeDQN(U)",
    "MeDQN(R)",
    "MeDQN(mixed)",
    "MeDQN(reservoir)",
    "DQN",
    "DQN(S)",
    "PQN",
    "Stream-Q",
)
_Item = TypeVar("_Item")
_Key = TypeVar("_Key", bound=Hashable)


def group_runs(runs: Sequence[RecordedRun]) -> tuple[Groups, list[LeftOut]]:
    """Sort runs by task and label; list the runs that are there twice.

    Settings that differ between runs of an algorithm on one task make different groups. A label
    names those of them that were given as a flag, or all where that is not enough. A setting that
    some runs do not have, because they are older than it, makes no difference.
    """
    groups: Groups = {}
    for algorithm, of_algorithm in _by(runs, lambda run: run.algorithm).items():
        tasks = _by(of_algorithm, lambda run: run.task)
        # Over all tasks, so that one setting has one label in all of them.
        differing = sorted({name for of_task in tasks.values() for name in _differing(of_task)})
        for task, of_task in tasks.items():
            own = _differing(of_task)
            parts = list(_by(of_task, partial(_values, names=own)).values())
            labels = [_label(algorithm, part, _flags(part, differing)) for part in parts]
            if len(set(labels)) < len(labels):
                labels = [_label(algorithm, part, own) for part in parts]
            for label, part in zip(labels, parts, strict=True):
                groups[task, label] = part
    left_out = []
    for key, group in groups.items():
        groups[key], twice = _newest_of_each_seed(group)
        left_out += twice
    return dict(sorted(groups.items(), key=lambda item: _rank(*item))), left_out


def labels_of(groups: Groups) -> list[str]:
    """Return all labels, in order."""
    found = {label: runs for (_, label), runs in groups.items()}
    return sorted(found, key=lambda label: _rank(("", label), found[label]))


def _rank(key: tuple[str, str], runs: Sequence[RecordedRun]) -> tuple[Any, ...]:
    task, label = key
    order = (*_ORDER, runs[0].algorithm)  # others come last
    return task, order.index(runs[0].algorithm), len(label), label


def _by(items: Iterable[_Item], key: Callable[[_Item], _Key]) -> dict[_Key, list[_Item]]:
    found: dict[_Key, list[_Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def _differing(runs: Sequence[RecordedRun]) -> list[str]:
    """Name the settings that all runs have, and not all the same."""
    common = set.intersection(*(set(run.settings) for run in runs))
    return sorted(name for name in common if len({_values(run, [name]) for run in runs}) > 1)


def _values(run: RecordedRun, names: Sequence[str]) -> str:
    values = map(run.value, names)
    # 5 and 5.0 are the same setting, as a file and a flag write it.
    return json.dumps([float(value) if type(value) is int else value for value in values])


def _flags(runs: Sequence[RecordedRun], names: Sequence[str]) -> list[str]:
    """Return the settings that each run was given by a flag; others have their defaults."""
    return [
        name
        for name in names
        if all(name in run.settings and run.settings[name].source == "flag" for run in runs)
    ]


def _label(algorithm: str, runs: Sequence[RecordedRun], names: Sequence[str]) -> str:
    parts = [f"{name.replace('_', ' ')} {_write(runs[0].value(name))}" for name in names]
    return f"{algorithm} ({', '.join(parts)})" if parts else algorithm


def _write(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, list):
        return "x".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value)


def _newest_of_each_seed(runs: Sequence[RecordedRun]) -> tuple[list[RecordedRun], list[LeftOut]]:
    """Keep one run of each seed: duplicates would make intervals too narrow."""
    kept, left_out = [], []
    for same in _by(runs, lambda run: run.seed).values():
        *older, newest = sorted(same, key=lambda run: (run.started, run.name))
        kept.append(newest)
        reason = f"has the settings and the seed of {newest.name}, which is newer"
        left_out += [LeftOut(run.name, reason) for run in older]
    return sorted(kept, key=lambda run: run.seed), left_out

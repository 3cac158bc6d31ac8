"""Reads the settings files, and resolves the settings of a run from them."""

import difflib
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, TypeVar

from medqn_tianshou.training.errors import ConfigError
from medqn_tianshou.training.fields import CONSOLIDATION, field_specs
from medqn_tianshou.training.settings import REPLAY_FREE, Setting, Settings, TrainingSettings

S = TypeVar("S", bound=TrainingSettings)


_WITHOUT_REPLAY = {
    "steps", "lr", "gamma", "max_episode_steps", "return_window", "eps_train", "eps_train_final",
    "eps_decay_steps", "threads", "hidden_sizes", "seaquest_oxygen",
}  # fmt: skip
_OF_REPLAY_FREE = {"pqn": {*_WITHOUT_REPLAY, "max_grad_norm"}, "stream-q": _WITHOUT_REPLAY}
"""The settings that algorithms without replay follow."""


@cache
def load_settings(name: str) -> dict[str, Any]:
    """Read a file by its name without its ending, e.g. ``"atari"``."""
    return tomllib.loads(resources.files(__package__).joinpath(f"{name}.toml").read_text())


def algorithms(family: str) -> list[str]:
    """List the algorithms of a family; the first is the default."""
    return list(load_settings(family)["algo"])


def resolve_settings(
    settings_class: type[S],
    *,
    task: str | None = None,
    algo: str | None = None,
    seed: int = 0,
    overrides: Mapping[str, Any] | None = None,
) -> S:
    """Look up the settings of a run.

    :param task: None is the family's first; likewise the algorithm.
    :param overrides: values given by hand, which win over those of the file.
    :raises ConfigError: if a value does not fit.
    """
    family = settings_class.family
    overrides = settings_class.expand(_checked(settings_class, overrides or {}))
    data, known = load_settings(family), algorithms(family)
    task = settings_class.canonical_task(task or settings_class.default_task, list(data["task"]))
    algo = settings_class.other_algorithm_names.get(algo or known[0], algo or known[0])
    if algo not in known:
        raise ConfigError("algo", algo, f"is unknown; choose from {', '.join(known)}")
    settings_class.check_task(task, list(data["task"]))
    of_task = data["task"].get(task, {})
    found: Settings = {}
    for table in (data["common"], data["algo"][algo], of_task.get("common"), of_task.get(algo)):
        found.update({name: Setting(**entry) for name, entry in (table or {}).items()})
    found.update({name: Setting(value, "flag") for name, value in overrides.items()})
    for name, setting in found.items():
        if str(setting.value).endswith("%"):  # a share of the run
            share = int(setting.value.rstrip("%")) / 100
            value = max(round(share * found["steps"].value), 1)
            found[name] = Setting(value, setting.source)
    derived = settings_class.derive({name: setting.value for name, setting in found.items()})
    found = {name: Setting(value, "derived") for name, value in derived.items()} | found
    _check_consolidation(settings_class, algo, overrides)
    if algo in REPLAY_FREE:
        for name in sorted(overrides.keys() - _OF_REPLAY_FREE[algo]):
            remedy = f"has no effect with --algo {algo}; leave it out"
            raise ConfigError(name, overrides[name], remedy)
    return settings_class(
        task=task,
        algo=algo,
        seed=seed,
        sources={name: setting.source for name, setting in found.items()},
        **{name: as_setting(setting.value) for name, setting in found.items()},
    )


def _checked(
    settings_class: type[TrainingSettings], overrides: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Check names and values given by hand, before others are derived from them."""
    specs = field_specs(settings_class.shorthands) | field_specs(settings_class)
    for name, value in overrides.items():
        if name not in specs:
            near = nearest(name, list(specs)) or "a field of " + settings_class.__name__
            raise ConfigError(name, value, f"is not a setting; did you mean {near}?")
        specs[name].check(as_setting(value))
    return overrides


def _check_consolidation(
    settings_class: type[TrainingSettings], algo: str, overrides: Mapping[str, Any]
) -> None:
    """Refuse settings of the consolidation for an algorithm that has none."""
    algos = load_settings(settings_class.family)["algo"]
    consolidating = [name for name in algos if algos[name]["lambda_start"]["value"] > 0]
    if algo in consolidating:
        return
    for name, value in sorted(overrides.items()):
        flag = field_specs(settings_class)[name].flag
        if flag is not None and flag.group == CONSOLIDATION and value != 0:
            remedy = f"has no effect with --algo {algo}; use --algo {' or '.join(consolidating)}"
            raise ConfigError(name, value, remedy)


def as_setting(value: Any) -> Any:
    """Return a value of a TOML or JSON file as settings have it: with tuples for lists."""
    return tuple(value) if isinstance(value, list) else value


def nearest(name: str, known: list[str]) -> str | None:
    """Find the known name nearest to a misspelt one."""
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=0.4)), None)


def describe_default(family: str, name: str) -> str:
    """Describe a setting's default in a few words, for ``--help``."""
    data = load_settings(family)
    tables = {"": data["common"], **data["algo"]}
    for task, algos in data["task"].items():
        game = task.removesuffix("NoFrameskip-v4")
        tables |= {game if algo == "common" else f"{game} {algo}": algos[algo] for algo in algos}
    found = [(where, table[name]) for where, table in tables.items() if name in table]
    if len(found) > 8:
        return f"by task and algorithm, see medqn_tianshou/experiments/settings/{family}.toml"
    if len(found) == 1:
        ((where, entry),) = found
        return f"{where} {_write(entry['value'])} ({entry['source']})".strip()
    return ", ".join(f"{where} {_write(entry['value'])}".strip() for where, entry in found)


def _write(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:_}" if isinstance(value, int) else str(value)

"""The experiments' settings as data: one TOML file per family, each value with its source.

A file holds values for all runs of the family in ``[common]``, and, each winning over those before,
values of an algorithm (``[algo.<algo>]``), a task (``[task.<task>.common]``) and both
(``[task.<task>.<algo>]``). Its ``[sources]`` say what each source means.
"""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import SimpleNamespace
from typing import Any


@dataclass(frozen=True)
class Setting:
    """A value and where it comes from: a key of ``[sources]``, ``flag`` or ``derived``."""

    value: Any
    source: str


Settings = dict[str, Setting]


@cache
def load_settings(family: str) -> dict[str, Any]:
    """Read a family's file.

    :param family: the file's name without its ending, e.g. ``"atari"``.
    """
    return tomllib.loads(resources.files(__name__).joinpath(f"{family}.toml").read_text())


def resolve_settings(
    family: str, *, algo: str, task: str, flags: dict[str, Any] | None = None
) -> Settings:
    """Settle the settings of a run.

    :param family: which file to read.
    :param algo: the algorithm.
    :param task: the task; one the file does not name gets the algorithm's values.
    :param flags: values given by hand, which win; None is "not given".
    """
    data = load_settings(family)
    of_task = data["task"].get(task, {})
    settings: Settings = {}
    for table in (data["common"], data["algo"][algo], of_task.get("common"), of_task.get(algo)):
        settings.update({name: Setting(**entry) for name, entry in (table or {}).items()})
    for name, value in (flags or {}).items():
        if value is not None:
            settings[name] = Setting(value, "flag")
    return settings


def setting_values(settings: Settings) -> SimpleNamespace:
    """Return the bare values as attributes."""
    return SimpleNamespace(**{name: setting.value for name, setting in settings.items()})


def describe_default(family: str, name: str) -> str:
    """Say in a few words what a setting's default is, for ``--help``.

    :param family: which file to read.
    :param name: the setting.
    """
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

"""The ``config.json`` of a run folder, and how to find a run by its settings."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from medqn_tianshou.files.schema import (
    MisfitError,
    check_at,
    fields,
    list_of,
    mapping,
    number,
    one_of,
    optional,
    require,
    text,
    whole,
)
from medqn_tianshou.training.settings import NAMES, Setting, Settings


def _setting_value(value: Any) -> None:
    """Allow what JSON has for a setting: a number, a text, a flag, nothing, or a short list."""
    if isinstance(value, list):
        list_of(_setting_value, at_most=100)(value)
    elif isinstance(value, float):
        number()(value)
    else:
        require(value is None or isinstance(value, bool | int | str), value)


def _hardware(value: Any) -> None:
    require(isinstance(value, dict), value)
    check_at("torch_threads", optional(whole(1, 1024)), value.get("torch_threads"))


_CONFIG = fields(
    {
        "family": optional(text),
        "task": text,
        "algo": text,
        "seed": whole(),
        "settings": mapping(fields({"value": _setting_value, "source": text})),
        "arguments": optional(list_of(text)),
        "hardware": optional(_hardware),
    },
    others=None,
)
_OPTIONAL = {"family": None, "arguments": None, "seed": 0, "hardware": None}
_FIGURE = optional(number())
check_summary = fields(
    {
        "status": one_of("finished", "interrupted", "failed"),
        "env_steps": whole(),
        **dict.fromkeys(("final_return", "steps_per_s", "peak_rss_mb", "buffer_mb"), _FIGURE),
    },
    others=None,
)
"""Raises MisfitError for what is not the content of a ``summary.json``."""


EARLIER_ALGORITHMS = {"medqn": "medqn-r"}
"""Names in the files of earlier versions: Atari's algorithm."""
_ADDED = {"lambda_schedule": "linear", "head": "dqn"}
"""Settings that earlier versions did not write, and what they stand for there."""
_EARLIER_FOLDERS = {"medqn-r": "medqn-real"}


class RunConfigError(ValueError):
    """A folder without a readable ``config.json``; the message is the reason."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """The description of a run in its folder.

    :param family: None in run folders of versions that did not write it.
    :param arguments: the command line; None if the run was started from Python.
    """

    family: str | None
    task: str
    algo: str
    seed: int
    settings: Settings
    arguments: tuple[str, ...] | None
    torch_threads: int | None = None
    """What the run began with; None in run folders of versions that did not write it."""

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Check the content of a ``config.json``.

        :raises RunConfigError: if it is not a run's.
        """
        try:
            _CONFIG({**_OPTIONAL, **content})
        except (MisfitError, TypeError) as error:
            raise RunConfigError(
                f"has a config.json that this version cannot read ({error}); name another run"
            ) from error
        arguments = content.get("arguments")
        return cls(
            family=content.get("family"),
            task=content["task"],
            algo=EARLIER_ALGORITHMS.get(content["algo"], content["algo"]),
            seed=content.get("seed", 0),
            settings={name: Setting(**entry) for name, entry in content["settings"].items()},
            arguments=None if arguments is None else tuple(arguments),
            torch_threads=(content.get("hardware") or {}).get("torch_threads"),
        )

    @property
    def identity(self) -> dict[str, Any]:
        """The identity of a run: its names and all values."""
        values = {name: setting.value for name, setting in self.settings.items()}
        return {**{name: getattr(self, name) for name in NAMES}, **values}

    def difference(self, identity: Mapping[str, Any]) -> str | None:
        """Name a value in which the run differs from another identity, if there is one."""
        return difference(self.identity, identity)


def difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    """Name a value in which two identities differ, if there is one."""
    for name in sorted(found.keys() | wanted.keys()):
        value = found.get(name, _ADDED.get(name))
        if name == "algo":
            value = EARLIER_ALGORITHMS.get(str(value), value)
        if value != wanted.get(name):
            return f"{name} was {found.get(name)}, not {wanted.get(name)}"
    return None


def read_config(folder: Path) -> RunConfig:
    """Read the ``config.json`` of a run folder.

    :raises RunConfigError: if there is none, or none that can be read.
    """
    try:
        content = json.loads((folder / "config.json").read_text())
    except OSError as error:
        raise RunConfigError(
            f"is not a run folder: no readable config.json ({error.strerror or error}); name one"
        ) from error
    except (ValueError, RecursionError) as error:
        raise RunConfigError("has no readable config.json; name another run") from error
    return RunConfig.from_json(content)


def find_runs(parent: Path, identity: Mapping[str, Any]) -> Iterator[Path]:
    """Find the runs with an identity, newest first.

    :param parent: the folder of the runs with this task, algorithm and seed.
    """
    algorithm = parent.parent
    earlier = algorithm.with_name(_EARLIER_FOLDERS.get(algorithm.name, algorithm.name))
    folders = {parent, earlier / parent.name}
    configs = [config for folder in folders for config in folder.glob("*/config.json")]
    for path in sorted(configs, key=lambda config: config.parent.name, reverse=True):
        try:
            if read_config(path.parent).difference(identity) is None:
                yield path.parent
        except RunConfigError:
            continue


def is_finished(folder: Path) -> bool:
    """Whether a run has finished."""
    try:
        summary = json.loads((folder / "summary.json").read_text())
        check_summary(summary)
    except (OSError, ValueError, RecursionError):
        return False
    return bool(summary["status"] == "finished")

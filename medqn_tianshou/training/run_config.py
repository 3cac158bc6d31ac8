"""The ``config.json`` of a run folder, and how to find a run by its settings."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from medqn_tianshou.training.settings import NAMES, Setting, Settings

# What a damaged or foreign file may raise while it is read.
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, RecursionError)


class RunConfigError(ValueError):
    """A folder without a readable ``config.json``; the text says why."""


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """What a run folder says of its run.

    :param family: None in run folders of versions that did not write it.
    :param arguments: the command line; None if the run was started from Python.
    """

    family: str | None
    task: str
    algo: str
    seed: int
    settings: Settings
    arguments: tuple[str, ...] | None

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Check the content of a ``config.json``.

        :raises RunConfigError: if it is not a run's.
        """
        try:
            family, arguments = content.get("family"), content.get("arguments")
            texts = (content["task"], content["algo"], family or "", *(arguments or ()))
            if not all(isinstance(text, str) for text in texts):
                raise TypeError("a name that is not a text")
            return cls(
                family=family,
                task=content["task"],
                algo=content["algo"],
                seed=int(content.get("seed", 0)),
                settings={name: Setting(**entry) for name, entry in content["settings"].items()},
                arguments=None if arguments is None else tuple(arguments),
            )
        except _UNREADABLE as error:
            reason = f"{type(error).__name__}: {error}"
            raise RunConfigError(
                f"has a config.json that this version cannot read ({reason}); name another run"
            ) from error

    @property
    def identity(self) -> dict[str, Any]:
        """What makes a run this run: its names and all values."""
        values = {name: setting.value for name, setting in self.settings.items()}
        return {**{name: getattr(self, name) for name in NAMES}, **values}

    def difference(self, identity: Mapping[str, Any]) -> str | None:
        """Name a value in which the run differs from another identity, if there is one."""
        return difference(self.identity, identity)


def difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    """Name a value in which two identities differ, if there is one."""
    for name in sorted(found.keys() | wanted.keys()):
        if found.get(name) != wanted.get(name):
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
    for path in sorted(parent.glob("*/config.json"), reverse=True):
        try:
            if read_config(path.parent).difference(identity) is None:
                yield path.parent
        except RunConfigError:
            continue


def is_finished(folder: Path) -> bool:
    """Whether a run has finished."""
    try:
        return bool(json.loads((folder / "summary.json").read_text())["status"] == "finished")
    except (OSError, ValueError, LookupError, TypeError):
        return False

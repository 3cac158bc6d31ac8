"""Finds the runs that a user means by a folder such as ``log`` or by a task."""

from collections.abc import Callable
from pathlib import Path

from medqn_tianshou.envs.registration import task_key

LOGDIR = Path("log")


def find_folders(name: Path, logdir: Path = LOGDIR) -> list[Path]:
    """Return the folders of a name: the one that exists, or those of a task of any spelling.

    :param logdir: the folder with a folder per task.
    :return: the name itself where there is none.
    """
    if name.exists():
        return [name]
    if (logdir / name).is_dir():
        return [logdir / name]
    key = task_key(str(name))
    found = [
        folder for folder in logdir.glob("*") if folder.is_dir() and key == task_key(folder.name)
    ]
    return found or [name]


def newest_run(name: Path, is_meant: Callable[[Path], bool], logdir: Path = LOGDIR) -> Path | None:
    """Return the newest of the runs of a name; a run folder or a file is returned as it is.

    :param is_meant: whether a run folder is one of those to choose from.
    """
    if name.is_file() or (name / "config.json").exists():
        return name
    places = find_folders(name, logdir)
    runs = [config.parent for place in places for config in place.rglob("config.json")]
    return max(filter(is_meant, runs), key=lambda run: run.name, default=None)  # named by time

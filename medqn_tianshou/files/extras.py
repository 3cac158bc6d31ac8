"""Commands to print for the user, also for environments that are not activated."""

import os
import shutil
import sys
from pathlib import Path

_CLONE = Path(__file__).parents[2]


def installed_command(name: str) -> str:
    """Return how to type a command of this Python's environment, which may not be activated."""
    beside = Path(sys.executable).with_name(name)
    found = shutil.which(name)
    if not beside.exists() or (found is not None and Path(found).samefile(beside)):
        return name
    return _shortest(beside)


def install_command(extra: str) -> str:
    """Return the command that installs what an extra of this package needs."""
    is_clone = (_CLONE / "pyproject.toml").exists()
    package = f"-e '{_shortest(_CLONE)}[{extra}]'" if is_clone else f"'medqn-tianshou[{extra}]'"
    return f"{installed_command('pip')} install {package}"


def _shortest(path: Path) -> str:
    relative = os.path.relpath(path)
    return str(path) if relative.startswith("..") else relative

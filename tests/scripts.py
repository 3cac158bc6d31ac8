"""Loads the scripts, which are files and not modules of the package."""

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def load_script(path):
    """Import a script of the repository by its path."""
    name = Path(path).stem
    if name not in sys.modules:
        # Scripts of one folder import each other, as when they are run.
        sys.path.append(str((ROOT / path).parent))
        spec = importlib.util.spec_from_file_location(name, ROOT / path)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]

"""Loads the scripts, which are files and not modules of the package, and lists the commands."""

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


def words_of(command, prog="medqn"):
    """List what may follow each command, from one on: the names of commands, or flags."""
    if command.module is not None:
        actions = command.make_parser(prog)._actions
        words = [word for a in actions for word in a.option_strings or map(str, a.choices or ())]
        return {prog: [word for word in words if not word.startswith("-") or word[:2] == "--"]}
    words = {prog: [*command.commands, "--help", *(["--version"] if prog == "medqn" else [])]}
    for name, inner in command.commands.items():
        words |= words_of(inner, f"{prog} {name}")
    return words

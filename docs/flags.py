#!/usr/bin/env python
"""Write docs/flags.md from the command lines of `medqn train`.

Run it as ``python docs/flags.py``.
"""

import argparse
import re
from pathlib import Path

from medqn_tianshou.commands.flags import make_train_parser
from medqn_tianshou.experiments.settings import SETTINGS_CLASSES

PAGE = Path(__file__).with_name("flags.md")
FAMILIES = tuple(SETTINGS_CLASSES)
HEAD = """\
# Flags of `medqn train`

This page lists all flags of `medqn train atari`, `medqn train minatar`, `medqn train lowdim` and
`medqn train gym` with their defaults. `python docs/flags.py` generates it from `--help-all`. A dash
means that the command does not have the flag. The source of a default is in parentheses: the paper,
the authors' released code, Tianshou's example, or our choice.
"""
DEFAULT = re.compile(r" \(default: ((?:[^()]|\([^()]*\))*)\)")


def page() -> str:
    """Write the whole page."""
    groups: dict[str, dict[str, dict[str, argparse.Action]]] = {}  # by group, flag and family
    for family in FAMILIES:
        for group in make_train_parser(family)._action_groups:
            for action in group._group_actions:
                if group.title not in (None, "options"):
                    flags = groups.setdefault(str(group.title), {})
                    flags.setdefault(action.option_strings[0], {})[family] = action
    lines = [HEAD]
    for title, flags in groups.items():
        lines += [
            f"## {title[0].upper()}{title[1:]}\n",
            f"| flag | meaning | {' | '.join(FAMILIES)} |",
            f"|---|---|{'---|' * len(FAMILIES)}",
        ]
        for actions in flags.values():
            cells = [_names(actions), _meaning(actions)]
            cells += [_default(actions.get(family)) for family in FAMILIES]
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def _help(action: argparse.Action) -> str:
    return (action.help or "").replace("%%", "%")


def _names(actions: dict[str, argparse.Action]) -> str:
    """The spellings of a flag; those that only some commands have, with the commands."""
    families: dict[str, list[str]] = {}
    for family, action in actions.items():
        for name in action.option_strings:
            families.setdefault(name, []).append(family)
    return ", ".join(
        f"`{name}`" if len(having) == len(actions) else f"`{name}` ({', '.join(having)})"
        for name, having in families.items()
    )


def _meaning(actions: dict[str, argparse.Action]) -> str:
    """What a flag means, for each command where they differ."""
    families: dict[str, list[str]] = {}
    for family, action in actions.items():
        families.setdefault(DEFAULT.sub("", _help(action)), []).append(family)
    if len(families) == 1:
        return next(iter(families))
    return "; ".join(f"{', '.join(names)}: {text}" for text, names in families.items())


def _default(action: argparse.Action | None) -> str:
    if action is None:
        return "-"
    found = DEFAULT.search(_help(action))
    if found is None:
        return "off" if action.nargs == 0 else "none"
    return re.sub(r"(by task and algorithm), see (\S+)", r"[\1](../\2)", found[1])


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE.name}")

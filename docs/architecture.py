#!/usr/bin/env python
"""Write the generated part of docs/architecture.md: the graph of imports, and sizes of folders.

Run it as ``python docs/architecture.py``. ``tests/project/test_imports.py`` checks the same graph.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = "medqn_tianshou"
FOLDER = Path(__file__).parents[1] / ROOT
PAGE = Path(__file__).with_name("architecture.md")
LAYERS = (
    ("commands",),
    ("experiments",),
    ("training",),
    ("fast", "collecting", "envs"),
    ("host",),
    ("algorithm", "replay"),
    ("files",),
)
"""The layers from top to bottom: a folder imports only itself and folders of lower layers."""
ROOMS = tuple(room for layer in LAYERS for room in layer)


def _dotted(path: Path) -> str:
    parts = path.relative_to(FOLDER.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


MODULES = {_dotted(path): path for path in sorted(FOLDER.rglob("*.py"))}


def imports(module: str) -> Iterator[str]:
    """List the imports of a module, inside functions as well, as dotted names."""
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                is_package = MODULES[module].name == "__init__.py"
                parents = module.split(".")[: len(module.split(".")) - node.level + is_package]
                base = ".".join([*parents, *base.split(".")]).rstrip(".")
            if base == ROOT:
                yield ROOT
            names = [f"{base}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else base for name in names)
        elif isinstance(node, ast.Constant) and node.value in MODULES.keys() - {ROOT}:
            yield node.value  # as for importlib.import_module


def room_of(module: str) -> str | None:
    """Return the folder of a module of ours, None for the root and for other packages."""
    parts = module.split(".")
    return parts[1] if parts[0] == ROOT and len(parts) > 1 and parts[1] in ROOMS else None


def edges() -> set[tuple[str, str]]:
    """Return which folder imports which."""
    pairs = {(room_of(module), room_of(name)) for module in MODULES for name in imports(module)}
    return {(one, other) for one, other in pairs if one and other and one != other}


def house() -> str:
    """Draw the graph, and list the folders with their size."""
    lines = ["```mermaid", "flowchart TD"]
    lines += [f"    {room}" for room in ROOMS]
    lines += [
        f"    {one} --> {other}"
        for one, other in sorted(edges(), key=lambda edge: (*map(ROOMS.index, edge),))
    ]
    lines += ["```", "", "| folder | contents | lines |", "|---|---|---:|"]
    total = 0
    for room in ROOMS:
        about = ast.get_docstring(ast.parse((FOLDER / room / "__init__.py").read_text())) or ""
        count = sum(len(p.read_text().splitlines()) for p in (FOLDER / room).rglob("*.py"))
        total += count
        lines.append(
            f"| `{room}/` | {about.splitlines()[0].replace('``', '`')} | {_rounded(count)} |"
        )
    lines.append(f"| all | | {_rounded(total)} |")
    return "\n".join(lines)


def _rounded(count: int) -> str:
    return f"{max(round(count, -2), 100):,}"


def page() -> str:
    """Return the page with its generated part brought up to date."""
    new = f"<!-- house -->\n{house()}\n<!-- /house -->"
    return re.sub("<!-- house -->.*<!-- /house -->", lambda _: new, PAGE.read_text(), flags=re.S)


if __name__ == "__main__":
    PAGE.write_text(page())

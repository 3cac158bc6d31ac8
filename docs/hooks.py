"""What mkdocs.yml adds to MkDocs: pages from the repository's root, and links out of docs/."""

import posixpath
import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
# Pages that GitHub wants at the root.
ROOT_PAGES = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"(^```.*?^```)", re.DOTALL | re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root."""
    for uri, name in ROOT_PAGES.items():
        files.append(File.generated(config, uri, content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead the links, which are those of the repository, to pages of the site or to the code."""
    uri = page.file.src_uri
    place = ROOT_PAGES.get(uri, f"docs/{uri}")
    pages = {name: uri for uri, name in ROOT_PAGES.items()}

    def lead(found: re.Match[str]) -> str:
        mark, text, link = found.groups()
        target, _, anchor = link.partition("#")
        if not target or re.match(r"[a-z]+:", link):
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
        goal = pages.get(path, path.removeprefix("docs/"))
        file = files.get_file_from_path(goal) if path in pages or path[:5] == "docs/" else None
        if file is not None and not file.inclusion.is_excluded():
            relative = posixpath.relpath(goal, posixpath.dirname(uri) or ".")
            return f"{mark}[{text}]({relative}{'#' * bool(anchor)}{anchor})"
        if not (ROOT / path).exists():
            return found[0]  # which MkDocs reports
        if not config.repo_url:
            return text
        kind = "tree" if (ROOT / path).is_dir() else "blob"
        return f"[{text}]({config.repo_url}/{kind}/main/{path})"

    parts = FENCE.split(markdown)  # every second one is a block of code
    return "".join(part if index % 2 else LINK.sub(lead, part) for index, part in enumerate(parts))


class Roles(griffe.Extension):
    """Turns the reST markup of docstrings into Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object."""
        if obj.docstring is not None:
            text = re.sub(r":\w+:`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", obj.docstring.value)
            obj.docstring.value = text.replace("``", "`").replace("::\n", ":\n")

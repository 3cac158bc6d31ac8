"""Pieces of Markdown pages."""

from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Write a table; return its lines and an empty one."""
    lines = [f"| {' | '.join(cells)} |" for cells in (header, *rows)]
    return [lines[0], "|---" * len(header) + "|", *lines[1:], ""]


def picture(file: str, caption: str) -> list[str]:
    """Show a picture with its caption; return the lines and an empty one."""
    return [f"![{caption}]({file})", "", f"*{caption}.*", ""]

"""The paper's figures and tables as data: one file per figure, which `medqn sweep` can run as well.

A file is a sweep file with one task. Its ``[figure]`` table has a ``title``, and optionally a
``note`` on what differs from the paper. ``seeds`` is how many runs the paper averages over. Every
variant is a line of the figure with its name as label; without variants, every algorithm is a line.
``[figure.sweep]`` has the grid that the paper tuned over: axes for all lines, and tables with the
axes of an algorithm or a variant.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Figure:
    """The content of a figure's file, without the runs.

    :param path: the file, to be read as a sweep.
    :param seeds: how many runs per line the paper has.
    :param note: where ours differs from the paper's.
    :param shows: ``"learning curves"``, or what a command of its own draws.
    """

    path: Path
    title: str
    family: str
    seeds: int
    note: str = ""
    shows: str = "learning curves"
    sweep: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the file without its ending."""
        return self.path.stem

    def axes_of(self, *names: str) -> dict[str, list[Any]]:
        """Return the flags and values that the paper tuned for an algorithm and a variant."""
        tables = (self.sweep, *(self.sweep.get(name, {}) for name in names))
        axes = {key: value for table in tables for key, value in table.items()}
        return {key: value for key, value in axes.items() if isinstance(value, list)}


def read_figure(path: Path) -> Figure:
    """Read a figure's file."""
    content = tomllib.loads(path.read_text())
    return Figure(path=path, family=content["family"], seeds=content["seeds"], **content["figure"])


def load_figures(family: str | None = None) -> dict[str, Figure]:
    """Read the figures of learning curves by name, of one family or of all."""
    figures = map(read_figure, sorted(FOLDER.glob("*.toml")))
    return {
        figure.name: figure
        for figure in figures
        if figure.shows == "learning curves" and family in (None, figure.family)
    }

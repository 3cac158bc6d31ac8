"""The paper's figures and tables as data: one file per figure, which `medqn sweep` can run as well.

A file is a sweep file with one task. Its ``[figure]`` table has a ``title``, and optionally a
``note`` on what differs from the paper. ``seeds`` is how many runs the paper averages over. Every
variant is a line of the figure with its name as label; without variants, every algorithm is a line.
"""

import tomllib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Figure:
    """What a figure's file says beside the runs.

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

    @property
    def name(self) -> str:
        """The name of the file without its ending."""
        return self.path.stem


def read_figure(path: Path) -> Figure:
    """Read a figure's file."""
    content = tomllib.loads(path.read_text())
    return Figure(path=path, family=content["family"], seeds=content["seeds"], **content["figure"])


def load_figures(family: str | None = None) -> dict[str, Figure]:
    """Read all figures of learning curves by name.

    :param family: only the figures of this family.
    """
    figures = map(read_figure, sorted(FOLDER.glob("*.toml")))
    return {
        figure.name: figure
        for figure in figures
        if figure.shows == "learning curves" and family in (None, figure.family)
    }

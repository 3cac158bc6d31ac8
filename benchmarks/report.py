"""Benchmark results: a JSON file to which parts add their figures, and the page made from it."""

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from medqn_tianshou.training.memory import format_bytes
from medqn_tianshou.training.run_folder import describe_run

Result = dict[str, Any]
"""What a part measured, as JSON has it."""

_MORE_PACKAGES = ("MinAtar", "numba", "psutil", "stable-baselines3", "zstandard")


@dataclass(frozen=True, kw_only=True)
class Target:
    """A figure and its limits."""

    what: str
    value: float
    at_most: float | None = None
    at_least: float | None = None
    aim: float | None = None
    """A value beyond the limit that we would like to reach."""
    unit: str

    @property
    def met(self) -> bool:
        """Whether the figure is within its limits."""
        return (self.at_most is None or self.value <= self.at_most) and (
            self.at_least is None or self.value >= self.at_least
        )


@dataclass(frozen=True)
class Table:
    """A table of texts."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> list[str]:
        """Write it as Markdown, padded so that it is readable in a terminal, too."""
        widths = [max(map(len, column)) for column in zip(self.header, *self.rows, strict=True)]
        lines = [
            "| " + " | ".join(f"{cell:{n}}" for cell, n in zip(row, widths, strict=True)) + " |"
            for row in (self.header, *self.rows)
        ]
        return [lines[0], "|" + "|".join("-" * (n + 2) for n in widths) + "|", *lines[1:]]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of the page."""

    title: str
    tables: Sequence[Table]
    notes: str
    """How the figures were obtained."""
    targets: Sequence[Target] = field(default=())


@dataclass(frozen=True)
class Part:
    """A part of a benchmark that can be run alone.

    :param measure: measures, given the benchmark's sizes.
    :param show: makes the section from what was measured.
    """

    measure: Callable[[Any], Result]
    show: Callable[[Result], Section]


class Report:
    """The results of all parts, in a file, together with how each part was run.

    Parts of earlier runs stay until they are measured again.

    :param path: the JSON file.
    :param quick: whether the sizes are small; one file does not mix such results with others.
    :param command: the command line, which the page quotes.
    """

    def __init__(self, path: Path, *, quick: bool, command: str) -> None:
        self.path = path
        self.quick = quick
        self.command = command
        self.parts: dict[str, Result] = {}
        if path.exists() and path.stat().st_size:
            content = json.loads(path.read_text())
            if content["quick"] != quick:
                kind = "quick" if content["quick"] else "full-size"
                raise ValueError(f"contains results of a {kind} run; name another --out or --json")
            self.parts = content["parts"]

    def measure(self, name: str, part: Part, sizes: Any) -> None:
        """Measure a part."""
        run = {**describe_run(), "command": self.command}
        run["versions"] |= {package: _version(package) for package in _MORE_PACKAGES}
        start = time.perf_counter()
        measured = part.measure(sizes)
        run["seconds"] = round(time.perf_counter() - start)
        self.parts[name] = {"run": run, "measured": measured}

    def sections(self, parts: dict[str, Part]) -> list[Section]:
        """Make the sections of all parts measured so far, in the order of the benchmark."""
        return [
            part.show(self.parts[name]["measured"])
            for name, part in parts.items()
            if name in self.parts
        ]

    def write(
        self,
        page: Path,
        title: str,
        parts: dict[str, Part],
        *,
        introduction: str = "",
        summary: Result | None = None,
    ) -> None:
        """Write the JSON file and the page.

        :param summary: more entries for the JSON file.
        """
        sections = self.sections(parts)
        targets = [target for section in sections for target in section.targets]
        content = {
            "quick": self.quick,
            "targets": [{**asdict(target), "met": target.met} for target in targets],
            **(summary or {}),
            "parts": self.parts,
        }
        _replace(self.path, json.dumps(content, indent=1) + "\n")
        lines = [f"# {title}", "", *([introduction, ""] if introduction else [])]
        if self.quick:
            lines += [
                "A quick run of small sizes: its figures are rough.",
                "",
            ]
        if targets:
            lines += [*_target_table(targets).markdown(), ""]
        for section in sections:
            lines += [f"## {section.title}", ""]
            for table in section.tables:
                lines += [*table.markdown(), ""]
            lines += [section.notes, ""]
        lines += self._describe_runs(parts)
        _replace(page, "\n".join(lines))

    def _describe_runs(self, parts: dict[str, Part]) -> list[str]:
        """Describe how each part was run; parts may come from different runs."""
        runs = {name: self.parts[name]["run"] for name in parts if name in self.parts}
        commands: dict[str, list[str]] = {}
        for name, run in runs.items():
            commands.setdefault(run["command"], []).append(name)
        rows = [
            (
                ", ".join(names),
                f"`{command}`",
                min(runs[name]["started"] for name in names),
                f"{sum(runs[name]['seconds'] for name in names)} s",
            )
            for command, names in commands.items()
        ]
        lines = ["## How", "", *Table(("parts", "command", "started", "took"), rows).markdown(), ""]
        settings: dict[str, list[str]] = {}
        for name, run in runs.items():
            settings.setdefault(_describe_machine(run), []).append(name)
        for text, members in settings.items():
            lines += [text if len(settings) == 1 else f"{', '.join(members)}: {text}", ""]
        return lines


def note(message: str) -> None:
    """Print progress."""
    print(message, file=sys.stderr, flush=True)


def gigabytes(nbytes: float) -> str:
    """Write a number of bytes in GB."""
    return f"{nbytes / 1e9:.3f} GB"


def megabytes(nbytes: float) -> str:
    """Write a number of bytes in MB, or in kB if it is smaller than one."""
    return f"{nbytes / 1e6:,.0f} MB" if nbytes >= 1e6 else f"{nbytes / 1e3:,.0f} kB"


def _target_table(targets: Sequence[Target]) -> Table:
    rows = [
        (
            target.what,
            _write(target.value, target, ".3g"),
            _write(target.at_least, target),
            _write(target.at_most, target),
            _write(target.aim, target),
            "yes" if target.met else "**no**",
        )
        for target in targets
    ]
    header = ("", "measured", "at least", "at most", "aim", "met")
    used = [
        column
        for column, name in enumerate(header)
        if name in ("", "measured") or any(row[column] for row in rows)
    ]
    return Table(
        [header[column] for column in used], [[row[column] for column in used] for row in rows]
    )


def _write(value: float | None, target: Target, digits: str = "g") -> str:
    return "" if value is None else f"{value:{digits}} {target.unit}"


def _describe_machine(run: Result) -> str:
    versions = {name: version for name, version in run["versions"].items() if version}
    hardware = run["hardware"]
    gpus = f", {', '.join(hardware['gpus'])}" if hardware["gpus"] else ""
    return (
        f"Versions: {', '.join(f'{name} {version}' for name, version in versions.items())}. "
        f"Machine: {hardware['cpu']}, {hardware['cpu_cores']} cores, "
        f"{format_bytes(hardware['memory_limit_bytes'])} of memory{gpus}, {hardware['platform']}; "
        f"torch on {hardware['torch_threads']} threads."
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _replace(path: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.part")
    aside.write_text(text)
    aside.replace(path)

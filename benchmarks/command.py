"""The command line of all benchmarks: measure some parts, write the page and the figures."""

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from benchmarks.report import Part, Report, Result, note
from medqn_tianshou.commands.parsing import Parser
from medqn_tianshou.envs.atari import atari_tasks
from medqn_tianshou.files.extras import install_command


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A benchmark of several parts, each of which can be run alone.

    :param name: its folder here, and in ``docs/results``.
    :param description: the text of ``--help``.
    :param parts: the parts, in the order of the page.
    :param quick_sizes: how much to measure with ``--quick``.
    :param quick_out: the folder of quick results; without it, ``--quick`` needs ``--out``.
    :param not_quick: parts that ``--quick`` leaves out unless they are named.
    :param needs: for an extra of the package, the parts that need it.
    :param introduction: the first paragraphs of the page.
    :param summarize: makes more entries for the JSON file from what all parts measured.
    """

    name: str
    description: str
    parts: dict[str, Part]
    sizes: Any
    quick_sizes: Any
    quick_help: str
    quick_out: Path | None = None
    not_quick: frozenset[str] = frozenset()
    needs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    title: str
    introduction: str = ""
    summarize: Callable[[Iterable[Result]], Result] | None = None

    @property
    def out(self) -> Path:
        """The default folder of the page."""
        return Path("docs/results") / self.name

    def make_parser(self) -> Parser:
        """Build the command line."""
        parser = Parser(prog=f"python -m benchmarks.{self.name}", description=self.description)
        left_out = f"; with --quick all but {','.join(self.not_quick)}" if self.not_quick else ""
        parser.add_argument(
            "--parts", help=f"what to measure, separated by commas (default: all{left_out})"
        )
        parser.add_argument("--quick", action="store_true", help=self.quick_help)
        quick_out = f"; with --quick {self.quick_out}" if self.quick_out else ""
        parser.add_argument(
            "--out",
            type=Path,
            help=f"folder of the page, README.md (default: {self.out}{quick_out})",
        )
        parser.add_argument(
            "--json", type=Path, help=f"the figures (default: {self.name}.json in --out)"
        )
        return parser

    def main(self, arguments: Sequence[str] | None = None, sizes: Any = None) -> int:
        """Run the command line; return the exit code.

        :param sizes: how much to measure; None is what the command line says.
        """
        words = sys.argv[1:] if arguments is None else arguments
        parser = self.make_parser()
        args = parser.parse_args(words)
        names = args.parts.split(",") if args.parts else [*self.parts]
        if args.quick and not args.parts:
            names = [name for name in names if name not in self.not_quick]
        for name in names:
            if name not in self.parts:
                problem = f"is not a part; choose from {','.join(self.parts)}"
                parser.bad("--parts", repr(name), problem)
        self._check_installed(parser, names)
        out = args.out or (self.quick_out if args.quick else None) or self.out
        if args.quick and out == self.out:
            parser.error(f"argument --quick: is not for {self.out}; name another --out")
        command = shlex.join([*parser.prog.split(), *words])
        path = args.json or out / f"{self.name}.json"
        try:
            report = Report(path, quick=args.quick, command=command)
            report.sections(self.parts)
        except (KeyError, TypeError, json.JSONDecodeError):
            problem = "is not a file of this version of the benchmark; name another"
            parser.bad("--json", path, problem)
        except ValueError as error:
            parser.bad("--json", path, str(error))

        page = out / "README.md"
        threads = torch.get_num_threads()
        for name in [name for name in self.parts if name in names]:
            note(f"{name} ...")
            torch.set_num_threads(threads)  # our trainings of small networks set it to one
            try:
                report.measure(
                    name,
                    self.parts[name],
                    sizes or (self.quick_sizes if args.quick else self.sizes),
                )
            except RuntimeError as error:
                print(f"{parser.prog}: {name}: {error}", file=sys.stderr)
                return 1
            self.write(report, page)
        print(page.read_text())
        return 0

    def write(self, report: Report, page: Path) -> None:
        """Write the page, and the JSON file of a report."""
        measured = [part["measured"] for part in report.parts.values()]
        report.write(
            page,
            self.title,
            self.parts,
            introduction=self.introduction,
            summary=self.summarize(measured) if self.summarize else None,
        )

    def _check_installed(self, parser: Parser, names: Sequence[str]) -> None:
        """Stop before the first part if an extra that a later part needs is missing."""
        installed = {"atari": atari_tasks(), "minatar": [*metadata.distributions(name="MinAtar")]}
        for extra, parts in self.needs.items():
            if not installed[extra] and (wanting := parts.intersection(names)):
                problem = f"needs: {install_command(extra)}; or leave it out"
                parser.bad("--parts", ",".join(sorted(wanting)), problem)

"""The command ``medqn``: finds the subcommand, loads it and hands it the rest of the line."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

from medqn_tianshou.commands.edge import loading, run_main
from medqn_tianshou.commands.parsing import Parser
from medqn_tianshou.experiments.settings import SETTINGS_CLASSES
from medqn_tianshou.startup import prepare_process
from medqn_tianshou.version import __version__

OVERVIEW = """Train, evaluate, watch and reproduce MeDQN.

{commands}

`medqn COMMAND --help` describes a command. Examples:

  medqn doctor
  medqn train atari --task QbertNoFrameskip-v4 --buffer-size 100000
  medqn train lowdim --task MountainCar-v0 --algo medqn-u
  medqn sweep study.toml --dry-run
  medqn evaluate log/MountainCar-v0/medqn-u/0/20260101-120000 --episodes 20
  medqn play log/MountainCar-v0/medqn-u/0/20260101-120000 --video car.gif
  medqn reproduce fig4a --seeds 5 --jobs 2
  medqn report log --out report

Exit codes: 0 done, 1 something failed, 2 the command line is wrong, 130 stopped by Ctrl-C,
143 by SIGTERM.
"""


@dataclass(frozen=True)
class Command:
    """A command, or a group of commands. Its code is imported when it is needed.

    :param summary: what it does, in a few words.
    :param module: has ``main(arguments, prog)`` and ``make_parser(prog)``; None for a group.
    :param bound: the arguments of both functions before these.
    :param first_arguments: what the command line has before the user's arguments.
    :param load_commands: returns the commands of a group.
    """

    summary: str
    module: str | None = None
    bound: tuple[Any, ...] = ()
    first_arguments: tuple[str, ...] = ()
    load_commands: Callable[[], dict[str, "Command"]] = dict

    @cached_property
    def commands(self) -> dict[str, "Command"]:
        """The commands of a group."""
        return self.load_commands()

    def run(self, arguments: Sequence[str], prog: str) -> int:
        """Run the command; return the exit code."""
        return int(self._call("main", arguments, prog))

    def make_parser(self, prog: str) -> Parser:
        """Build the command line."""
        parser: Parser = self._call("make_parser", prog)
        return parser

    def _call(self, name: str, *arguments: Any) -> Any:
        with loading():
            module = import_module(f"medqn_tianshou.commands.{self.module}")
        return getattr(module, name)(*self.bound, *arguments)


def _families() -> dict[str, Command]:
    return {
        family: Command(cls.summary, module="train", bound=(family,))
        for family, cls in SETTINGS_CLASSES.items()
    }


def _figures() -> dict[str, Command]:
    from medqn_tianshou.experiments.figures import load_figures

    figures = load_figures()
    # Figures 1 and 2 are no training runs of the usual kind and have flags of their own.
    return {
        "fig1": Command("Figure 1: a sine, learned in two stages", module="figures.sine"),
        "fig2": Command("Figure 2: forgetting in MountainCar-v0", module="figures.forgetting"),
    } | {
        name: Command(figure.title, module="reproduce", bound=(figures,), first_arguments=(name,))
        for name, figure in figures.items()
    }


_COMMANDS = {
    "doctor": Command("check this machine, and print how to fix problems", module="doctor"),
    "train": Command("train on a task of one of the families", load_commands=_families),
    "sweep": Command(
        "run tasks x algorithms x settings x seeds from a file", module="sweep.command"
    ),
    "evaluate": Command(
        "play episodes with a trained policy and print their scores", module="evaluate"
    ),
    "play": Command("watch or record a trained policy, with its Q values", module="play"),
    "reproduce": Command("run a figure or a table of the paper", load_commands=_figures),
    "report": Command("make tables and figures from runs, with intervals", module="report.command"),
    "completion": Command("print the completion script of a shell", module="completion"),
}
ROOT = Command("", load_commands=lambda: _COMMANDS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, None is the process's; return the exit code."""
    prepare_process()
    command, prog, rest = find(sys.argv[1:] if arguments is None else arguments)
    if command.module is None:
        return _help(command, prog, rest)
    return command.run(rest, prog)


def console() -> int:
    """Run the process's command line, as ``medqn`` does."""
    return run_main(main, "medqn")


def find(arguments: Sequence[str]) -> tuple[Command, str, list[str]]:
    """Find the command that a command line names, its full name and its arguments."""
    command, prog = ROOT, "medqn"
    arguments = list(arguments)
    while arguments and arguments[0] in command.commands:
        command = command.commands[arguments[0]]
        if not command.first_arguments:
            prog = f"{prog} {arguments[0]}"
        arguments = arguments[1:]
    return command, prog, [*command.first_arguments, *arguments]


def _help(command: Command, prog: str, arguments: Sequence[str]) -> int:
    """Print a group's commands, or report a command that it does not have."""
    width = max(map(len, command.commands))
    listing = "\n".join(f"  {name:{width}}  {c.summary}" for name, c in command.commands.items())
    if command is ROOT:
        text = OVERVIEW.format(commands=listing)
    else:
        text = f"{command.summary.capitalize()}.\n\n{listing}\n"
    parser = Parser(prog=prog, usage=f"{prog} COMMAND ...", description=text)
    parser.add_argument("command", nargs="?", help="one of the names above")
    if command is ROOT:
        parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    args = parser.parse_args(arguments[:1])
    if args.command is not None:
        known = ", ".join(command.commands)
        parser.bad("command", repr(args.command), f"is not known; choose from {known}")
    parser.print_help()
    return 2

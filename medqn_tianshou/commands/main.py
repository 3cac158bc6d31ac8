"""The command ``medqn``: finds the subcommand, loads it and hands it the rest of the line."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import import_module

from medqn_tianshou.commands.parsing import Parser
from medqn_tianshou.experiments.settings import SETTINGS_CLASSES
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
Run = Callable[[Sequence[str], str], int]
MakeParser = Callable[[str], Parser]


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command, or a group of commands. Its code is imported when it is needed.

    :param summary: what it does, in a few words.
    :param load: imports what runs it, with its arguments and its full name, and what builds its
        command line for its full name.
    :param first_arguments: what its command line has before the user's arguments.
    :param load_commands: imports the commands of a group.
    """

    summary: str
    load: Callable[[], tuple[Run, MakeParser]] | None = None
    first_arguments: tuple[str, ...] = ()
    load_commands: Callable[[], dict[str, "Command"]] = field(default=dict)

    @cached_property
    def commands(self) -> dict[str, "Command"]:
        """The commands of a group."""
        return self.load_commands()

    @property
    def run(self) -> Run | None:
        """Runs the command; returns the exit code."""
        return self.load()[0] if self.load else None

    @property
    def make_parser(self) -> MakeParser | None:
        """Builds the command line."""
        return self.load()[1] if self.load else None


def _module(summary: str, name: str) -> Command:
    """Make a command of a module with ``main`` and ``make_parser``."""

    def load() -> tuple[Run, MakeParser]:
        module = import_module(f"medqn_tianshou.{name}")
        return module.main, module.make_parser

    return Command(summary=summary, load=load)


def _train(family: str) -> Command:
    def load() -> tuple[Run, MakeParser]:
        from medqn_tianshou.commands import flags, train

        return partial(train.main, family), partial(flags.make_train_parser, family)

    return Command(summary=SETTINGS_CLASSES[family].summary, load=load)


def _figures() -> dict[str, Command]:
    """Figures 1 and 2 are no training runs of the usual kind and have flags of their own."""
    from medqn_tianshou.experiments.figures import load_figures

    figures = load_figures()

    def load() -> tuple[Run, MakeParser]:
        from medqn_tianshou.commands import reproduce

        return (
            lambda arguments, _: reproduce.main(figures, arguments, "medqn reproduce"),
            lambda _: reproduce.make_parser(figures, "medqn reproduce"),
        )

    return {
        "fig1": _module("Figure 1: a sine, learned in two stages", "commands.figures.sine"),
        "fig2": _module("Figure 2: forgetting in MountainCar-v0", "commands.figures.forgetting"),
        **{
            name: Command(summary=figure.title, load=load, first_arguments=(name,))
            for name, figure in figures.items()
        },
    }


def _completion() -> tuple[Run, MakeParser]:
    from medqn_tianshou.commands import completion

    return (
        lambda arguments, prog: completion.main(arguments, prog, ROOT),
        completion.make_parser,
    )


def _commands() -> dict[str, Command]:
    return {
        "doctor": _module("check this machine, and say how to fix it", "commands.doctor"),
        "train": Command(
            summary="train on a task of one of the families",
            load_commands=lambda: {family: _train(family) for family in SETTINGS_CLASSES},
        ),
        "sweep": _module(
            "run tasks x algorithms x settings x seeds, as a file lists them",
            "commands.sweep.command",
        ),
        "evaluate": _module(
            "play episodes with a trained policy and print their scores", "commands.evaluate"
        ),
        "play": _module("watch or record a trained policy, with its Q values", "commands.play"),
        "reproduce": Command(
            summary="run a figure or a table of the paper", load_commands=_figures
        ),
        "report": _module(
            "make tables and figures from runs, with intervals", "commands.report.command"
        ),
        "completion": Command(summary="print the completion script of a shell", load=_completion),
    }


ROOT = Command(summary="", load_commands=_commands)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, None is the process's; return the exit code."""
    command, prog, rest = find(sys.argv[1:] if arguments is None else arguments)
    if command.run is None:
        return _help(command, prog, rest)
    return command.run(rest, prog)


def find(arguments: Sequence[str]) -> tuple[Command, str, list[str]]:
    """Find the command that a command line names, its full name and its arguments."""
    command, prog = ROOT, "medqn"
    arguments = list(arguments)
    while arguments and arguments[0] in command.commands:
        command = command.commands[arguments[0]]
        prog = f"{prog} {arguments[0]}"
        arguments = arguments[1:]
    return command, prog, [*command.first_arguments, *arguments]


def words_of(command: Command, prog: str = "medqn") -> dict[str, list[str]]:
    """List what may follow each command, from one on: the names of commands, or flags."""
    from medqn_tianshou.commands.completion import flags_of

    if command.make_parser is not None:
        return {prog: flags_of(command.make_parser(prog))}
    words = {prog: [*command.commands, "--help", *(["--version"] if prog == "medqn" else [])]}
    for name, inner in command.commands.items():
        words |= words_of(inner, f"{prog} {name}")
    return words


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

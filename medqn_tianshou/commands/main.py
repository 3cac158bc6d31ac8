"""The command ``medqn``: finds the subcommand and hands it the rest of the line."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from medqn_tianshou.commands import completion, doctor, evaluate, play, reproduce
from medqn_tianshou.commands.figures import forgetting, sine
from medqn_tianshou.commands.parsing import Parser
from medqn_tianshou.commands.report import command as report
from medqn_tianshou.commands.sweep import command as sweep
from medqn_tianshou.experiments import atari, lowdim, minatar
from medqn_tianshou.experiments.figures import load_figures
from medqn_tianshou.version import __version__

FIGURES = load_figures()

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


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command, or a group of commands.

    :param summary: what it does, in a few words.
    :param run: runs it with its arguments and its full name; returns the exit code.
    :param make_parser: builds its command line for its full name.
    :param first_arguments: what its command line has before the user's arguments.
    :param commands: the commands of a group, which has none of those.
    """

    summary: str
    run: Callable[[Sequence[str], str], int] | None = None
    make_parser: Callable[[str], Parser] | None = None
    first_arguments: tuple[str, ...] = ()
    commands: dict[str, "Command"] = field(default_factory=dict)


def _figure(name: str, title: str) -> Command:
    """Figures 1 and 2 are no training runs of the usual kind and have flags of their own."""
    module = {"fig1": sine, "fig2": forgetting}[name]
    return Command(summary=title, run=module.main, make_parser=module.make_parser)


def _usual_figure(name: str) -> Command:
    return Command(
        summary=FIGURES[name].title,
        run=lambda arguments, _: reproduce.main(FIGURES, arguments, "medqn reproduce"),
        make_parser=lambda _: reproduce.make_parser(FIGURES, "medqn reproduce"),
        first_arguments=(name,),
    )


ROOT = Command(
    summary="",
    commands={
        "doctor": Command(
            summary="check this machine, and say what mends it",
            run=doctor.main,
            make_parser=doctor.make_parser,
        ),
        "train": Command(
            summary="train on a task of one of the families",
            commands={
                "atari": Command(
                    summary="Atari games", run=atari.main, make_parser=atari.make_parser
                ),
                "minatar": Command(
                    summary="MinAtar games", run=minatar.main, make_parser=minatar.make_parser
                ),
                "lowdim": Command(
                    summary="MountainCar, Acrobot, Catcher, Pixelcopter",
                    run=lowdim.main,
                    make_parser=lowdim.make_parser,
                ),
            },
        ),
        "sweep": Command(
            summary="run tasks x algorithms x settings x seeds, as a file lists them",
            run=sweep.main,
            make_parser=sweep.make_parser,
        ),
        "evaluate": Command(
            summary="play episodes with a trained policy and tell their scores",
            run=evaluate.main,
            make_parser=evaluate.make_parser,
        ),
        "play": Command(
            summary="watch or record a trained policy, with its Q values",
            run=play.main,
            make_parser=play.make_parser,
        ),
        "reproduce": Command(
            summary="run a figure or a table of the paper",
            commands={
                "fig1": _figure("fig1", "Figure 1: a sine, learned in two stages"),
                "fig2": _figure("fig2", "Figure 2: forgetting in MountainCar-v0"),
                **{name: _usual_figure(name) for name in FIGURES},
            },
        ),
        "report": Command(
            summary="make tables and figures from runs, with intervals",
            run=report.main,
            make_parser=report.make_parser,
        ),
    },
)
ROOT.commands["completion"] = Command(
    summary="print the completion script of a shell",
    run=lambda arguments, prog: completion.main(arguments, prog, ROOT),
    make_parser=completion.make_parser,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code.

    :param arguments: the command line; None takes the process's.
    """
    command, prog, rest = find(sys.argv[1:] if arguments is None else arguments)
    if command.run is None:
        return _help(command, prog, rest)
    return command.run(rest, prog)


def find(arguments: Sequence[str]) -> tuple[Command, str, list[str]]:
    """Find the command that a command line names, its full name and its arguments.

    :param arguments: the command line.
    """
    command, prog = ROOT, "medqn"
    arguments = list(arguments)
    while arguments and arguments[0] in command.commands:
        command = command.commands[arguments[0]]
        prog = f"{prog} {arguments[0]}"
        arguments = arguments[1:]
    return command, prog, [*command.first_arguments, *arguments]


def words_of(command: Command, prog: str = "medqn") -> dict[str, list[str]]:
    """List what may follow each command: the names of commands, or flags.

    :param command: where to start.
    :param prog: its full name.
    """
    if command.make_parser is not None:
        return {prog: completion.flags_of(command.make_parser(prog))}
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
        text = f"{ROOT.commands[prog.split()[1]].summary.capitalize()}.\n\n{listing}\n"
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

"""Completion of the command ``medqn`` in a shell, as a script made from the real command line."""

from collections.abc import Mapping, Sequence

from medqn_tianshou.commands.parsing import Parser

# Words that are neither flags nor commands are completed as files.
_BASH = """_medqn() {{
    local current="${{COMP_WORDS[COMP_CWORD]}}" command="medqn" word words=""
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        case "$command $word" in
            {commands}) command="$command $word" ;;
            *) break ;;
        esac
    done
    case "$command" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F _medqn medqn
"""
SHELLS = {
    "bash": _BASH,
    "zsh": "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"
    + _BASH,
}


def make_parser(prog: str | None = None) -> Parser:
    """Build the command line.

    :param prog: the command that the user typed.
    """
    parser = Parser(
        prog=prog,
        description="Print the completion script of a shell. To switch it on:\n\n"
        "  source <(medqn completion bash)   # in ~/.bashrc; likewise zsh in ~/.zshrc",
    )
    parser.add_argument("shell", choices=list(SHELLS), help="the shell")
    return parser


def flags_of(parser: Parser) -> list[str]:
    """List all flags of a command line, and the choices of its plain arguments."""
    words: list[str] = []
    for action in parser._actions:
        words += action.option_strings or map(str, action.choices or ())
    return [word for word in words if not word.startswith("-") or word.startswith("--")]


def script(shell: str, words: Mapping[str, Sequence[str]]) -> str:
    """Write the completion script of a shell.

    :param shell: one of :data:`SHELLS`.
    :param words: what may follow each command.
    """
    commands = "|".join(f'"{command}"' for command in words if command != "medqn")
    cases = "\n".join(f'        "{c}") words="{" ".join(w)}" ;;' for c, w in words.items())
    return SHELLS[shell].format(commands=commands, cases=cases)


def main(arguments: Sequence[str], prog: str, words: Mapping[str, Sequence[str]]) -> int:
    """Run the command line; return the exit code.

    :param arguments: the command line.
    :param prog: the command that the user typed.
    :param words: what may follow each command.
    """
    print(script(make_parser(prog).parse_args(arguments).shell, words), end="")
    return 0

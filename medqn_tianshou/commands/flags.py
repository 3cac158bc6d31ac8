"""The flags of ``medqn train``, made from the annotations of settings and options."""

import argparse
from typing import Any

from medqn_tianshou.commands.parsing import Parser, argument_type, number_in
from medqn_tianshou.experiments.settings import SETTINGS_CLASSES, algorithms, describe_default
from medqn_tianshou.training.fields import GROUPS, FieldSpec, Flag, field_specs
from medqn_tianshou.training.settings import TrainingSettings

USUAL = (
    "task", "algo", "seed", "steps", "device", "buffer_size", "lr", "eval_every", "memory_cap",
    "logdir", "resume", "checkpoint_every", "wandb",
)  # fmt: skip
"""The settings and options whose flags ``--help`` shows; ``--help-all`` shows all."""


def make_train_parser(family: str, prog: str | None = None) -> Parser:
    """Build the command line of a family.

    What it parses has the flags that were given, and nothing else, by the names of their fields.
    """
    parser = Parser(prog=prog, description=SETTINGS_CLASSES[family].description, add_help=False)
    for names, action, text in (
        (("-h", "--help"), _ShortHelp, "show the flags that most runs need, and exit"),
        (("--help-all",), "help", "show all flags, and exit"),
    ):
        parser.add_argument(*names, action=action, help=text)
    add_train_flags(parser, SETTINGS_CLASSES[family])
    return parser


class _ShortHelp(argparse.Action):
    """Prints the help of the usual flags alone."""

    def __init__(self, option_strings: list[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        hidden = [a for a in parser._actions if a.dest not in {*USUAL, "help", "help_all"}]
        for action in hidden:
            action.help = argparse.SUPPRESS
        parser.epilog = f"{len(hidden)} more flags: {parser.prog} --help-all"
        parser.print_help()
        parser.exit()


def add_train_flags(parser: Parser, settings_class: type[TrainingSettings]) -> None:
    """Add a flag for each setting and option that has one, in groups."""
    family = settings_class.family
    settings, options = field_specs(settings_class), field_specs(settings_class.options_class)
    shorthands = field_specs(settings_class.shorthands)
    other_names = settings_class.other_algorithm_names

    def algorithm(name: str) -> str:
        return other_names.get(name, name)

    groups = {title: parser.add_argument_group(title) for title in GROUPS}
    for name, spec in (settings | shorthands | options).items():
        if (flag := spec.flag) is None:
            continue
        default, values = flag.default, _values(spec, flag)
        if name == "algo":
            values = {"choices": algorithms(family), "type": algorithm}
            default = algorithms(family)[0]
        elif name in settings:
            if default is None and "(default" not in flag.help:
                default = describe_default(family, name)
            if spec.kind is bool:
                values = {"action": argparse.BooleanOptionalAction}
        text = flag.help + (f" (default: {default})" if default else "")
        groups[flag.group].add_argument(
            spec.flag_name,
            *flag.aliases,
            dest=name,
            help=text.replace("%", "%%"),
            default=argparse.SUPPRESS,
            **values,
        )


def _values(spec: FieldSpec, flag: Flag) -> dict[str, Any]:
    """Return what argparse has to know of a flag's values."""
    if spec.kind is bool:
        negated = spec.flag_name.startswith("--no-")
        return {"action": "store_false" if negated else "store_true"}
    if spec.choices:
        return {"type": spec.kind, "choices": spec.choices}
    if flag.parse is not None:
        return {"type": argument_type(flag.parse), "metavar": flag.metavar}
    is_number = spec.kind in (int, float)
    kind = number_in(spec.kind, spec.range) if is_number else spec.kind
    return {"type": kind, "metavar": flag.metavar}

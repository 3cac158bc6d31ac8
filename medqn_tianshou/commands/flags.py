"""The flags of ``medqn train``, made from the annotations of settings and options."""

import argparse
from typing import Any

from medqn_tianshou.commands.parsing import Parser, argument_type, number_in
from medqn_tianshou.experiments.settings import SETTINGS_CLASSES, algorithms, describe_default
from medqn_tianshou.training.fields import GROUPS, FieldSpec, field_specs
from medqn_tianshou.training.settings import TrainingSettings


def make_train_parser(family: str, prog: str | None = None) -> Parser:
    """Build the command line of a family.

    What it parses has the flags that were given, and nothing else, by the names of their fields.
    """
    parser = Parser(prog=prog, description=SETTINGS_CLASSES[family].description)
    add_train_flags(parser, SETTINGS_CLASSES[family])
    return parser


def add_train_flags(parser: Parser, settings_class: type[TrainingSettings]) -> None:
    """Add a flag for each setting and option that has one, in groups."""
    settings = field_specs(settings_class)
    options = field_specs(settings_class.options_class)
    groups = {title: parser.add_argument_group(title) for title in GROUPS}
    for spec in {**settings, **options}.values():
        if spec.flag is not None:
            default = spec.flag.default
            if default is None and spec.name in settings and "(default" not in spec.flag.help:
                default = _default(settings_class, spec.name)
            text = spec.flag.help + (f" (default: {default})" if default else "")
            groups[spec.flag.group].add_argument(
                spec.flag_name,
                dest=spec.name,
                help=text.replace("%", "%%"),
                default=argparse.SUPPRESS,
                **_options(settings_class, spec, is_setting=spec.name in settings),
            )


def _default(settings_class: type[TrainingSettings], name: str) -> str:
    if name == "algo":
        return algorithms(settings_class.family)[0]
    return describe_default(settings_class.family, name)


def _options(
    settings_class: type[TrainingSettings], spec: FieldSpec, *, is_setting: bool
) -> dict[str, Any]:
    """Return what argparse has to know of a flag's values."""
    flag = spec.flag
    if spec.kind is bool:
        if is_setting:
            return {"action": argparse.BooleanOptionalAction}
        negated = spec.flag_name.startswith("--no-")
        return {"action": "store_false" if negated else "store_true"}
    if spec.name == "algo":
        return {"choices": algorithms(settings_class.family)}
    options: dict[str, Any] = {"type": spec.kind}
    if spec.choices:
        options["choices"] = spec.choices
    elif flag is not None and flag.parse is not None:
        options["type"] = argument_type(flag.parse)
    elif spec.kind in (int, float):
        options["type"] = number_in(spec.kind, spec.range)
    if flag is not None and flag.metavar:
        options["metavar"] = flag.metavar
    return options

#!/usr/bin/env python
"""Write docs/api.md from the docstrings of the package's public names.

Run it as ``python docs/api.py``.
"""

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import medqn_tianshou

PAGE = Path(__file__).with_name("api.md")
HEAD = """\
# API reference

The public names of `medqn_tianshou`, from their docstrings (`python docs/api.py`). What a class
inherits from Tianshou or torch is described there. How the parts fit together:
[in your own Tianshou code](own_code.md).
"""
# In the order in which data flows.
SECTIONS = {
    "Policy and loss": (
        "MeDQNPolicy", "FastMeDQNPolicy", "MeDQNTrainingStats", "consolidation_loss",
    ),
    "Distributions": (
        "MeQRDQNPolicy", "MeC51Policy", "MeIQNPolicy", "MeRainbowPolicy", "wasserstein_loss",
        "categorical_kl_loss", "QuantileNetwork", "CategoricalNetwork", "ImplicitQuantileNetwork",
    ),
    "Where states come from": (
        "StateSampler", "RealStateSampler", "UniformStateSampler", "MixedStateSampler",
        "ReservoirStateSampler",
    ),
    "Schedules": (
        "LinearSchedule", "ConstantSchedule", "AdaptiveCoefficient", "relative_drift",
    ),
    "Replay": (
        "CompactVectorReplayBuffer", "CompactPrioritizedVectorReplayBuffer", "ReplayFileError",
        "seed_replay_buffer",
    ),
    "Collecting": ("LeanCollector", "OverlappingCollector"),
    "Networks and optimizers": (
        "NatureQNetwork", "MinAtarQNetwork", "MLPQNetwork", "FusedRMSprop",
    ),
    "Tianshou's high-level API": (
        "MeDQNExperimentBuilder", "MeDQNParams", "MeDQNAgentFactory",
    ),
    "Memory": ("prepare_process", "MemoryMonitor"),
}  # fmt: skip


def page() -> str:
    """Write the whole page."""
    lines = [HEAD]
    for title, names in SECTIONS.items():
        lines.append(f"## {title}\n")
        for name in names:
            lines += _entry(name, getattr(medqn_tianshou, name))
    return "\n".join(lines)


def _entry(name: str, thing: Any) -> Iterator[str]:
    kind = "class" if inspect.isclass(thing) else "def"
    yield f"### {name}\n"
    yield f"```python\n{_signature(kind, name, thing)}\n```\n"
    yield _markdown(inspect.getdoc(thing) or "")
    if is_dataclass(thing):
        comments = _field_comments(thing)
        for field in fields(thing):
            if field.name in vars(thing).get("__annotations__", {}):
                yield f"- `{field.name}`{comments.get(field.name, '')}"
        yield ""
    if kind == "class":
        for member, value in _members(thing).items():
            function = value.fget if isinstance(value, property) else value
            function = getattr(function, "__func__", function)
            if member.startswith("_") or not inspect.isfunction(function):
                continue
            shown = "property" if isinstance(value, property) else "def"
            heading = member if shown == "property" else f"{member}{_parameters(function)}"
            yield f"**`{name}.{heading}`**\n"
            yield _markdown(inspect.getdoc(function) or "")


def _members(thing: type) -> dict[str, Any]:
    """The members of a class and of its bases in this package that are not public themselves."""
    members: dict[str, Any] = {}
    for base in thing.__mro__[::-1]:
        internal = base.__module__.startswith("medqn_tianshou.")
        if base is thing or (internal and not hasattr(medqn_tianshou, base.__name__)):
            members |= vars(base)
    return members


def _signature(kind: str, name: str, thing: Any) -> str:
    parameters = _parameters(thing)
    one_line = f"{kind} {name}{parameters}"
    if len(one_line) <= 95:
        return one_line
    names = _parameter_texts(thing)
    return "\n".join([f"{kind} {name}(", *(f"    {text}," for text in names), ")"])


def _parameters(thing: Any) -> str:
    return f"({', '.join(_parameter_texts(thing))})"


def _parameter_texts(thing: Any) -> list[str]:
    """Write names and defaults: what they mean and their types is in the docstring."""
    try:
        parameters = list(inspect.signature(thing).parameters.values())
    except ValueError:  # an exception's
        return []
    texts: list[str] = []
    keywords = False
    for parameter in parameters:
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not keywords:
            keywords = True
            texts.append("*")
        keywords = keywords or parameter.kind is parameter.VAR_POSITIONAL
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}
        default = parameter.default
        shown = getattr(default, "__name__", repr(default))
        value = "" if default is parameter.empty else f"={shown}"
        texts.append(f"{stars.get(parameter.kind, '')}{parameter.name}{value}")
    return texts


def _field_comments(thing: type) -> dict[str, str]:
    """Find the strings that follow a dataclass's fields."""
    source = inspect.getsource(thing)
    found = re.findall(r'^    (\w+):[^\n]*\n    """(.*?)"""', source, re.M | re.S)
    return {name: f": {' '.join(text.split())}" for name, text in found}


def _markdown(docstring: str) -> str:
    """Turn a reST docstring into Markdown."""
    text = re.sub(r":(?:class|meth|func|data|mod):`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", docstring)
    text = _fold(text.replace("``", "`").replace("::\n", ":\n"))
    text = re.sub(r"^:param (\w+):\s*", r"- `\1`: ", text, flags=re.M)
    text = re.sub(r"^:returns?:\s*", "- returns ", text, flags=re.M)
    text = re.sub(r"^:raises (\w+):\s*", r"- raises `\1` ", text, flags=re.M)
    return f"{text.strip()}\n"


def _fold(text: str) -> str:
    """Join the lines of a field to one, and separate the fields from the prose by a line."""
    lines: list[str] = []
    in_field = False
    for line in text.splitlines():
        if line.startswith(":"):
            if not in_field and lines and lines[-1]:
                lines.append("")
            in_field = True
            lines.append(line)
        elif in_field and line.startswith(" "):
            lines[-1] += f" {line.strip()}"
        else:
            in_field = in_field and not line
            lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE.name}")

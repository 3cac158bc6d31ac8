"""The file of a sweep: tasks x algorithms x settings x seeds, in TOML."""

import difflib
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from pathlib import Path
from typing import Any, NoReturn

from medqn_tianshou.commands.sweep.plans import PlanError, RunPlan, parser_of, plan_run
from medqn_tianshou.experiments.families import FAMILIES
from medqn_tianshou.training.fields import MOST_STEPS
from medqn_tianshou.training.memory import format_bytes

KEYS = ("name", "family", "tasks", "algorithms", "seeds", "settings", "variant", "figure")
OF_THE_SWEEP = {
    **dict.fromkeys(("task", "game", "env"), "list it in tasks"),
    "algo": "list it in algorithms",
    "seed": "list it in seeds",
    "logdir": "use --out",
    **dict.fromkeys(("no-progress", "watch", "render", "help"), "leave it out"),
    **dict.fromkeys(("resume", "auto-resume"), "leave it out: the sweep resumes its runs"),
}
"""Flags that the sweep sets for its runs, and what to do instead."""


MOST_RUNS = 10_000


class SweepFileError(ValueError):
    """A wrong sweep file; the text names key, value and remedy."""


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A named set of settings: flags and values; a list is an axis."""

    name: str = ""
    """Empty for the only variant of a file without variants."""
    algorithms: tuple[str, ...]
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """The content of a sweep file, checked except for the values of flags.

    :param settings: flags and values of all runs; a list is an axis.
    :param own_settings: flags and values of an algorithm's runs, which win over ``settings``.
    :param variants: named sets of settings, which win over both; at least one.
    """

    name: str
    family: str
    tasks: tuple[str, ...]
    algorithms: tuple[str, ...]
    seeds: Sequence[int]
    settings: dict[str, Any]
    own_settings: dict[str, dict[str, Any]]
    variants: tuple[Variant, ...]
    study: str = ""
    """The part of a file with several; empty for a file that is one sweep."""

    def plans(self, out: Path) -> list[RunPlan]:
        """Expand to the runs in the folder of the sweep, and check the command line of each."""
        self._check_count(out)
        # Seed by seed, so that an interrupted sweep is complete for its first seeds.
        runs = product(self.seeds, self.tasks, self.algorithms)
        plans = [plan for names in runs for plan in self._plans_of(out, *names)]
        if twice := _repeated([plan.name for plan in plans]):
            raise SweepFileError(f"has two runs with the name {twice[0]}; rename a variant")
        return plans

    def _plans_of(self, out: Path, seed: int, task: str, algo: str) -> Iterator[RunPlan]:
        task_flag = parser_of(self.family).flag_of("task")
        study = [self.study] if self.study else []
        for label, flags in self._settings_of(algo):
            where = [*study, task, algo, *label, f"seed{seed}"]
            command = [task_flag, task, "--algo", algo, *flags, "--seed", str(seed)]
            logdir = out.joinpath("runs", *study, _file_name("_".join(label)))
            name = _file_name("_".join(where))
            try:
                yield plan_run(self.family, command, name=name, logdir=logdir)
            except PlanError as error:
                raise SweepFileError(f"run {' '.join(where)}: {error}") from None

    def _check_count(self, out: Path) -> None:
        """Reject a sweep with too many runs before planning them, which takes long."""
        cells = sum(len(list(islice(self._settings_of(a), MOST_RUNS))) for a in self.algorithms)
        count = cells * len(self.tasks) * len(self.seeds)
        if count <= MOST_RUNS:
            return
        first = next(self._plans_of(out, self.seeds[0], self.tasks[0], self.algorithms[0]))
        raise SweepFileError(
            f"has {count:,} runs, the first of {first.env_steps:,} env steps and "
            f"{format_bytes(first.memory_nbytes)}; at most {MOST_RUNS:,} fit one sweep: use fewer "
            "seeds or values"
        )

    def _settings_of(self, algo: str) -> Iterator[tuple[list[str], list[str]]]:
        """Yield each combination of an algorithm's settings: its label, and its flags."""
        for variant in self.variants:
            if algo not in variant.algorithms:
                continue
            settings = {**self.settings, **self.own_settings.get(algo, {}), **variant.settings}
            axes = [key for key, value in settings.items() if isinstance(value, list)]
            for values in product(*(settings[axis] for axis in axes)):
                chosen = dict(zip(axes, values, strict=True))
                label = [f"{key}={_text(value)}" for key, value in chosen.items()]
                flags = [
                    word
                    for key, value in {**settings, **chosen}.items()
                    for word in _flag(key, value)
                ]
                yield [variant.name, *label] if variant.name else label, flags


def read_sweep(path: Path) -> Sweep:
    """Read a file that is one sweep, and check all but the values of flags."""
    return _sweep(_read(path), path.stem)


def read_studies(path: Path) -> list[Sweep]:
    """Read a file that is one sweep, or has several, one below each ``[[study]]``."""
    content = _read(path)
    if "study" not in content:
        return [_sweep(content, path.stem)]
    tables = content["study"]
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        _bad("study", tables, "must be tables; write [[study]] above each")
    for key, value in content.items():
        _check_known(key, ("name", "study"), "a key beside [[study]]", key, value)
    name = _name("name", content.get("name", path.stem))
    studies = []
    for number, table in enumerate(tables, 1):
        own_name = _file_name(_name(f"study {number}.name", table.get("name")))
        try:
            studies.append(replace(_sweep(table, own_name), name=name, study=own_name))
        except SweepFileError as error:
            raise SweepFileError(f"study {own_name}: {error}") from None
    if twice := _repeated([study.study for study in studies]):
        _bad("study", twice[0], "is the name of two; rename one")
    return studies


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise SweepFileError(f"cannot be read ({error.strerror}); name a TOML file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SweepFileError(f"is not TOML ({error}); fix it") from None


def _sweep(content: dict[str, Any], default_name: str) -> Sweep:
    for key, value in content.items():
        _check_known(key, KEYS, "a key of a sweep", key, value)
    family: Any = content.get("family")
    _check_known(family, list(FAMILIES), "a family", "family", family)
    names = [*FAMILIES[family].algorithms, *FAMILIES[family].settings_class.other_algorithm_names]
    algorithms = _strings("algorithms", content.get("algorithms"), names)
    settings, own = _settings_tables(content.get("settings", {}), family, algorithms)
    return Sweep(
        name=_name("name", content.get("name", default_name)),
        family=family,
        tasks=_strings("tasks", content.get("tasks")),
        algorithms=algorithms,
        seeds=_seeds(content.get("seeds", 1)),
        settings=settings,
        own_settings=own,
        variants=_variants(content.get("variant", []), family, algorithms),
    )


def _settings_tables(
    table: Any, family: str, algorithms: Sequence[str]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Split ``[settings]`` into the settings of all runs, and ``[settings.ALGORITHM]``."""
    if not isinstance(table, dict):
        _bad("settings", table, "must be a table; write [settings] and flags below it")
    own = {}
    for key in [key for key, value in table.items() if isinstance(value, dict)]:
        _check_known(key, algorithms, "one of the algorithms", f"settings.{key}", "a table")
        own[key] = check_settings(f"settings.{key}", table[key], family)
    plain = {key: value for key, value in table.items() if key not in own}
    return check_settings("settings", plain, family), own


def check_settings(where: str, table: dict[str, Any], family: str) -> dict[str, Any]:
    """Check that all keys are flags, and that all values can be a flag's.

    :raises SweepFileError: for the first that is not.
    """
    flags = [
        flag.removeprefix("--")
        for action in parser_of(family)._actions
        for flag in action.option_strings
        if flag.startswith("--") and not flag.startswith("--no-")
    ]
    checked = {}
    for written, value in table.items():
        key = written.replace("_", "-")
        if key in OF_THE_SWEEP:
            _bad(f"{where}.{written}", value, f"is the sweep's own; {OF_THE_SWEEP[key]}")
        _check_known(key, flags, f"a flag of medqn train {family}", f"{where}.{written}", value)
        values = value if isinstance(value, list) else [value]
        if not values:
            _bad(
                f"{where}.{written}", value, "is an axis without values; give some, or leave it out"
            )
        for one in values:
            if not isinstance(one, str | int | float):
                _bad(f"{where}.{written}", one, "must be a number, a text, true or false")
        if twice := _repeated(values):
            _bad(f"{where}.{written}", value, f"has {twice[0]!r} twice; leave one out")
        checked[key] = value
    return checked


def _variants(tables: Any, family: str, algorithms: tuple[str, ...]) -> tuple[Variant, ...]:
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        _bad("variant", tables, "must be tables; write [[variant]] above each")
    variants = []
    for number, table in enumerate(tables, 1):
        where = f"variant {number}"
        if "name" not in table:
            _bad(where, "without a name", "must have one; add name = '...'")
        settings = {key: v for key, v in table.items() if key not in ("name", "algorithms")}
        chosen = table.get("algorithms", list(algorithms))
        variants.append(
            Variant(
                name=_name(f"{where}.name", table["name"], forbidden=""),
                algorithms=_strings(f"{where}.algorithms", chosen, algorithms),
                settings=check_settings(where, settings, family),
            )
        )
    if not variants:
        return (Variant(algorithms=algorithms),)
    for algo in algorithms:
        if not any(algo in variant.algorithms for variant in variants):
            _bad("algorithms", algo, "is in no variant; add it to one, or leave it out")
    return tuple(variants)


def _seeds(value: Any) -> Sequence[int]:
    """A number of seeds, from 0 on, or the seeds."""
    if type(value) is int and 1 <= value <= MOST_STEPS:
        return range(value)
    is_list = isinstance(value, list) and len(value) > 0
    if not is_list or not all(type(seed) is int and seed >= 0 for seed in value):
        _bad("seeds", value, "must be a number of seeds, e.g. 5, or a list of seeds, e.g. [0, 7]")
    if len(set(value)) < len(value):
        _bad("seeds", value, "has a seed twice; leave one out")
    return tuple(value)


def _strings(key: str, value: Any, choices: Sequence[str] | None = None) -> tuple[str, ...]:
    """A text, or a list of different texts."""
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or not values or not all(isinstance(v, str) for v in values):
        _bad(key, value, "must be a list of names, e.g. ['a', 'b']")
    if twice := _repeated(values):
        _bad(key, value, f"has {twice[0]!r} twice; leave one out")
    for one in values if choices is not None else ():
        _check_known(one, choices or (), "known here", key, one)
    return tuple(values)


def _name(key: str, value: Any, forbidden: str = "/\\\0") -> str:  # of a folder in this one
    if not isinstance(value, str) or not _file_name(value).strip(".") or set(value) & {*forbidden}:
        _bad(key, value, "must be a name without / and \\, e.g. 'small buffer'")
    return value


def _check_known(word: Any, known: Sequence[str], what: str, where: str, value: Any) -> None:
    if word in known:
        return
    nearest = difflib.get_close_matches(str(word), known, n=1)
    few = ", ".join(known) if len(known) < 12 else "those that --help lists"
    hint = f"did you mean {nearest[0]}?" if nearest else f"choose from {few}"
    _bad(where, value, f"is not {what}; {hint}")


def _repeated(values: Sequence[Any]) -> list[Any]:
    return [value for value, count in Counter(values).items() if count > 1]


def _bad(key: str, value: Any, problem: str) -> NoReturn:
    raise SweepFileError(f"{key} = {value!r} {problem}")


def _flag(key: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [f"--{key}" if value else f"--no-{key}"]
    return [f"--{key}", str(value)]


def _text(value: Any) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _file_name(text: str) -> str:
    return "".join(c if c.isalnum() or c in "._=+-" else "-" for c in text)

"""``medqn train``: a command line becomes settings and options, and these a run."""

import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from medqn_tianshou.commands.edge import loading
from medqn_tianshou.commands.finding import newest_run
from medqn_tianshou.commands.flags import make_train_parser
from medqn_tianshou.commands.parsing import Parser
from medqn_tianshou.experiments.settings import SETTINGS_CLASSES, resolve_settings
from medqn_tianshou.files.extras import installed_command
from medqn_tianshou.training.errors import ConfigError
from medqn_tianshou.training.fields import field_specs
from medqn_tianshou.training.options import CHECKPOINT_ENDING, RunOptions
from medqn_tianshou.training.run_config import RunConfigError, is_finished, read_config
from medqn_tianshou.training.settings import NAMES, TrainingSettings

if TYPE_CHECKING:
    from medqn_tianshou.host.api import Agent
    from medqn_tianshou.training.loop import Training
    from medqn_tianshou.training.replay_free import ReplayFreeTraining

S = TypeVar("S", bound=TrainingSettings)
Flags = dict[str, Any]
"""The flags that were given, by the names of their settings and options."""

make_parser = make_train_parser


def main(
    family: str,
    arguments: Sequence[str] | None = None,
    prog: str | None = None,
    *,
    watch_policy: "Callable[[Agent, int], None] | None" = None,
) -> int:
    """Train, or watch a trained policy; return the exit code.

    :param arguments: the command line; None takes the process's.
    :param prog: the command that the user typed; None is the script's name.
    :param watch_policy: called with the policy and the environment step before each collect.
    """
    parser = make_train_parser(family, prog)
    with parser.reporting():
        settings, options = parse_run(parser, SETTINGS_CLASSES[family], arguments)
        with loading():
            from medqn_tianshou.experiments.families import FAMILIES

        FAMILIES[family].check(settings)
        if options.watch:
            FAMILIES[family].watch(settings, options)
            return 0
        training = FAMILIES[family].make_training(settings, options, watch_policy=watch_policy)
    return run_training(training)


def parse_run(
    parser: Parser, settings_class: type[S], arguments: Sequence[str] | None = None
) -> tuple[S, Any]:
    """Parse a command line; with ``--resume``, all but a few flags are those of the run.

    :return: the settings, and the options of the family's class.
    :raises ConfigError: if the flags do not fit together.
    """
    words = tuple(sys.argv[1:] if arguments is None else arguments)
    given = vars(parser.parse_args(words))
    if "resume" in given:
        given, words = _merge_with_run(parser, settings_class, given)
    options = _options_from(settings_class, given, arguments=words)
    settings = settings_from(settings_class, given)
    if settings.warning:
        print(f"warning: {settings.warning}", file=sys.stderr)
    return settings, options


def settings_from(settings_class: type[S], given: Flags) -> S:
    """Look up the settings for the flags that were given, settings and options by name."""
    names = field_specs(settings_class).keys() | field_specs(settings_class.shorthands).keys()
    values = {name: value for name, value in given.items() if name in names}
    known = {name: values.pop(name) for name in NAMES if name in values}
    return resolve_settings(settings_class, **known, overrides=values)


def _options_from(settings_class: type[TrainingSettings], given: Flags, **more: Any) -> RunOptions:
    names = field_specs(settings_class.options_class).keys()
    values = {name: value for name, value in given.items() if name in names}
    return settings_class.options_class(**values, **more)


def _merge_with_run(
    parser: Parser, settings_class: type[TrainingSettings], given: Flags
) -> tuple[Flags, tuple[str, ...]]:
    """Take the flags of the run to resume, but for options that may differ."""
    name, family = given["resume"], settings_class.family
    logdir = given.get("logdir", RunOptions.logdir)
    folder = newest_run(name, lambda run: _is_resumable(run, family), logdir)
    if folder is None or folder.is_file():
        remedy = f"contains no unfinished run of {family}; name one that exists, or a task"
        raise ConfigError("resume", repr(str(name)), remedy)
    given["resume"] = folder
    try:
        config = read_config(folder)
    except RunConfigError as error:
        raise ConfigError("resume", folder, str(error)) from error
    if config.family is None:
        remedy = "is a run of an earlier version, which this one cannot resume; start a new run"
        raise ConfigError("resume", folder, remedy)
    if config.family != family:
        remedy = f"is a run of {config.family}; resume it with medqn train {config.family}"
        raise ConfigError("resume", folder, remedy)
    if config.arguments is None:
        remedy = "was started from Python; resume it with RunOptions(resume=...)"
        raise ConfigError("resume", folder, remedy)
    if "task" in given:
        given["task"] = settings_class.canonical_task(given["task"], [config.task])
    # What this machine need not have: the first one's device, and parameters that are in the
    # checkpoints by now.
    dropped = {"device"} & given.keys()
    if any(folder.glob(f"checkpoints/*{CHECKPOINT_ENDING}")) and "resume_path" not in given:
        dropped.add("resume_path")
    of_run = vars(parser.parse_args(_without(config.arguments, map(parser.flag_of, dropped))))
    of_run.pop("auto_resume", None)
    options = _options_from(settings_class, of_run)
    free = {name for name, spec in field_specs(RunOptions).items() if spec.flag is not None}
    of_identity = {
        "steps": settings_from(settings_class, of_run).total_env_steps,
        **config.identity,
    }
    for name in sorted(given.keys() - free):
        value = of_identity.get(name, getattr(options, name, None))
        if given[name] != value:
            remedy = f"contradicts the run, which has {value}; leave it out"
            parser.bad(parser.flag_of(name), given[name], remedy)
    return of_run | {name: given[name] for name in given.keys() & free}, config.arguments


def _is_resumable(run: Path, family: str) -> bool:
    try:
        return not is_finished(run) and read_config(run).family == family
    except RunConfigError:
        return False


def _without(words: Sequence[str], flags: Iterable[str]) -> list[str]:
    """Leave flags out of a command line, with their values."""
    left_out, kept, rest = set(flags), [], iter(words)
    for word in rest:
        if word in left_out:
            next(rest, None)
        elif word.partition("=")[0] not in left_out:
            kept.append(word)
    return kept


def run_training(training: "Training | ReplayFreeTraining") -> int:
    """Train until the end or a signal, and print the summary; return the exit code."""
    from medqn_tianshou.envs.workers import DeadWorkerError
    from medqn_tianshou.training.loop import RunError

    try:
        with _stop_on_signals(training):
            summary = training.run()
    except (RunError, DeadWorkerError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(summary.text(training.run_folder.path))
    if summary.status == "interrupted":
        if training.checkpoints is not None and training.checkpoints.paths():
            command = f"{installed_command('medqn')} train {training.settings.family}"
            print(f"to resume: {command} --resume {training.run_folder.path}")
        return 128 + (training.stop_signal or signal.SIGINT)
    return 0


@contextmanager
def _stop_on_signals(training: "Training | ReplayFreeTraining") -> Iterator[None]:
    """Let signals end a run after its training step; a second Ctrl-C ends it at once.

    An evaluation, which may take minutes, is abandoned: the resumed run repeats it. Signals that
    are ignored, as SIGHUP is below nohup, stay so.
    """
    from medqn_tianshou.envs.workers import STOP_SIGNALS

    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        if training.stop_signal is not None:
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return  # a scheduler and the sweep may both send one
        training.stop_signal, is_evaluating = number, training.is_evaluating
        text = "stopping after this training step, with a checkpoint; a second Ctrl-C stops at once"
        if is_evaluating:
            text = "stopping in the middle of an evaluation, which a resumed run will repeat"
        below = "\n" if sys.stderr.isatty() else ""  # the progress line
        with suppress(OSError, RuntimeError):  # the terminal is gone, or just being written to
            print(f"{below}{text}", file=sys.stderr)
        if is_evaluating:
            raise KeyboardInterrupt

    heeded = [number for number in STOP_SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

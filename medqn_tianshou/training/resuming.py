"""Going on with a run: which one a command line means, its settings, and its last checkpoint."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from medqn_tianshou.commands.parsing import Parser
from medqn_tianshou.experiments.settings import Settings
from medqn_tianshou.files.container import UNSOUND
from medqn_tianshou.replay import CompactVectorReplayBuffer
from medqn_tianshou.training.checkpoint import CheckpointError
from medqn_tianshou.training.checkpoints import Checkpoints
from medqn_tianshou.training.loop import Training
from medqn_tianshou.training.run_folder import RunFolder, RunFolderError

# What may differ between the start of a run and its continuation.
_FREE = {
    "resume", "auto_resume", "logdir", "no_progress", "device", "checkpoint_every",
    "keep_checkpoints", "wandb", "wandb_mode",
}  # fmt: skip


def parse_arguments(parser: Parser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse a command line; with ``--resume``, all but a few flags are those of the run.

    :param parser: the script's parser.
    :param arguments: the command line; None is the process's.
    """
    given_texts = sys.argv[1:] if arguments is None else list(arguments)
    args = parser.parse_args(given_texts)
    args.arguments = given_texts
    if args.resume is None:
        return args
    if args.auto_resume:
        parser.bad("--auto-resume", True, "finds the run itself; leave --resume out, or this")
    config = read_config(parser, args.resume)
    old = parser.parse_args(config["arguments"])
    given = parser.given(given_texts)
    for name in sorted(given - _FREE):
        value, run_value = getattr(args, name), getattr(old, name)
        if run_value is None:
            run_value = config["settings"].get(name, {}).get("value")
        if value != run_value:
            flag = parser.flag_of(name)
            problem = f"contradicts the run, which has {run_value}; leave it out"
            parser.bad(flag, value, problem)
    for name in given & _FREE:
        setattr(old, name, getattr(args, name))
    old.auto_resume = False
    old.arguments = config["arguments"]
    return old


def read_config(parser: Parser, folder: Path) -> dict[str, Any]:
    """Read what a run folder says of its run, or report why not.

    :param parser: reports errors.
    :param folder: the run folder.
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text())
        sound = all(isinstance(text, str) for text in config["arguments"]) and isinstance(
            config["settings"], dict
        )
    except OSError as error:
        reason = error.strerror or error
        parser.bad("--resume", folder, f"is not a run folder (config.json: {reason}); name one")
    except (ValueError, LookupError, TypeError, RecursionError):
        sound = False
    if not sound:
        problem = "has a config.json that this version cannot read; name another run"
        parser.bad("--resume", folder, problem)
    return dict(config)


def run_identity(args: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    """What makes a run this run: task, algorithm, seed and all settings.

    :param args: the parsed command line.
    :param settings: all settings.
    """
    identity = {"task": args.task, "algo": args.algo, "seed": args.seed}
    values = {name: setting.value for name, setting in sorted(settings.items())}
    return dict(json.loads(json.dumps({**identity, **values})))


def config_identity(config: dict[str, Any]) -> dict[str, Any]:
    """The identity of the run that a ``config.json`` describes.

    :param config: its content.
    """
    values = {name: entry["value"] for name, entry in config["settings"].items()}
    return {**{name: config[name] for name in ("task", "algo", "seed")}, **values}


def config_difference(config: dict[str, Any], identity: dict[str, Any]) -> str | None:
    """Name a setting in which a run differs from what its command line means now, if any.

    :param config: the content of the run's ``config.json``.
    :param identity: the run's identity as settled now.
    """
    try:
        then = config_identity(config)
    except (LookupError, TypeError, AttributeError):
        return "its config.json cannot be read"
    for name in sorted(then.keys() | identity.keys()):
        if then.get(name) != identity.get(name):
            return f"{name} was {then.get(name)}, not {identity.get(name)}"
    return None


def find_unfinished(parent: Path, identity: dict[str, Any]) -> Path | None:
    """Find the newest run with an identity that has not come to its end.

    :param parent: where the runs of this task, algorithm and seed are.
    :param identity: what to look for.
    """
    runs = find_runs(parent, identity)
    return next((folder for folder in runs if not is_finished(folder)), None)


def find_runs(parent: Path, identity: dict[str, Any]) -> Iterator[Path]:
    """Find the runs with an identity, newest first.

    :param parent: where the runs of this task, algorithm and seed are.
    :param identity: what to look for.
    """
    for config_path in sorted(parent.glob("*/config.json"), reverse=True):
        try:
            if config_identity(json.loads(config_path.read_text())) == identity:
                yield config_path.parent
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            continue


def is_finished(folder: Path) -> bool:
    """Tell whether a run has come to its end.

    :param folder: its folder.
    """
    try:
        return bool(json.loads((folder / "summary.json").read_text())["status"] == "finished")
    except (OSError, ValueError, LookupError, TypeError):
        return False


def open_run(
    parser: Parser, args: argparse.Namespace, settings: Settings, run_names: tuple[str, ...]
) -> tuple[RunFolder, bool]:
    """Create the run folder, or open the one to go on with; tell whether it is new.

    :param parser: reports errors.
    :param args: the parsed command line.
    :param settings: all settings of the run.
    :param run_names: the folders that lead to the run's.
    """
    folder, flag = args.resume, "--resume"
    identity = run_identity(args, settings)
    if args.auto_resume:
        folder = find_unfinished(args.logdir.joinpath(*run_names), identity)
        flag = "--auto-resume"
    if folder is None:
        try:
            return RunFolder.create(args.logdir, *run_names), True
        except OSError as error:
            reason = error.strerror or str(error)
            parser.bad("--logdir", args.logdir, f"cannot hold run folders ({reason}); name another")
    if is_finished(folder):
        parser.bad(flag, folder, "has come to its end; start a new run")
    changed = config_difference(read_config(parser, folder), identity)
    if changed:
        parser.bad(flag, folder, f"is of another version: {changed}; resume it with that one")
    try:
        return RunFolder.reopen(folder), False
    except RunFolderError as error:
        parser.bad(flag, folder, str(error))
    except OSError as error:
        parser.bad(flag, folder, f"cannot be written to ({error.strerror or error})")


def restore(
    parser: Parser, training: Training, run: RunFolder, checkpoints: Checkpoints, logs: list[Path]
) -> None:
    """Put a training to its run's last sound checkpoint, or to the start if it has none.

    :param parser: reports errors.
    :param training: a training built as the run's was.
    :param run: the run's folder.
    :param checkpoints: the run's checkpoints.
    :param logs: the run's logs, without those of this process.
    """
    paths = checkpoints.paths()
    if not paths:
        print("no checkpoint yet: the run starts over", file=sys.stderr)
        return
    unusable: list[Path] = []
    for path in paths:
        try:
            state, replay = checkpoints.read(path)
            restored, sizes = _load(path, training, state, replay)
        except CheckpointError as error:
            unusable.append(path)
            print(f"warning: {error}; trying the one before", file=sys.stderr)
            continue
        try:
            run.rewind(logs, sizes)
        except (OSError, LookupError, TypeError, ValueError) as error:
            training.abandon()
            problem = f"has logs that cannot be cut back ({error}); put them back or start anew"
            parser.bad("--resume", run.path, problem)
        for damaged in unusable:
            checkpoints.set_aside(damaged)
        env_step = training.trainer.env_step + training.clock_start
        print(f"resumed at env step {env_step:,} from {path}", flush=True)
        if not restored:
            print(
                "warning: these environments cannot be put back; they start new episodes",
                file=sys.stderr,
            )
        return
    training.abandon()
    for path in set(run.logs()) - set(logs):
        path.unlink()
    parser.bad("--resume", run.path, "has no checkpoint that can be used; start a new run")


def _load(
    path: Path,
    training: Training,
    state: dict[str, Any],
    replay: CompactVectorReplayBuffer | None,
) -> tuple[bool, dict[str, int]]:
    """Load a state; tell whether the environments were put back, and the sizes of the logs."""
    try:
        sizes = {str(name): int(size) for name, size in state["logs"].items()}
        return training.load_state_dict(state, replay), sizes
    except UNSOUND as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CheckpointError(f"{path}: does not fit this run ({reason})") from None

"""Logs a run's scalars to Weights & Biases (extra ``wandb``), a row per environment step.

W&B's own ``sync_tensorboard`` was measured and is not used: its x axis counts rows and mixes
environment steps with gradient steps, and a resumed run logs the steps after its checkpoint twice.
"""

import json
import secrets
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from medqn_tianshou.files.extras import install_command
from medqn_tianshou.training.errors import ConfigError, reason_of
from medqn_tianshou.training.options import WandbMode
from medqn_tianshou.training.run_folder import RunFolder

RECORD = "wandb.json"
_EXIT_CODES = {"finished": 0, "failed": 1, "interrupted": 130}


class WandbMirror:
    """A run on Weights & Biases. If W&B fails, the run warns once and continues.

    A row is sent when the next environment step begins. The run folder stores the last step sent:
    a resumed run, which repeats the steps since its checkpoint, does not send those again.

    :param project: ``PROJECT``, or ``ENTITY/PROJECT``.
    :param mode: ``"online"``, ``"offline"``, or None for W&B's own setting.
    :raises Exception: whatever W&B raises when it cannot start.
    """

    def __init__(self, *, run: RunFolder, project: str, mode: WandbMode | None) -> None:
        import wandb

        self._run_folder = run
        self._record = _read_record(run, project)
        self._row: dict[str, float] = {}
        self._row_step = 0
        config = json.loads((run.path / "config.json").read_text())
        names = {name: config[name] for name in ("task", "algo", "seed")}
        entity, _, name = project.rpartition("/")
        self._wandb_run: Any = wandb.init(
            entity=entity or None,
            project=name,
            id=self._record["id"],
            resume="allow",
            dir=run.path,
            name=f"{names['task']} {names['algo']} seed {names['seed']}",
            group=f"{names['task']} {names['algo']}",
            config={
                **names,
                "device": config["device"],
                **{name: entry["value"] for name, entry in config["settings"].items()},
                "versions": config["versions"],
                "run_folder": str(run.path),
            },
            allow_val_change=True,  # a resumed run may have moved
            mode=mode,
            # W&B would print its own lines, and upload the progress bar as a log.
            settings=wandb.Settings(silent=True, console="off"),
        )
        self._save_record()

    @property
    def where(self) -> str:
        """Where the user can see the run."""
        run = self._wandb_run
        if not run.offline:
            return str(run.url)
        return f"offline; send it with: wandb sync {Path(run.dir).parent}"

    def add(self, tag: str, value: float, env_step: int) -> None:
        """Add a scalar to its step's row, and send the row of an earlier step."""
        if env_step > self._row_step:
            self._send_row()
            self._row_step = env_step
        self._row[tag] = value

    def state_dict(self) -> dict[str, Any]:
        """Return the row that is not sent yet: a resumed run completes it."""
        return {"row": dict(self._row), "row_step": self._row_step}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what :meth:`state_dict` returned."""
        self._row, self._row_step = dict(state["row"]), int(state["row_step"])

    def close(self, status: str, figures: dict[str, float | None]) -> None:
        """Log how the run ended, and those of the final figures that are not None."""
        if status == "finished":  # otherwise the checkpoint has the row, or the run repeats it
            self._send_row()
        known = {f"final/{name}": value for name, value in figures.items() if value is not None}
        self._try(lambda run: run.summary.update({"status": status, **known}))
        self._try(lambda run: run.finish(exit_code=_EXIT_CODES[status]))
        self._wandb_run = None

    def _send_row(self) -> None:
        row, env_step = self._row, self._row_step
        self._row = {}
        if not row or env_step <= self._record["env_step"]:
            return
        # The record first: a kill between the two loses a row instead of sending it twice.
        self._record["env_step"] = env_step
        self._save_record()
        self._try(lambda run: run.log(row, step=env_step, commit=True))

    def _save_record(self) -> None:
        self._try(lambda _: self._run_folder.write_json(RECORD, self._record))

    def _try(self, act: Callable[[Any], Any]) -> None:
        if self._wandb_run is None:
            return
        try:
            act(self._wandb_run)
        except Exception as error:  # W&B raises many kinds, and none is worth a run
            self._wandb_run = None
            problem = f"Weights & Biases failed ({reason_of(error)}); the run continues without it"
            print(f"warning: {problem}", file=sys.stderr)


def check_wandb(project: str | None, mode: WandbMode | None) -> None:
    """Raise ConfigError for options that cannot be followed, before anything is written."""
    if project is None:
        if mode is not None:
            raise ConfigError("wandb_mode", mode, "logs nothing by itself; add --wandb PROJECT")
        return
    if not project.rpartition("/")[2]:
        remedy = "names no project; write PROJECT or ENTITY/PROJECT"
        raise ConfigError("wandb", repr(project), remedy)
    if find_spec("wandb") is None:
        raise ConfigError("wandb", project, f"needs W&B's package; {install_command('wandb')}")


def open_wandb(
    run: RunFolder, *, project: str | None, mode: WandbMode | None, is_new: bool
) -> WandbMirror | None:
    """Start or resume the run on Weights & Biases, if the user wants it there.

    :param run: the run's folder, with its ``config.json``.
    :param is_new: a new run is discarded if W&B fails; a resumed one continues without W&B.
    :raises ConfigError: if W&B fails for a new run.
    """
    if project is None:
        return None
    try:
        mirror = WandbMirror(run=run, project=project, mode=mode)
    except Exception as error:  # W&B raises many kinds
        problem = f"cannot be logged to ({reason_of(error)}); "
        if is_new:
            run.discard()
            remedy = problem + "run `wandb login`, or use --wandb-mode offline"
            raise ConfigError("wandb", project, remedy) from error
        remedy = problem + "the run continues without it"
        print(f"warning: --wandb {project} {remedy}", file=sys.stderr)
        return None
    print(f"Weights & Biases: {mirror.where}", flush=True)
    return mirror


def _read_record(run: RunFolder, project: str) -> dict[str, Any]:
    """Read the run's id and the last step sent; a new id if the project is another one."""
    try:
        record: dict[str, Any] = json.loads((run.path / RECORD).read_text())
        if record["project"] == project and record["id"] and record["env_step"] >= -1:
            return record
    except (OSError, ValueError, LookupError, TypeError):
        pass
    return {"project": project, "id": secrets.token_hex(4), "env_step": -1}

"""Runs on Weights & Biases, without a network: what was sent is what TensorBoard got."""

import importlib.machinery
import json
import struct
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from resume_runs import LOWDIM, resume, run_folder, scalars, train, train_and_kill
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from medqn_tianshou.commands import train as train_command
from medqn_tianshou.files.extras import install_command
from medqn_tianshou.files.parameters import read_parameters
from medqn_tianshou.training import wandb_mirror
from medqn_tianshou.training.loop import Training

FLAGS = (
    f"--task MountainCar-v0 --algo medqn-u {LOWDIM} --eval-every 160 --step-per-collect 4".split()
)
TIMED = ("time", "speed", "per_s", "memory/")
BLOCK = 32768
pytestmark = pytest.mark.slow


class StubRun:
    """What was sent, instead of a run on the server."""

    def __init__(self, options, fails_at):
        self.options, self.fails_at = options, fails_at
        self.rows, self.summary, self.exit_code = {}, {}, None
        self.offline, self.url = False, "https://wandb.example/run"

    def log(self, row, *, step, commit):
        assert commit
        assert step > max(self.rows, default=-1)
        if self.fails_at is not None and step >= self.fails_at:
            raise ConnectionError("the server is gone\nand more")
        self.rows[step] = row

    def finish(self, exit_code):
        self.exit_code = exit_code


@pytest.fixture
def stub(monkeypatch):
    """Put a stub in place of W&B's package; give the runs that were begun."""
    runs = []
    control = SimpleNamespace(runs=runs, fails_at=None, init_error=None)

    def init(**options):
        if control.init_error:
            raise control.init_error
        runs.append(StubRun(options, control.fails_at))
        return runs[-1]

    module = ModuleType("wandb")
    module.__spec__ = importlib.machinery.ModuleSpec("wandb", None)
    module.init, module.Settings = init, SimpleNamespace
    monkeypatch.setitem(sys.modules, "wandb", module)
    return control


def untimed(rows):
    return {
        step: {tag: value for tag, value in row.items() if not any(word in tag for word in TIMED)}
        for step, row in rows.items()
    }


def records(path):
    """Read a file of W&B's: records of Protocol Buffers in LevelDB's log format."""
    pb = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    data, position, record = path.read_bytes(), 7, b""
    while position + 7 <= len(data):
        left = BLOCK - position % BLOCK
        if left < 7:
            position += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        position += 7 + length
        record += data[position - length : position]
        if kind in (1, 4):  # whole, or the last part
            yield pb.Record.FromString(record)
            record = b""


def test_an_offline_run_has_the_scalars_of_tensorboard_and_the_same_policy(tmp_path, monkeypatch):
    if sys.modules.get("wandb", ...) is None:  # the scripts hide it from Tianshou
        monkeypatch.delitem(sys.modules, "wandb")
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    plain = train("lowdim", tmp_path / "plain", *FLAGS)
    run = train("lowdim", tmp_path / "mirrored", *FLAGS, "--wandb", "someone/medqn")
    first, second = (read_parameters(f / "policy_last.safetensors") for f in (plain, run))
    assert all(torch.equal(value, second[name]) for name, value in first.items())

    (file,) = run.glob("wandb/offline-run-*/*.wandb")
    found = {}
    for record in records(file):
        found.setdefault(record.WhichOneof("record_type"), []).append(record)
    sent = {}
    for record in found["history"]:
        row = {item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
        step = row.pop("_step")
        for tag in row.keys() - {"_runtime", "_timestamp"}:
            sent.setdefault(tag, []).append((step, row[tag]))
    events = EventAccumulator(str(run), size_guidance={"scalars": 0})
    events.Reload()
    logged = {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}
    finals = {tag for tag in logged if tag.startswith("final/")}
    assert sent.keys() == logged.keys() - finals
    for tag, values in sent.items():
        # The last value where TensorBoard has two of one step, as at the end of a run.
        last = {event.step: event.value for event in logged[tag]}
        assert [value for _, value in values] == pytest.approx(list(last.values()), rel=1e-6)
        if not tag.startswith(("update/", "info/", "save/")):  # which have other clocks there
            assert [step for step, _ in values] == list(last)
    settings = json.loads((run / "config.json").read_text())["settings"]
    told = found["run"][0].run
    config = {item.key: json.loads(item.value_json) for item in told.config.update}
    assert (told.entity, told.project) == ("someone", "medqn")
    assert told.run_id == json.loads((run / "wandb.json").read_text())["id"]
    assert {name: entry["value"] for name, entry in settings.items()}.items() <= config.items()
    assert config["task"] == "MountainCar-v0"
    summary = json.loads((run / "summary.json").read_text())
    updates = [item for record in found["summary"] for item in record.summary.update]
    final = {item.key: json.loads(item.value_json) for item in updates if item.key}
    assert final["status"] == "finished"
    assert final["final/best_return"] == summary["best_return"]
    assert found["exit"][0].exit.exit_code == 0


def test_the_x_axis_of_losses_is_the_environment_step(tmp_path, stub):
    run = train("lowdim", tmp_path, *FLAGS, "--wandb", "medqn")
    gradient_steps = [step for step, _ in scalars(run)["update/td_loss"]]
    (sent,) = stub.runs
    steps = [step for step, row in sent.rows.items() if "update/td_loss" in row]
    epochs = json.loads((run / "config.json").read_text())["settings"]["consolidation_epochs"]
    # Update number n follows n collects of 4 steps after the warm-up of 100.
    assert steps == [100 + 4 * (step // epochs["value"]) for step in gradient_steps]


@pytest.mark.parametrize("collects", [10, 60])
def test_a_resumed_run_sends_each_step_once(tmp_path, monkeypatch, capsys, stub, collects):
    flags = [*FLAGS, "--wandb", "medqn", "--checkpoint-every", "60"]
    train("lowdim", tmp_path / "whole", *flags)
    killed = train_and_kill("lowdim", tmp_path / "killed", monkeypatch, collects, *flags)
    if collects > 15:
        resume("lowdim", killed, capsys)
    else:  # there is no checkpoint yet: it starts over
        assert train_command.main("lowdim", ["--resume", str(killed), "--no-progress"]) == 0
    whole, before, after = stub.runs
    assert before.options["id"] == after.options["id"] != whole.options["id"]
    assert after.options["resume"] == "allow"
    assert before.rows.keys().isdisjoint(after.rows)
    assert untimed({**before.rows, **after.rows}) == untimed(whole.rows)


def test_a_run_that_was_stopped_is_told_so_and_goes_on(tmp_path, monkeypatch, capsys, stub):
    flags = [*FLAGS, "--wandb", "medqn"]
    train("lowdim", tmp_path / "whole", *flags)
    stopped = tmp_path / "stopped"
    before_collect = Training._before_collect

    def stop_after_an_evaluation(self, epoch, trainer_step):
        if trainer_step == 220:  # after the warm-up of 100
            self.stop_signal = 15
        before_collect(self, epoch, trainer_step)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "_before_collect", stop_after_an_evaluation)
        arguments = [*flags, "--no-progress", "--logdir", str(stopped)]
        assert train_command.main("lowdim", arguments) == 128 + 15
    assert resume("lowdim", run_folder(stopped), capsys) == 320
    whole, before, after = stub.runs
    assert (before.summary["status"], before.exit_code) == ("interrupted", 130)
    assert (after.summary["status"], after.exit_code) == ("finished", 0)
    assert untimed({**before.rows, **after.rows}) == untimed(whole.rows)


def test_a_failure_of_the_server_is_told_once_and_the_run_goes_on(tmp_path, capsys, stub):
    stub.fails_at = 200
    run = train("lowdim", tmp_path, *FLAGS, "--wandb", "medqn")
    warnings = capsys.readouterr().err.splitlines()
    assert [line for line in warnings if "Weights" in line] == [
        "warning: Weights & Biases failed (the server is gone); the run continues without it"
    ]
    assert json.loads((run / "summary.json").read_text())["status"] == "finished"
    assert stub.runs[0].rows


def test_a_server_that_refuses_stops_a_new_run_but_not_one_that_goes_on(
    tmp_path, monkeypatch, capsys, stub
):
    flags = [*FLAGS, "--checkpoint-every", "60", "--wandb", "medqn"]
    killed = train_and_kill("lowdim", tmp_path / "killed", monkeypatch, 40, *flags)
    stub.init_error = ValueError("No API key configured.")
    with pytest.raises(SystemExit) as exit_info:
        train("lowdim", tmp_path / "new", *flags)
    assert exit_info.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "argument --wandb: medqn cannot be logged to (No API key configured.)" in line
    assert "--wandb-mode offline" in line
    assert not [path for path in (tmp_path / "new").rglob("*") if path.is_file()]
    assert train_command.main("lowdim", ["--resume", str(killed), "--no-progress"]) == 0
    assert "continues without it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--wandb", "medqn"], f"medqn needs W&B's package; {install_command('wandb')}"),
        (["--wandb", "someone/"], "'someone/' names no project; write PROJECT"),
        (["--wandb-mode", "offline"], "offline logs nothing by itself; add --wandb PROJECT"),
    ],
)
def test_flags_that_cannot_be_followed_get_one_line(tmp_path, monkeypatch, capsys, flags, problem):
    monkeypatch.setattr(wandb_mirror, "find_spec", lambda _: None)
    with pytest.raises(SystemExit) as exit_info:
        train("lowdim", tmp_path / "log", *FLAGS, *flags)
    assert exit_info.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"error: argument {flags[0]}: {problem}" in line
    assert not (tmp_path / "log").exists()

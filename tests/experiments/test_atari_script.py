"""The Atari script as a user runs it."""

import json
import os
import re
import signal
import subprocess
import sys
from functools import partial

import pytest
import torch
from conftest import SHORT_RUNS
from scripts import ROOT, load_script
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from medqn_tianshou.commands import train
from medqn_tianshou.experiments import atari
from medqn_tianshou.files.extras import install_command
from medqn_tianshou.files.parameters import read_parameters
from medqn_tianshou.training.memory import parse_bytes

SCRIPT = ROOT / "atari/atari_medqn.py"
TASK = "QbertNoFrameskip-v4"
SHORT = SHORT_RUNS["atari"].split()  # an update every 4 of 240 steps: 60 gradient steps
main = partial(train.main, "atari")


def scalars(folder):
    events = EventAccumulator(str(folder))
    events.Reload()
    return {tag: events.Scalars(tag) for tag in events.Tags()["scalars"]}


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("backend", ["envpool", "ale"])
def test_a_run_from_the_shell_trains_and_its_summary_agrees_with_its_files(
    tmp_path, backend, run_folder, read_csv
):
    command = [sys.executable, SCRIPT, *SHORT, "--env-backend", backend, "--logdir", tmp_path]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    folder = run_folder(tmp_path)
    rows, tags = read_csv(folder / "progress.csv"), scalars(folder)
    summary = json.loads((folder / "summary.json").read_text())

    assert [int(row["env_step"]) for row in rows] == [0, 120, 240]
    assert [int(row["gradient_step"]) for row in rows] == [0, 30, 60]
    returns = [float(row["eval_return_mean"]) for row in rows]
    found = re.findall(r"^  (\w+ ?\w+)  *(\S+)", result.stdout, re.MULTILINE)
    printed = {name: value.replace(",", "") for name, value in found}
    trained = returns[1:]  # the first evaluation is that of the untrained network
    assert float(printed["best return"]) == pytest.approx(max(trained), abs=0.01)
    assert float(printed["final return"]) == pytest.approx(returns[-1], abs=0.01)
    assert float(printed["peak RSS"]) == pytest.approx(summary["peak_rss_mb"], abs=0.1)
    nbytes = parse_bytes(re.search(r"replay buffer (.*), 272 transitions", result.stdout)[1])
    assert nbytes == pytest.approx(float(rows[-1]["buffer_mb"]) * 1e6, rel=0.01)
    assert float(printed["speed"]) == pytest.approx(summary["steps_per_s"], abs=0.01)
    assert printed["files"] == str(folder)
    assert "60 gradient steps" in result.stdout
    assert summary["best_return"] == max(trained)
    assert summary["final_return"] == returns[-1]
    assert summary["env_steps"] == 240

    for tag in ("memory/rss_mb", "memory/peak_rss_mb", "memory/buffer_mb"):
        assert tags[tag][-1].step == 240
    assert tags["memory/peak_rss_mb"][-1].value == pytest.approx(summary["peak_rss_mb"], rel=1e-6)
    assert tags["memory/buffer_mb"][-1].value == pytest.approx(summary["buffer_mb"], rel=1e-6)
    assert [event.value for event in tags["test/returns_stat/mean"]] == pytest.approx(returns)
    for tag in ("loss", "td_loss", "consolidation_loss", "consolidation_coef"):
        assert tags[f"update/{tag}"]
    # Both schedules move by environment step; the last collect began at step 236 of 240.
    # Epsilon falls over 240 steps by a flag, lambda rises over the published length of a run.
    for tag, start, end, length in (
        ("consolidation_coef", 0.01, 2.0, 12_500_000),
        ("epsilon", 1.0, 0.05, 240),
    ):
        values = {event.step: event.value for event in tags[f"train/{tag}"]}
        assert values[0] == pytest.approx(start)
        assert values[120] == pytest.approx(start + (end - start) * 116 / length)
        assert values[240] == pytest.approx(start + (end - start) * 236 / length)

    config = json.loads((folder / "config.json").read_text())
    assert config["seed"] == 0
    assert "--env-backend" in config["command"]
    assert config["versions"]["tianshou"].startswith("1.2")
    assert config["settings"]["lambda_end"] == {"value": 2.0, "source": "release"}
    assert config["settings"]["buffer_size"] == {"value": 300, "source": "flag"}
    assert config["settings"]["env_backend"]["value"] == backend
    assert config["settings"]["replay"] == {"value": "compact", "source": "ours"}
    assert summary["buffer_transitions"] == 272
    assert summary["buffer_mb"] * 1e6 < 272 * 7056  # frames alone, raw
    assert {"policy_best.safetensors", "policy_last.safetensors"} <= {
        path.name for path in folder.iterdir()
    }


@pytest.fixture
def parameters_after(short_run, last_policy):
    return lambda logdir, *flags: last_policy(short_run("atari", logdir, *flags))


def same(one, other):
    return all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.slow
def test_the_same_seed_gives_the_same_run_and_another_seed_another(
    tmp_path, parameters_after, run_folder, read_csv
):
    first = parameters_after(tmp_path / "a")
    assert same(first, parameters_after(tmp_path / "b"))
    assert not same(first, parameters_after(tmp_path / "c", "--seed", "1"))
    one, other = (read_csv(run_folder(tmp_path / name) / "progress.csv") for name in "ab")
    for key in ("eval_return_mean", "eval_return_std", "train_return", "gradient_step"):
        assert [row[key] for row in one] == [row[key] for row in other]


@pytest.mark.slow
@pytest.mark.parametrize("flags", ["", "--algo dqn --double --huber --overlap"])
def test_the_script_and_the_command_give_the_same_parameters(
    tmp_path, flags, parameters_after, run_folder, last_policy
):
    command = parameters_after(tmp_path / "command", *flags.split())
    logdir = tmp_path / "script"
    script = load_script("atari/atari_medqn.py")
    arguments = [*SHORT, "--no-progress", "--logdir", str(logdir), *flags.split()]
    assert script.main(arguments) == 0
    assert same(command, last_policy(run_folder(logdir)))
    one, other = (
        json.loads((run_folder(tmp_path / name) / "config.json").read_text())
        for name in ("command", "script")
    )
    assert one["settings"] == other["settings"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "flags",
    [
        "--algo dqn",
        "--sampling uniform --consolidation-epochs 2",
        "--sampling mixed --consolidation-loss kl --double --dueling --huber --training-num 2",
    ],
)
def test_variants_train(tmp_path, flags, parameters_after):
    initial = parameters_after(tmp_path / "short", "--epoch", "1", *flags.split())
    assert not same(initial, parameters_after(tmp_path / "long", *flags.split()))


@pytest.mark.slow
def test_a_saved_policy_can_be_watched_and_trained_on(
    tmp_path, capsys, parameters_after, run_folder
):
    parameters_after(tmp_path / "first")
    saved = run_folder(tmp_path / "first") / "policy_best.safetensors"
    capsys.readouterr()
    assert main([*SHORT, "--watch", "--resume-path", str(saved)]) == 0
    assert re.search(r"returns \[[\d.]+\], mean [\d.]+", capsys.readouterr().out)
    start = read_parameters(saved)
    resumed = parameters_after(tmp_path / "second", "--resume-path", str(saved), "--lr", "1e-12")
    online = [name for name in start if name.startswith("model.")]
    assert online
    for name in online:
        torch.testing.assert_close(resumed[name], start[name], rtol=0, atol=1e-6)
    assert not same(start, parameters_after(tmp_path / "third", "--lr", "1e-12", "--seed", "5"))


@pytest.mark.slow
@pytest.mark.process
def test_ctrl_c_ends_with_a_summary_and_a_saved_policy(tmp_path, run_folder, last_policy):
    command = [sys.executable, SCRIPT, *SHORT, "--epoch", "1000", "--logdir", tmp_path]
    command += ["--checkpoint-every", "120"]  # a signal during an evaluation writes none
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        while not list(tmp_path.glob("**/*.checkpoint")):
            assert process.poll() is None, process.stderr.read()
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in errors
    assert output.splitlines()[-8].startswith("interrupted after")
    assert "medqn train atari --resume" in output.splitlines()[-1]
    folder = run_folder(tmp_path)
    assert json.loads((folder / "summary.json").read_text())["status"] == "interrupted"
    assert last_policy(folder)


@pytest.fixture
def error_of(error_line):
    return partial(error_line, main)


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        ("--task QbertNoFrameskp-v4", ["--task", "QbertNoFrameskp-v4", TASK]),
        ("--task Xyzzy", ["--task", "'Xyzzy'", "for example"]),
        ("--buffer-size 0", ["--buffer-size", "'0'", "at least 1"]),
        ("--buffer-size 6", ["--buffer-size", "6", "at least 7"]),
        ("--buffer-size 1.5", ["--buffer-size", "'1.5'", "whole number"]),
        ("--lr -1", ["--lr", "'-1'", "above 0"]),
        ("--gamma 1.01", ["--gamma", "'1.01'", "at most 1"]),
        ("--eps-test nan", ["--eps-test", "'nan'"]),
        ("--training-num 3", ["--training-num", "3", "20", "divisor"]),
        ("--update-per-step 0.001", ["--update-per-step", "0.001", "0.05"]),
        ("--device cuda:77", ["--device", "'cuda:77'", "cpu"]),
        ("--memory-cap 12Q", ["--memory-cap", "'12Q'", "800M"]),
        ("--sampling fake", ["--sampling", "fake", "real"]),
        ("--resume-path none.pth", ["--resume-path", "'none.pth'", "not a file"]),
        ("--watch", ["--watch", "--resume-path"]),
        ("--algo dqn --lambda-end 2", ["--lambda-end", "2", "--algo medqn-r"]),
        ("--algo dqn --sampling uniform", ["--sampling", "uniform", "--algo medqn-r"]),
        ("--step-per-epoch 50", ["--step-per-epoch", "50", "use 60"]),
        ("--render 0.1", ["--render", "0.1", "--watch"]),
        ("--memory-cap 10K", ["--memory-cap", "10.0 kB", "use at least"]),
        ("--replay raw --memory-cap 10K", ["--buffer-size", "100000", "smallest, 32"]),
        ("--replay zip", ["--replay", "zip", "compact"]),
        ("--no-such-flag 1", ["--no-such-flag"]),
    ],
)
def test_bad_input_gets_one_line_with_argument_value_and_remedy(error_of, flags, parts):
    line = error_of(*flags.split())
    for part in parts:
        assert part in line


@pytest.mark.slow
def test_a_buffer_over_the_cap_is_refused_with_the_largest_size_that_fits(
    error_of, tmp_path, run_folder
):
    flags = [*SHORT[:2], "--replay", "raw", "--memory-cap", "80M", "--logdir", str(tmp_path)]
    line = error_of(*flags, "--buffer-size", "100000")
    assert "709.1 MB" in line
    assert "--memory-cap 80.0 MB" in line
    fits = int(re.search(r"--buffer-size (\d+)$", line)[1])
    assert "fits" in error_of(*flags, "--buffer-size", str(fits + 1))
    assert list(tmp_path.iterdir()) == []
    assert main([*SHORT, *flags, "--buffer-size", str(fits), "--epoch", "1"]) == 0
    config = json.loads((run_folder(tmp_path) / "config.json").read_text())
    summary = json.loads((run_folder(tmp_path) / "summary.json").read_text())
    assert config["buffer_bytes_at_most"] == pytest.approx(summary["buffer_mb"] * 1e6)


@pytest.mark.slow
def test_a_compact_buffer_over_the_cap_goes_on_with_what_fits(capsys, tmp_path, run_folder):
    flags = [*SHORT, "--logdir", str(tmp_path), "--memory-cap", "150K", "--no-progress"]
    assert main([*flags, "--epoch", "1", "--step-per-epoch", "600"]) == 0
    said = re.search(r"(\d+) of 300 transitions fit in 150.0 kB", capsys.readouterr().err)
    summary = json.loads((run_folder(tmp_path) / "summary.json").read_text())
    assert 8 <= int(said[1]) < 300
    assert summary["buffer_transitions"] < 300
    assert summary["buffer_mb"] <= 0.15


def test_a_buffer_larger_than_the_machine_is_refused(error_of):
    line = error_of("--replay", "raw", "--buffer-size", "1e12")
    assert "TB" in line or "GB" in line
    assert "has left for it; the largest that fits is --buffer-size" in line


def test_a_machine_without_atari_names_the_extra(error_of, monkeypatch):
    monkeypatch.setattr(atari, "atari_tasks", tuple)
    assert install_command("atari") in error_of("--task", TASK)


def test_a_logdir_that_is_a_file_is_refused(error_of, tmp_path):
    (tmp_path / "file").write_text("keep me")
    line = error_of(*SHORT, "--logdir", str(tmp_path / "file"))
    assert "--logdir" in line
    assert (tmp_path / "file").read_text() == "keep me"


def test_a_policy_of_another_network_is_refused(error_of, tmp_path):
    torch.save({"weight": torch.zeros(1)}, tmp_path / "other.pth")
    line = error_of(*SHORT, "--resume-path", str(tmp_path / "other.pth"))
    assert "--resume-path" in line
    assert "does not fit" in line


def test_help_names_every_flag_its_unit_and_default(capsys):
    with pytest.raises(SystemExit):
        main(["--help-all"])
    text = " ".join(capsys.readouterr().out.split())
    for expected in (
        "gradient steps between target network copies (default: 500 (tianshou))",
        "C_current: environment steps between updates (default: medqn-r 40, dqn 10, Qbert medqn-r",
        "transitions in the replay buffer (default: medqn-r 100_000, dqn 1_000_000)",
    ):
        assert expected in text

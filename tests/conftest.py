"""Fixtures that several test files share; most are functions to call."""

import csv
import shutil
import sys
from contextlib import suppress

import pytest
import torch
from tianshou.data.buffer import manager
from tianshou.data.utils import segtree

from medqn_tianshou.files.parameters import read_parameters
from medqn_tianshou.host.api import Policy

# The networks of the tests are tiny: more threads only wait for each other.
torch.set_num_threads(1)

# Tianshou compiles these functions in each process, for a dozen seconds: keep the code on disk.
for module in (sys.modules[Policy.__module__], manager, segtree):
    for function in vars(module).values():
        with suppress(AttributeError, RuntimeError):  # not compiled; no folder to keep it in
            function.enable_caching()

# Random play keeps the episodes of the short runs short, and their updates few.
SHORT_RUNS = {
    "lowdim": "--steps 300 --warmup-steps 100",
    "minatar": "--steps 300 --warmup-steps 100",
    "atari": "--task QbertNoFrameskip-v4 --epoch 2 --step-per-epoch 120 --step-per-collect 4 "
    "--buffer-size 300 --test-num 1 --eps-test 1 --eps-decay-steps 240",
}


@pytest.fixture(scope="session")
def run_folder():
    """Find the only run folder below a folder."""

    def find(logdir):
        (config,) = logdir.glob("**/config.json")
        return config.parent

    return find


@pytest.fixture(scope="session")
def read_csv():
    """Read a CSV file as a list of dictionaries."""

    def read(path):
        with path.open(newline="") as file:
            return list(csv.DictReader(file))

    return read


@pytest.fixture(scope="session")
def short_run(run_folder):
    """Train a family for a few hundred steps, with further flags; return the run folder."""
    from medqn_tianshou.commands import train

    def run(family, logdir, *flags):
        own = [*SHORT_RUNS[family].split(), "--no-progress", "--logdir", str(logdir)]
        assert train.main(family, [*own, *flags]) == 0
        return run_folder(logdir)

    return run


@pytest.fixture(scope="session")
def last_policy():
    """Load the parameters that a run ended with."""

    def load(folder):
        return read_parameters(folder / "policy_last.safetensors")

    return load


@pytest.fixture
def error_line(capsys):
    """Run a command line that must be refused: exit code 2, and one line, which is returned."""

    def run(main, *arguments):
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_info:
            main([str(argument) for argument in arguments])
        assert exit_info.value.code == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        (line,) = captured.err.splitlines()
        return line

    return run


@pytest.fixture
def on_learn(monkeypatch):
    """Call a function with policy and batch before each update."""
    from medqn_tianshou.fast.policy import FastMeDQNPolicy

    def patch(act):
        learn = FastMeDQNPolicy._take_gradient_steps

        def noted(policy, batch):
            act(policy, batch)
            return learn(policy, batch)

        # Compiled updates step aside.
        monkeypatch.setattr(FastMeDQNPolicy, "_take_gradient_steps", noted)

    return patch


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """A short run that was not interrupted, to compare resumed ones with; do not change it."""
    from resume_runs import FLAGS, train

    return train("lowdim", tmp_path_factory.mktemp("whole"), *FLAGS)


@pytest.fixture(scope="session")
def killed_once(tmp_path_factory):
    """The log folder of the same run, killed at step 350; do not change it."""
    from resume_runs import FLAGS, OFTEN, train_and_kill

    logdir = tmp_path_factory.mktemp("killed")
    train_and_kill("lowdim", logdir, pytest.MonkeyPatch(), 251, *FLAGS, *OFTEN)
    return logdir


@pytest.fixture
def killed(tmp_path, killed_once, run_folder):
    """A copy of the killed run, with checkpoints of steps 280 and 340."""
    from resume_runs import checkpoints

    folder = run_folder(shutil.copytree(killed_once, tmp_path / "killed"))
    assert checkpoints(folder) == ["000000000280.checkpoint", "000000000340.checkpoint"]
    return folder

"""A training process loads what it uses; what it does not use is whole for whoever imports it."""

import subprocess
import sys

import pytest
from scripts import ROOT

# Packages that others import and a run does not use: together they took as much as all the rest.
UNUSED = (
    "deepdiff", "envpool", "h5py", "matplotlib", "pandas", "ray", "scipy.special", "seaborn",
    "sympy", "torch._dynamo.config", "torch._inductor", "wandb",
)  # fmt: skip
SHORT = {
    "atari": "--epoch 1 --step-per-epoch 40 --test-num 1",
    "minatar": "--steps 5010 --eval-every 5005 --eval-episodes 1",
    "lowdim": "--steps 1100 --eval-every 1050 --eval-episodes 1",
}


def run(code, *arguments):
    command = [sys.executable, "-c", code, *map(str, arguments)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("family", SHORT)
def test_a_run_loads_nothing_that_it_does_not_use(family, tmp_path):
    unused = [*UNUSED, *({"cv2", "ale_py"} if family != "atari" else ())]
    code = f"""
import sys
from medqn_tianshou.commands.main import main
assert main(sys.argv[1:]) == 0
loaded = [name for name in {unused} if name in sys.modules]
assert not loaded, loaded
"""
    run(code, "train", family, *SHORT[family].split(), "--no-progress", "--logdir", tmp_path)


@pytest.mark.slow
@pytest.mark.process
def test_what_stands_in_works_when_it_is_used_after_all(tmp_path):
    run(
        """
import sys
from medqn_tianshou import prepare_process
prepare_process()
prepare_process()
import tianshou
assert sum("startup" in type(finder).__module__ for finder in sys.meta_path) == 1
names = ["deepdiff", "h5py", "matplotlib", "matplotlib.figure", "pandas", "ray", "wandb", "cv2"]
assert not sys.modules.keys() & set(names)

from tianshou.data import Batch, ReplayBuffer
from tianshou.utils.logger import tensorboard
assert not isinstance(1.0, tensorboard.Figure)
assert Batch(a=1) == Batch(a=1) and Batch(a=1) != Batch(a=2)  # deepdiff
assert Batch(a=float("nan")).isnull().a  # pandas
buffer = ReplayBuffer(2)
buffer.add(Batch(obs=1, act=0, rew=0.0, terminated=False, truncated=False, obs_next=2, info={}))
buffer.save_hdf5(sys.argv[1])
assert ReplayBuffer.load_hdf5(sys.argv[1]).obs[0] == 1
from matplotlib.figure import Figure
assert isinstance(Figure(), tensorboard.Figure) and Figure is not tensorboard.Figure
import pandas
assert pandas.DataFrame({"a": [1]}).a.sum() == 1 and pandas.__file__
""",
        tmp_path / "buffer.hdf5",
    )


@pytest.mark.slow
@pytest.mark.process
def test_an_optimizer_loads_torchs_compiler_only_when_something_uses_it():
    run("""
import sys
from medqn_tianshou import prepare_process
prepare_process()
import torch
weight = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.Adam([weight])
weight.sum().backward()
optimizer.step()
optimizer.zero_grad()
add = torch.optim.Optimizer.add_param_group.__wrapped__
assert vars(add) and "sympy" not in sys.modules
from torch._dynamo import config
assert config.__name__ == "torch._dynamo.config"
assert sys.modules["torch._dynamo"].__file__ and torch._dynamo.__file__
assert "__dynamo_disable" not in vars(add)  # so that torch asks the compiler now
optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]})
assert vars(add)["__dynamo_disable"] is not add
""")


@pytest.mark.process
def test_gymnasium_registers_our_environments_and_others_on_request():
    pytest.importorskip("minatar")
    run("""
import sys
from medqn_tianshou import prepare_process
prepare_process()
import gymnasium
assert "medqn/Catcher-v0" in gymnasium.registry
assert "MinAtar/Breakout-v0" not in gymnasium.registry and "minatar" not in sys.modules
gymnasium.envs.registration.load_plugin_envs()
assert "MinAtar/Breakout-v0" in gymnasium.registry
""")

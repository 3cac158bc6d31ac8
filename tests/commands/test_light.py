"""Help, versions and flags come at once: they load no heavy library."""

import subprocess
import sys

import pytest
from scripts import ROOT

MAIN = "from medqn_tianshou.commands.main import main\n"
HEAVY = ("torch", "tianshou", "gymnasium", "numpy", "numba", "matplotlib", "tensorboard")
CHECK = """
import sys
from contextlib import suppress
{code}
loaded = [name for name in {heavy} if name in sys.modules]
assert not loaded, loaded
"""


@pytest.mark.process
@pytest.mark.parametrize(
    "code",
    [
        "import medqn_tianshou.experiments.settings",
        "import medqn_tianshou.training.run_config",
        "import medqn_tianshou.commands.completion",  # prints a cached script at each shell's start
        *(
            f"{MAIN}with suppress(SystemExit): main({line})"
            for line in (
                ["--help"],
                ["--version"],
                ["train"],
                ["train", "atari", "--help"],
                ["train", "lowdim", "--lr", "0"],
            )
        ),
        "from medqn_tianshou.commands.flags import make_train_parser\n"
        "make_train_parser('minatar').parse_args('--memory-cap 1G --checkpoint-every 5m'.split())",
    ],
)
def test_help_and_flags_need_no_heavy_library(code):
    command = [sys.executable, "-c", CHECK.format(code=code, heavy=HEAVY)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr

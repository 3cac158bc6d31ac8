"""Runs are the same with Tianshou 1.2 and 2: their files are compared."""

import os
import re
import subprocess

import pytest
import torch
from resume_runs import ATARI, LOWDIM, rows, run_folder, scalars
from scripts import ROOT

from medqn_tianshou.commands import train
from medqn_tianshou.files.parameters import read_parameters

RUNS = {
    "lowdim": f"--task MountainCar-v0 --algo medqn-u {LOWDIM} --eval-every 200",
    "minatar": f"--game breakout --algo medqn-r {LOWDIM} --buffer-size 90",
    "atari": f"{ATARI} --env-backend ale --test-num 1 --n-step 2 --double",
}
OTHER = os.environ.get("OTHER_PYTHON")
"""The Python of an environment with the other Tianshou; `make test-tianshou2` names it."""


@pytest.mark.host
@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(OTHER is None, reason="no OTHER_PYTHON, with the other version of Tianshou")
@pytest.mark.parametrize("family", RUNS)
def test_the_same_seed_gives_the_same_files_with_both_versions_of_tianshou(family, tmp_path):
    flags = [*RUNS[family].split(), "--no-progress", "--logdir"]
    # Not resolved: the link in a virtual environment is what makes it one.
    command = [str(ROOT / OTHER), "-m", "medqn_tianshou", "train", family, *flags]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    subprocess.run([*command, str(tmp_path / "other")], env=env, check=True, cwd=tmp_path)
    assert train.main(family, [*flags, str(tmp_path / "own")]) == 0
    one, other = (run_folder(tmp_path / name) for name in ("own", "other"))
    configs = [(folder / "config.json").read_text() for folder in (one, other)]
    assert {re.search(r'"tianshou": "(\d)', text)[1] for text in configs} == {"1", "2"}
    first, second = (read_parameters(f / "policy_last.safetensors") for f in (one, other))
    assert first.keys() == second.keys()
    for name, value in first.items():
        torch.testing.assert_close(value, second[name], rtol=1e-5, atol=1e-6, msg=name)
    for table in ("progress.csv", "episodes.csv"):
        assert rows(one, table) == rows(other, table)
    tags = [scalars(folder) for folder in (one, other)]
    assert tags[0].keys() == tags[1].keys()
    for tag, values in tags[0].items():
        steps, found = zip(*values, strict=True)
        assert steps == tuple(step for step, _ in tags[1][tag]), tag
        assert found == pytest.approx([value for _, value in tags[1][tag]], rel=1e-4, abs=1e-5), tag

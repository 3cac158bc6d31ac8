"""A long run, and the memory of its process over time."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import Part, Result, Section, Table, Target
from benchmarks.torture.life import Life, load_script, run_folder

_FEWEST_STEPS_PER_SECOND = 20.0


def measure_soak(sizes: Any) -> Result:
    """Train for long, with evaluation and checkpoints, and record the memory."""
    steps = sizes.soak_env_steps
    flags = (
        f"--game breakout --algo medqn-r --steps {steps} --checkpoint-every {steps // 15} "
        f"--eval-every {steps // 60} --eval-episodes 2"
    )
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "output.txt"
        script = load_script("minatar")
        life = Life(script, [*flags.split(), "--logdir", folder], output)
        if life.wait(seconds=steps / _FEWEST_STEPS_PER_SECOND) != 0:
            raise RuntimeError(output.read_text())
        lines = (run_folder(Path(folder)) / "progress.csv").read_text().splitlines()
    header, *rows = (line.split(",") for line in lines)
    step, rss = header.index("env_step"), header.index("rss_mb")
    return {
        "flags": flags,
        "env_step": [int(row[step]) for row in rows],
        "rss_mb": [float(row[rss]) for row in rows],
    }


def show_soak(measured: Result) -> Section:
    """Make the section on the soak."""
    env_step, rss_mb = np.array(measured["env_step"]), np.array(measured["rss_mb"])
    settled = env_step >= env_step[-1] // 4
    drift = float(np.polyfit(env_step[settled] / 1e5, rss_mb[settled], 1)[0])
    picked = np.linspace(0, len(env_step) - 1, 7).astype(int)
    return Section(
        title="Soak",
        tables=[
            Table(
                ("env step", "RSS"), [(f"{env_step[i]:,}", f"{rss_mb[i]:.1f} MB") for i in picked]
            )
        ],
        notes=f"`minatar/minatar_medqn.py {measured['flags']}`. The drift is the slope of a line "
        "fitted to the RSS at each evaluation after the first quarter of the run, when the buffer "
        "is full.",
        targets=[
            Target(what="drift per 100,000 steps", value=drift, at_most=2.0, unit="MB"),
        ],
    )


SOAK = Part(measure_soak, show_soak)

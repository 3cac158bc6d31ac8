"""Check this machine: versions, devices, games, memory, files. Each problem comes with its fix.

Example:
  %(prog)s --logdir /data/log --json
  %(prog)s --memory 600M

The exit code is 1 if there is a problem; a warning is not a problem.

"""

import json
import os
import platform
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from packaging.specifiers import SpecifierSet

from medqn_tianshou.commands.parsing import Parser, argument_type
from medqn_tianshou.envs.atari import atari_tasks, make_atari_envs
from medqn_tianshou.envs.minatar import MinAtarEnv
from medqn_tianshou.experiments.families import FAMILIES
from medqn_tianshou.files.extras import install_command
from medqn_tianshou.training.errors import ConfigError, reason_of
from medqn_tianshou.training.memory import MB, MemoryMonitor, format_bytes, memory_limit
from medqn_tianshou.training.memory_plan import plan_memory
from medqn_tianshou.training.settings import memory_size
from medqn_tianshou.version import __version__

Status = Literal["ok", "warning", "problem"]
ENOUGH_MEMORY = 600 * MB
"""A default Atari run stays below this, see docs/results/memory."""
ENOUGH_SHARED_MEMORY = 256 * MB
CPU_TORCH = "torch --index-url https://download.pytorch.org/whl/cpu"
ATARI_EXTRA, MINATAR_EXTRA = map(install_command, ("atari", "minatar"))


@dataclass(frozen=True)
class Check:
    """One check and its result."""

    name: str
    status: Status
    found: str
    remedy: str = ""
    """The command that fixes it; empty where nothing is wrong."""


def make_parser(prog: str | None = None) -> Parser:
    """Build the command line; ``prog`` is the command that the user typed."""
    parser = Parser(prog=prog, description=__doc__)
    parser.add_argument(
        "--logdir", type=Path, default=Path("log"), help="where run folders will go (default: log)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--memory",
        type=argument_type(memory_size),
        metavar="SIZE",
        help="only print how a run of each family would fit into this memory, e.g. 600M",
    )
    return parser


def examine(logdir: Path) -> Iterator[Check]:
    """Run all checks, one after another."""
    yield Check("python", "ok", platform.python_version())
    yield Check("medqn-tianshou", "ok", f"{__version__}, {Path(__file__).parents[1]}")
    for package in ("tianshou", "torch", "gymnasium", "numpy"):
        yield check_version(package)
    yield check_devices()
    if count := len(atari_tasks()):
        yield Check("Atari ROMs", "ok", f"{count} games")
    else:
        yield Check("Atari ROMs", "warning", "none", ATARI_EXTRA)
    yield check_backend("ale-py", "ale_py", ATARI_EXTRA, lambda: _step_atari("ale"))
    yield check_backend("EnvPool", "envpool", ATARI_EXTRA, lambda: _step_atari("envpool"))
    yield check_backend("MinAtar", "minatar", MINATAR_EXTRA, _step_minatar)
    yield check_memory()
    yield check_shared_memory(Path("/dev/shm"))  # noqa: S108 (measured, nothing is written)
    yield check_logdir(logdir)


def check_version(package: str) -> Check:
    """Compare the version of a required package with what this package asks for."""
    installed = metadata.version(package)
    wanted = [
        requirement.partition(";")[0].strip()
        for requirement in metadata.requires("medqn-tianshou") or []
        if requirement.startswith((f"{package}<", f"{package}>", f"{package}="))
    ]
    for requirement in wanted:
        allowed = SpecifierSet(requirement.removeprefix(package))
        if not allowed.contains(installed, prereleases=True):
            return Check(package, "problem", installed, f"pip install '{requirement}'")
    return Check(package, "ok", installed)


def check_devices() -> Check:
    """Check whether torch can use the GPUs of this machine."""
    count = torch.cuda.device_count()
    if count:
        torch.zeros(1, device="cuda")
        names = ", ".join(torch.cuda.get_device_name(index) for index in range(count))
        return Check("devices", "ok", f"{names}; CUDA {torch.version.cuda}")
    build = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built for the CPU"
    threads = f"CPU only, torch {build}, {torch.get_num_threads()} thread(s)"
    if shutil.which("nvidia-smi"):
        found = f"{threads}; torch cannot use the GPU"
        return Check("devices", "warning", found, "pip install --force-reinstall torch")
    if torch.version.cuda:
        found = f"{threads}; that build takes gigabytes on disk, and 300 MB more in each process"
        return Check("devices", "warning", found, f"pip install --force-reinstall {CPU_TORCH}")
    return Check("devices", "ok", threads)


def check_backend(name: str, module: str, remedy: str, step: Callable[[], str]) -> Check:
    """Build an environment and step it.

    :param name: the backend's distribution.
    :param remedy: the command that installs it.
    :param step: builds and steps an environment, and describes what it returned.
    """
    if find_spec(module) is None:
        return Check(name, "warning", "not installed", remedy)
    try:
        return Check(name, "ok", f"{metadata.version(name)}, {step()}")
    except Exception as error:  # whatever a broken install raises is what the user has to know
        return Check(name, "problem", reason_of(error), f"{remedy} --force-reinstall")


def check_memory() -> Check:
    """Check the memory that the machine or its container has left."""
    limit = memory_limit()
    left = format_bytes(limit.available)
    found = f"{left} left of {format_bytes(limit.nbytes)} ({limit.source})"
    if limit.available < ENOUGH_MEMORY:
        cap = max(limit.available // MB, 1)
        return Check("memory", "warning", found, f"medqn doctor --memory {cap}M")
    return Check("memory", "ok", found)


def check_shared_memory(folder: Path) -> Check:
    """Check the size of the shared memory, which Docker makes small."""
    if not folder.is_dir():
        return Check("shared memory", "ok", "this system has none")
    size = shutil.disk_usage(folder).total
    if size < ENOUGH_SHARED_MEMORY:
        return Check("shared memory", "warning", format_bytes(size), "docker run --shm-size 1g")
    return Check("shared memory", "ok", format_bytes(size))


def check_logdir(logdir: Path) -> Check:
    """Check that run folders can be written; the folder need not exist."""
    present = next(folder for folder in (logdir, *logdir.absolute().parents) if folder.exists())
    try:
        with tempfile.NamedTemporaryFile(dir=present):
            free = format_bytes(shutil.disk_usage(present).free)
    except OSError as error:
        reason = error.strerror or str(error)
        return Check("log folder", "problem", f"{logdir}: {reason}", "medqn train --logdir FOLDER")
    return Check("log folder", "ok", f"{logdir}, {free} free")


def show_plans(budget: int) -> int:
    """Print how the default run of each family keeps to a budget; return the exit code."""
    works = False
    for name, family in FAMILIES.items():
        try:
            settings = family.settings(memory=budget)
            space = family.observation_space(settings)
            plan = plan_memory(settings, space, rss=MemoryMonitor().rss())
        except ConfigError as error:
            print(f"{name}: {error.value} {error.remedy}")
            continue
        works = True
        print(f"{name}, {settings.algo} on {settings.task}\n{plan}")
    return 0 if works else 1


def main(arguments: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Run the command line; return the exit code."""
    args = make_parser(prog).parse_args(arguments)
    if args.memory is not None:
        return show_plans(args.memory)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    checks: list[Check] = []
    for check in examine(args.logdir):
        checks.append(check)
        if not args.json:
            remedy = f"\n{'':26}fix it: {check.remedy}" if check.remedy else ""
            print(f"{check.status:8}  {check.name:15} {check.found}{remedy}", flush=True)
    count = sum(check.status == "problem" for check in checks)
    if args.json:
        print(json.dumps({"problems": count, "checks": [asdict(c) for c in checks]}, indent=2))
    elif count == 0:
        print("ready to train")
    return 1 if count else 0


def _step_atari(backend: Any) -> str:
    if not atari_tasks():
        raise FileNotFoundError("no ROM that all installed backends have")
    envs = make_atari_envs(
        task=atari_tasks()[0], num_envs=1, seed=0, training=True, backend=backend
    )
    try:
        envs.reset()
        shape = envs.step(np.array([0]))[0].shape
    finally:
        envs.close()
    return f"{atari_tasks()[0]} steps, observation {shape[1:]}"


def _step_minatar() -> str:
    env = MinAtarEnv(game="breakout")
    env.reset(seed=0)
    return f"breakout steps, observation {env.step(0)[0].shape}"

"""The wheel has all that the command needs: it runs without the repository."""

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile

import pytest
from scripts import ROOT

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    pytest.importorskip("build")
    out, source = tmp_path_factory.mktemp("dist"), tmp_path_factory.mktemp("source")
    # A copy: a build leaves folders behind, and takes in what an earlier one left.
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "medqn_tianshou", source / "medqn_tianshou", ignore=ignored)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    (path,) = out.glob("*.whl")
    return path


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    expected = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "medqn_tianshou").rglob("*")
        if path.suffix in (".py", ".toml") or path.name == "py.typed"
    }
    assert names == expected


def test_the_installed_command_runs_in_an_environment_of_its_own(wheel, tmp_path):
    environment = tmp_path / "venv"
    venv.create(environment, with_pip=False)
    site = next(environment.glob("lib/python*/site-packages"))
    # The dependencies are those of this environment, but not its editable install of the package:
    # that is a .pth file, which Python reads in its own folder alone.
    folders = [path for path in sys.path if path.endswith("site-packages")]
    (site / "dependencies.pth").write_text("\n".join(folders) + "\n")
    install = [sys.executable, "-m", "pip", "--python", environment / "bin/python", "install"]
    flags = ["--no-deps", "--ignore-installed", "--no-index", "--quiet"]
    subprocess.run([*install, *flags, wheel], check=True)
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def run(*arguments):
        return subprocess.run(
            [environment / "bin/medqn", *arguments],
            cwd=tmp_path, env=clean, capture_output=True, text=True, check=False,
        )  # fmt: skip

    result = run("doctor", "--json")
    assert result.returncode == 0, result.stderr
    doctor = json.loads(result.stdout)
    assert doctor["problems"] == 0
    (package,) = [check for check in doctor["checks"] if check["name"] == "medqn-tianshou"]
    assert str(environment) in package["found"]  # and not the repository's
    flags = ["--steps", "1100", "--seeds", "1", "--only", "DQN", "--out", "results"]
    result = run("reproduce", "fig4a", *flags)
    assert result.returncode == 0, result.stderr
    assert "medqn reproduce fig4a --seeds 1 --steps 1100 --only DQN" in result.stdout

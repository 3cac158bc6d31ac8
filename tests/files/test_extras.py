"""The commands that remedies name work where the user is."""

import os
import sys
from pathlib import Path

import pytest
from scripts import ROOT

from medqn_tianshou.files import extras
from medqn_tianshou.files.extras import install_command, installed_command


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """A virtual environment in the current folder, not activated."""
    folder = tmp_path / ".venv/bin"
    folder.mkdir(parents=True)
    for name in ("python", "pip"):
        (folder / name).touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setenv("PATH", "")
    return folder


def test_a_clone_is_installed_from_its_folder(environment, monkeypatch):
    monkeypatch.setattr(extras, "_CLONE", environment.parents[1])
    assert install_command("atari") == ".venv/bin/pip install 'medqn-tianshou[atari]'"
    Path("pyproject.toml").touch()
    assert install_command("atari") == ".venv/bin/pip install -e '.[atari]'"
    os.chdir(environment)
    assert f"-e '{environment.parents[1]}[atari]'" in install_command("atari")


def test_the_extras_that_are_named_are_those_of_the_clone():
    assert (extras._CLONE / "pyproject.toml").samefile(ROOT / "pyproject.toml")


def test_a_command_has_its_folder_unless_the_shell_finds_it(environment, monkeypatch):
    assert installed_command("pip") == ".venv/bin/pip"
    assert installed_command("tensorboard") == "tensorboard"  # not installed: by its usual name
    monkeypatch.setenv("PATH", str(environment))
    assert installed_command("pip") == "pip"
    other = environment.parents[1] / "bin"
    other.mkdir()
    (other / "pip").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{other}:{environment}")  # pip of another Python comes first
    assert installed_command("pip") == ".venv/bin/pip"

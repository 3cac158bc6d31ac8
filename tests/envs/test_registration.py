"""Gymnasium knows our environments, and the package's root is light."""

import subprocess
import sys
import tomllib

import pytest
from scripts import ROOT

IDS = ("medqn/Catcher-v0", "medqn/Pixelcopter-v0", "medqn/MinAtar-SpaceInvaders-v0")
pytestmark = pytest.mark.process
CHECK = f"missing = set({IDS}) - set(gymnasium.registry); assert not missing, missing"


def run(code, *paths):
    """Run code in a fresh process, without entry points of an installed package."""
    hide = (
        "from importlib import metadata; original = metadata.entry_points\n"
        "def entry_points(**kwargs):\n"
        "    return [point for point in original(**kwargs) if 'medqn' not in point.value"
        " or point.dist.name == 'medqn-plugin']\n"
        "metadata.entry_points = entry_points\n"
    )
    path = f"import sys; sys.path[:0] = {[str(ROOT), *map(str, paths)]}\n"
    command = [sys.executable, "-c", path + hide + code]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


@pytest.fixture
def plugin(tmp_path):
    """The metadata that an installation would have."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    folder = tmp_path / "medqn_plugin-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: medqn-plugin\nVersion: 1.0\n")
    lines = [f"{k} = {v}\n" for k, v in project["entry-points"]["gymnasium.envs"].items()]
    (folder / "entry_points.txt").write_text("[gymnasium.envs]\n" + "".join(lines))
    return tmp_path


@pytest.mark.parametrize(
    "first",
    [
        "",
        "import medqn_tianshou",
        "import medqn_tianshou.envs.catcher",
        "from medqn_tianshou.envs.registration import register_envs; register_envs()",
    ],
)
def test_the_entry_point_registers_whatever_is_imported_first(plugin, first):
    run(f"{first}\nimport gymnasium\n{CHECK}\ngymnasium.make('medqn/Catcher-v0').reset()", plugin)


def test_without_an_installation_the_root_registers_with_a_loaded_gymnasium():
    run(f"import gymnasium, medqn_tianshou\n{CHECK}\ngymnasium.make('medqn/Catcher-v0').reset()")


def test_the_root_loads_no_heavy_library():
    modules = set(run("import medqn_tianshou; print(*sys.modules)"))
    assert modules.isdisjoint({"gymnasium", "matplotlib", "numpy", "tianshou", "torch"})


def test_gymnasium_with_our_plugin_loads_no_torch(plugin):
    modules = set(run("import gymnasium; print(*sys.modules)", plugin))
    assert "medqn_tianshou.envs.registration" in modules
    assert modules.isdisjoint({"tianshou", "torch"})

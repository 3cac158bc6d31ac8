"""The package's root offers every public name and imports each on first use."""

import ast
import subprocess
import sys
from importlib import import_module

import pytest
from scripts import ROOT

import medqn_tianshou

LAZY = sorted(set(medqn_tianshou.__all__) - {"__version__"})


@pytest.mark.parametrize("name", LAZY)
def test_a_public_name_is_imported_on_first_use(name):
    module = import_module(medqn_tianshou._MODULE_OF[name])
    vars(medqn_tianshou).pop(name, None)
    assert getattr(medqn_tianshou, name) is getattr(module, name)
    assert vars(medqn_tianshou)[name] is getattr(module, name)


def test_type_checkers_see_the_same_names_from_the_same_modules():
    tree = ast.parse((ROOT / "medqn_tianshou/__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and
                ast.unparse(node.test) == "TYPE_CHECKING")  # fmt: skip
    seen = {alias.name: node.module for node in block.body for alias in node.names}
    of_other_hosts = {
        name: f"medqn_tianshou.{module}"
        for modules in medqn_tianshou._MODULES_BY_HOST.values()
        for module, names in modules.items()
        for name in names
        if name not in LAZY
    }
    assert seen == {**medqn_tianshou._MODULE_OF, **of_other_hosts}
    assert sorted(medqn_tianshou._MODULE_OF) == LAZY


def test_the_public_names_are_listed_and_others_refused():
    assert set(medqn_tianshou.__all__) <= set(dir(medqn_tianshou))
    with pytest.raises(AttributeError, match="'medqn_tianshou' has no attribute 'MeDQMPolicy'"):
        medqn_tianshou.MeDQMPolicy  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name"):
        from medqn_tianshou import MeDQMPolicy  # noqa: F401


@pytest.mark.process
def test_a_star_import_brings_all_names():
    code = (
        "from medqn_tianshou import *; import medqn_tianshou as m; print(set(m.__all__) - {*dir()})"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "set()\n", done.stderr

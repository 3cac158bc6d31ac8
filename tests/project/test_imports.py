"""Imports point one way, as docs/architecture.md says; imports inside functions count."""

import sys
from graphlib import CycleError, TopologicalSorter

import pytest
from scripts import ROOT, load_script

architecture = load_script("docs/architecture.py")
PACKAGE = architecture.ROOT
LEVEL = {room: level for level, rooms in enumerate(architecture.LAYERS) for room in rooms}
OF_THE_PAPER = {"gymnasium", "numpy", "tianshou", "torch"}


def imports_of(modules):
    return {module: set(architecture.imports(module)) for module in modules}


INSIDE = imports_of(set(architecture.MODULES) - {PACKAGE})


def test_every_module_is_in_a_room():
    outside = {module for module in INSIDE if not architecture.room_of(module)}
    assert outside == {f"{PACKAGE}.{name}" for name in ("__main__", "startup", "version")}


@pytest.mark.parametrize("room", LEVEL)
def test_a_room_imports_only_lower_rooms(room):
    wrong = [
        f"{module} imports {name}"
        for module, names in INSIDE.items()
        for name in names
        if architecture.room_of(module) == room
        and architecture.room_of(name) not in (None, room)
        and LEVEL[architecture.room_of(name)] <= LEVEL[room]
    ]
    assert not wrong, "\n".join(sorted(wrong))


def test_no_module_imports_the_root():
    wrong = [module for module, names in INSIDE.items() if PACKAGE in names]
    assert not wrong, "\n".join(sorted(wrong))


def test_there_is_no_cycle():
    ours = {module: names & INSIDE.keys() for module, names in INSIDE.items()}
    try:
        TopologicalSorter(ours).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_the_algorithm_imports_nothing_but_what_a_reader_of_the_paper_knows():
    allowed = OF_THE_PAPER | sys.stdlib_module_names
    wrong = [
        f"{module} imports {name}"
        for module, names in INSIDE.items()
        for name in names
        if architecture.room_of(module) == "algorithm"
        and name.split(".")[0] not in allowed
        and architecture.room_of(name) != "algorithm"
    ]
    assert not wrong, "\n".join(sorted(wrong))


def test_imports_are_found_wherever_they_stand(tmp_path, monkeypatch):
    source = f"""
import {PACKAGE}.envs.single, os
from {PACKAGE} import MeDQNPolicy
from {PACKAGE}.replay import codecs, ReplayFileError
from . import state
def later():
    from ..files.generators import generator_state
    import_module("{PACKAGE}.training.loop")
"""
    path = tmp_path / "new.py"
    path.write_text(source)
    monkeypatch.setitem(architecture.MODULES, f"{PACKAGE}.envs.new", path)
    names = ["envs.single", "replay.codecs", "replay", "envs.state", "files.generators"]
    expected = {"os", PACKAGE, *(f"{PACKAGE}.{name}" for name in [*names, "training.loop"])}
    assert set(architecture.imports(f"{PACKAGE}.envs.new")) == expected


def test_the_page_shows_the_house_as_it_is():
    page = (ROOT / "docs/architecture.md").read_text()
    assert page == architecture.page(), "run: python docs/architecture.py"

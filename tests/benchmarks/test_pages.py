"""The committed pages of results are those of their figures and of today's benchmarks."""

import shutil
from dataclasses import replace
from importlib import import_module

import pytest
from scripts import ROOT

from benchmarks.report import Part, Report, Section

all_benchmarks = pytest.mark.parametrize("name", ["speed", "memory", "torture"])


def find(name):
    return import_module(f"benchmarks.{name}.command").BENCHMARK


@all_benchmarks
def test_a_page_is_written_from_its_figures(name, tmp_path):
    benchmark = find(name)
    folder = ROOT / benchmark.out
    shutil.copy(folder / f"{name}.json", tmp_path)
    report = Report(tmp_path / f"{name}.json", quick=False, command="")
    benchmark.write(report, tmp_path / "README.md")
    assert (tmp_path / "README.md").read_text() == (folder / "README.md").read_text()


@all_benchmarks
def test_the_page_quotes_the_command_that_was_typed(name, tmp_path, capsys):
    part = Part(
        lambda sizes: {"figures": {}}, lambda result: Section(title="x", tables=[], notes="")
    )
    benchmark = replace(find(name), parts={"x": part}, needs={})
    assert benchmark.main(["--quick", "--parts", "x", "--out", str(tmp_path)]) == 0
    command = f"python -m benchmarks.{name} --quick --parts x --out {tmp_path}"
    assert f"| x     | `{command}` |" in (tmp_path / "README.md").read_text()

"""The speed benchmark: its command line, its figures and their ratios."""

import json
from statistics import median

import pytest

from benchmarks import setups
from benchmarks.report import Target
from benchmarks.speed import (
    command,
    races,
    ratios,
)

TINY = command.Sizes(
    races={
        "atari_1env": (50, 20),
        "minatar": (40, 4),
        "mountaincar": (40, 8),
    },
    turns=3,
    dropped=1,
    update_turns=1,
    breakdown_chunks=1,
)


@pytest.mark.slow
def test_figures_and_ratios_have_the_names_of_the_table(tmp_path, capsys):
    flags = ["--quick", "--parts", "mountaincar,minatar", "--out", str(tmp_path / "page")]
    assert command.BENCHMARK.main([*flags, "--json", str(tmp_path / "speed.json")], TINY) == 0
    content = json.loads((tmp_path / "speed.json").read_text())
    page = (tmp_path / "page" / "README.md").read_text()
    assert capsys.readouterr().out.endswith(page + "\n")
    assert list(content["parts"]) == ["minatar", "mountaincar"]

    figures = content["figures"]
    for prefix, algorithms in {
        "minatar": ("medqn_u_c32", "medqn_r_c4_e2", "dqn_c1"),
        "mountaincar": ("medqn_u_e4", "dqn_c8"),
    }.items():
        measured = content["parts"][prefix]["measured"]["steps_per_s"]
        for algorithm in algorithms:
            for name in (f"stock_{algorithm}", algorithm, f"bare_{algorithm}"):
                assert len(measured[name]) == TINY.turns
                assert figures[f"{prefix}_{name}_steps_per_s"] == median(measured[name]) > 0
                assert f"| {name} " in page
    assert len(figures) == 17  # with the two compiled loops

    expected = {
        "minatar_medqn_u_c32_to_bare_loop": ("medqn_u_c32", "bare_medqn_u_c32"),
        "minatar_medqn_r_c4_e2_to_bare_loop": ("medqn_r_c4_e2", "bare_medqn_r_c4_e2"),
        "minatar_dqn_c1_to_bare_loop": ("dqn_c1", "bare_dqn_c1"),
        "mountaincar_medqn_u_e4_to_stock_medqn": ("medqn_u_e4", "stock_medqn_u_e4"),
        "mountaincar_dqn_c8_to_bare_loop": ("dqn_c8", "bare_dqn_c8"),
        "mountaincar_medqn_u_e4_to_compiled_loop": ("medqn_u_e4", "compiled_medqn_u_e4"),
    }
    assert content["ratios"].keys() == content["limits"].keys() == expected.keys()
    for name, (of, to) in expected.items():
        prefix = name.partition("_")[0]
        above, below = (figures[f"{prefix}_{figure}_steps_per_s"] for figure in (of, to))
        value, limits = content["ratios"][name], content["limits"][name]
        assert value == pytest.approx(above / below)
        assert limits["met"] == (value >= limits["floor"])
        assert limits["floor"] < limits["aim"]
        assert f"| {value:.3g} x " in page


def test_every_ratio_is_of_figures_that_a_part_measures():
    measured = {f"update_{name}_ms" for name in races.UPDATE_ENTRIES}
    for prefix, entries in {
        "atari_1env": races.ATARI_ENTRIES,
        "atari_10env": races.ATARI10_ENTRIES,
        "minatar": races.MINATAR_ENTRIES,
        "mountaincar": races.MOUNTAIN_CAR_ENTRIES,
        "seaquest": races.SEAQUEST_ENTRIES,
        "lowdim": races.LOWDIM_ENTRIES,
    }.items():
        measured |= {f"{prefix}_{name}_steps_per_s" for name in entries}
        for sizes in (command.Sizes(), command.QUICK):
            assert sizes.races[prefix][1] > 0
    measured |= {
        f"arithmetic_{name}_gflops" for name in ("breakout", "seaquest", "mountaincar", "mm")
    }
    measured |= {
        f"contention_{kind}_{name}_steps_per_s"
        for kind in ("ours", "stock")
        for name in ("alone", "busy")
    }
    assert ratios.known_ratios(measured) == list(ratios.RATIOS)
    assert len({ratio.name for ratio in ratios.RATIOS}) == len(ratios.RATIOS) == 25


@pytest.mark.parametrize("sizes", [command.Sizes(), command.QUICK], ids=["full", "quick"])
def test_chunks_end_with_an_update(sizes):
    for prefix, entries in {
        "atari_1env": races.ATARI_ENTRIES,
        "atari_10env": races.ATARI10_ENTRIES,
        "minatar": races.MINATAR_ENTRIES,
        "mountaincar": races.MOUNTAIN_CAR_ENTRIES,
    }.items():
        for entry in entries.values():
            setup = setups.Setup(entry.family, entry.flags)
            assert sizes.races[prefix][1] * entry.chunk % setup.value.step_per_collect == 0


def test_a_floor_is_met_from_its_value_on():
    options = {"what": "x", "at_least": 1.7, "unit": "x"}
    assert Target(value=1.7, **options).met
    assert not Target(value=1.69, **options).met


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--parts", "atari,minatr"], "--parts: 'minatr' is not a part; choose from atari,atari10"),
        (["--json", "{tmp}/foreign.json"], "is not a file of this version of the benchmark"),
        (["--json", "{tmp}/quick.json"], "contains results of a quick run; name another --out"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(tmp_path, capsys, flags, problem):
    (tmp_path / "foreign.json").write_text("[]x")
    (tmp_path / "quick.json").write_text('{"quick": true, "parts": {}}')
    with pytest.raises(SystemExit) as stopped:
        command.BENCHMARK.main([flag.format(tmp=tmp_path) for flag in flags])
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert problem in line

"""The sine experiment of the paper's Figure 1."""

import re
from pathlib import Path
from statistics import mean, median, stdev

import numpy as np
import pytest
import torch

from medqn_tianshou.commands.figures import sine as command
from medqn_tianshou.experiments import sine

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
# Half of the paper's updates: both stages have converged by then.
SEEDS, UPDATES = 4, 500


def error(network, low, high):
    x = torch.linspace(low, high, 301)[:, None]
    with torch.no_grad():
        return float(((network(x)[0] - torch.sin(torch.pi * x)) ** 2).mean())


@pytest.fixture(scope="module")
def learned():
    return {
        consolidate: [
            sine.train(seed=seed, consolidate=consolidate, updates=UPDATES) for seed in range(SEEDS)
        ]
        for consolidate in (False, True)
    }


def test_consolidation_keeps_at_every_seed_what_plain_training_forgets(learned):
    for plain, consolidated in zip(learned[False], learned[True], strict=True):
        before = error(plain[0], 0, 1)
        assert before < 1e-3
        assert error(plain[1], 0, 1) > 100 * before
        assert error(consolidated[1], 0, 1) < error(plain[1], 0, 1) / 10
        assert error(consolidated[1], 0, 1) < 2e-3


@pytest.mark.parametrize("consolidate", [False, True])
def test_both_methods_learn_the_second_interval(learned, consolidate):
    runs = learned[consolidate]
    # Seed 0 ends stage 1 without an active unit beyond x = 1, and learns only the first part of it.
    assert all(error(second, 1, 2) < error(first, 1, 2) / 3 for first, second in runs)
    assert median(error(second, 1, 2) for _, second in runs) < 5e-3


def test_the_methods_are_the_same_until_stage_2_and_differ_after(learned):
    for plain, consolidated in zip(learned[False], learned[True], strict=True):
        for stage, same in ((0, True), (1, False)):
            pairs = zip(plain[stage].parameters(), consolidated[stage].parameters(), strict=True)
            assert all(torch.equal(one, other) for one, other in pairs) is same


def test_consolidation_inputs_stay_within_the_first_interval(monkeypatch):
    drawn = []
    sample = sine.UniformStateSampler.sample

    def record(sampler, batch_size):
        drawn.append(sample(sampler, batch_size))
        return drawn[-1]

    monkeypatch.setattr(sine.UniformStateSampler, "sample", record)
    sine.train(seed=0, consolidate=False, updates=20)
    assert drawn == []
    sine.train(seed=0, consolidate=True, updates=20)
    assert np.shape(drawn) == (20, 32, 1)
    assert 0 <= np.min(drawn) < 0.02
    assert 0.98 < np.max(drawn) <= 1


@pytest.fixture
def run(read_csv):
    def write_figure(out, *flags):
        typed = ["--updates", "20", "--out", str(out), *flags]
        assert command.main(typed, "medqn reproduce fig1") == 0
        return read_csv(out / "errors.csv")

    return write_figure


def printed_errors(text):
    """Each table line's numbers, by method and stage."""
    lines = [line.strip("| ").split("|") for line in text.splitlines() if line.startswith("| with")]
    return {
        (method.strip(), stage.strip()): [
            [float(part) for part in re.findall(r"\d\.\de[+-]\d\d", cell)] for cell in cells
        ]
        for method, stage, *cells in lines
    }


def test_the_command_writes_its_files_and_prints_what_they_hold(tmp_path, capsys, run):
    out = tmp_path / "new/fig1"
    rows = run(out, "--seeds", "3")
    text = capsys.readouterr().out
    assert {path.name for path in out.iterdir()} == {"README.md", "errors.csv", "fig1.png"}
    assert (out / "fig1.png").read_bytes().startswith(b"\x89PNG")
    assert list(rows[0]) == ["seed", "method", "stage", "interval", "mse"]
    assert len(rows) == 3 * 2 * 2 * 2

    printed = printed_errors(text)
    assert len(printed) == 4
    for (name, stage), cells in printed.items():
        method = {"without consolidation": "plain", "with consolidation": "consolidation"}[name]
        for interval, cell in zip(("[0, 1]", "[1, 2]"), cells, strict=True):
            key = [method, stage, interval]
            errors = [
                float(row["mse"])
                for row in rows
                if [row["method"], row["stage"], row["interval"]] == key
            ]
            expected = [mean(errors), stdev(errors) / 3**0.5, median(errors)]
            assert cell == pytest.approx(expected, rel=0.051)

    readme = (out / "README.md").read_text(encoding="utf-8")
    table = text[: text.index("files:")]
    assert table in readme
    for part in (
        f"`medqn reproduce fig1 --updates 20 --out {out} --seeds 3`",
        "seeds 0 to 2",
        f"torch {torch.__version__}",
        f"numpy {np.__version__}",
    ):
        assert part in readme


def test_one_seed_is_printed_as_it_is_and_runs_repeat(tmp_path, capsys, run):
    rows = run(tmp_path, "--seeds", "1")
    numbers = [cell for cells in printed_errors(capsys.readouterr().out).values() for cell in cells]
    assert numbers == [[pytest.approx(float(row["mse"]), rel=0.051)] for row in rows]
    assert run(tmp_path, "--seeds", "1", "--overwrite") == rows


def test_results_are_replaced_only_where_the_user_says_so(tmp_path, run, error_line):
    run(tmp_path, "--seeds", "1")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    line = error_line(command.main, "--out", tmp_path, "--seeds", "2", "--updates", "10")
    assert line.endswith("has results; name another folder, or replace them with --overwrite")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert len(run(tmp_path, "--seeds", "2", "--overwrite")) == 16


def test_the_published_table_follows_from_the_published_errors():
    folder = ROOT / "docs/results/fig1"
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert command.error_table(folder / "errors.csv") in readme
    (typed,) = re.findall(r"`python lowdim/sine\.py (.*)`", readme)
    args = command.make_parser().parse_args(typed.split())
    assert vars(args) == vars(command.make_parser().parse_args([]))


@pytest.mark.parametrize(
    ("flags", "parts"),
    [
        ("--seeds 0", ["--seeds", "'0'", "at least 1"]),
        ("--seeds two", ["--seeds", "'two'", "whole number"]),
        ("--updates 1.5", ["--updates", "'1.5'", "whole number"]),
        ("--updates -3", ["--updates", "'-3'", "at least 1"]),
        ("--update 10", ["--update"]),
        ("--out", ["--out"]),
    ],
)
def test_bad_flags_get_one_line(error_line, flags, parts):
    line = error_line(command.main, *flags.split())
    assert all(part in line for part in parts)


def test_a_folder_that_is_a_file_is_refused(error_line, tmp_path):
    (tmp_path / "file").write_text("keep me")
    assert "--out" in error_line(command.main, "--out", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "keep me"


def test_another_readme_is_not_overwritten(error_line, tmp_path):
    (tmp_path / "README.md").write_text("# My project\n")
    line = error_line(command.main, "--out", tmp_path)
    assert "README.md" in line
    assert "name another folder" in line
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]

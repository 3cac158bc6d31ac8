"""Sweep files: what a file expands to, what its runs take, and how their progress is shown."""

import json
import re
from itertools import product

import pytest
from scripts import ROOT
from sweep_files import GOOD, write

from medqn_tianshou.commands import main as command
from medqn_tianshou.commands.sweep.executors import LocalExecutor
from medqn_tianshou.commands.sweep.file import SweepFileError, read_studies, read_sweep
from medqn_tianshou.commands.sweep.plans import plan_run
from medqn_tianshou.commands.sweep.runner import Runner
from medqn_tianshou.commands.sweep.table import SweepTable
from medqn_tianshou.experiments.families import FAMILIES
from medqn_tianshou.experiments.settings import load_settings
from medqn_tianshou.training.memory import MB

FULL = """
name = "a study"
family = "lowdim"
tasks = ["Catcher", "MountainCar-v0"]
algorithms = ["medqn-u", "dqn"]
seeds = [3, 5]

[settings]
steps = 2000
lr = [0.001, 0.01]
double = true

[settings.medqn-u]
lambda_end = [2, 4]

[[variant]]
name = "plain"

[[variant]]
name = "small/buffer"
algorithms = ["dqn"]
buffer-size = 500
double = false
"""


def test_a_file_expands_to_the_product_of_its_axes(tmp_path):
    study = read_sweep(write(tmp_path / "study.toml", FULL))
    plans = study.plans(tmp_path / "out")
    expected = set()
    for seed, task, lr in product((3, 5), ("Catcher", "MountainCar-v0"), (0.001, 0.01)):
        common = ("--task", task, "--steps", "2000", "--lr", str(lr), "--seed", str(seed))
        for end in (2, 4):
            flags = ("--algo", "medqn-u", "--double", "--lambda-end", str(end))
            expected.add(frozenset(common + flags))
        expected.add(frozenset((*common, "--algo", "dqn", "--double")))
        small = ("--algo", "dqn", "--no-double", "--buffer-size", "500")
        expected.add(frozenset(common + small))
    assert {frozenset(plan.flags) for plan in plans} == expected
    assert len(plans) == len(expected) == 32
    assert len({plan.name for plan in plans}) == 32
    assert len({plan.parent for plan in plans}) == 32
    assert [plan.identity["seed"] for plan in plans] == [3] * 16 + [5] * 16
    assert "Catcher_dqn_small-buffer_lr=0.01_seed3" in {plan.name for plan in plans}
    # Flags alone make the run: the sweep's own are not settings.
    one = next(plan for plan in plans if plan.name == "Catcher_dqn_small-buffer_lr=0.01_seed3")
    assert one.identity | {
        "task": "Catcher", "algo": "dqn", "seed": 3, "steps": 2000, "lr": 0.01, "double": False,
        "buffer_size": 500,
    } == one.identity  # fmt: skip
    assert one.parent == tmp_path / "out/runs/small-buffer_lr=0.01/Catcher/dqn/3"


def test_the_file_in_the_docs_is_right_and_as_large_as_told(tmp_path):
    page = (ROOT / "docs/sweeps.md").read_text()
    study, variants = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    told = int(re.search(r"= (\d+) runs", page)[1])
    assert len(read_sweep(write(tmp_path / "study.toml", study)).plans(tmp_path)) == told
    # MeDQN(U) with its first variant's own lambda-end, and with the axis; DQN with the second.
    both = read_sweep(write(tmp_path / "both.toml", study + variants)).plans(tmp_path)
    assert len(both) == 2 * 5 * (2 + 4 + 2)


def test_a_dry_run_tells_the_runs_and_what_they_take_and_writes_nothing(tmp_path, capsys):
    file = write(tmp_path / "study.toml", FULL)
    out = tmp_path / "out"
    assert command.main(["sweep", str(file), "--dry-run", "--out", str(out)]) == 0
    lines = capsys.readouterr().out.splitlines()
    table, typed = lines[1:33], lines[34:]
    assert len(typed) == 32
    assert all(line.startswith("medqn train lowdim --task ") for line in typed)
    assert all(re.search(r" run +1 +0 +380\.\d MB +2,000$", line) for line in table)
    assert not out.exists()


@pytest.mark.parametrize("task", ["MountainCar-v0", "Acrobot-v1"])
def test_the_memory_of_a_raw_buffer_is_predicted_to_the_byte(tmp_path, task):
    run = ROOT / "campaign/results/A1" / task / "dqn/0"
    summary = json.loads((run / "summary.json").read_text())
    flags = ["--task", task, "--algo", "dqn"]
    plan = plan_run("lowdim", flags, name="a", logdir=tmp_path)
    predicted = plan.memory_nbytes - FAMILIES["lowdim"].settings_class.process_nbytes
    assert predicted / MB == pytest.approx(summary["buffer_mb"])
    measured = json.loads((ROOT / "docs/results/memory/memory.json").read_text())
    peaks = [
        row["peak_rss"]
        for row in measured["parts"]["rss"]["measured"]["trainings"]
        if row["family"] == "lowdim"
    ]
    assert max(peaks) < plan.memory_nbytes


def test_compact_buffers_are_predicted_above_what_was_measured_and_below_raw(tmp_path):
    def predicted(family, *flags):
        plan = plan_run(family, flags, name="a", logdir=tmp_path)
        return plan.memory_nbytes - FAMILIES[family].settings_class.process_nbytes

    size = ("--buffer-size", "100000")
    seaquest = predicted("minatar", "--game", "seaquest", "--algo", "dqn", *size)
    measured = (ROOT / "docs/results/memory/README.md").read_text()
    per_transition = float(re.search(r"\| compact +\| ([\d.]+)", measured)[1])
    assert per_transition * 1e5 < seaquest < 2 * per_transition * 1e5
    battle_zone = float(re.search(r"\| BattleZone +\| [\d.]+ +\| ([\d.]+)", measured)[1])
    atari = ("--task", "BattleZoneNoFrameskip-v4", *size)
    assert battle_zone * 1e5 < predicted("atari", *atari) < 7056e5 / 10
    assert predicted("atari", *atari, "--replay", "raw") > 7056e5
    assert predicted("atari", *atari, "--memory-cap", "5M") == 5e6
    for algo in ("pqn", "stream-q"):
        assert predicted("minatar", "--algo", algo) == 0


def test_threads_are_cpus(tmp_path):
    plan = plan_run("lowdim", ["--threads", "3"], name="a", logdir=tmp_path)
    assert (plan.cpus, plan.gpus) == (3, 0)
    assert load_settings("lowdim")["common"]["threads"]["value"] == 1
    assert plan_run("lowdim", [], name="a", logdir=tmp_path).cpus == 1


BAD = [
    ("family", "famly", "famly = 'lowdim'", "did you mean family?"),
    ('"lowdim"', '"lodim"', "family = 'lodim'", "did you mean lowdim?"),
    ("steps", "stebs", "settings.stebs = 300", "did you mean steps?"),
    ("steps = 300", "steps = 0", "argument --steps", "whole number of at least 1"),
    ("steps = 300", "steps = 90", "argument --steps: 90", "must exceed the 100 steps"),
    ("steps = 300", "lambda-end = 2", "--lambda-end: 2", "use --algo medqn-u or medqn-r"),
    ("steps = 300", "seed = 3", "settings.seed = 3", "list it in seeds"),
    ("steps = 300", "env = 'x'", "settings.env = 'x'", "list it in tasks"),
    ("steps = 300", "logdir = 'x'", "settings.logdir = 'x'", "use --out"),
    ("steps = 300", "steps = []", "settings.steps = []", "axis without values"),
    ("steps = 300", "steps = [300, 300]", "settings.steps", "300 twice"),
    ("steps = 300", "steps = 1979-05-27", "settings.steps", "must be a number, a text"),
    ("steps = 300", "double = 3", "run MountainCar-v0 dqn seed0", "3"),
    ('"MountainCar-v0"', '"Catchr"', "'Catchr'", "did you mean Catcher?"),
    ('["dqn"]', '["dqm"]', "algorithms = 'dqm'", "did you mean dqn?"),
    ('["dqn"]', "[]", "algorithms = []", "a list of names"),
    ("seeds = 1", "seeds = 0", "seeds = 0", "a number of seeds, e.g. 5"),
    ("seeds = 1", "seeds = [1, 1]", "seeds = [1, 1]", "twice"),
    ("[settings]", "[settings.dqm]\nlr = 1\n[settings]", "settings.dqm", "did you mean dqn?"),
    ("[settings]", "[[variant]]\nlr = 1\n[settings]", "variant 1", "add name"),
    ("[settings]", "[settings", "is not TOML", "fix it"),
]


@pytest.mark.parametrize(("old", "new", "found", "remedy"), BAD)
def test_a_bad_file_gets_one_line_and_nothing_is_run(tmp_path, capsys, old, new, found, remedy):
    assert old in GOOD
    file = write(tmp_path / "bad.toml", GOOD.replace(old, new, 1))
    with pytest.raises(SystemExit) as exit_info:
        command.main(["sweep", str(file), "--out", str(tmp_path / "out")])
    assert exit_info.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    for text in (f"argument FILE: {file}", found, remedy):
        assert text in line
    assert not (tmp_path / "out").exists()


def test_processes_start_while_their_memory_fits(tmp_path, monkeypatch):
    plans = [
        plan_run("lowdim", ["--seed", str(seed)], name=str(seed), logdir=tmp_path)
        for seed in range(3)
    ]
    executor = LocalExecutor(3)
    executor._memory_left = 2 * plans[0].memory_nbytes
    monkeypatch.setattr("medqn_tianshou.commands.sweep.attempts.start", lambda *_: None)
    for plan in plans[:2]:
        assert executor.has_room(plan)
        executor.start(plan, tmp_path)
    assert not executor.has_room(plans[2])


class Terminal:
    """A terminal that shows what a real one would: lines, and the cursor that goes up."""

    def __init__(self):
        self.lines, self.row = [], 0

    def isatty(self):
        return True

    def write(self, text):
        for up, line in re.findall(r"\x1b\[(\d+)A|\x1b\[2K([^\n]*)\n", text):
            if up:
                self.row -= int(up)
            else:
                self.lines[self.row : self.row + 1] = [line]
                self.row += 1
        if text.endswith("\x1b[J"):
            del self.lines[self.row :]

    def flush(self):
        pass


def test_an_error_of_the_sweep_stops_its_runs_with_checkpoints(tmp_path):
    calls = []

    class Recording(LocalExecutor):
        def start(self, plan, output):
            calls.append("start")

        def stop(self):
            calls.append("stop")

        def close(self):
            calls.append("close")

    def show(runs):
        if "start" in calls and "close" not in calls:
            raise OSError("No space left on device")

    plans = read_sweep(write(tmp_path / "sweep.toml", GOOD)).plans(tmp_path)
    with pytest.raises(OSError, match="No space left"):
        Runner(plans, folder=tmp_path, retries=0, on_change=show).run(Recording(1))
    assert calls == ["start", "stop", "close"]


def test_the_table_on_a_terminal_is_redrawn_in_place(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    plans = read_sweep(write(tmp_path / "good.toml", GOOD.replace("seeds = 1", "seeds = 2"))).plans(
        tmp_path
    )
    runner = Runner(plans, folder=tmp_path, retries=0)
    first, second = runner.runs.values()
    terminal = Terminal()
    table = SweepTable(terminal)
    table.show([first, second])
    assert terminal.lines[0] == "2 waiting"
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "episodes.csv").write_text("env_step,return,length\n50,-1,50\n90,-2.5,40\n95,-")
    first.state, first.folder, first.attempts = "running", folder, 1
    second.state, second.reason = "failed", "killed by SIGKILL"
    table.show([first, second])
    assert terminal.lines[0] == "1 running, 1 failed"
    assert terminal.lines[2].split() == [
        "MountainCar-v0_dqn_seed0", "running", "90", "of", "300", "-2.5", "1",
    ]  # fmt: skip
    assert terminal.lines[3].endswith("killed by SIGKILL")
    assert len(terminal.lines) == 4


STUDIES = """
[[study]]
name = "vectors"
family = "lowdim"
tasks = ["MountainCar-v0"]
algorithms = ["dqn"]
[study.settings]
steps = 2000

[[study]]
name = "grids"
family = "minatar"
tasks = ["breakout"]
algorithms = ["dqn", "medqn-u"]
[[study.variant]]
name = "short"
steps = 6000
"""


def test_a_file_can_have_several_studies(tmp_path):
    path = write(tmp_path / "all.toml", STUDIES)
    vectors, grids = read_studies(path)
    assert (vectors.name, vectors.study, grids.study) == ("all", "vectors", "grids")
    plans = [plan for study in (vectors, grids) for plan in study.plans(tmp_path / "out")]
    assert [plan.name for plan in plans] == [
        "vectors_MountainCar-v0_dqn_seed0",
        "grids_breakout_dqn_short_seed0",
        "grids_breakout_medqn-u_short_seed0",
    ]
    assert plans[0].logdir == tmp_path / "out/runs/vectors"
    assert plans[1].logdir == tmp_path / "out/runs/grids/short"
    assert [study.study for study in read_studies(write(tmp_path / "one.toml", GOOD))] == [""]


def test_some_studies_of_a_file_can_be_chosen(tmp_path, capsys):
    path = str(write(tmp_path / "all.toml", STUDIES))
    assert command.main(["sweep", path, "--dry-run", "--study", "grids"]) == 0
    printed = capsys.readouterr().out
    assert "grids_breakout" in printed
    assert "MountainCar" not in printed
    with pytest.raises(SystemExit):
        command.main(["sweep", path, "--dry-run", "--study", "pictures"])
    error = capsys.readouterr().err
    assert "argument --study: pictures is no [[study]] of" in error
    assert "choose from vectors, grids" in error


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda text: text.replace('name = "grids"', 'name = "vectors"'), "name of two"),
        (
            lambda text: text.replace("steps = 6000", "stepps = 6000"),
            "study grids: variant 1.stepps",
        ),
        (lambda text: "seeds = 3\n" + text, "not a key beside"),
        (lambda text: text.replace('name = "grids"', ""), "study 2.name"),
    ],
    ids=["name twice", "unknown flag", "key outside", "no name"],
)
def test_a_wrong_study_is_named(tmp_path, change, told):
    with pytest.raises(SweepFileError) as raised:
        read_studies(write(tmp_path / "all.toml", change(STUDIES)))
    assert told in str(raised.value)


def test_some_runs_of_a_file_can_be_chosen(tmp_path, capsys):
    path = str(write(tmp_path / "two.toml", GOOD.replace("seeds = 1", "seeds = 3")))
    options = ["sweep", path, "--dry-run", "--runs"]
    assert command.main([*options, "*_seed2", "MountainCar-v0_*_seed[12]"]) == 0
    commands = [line for line in capsys.readouterr().out.splitlines() if line.startswith("medqn ")]
    assert [line.rpartition(" ")[2] for line in commands] == ["2", "1"]
    with pytest.raises(SystemExit):
        command.main([*options, "*_seed2", "*_seed3"])
    assert "argument --runs: *_seed3 matches no run; " in capsys.readouterr().err


def test_the_campaign_is_a_sweep(tmp_path):
    studies = {study.study: study for study in read_studies(ROOT / "campaign/campaign.toml")}
    assert list(studies) == ["A1", "B", "C1", "A2", "D", "C2"]
    counts = {name: len(study.plans(tmp_path)) for name, study in studies.items()}
    assert counts == {"A1": 120, "B": 6, "C1": 24, "A2": 30, "D": 6, "C2": 24}

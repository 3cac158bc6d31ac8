"""The zoo: each policy plays from a clone, and the page tells what the files say."""

import json
import shutil

import pytest
from scripts import ROOT, load_script
from test_workbench import make_run

from medqn_tianshou.commands import main as command

NAMES = sorted(config.parent.name for config in (ROOT / "zoo").glob("*/config.json"))
add = load_script("zoo/add.py")


def test_the_zoo_is_not_empty():
    assert {"acrobot", "mountaincar"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_is_small_and_scores_what_its_file_says(name, capsys):
    folder = ROOT / "zoo" / name
    assert sum(file.stat().st_size for file in folder.iterdir()) < add.LARGEST
    told = json.loads((folder / "score.json").read_text())
    assert (told["episodes"], told["seed"]) == (add.EPISODES, 0)
    assert command.main(["evaluate", str(folder), "--episodes", "5", "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    # The first 5 of the 100 episodes.
    assert abs(sum(scores) / 5 - told["mean"]) < 5 * told["std"] / 5**0.5


def test_the_page_is_that_of_the_files():
    assert (ROOT / "docs/zoo.md").read_text() == add.page(), "run: python zoo/add.py"


@pytest.mark.parametrize("name", NAMES)
def test_a_config_says_nothing_of_the_machine(name):
    text = (ROOT / "zoo" / name / "config.json").read_text()
    assert json.loads(text).keys() <= set(add.KEPT)
    assert not any(word in text for word in ("/home", "/work", "/root"))


def test_the_script_adds_a_run_and_its_recording(tmp_path, monkeypatch, capsys):
    run = make_run(tmp_path / "run", "lowdim", bias_of_action=1)
    (run / "summary.json").write_text('{"status": "finished", "final_return": 1.5}')
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "command": "python /secret/place"}))
    monkeypatch.setattr(add, "ZOO", tmp_path / "zoo")
    monkeypatch.setattr(add, "EPISODES", 2)
    monkeypatch.setattr(add, "VIDEOS", tmp_path / "videos")
    monkeypatch.setattr(add, "PAGE", tmp_path / "zoo.md")
    monkeypatch.setattr(add, "page", lambda page=add.page: page(tmp_path / "zoo"))
    assert add.main([str(run), "catcher"]) == 0
    folder = tmp_path / "zoo/catcher"
    assert json.loads((folder / "config.json").read_text()) == config
    assert (tmp_path / "videos/catcher.gif").stat().st_size > 1000
    assert "| `zoo/catcher` | Catcher | " in (tmp_path / "zoo.md").read_text()
    shutil.rmtree(run)  # the zoo does without it
    capsys.readouterr()
    assert command.main(["evaluate", str(folder), "--episodes", "1"]) == 0


@pytest.mark.parametrize(
    ("status", "name", "told"),
    [("interrupted", "catcher", "is interrupted"), ("finished", "../x", "argument NAME")],
)
def test_an_unfinished_run_or_a_bad_name_is_refused(tmp_path, capsys, status, name, told):
    run = make_run(tmp_path / "run", "lowdim")
    (run / "summary.json").write_text(json.dumps({"status": status, "final_return": None}))
    with pytest.raises(SystemExit) as exit_info:
        add.main([str(run), name])
    assert told in f"{exit_info.value}{capsys.readouterr().err}"

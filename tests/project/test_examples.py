"""The examples run, and the pages show the same code."""

import ast
import re
import runpy

import gymnasium as gym
import pytest
from scripts import ROOT

from medqn_tianshou.envs.single import SingleVectorEnv
from medqn_tianshou.envs.state import envs_state, set_envs_state

EXAMPLES = ROOT / "examples"
STOCK = "compact_replay_in_stock_dqn.py"
SHORTER = {
    "STEPS = 2_000": "STEPS = 80",
    "STEPS = 10_000": "STEPS = 1_100",
    "BUFFER_SIZE = 1_000_000": "BUFFER_SIZE = 1_000",
    "n_step=1_000": "n_step=200",
}


def shortened(code):
    for text, shorter in SHORTER.items():
        code = code.replace(text, shorter)
    return code


def without_docstring(name):
    """The code of an example, from its first import on."""
    source = (EXAMPLES / name).read_text()
    first = ast.parse(source).body[1]
    return "".join(source.splitlines(keepends=True)[first.lineno - 1 :])


def blocks(page):
    return re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


def test_the_quick_start_is_that_of_the_readme():
    # A test runs the README's code.
    assert without_docstring("quickstart.py") == blocks("README.md")[0]


def test_the_tutorial_shows_the_example():
    *shown, _ = blocks("docs/tutorial.md")
    assert "\n".join(shown) == without_docstring(STOCK)


@pytest.mark.slow
def test_the_code_of_the_tutorial_runs(capsys):
    pytest.importorskip("ale_py")
    scope = {}
    for block in blocks("docs/tutorial.md"):
        exec(shortened(block), scope)  # noqa: S102
    printed = capsys.readouterr().out
    assert printed.startswith("280 transitions in ")
    assert "the same frames in Tianshou's buffer: 7 MB" in printed
    assert scope["medqn"].gradient_steps == 20
    assert scope["medqn"].consolidation_coef == pytest.approx(4, rel=0.1)
    assert len(scope["small_buffer"]) == 100


@pytest.fixture
def corridor():
    yield runpy.run_path(str(EXAMPLES / "own_environment.py"))["Corridor"]
    del gym.registry["Corridor-v0"]


@pytest.mark.slow
def test_an_environment_of_ones_own_is_trained_on(corridor, tmp_path, monkeypatch, run_folder):
    del gym.registry["Corridor-v0"]
    monkeypatch.chdir(tmp_path)
    source = EXAMPLES / "own_environment.py"
    code = compile(shortened(source.read_text()), str(source), "exec")
    exec(code, {"__name__": "__main__"})  # noqa: S102
    assert (run_folder(tmp_path / "log") / "summary.json").exists()


def test_an_environment_of_ones_own_goes_on_exactly_where_it_was_saved(corridor):
    one, other = (SingleVectorEnv(gym.make("Corridor-v0")) for _ in range(2))
    for envs in (one, other):
        envs.seed(3)
        envs.reset()
    one.step([1])
    set_envs_state(other, envs_state(one))
    for _ in range(30):
        (seen, *_), (expected, *_) = other.step([1]), one.step([1])
        assert (seen == expected).all()


@pytest.mark.slow
@pytest.mark.process
def test_the_notebook_runs_from_top_to_bottom():
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(EXAMPLES / "medqn.ipynb", as_version=4)
    for cell in notebook.cells:
        assert not cell.get("outputs"), "clear the outputs before you save it"
    client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": ROOT}})
    client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    text = "".join(output.get("text", "") for output in outputs)
    assert text.count("mean return") == 2
    assert text.count("state [") == 5
    assert any("image/png" in output.get("data", {}) for output in outputs)

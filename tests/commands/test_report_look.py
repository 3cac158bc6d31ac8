"""The look of the figures of medqn report."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from report_helpers import CAMPAIGN, run_report

from medqn_tianshou.commands.report.figures import COSTS, _set_cost_axis
from medqn_tianshou.commands.report.style import swarm


@pytest.mark.slow
@pytest.mark.parametrize("tasks", [["Acrobot-v1"], ["Acrobot-v1", "MountainCar-v0"]])
def test_the_text_below_a_figure_fits_its_width(tmp_path, monkeypatch, tasks):
    pytest.importorskip("rliable")
    shares = {}

    def measure(figure, path, dpi=72, **_):
        figure.set_dpi(dpi)
        figure.draw_without_rendering()
        shares[path.name] = figure._supxlabel.get_window_extent().x1 / figure.bbox.x1

    monkeypatch.setattr(Figure, "savefig", measure)
    runs = [CAMPAIGN / task / "dqn/0" for task in tasks]
    run_report(*runs, "--bootstrap", 100, "--out", tmp_path)
    assert "learning_curves.png" in shares
    assert {name: share for name, share in shares.items() if share > 1} == {}


def test_the_dots_of_a_swarm_do_not_cover_each_other():
    values = np.array([0.0, 0.001, 0.5, 0.002, 1.0, 0.003])
    assert swarm(values, 0, 1).tolist() == [0, 1, 0, -1, 0, 2]
    assert swarm(np.zeros(3), 0, 0).tolist() == [0, 1, -1]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("cost", COSTS, ids=lambda cost: cost.name)
def test_an_axis_has_a_width_where_all_costs_are_0(cost):
    axis = Figure().subplots()
    _set_cost_axis(axis, cost, np.zeros(2))
    low, high = axis.get_xlim()
    assert low <= 0 < high

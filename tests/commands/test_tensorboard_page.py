"""TensorBoard's own page shows our dashboards with their data, in a real browser."""

import importlib.util

import pytest
from browser import CHROMIUM, CURVES, DRIVER, TEXT, browse, serve, wait_for
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from medqn_tianshou.commands import train
from medqn_tianshou.training.dashboard import LAYOUT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.skipif(
        not (CHROMIUM and DRIVER and importlib.util.find_spec("selenium")),
        reason="needs selenium, and Debian's packages chromium and chromium-driver",
    ),
]
ALL_CHARTS = (1500, 2600)
"""A window that has all of them: those out of sight are not drawn."""


def test_every_chart_draws_its_curves_and_the_hparams_tab_has_the_figures(tmp_path):
    flags = "--algo medqn-u --steps 3300 --eval-every 1500 --max-episode-steps 200 --no-progress"
    flags += " --step-per-collect 10"
    assert train.main("lowdim", [*flags.split(), "--logdir", str(tmp_path)]) == 0
    (config,) = tmp_path.glob("**/config.json")
    events = EventAccumulator(str(config.parent))
    events.Reload()
    points = {tag: len(events.Scalars(tag)) for tag in events.Tags()["scalars"]}
    expected = {
        title: sum(points.get(tag, 0) >= 2 for tag in tags)
        for charts in LAYOUT.values()
        for title, (_, tags) in charts.items()
    }
    assert [title for title, count in expected.items() if count == 0] == [
        "reservoir of states, MB",
        "CUDA, MB",
    ]
    assert expected["evaluation return"] == 1

    with serve(tmp_path) as address, browse() as driver:
        driver.set_window_size(*ALL_CHARTS)
        # A smoothed curve is drawn twice: with the values as they are behind it.
        curves = wait_for(
            driver,
            f"{address}/#custom_scalars",
            CURVES,
            lambda drawn: all(drawn.get(title, 0) >= count for title, count in expected.items()),
        )
        assert {title: min(curves[title], count) for title, count in expected.items()} == expected
        assert curves["CUDA, MB"] == 0
        text = driver.execute_script(TEXT)
        assert [category for category in LAYOUT if category not in text] == []

        final = events.Scalars("train/return")[-1]
        words = ["buffer_size", "medqn-u", "train/return", f"{final.value:.5g}"]
        text = wait_for(
            driver,
            f"{address}/#hparams",
            TEXT,
            lambda text: all(word in text for word in words),
        )
        assert [word for word in words if word not in text] == []

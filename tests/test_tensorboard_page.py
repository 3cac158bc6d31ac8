"""TensorBoard's own page shows our dashboards, in a real browser."""

import importlib.util

import pytest
from browser import CHROMIUM, DRIVER, browse, serve, wait_for

from medqn_tianshou.dashboard import LAYOUT
from medqn_tianshou.experiments import lowdim

pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER and importlib.util.find_spec("selenium")),
    reason="needs the extra browser, and Debian's packages chromium and chromium-driver",
)


def test_the_layout_and_the_settings_show(tmp_path):
    flags = ["--algo", "dqn-s", "--steps", "2200", "--no-progress", "--logdir", str(tmp_path)]
    assert lowdim.main(flags) == 0
    charts = [chart for category in LAYOUT.values() for chart in category]
    with serve(tmp_path) as address, browse() as driver:
        # The page has all names of categories, and the charts of the first, which is open.
        first = list(next(iter(LAYOUT.values())))
        text = wait_for(driver, f"{address}/#custom_scalars", [*LAYOUT, *first])
        assert set(LAYOUT) <= {name for name in LAYOUT if name in text}
        assert set(first) <= {chart for chart in charts if chart in text}
        driver.get("about:blank")
        text = wait_for(driver, f"{address}/#hparams", ["buffer_size", "final/final_return"])
        assert "buffer_size" in text
        assert "final/final_return" in text

"""The parts of the speed benchmark that look into our training: breakdown and options."""

import pytest
import torch

from benchmarks.speed import breakdown, command, options
from medqn_tianshou.collecting.alone import suits_alone
from medqn_tianshou.experiments.lowdim import LOWDIM
from medqn_tianshou.training.options import RunOptions

pytestmark = pytest.mark.slow

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


def test_the_breakdown_covers_every_piece():
    result = breakdown.measure_breakdown(TINY)
    atari, minatar = result["us_per_env_step"].values()
    assert minatar.keys() == breakdown.PIECES.keys()
    assert atari.keys() == breakdown.PIECES.keys() - {"bounds"}
    assert min(*atari.values(), *minatar.values()) > 0
    assert result["figures"]["breakdown_minatar_medqn_u_c32_env_us"] == minatar["env"]
    table = breakdown.show_breakdown(result).tables[1]
    shares = [float(row[-1].removesuffix(" %")) for row in table.rows]
    assert sum(shares[:-1]) == pytest.approx(shares[-1], abs=0.5)


def test_what_is_timed_is_what_trainings_run(tmp_path):
    settings = LOWDIM.settings(algo="medqn-u", steps=1_100)
    training = LOWDIM.make_training(settings, RunOptions(logdir=tmp_path))
    training.warm_up()
    with breakdown.watched(training) as stopwatch:
        assert suits_alone(training.train_collector)
        training.run()
    assert stopwatch.seconds.keys() == breakdown.PIECES.keys() - {"rest"}


def test_a_stopwatch_leaves_out_what_inner_functions_take(monkeypatch):
    clock = iter([0, 1, 4, 10])
    monkeypatch.setattr(breakdown.time, "perf_counter", lambda: next(clock))
    stopwatch = breakdown.Stopwatch()
    inner = stopwatch.wrap("inner", lambda: 5)
    assert stopwatch.wrap("outer", lambda: inner())() == 5
    assert stopwatch.seconds == {"inner": 3, "outer": 7}


def test_options_change_the_time_of_an_update_and_not_its_result():
    every = options.choices(cores=2)
    defaults = {choice.family: choice for choice in reversed(every)}
    assert list(every[:1]) == [defaults["atari"]]
    for family, default in defaults.items():
        expected, update = options.make_update(default)
        update()
        others = [choice for choice in every if choice.family == family and choice != default]
        assert len(others) >= 4
        for choice in others:
            if choice.compiled:  # takes half a minute
                continue
            network, update = options.make_update(choice)
            update()
            assert torch.get_num_threads() == choice.threads
            for one, other in zip(network.parameters(), expected.parameters(), strict=True):
                # The first step of Adam is as large for a tiny gradient as for a large one.
                torch.testing.assert_close(one, other, rtol=0, atol=2.1e-3)
                assert ((one - other).abs() > 1e-5).float().mean() < 0.01
    torch.set_num_threads(1)

"""What TensorBoard shows of a run, read back from its events."""

import json
import re
from fnmatch import fnmatch
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scripts import ROOT
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2
from tensorboard.plugins.hparams import plugin_data_pb2
from tianshou.data import Batch, VectorReplayBuffer

from medqn_tianshou.training.dashboard import LAYOUT, Probe

STEPS, WARMUP = 3300, 1000
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory, short_run):
    flags = f"--steps {STEPS} --warmup-steps {WARMUP} --algo medqn-u".split()
    flags += ["--target-update-env-steps", "1000"]
    return short_run("minatar", tmp_path_factory.mktemp("log"), *flags)


@pytest.fixture(scope="module")
def events(run):
    accumulator = EventAccumulator(str(run))
    accumulator.Reload()
    return accumulator


def plugin_content(events, tag):
    return events.SummaryMetadata(tag).plugin_data.content


def test_the_layout_is_there_and_every_chart_that_a_run_can_fill_has_data(events):
    proto = events.Tensors("custom_scalars__config__")[0].tensor_proto.string_val[0]
    layout = layout_pb2.Layout.FromString(proto)
    assert [category.title for category in layout.category] == list(LAYOUT)
    charts = [chart for category in layout.category for chart in category.chart]
    shown = {tag for chart in charts for tag in chart.multiline.tag}
    missing = shown - set(events.Tags()["scalars"])
    without_reservoir = {"memory/state_buffer_mb"}
    assert missing == without_reservoir | {
        "test/returns_stat/mean", "memory/cuda_mb", "memory/peak_cuda_mb",
    }  # fmt: skip


def test_the_docs_tell_every_key(events):
    pages = [(ROOT / f"docs/{name}.md").read_text() for name in ("medqn", "workbench")]
    told = {word for page in pages for word in re.findall(r"`([a-z]+/[\w/*]+)`", page)}
    logged = events.Tags()["scalars"]
    assert {tag for tag in logged if not any(fnmatch(tag, word) for word in told)} == set()
    # Tianshou's own are told by their beginnings alone; ours one by one.
    ours = {tag for tag in logged if tag.startswith(("memory/", "probe/", "speed/"))}
    assert (
        ours | {tag for charts in LAYOUT.values() for _, tags in charts.values() for tag in tags}
        <= told
    )


def test_drift_shows_also_where_logs_and_target_copies_fall_together(events):
    drift = {event.step: event.value for event in events.Scalars("probe/target_drift")}
    assert drift[2000] > 0
    assert drift[3000] > 0


def test_speeds_are_steps_over_the_training_time(run, events):
    summary = json.loads((run / "summary.json").read_text())
    logged = events.Scalars("speed/env_steps_per_s")
    steps = np.diff([WARMUP, *(event.step for event in logged)])
    seconds = sum(steps / [event.value for event in logged])
    assert (summary["env_steps"] - WARMUP) / seconds == pytest.approx(
        summary["steps_per_s"], rel=0.02
    )
    ratio = [
        gradient.value / env.value
        for gradient, env in zip(events.Scalars("speed/gradient_steps_per_s"), logged, strict=True)
    ]
    assert ratio == pytest.approx([1 / 8] * len(ratio), rel=0.03)  # an update every 8 steps


def test_hparams_hold_the_settings_and_the_final_figures(run, events):
    summary = json.loads((run / "summary.json").read_text())
    start = plugin_data_pb2.HParamsPluginData.FromString(
        plugin_content(events, "_hparams_/session_start_info")
    ).session_start_info.hparams
    assert start["algo"].string_value == "medqn-u"
    assert start["lr"].number_value == 3e-3
    assert start["overlap"].bool_value is False
    experiment = plugin_data_pb2.HParamsPluginData.FromString(
        plugin_content(events, "_hparams_/experiment")
    ).experiment
    names = {info.name.tag for info in experiment.metric_infos}
    last = {name: events.Scalars(name)[-1].value for name in names - {"test/returns_stat/mean"}}
    assert last["train/return"] == pytest.approx(summary["final_return"], rel=1e-6)
    assert last["memory/peak_rss_mb"] == pytest.approx(summary["peak_rss_mb"], rel=1e-6)
    assert last["memory/buffer_mb"] == pytest.approx(summary["buffer_mb"], rel=1e-6)


def test_every_scalar_is_logged_once_a_step(events):
    twice = {
        tag: steps
        for tag in events.Tags()["scalars"]
        if len(steps := [event.step for event in events.Scalars(tag)]) != len(set(steps))
    }
    assert twice == {}
    assert not [tag for tag in events.Tags()["scalars"] if tag.startswith("final/")]


def test_the_training_return_is_that_of_the_last_episodes(run, events, read_csv):
    episodes = [(int(r["env_step"]), float(r["return"])) for r in read_csv(run / "episodes.csv")]
    assert len(episodes) > 10
    for event in events.Scalars("train/return"):
        expected = np.mean([value for step, value in episodes if step <= event.step])
        assert event.value == pytest.approx(expected, rel=1e-6)
    assert "train/returns_stat/mean" not in events.Tags()["scalars"]


def test_no_chart_mixes_training_and_evaluation():
    charts = [tags for category in LAYOUT.values() for _, tags in category.values()]
    assert not [tags for tags in charts if {tag.split("/")[0] for tag in tags} >= {"train", "test"}]


class Table(torch.nn.Module):
    """Q values of states that are numbers, from a table."""

    def __init__(self, q):
        super().__init__()
        self.q = torch.tensor(q, dtype=torch.float32)

    def forward(self, obs):
        return self.q[torch.as_tensor(obs).long().flatten()], None


def add(buffer, *states):
    for state in states:
        buffer.add(
            Batch(
                obs=np.array([[state]]), obs_next=np.array([[state]]), act=np.array([0]),
                rew=np.array([0.0]), terminated=np.array([False]), truncated=np.array([False]),
            )
        )  # fmt: skip
    return buffer


def test_the_probe_compares_with_the_target_network_and_with_the_last_time():
    buffer = add(VectorReplayBuffer(16, 1), *[0, 1] * 8)
    probe = Probe(buffer, env_steps=100_000, size=16)
    policy = SimpleNamespace(
        model=Table([[1.0, 2.0], [5.0, -7.0]]), model_old=Table([[0.0, 2.0], [5.0, -6.0]])
    )
    first = probe.measure(policy, 4000)
    probe._next_sample = 9000  # see the test of the schedule
    states = probe._states.flatten()
    share = states.mean()  # of state 1 among the states drawn
    assert 0 < share < 1
    assert first == pytest.approx(
        {"q_mean": 2 + 3 * share, "q_abs_max": 7.0, "target_drift": np.sqrt(0.5)}
    )
    add(buffer, *[2] * 16)  # other states now; the probe keeps its own
    assert probe.measure(policy, 5000)["churn"] == 0
    policy.model.q[1] = torch.tensor([0.0, 1.0])
    continued = Probe(VectorReplayBuffer(16, 1), env_steps=100_000, size=16)
    continued.load_state_dict(probe.state_dict())
    assert probe.measure(policy, 5000)["churn"] == pytest.approx(share)
    assert continued.measure(policy, 5000)["churn"] == pytest.approx(share)
    assert probe.measure(policy, 5000)["churn"] == 0
    assert (probe._states.flatten() == states).all()


def test_the_probe_takes_new_states_on_a_schedule_and_compares_the_same_ones():
    buffer = add(VectorReplayBuffer(16, 1), *[0] * 16)
    policy = SimpleNamespace(model=Table([[1.0, 2.0]] * 3), model_old=Table([[1.0, 2.0]] * 3))
    probe = Probe(buffer, env_steps=200_000, size=16)
    probe.measure(policy, 0)
    add(buffer, *[1] * 16)
    probe.measure(policy, 1000)  # on the first states, then it takes new ones
    assert set(probe._states.flatten()) == {1}
    policy.model.q[0] = torch.tensor([2.0, 1.0])
    assert probe.measure(policy, 1500)["churn"] == 0
    policy.model.q[1] = torch.tensor([2.0, 1.0])
    add(buffer, *[2] * 16)
    assert probe.measure(policy, 2000)["churn"] == 1
    assert set(probe._states.flatten()) == {2}
    assert probe.measure(policy, 2500)["churn"] == 0
    assert probe._next_sample == 4000
    probe.measure(policy, 40_000)
    assert probe._next_sample == 50_000  # a twentieth of the run later


def test_the_probe_waits_for_enough_states_and_leaves_all_random_streams_alone():
    buffer = add(VectorReplayBuffer(16, 1), 0, 1)
    policy = SimpleNamespace(model=Table([[1.0, 2.0]] * 2), model_old=Table([[1.0, 2.0]] * 2))
    probe = Probe(buffer, env_steps=100_000, size=4)
    assert probe.measure(policy, 5000) == {}
    add(buffer, 0, 1)
    assert probe.measure(policy, 5000)
    np.random.seed(3)
    torch.manual_seed(3)
    untouched = add(VectorReplayBuffer(16, 1), 0, 1, 0, 1)
    expected = np.random.rand(), torch.rand(1), untouched.sample_indices(8).tolist()
    np.random.seed(3)
    torch.manual_seed(3)
    assert Probe(buffer, env_steps=100_000, size=4).measure(policy, 0)
    assert np.random.rand() == expected[0]
    assert torch.rand(1) == expected[1]
    assert buffer.sample_indices(8).tolist() == expected[2]

"""Scalars of a step share an event; readers see what TensorBoard's own writer would write."""

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from torch.utils.tensorboard import SummaryWriter

from medqn_tianshou.training.event_writer import EventWriter

SCALARS = [("a", 1.5, 0), ("b/c", -2, 0), ("a", float("inf"), 10), ("b/c", 4.0, 20), ("a", 5, 20)]


def read(folder):
    accumulator = EventAccumulator(str(folder)).Reload()
    return {
        tag: [(event.step, event.value) for event in accumulator.Scalars(tag)]
        for tag in accumulator.Tags()["scalars"]
    }


def count_events(folder):
    (path,) = folder.iterdir()
    return sum(1 for _ in RawEventFileLoader(str(path)).Load())


def test_scalars_are_read_as_from_tensorboards_own_writer(tmp_path):
    mirrored = []
    ours = EventWriter(str(tmp_path / "ours"), lambda *scalar: mirrored.append(scalar))
    reference = SummaryWriter(str(tmp_path / "reference"))
    for writer in (ours, reference):
        for tag, value, step in SCALARS:
            writer.add_scalar(tag, value, global_step=step)
        writer.close()
    assert read(tmp_path / "ours") == read(tmp_path / "reference")
    assert mirrored == [(tag, value) for tag, value, _ in SCALARS]
    assert count_events(tmp_path / "ours") == 1 + 3  # the file's version, and three steps
    assert count_events(tmp_path / "reference") == 1 + 5


@pytest.mark.parametrize("end", ["flush", "close"])
def test_the_scalars_of_the_last_step_reach_the_file(tmp_path, end):
    writer = EventWriter(str(tmp_path), lambda *_: None)
    writer.add_scalar("a", 1, 5)
    getattr(writer, end)()
    assert read(tmp_path) == {"a": [(5, 1.0)]}
    writer.close()
    assert read(tmp_path) == {"a": [(5, 1.0)]}


def test_an_event_has_the_time_of_its_first_scalar(tmp_path, monkeypatch):
    now = iter([100.0, 200.0])
    writer = EventWriter(str(tmp_path), lambda *_: None)
    monkeypatch.setattr("medqn_tianshou.training.event_writer.time.time", lambda: next(now))
    for step in (0, 0, 1):
        writer.add_scalar("a", step, step)
    monkeypatch.undo()
    writer.close()
    scalars = EventAccumulator(str(tmp_path)).Reload().Scalars("a")
    assert [event.wall_time for event in scalars] == [100.0, 100.0, 200.0]

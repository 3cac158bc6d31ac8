"""The memory benchmark: it compares like with like, and its page holds what was measured."""

import json
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import report
from benchmarks.memory import command, play, processes, states, timing, training, worker

pytestmark = pytest.mark.slow

TINY = replace(
    command.QUICK,
    atari_transitions=50,
    minatar_transitions=50,
    peer_transitions=50,
    reservoir_states=20,
    fetch_transitions=50,
    fetch_repeats=1,
    add_passes=1,
    small_transitions=40,
    large_transitions=100,
)


@pytest.fixture(scope="module")
def buffers():
    size = 500
    filled = {name: kind(size, 1, **play.ATARI_REPLAY) for name, kind in play.REPLAY.items()}
    play.RandomPlay(play.make_game("Qbert")).fill(*filled.values(), transitions=size)
    return filled


@pytest.mark.parametrize("way", timing.FETCHES)
def test_both_buffers_fetch_the_same(buffers, way):
    states = np.arange(100, 100 + timing.BATCH_SIZE)
    for buffer in buffers.values():
        timing.seed_replay_buffer(buffer, 5)
    fetched = [timing.FETCHES[way](buffer, states) for buffer in buffers.values()]
    # Tianshou's buffer has no successors of the last transitions of episodes.
    timing.seed_replay_buffer(buffers["raw"], 5)
    index = buffers["raw"].sample_indices(timing.BATCH_SIZE)
    for _ in range(2):
        index = buffers["raw"].next(index)
    known = buffers["raw"].next(index) != index
    assert 0 < known.sum() < len(known)
    for place, (one, other) in enumerate(zip(*fetched, strict=True)):
        which = known if place == 1 else slice(None)  # the successors
        np.testing.assert_array_equal(one[which], other[which])


def test_a_reservoir_is_measured_in_every_game():
    result = states.measure_states(TINY)
    assert [row[0] for row in states.show_states(result).tables[0].rows] == list(states.GAMES)
    for figures in result["by_game"].values():
        assert figures["bytes"] < figures["raw"] / 2
        assert min(figures.values()) > 0


def test_times_are_taken_of_every_way_and_game_and_judged():
    section = timing.show_times(timing.measure_times(TINY))
    fetches, adds, by_size = section.tables
    assert len(fetches.rows) == len(timing.FETCHES) * len(play.GAMES)
    assert [row[0] for row in adds.rows] == ["raw", "compact"]
    assert [row[0] for row in by_size.rows] == ["40", "100"]
    assert [target.at_most for target in section.targets] == [60, *[4] * 4, 1.15]


def test_a_recording_is_repeated_with_shifted_frames(buffers):
    recording = play.Recording.of(play.RandomPlay(play.make_game("Qbert")), 20)
    batches = list(recording.repeat(50))
    assert len(batches) == 50
    assert [i for i, batch in enumerate(batches) if batch.truncated[0]] == [19, 39]
    for i in (3, 23, 43):
        frame = batches[i].obs_next[0, -1]
        np.testing.assert_array_equal(frame, np.roll(recording.obs_next[3], i // 20, axis=1))
    # The same play as the buffers' first: a stack of its newest frames is the recorded one.
    np.testing.assert_array_equal(buffers["raw"].get(np.arange(20), "obs")[:, -1], recording.obs)


def test_sticky_play_repeats_its_actions():
    envs = play.make_game("Qbert", 2)
    actions = {
        prob: np.array([random_play.step().act for _ in range(200)])
        for prob in (0.0, 0.5)
        for random_play in [play.RandomPlay(envs, repeat_prob=prob)]
    }
    repeats = {prob: np.mean(act[1:] == act[:-1]) for prob, act in actions.items()}
    assert repeats[0.0] == pytest.approx(1 / 6, abs=0.08)
    assert repeats[0.5] == pytest.approx(0.5 + 0.5 / 6, abs=0.08)


@pytest.mark.parametrize(
    "row",
    [processes.TRAININGS[i] for i in (0, 3, 8, 10)],
    ids=lambda row: f"{row.algo} {row.replay}",
)
def test_the_memory_of_each_kind_of_training_can_be_measured(row):
    size = min(row.buffer_size, 64)
    options = {name: getattr(row, name) for name in ("family", "task", "algo", "replay")}
    measured = worker.train(**options, buffer_size=size, rounds=1)
    assert measured["transitions"] == size
    assert 0 < measured["buffer"] < measured["imported"]
    assert measured["rss"] <= measured["peak_rss"]


def test_the_shares_of_a_process_add_up_to_its_peak():
    row = {"imported": 200, "network": 30, "buffer": 10, "peak_rss": 300}
    assert processes.shares(row) == {"libraries": 200, "network": 30, "buffer": 10, "rest": 60}
    assert processes.shares({**row, "peak_rss": 230})["rest"] == 0


@pytest.mark.parametrize(
    ("nbytes", "text"), [(1_632, "2 kB"), (1e6, "1 MB"), (1_188e6, "1,188 MB")]
)
def test_a_small_share_is_not_rounded_away(nbytes, text):
    assert report.megabytes(nbytes) == text


def test_a_full_buffer_can_be_measured():
    result = worker.fill_replay(transitions=120, num_envs=2)
    assert result["transitions"] == 120
    assert result["nbytes"] > 120
    bytes_held, rss_growth = processes.show_full(result).targets
    assert bytes_held.value == result["nbytes"] / 1e9
    assert rss_growth.value == result["rss_growth"] / 1e9


def test_workers_are_processes_whose_last_line_counts(tmp_path, monkeypatch):
    with pytest.raises(RuntimeError, match=r"memory\.worker .* failed: KeyError: 'unknown'"):
        processes.run_worker("unknown")
    echo = tmp_path / "echo.py"
    echo.write_text("import sys; print('a warning'); print(sys.argv[1])")
    monkeypatch.setattr(processes, "WORKER", "echo")
    monkeypatch.setattr(processes, "ROOT", tmp_path)
    assert processes.run_worker("train", rounds=3) == {"job": "train", "rounds": 3}


def test_training_speed_is_of_the_same_training_with_either_buffer(monkeypatch):
    monkeypatch.setattr(
        training, "TRAININGS", {"MinAtar": training.TRAININGS["MinAtar Breakout, MeDQN(R)"]}
    )
    sizes = replace(TINY, training_steps=((64, 8),), training_turns=2)
    result = training.measure_training(sizes)
    speeds = result["steps_per_s"]["MinAtar"]
    assert {name: len(values) for name, values in speeds.items()} == {"raw": 2, "compact": 2}
    section = training.show_training(result)
    (target,) = section.targets
    assert target.value == pytest.approx(np.median(speeds["raw"]) / np.median(speeds["compact"]))
    assert "64 transitions" in section.notes


def run(out, parts, *flags):
    return command.BENCHMARK.main(["--quick", "--out", str(out), "--parts", parts, *flags], TINY)


def test_parts_add_up_to_a_page_of_what_was_measured(tmp_path, capsys):
    assert run(tmp_path, "minatar,bytes") == 0
    assert run(tmp_path, "peers") == 0
    content = json.loads((tmp_path / "memory.json").read_text())
    page = (tmp_path / "README.md").read_text()
    assert capsys.readouterr().out.endswith(page + "\n")
    assert list(content["parts"]) == ["bytes", "minatar", "peers"]
    by_game = content["parts"]["bytes"]["measured"]["bytes_per_transition"]
    assert set(by_game) == set(play.GAMES)
    assert f"| BattleZone   | {by_game['BattleZone']['random']:.1f} " in page
    values = {target["what"]: target["value"] for target in content["targets"]}
    mean = np.mean([values["random"] for values in by_game.values()])
    shown = values["bytes per transition, mean of the five games, random play"]
    assert shown == pytest.approx(mean)
    assert "A quick run" in page
    assert "56,468" in page
    for part in content["parts"].values():
        assert {"command", "started", "versions", "hardware", "seconds"} <= part["run"].keys()


def test_a_target_is_met_up_to_its_limit(tmp_path):
    met, missed = (
        report.Target(what="x", value=value, at_most=60, unit="us") for value in (60, 60.1)
    )
    assert met.met
    assert not missed.met
    section = report.Section(title="s", tables=[], notes="", targets=[met, missed])
    part = report.Part(lambda sizes: {}, lambda result: section)
    written = report.Report(tmp_path / "x.json", quick=False, command="x")
    written.measure("s", part, None)
    written.write(tmp_path / "README.md", "t", {"s": part})
    rows = (tmp_path / "README.md").read_text().splitlines()
    assert "| x | 60 us    | 60 us   | yes    |" in rows
    assert "| x | 60.1 us  | 60 us   | **no** |" in rows


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--parts", "bytes,tims"], "--parts: 'tims' is not a part; choose from bytes,full"),
        (["--quick"], "--quick: is not for docs/results/memory; name another --out"),
        (["--json", "{tmp}/foreign.json"], "is not a file of this version of the benchmark"),
        (["--json", "{tmp}/quick.json"], "contains results of a quick run; name another --out"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(tmp_path, capsys, flags, problem):
    (tmp_path / "foreign.json").write_text("[]x")
    (tmp_path / "quick.json").write_text('{"quick": true, "parts": {}}')
    with pytest.raises(SystemExit) as stopped:
        command.BENCHMARK.main([flag.format(tmp=tmp_path) for flag in flags])
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert problem in line


def test_a_part_that_fails_is_reported_with_its_reason(tmp_path, capsys, monkeypatch):
    def fail(sizes):
        raise RuntimeError("no memory left")

    parts = command.BENCHMARK.parts
    monkeypatch.setitem(parts, "full", replace(parts["full"], measure=fail))
    assert run(tmp_path, "full") == 1
    assert capsys.readouterr().err.endswith("full: no memory left\n")

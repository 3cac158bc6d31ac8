"""A hundred changed files: each is taken, or refused in one line, and a run falls back."""

import random

import pytest

from benchmarks.torture.fuzz import Fuzzer
from benchmarks.torture.mutations import mutate_container, mutate_json, split_containers
from medqn_tianshou.replay import CompactVectorReplayBuffer

COUNTS = {"replay": 40, "run_files": 24, "lowdim": 18, "minatar": 18}


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize("kind", COUNTS)
def test_no_changed_file_breaks_what_reads_it(tmp_path, kind):
    fuzzer = Fuzzer(tmp_path, seed=7)
    if kind in ("replay", "run_files"):
        getattr(fuzzer, kind)(COUNTS[kind])
    else:
        fuzzer.checkpoints(kind, COUNTS[kind])
    assert fuzzer.broken == []
    outcomes = [name for counts in fuzzer.counts.values() for name in counts.elements()]
    assert len(outcomes) == COUNTS[kind]
    assert {"refused", "fell back"} & set(outcomes)


def test_a_change_is_in_one_place_and_leaves_the_digest_right(tmp_path):
    path = tmp_path / "replay"
    CompactVectorReplayBuffer(10, 1, random_seed=0).save(path)
    data = path.read_bytes()
    assert split_containers(data * 2) == [data, data]
    for seed in range(30):
        changed, what = mutate_container(data, random.Random(seed))
        assert (changed, what) == mutate_container(data, random.Random(seed))
        path.write_bytes(changed)
        problem = ""
        try:
            CompactVectorReplayBuffer.load(path)
        except ValueError as error:
            problem = str(error)
        assert "digest" not in problem, what


def test_every_field_is_changed_by_and_by():
    tree = {"a": 1, "b": [{"c": 2}, {"c": 3}], "d": {}}
    changes = {mutate_json(tree, random.Random(seed))[1] for seed in range(300)}
    assert tree == {"a": 1, "b": [{"c": 2}, {"c": 3}], "d": {}}
    for name in ("a", "b", "b.0", "b.1.c", "d"):
        assert any(f" {name}" in change for change in changes)

"""CompactPrioritizedVectorReplayBuffer against Tianshou's PrioritizedVectorReplayBuffer."""

import pickle

import numpy as np
import pytest
import torch
from compact_oracle import KEYS, Play, assert_same, assert_same_transitions, step, to_add
from hypothesis import given
from random_play import Game, examples, floats, games, noise
from tianshou.data import PrioritizedReplayBuffer, PrioritizedVectorReplayBuffer

from medqn_tianshou import (
    CompactPrioritizedVectorReplayBuffer,
    CompactVectorReplayBuffer,
    ReplayFileError,
)
from medqn_tianshou.files.container import Container, write_container
from medqn_tianshou.replay.prioritized import FORMAT

PRIORITIES = {"alpha": 0.6, "beta": 0.4}


def leaves(buffer):
    """The priority of every index, stored or not."""
    return np.asarray(buffer.weight[np.arange(buffer.maxsize)])


def stored(buffer):
    return np.sort(buffer.sample_indices(0))


def sampled(buffer, seed, size):
    np.random.seed(seed)
    return buffer.sample(size)


def errors_like(rng, index):
    errors = (rng.normal(size=len(index)) * 10.0 ** rng.integers(-3, 3)).astype(np.float32)
    return torch.as_tensor(errors) if rng.random() < 0.5 else errors


@pytest.mark.slow
@given(games(break_chance=0.0))
@examples(30)
def test_every_step_is_that_of_tianshous_buffer(game):
    ours = game.make(CompactPrioritizedVectorReplayBuffer, **PRIORITIES)
    theirs = game.make(PrioritizedVectorReplayBuffer, **PRIORITIES)
    plain = game.make(random_seed=0)
    play = Play(game, ours, theirs, plain)
    rng = np.random.default_rng(game.seed)
    for _ in range(game.steps):
        (reported, expected, _), _ = play.step()
        for one, other in zip(reported, expected, strict=True):
            np.testing.assert_array_equal(one, other)
        size = int(rng.integers(1, 20))
        (batch, index), (other, expected) = (sampled(b, size, size) for b in (ours, theirs))
        np.testing.assert_array_equal(index, expected)
        keys = ("weight", *KEYS) if game.stack_num == 1 else ("weight", "act", "rew", "done")
        for key in keys:
            assert_same(batch[key], other[key], key)
        assert_same_transitions(batch, plain[index])
        assert_same(ours.get_weight(index), theirs.get_weight(index))
        if rng.random() < 0.7:
            errors = errors_like(rng, index)
            for buffer in (ours, theirs):
                buffer.update_weight(index, errors)
        if rng.random() < 0.1:
            beta = float(rng.random())
            ours.set_beta(beta)
            PrioritizedReplayBuffer.set_beta(theirs, beta)  # the vector buffer's has no effect
        assert_same(ours.weight._value, theirs.weight._value)


@pytest.mark.slow
@given(games(frames_per_block=2))
@examples(30)
def test_priorities_stay_with_their_transitions_below_a_cap(game):
    """Transitions are evicted early and move to other indices; each is known by its reward."""
    probe = game.make(CompactPrioritizedVectorReplayBuffer, **PRIORITIES, max_bytes=1)
    with pytest.raises(ValueError, match="max_bytes=1 is too small") as error:
        Play(game, probe).step()
    cap = int(1.3 * int(str(error.value).split()[-1]))
    buffer = game.make(CompactPrioritizedVectorReplayBuffer, **PRIORITIES, max_bytes=cap)
    players = Play(game).players
    for count in range(1, game.steps + 1):
        for env, player in enumerate(players):
            batch = to_add(game, [player.step()])
            batch.rew = np.array([float(game.envs * count + env)])
            index, *_ = buffer.add(batch, buffer_ids=[env])
            buffer.update_weight(index, batch.rew)
            assert buffer.nbytes <= cap
        index = stored(buffer)
        np.testing.assert_array_equal(np.flatnonzero(leaves(buffer)), index)
        rewards = buffer.get(index, "rew", stack_num=1)
        expected = (rewards + np.finfo(np.float32).eps.item()) ** PRIORITIES["alpha"]
        np.testing.assert_array_equal(leaves(buffer)[index], expected)
        buffer.sample(8)


def capped():
    """A buffer that has evicted much."""
    game = Game(size=2000, envs=2, kind=noise)
    buffer = game.make(CompactPrioritizedVectorReplayBuffer, **PRIORITIES, max_bytes=100_000)
    play = Play(game, buffer, part_size=10**6)
    for _ in range(300):
        play.step()
    assert buffer.is_capped
    assert len(buffer) > 50
    return buffer, play


def test_less_memory_drops_the_priorities_of_what_it_evicts():
    buffer, _ = capped()
    index = stored(buffer)
    buffer.lower_max_bytes(80_000)
    assert 0 < len(buffer) < len(index)
    np.testing.assert_array_equal(np.flatnonzero(leaves(buffer)), stored(buffer))
    # What was sampled before, and is evicted now, gets no priority.
    buffer.update_weight(index, np.full(len(index), 9.0))
    np.testing.assert_array_equal(np.flatnonzero(leaves(buffer)), stored(buffer))
    buffer.sample(100)


def test_priorities_count_for_the_limit_in_bytes():
    buffer = CompactPrioritizedVectorReplayBuffer(1000, 1, **PRIORITIES, max_bytes=20_000)
    assert buffer.nbytes >= 16 * 1000
    with pytest.raises(ValueError, match="max_bytes=20000 is too small"):
        buffer.add(step(np.zeros(100), np.zeros(100)))
    plain = CompactVectorReplayBuffer(1000, 1, max_bytes=20_000)
    plain.add(step(np.zeros(100), np.zeros(100)))


def test_nothing_is_sampled_from_before_a_reset():
    buffer, play = capped()
    buffer.reset()
    assert not leaves(buffer).any()
    with pytest.raises(ValueError, match="the replay buffer is empty"):
        buffer.sample(4)
    play.step()
    _, index = buffer.sample(50)
    assert set(index) == set(stored(buffer)) == set(np.flatnonzero(leaves(buffer)))


def test_beta_and_weight_norm_take_effect():
    buffers = [
        CompactPrioritizedVectorReplayBuffer(8, 1, **PRIORITIES, weight_norm=norm)
        for norm in (True, False)
    ]
    for buffer in buffers:
        for time in range(4):
            buffer.add(step(time, time + 1))
        buffer.update_weight(np.arange(4), np.array([0.5, 1.0, 2.0, 4.0]))
        eps = np.finfo(np.float32).eps.item()
        weights = np.array([0.5, 1.0, 2.0, 4.0]) + eps
        for beta in (0.4, 1.0, 0.0):
            buffer.set_beta(beta)
            expected = (weights**0.6 / (0.5 + eps)) ** -beta
            np.testing.assert_allclose(buffer.get_weight(np.arange(4)), expected)
            if buffer is buffers[0]:
                expected = expected / expected.max()
            np.testing.assert_allclose(buffer[:].weight, expected)


def test_it_is_one_of_tianshous_and_reads_by_every_kind_of_index():
    buffer, _ = capped()
    assert isinstance(buffer, PrioritizedVectorReplayBuffer)
    index = stored(buffer)
    buffer.update_weight(index, np.arange(1.0, 1 + len(index)))
    expected = buffer[index]
    mask = np.zeros(buffer.maxsize, bool)
    mask[index] = True
    for other in (buffer[mask], buffer[index.tolist()], buffer[index - buffer.maxsize]):
        assert_same_transitions(other, expected)
        assert_same(other.weight, expected.weight)
    assert buffer[int(index[0])].weight == 1.0
    buffer.init_weight(index[:3])
    np.testing.assert_array_equal(leaves(buffer)[index[:3]], leaves(buffer).max())


def test_samples_follow_a_seed_or_numpys_global_one():
    def samples(global_seed, **options):
        np.random.seed(global_seed)
        buffer = CompactPrioritizedVectorReplayBuffer(64, 1, **PRIORITIES, **options)
        for time in range(64):
            buffer.add(step(time, time + 1))
        return buffer.sample_indices(20).tolist()

    assert samples(0) == samples(0) != samples(1)
    assert samples(0, random_seed=3) == samples(1, random_seed=3) != samples(0, random_seed=4)


@pytest.mark.parametrize("name", ["alpha", "beta"])
@pytest.mark.parametrize("value", [-0.1, np.nan, np.inf])
def test_wrong_exponents_are_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"{name}={value} must be a number"):
        CompactPrioritizedVectorReplayBuffer(8, 1, **(PRIORITIES | {name: value}))


@pytest.mark.parametrize("alpha", [0.6, 1])
def test_a_file_restores_priorities_and_future(tmp_path, alpha):
    game = Game(size=100, envs=2, steps=200, kind=floats)
    options = {"alpha": alpha, "beta": 0.4, "weight_norm": False, "random_seed": 5}
    buffer = game.make(CompactPrioritizedVectorReplayBuffer, **options)
    play = Play(game, buffer)
    play.run()
    buffer.set_beta(0.7)
    # Of float32, in which Tianshou then keeps the highest and lowest.
    index = buffer.sample_indices(20)
    buffer.update_weight(index, np.linspace(0.1, 3, 20, dtype=np.float32))
    buffer.save(tmp_path / "replay")
    loaded = CompactPrioritizedVectorReplayBuffer.load(tmp_path / "replay")
    copied = pickle.loads(pickle.dumps(buffer))  # noqa: S301 (our own bytes)
    assert loaded.nbytes == buffer.nbytes
    assert_same(loaded[:].weight, buffer[:].weight)
    play.buffers = (buffer, loaded, copied)
    for _ in range(30):
        play.step()
        samples = [one.sample(16) for one in (buffer, loaded, copied)]
        for (batch, index), one in zip(samples, (buffer, loaded, copied), strict=True):
            np.testing.assert_array_equal(index, samples[0][1])
            assert_same_transitions(batch, samples[0][0])
            assert_same(batch.weight, samples[0][0].weight)
            one.update_weight(index, np.linspace(0.01, 5, 16, dtype=np.float32))
        assert_same(loaded.weight._value, buffer.weight._value)


def test_an_empty_buffer_is_restored(tmp_path):
    buffer = CompactPrioritizedVectorReplayBuffer(9, 3, **PRIORITIES)
    buffer.save(tmp_path / "replay")
    loaded = CompactPrioritizedVectorReplayBuffer.load(tmp_path / "replay")
    assert (len(loaded), loaded.weight.reduce()) == (0, 0.0)


def test_files_with_and_without_priorities_are_not_taken_for_each_other(tmp_path):
    for buffer_class, options, other in (
        (CompactVectorReplayBuffer, {}, CompactPrioritizedVectorReplayBuffer),
        (CompactPrioritizedVectorReplayBuffer, PRIORITIES, CompactVectorReplayBuffer),
    ):
        buffer_class(9, 3, **options).save(tmp_path / "replay")
        with pytest.raises(ReplayFileError, match=r"replay: not a (prioritized )?replay buffer"):
            other.load(tmp_path / "replay")


WRONG = {
    "_alpha": [np.asarray(0.0), np.asarray(np.nan), np.ones(2), 0.6, None],
    "_beta": [np.asarray(-1.0), np.asarray(True)],
    "_max_prio": [np.asarray(np.inf), np.ones(3), "1"],
    "_min_prio": [np.asarray(1j), np.asarray(0.0)],
    "weights": [
        np.ones(3), np.full(50, np.nan), np.full(50, -1.0), np.ones((50, 1)), 1.0, np.zeros(50),
        np.full(50, 1e308),
    ],
}  # fmt: skip


def save_changed(path, change):
    """Save a buffer of 50 transitions with other priorities, and the right digest."""
    game = Game(size=50, steps=60, break_chance=0.0, frames_per_block=16)
    buffer = game.make(CompactPrioritizedVectorReplayBuffer, **PRIORITIES)
    Play(game, buffer).run()
    buffer.save(path)
    with path.open("rb") as file:
        container = Container(file, FORMAT)
        container.finish()
        transitions = file.read()
    change(container.content)
    with path.open("wb") as file:
        write_container(file, FORMAT, container.content)
        file.write(transitions)


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in WRONG.items() for v in values])
def test_wrong_priorities_in_a_file_are_the_documented_error(tmp_path, name, value):
    save_changed(tmp_path / "replay", lambda content: content.update({name: value}))
    with pytest.raises(ReplayFileError, match=r"not a valid (prioritized )?replay buffer"):
        CompactPrioritizedVectorReplayBuffer.load(tmp_path / "replay")


@pytest.mark.parametrize("name", [*WRONG, "weight_norm"])
def test_missing_priorities_in_a_file_are_the_documented_error(tmp_path, name):
    save_changed(tmp_path / "replay", lambda content: content.pop(name))
    with pytest.raises(ReplayFileError, match=r"not a valid (prioritized )?replay buffer"):
        CompactPrioritizedVectorReplayBuffer.load(tmp_path / "replay")


def test_any_damage_to_a_file_is_the_documented_error(tmp_path):
    path = tmp_path / "replay"
    save_changed(path, lambda content: None)
    assert len(CompactPrioritizedVectorReplayBuffer.load(path)) == 50
    data = path.read_bytes()
    for place in np.random.default_rng(0).integers(len(data), size=100):
        path.write_bytes(data[:place])
        with pytest.raises(ReplayFileError):
            CompactPrioritizedVectorReplayBuffer.load(path)
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(ReplayFileError):
            CompactPrioritizedVectorReplayBuffer.load(path)

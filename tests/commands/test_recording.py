"""Recordings: a GIF stores what changes, and every frame looks as it was drawn."""

import numpy as np
import pytest
from PIL import Image

from medqn_tianshou.commands.play import write_gif


def moving_squares(count):
    generator = np.random.default_rng(0)
    ground = generator.integers(0, 256, (60, 80, 1), np.uint8).repeat(3, 2) // 32 * 32
    for step in range(count):
        frame = ground.copy()
        frame[10:20, 4 * step : 4 * step + 10] = (255, 160, 0)
        frame[40:44, 70 - 2 * step : 74 - 2 * step] = (40, 80 * (step % 3), 200)
        yield Image.fromarray(frame)


def test_every_frame_is_shown_as_it_was_drawn(tmp_path):
    path, drawn = tmp_path / "a.gif", list(moving_squares(12))
    assert write_gif(path, iter(drawn), 10) == 12
    recording = Image.open(path)
    assert recording.n_frames == 12
    for number, picture in enumerate(drawn):
        recording.seek(number)
        shown = np.asarray(recording.convert("RGB")).astype(int)
        assert np.abs(shown - np.asarray(picture)).max() <= 16  # of 256 colours
        assert recording.info["duration"] == pytest.approx(100)


def test_what_does_not_change_takes_no_space(tmp_path):
    one, twelve = tmp_path / "one.gif", tmp_path / "twelve.gif"
    write_gif(one, moving_squares(1), 10)
    write_gif(twelve, moving_squares(12), 10)
    assert twelve.stat().st_size < 4 * one.stat().st_size

"""Compare ways to compress blocks of frames: zstandard or blosc2, differences or changes, lengths.

The frames are play of a random agent in the paper's five games. The table shows the bytes per
frame, and the microseconds to encode a frame and to decode a whole block. Its rows of blosc2 need
the package blosc2.

  python -m benchmarks.memory.compression --frames 20000
"""

import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from medqn_tianshou.commands.parsing import Parser, number
from medqn_tianshou.envs.atari import make_atari_envs
from medqn_tianshou.replay.codecs import ChangeCodec

GAMES = ("Qbert", "Phoenix", "BattleZone", "DoubleDunk", "NameThisGame")
CELLS = 84 * 84
Frames = NDArray[np.uint8]
Coder = tuple[Callable[[Frames], bytes], Callable[[bytes], Any]]


def record(game: str, count: int, seed: int = 0) -> Frames:
    """Record the frames that a random agent sees."""
    rng = np.random.default_rng(seed)
    envs = make_atari_envs(task=f"{game}NoFrameskip-v4", num_envs=1, seed=seed, training=True)
    obs, _ = envs.reset()
    frames = np.empty((count, CELLS), np.uint8)
    for frame in frames:
        frame[:] = obs[0, -1].reshape(-1)
        step: Any = envs.step(np.array([rng.integers(envs.action_space[0].n)]))
        obs, _, terminated, truncated, _ = step
        if terminated[0] or truncated[0]:
            obs, _ = envs.reset()
    return frames


def differences(frames: Frames) -> Frames:
    """Return the first frame, and the XOR of each other frame with the one before it."""
    result = frames.copy()
    result[1:] ^= frames[:-1]
    return result


def coders(block_len: int) -> dict[str, Coder]:
    """Ways to encode a block, and to decode all of it to frames or their differences."""
    decompress = zstandard.ZstdDecompressor().decompress
    codec = ChangeCodec(CELLS)
    rows = np.arange(block_len)
    out = np.empty((block_len, CELLS), np.uint8)
    found: dict[str, Coder] = {}
    for level in (1, 3):
        compress = zstandard.ZstdCompressor(level=level).compress
        found[f"XOR, zstandard {level}"] = partial(_encode_differences, compress), decompress
    try:
        import blosc2
    except ImportError:
        print("blosc2 is not installed; its rows are left out", file=sys.stderr)
    else:
        for name in ("ZSTD", "LZ4"):
            options = {"codec": getattr(blosc2.Codec, name), "clevel": 1, "typesize": 1}
            options |= {"filters": [blosc2.Filter.NOFILTER], "nthreads": 1}
            found[f"XOR, blosc2 {name} 1"] = (
                partial(_encode_differences, partial(blosc2.compress2, **options)),
                partial(blosc2.decompress2, nthreads=1),
            )
    found["changes, zstandard 3 (ours)"] = (
        codec.encode,
        lambda block: codec.decode(block, block_len, rows, rows, out),
    )
    return found


def _encode_differences(compress: Callable[[Any], bytes], frames: Frames) -> bytes:
    return compress(differences(frames))


def measure(coder: Coder, frames: Frames, block_len: int) -> tuple[float, float, float]:
    """Bytes per frame, microseconds per frame to encode, and per block to decode."""
    encode, decode = coder
    size = 0
    seconds = {encode: 0.0, decode: 0.0}
    blocks = len(frames) // block_len
    for start in range(0, blocks * block_len, block_len):
        began = time.perf_counter()
        block = encode(frames[start : start + block_len])
        seconds[encode] += time.perf_counter() - began
        began = time.perf_counter()
        decode(block)
        seconds[decode] += time.perf_counter() - began
        size += len(block)
    encoded = blocks * block_len
    return size / encoded, 1e6 * seconds[encode] / encoded, 1e6 * seconds[decode] / blocks


def make_parser() -> Parser:
    """Build the command line."""
    parser = Parser(prog="python -m benchmarks.memory.compression", description=__doc__)
    parser.add_argument(
        "--frames",
        type=number(int, at_least=64),
        default=10_000,
        help="frames per game (default: 10000)",
    )
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    args = make_parser().parse_args(arguments)
    plays = {game: record(game, args.frames) for game in GAMES}
    print("| frames per block | how | " + " | ".join(GAMES) + " | mean | encode | decode |")
    print("|" + "---|" * (len(GAMES) + 5))
    for block_len in (16, 24, 32):
        for name, coder in coders(block_len).items():
            coder[0](plays["Qbert"][:block_len])  # compiles
            figures = np.array([measure(coder, play, block_len) for play in plays.values()])
            sizes = " | ".join(f"{size:.0f}" for size in figures[:, 0])
            means = figures.mean(axis=0)
            print(
                f"| {block_len} | {name} | {sizes} | **{means[0]:.0f}** | {means[1]:.1f} us "
                f"| {means[2]:.0f} us |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())

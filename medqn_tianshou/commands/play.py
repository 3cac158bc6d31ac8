"""Watch or record a trained policy, with its Q values and its score.

Examples:
  %(prog)s log/MountainCar-v0/medqn-u/0/20260101-120000
  %(prog)s log/QbertNoFrameskip-v4/medqn-r/0/20260101-120000 --video qbert.gif
  %(prog)s log/breakout/medqn-u/0/20260101-120000 --video breakout.mp4 --episodes 3

"""

import argparse
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.error import DependencyNotInstalled
from PIL import Image

from medqn_tianshou.commands.agent import Agent
from medqn_tianshou.commands.drawing import FramePainter
from medqn_tianshou.commands.evaluate import add_agent_arguments, load_agent
from medqn_tianshou.commands.parsing import Parser, number
from medqn_tianshou.files.extras import install_command

EXTRA = install_command("play")
_UNCHANGED = 255
"""The last entry of a GIF's palette."""
FRAMES_PER_SECOND = {"atari": 15, "minatar": 10, "lowdim": 30, "gym": 30}
"""Real time: Atari steps are 4 of 60 frames per second."""


def make_parser(prog: str | None = None) -> Parser:
    """Build the command line."""
    parser = Parser(prog=prog, description=__doc__)
    add_agent_arguments(parser)
    count = number(int, at_least=1)
    parser.add_argument("--video", type=Path, help="record to this file, .gif or .mp4")
    parser.add_argument("--episodes", type=count, default=1, help="number of episodes (default: 1)")
    parser.add_argument(
        "--max-steps", type=count, default=1000, help="maximum number of frames (default: 1000)"
    )
    parser.add_argument("--fps", type=count, help="frames per second (default: real time)")
    return parser


def frames(agent: Agent, episodes: int, scores: list[float]) -> Iterator[Image.Image]:
    """Play and draw, a frame per step; ``scores`` is updated with the score of each episode."""
    painter = FramePainter(agent)
    for _ in range(episodes):
        scores.append(0.0)
        for moment in agent.play():
            scores[-1] = moment.score
            yield painter.frame(moment)


def write_gif(path: Path, pictures: Iterator[Image.Image], fps: int) -> int:
    """Write a GIF that repeats, of at least one frame; return the number of frames."""
    first, *others = _changes(pictures)
    first.save(path, save_all=True, append_images=others, duration=1000 // fps, loop=0, disposal=1)
    return 1 + len(others)


def _changes(pictures: Iterator[Image.Image]) -> Iterator[Image.Image]:
    """Make the pixels transparent that are as in the frame before: the file is half as large."""
    before: Any = None
    for picture in pictures:
        frame = picture.quantize(_UNCHANGED, method=Image.Quantize.FASTOCTREE)
        now = np.asarray(picture)
        if before is not None:
            indices = np.where((now == before).all(2), _UNCHANGED, np.asarray(frame))
            palette: Any = frame.getpalette()
            frame = Image.fromarray(indices.astype(np.uint8))
            frame.putpalette(palette)
            frame.info["transparency"] = _UNCHANGED
        before = now
        yield frame


def write_mp4(path: Path, pictures: Iterator[Image.Image], fps: int) -> int:
    """Write an MP4 that browsers play (H.264); return the number of frames."""
    from imageio import v2

    count = 0
    writer: Any = v2.get_writer(
        path,
        format="FFMPEG",
        fps=fps,
        codec="libx264",
        macro_block_size=2,  # H.264 needs even sizes
        output_params=["-movflags", "+faststart"],  # plays before it is loaded
    )
    with writer:
        for picture in pictures:
            writer.append_data(np.asarray(picture))
            count += 1
    return count


def show(title: str, pictures: Iterator[Image.Image], fps: int) -> int:
    """Show the frames in a window until they end or a key is pressed; return their number."""
    import pygame

    clock = pygame.time.Clock()
    count = 0
    pygame.display.init()
    pygame.display.set_caption(title)
    for picture in pictures:
        window = pygame.display.get_surface() or pygame.display.set_mode(picture.size)
        window.blit(pygame.image.frombytes(picture.tobytes(), picture.size, "RGB"), (0, 0))
        pygame.display.flip()
        count += 1
        if any(event.type in (pygame.QUIT, pygame.KEYDOWN) for event in pygame.event.get()):
            break
        clock.tick(fps)
    pygame.display.quit()
    return count


def main(arguments: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = make_parser(prog)
    args = parser.parse_args(arguments)
    _check_output(parser, args)
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    if args.video is not None:  # Gymnasium's pictures need no display and no sound
        os.environ |= {"SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}
    agent = load_agent(parser, args.policy, seed=args.seed, eps=args.eps, renders=True)
    fps = args.fps or FRAMES_PER_SECOND[agent.family]
    scores: list[float] = []
    pictures = islice(frames(agent, args.episodes, scores), args.max_steps)
    try:
        if args.video is None:
            count = show(f"{agent.algo} on {agent.task}", pictures, fps)
        else:
            write = write_gif if args.video.suffix == ".gif" else write_mp4
            count = write(args.video, pictures, fps)
    except DependencyNotInstalled as error:
        parser.error(
            f"argument RUN_OR_POLICY: {agent.task} is drawn by Gymnasium ({error}); {EXTRA}"
        )
    except OSError as error:
        parser.bad("--video", args.video, f"cannot be written ({error.strerror or error})")
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    cut = ", truncated by --max-steps" if count == args.max_steps else ""
    print(f"{agent.file}: score {' '.join(f'{score:g}' for score in scores)}, {count} steps{cut}")
    if args.video is not None:
        print(f"video: {args.video}")
    return 0


def _check_output(parser: Parser, args: argparse.Namespace) -> None:
    """Report an output that cannot be, before anything is played."""
    if args.video is None:
        on_linux = platform.system() == "Linux"  # elsewhere there always is a display
        if on_linux and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
            parser.error("argument --video: there is no display here; record with --video out.gif")
        needs = ["pygame"]
    else:
        needs = ["imageio", "imageio_ffmpeg"] if args.video.suffix == ".mp4" else []
        if args.video.suffix not in (".gif", ".mp4"):
            parser.bad("--video", args.video, "is neither a .gif nor an .mp4; rename it")
        if not args.video.parent.is_dir():
            parser.bad("--video", args.video, "is in a folder that does not exist; make it first")
    if missing := [name for name in needs if find_spec(name) is None]:
        remedy = f"{EXTRA}, or record with --video out.gif"
        parser.error(f"argument --video: windows and .mp4 need {' and '.join(missing)}; {remedy}")

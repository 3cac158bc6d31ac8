"""Watch a trained policy, or record it, with its Q values and the score beside the picture.

Examples:
  %(prog)s log/MountainCar-v0/medqn-u/0/20260101-120000
  %(prog)s log/QbertNoFrameskip-v4/medqn-real/0/20260101-120000 --video qbert.gif
  %(prog)s log/breakout/medqn-u/0/20260101-120000 --video breakout.mp4 --episodes 3

"""

import argparse
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from medqn_tianshou.commands.agent import Agent
from medqn_tianshou.commands.drawing import FramePainter
from medqn_tianshou.commands.evaluate import add_agent_arguments, load_agent
from medqn_tianshou.commands.parsing import Parser, number

FRAMES_PER_SECOND = {"atari": 15, "minatar": 10, "lowdim": 30}
"""Real time: Atari steps are 4 of 60 frames per second."""


def make_parser(prog: str | None = None) -> Parser:
    """Build the command line.

    :param prog: the command that the user typed.
    """
    parser = Parser(prog=prog, description=__doc__)
    add_agent_arguments(parser)
    count = number(int, at_least=1)
    parser.add_argument("--video", type=Path, help="record to this file, .gif or .mp4")
    parser.add_argument("--episodes", type=count, default=1, help="how many (default: 1)")
    parser.add_argument(
        "--max-steps", type=count, default=1000, help="stop after so many frames (default: 1000)"
    )
    parser.add_argument("--fps", type=count, help="frames per second (default: real time)")
    return parser


def frames(agent: Agent, episodes: int, scores: list[float]) -> Iterator[Image.Image]:
    """Play and draw, a frame per step.

    :param agent: who plays.
    :param episodes: how many to play.
    :param scores: the score of each episode so far; kept up to date.
    """
    painter = FramePainter(agent)
    for _ in range(episodes):
        scores.append(0.0)
        for moment in agent.play():
            scores[-1] = moment.score
            yield painter.frame(moment)


def write_gif(path: Path, pictures: Iterator[Image.Image], fps: int) -> int:
    """Write a GIF that repeats; return the number of frames.

    :param path: the file.
    :param pictures: the frames, at least one.
    :param fps: frames per second; a GIF knows hundredths of a second.
    """
    first, *others = (picture.quantize(method=Image.Quantize.FASTOCTREE) for picture in pictures)
    first.save(path, save_all=True, append_images=others, duration=1000 // fps, loop=0)
    return 1 + len(others)


def write_mp4(path: Path, pictures: Iterator[Image.Image], fps: int) -> int:
    """Write an MP4; return the number of frames.

    :param path: the file.
    :param pictures: the frames, at least one.
    :param fps: frames per second.
    """
    import cv2

    writer: Any = None
    count = 0
    for picture in pictures:
        if writer is None:
            codec = cv2.VideoWriter.fourcc(*"mp4v")
            writer = cv2.VideoWriter(str(path), codec, fps, picture.size)
            if not writer.isOpened():
                raise OSError("OpenCV has no MPEG-4 encoder here; record a .gif")
        writer.write(np.asarray(picture)[:, :, ::-1])
        count += 1
    writer.release()
    return count


def show(title: str, pictures: Iterator[Image.Image], fps: int) -> int:
    """Show the frames in a window until they end or a key is pressed; return their number.

    :param title: of the window.
    :param pictures: the frames.
    :param fps: frames per second.
    """
    import cv2

    count = 0
    for picture in pictures:
        cv2.imshow(title, np.asarray(picture)[:, :, ::-1])
        count += 1
        if cv2.waitKey(1000 // fps) != -1:
            break
    cv2.destroyAllWindows()
    return count


def main(arguments: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Run the command line; return the exit code.

    :param arguments: the command line; None takes the process's.
    :param prog: the command that the user typed.
    """
    parser = make_parser(prog)
    args = parser.parse_args(arguments)
    _check_output(parser, args)
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
    except OSError as error:
        parser.bad("--video", args.video, f"cannot be written ({error.strerror or error})")
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return 130
    cut = ", cut by --max-steps" if count == args.max_steps else ""
    print(f"{agent.file}: score {' '.join(f'{score:g}' for score in scores)}, {count} steps{cut}")
    if args.video is not None:
        print(f"video: {args.video}")
    return 0


def _check_output(parser: Parser, args: argparse.Namespace) -> None:
    """Report an output that cannot be, before anything is played."""
    if args.video is not None and args.video.suffix not in (".gif", ".mp4"):
        parser.bad("--video", args.video, "is neither a .gif nor an .mp4; give it such an ending")
    if args.video is not None and not args.video.parent.is_dir():
        parser.bad("--video", args.video, "is in a folder that does not exist; make it first")
    if args.video is None and not _has_display():
        parser.error("argument --video: there is no display here; record with --video out.gif")
    if args.video is None or args.video.suffix == ".mp4":
        try:
            import cv2  # noqa: F401
        except ImportError:
            parser.error(
                "argument --video: windows and .mp4 need OpenCV; pip install "
                "'medqn-tianshou[atari]', or record with --video out.gif"
            )


def _has_display() -> bool:
    on_linux = platform.system() == "Linux"  # elsewhere there always is one
    return not on_linux or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))

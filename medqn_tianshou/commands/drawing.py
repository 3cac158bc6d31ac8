"""Frames of an agent at play: the environment's picture, and beside it what the agent thinks."""

from collections import deque
from math import cos, sin

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from medqn_tianshou.commands.agent import Agent, Moment

HEIGHT, PANEL_WIDTH, MARGIN = 400, 300, 20
MAX_PICTURE_WIDTH = 480
BACKGROUND, PICTURE_BACKGROUND = (18, 20, 26), (28, 31, 40)
TEXT, DIM, BAR, CHOSEN, LINE = (
    (236, 238, 243),
    (138, 145, 160),
    (70, 80, 104),
    (255, 163, 67),
    (94, 178, 255),
)
HISTORY = 150
"""How many of the last values the curve shows."""


class FramePainter:
    """Draws the moments of episodes as frames of one size.

    :param agent: who plays.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._names = agent.action_names
        self._values: deque[float] = deque(maxlen=HISTORY)
        self._big, self._normal, self._small = map(ImageFont.load_default, (30, 15, 12))

    def frame(self, moment: Moment) -> Image.Image:
        """Draw a moment; those of an episode in their order.

        :param moment: the moment.
        """
        if moment.step == 0:
            self._values.clear()
        self._values.append(float(moment.q_A.max()))
        picture = self._picture(moment)
        frame = Image.new(
            "RGB", (picture.width + PANEL_WIDTH + 3 * MARGIN, HEIGHT + 2 * MARGIN), BACKGROUND
        )
        frame.paste(picture, (MARGIN, MARGIN))
        self._draw_panel(ImageDraw.Draw(frame), picture.width + 2 * MARGIN, moment)
        return frame

    def _picture(self, moment: Moment) -> Image.Image:
        if moment.picture is None:
            return draw_low_dimensional(self._agent.task, moment)
        picture = Image.fromarray(moment.picture)
        if picture.size == (160, 210):  # an Atari screen, whose pixels are wider than high
            return picture.resize((HEIGHT * 4 // 5, HEIGHT), Image.Resampling.LANCZOS)
        scale = min(HEIGHT / picture.height, MAX_PICTURE_WIDTH / picture.width)
        size = (round(picture.width * scale), round(picture.height * scale))
        return picture.resize(size, Image.Resampling.NEAREST)

    def _draw_panel(self, draw: ImageDraw.ImageDraw, left: int, moment: Moment) -> None:
        right, bottom = left + PANEL_WIDTH, MARGIN + HEIGHT
        task = self._agent.task.removesuffix("NoFrameskip-v4")
        draw.text((left, MARGIN), f"{task}  ·  {self._agent.algo}", TEXT, self._normal)
        draw.text((left, MARGIN + 24), f"{moment.score:g}", TEXT, self._big)
        step = f"score after step {moment.step + 1}"  # that of the action shown included
        draw.text((right, MARGIN + 38), step, DIM, self._small, anchor="ra")
        self._draw_q_values(draw, left, MARGIN + 76, right, bottom - 90, moment)
        self._draw_history(draw, left, bottom - 62, right, bottom)

    def _draw_q_values(
        self,
        draw: ImageDraw.ImageDraw,
        left: int,
        top: int,
        right: int,
        bottom: int,
        moment: Moment,
    ) -> None:
        """Draw a bar per action, from the lowest to the highest value of this state."""
        row = min((bottom - top) / len(self._names), 34.0)
        font = self._small if row >= 13 else ImageFont.load_default(max(row - 1, 6))
        bars, ends = left + 92, right - 64
        lowest, highest = float(moment.q_A.min()), float(moment.q_A.max())
        spread = max(highest - lowest, 1e-9)
        for index, (name, value) in enumerate(zip(self._names, moment.q_A.tolist(), strict=True)):
            is_chosen = index == moment.action
            middle = top + (index + 0.5) * row
            colour = CHOSEN if is_chosen else DIM
            draw.text((left, middle), name, colour, font, anchor="lm")
            length = 3 + (ends - bars - 3) * (value - lowest) / spread
            half = max(row * 0.3, 1)
            box = (bars, middle - half, bars + length, middle + half)
            draw.rounded_rectangle(box, half / 2, CHOSEN if is_chosen else BAR)
            draw.text((right, middle), f"{value:.3g}", colour, font, anchor="rm")

    def _draw_history(
        self, draw: ImageDraw.ImageDraw, left: int, top: int, right: int, bottom: int
    ) -> None:
        """Draw the value of the best action over the last steps."""
        draw.text((left, top - 18), "highest Q value", DIM, self._small)
        draw.text((right, top - 18), f"{self._values[-1]:.3f}", LINE, self._small, anchor="ra")
        draw.rectangle((left, top, right, bottom), PICTURE_BACKGROUND)
        lowest, highest = min(self._values), max(self._values)
        spread = max(highest - lowest, 1e-9)
        points = [
            (
                left + 4 + (right - left - 8) * index / (HISTORY - 1),
                bottom - 6 - (bottom - top - 12) * (value - lowest) / spread,
            )
            for index, value in enumerate(self._values)
        ]
        if len(points) > 1:
            draw.line(points, LINE, 2, joint="curve")


def draw_low_dimensional(task: str, moment: Moment) -> Image.Image:
    """Draw a task of Gymnasium's, which would need pygame to draw itself.

    :param task: ``"MountainCar-v0"``, ``"Acrobot-v1"``; any other is shown as its numbers.
    :param moment: the moment.
    """
    scale = 3  # drawn larger and made smaller: smooth edges
    size = (MAX_PICTURE_WIDTH, HEIGHT)
    picture = Image.new("RGB", (size[0] * scale, size[1] * scale), PICTURE_BACKGROUND)
    draw = ImageDraw.Draw(picture)
    state = moment.observation.astype(float)
    if task == "MountainCar-v0":
        _draw_mountain_car(draw, picture.size, state)
    elif task == "Acrobot-v1":
        _draw_acrobot(draw, picture.size, state)
    else:
        text = "\n".join(f"{value:.3f}" for value in state.flatten())
        draw.multiline_text((60, 60), text, TEXT, ImageFont.load_default(48))
    return picture.resize(size, Image.Resampling.LANCZOS)


def _draw_mountain_car(
    draw: ImageDraw.ImageDraw, size: tuple[int, int], state: NDArray[np.float64]
) -> None:
    """Draw the valley sin(3x), the flag at 0.5 and the car."""
    width, height = size

    def place(x: float) -> tuple[float, float]:
        return (x + 1.2) / 1.8 * width, height * (0.80 - 0.28 * (sin(3 * x) + 1))

    hills = [place(x) for x in np.linspace(-1.2, 0.6, 200)]
    draw.polygon([*hills, (width, height), (0, height)], (48, 54, 68))
    draw.line(hills, (110, 120, 140), 6, joint="curve")
    flag_x, flag_y = place(0.5)
    draw.line((flag_x, flag_y, flag_x, flag_y - 150), TEXT, 6)
    draw.polygon(
        [(flag_x, flag_y - 150), (flag_x + 75, flag_y - 122), (flag_x, flag_y - 94)], CHOSEN
    )
    x, y = place(float(state[0]))
    x_ahead, y_ahead = place(float(state[0]) + 1e-3)
    length = ((x_ahead - x) ** 2 + (y_ahead - y) ** 2) ** 0.5
    along = np.array([(x_ahead - x) / length, (y_ahead - y) / length])
    up = np.array([along[1], -along[0]])
    base = np.array([x, y]) + 24 * up
    corners = [(-66, 0), (66, 0), (60, 36), (30, 40), (18, 66), (-30, 66), (-42, 40), (-66, 36)]
    draw.polygon([tuple(base + a * along + b * up) for a, b in corners], LINE)
    for offset in (-38, 38):
        wheel = base + offset * along
        draw.circle(tuple(wheel), 22, BACKGROUND, DIM, 6)


def _draw_acrobot(
    draw: ImageDraw.ImageDraw, size: tuple[int, int], state: NDArray[np.float64]
) -> None:
    """Draw the two links, hanging down at angle 0, and the height to reach."""
    width, height = size
    first = float(np.arctan2(state[1], state[0]))
    second = first + float(np.arctan2(state[3], state[2]))
    link = height * 0.22
    top = (width / 2, height * 0.5)
    joint = (top[0] + link * sin(first), top[1] + link * cos(first))
    tip = (joint[0] + link * sin(second), joint[1] + link * cos(second))
    for start in range(0, width, 48):
        draw.line((start, top[1] - link, start + 24, top[1] - link), CHOSEN, 6)
    for one, other, colour in ((top, joint, LINE), (joint, tip, (140, 205, 255))):
        draw.line((*one, *other), colour, 36)
        for end in (one, other):
            draw.circle(end, 18, colour)
    for pivot in (top, joint):
        draw.circle(pivot, 9, BACKGROUND)

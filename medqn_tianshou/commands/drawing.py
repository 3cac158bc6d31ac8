"""Video frames: the environment's picture next to the agent's Q values."""

from collections import deque

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from medqn_tianshou.commands.agent import Agent, Moment

HEIGHT, PANEL_WIDTH, MARGIN = 400, 300, 20
MAX_PICTURE_WIDTH = 480
BACKGROUND, PICTURE_BACKGROUND = (18, 20, 26), (28, 31, 40)
TEXT, DIM, BAR = (236, 238, 243), (138, 145, 160), (70, 80, 104)
CHOSEN, LINE = (255, 163, 67), (94, 178, 255)
Box = tuple[int, int, int, int]
HISTORY = 150
"""How many of the last values the curve shows."""


class FramePainter:
    """Draws the moments of an agent's episodes as frames of one size."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._names = agent.action_names
        self._values: deque[float] = deque(maxlen=HISTORY)
        self._big, self._normal, self._small = map(ImageFont.load_default, (30, 15, 12))

    def frame(self, moment: Moment) -> Image.Image:
        """Draw a moment, which follows the one drawn before in its episode."""
        if moment.step == 0:
            self._values.clear()
        self._values.append(float(moment.q_A.max()))
        picture = self._picture(moment)
        frame = Image.new(
            "RGB", (picture.width + PANEL_WIDTH + 3 * MARGIN, HEIGHT + 2 * MARGIN), BACKGROUND
        )
        frame.paste(picture, (MARGIN, MARGIN + (HEIGHT - picture.height) // 2))
        self._draw_panel(ImageDraw.Draw(frame), picture.width + 2 * MARGIN, moment)
        return frame

    def _picture(self, moment: Moment) -> Image.Image:
        picture = Image.fromarray(np.asarray(moment.picture))
        if picture.size == (160, 210):  # an Atari screen, whose pixels are wider than high
            return picture.resize((HEIGHT * 4 // 5, HEIGHT), Image.Resampling.LANCZOS)
        scale = min(HEIGHT / picture.height, MAX_PICTURE_WIDTH / picture.width)
        size = (round(picture.width * scale), round(picture.height * scale))
        keep_pixels = Image.Resampling.NEAREST
        return picture.resize(size, keep_pixels if scale > 1 else Image.Resampling.LANCZOS)

    def _draw_panel(self, draw: ImageDraw.ImageDraw, left: int, moment: Moment) -> None:
        right, bottom = left + PANEL_WIDTH, MARGIN + HEIGHT
        task = self._agent.task.removesuffix("NoFrameskip-v4")
        draw.text((left, MARGIN), f"{task}  ·  {self._agent.algo}", TEXT, self._normal)
        draw.text((left, MARGIN + 24), f"{moment.score:g}", TEXT, self._big)
        step = f"score after step {moment.step + 1}"  # that of the action shown included
        draw.text((right, MARGIN + 38), step, DIM, self._small, anchor="ra")
        self._draw_q_values(draw, (left, MARGIN + 94, right, bottom - 90), moment)
        self._draw_history(draw, (left, bottom - 62, right, bottom))

    def _draw_q_values(self, draw: ImageDraw.ImageDraw, place: Box, moment: Moment) -> None:
        """Draw a bar per action, from the lowest to the highest value of this state."""
        left, top, right, bottom = place
        row = min((bottom - top) / len(self._names), 34.0)
        font = self._small if row >= 13 else ImageFont.load_default(max(row - 1, 6))
        bars, ends = left + 92, right - 64
        lowest, highest = float(moment.q_A.min()), float(moment.q_A.max())
        spread = max(highest - lowest, 1e-9)
        scale = f"Q values; bars from {lowest:.3g} to {highest:.3g}"
        draw.text((left, top - 18), scale, DIM, self._small)
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

    def _draw_history(self, draw: ImageDraw.ImageDraw, place: Box) -> None:
        """Draw the value of the best action over the last steps."""
        left, top, right, bottom = place
        lowest, highest = min(self._values), max(self._values)
        scale = f"highest Q value; curve from {lowest:.3g} to {highest:.3g}"
        draw.text((left, top - 18), scale, DIM, self._small)
        draw.text((right, top - 18), f"{self._values[-1]:.3f}", LINE, self._small, anchor="ra")
        draw.rectangle((left, top, right, bottom), PICTURE_BACKGROUND)
        spread = max(highest - lowest, 1e-9)
        xs = np.linspace(left + 4, right - 4, HISTORY)
        ys = bottom - 6 - (bottom - top - 12) * (np.array(self._values) - lowest) / spread
        points = list(zip(xs.tolist(), ys.tolist(), strict=False))
        if len(points) > 1:
            draw.line(points, LINE, 2, joint="curve")

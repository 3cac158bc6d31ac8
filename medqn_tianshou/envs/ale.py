"""Atari games on ale-py and OpenCV, with exactly the frames of EnvPool.

:func:`medqn_tianshou.envs.atari.make_atari_envs` builds them.
"""

from typing import Any

import ale_py
import cv2
import gymnasium as gym
import numpy as np
from ale_py import roms
from numpy.typing import NDArray

from medqn_tianshou.envs.game import set_fields
from medqn_tianshou.envs.state import env_state, set_env_state
from medqn_tianshou.files.container import UNSOUND

FRAME_SKIP = 4
FRAME_SIZE = 84
SCREEN_ROWS = 210  # a dozen games have up to 250; EnvPool, too, crops them

_SHOWN, _SECOND = range(2)
_SAVED_FIELDS = ("_stack", "_screens", "_lives", "_game_steps", "_has_life_left")

Frames = NDArray[np.uint8]


class AleAtariEnv(gym.Env[Frames, np.int64]):
    """One Atari game as stacks of 84x84 grayscale frames.

    The arguments and the ``info`` are those of :func:`medqn_tianshou.envs.atari.make_atari_envs`.

    :param game: file name of the ROM without its ending, as in ``"name_this_game"``.
    :param seed: seeds the number of no-ops; the games themselves are deterministic.
    """

    metadata = {"render_modes": ["rgb_array", "human"]}  # noqa: RUF012 (declared so by gymnasium)

    def __init__(
        self,
        *,
        game: str,
        seed: int,
        training: bool,
        frames_stack: int,
        noop_max: int,
        max_episode_steps: int,
        render_mode: str | None = None,
    ) -> None:
        rom = roms.get_rom_path(game)
        if rom is None:
            raise ValueError(f"game={game!r} is not a ROM of ale-py")
        render_modes = (None, *self.metadata["render_modes"])
        if render_mode not in render_modes:
            raise ValueError(f"render_mode={render_mode!r} must be one of {render_modes}")
        self.render_mode = render_mode
        # Before the first instance, which would print a banner.
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        self._ale = ale_py.ALEInterface()
        self._ale.setInt("random_seed", seed)
        self._ale.setFloat("repeat_action_probability", 0.0)
        self._ale.setBool("display_screen", render_mode == "human")
        self._ale.loadROM(rom)
        self._actions = self._ale.getMinimalActionSet()
        self.action_names = tuple(action.name.lower() for action in self._actions)
        self._presses_fire = ale_py.Action.FIRE in self._actions
        self._training = training
        self._noop_max = noop_max
        self._max_episode_steps = max_episode_steps

        stack_shape = (frames_stack, FRAME_SIZE, FRAME_SIZE)
        self.observation_space = gym.spaces.Box(0, 255, stack_shape, np.uint8)
        self.action_space = gym.spaces.Discrete(len(self._actions), seed=seed)
        self._stack = np.zeros(stack_shape, np.uint8)
        self._screens = np.zeros((2, *self._ale.getScreenDims()), np.uint8)
        self._lives = 0
        self._game_steps = 0
        self._has_life_left = False  # the episode has ended, the game has not
        self.restore_problem = ""
        """Why the last state could not be restored; empty if it could."""
        super().reset(seed=seed)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Frames, dict[str, Any]]:
        """Start the next episode: after a lost life in the same game, unless a seed is given."""
        super().reset(seed=seed, options=options)
        if not self._has_life_left or seed is not None:
            self._ale.reset_game()
            self._game_steps = 0
        self._has_life_left = False
        for _ in range(self.np_random.integers(1, self._noop_max + 1) - self._presses_fire):
            self._ale.act(ale_py.Action.NOOP)
            if self._ale.game_over():
                self._ale.reset_game()
        if self._presses_fire:
            self._ale.act(ale_py.Action.FIRE)
        self._ale.getScreenGrayscale(self._screens[_SHOWN])
        self._lives = self._ale.lives()
        self._stack = np.full_like(self._stack, self._resized_screen())
        return self._stack, self._info(0.0)

    def step(self, action: int | np.int64) -> tuple[Frames, float, bool, bool, dict[str, Any]]:
        """Repeat an action, an index into the game's minimal action set, for four frames."""
        reward = 0.0
        for frame in range(FRAME_SKIP):
            reward += self._ale.act(self._actions[action])
            if frame >= FRAME_SKIP - 2:
                # The third frame is shown alone if the game ends with it. If the game ends before,
                # the previous picture is shown once more, as by EnvPool.
                second = frame == FRAME_SKIP - 1
                self._ale.getScreenGrayscale(self._screens[_SECOND if second else _SHOWN])
                if second:
                    shown = self._screens[_SHOWN]
                    np.maximum(shown, self._screens[_SECOND], out=shown)
            if self._ale.game_over():
                break
        self._stack = np.concatenate((self._stack[1:], self._resized_screen()[None]))

        lives_before, self._lives = self._lives, self._ale.lives()
        # A few games (Frogger, Mr. Do!) continue at 0 lives, where EnvPool ends no episode.
        lost_life = self._training and 0 < self._lives < lives_before
        game_over = self._ale.game_over()
        self._game_steps += 1
        truncated = self._game_steps >= self._max_episode_steps
        terminated = (lost_life or game_over) and not truncated
        self._has_life_left = terminated and not game_over
        shown_reward = float(np.sign(reward)) if self._training else reward
        return self._stack, shown_reward, terminated, truncated, self._info(reward)

    def render(self) -> Frames | None:  # type: ignore[override]
        """Return the game's picture in colour if ``render_mode`` is ``"rgb_array"``."""
        # In mode "human", ALE itself draws the screen.
        return self._ale.getScreenRGB() if self.render_mode == "rgb_array" else None

    def game_state(self) -> dict[str, Any]:
        """Return everything that later play depends on, except :attr:`np_random`."""
        pickled = self._ale.cloneSystemState().__getstate__()
        emulator = pickled[0] if isinstance(pickled, tuple) else pickled  # bytes since ale-py 0.12
        return {"emulator": emulator, **{name: getattr(self, name) for name in _SAVED_FIELDS}}

    def set_game_state(self, state: dict[str, Any]) -> None:
        """Continue from what :meth:`game_state` returned."""
        fields = dict(state)
        emulator = fields.pop("emulator").tobytes()
        # The state does not cover all of an emulator that has never run a frame.
        self._ale.reset_game()
        self._ale.act(ale_py.Action.NOOP)
        own = self._ale.cloneSystemState().__getstate__()
        length = len(own[0] if isinstance(own, tuple) else own)
        if not length / 2 < len(emulator) < 2 * length:
            raise ValueError(f"{len(emulator)} bytes are not the state of this emulator")
        saved = ale_py.ALEState.__new__(ale_py.ALEState)
        saved.__setstate__((emulator,) if isinstance(own, tuple) else emulator)
        self._ale.restoreSystemState(saved)
        set_fields(self, _SAVED_FIELDS, fields)

    @property
    def saved_state(self) -> dict[str, Any] | None:
        """All that later play depends on, as an attribute: workers pass on no method calls."""
        return env_state(self)

    @saved_state.setter
    def saved_state(self, state: dict[str, Any]) -> None:
        try:
            set_env_state(self, state)
            self.restore_problem = ""
        except UNSOUND as error:  # it would end the worker, and say so nowhere
            self.restore_problem = str(error) or type(error).__name__

    def _resized_screen(self) -> Frames:
        size = (FRAME_SIZE, FRAME_SIZE)
        screen = self._screens[_SHOWN, :SCREEN_ROWS]
        return np.asarray(cv2.resize(screen, size, interpolation=cv2.INTER_AREA), np.uint8)

    def _info(self, reward: float) -> dict[str, Any]:
        return {"lives": self._lives, "reward": reward}

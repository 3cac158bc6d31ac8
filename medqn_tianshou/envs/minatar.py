"""MinAtar's five games as Gymnasium environments, for the paper's experiments.

The rules are those of the MinAtar package, an optional dependency under the GPL. This module adds
what Gymnasium and a convolution expect: channels first, seeding by ``reset(seed=...)``, and frames
rendered without matplotlib.
"""

from typing import Any, Literal, get_args

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from medqn_tianshou.envs.game import Game, set_fields
from medqn_tianshou.envs.registration import EPISODE_LIMITS as EPISODE_LIMITS
from medqn_tianshou.envs.registration import MINATAR_GAMES as MINATAR_GAMES
from medqn_tianshou.envs.registration import check_minatar_game
from medqn_tianshou.files.extras import install_command
from medqn_tianshou.files.generators import generator_state, set_generator_state

SeaquestOxygen = Literal["fixed", "flash"]

ACTION_NAMES = ("no-op", "left", "up", "right", "down", "fire")

CELL_PIXELS = 16
BACKGROUND = (0, 0, 0)
CHANNEL_COLOURS = (
    (255, 255, 255),  # the player, in every game
    (242, 142, 43),
    (225, 87, 89),
    (118, 183, 178),
    (89, 161, 79),
    (237, 201, 72),
    (176, 122, 161),
    (78, 121, 167),
    (255, 157, 167),
    (156, 117, 95),
)

_OXYGEN_CHANNEL = 7  # of Seaquest

# Fields of a MinAtar game that game_state leaves out; the generator is saved separately.
_CONSTANT_FIELDS = {"action_map", "channels", "ramping", "random"}


class MinAtarEnv(Game):
    """A game of MinAtar.

    An observation is a new bool array (channels, 10, 10): channel c marks the cells of the 10x10
    grid that an object of kind c occupies.

    As in MinAtar, a sticky first action of an episode may repeat the last action of the previous
    episode. ``reset(seed=...)`` clears that action, so that the seed and the actions alone
    determine the play. Stepping a finished game changes nothing and returns reward 0.

    :param game: one of :data:`MINATAR_GAMES`.
    :param full_action_set: offer all six actions, as the paper does, or only those that have an
        effect in this game.
    :param sticky_action_prob: the probability that a step repeats the previous action.
    :param difficulty_ramping: make the game harder over time (not in breakout and freeway).
    :param seaquest_oxygen: ``"fixed"`` is the installed MinAtar. ``"flash"`` is Seaquest as MinAtar
        1.0.10, which the paper's experiments used, has it: without oxygen, the game lasts a step
        longer, and in that step shows a bar that is nearly full.
    :param render_mode: ``"rgb_array"`` or None.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012 (as Gymnasium's)

    def __init__(
        self,
        *,
        game: str,
        full_action_set: bool = True,
        sticky_action_prob: float = 0.1,
        difficulty_ramping: bool = True,
        seaquest_oxygen: SeaquestOxygen = "fixed",
        render_mode: str | None = None,
    ) -> None:
        check_minatar_game(game)
        if seaquest_oxygen not in get_args(SeaquestOxygen):
            raise ValueError(
                f"seaquest_oxygen={seaquest_oxygen!r} must be one of {get_args(SeaquestOxygen)}"
            )
        if not 0.0 <= sticky_action_prob <= 1.0:
            raise ValueError(
                f"sticky_action_prob={sticky_action_prob} is a probability: use a value from 0 to 1"
            )
        try:
            from minatar import Environment
        except ImportError as error:
            raise ImportError(
                f"MinAtar is not installed; run: {install_command('minatar')}"
            ) from error

        self._oxygen_flashes = game == "seaquest" and seaquest_oxygen == "flash"
        self._game = Environment(
            game, sticky_action_prob=sticky_action_prob, difficulty_ramping=difficulty_ramping
        )
        self._minatar_actions: list[int] = (
            list(range(self._game.num_actions()))
            if full_action_set
            else self._game.minimal_action_set()
        )
        self.action_names = tuple(ACTION_NAMES[action] for action in self._minatar_actions)
        super().__init__(game, render_mode)
        height, width, channels = self._game.state_shape()
        # Not a Box: Gymnasium's checker takes a Box of this shape for an image of 0 to 255.
        self.observation_space = spaces.MultiBinary((channels, height, width))
        self.observation_space.dtype = np.dtype(np.bool_)  # Gymnasium uses int8
        self._seeded_from: np.random.Generator | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.bool_], dict[str, Any]]:
        """Start a new episode; without a seed, the game's random stream continues."""
        super().reset(seed=seed)
        if self.np_random is not self._seeded_from:  # at the first reset, and with each seed
            self._seeded_from = self.np_random
            self._game.seed(int(self.np_random.integers(2**32)))
            self._game.last_action = 0
        self._game.reset()
        self._started = True
        return self._observation(), {}

    def step(
        self, action: int | np.int64
    ) -> tuple[NDArray[np.bool_], float, bool, bool, dict[str, Any]]:
        """Play one frame with an index into :attr:`action_names`."""
        self._check_action(action)
        act = self._act_with_a_last_breath if self._oxygen_flashes else self._game.act
        reward, terminated = act(self._minatar_actions[int(action)])
        return self._observation(), float(reward), terminated, False, {}

    def _act_with_a_last_breath(self, action: int) -> tuple[float, bool]:
        """Play a frame of Seaquest, which ends when the oxygen is below 0 instead of at 0."""
        seaquest = self._game.env
        out_of_oxygen = seaquest.oxygen == 0
        seaquest.oxygen += out_of_oxygen
        result: tuple[float, bool] = self._game.act(action)
        # Unless the submarine has surfaced and is refilled.
        seaquest.oxygen -= out_of_oxygen and seaquest.oxygen <= 1
        return result

    def _picture(self) -> NDArray[np.uint8]:
        # As in MinAtar, later channels cover earlier ones; but the player, channel 0, is on top.
        observation = self._observation()
        cells = np.full((*observation.shape[1:], 3), BACKGROUND, np.uint8)
        for channel in (*range(1, len(observation)), 0):
            cells[observation[channel]] = CHANNEL_COLOURS[channel]
        return cells.repeat(CELL_PIXELS, axis=0).repeat(CELL_PIXELS, axis=1)

    def game_state(self) -> dict[str, Any]:
        """Return everything that later play depends on, except :attr:`np_random`."""
        return {
            "last_action": self._game.last_action,
            "random": generator_state(self._game.random),
            "fields": {name: getattr(self._game.env, name) for name in self._saved_fields()},
        }

    def set_game_state(self, state: dict[str, Any]) -> None:
        """Continue from what :meth:`game_state` returned, in a game that was reset once."""
        if state["last_action"] not in range(len(ACTION_NAMES)):
            raise ValueError(f"last_action={state['last_action']!r} is not an action")
        set_fields(self._game.env, self._saved_fields(), state["fields"])
        set_generator_state(self._game.random, state["random"])
        self._game.last_action = state["last_action"]
        self.check_playable()

    def _saved_fields(self) -> tuple[str, ...]:
        return tuple(sorted(vars(self._game.env).keys() - _CONSTANT_FIELDS))

    def _observation(self) -> NDArray[np.bool_]:
        state_HWC: NDArray[np.bool_] = self._game.state()
        if self._oxygen_flashes and self._game.env.oxygen < 0:
            state_HWC[-1, :-1, _OXYGEN_CHANNEL] = True
        return state_HWC.transpose(2, 0, 1).copy()

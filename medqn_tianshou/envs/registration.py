"""The ids under which Gymnasium knows our environments.

The entry point in ``pyproject.toml`` makes Gymnasium call :func:`register_envs` while Gymnasium
itself is being imported: so this module imports the standard library alone.
"""

import difflib
import re

PLE_EPISODE_LIMITS = {"Catcher": 2000, "Pixelcopter": 500}
"""The paper's episode limits in steps."""

MINATAR_GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")

EPISODE_LIMITS = {"seaquest": 10_000}
"""MinAtar's episode limits in steps, from the authors' configurations; other games have none.

In Seaquest no enemy reaches the surface: an agent that never dives plays forever.
"""


def register_envs() -> None:
    """Register all our environments; registering them again changes nothing."""
    from gymnasium.envs.registration import register, registry

    for name, limit in PLE_EPISODE_LIMITS.items():
        if (env_id := f"medqn/{name}-v0") not in registry:
            entry_point = f"medqn_tianshou.envs.{name.lower()}:{name}"
            register(env_id, entry_point=entry_point, max_episode_steps=limit)
    for game in MINATAR_GAMES:
        if (env_id := minatar_task(game)) not in registry:
            register(
                env_id,
                entry_point="medqn_tianshou.envs.minatar:MinAtarEnv",
                max_episode_steps=EPISODE_LIMITS.get(game),
                kwargs={"game": game},
            )


def minatar_task(game: str) -> str:
    """Return the id of one of :data:`MINATAR_GAMES`, as ``"medqn/MinAtar-SpaceInvaders-v0"``."""
    check_minatar_game(game)
    return f"medqn/MinAtar-{game.title().replace('_', '')}-v0"


def check_minatar_game(game: str) -> None:
    """Raise a ValueError that suggests the nearest game unless this is a game of MinAtar."""
    if game in MINATAR_GAMES:
        return
    game_of_key = {task_key(known): known for known in MINATAR_GAMES}
    close = difflib.get_close_matches(task_key(game), game_of_key, n=1)
    hint = f"did you mean {game_of_key[close[0]]!r}?" if close else f"use one of {MINATAR_GAMES}"
    raise ValueError(f"game={game!r} is not a MinAtar game; {hint}")


def task_key(name: str) -> str:
    """Return what all spellings of a task have in common, as ``"qbert"`` of ``"ALE/Qbert-v5"``."""
    ends = r"^.*/|-v\d+$|noframeskip|deterministic|minatar|[^a-z0-9]"
    return re.sub(ends, "", name.lower())

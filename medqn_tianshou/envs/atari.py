"""Atari games for Tianshou's collectors, on EnvPool (fast) or on ale-py, with the same play.

Observations are stacks of 84x84 grayscale frames, newest last. A step repeats its action for four
frames, without sticky actions, and shows the maximum of the last two. The first stack of an
episode repeats its first frame, so that a replay buffer may store the newest frames alone.
"""

import difflib
import re
from collections.abc import Iterable
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from tianshou.env import BaseVectorEnv

from medqn_tianshou.envs.single import SingleVectorEnv
from medqn_tianshou.envs.workers import WorkerVectorEnv

Backend = Literal["auto", "envpool", "ale"]

MAX_EPISODE_STEPS = 27_000
"""Steps after which a game is cut: 108,000 frames, half an hour of play."""


@cache
def _rom_of_task() -> dict[str, str]:
    # Reading the folders takes a millisecond, importing the packages seconds.
    backends = _roms_in("ale_py", "roms"), _roms_in("envpool_assets", "atari/roms")
    installed = [roms for roms in backends if roms]
    shared = set.intersection(*installed) if installed else set()
    return {_game_name(rom) + "NoFrameskip-v4": rom for rom in sorted(shared)}


def _roms_in(package: str, folder: str) -> set[str]:
    spec = find_spec(package)
    locations = spec.submodule_search_locations if spec else None
    return {rom.stem for place in locations or () for rom in Path(place, folder).glob("*.bin")}


def _game_name(rom: str) -> str:
    return "".join(word.capitalize() for word in rom.split("_"))


def atari_tasks() -> tuple[str, ...]:
    """List the tasks that every installed backend can build, as ``"QbertNoFrameskip-v4"``."""
    return tuple(_rom_of_task())


def nearest_task(task: str) -> str | None:
    """Find the task that a misspelt name, or a name of another convention, probably means.

    :param task: a name such as ``"qbert"`` or ``"ALE/Qbert-v5"``.
    :return: a task of :func:`atari_tasks`, or None if none is close.
    """
    task_of_game = {_game_key(known): known for known in atari_tasks()}
    close = difflib.get_close_matches(_game_key(task), task_of_game, n=1)
    return task_of_game[close[0]] if close else None


def _game_key(task: str) -> str:
    return re.sub(r"^.*/|-v\d+$|noframeskip|deterministic|[^a-z0-9]", "", task.lower())


def make_atari_envs(
    *,
    task: str,
    num_envs: int,
    seed: int,
    training: bool,
    backend: Backend = "auto",
    frames_stack: int = 4,
    noop_max: int = 30,
    max_episode_steps: int = MAX_EPISODE_STEPS,
    render_mode: str | None = None,
) -> BaseVectorEnv:
    """Build environments of one Atari game.

    The ``info`` of each reset and step holds ``"reward"``, the unclipped reward of that step (0 at
    a reset), and ``"lives"``, the lives left.

    A reset after a lost life goes on with the game; any other starts a new one. Both then play 1 to
    ``noop_max`` frames without the agent, the last of them FIRE in a game that has this action.

    :param task: one of :func:`atari_tasks`.
    :param num_envs: how many to build.
    :param seed: the play of each environment follows from it and from the actions alone.
    :param training: end the episode with each life (``terminated``) and clip the rewards to their
        sign. Otherwise episodes are whole games with their own scores.
    :param backend: ``"envpool"``, or ``"ale"``: ale-py, a process per environment if several.
        ``"auto"`` takes ale-py for one environment, which saves the way to another thread and
        back, and EnvPool for several.
    :param frames_stack: number of frames in an observation.
    :param noop_max: see above; at least 1, which leaves nothing to chance.
    :param max_episode_steps: steps after which a game is cut (``truncated``), over all its lives.
    :param render_mode: ``"rgb_array"``, ``"human"`` or None.
    """
    if task not in _rom_of_task():
        nearest = nearest_task(task)
        hint = f"did you mean {nearest!r}?" if nearest else "atari_tasks() lists the known ones"
        raise ValueError(f"task={task!r} is not an Atari task; {hint}")
    if backend not in get_args(Backend):
        raise ValueError(f"backend={backend!r} must be one of {get_args(Backend)}")
    at_least_one = {
        "num_envs": num_envs,
        "frames_stack": frames_stack,
        "noop_max": noop_max,
        "max_episode_steps": max_episode_steps,
    }
    for name, value in at_least_one.items():
        if value < 1:
            raise ValueError(f"{name}={value} must be at least 1")

    if backend == "auto":
        wanted: Backend = "ale" if num_envs == 1 else "envpool"
        package = {"ale": "ale_py", "envpool": "envpool"}[wanted]
        other: Backend = "envpool" if wanted == "ale" else "ale"
        backend = wanted if find_spec(package) else other
    rom = _rom_of_task()[task]
    # Hashed, so that the environments of runs with neighbouring seeds do not play alike.
    first_seed = int(np.random.SeedSequence(seed).generate_state(1)[0]) % 2**30
    if backend == "envpool":
        import envpool

        pool = envpool.make_gymnasium(
            f"{_game_name(rom)}-v5",
            num_envs=num_envs,
            seed=first_seed,  # EnvPool gives environment i this seed + i
            stack_num=1,
            noop_max=noop_max,
            max_episode_steps=max_episode_steps,
            episodic_life=training,
            reward_clip=training,
            render_mode=render_mode,
        )
        return EnvPoolVectorEnv(pool=pool, frames_stack=frames_stack, seed=first_seed)

    from medqn_tianshou.envs.ale import AleAtariEnv

    env_fns = [
        partial(
            AleAtariEnv,
            game=rom,
            seed=first_seed + i,
            training=training,
            frames_stack=frames_stack,
            noop_max=noop_max,
            max_episode_steps=max_episode_steps,
            render_mode=render_mode,
        )
        for i in range(num_envs)
    ]
    # Not ShmemVectorEnv: no faster at this size, and it loads each game once more to see its space.
    return SingleVectorEnv(env_fns[0]()) if num_envs == 1 else WorkerVectorEnv(env_fns, name=task)


class EnvPoolVectorEnv(BaseVectorEnv):
    """An EnvPool of Atari games behind the interface of Tianshou's vector environments.

    It corrects two things about EnvPool: ``reset`` starts a new game even when the last one has
    lives left, so that an agent would only ever see first lives; and where a game does go on, its
    frame stacks hold pictures of the life before. So the pool must give single frames
    (``stack_num=1``); they are stacked here.

    :param pool: made by ``envpool.make_gymnasium``.
    :param frames_stack: number of frames in an observation.
    :param seed: seeds the action spaces, from which random play is drawn.
    """

    # No call of super().__init__: it would start workers, and here EnvPool's threads are those.
    def __init__(self, *, pool: Any, frames_stack: int, seed: int) -> None:
        self.pool = pool
        self.env_num = len(pool)
        self.is_async = False
        self.is_closed = False
        stack_shape = (frames_stack, *pool.observation_space.shape[1:])
        num_actions = pool.action_space.n
        self._spaces: dict[str, list[gym.Space[Any]]] = {
            "observation_space": [gym.spaces.Box(0, 255, stack_shape, np.uint8)] * self.env_num,
            "action_space": [gym.spaces.Discrete(num_actions, seed + i) for i in range(len(pool))],
        }
        self._stacks = np.zeros((self.env_num, *stack_shape), np.uint8)
        self._lives = np.zeros(self.env_num, np.int64)
        self._episode_ended = np.zeros(self.env_num, bool)

    def get_env_attr(self, key: str, id: Any = None) -> list[Any]:  # noqa: A002 (Tianshou's name)
        """Give an attribute per environment; Tianshou asks for the spaces here, too.

        :param key: name of the attribute.
        :param id: the environments meant, all by default.
        """
        values = self._spaces.get(key) or [getattr(self.pool, key)] * self.env_num
        return [values[i] for i in self._wrap_id(id)]

    def reset(self, env_id: Any = None, **kwargs: Any) -> tuple[NDArray[np.uint8], NDArray[Any]]:
        """Start the next episode of some environments.

        :param env_id: the environments meant, all by default.
        :param kwargs: none are known; the seed is given when the pool is made.
        """
        if kwargs:
            raise ValueError(f"EnvPool's reset takes none of the arguments {sorted(kwargs)}")
        ids = np.asarray(self._wrap_id(env_id), np.int32)
        ended = self._episode_ended[ids]
        if not ended.all():
            self._show_first_frame(ids[~ended], *self.pool.reset(ids[~ended]))
        if ended.any():
            # At a step after its end, EnvPool goes on to the next episode, whatever the action:
            # its one way to go on with the game after a lost life.
            frames, _, _, _, info = self.pool.step(np.zeros(ended.sum(), np.int32), ids[ended])
            self._show_first_frame(ids[ended], frames, info)
        self._episode_ended[ids] = False
        return self._stacks[ids], _info_per_env(self._lives[ids], np.zeros(len(ids)))

    def step(
        self,
        action: Any,
        id: Any = None,  # noqa: A002
    ) -> tuple[NDArray[np.uint8], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Act in some environments. Those whose episode ends have to be reset before they go on.

        :param action: an action per environment.
        :param id: the environments meant, all by default.
        """
        ids = np.asarray(self._wrap_id(id), np.int32)
        frames, rewards, terminated, truncated, info = self.pool.step(np.asarray(action), ids)
        stacks = np.concatenate((self._stacks[ids, 1:], frames), axis=1)
        self._stacks[ids] = stacks
        self._episode_ended[ids] = terminated | truncated
        infos = _info_per_env(info["lives"], info["reward"])
        return stacks, rewards, terminated, truncated, infos

    def seed(self, seed: Any = None) -> list[list[int] | None]:
        """Refuse: an EnvPool is seeded once, when it is made."""
        raise NotImplementedError("EnvPool cannot be seeded anew: pass seed to make_atari_envs")

    def render(self, **kwargs: Any) -> list[Any]:
        """Give a picture per environment, or show that of the first in mode ``"human"``.

        :param kwargs: as for EnvPool's own ``render``.
        """
        if self.pool.render_mode == "human":
            return [self.pool.render(**kwargs)]
        return list(self.pool.render(self.pool.all_env_ids, **kwargs))

    def close(self) -> None:
        """Free the pool; its threads end with it."""
        self.pool = None  # EnvPool's own close() fails with the gymnasium that Tianshou needs
        self.is_closed = True

    def _show_first_frame(self, ids: NDArray[np.int32], frames: Any, info: dict[str, Any]) -> None:
        self._stacks[ids] = frames  # the one frame for each place of the stack
        self._lives[ids] = info["lives"]


def _info_per_env(lives: Iterable[Any], rewards: Iterable[Any]) -> NDArray[Any]:
    # Only these two: EnvPool adds the emulator's memory, and the buffer keeps all it is given.
    pairs = zip(lives, rewards, strict=True)
    return np.array([{"lives": int(left), "reward": float(reward)} for left, reward in pairs])

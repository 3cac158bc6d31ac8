"""Atari games for Tianshou's collectors, on EnvPool or on ale-py, with the same observations.

Observations are stacks of 84x84 grayscale frames, newest last. A step repeats its action for four
frames, without sticky actions, and shows the maximum of the last two. The first stack of an
episode repeats its first frame, so that a replay buffer needs to store only the newest frames.
"""

import difflib
from collections.abc import Iterable
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from tianshou.env import BaseVectorEnv

from medqn_tianshou.envs.registration import task_key
from medqn_tianshou.envs.single import SingleVectorEnv
from medqn_tianshou.envs.workers import WorkerVectorEnv

Backend = Literal["auto", "envpool", "ale"]

MAX_EPISODE_STEPS = 108_000
"""Steps, of four frames each, after which a game is truncated, as in the paper's experiments."""


@cache
def _rom_of_task() -> dict[str, str]:
    # Listing the folders takes a millisecond, importing the packages takes seconds.
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
    """Return the task nearest to a name such as ``"qbert"`` or ``"ALE/Qbert-v5"``, if any is."""
    task_of_game = {task_key(known): known for known in atari_tasks()}
    close = difflib.get_close_matches(task_key(task), task_of_game, n=1)
    return task_of_game[close[0]] if close else None


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

    The ``info`` of each reset and step contains ``"reward"``, the unclipped reward of that step (0
    at a reset), and ``"lives"``, the lives left.

    A reset after a lost life continues the game; any other starts a new one. Both then play 1 to
    ``noop_max`` frames without the agent, the last of them FIRE in a game that has this action.

    :param task: one of :func:`atari_tasks`.
    :param seed: with the actions, it determines the play of each environment.
    :param training: end the episode with each life (``terminated``) and clip the rewards to their
        sign. Otherwise episodes are whole games with unclipped rewards.
    :param backend: ``"envpool"``, or ``"ale"``: ale-py, with a process per environment if there are
        several. ``"auto"`` is ale-py for one environment, which avoids a hand-over between
        threads, and EnvPool for several.
    :param noop_max: see above; at least 1, which makes the start deterministic.
    :param max_episode_steps: steps after which a game is ``truncated``, over all its lives.
    :param render_mode: ``"rgb_array"``, ``"human"`` or None.
    """
    if task not in _rom_of_task():
        nearest = nearest_task(task)
        hint = f"did you mean {nearest!r}?" if nearest else "atari_tasks() lists the known ones"
        raise ValueError(f"task={task!r} is not an Atari task; {hint}")
    if backend not in get_args(Backend):
        raise ValueError(f"backend={backend!r} must be one of {get_args(Backend)}")
    options: dict[str, Any] = {"noop_max": noop_max, "max_episode_steps": max_episode_steps}
    for name, value in (options | {"num_envs": num_envs, "frames_stack": frames_stack}).items():
        if value < 1:
            raise ValueError(f"{name}={value} must be at least 1")
    options["render_mode"] = render_mode
    if backend == "auto":
        prefers_ale = num_envs == 1 and find_spec("ale_py")
        backend = "ale" if prefers_ale or not find_spec("envpool") else "envpool"
    rom = _rom_of_task()[task]
    # Hashed, so that runs with neighbouring seeds share no environment seed.
    first_seed = int(np.random.SeedSequence(seed).generate_state(1)[0]) % 2**30
    if backend == "envpool":
        import envpool

        pool = envpool.make_gymnasium(
            f"{_game_name(rom)}-v5",
            num_envs=num_envs,
            seed=first_seed,  # EnvPool gives environment i this seed + i
            stack_num=1,
            episodic_life=training,
            reward_clip=training,
            **options,
        )
        return EnvPoolVectorEnv(pool=pool, frames_stack=frames_stack, seed=first_seed)

    from medqn_tianshou.envs.ale import AleAtariEnv

    options |= {"game": rom, "training": training, "frames_stack": frames_stack}
    env_fns = [partial(AleAtariEnv, seed=first_seed + i, **options) for i in range(num_envs)]
    # Not ShmemVectorEnv: it is no faster here, and loads each game once more to read its space.
    return SingleVectorEnv(env_fns[0]()) if num_envs == 1 else WorkerVectorEnv(env_fns, name=task)


class EnvPoolVectorEnv(BaseVectorEnv):
    """An EnvPool of Atari games behind the interface of Tianshou's vector environments.

    It corrects two properties of EnvPool: ``reset`` starts a new game even when the last one has
    lives left, so that an agent would only ever see first lives; and where a game continues, the
    frame stacks contain pictures of the previous life. The pool must therefore return single
    frames (``stack_num=1``), which this class stacks.

    :param pool: made by ``envpool.make_gymnasium``.
    :param seed: seeds the action spaces, from which random actions are sampled.
    """

    resume_hint = "; --env-backend ale is exact"
    """The note on resuming in a run's output, because EnvPool cannot be restored."""

    # super().__init__ is not called: it would start workers.
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
        """Return an attribute per environment; Tianshou reads the spaces in this way."""
        values = self._spaces.get(key) or [getattr(self.pool, key)] * self.env_num
        return [values[i] for i in self._wrap_id(id)]

    def reset(self, env_id: Any = None, **kwargs: Any) -> tuple[NDArray[np.uint8], NDArray[Any]]:
        """Start the next episode of some or all environments."""
        if kwargs:
            raise ValueError(f"EnvPool's reset takes none of the arguments {sorted(kwargs)}")
        ids = np.asarray(self._wrap_id(env_id), np.int32)
        ended = self._episode_ended[ids]
        if not ended.all():
            self._show_first_frame(ids[~ended], *self.pool.reset(ids[~ended]))
        if ended.any():
            # EnvPool continues a game after a lost life only by a step, whatever its action.
            frames, _, _, _, info = self.pool.step(np.zeros(ended.sum(), np.int32), ids[ended])
            self._show_first_frame(ids[ended], frames, info)
        self._episode_ended[ids] = False
        return self._stacks[ids], _info_per_env(self._lives[ids], np.zeros(len(ids)))

    def step(
        self,
        action: Any,
        id: Any = None,  # noqa: A002
    ) -> tuple[NDArray[np.uint8], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Step some or all environments; an ended episode must be reset before the next step."""
        ids = np.asarray(self._wrap_id(id), np.int32)
        frames, rewards, terminated, truncated, info = self.pool.step(np.asarray(action), ids)
        stacks = np.concatenate((self._stacks[ids, 1:], frames), axis=1)
        self._stacks[ids] = stacks
        self._episode_ended[ids] = terminated | truncated
        infos = _info_per_env(info["lives"], info["reward"])
        return stacks, rewards, terminated, truncated, infos

    def seed(self, seed: Any = None) -> list[list[int] | None]:
        """Raise: an EnvPool is seeded only when it is made."""
        raise NotImplementedError("EnvPool cannot be seeded again: pass seed to make_atari_envs")

    def render(self, **kwargs: Any) -> list[Any]:
        """Return a picture per environment, or show the first one's in mode ``"human"``."""
        if self.pool.render_mode == "human":
            return [self.pool.render(**kwargs)]
        return list(self.pool.render(self.pool.all_env_ids, **kwargs))

    def close(self) -> None:
        """Free the pool; its threads end with it."""
        self.pool = None  # EnvPool's close() fails with gymnasium 0.28
        self.is_closed = True

    def _show_first_frame(self, ids: NDArray[np.int32], frames: Any, info: dict[str, Any]) -> None:
        self._stacks[ids] = frames  # broadcast over the stack
        self._lives[ids] = info["lives"]


def _info_per_env(lives: Iterable[Any], rewards: Iterable[Any]) -> NDArray[Any]:
    # EnvPool also returns the emulator's memory, which a buffer would store.
    pairs = zip(lives, rewards, strict=True)
    return np.array([{"lives": int(left), "reward": float(reward)} for left, reward in pairs])

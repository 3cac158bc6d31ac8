"""Collecting the next steps while the policy learns from the last ones."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, cast

import torch
from numpy.typing import NDArray
from tianshou.data import CollectStats

from medqn_tianshou.collecting.lean import Choose, LeanCollector
from medqn_tianshou.collecting.quick import Actor, QuickPolicy, quick_actor
from medqn_tianshou.collecting.steps import Step
from medqn_tianshou.host.api import Agent


class OverlappingCollector(LeanCollector):
    """Plays the steps of the next ``collect`` in a thread while the trainer updates the policy.

    These steps use the network and the exploration rate from before that update, so actions lag
    by one update; :class:`LeanCollector` would wait instead. The collector stores the steps and
    calls hooks only when the trainer asks for the steps, so results depend only on the seed, not
    on timing.

    This applies only within a training step of Tianshou's trainer, and only if it collects by
    steps; otherwise the collector works as :class:`LeanCollector`. It takes the same arguments.

    :param policy: a policy with an ``actor``, such as
        :class:`~medqn_tianshou.fast.policy.FastMeDQNPolicy`.
    """

    def __init__(self, policy: Agent, *args: Any, **kwargs: Any) -> None:
        name = type(policy).__name__
        if not hasattr(policy, "actor"):
            raise ValueError(
                f"policy={name} has no actor, which overlapping needs: pass a FastMeDQNPolicy, or "
                "use LeanCollector"
            )
        if quick_actor(policy, explore=True) is None:
            raise ValueError(f"{name} changes how actions are chosen: do not overlap")
        super().__init__(policy, *args, **kwargs)
        self._learner = cast(QuickPolicy, policy)
        self._frozen = deepcopy(self._learner.model).requires_grad_(False).eval()
        self._thread = ThreadPoolExecutor(1, "collect")
        self._ahead: tuple[int, Future[list[Step]]] | None = None
        device = next(self._frozen.parameters()).device
        self._stream = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def settle(self) -> None:
        """Wait for the thread; the steps it played stay ready for the next ``collect``."""
        if self._ahead is not None:
            self._ahead[1].exception()

    def stop(self) -> None:
        """Wait for the thread and drop the steps it played ahead."""
        self.settle()
        self._ahead = None
        self._thread.shutdown()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of :class:`LeanCollector` and the steps that were played ahead."""
        ahead: dict[str, Any] | None = None
        if self._ahead is not None:
            n_step, played = self._ahead
            ahead = {"n_step": n_step, "played": [_fields(step) for step in played.result()]}
        return {**super().state_dict(), "ahead": ahead}

    def load_state_dict(self, state: dict[str, Any], *, new_episodes: bool = False) -> None:
        """Resume from what :meth:`state_dict` returned; new episodes drop the steps ahead."""
        super().load_state_dict(state, new_episodes=new_episodes)
        self._ahead = None
        if not new_episodes and state["ahead"] is not None:
            played: Future[list[Step]] = Future()
            played.set_result([Step(**fields, info={}) for fields in state["ahead"]["played"]])
            self._ahead = state["ahead"]["n_step"], played

    def reset_env(
        self, gym_reset_kwargs: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Drop the steps played ahead and reset all environments."""
        self.settle()
        self._ahead = None
        return super().reset_env(gym_reset_kwargs)

    def _collect(
        self,
        n_step: int | None = None,
        n_episode: int | None = None,
        random: bool = False,
        render: float | None = None,
        gym_reset_kwargs: dict[str, Any] | None = None,
    ) -> CollectStats:
        by_steps = n_step is not None and not (n_episode or random or render)
        if n_step is None or not (by_steps and self.policy.is_within_training_step):
            self.settle()
            if self._ahead is not None:
                raise ValueError("steps were played ahead: reset the collector before this collect")
            return super()._collect(n_step, n_episode, random, render, gym_reset_kwargs)
        if self._ahead is None:
            stats = super()._collect(n_step, gym_reset_kwargs=gym_reset_kwargs)
        else:
            ahead, played = self._ahead
            if ahead != n_step:
                raise ValueError(
                    f"n_step={n_step} must stay what it was, {ahead}, when overlapping"
                )
            stats = self._take(played.result())
        self._ahead = n_step, self._thread.submit(self._play_ahead, self._freeze(), n_step)
        return stats

    def _freeze(self) -> Choose:
        """Copy the current weights and exploration rate, to act with them."""
        with torch.no_grad():
            for kept, learned in zip(
                _tensors(self._frozen), _tensors(self._learner.model), strict=True
            ):
                kept.copy_(learned)
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        learner = self._learner
        actor = cast(
            Actor,
            learner.actor(explore=self.exploration_noise, model=self._frozen, eps=learner.eps),
        )

        return lambda obs_RO, _: (act_R := actor(obs_RO), act_R)

    def _play_ahead(self, choose: Choose, n_step: int) -> list[Step]:
        with self._on_stream():
            return list(self._play(choose, n_step))

    @contextmanager
    def _on_stream(self) -> Iterator[None]:
        """On a GPU, act in parallel to the update instead of after it."""
        if self._stream is None:
            yield
        else:
            with torch.cuda.stream(self._stream):
                yield


def _fields(step: Step) -> dict[str, Any]:
    """Return a step as plain data, without its info, which only hooks see."""
    names = (
        "env_ids_R", "obs_RO", "act_R", "obs_next_RO", "rew_R", "terminated_R", "truncated_R",
    )  # fmt: skip
    return {name: getattr(step, name) for name in names}


def _tensors(model: torch.nn.Module) -> Iterator[torch.Tensor]:
    yield from model.parameters()
    yield from model.buffers()

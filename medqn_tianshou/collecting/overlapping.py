"""Collecting the next steps while the policy learns from the last ones."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tianshou.data import CollectStats

from medqn_tianshou.algorithm.policy import MeDQNPolicy
from medqn_tianshou.collecting.lean import Choose, LeanCollector, Played, Step


class OverlappingCollector(LeanCollector):
    """Plays the steps of the next ``collect`` in a thread while the trainer updates the policy.

    They are played with the network and the exploration rate from before that update, where
    :class:`LeanCollector` would wait for it: actions are one update old. They are stored, and
    hooks called, when the trainer asks for them. Play depends on the seed alone, not on timing.

    Only within a training step of Tianshou's trainer, and only by steps; otherwise it collects as
    :class:`LeanCollector` does. Takes the same arguments.
    """

    def __init__(self, policy: MeDQNPolicy, *args: Any, **kwargs: Any) -> None:
        if not policy.chooses_quickly:
            raise ValueError(
                f"{type(policy).__name__} changes how actions are chosen: do not overlap"
            )
        super().__init__(policy, *args, **kwargs)
        self._learner = policy
        self._actor = deepcopy(policy.model).requires_grad_(False).eval()
        self._thread = ThreadPoolExecutor(1, "collect")
        self._ahead: tuple[int, Future[list[Played]]] | None = None
        device = next(policy.model.parameters()).device
        self._stream = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def settle(self) -> None:
        """Wait until the thread rests; what it played stays ready for the next ``collect``."""
        if self._ahead is not None:
            self._ahead[1].exception()

    def stop(self) -> None:
        """Wait for the thread and drop what it played ahead."""
        self.settle()
        self._ahead = None
        self._thread.shutdown()

    def state_dict(self) -> dict[str, Any]:
        """What :class:`LeanCollector` saves, and the steps that were played ahead."""
        ahead: dict[str, Any] | None = None
        if self._ahead is not None:
            n_step, played = self._ahead
            ahead = {"n_step": n_step, "played": [_plain(step) for step in played.result()]}
        return {**super().state_dict(), "ahead": ahead}

    def load_state_dict(self, state: dict[str, Any]) -> bool:
        """Continue from what :meth:`state_dict` returned.

        :param state: the state.
        :return: False if the environments could not be put back and started new episodes.
        """
        restored = super().load_state_dict(state)
        self._ahead = None
        if restored and state["ahead"] is not None:
            played: Future[list[Played]] = Future()
            played.set_result([_step(fields) for fields in state["ahead"]["played"]])
            self._ahead = state["ahead"]["n_step"], played
        return restored

    def reset_env(
        self, gym_reset_kwargs: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Drop what was played ahead and reset all environments."""
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
        if n_step is None or random or render or not self.policy.is_within_training_step:
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
        """Keep the present weights and exploration rate to act by."""
        with torch.no_grad():
            for kept, learned in zip(
                _tensors(self._actor), _tensors(self._learner.model), strict=True
            ):
                kept.copy_(learned)
        if self._stream is not None:
            self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        choose = partial(
            self._learner.choose_actions,
            explore=self.exploration_noise,
            model=self._actor,
            eps=self._learner.eps,
        )

        def choose_for_all(obs_RO: NDArray[Any], _: NDArray[np.int_]) -> NDArray[Any]:
            return choose(obs_RO)

        return choose_for_all

    def _play_ahead(self, choose: Choose, n_step: int) -> list[Played]:
        with self._on_stream():
            return list(self._play(choose, n_step))

    @contextmanager
    def _on_stream(self) -> Iterator[None]:
        """Act beside the update on a GPU, not after it."""
        if self._stream is None:
            yield
        else:
            with torch.cuda.stream(self._stream):
                yield


_STEP_FIELDS = (
    "env_ids_R", "obs_RO", "act_R", "obs_next_RO", "rew_R", "terminated_R", "truncated_R",
)  # fmt: skip


def _plain(step: Played) -> Any:
    """A step as plain data; its info is told to hooks alone, and not kept."""
    if isinstance(step, Step):
        return {name: getattr(step, name) for name in _STEP_FIELDS}
    return step


def _step(fields: Any) -> Played:
    if isinstance(fields, dict):
        arrays: Any = {name: fields[name] for name in _STEP_FIELDS}
        return Step(**arrays, info={})
    return np.asarray(fields)


def _tensors(model: torch.nn.Module) -> Iterator[torch.Tensor]:
    yield from model.parameters()
    yield from model.buffers()

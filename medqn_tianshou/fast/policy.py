"""MeDQN with the same results, but faster."""

import inspect
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from tianshou.data import ReplayBuffer

from medqn_tianshou.algorithm.samplers import RealStateSampler
from medqn_tianshou.fast.acting import Actor
from medqn_tianshou.fast.batches import MiniBatch, StoredBatch, StoredBatches
from medqn_tianshou.fast.flat import FlatNetwork
from medqn_tianshou.fast.inspection import Inspected, Undisturbed
from medqn_tianshou.fast.joined import KEPT_EVALUATING, JoinedPasses
from medqn_tianshou.fast.known import KnownMethods, KnownNetwork, samples_as
from medqn_tianshou.fast.learner import SmallLearner
from medqn_tianshou.fast.targets import SingleFetch, join, nstep_terms
from medqn_tianshou.host.api import ACTING, UPDATING, MeDQNTrainingStats
from medqn_tianshou.host.api import Agent as MeDQN


class FastMeDQNPolicy(JoinedPasses):
    """MeDQN with the same results in less time: ``FastMeDQN`` with Tianshou 2.

    Each observation of an update is read once; TD batch and consolidation states share a forward
    pass; no pass is made whose result is not used; small networks on the CPU act and learn through
    compiled code.

    This requires a known network and policy. If a subclass overrides a method that would be
    skipped, or if the network is not one of ours with plain layers and without hooks, the code of
    the base class runs instead: ``MeDQNPolicy``, or ``MeDQN`` with Tianshou 2.

    :param compiled: use code compiled by numba where possible. The results equal torch's up to
        rounding. With False, they differ from those of the base class only by the rounding of
        forward passes over joined batches, and without consolidation not at all.
    :param options: the arguments of the base class.
    """

    def __init__(self, *, compiled: bool = True, **options: Any) -> None:
        super().__init__(compiled=compiled, **options)
        action_space: Any = self.action_space
        self.max_action_num = int(action_space.n)  # known before the first forward pass
        self._learner, self._stored = SmallLearner(), StoredBatches()
        self._undisturbed = Undisturbed()

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Within this context, the caller changes neither policy, networks, optimizer nor buffer.

        Then they are inspected once, and not before each action and each update.
        """
        self._undisturbed = Undisturbed()
        self._undisturbed.is_on = True
        try:
            yield
        finally:
            self._undisturbed = Undisturbed()

    def __setattr__(self, name: str, value: Any) -> None:
        """Set existing numbers without the slow lookup of ``nn.Module``."""
        own = self.__dict__
        if type(value) in (float, int, bool) and name in own:
            own[name] = value
        else:
            super().__setattr__(name, value)

    @staticmethod
    def _compile() -> None:
        """Skip Tianshou's compilation of functions that may never be called: it takes seconds."""

    # Acting.

    def train(self, mode: bool = True) -> Self:
        """Switch the network to training or evaluation mode."""
        known = self._networks.of(self.model)
        if known is None:
            return super().train(mode)
        vars(self)["training"] = vars(self.acting)["training"] = mode  # nn.Module's way is slow
        known.train(mode)
        return self

    def actor(
        self,
        *,
        explore: bool,
        model: torch.nn.Module | None = None,
        eps: float | None = None,
    ) -> Actor | None:
        """Return an actor that chooses as Tianshou's forward pass and exploration do.

        It is valid until the policy changes. None if a subclass or a hook acts differently.

        :param model: the network to evaluate; None is the one that learns.
        :param eps: the exploration rate; None is the policy's.
        """
        eps = (self.eps if eps is None else eps) if explore else 0.0
        inspected = self._undisturbed
        if model is None and explore in inspected.actors:
            actor = inspected.actors[explore]
            actor.eps = eps
            return actor
        if not _ACTING.are_kept_by(self.acting):
            return None
        network: Any = self.model if model is None else model
        actor = Actor(
            network,
            self._networks.of(network),
            eps=eps,
            action_count=self.max_action_num,  # type: ignore[arg-type]
            compiled=self.compiled,
        )
        if inspected.is_on and model is None:
            inspected.actors[explore] = actor
        return actor

    # Fetching a batch, and its targets.

    def update(self, *args: Any, **kwargs: Any) -> MeDQNTrainingStats:
        """Update as Tianshou does, but read each observation once."""
        start = time.time()
        given = kwargs | dict(zip(_ARGUMENTS, args, strict=False)) if args else kwargs
        sample_size, buffer = given["sample_size"], given["buffer"]
        self._samples.clear()
        inspected = self._undisturbed.update
        if inspected is None or inspected.buffer is not buffer:
            inspected = self._inspect(buffer)
        if inspected.known is not None:
            at_once = inspected.at_once and self.is_within_training_step
            batch: MiniBatch | StoredBatch | None = None
            if at_once:
                self.__dict__["_buffer"] = weakref.ref(buffer)
                network: Any = inspected.known[0].flat
                batch = self._stored.draw(buffer, network, sample_size, self)
            if batch is None:
                is_real = self._coef > 0 and samples_as(self.state_sampler, RealStateSampler)
                draw_states = partial(self._sample_indices, buffer) if is_real else None
                fetch = SingleFetch(buffer, self.n_step, draw_states)
                batch = self._mini_batch(sample_size, fetch) if at_once else None
            if batch is not None:
                stats = self._update_at_once(batch, inspected.known[1])
                stats.train_time = time.time() - start
                return stats
            given["buffer"] = fetch
        try:
            return super().update(**given)
        finally:
            self._samples.clear()  # which belong to the buffer

    def _inspect(self, buffer: Any) -> Inspected:
        """Find out which code may update the networks."""
        known, at_once = None, False
        if (
            buffer is not None
            and SingleFetch.suits(buffer)
            and _UPDATING.are_kept_by(self)
            and KEPT_EVALUATING.are_kept_by(self.acting)
        ):
            known = self._known()
        if known is not None:
            # Other losses take torch's passes throughout: equal networks have distance 0.
            at_once = (
                self.compiled
                and self.consolidation_kind == "mse"
                and self.huber_delta in (None, 1.0)
                and self._learner.suits(*known, self.torch_optim)
            )
        inspected = Inspected(buffer, known, at_once)
        if self._undisturbed.is_on:
            self._undisturbed.update = inspected
        return inspected

    def _mini_batch(self, sample_size: int | None, fetch: SingleFetch) -> MiniBatch | None:
        """Fetch a mini-batch for :meth:`_update_at_once`; None if observations do not fit."""
        indices, obs, obs_next = fetch.fetch(sample_size)
        states = join(fetch.states) if fetch.states else self._sample_states(len(indices))
        act: Any = fetch.steps.act_I
        batch = MiniBatch(obs, act, *nstep_terms(fetch.steps, self.gamma), obs_next, states)
        if self._learner.takes(batch):
            return batch
        fetch.states = self._by_epoch(states)
        return None

    def _update_at_once(
        self, batch: MiniBatch | StoredBatch, target: KnownNetwork
    ) -> MeDQNTrainingStats:
        """Take all gradient steps in one call."""
        self._warn_of_unknown_time()
        epochs = self.consolidation_epochs
        td_loss, loss, *of_states = self._learner.update(
            batch,
            cast(FlatNetwork, target.flat),
            epochs=epochs,
            gradient_steps=self._iter,
            sync_interval=self.target_update_freq,
            double=self.is_double,
            huber=self.huber_delta is not None,
            per_action=self.consolidation_reduction == "mean",
            coef=self._coef,
            max_norm=self.max_grad_norm,
        )
        self.__dict__["_iter"] += epochs
        stats = self._stats(td_loss, loss, *([] if batch.states is None else of_states))
        if self.lr_scheduler is not None:
            self.lr_scheduler.step()
        return stats

    def _sample_indices(self, buffer: ReplayBuffer, batch_size: int) -> list[NDArray[np.int_]]:
        """Sample the indices of the consolidation states of each epoch."""
        sampler: Any = self.state_sampler
        size = self.consolidation_batch_size or batch_size
        return [sampler.draw_indices(size, buffer) for _ in range(self.consolidation_epochs)]


FastMeDQN = FastMeDQNPolicy
"""The name with Tianshou 2."""
_ARGUMENTS = tuple(inspect.signature(MeDQN.update).parameters)[1:]
"""Of an update, in the order of the installed Tianshou."""
_ACTING = KnownMethods(**ACTING)
_UPDATING = KnownMethods(
    **{
        name: getattr(FastMeDQNPolicy, name)
        for name in (
            *UPDATING, "_prepare", "_take_gradient_steps", "sync_weight", "_forward",
            "_differentiate", "_action_values", "_stats",
        )
    }
)  # fmt: skip
"""What an update with :class:`SingleFetch`, or in one call of compiled code, stands for."""

"""Whole updates of a small network: all gradient steps of a mini-batch in one compiled call."""

from collections.abc import Sequence
from itertools import chain
from operator import is_
from typing import Any, Self

import numpy as np
import torch
from torch.optim import optimizer as torch_optimizer

from medqn_tianshou.fast import updates
from medqn_tianshou.fast.batches import MiniBatch, StoredBatch
from medqn_tianshou.fast.flat import FlatNetwork, aligned_zeros, make_work
from medqn_tianshou.fast.kernels import Work
from medqn_tianshou.fast.known import KnownNetwork
from medqn_tianshou.fast.optimizers import FusedRMSprop

_UNUSED = (
    "weight_decay", "momentum", "amsgrad", "maximize", "capturable", "differentiable",
    "decoupled_weight_decay",
)  # fmt: skip
"""Options of torch's optimizers that the compiled steps do not have."""
_GLOBAL_HOOKS = (
    torch_optimizer._global_optimizer_pre_hooks, torch_optimizer._global_optimizer_post_hooks,
)  # fmt: skip


class FlatOptimizer:
    """The state of torch's Adam or RMSprop in flat memory; the optimizer's tensors are views of it.

    :param optim: an optimizer whose steps :meth:`of` found to be the compiled ones.
    """

    def __init__(
        self, optim: torch.optim.Optimizer, network: FlatNetwork, kind: int, names: Sequence[str]
    ) -> None:
        self.kind = kind
        self.optim = optim
        self.gradients = aligned_zeros(len(network.values))
        self.columns = [aligned_zeros(len(network.values)) for _ in range(2)]
        parameters = network.parameters
        self._gradient_views = network.views(self.gradients)
        self._parameters = parameters
        self._steps = np.zeros(len(parameters), np.float32)
        steps = list(torch.from_numpy(self._steps).unbind())
        views = [network.views(column) for column in self.columns[-len(names) :]]
        self._state = optim.state
        for parameter, step, *own in zip(parameters, steps, *views, strict=True):
            state = self._state[parameter]
            for name, view in zip(("step", *names), (step, *own), strict=True):
                if name in state:
                    view.copy_(torch.as_tensor(state[name]))
                state[name] = view
        self._views = [self._state[parameter].values() for parameter in parameters]
        self._entries = list(chain.from_iterable(self._views))

    @classmethod
    def of(cls, optim: torch.optim.Optimizer, network: FlatNetwork) -> Self | None:
        """Lay out the state of an optimizer; None if its steps are not the compiled ones."""
        group = optim.param_groups[0]
        if type(optim) is torch.optim.Adam:
            kind, names = updates.ADAM, ["exp_avg", "exp_avg_sq"]
        elif type(optim) in (torch.optim.RMSprop, FusedRMSprop):
            kind, names = updates.RMSPROP, ["square_avg"]
            if group["centered"]:
                kind, names = updates.CENTERED_RMSPROP, ["grad_avg", "square_avg"]
        else:
            return None
        states = [optim.state.get(parameter, {}) for parameter in network.parameters]
        # Either every parameter has torch's state, or none has any yet.
        if any(state.keys() not in (set(), {"step", *names}) for state in states):
            return None
        if len({float(state.get("step", 0)) for state in states}) > 1:
            return None
        return cls(optim, network, kind, names) if _steps_plainly(optim) else None

    @property
    def is_current(self) -> bool:
        """Whether state and options are still those that the compiled steps can follow."""
        return (
            self.optim.state is self._state
            and sum(map(len, self._views)) == len(self._entries)
            and all(map(is_, chain.from_iterable(self._views), self._entries))
            and _steps_plainly(self.optim)
            and self.optim.param_groups[0].get("centered", False)
            == (self.kind == updates.CENTERED_RMSPROP)
        )

    @property
    def steps(self) -> int:
        """Steps taken so far."""
        return int(self._steps.item(0))

    @property
    def numbers(self) -> tuple[float, float, float, float]:
        """The constants of the optimizer."""
        group = self.optim.param_groups[0]
        decays = group["betas"] if self.kind == updates.ADAM else (group["alpha"], 0.0)
        lr, first, second, eps = map(float, (group["lr"], *decays, group["eps"]))
        return lr, first, second, eps

    def advance(self, steps: int) -> None:
        """Count steps, and set the gradients as torch would."""
        self._steps.fill(self.steps + steps)
        if self._parameters[0].grad is not self._gradient_views[0]:
            for parameter, gradient in zip(self._parameters, self._gradient_views, strict=True):
                parameter.grad = gradient
        if "step" in vars(self.optim):  # what a schedule of the learning rate looks for
            self.optim._opt_called = True  # type: ignore[attr-defined]


class SmallLearner:
    """The state of compiled updates between calls; a copy or pickle starts empty."""

    def __init__(self) -> None:
        self._optimizer: FlatOptimizer | None = None
        self._network: FlatNetwork | None = None
        self._work: Work | None = None
        self._count = 0
        self._td_errors = np.empty(0, np.float32)
        self._losses = np.empty(updates.LOSS_TERMS)

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()

    def suits(self, online: KnownNetwork, target: KnownNetwork, optim: Any) -> bool:
        """Whether compiled code can update these networks as the optimizer would."""
        if online.flat is None or target.flat is None:
            return False
        if not (online.is_trained_plainly and online.is_optimized_by(optim)):
            return False
        known = self._optimizer
        is_current = known is not None and known.optim is optim and known.is_current
        if online.flat is not self._network or not is_current:
            self._network = online.flat
            self._optimizer = FlatOptimizer.of(optim, online.flat)
            self._work = None
        return self._optimizer is not None

    def takes(self, batch: MiniBatch) -> bool:
        """Whether the observations fit the network."""
        network: Any = self._network
        states = batch.obs if batch.states is None else batch.states
        return (
            network.takes(batch.obs)
            and network.takes(batch.obs_next)
            and network.takes(states)
            and batch.obs.dtype == batch.obs_next.dtype == states.dtype
        )

    def update(
        self,
        batch: MiniBatch | StoredBatch,
        target: FlatNetwork,
        *,
        epochs: int,
        gradient_steps: int,
        sync_interval: int,
        double: bool,
        huber: bool,
        per_action: bool,
        coef: float,
        max_norm: float | None,
    ) -> tuple[float, float, float, float]:
        """Take all gradient steps; return the means of TD, total and consolidation loss, and drift.

        :param batch: a mini-batch for which :meth:`takes` holds.
        :param gradient_steps: those taken so far, which decide when the target network is updated.
        """
        network: Any = self._network
        optimizer: Any = self._optimizer
        given: Sequence[Any]
        if isinstance(batch, StoredBatch):
            take_steps, given, states = updates.update_stored, batch[:-1], batch.states
            size = len(batch.chosen)
        else:
            obs, obs_next = network.as_input(batch.obs), network.as_input(batch.obs_next)
            given = (obs, batch.act, batch.reward, batch.factor, obs_next)
            states = None if batch.states is None else network.as_input(batch.states)
            take_steps, size = updates.update, len(obs)
        if states is None:
            states = given[0][:0]
        count = size + len(states) // epochs
        if self._work is None or self._count != count:
            self._work, self._count = make_work(network.layout, count), count
        if len(self._td_errors) != size:
            self._td_errors = np.empty(size, np.float32)
        first, second = optimizer.columns
        known = take_steps(
            *given, states, network.values, target.values, optimizer.gradients, first, second,
            network.layout, self._work, epochs, optimizer.steps, gradient_steps, sync_interval,
            double, huber, per_action, coef, max_norm or 0.0, optimizer.kind, optimizer.numbers,
            self._td_errors, self._losses,
        )  # fmt: skip
        if not known:
            raise IndexError(
                f"actions from {batch.act.min()} to {batch.act.max()} do not fit a network with "
                f"{network.layout[-1, 1]}"
            )
        optimizer.advance(epochs)
        td_loss, loss, consolidation, drift = (loss / epochs for loss in self._losses.tolist())
        return td_loss, loss, consolidation, drift


def _steps_plainly(optim: torch.optim.Optimizer) -> bool:
    """Whether an optimizer has no option, hook or replaced method beyond its class's."""
    own, group = vars(optim), optim.param_groups[0]
    if own["_optimizer_step_pre_hooks"] or own["_optimizer_step_post_hooks"] or any(_GLOBAL_HOOKS):
        return False
    if "zero_grad" in own or any(map(group.get, _UNUSED)) or type(group["lr"]) is not float:
        return False
    return "step" not in own or hasattr(own["step"], "_wrapped_by_lr_sched")

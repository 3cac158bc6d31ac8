"""The updates of the bare loop."""

from copy import deepcopy
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from benchmarks.setups import Setup


class BareLearner:
    """The updates of DQN, MeDQN(R) and MeDQN(U), with no more network passes than they need."""

    def __init__(self, setup: Setup) -> None:
        value = setup.value
        self.network = setup.make_plain_network()
        if setup.is_atari:
            self.network = self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.target = deepcopy(self.network).requires_grad_(False)
        self._optimizer = make_fast_optimizer(self.network, value)
        self._parameters = list(self.network.parameters())
        self._batch_size = value.batch_size
        self.epochs = value.consolidation_epochs
        self.coef = value.lambda_end
        self._td_loss = F.huber_loss if value.huber else F.mse_loss
        self._max_grad_norm = getattr(value, "max_grad_norm", 0.0)

    def sync_target(self) -> None:
        """Copy the network to its target network."""
        self.target.load_state_dict(self.network.state_dict())

    def update(
        self, states: torch.Tensor, act_B: torch.Tensor, rew_B: torch.Tensor, factor_B: torch.Tensor
    ) -> None:
        """Take a gradient step for each epoch.

        :param states: the TD batch, each epoch's states to consolidate on, the TD batch's
            successors; in this order, so that passes over several of them need no copies.
        :param factor_B: factors of the successors' values.
        """
        count = self._batch_size
        with torch.no_grad():
            target_q = self.target(states[count:])
        return_B = target_q[-count:].amax(1).mul_(factor_B).add_(rew_B)
        act_B1 = act_B[:, None]
        for epoch in range(self.epochs):
            if not self.coef:
                online = states[:count]
            elif epoch == 0:
                online = states[: 2 * count]
            else:
                drawn = states[(1 + epoch) * count : (2 + epoch) * count]
                online = torch.cat((states[:count], drawn))
            q = self.network(online)
            loss = self._td_loss(q[:count].gather(1, act_B1).squeeze(1), return_B)
            if self.coef:
                held_to = target_q[epoch * count : (epoch + 1) * count]
                loss = loss + self.coef * F.mse_loss(q[count:], held_to)
            self._optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            if self._max_grad_norm:
                nn.utils.clip_grad_norm_(self._parameters, self._max_grad_norm)
            self._optimizer.step()


def make_fast_optimizer(network: nn.Module, value: Any) -> torch.optim.Optimizer:
    """Build the setting's optimizer in the fastest form that torch has on the CPU."""
    name = getattr(value, "optimizer", "adam")
    if name == "adam":
        return torch.optim.Adam(network.parameters(), lr=value.lr, fused=True)
    return torch.optim.RMSprop(
        network.parameters(), lr=value.lr, alpha=0.95, eps=0.01, centered=True, foreach=True
    )

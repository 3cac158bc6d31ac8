"""Stream-Q (Elsayed, Vasan and Mahmood 2024, arXiv:2410.14606): each transition is used once."""

from collections.abc import Iterable, Sequence
from math import sqrt
from typing import Any

import torch

from medqn_tianshou.algorithm.normalized import (
    Array,
    Moments,
    NormalizedQNetwork,
    evaluate,
    explore,
    load,
)


def overshooting_bounded_step(
    parameters: Iterable[torch.Tensor],
    traces: Sequence[torch.Tensor],
    error: float,
    *,
    lr: float,
    kappa: float,
) -> None:
    r"""Take the step of ObGD, Algorithm 3 of Stream-Q's paper.

    .. math:: M = \alpha \kappa \max(|\delta|, 1) \|z\|_1, \quad
        w \leftarrow w + \frac{\alpha}{\max(M, 1)} \delta z

    :param traces: the eligibility traces, one for each parameter.
    :param error: the TD error.
    """
    norm = sum(trace.abs().sum().item() for trace in traces)
    bound = lr * kappa * max(abs(error), 1.0) * norm
    with torch.no_grad():
        for parameter, trace in zip(parameters, traces, strict=True):
            parameter.add_(trace, alpha=lr / max(bound, 1.0) * error)


class StreamQ:
    """Stream Q(lambda): learns from each transition once, when it occurs.

    Watkins's traces are reset at the end of an episode and after a non-greedy action. Rewards are
    divided by the standard deviation of their discounted sum so far.
    """

    env_count, nbytes = 1, 0

    def __init__(
        self,
        network: NormalizedQNetwork,
        *,
        lr: float,
        gamma: float,
        decay: float = 0.8,
        kappa: float = 2.0,
    ) -> None:
        self.network = network
        self.gradient_steps = 0
        self._lr, self._gamma, self._decay, self._kappa = lr, gamma, decay, kappa
        self._parameters = list(network.parameters())
        self._traces = [torch.zeros_like(parameter) for parameter in self._parameters]
        self._return = 0.0
        self._returns = Moments(())
        self._is_first = True
        self._last: tuple[torch.Tensor, int, bool]

    def act(self, obs_E: Array, eps: float) -> Array:
        """Choose an action, epsilon-greedily."""
        if self._is_first:  # others were counted as successors
            self._count(obs_E)
        inputs = self.network.normalized(obs_E)
        with torch.no_grad():
            q_A = self.network.layers(inputs).numpy()
        act_E = explore(q_A, eps)
        self._last = (inputs, int(act_E[0]), bool(q_A[0, act_E[0]] == q_A[0].max()))
        return act_E

    def observe(self, rewards_E: Array, dones_E: Array, next_obs_E: Array) -> float | None:
        """Learn from the transition; return the squared TD error."""
        inputs, action, greedy = self._last
        done, gamma = bool(dones_E[0]), self._gamma
        # As in the released code, the reward that ends an episode begins the next sum.
        self._return = float(rewards_E[0]) + gamma * self._return * (not done)
        self._returns.update(torch.tensor(self._return, dtype=torch.float64))
        reward = float(rewards_E[0]) / sqrt(float(self._returns.variance) + 1e-8)
        self._count(next_obs_E)
        value = self.network.layers(inputs)[0, action]
        best = 0.0 if done else float(evaluate(self.network, next_obs_E).max())
        error = reward + gamma * best - float(value.item())
        grads = torch.autograd.grad(value, self._parameters)
        for trace, grad in zip(self._traces, grads, strict=True):
            trace.mul_(gamma * self._decay).add_(grad)
        overshooting_bounded_step(
            self._parameters, self._traces, error, lr=self._lr, kappa=self._kappa
        )
        self.gradient_steps += 1
        if done or not greedy:
            for trace in self._traces:
                trace.zero_()
        self._is_first = done
        return error * error

    def _count(self, obs_E: Array) -> None:
        moments: Any = self.network.moments
        moments.update(torch.as_tensor(obs_E[0]).double())

    is_between_rollouts = True

    def state_dict(self) -> dict[str, Any]:
        """Return network, traces, and the scale of the rewards."""
        return {
            "network": dict(self.network.state_dict()),
            "traces": list(self._traces),
            "return": self._return,
            "is_first": self._is_first,
            "returns": dict(self._returns.state_dict()),
            "gradient_steps": self.gradient_steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what :meth:`state_dict` returned."""
        load(self.network, state["network"])
        load(self._returns, state["returns"])
        for trace, saved in zip(self._traces, state["traces"], strict=True):
            trace.copy_(torch.as_tensor(saved))
        self._return, self.gradient_steps = float(state["return"]), int(state["gradient_steps"])
        self._is_first = bool(state.get("is_first", False))  # earlier versions did not save it

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
        self._last: tuple[torch.Tensor, int, bool]

    def act(self, obs_E: Array, eps: float) -> Array:
        """Choose an action, epsilon-greedily."""
        obs = torch.as_tensor(obs_E).float()
        moments: Any = self.network.moments
        moments.update(obs[0])
        q_A = evaluate(self.network, obs_E)
        act_E = explore(q_A, eps)
        self._last = (obs, int(act_E[0]), bool(q_A[0, act_E[0]] == q_A[0].max()))
        return act_E

    def observe(self, rewards_E: Array, dones_E: Array, next_obs_E: Array) -> float | None:
        """Learn from the transition; return the squared TD error."""
        obs, action, greedy = self._last
        done, gamma = bool(dones_E[0]), self._gamma
        self._return = float(rewards_E[0]) + gamma * self._return
        self._returns.update(torch.tensor(self._return))
        reward = float(rewards_E[0]) / sqrt(float(self._returns.variance) + 1e-8)
        value = self.network(obs)[0][0, action]
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
        if done:
            self._return = 0.0
        return error * error

    is_between_rollouts = True

    def state_dict(self) -> dict[str, Any]:
        """Return network, traces, and the scale of the rewards."""
        return {
            "network": dict(self.network.state_dict()),
            "traces": list(self._traces),
            "return": self._return,
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

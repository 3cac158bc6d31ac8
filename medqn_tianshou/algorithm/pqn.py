"""PQN (Gallici et al. 2024, arXiv:2407.04811): no replay buffer, no target network."""

from typing import Any

import numpy as np
import torch
from torch import nn

from medqn_tianshou.algorithm.normalized import Array, NormalizedQNetwork, evaluate, explore, load


def lambda_returns(
    rewards_TE: Array, dones_TE: Array, next_values_TE: Array, *, gamma: float, decay: float
) -> Array:
    r"""Q(lambda) targets of a rollout, from its end backwards.

    .. math:: R_t = r_t + \gamma (1 - d_t) \left(\lambda R_{t+1} + (1 - \lambda)
        \max_a Q(s_{t+1}, a)\right)

    The last step of the rollout bootstraps from the value alone.

    :param next_values_TE: the largest value of each successor.
    :param decay: the paper's lambda, which has nothing to do with that of consolidation.
    """
    returns_TE = np.empty_like(next_values_TE)
    after_E = next_values_TE[-1]
    for step in reversed(range(len(rewards_TE))):
        mixed_E = decay * after_E + (1 - decay) * next_values_TE[step]
        after_E = rewards_TE[step] + gamma * (1 - dones_TE[step]) * mixed_E
        returns_TE[step] = after_E
    return returns_TE


class PQN:
    """Parallel Q-network: Q(lambda) targets over rollouts of parallel environments, and RAdam.

    :param total_env_steps: over which the learning rate falls to 0.
    :param rollout: steps of each environment between updates.
    :param minibatches: gradient steps per epoch.
    """

    def __init__(
        self,
        network: NormalizedQNetwork,
        *,
        lr: float,
        gamma: float,
        total_env_steps: int,
        max_grad_norm: float = 10.0,
        env_count: int = 128,
        rollout: int = 32,
        minibatches: int = 32,
        epochs: int = 2,
        decay: float = 0.65,
    ) -> None:
        self.network, self.env_count = network, env_count
        self.optim = torch.optim.RAdam(network.parameters(), lr=lr)
        self.gradient_steps, self.nbytes = 0, 0
        self._lr, self._gamma, self._decay, self._max_norm = lr, gamma, decay, max_grad_norm
        self._rollout, self._minibatches, self._epochs = rollout, minibatches, epochs
        self._updates = max(total_env_steps // (env_count * rollout), 1) * epochs * minibatches
        self._steps: list[tuple[Array, ...]] = []
        self._last: tuple[Array, Array]

    def act(self, obs_E: Array, eps: float) -> Array:
        """Choose actions, epsilon-greedily."""
        act_E = explore(evaluate(self.network, obs_E), eps)
        self._last = (obs_E, act_E)
        return act_E

    def observe(self, rewards_E: Array, dones_E: Array, next_obs_E: Array) -> float | None:
        """Store the step; update when the rollout is full."""
        values_E = evaluate(self.network, next_obs_E).max(axis=1)
        self._steps.append((*self._last, rewards_E, dones_E.astype(np.float32), values_E))
        if len(self._steps) < self._rollout:
            return None
        obs, act, rewards, dones, values = (np.stack(each) for each in zip(*self._steps))  # noqa: B905
        self._steps.clear()
        self.nbytes = sum(array.nbytes for array in (obs, act, rewards, dones, values))
        options = {"gamma": self._gamma, "decay": self._decay}
        returns = lambda_returns(rewards.astype(np.float32), dones, values, **options)
        count = self._rollout * self.env_count
        batch = [
            torch.from_numpy(each.reshape(count, *each.shape[2:])) for each in (obs, act, returns)
        ]
        losses = [
            self._step(*(each[chosen] for each in batch))
            for _ in range(self._epochs)
            for chosen in torch.randperm(count).chunk(self._minibatches)
        ]
        return float(np.mean(losses))

    def _step(self, obs: torch.Tensor, act: torch.Tensor, returns: torch.Tensor) -> float:
        left = max(1 - self.gradient_steps / self._updates, 0.0)
        self.optim.param_groups[0]["lr"] = self._lr * left
        q_B = self.network(obs)[0].gather(1, act[:, None])[:, 0]
        loss = 0.5 * (q_B - returns).pow(2).mean()
        self.optim.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.network.parameters(), self._max_norm)
        self.optim.step()
        self.gradient_steps += 1
        return float(loss.item())

    def state_dict(self) -> dict[str, Any]:
        """Return network, optimizer and counter, which are the whole state between rollouts."""
        entries = self.optim.state_dict()["state"]
        return {
            "network": dict(self.network.state_dict()),
            "optimizer": {str(index): dict(entry) for index, entry in entries.items()},
            "gradient_steps": self.gradient_steps,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from what :meth:`state_dict` returned."""
        load(self.network, state["network"])
        groups = self.optim.state_dict()["param_groups"]
        entries = {
            int(index): {name: torch.as_tensor(value).clone() for name, value in entry.items()}
            for index, entry in state["optimizer"].items()
        }
        self.optim.load_state_dict({"state": entries, "param_groups": groups})
        self.gradient_steps = int(state["gradient_steps"])

    @property
    def is_between_rollouts(self) -> bool:
        """Whether :meth:`state_dict` is the whole state now."""
        return not self._steps

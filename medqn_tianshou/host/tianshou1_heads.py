"""Consolidation for the distributional policies of Tianshou 1.2: a mixin over their ``learn``."""

from typing import Any, ClassVar

import torch
from tianshou.data import Batch
from tianshou.data.types import RolloutBatchProtocol
from tianshou.policy import C51Policy, IQNPolicy, QRDQNPolicy, RainbowPolicy

from medqn_tianshou.algorithm.adaptive import relative_drift
from medqn_tianshou.algorithm.distances import categorical_kl_loss, wasserstein_loss
from medqn_tianshou.algorithm.heads import ATOMS, QUANTILES, V_MAX, V_MIN
from medqn_tianshou.algorithm.samplers import network_input
from medqn_tianshou.host.tianshou1 import MeDQNPolicy, MeDQNTrainingStats


class ConsolidatedDistribution(MeDQNPolicy):
    """Adds consolidation to the ``learn`` of the Tianshou policy that follows in the bases.

    That ``learn`` runs unchanged. A hook of the optimizer, between the backward pass and the step,
    adds the gradient of lambda times the distance between the distributions of the two networks.
    With coefficient 0 there is no hook, and each policy learns exactly Tianshou's parameters.

    Unlike in :class:`MeDQNPolicy`, TD loss and targets are Tianshou's: targets always use double
    DQN, and C51 recomputes its target distribution in each epoch.

    :param options: the arguments of :class:`MeDQNPolicy` and of the host, except that
        ``consolidation_loss`` follows from the policy.
    """

    distance: ClassVar[Any]
    """The distance between distributions (states, actions, values)."""

    def __init__(self, **options: Any) -> None:
        if options.get("consolidation_loss", "mse") != "mse":
            kind = options["consolidation_loss"]
            raise ValueError(
                f"consolidation_loss={kind!r} is for action values; leave it out: "
                f"{type(self).__name__} has a distance between distributions"
            )
        super().__init__(**options)

    def learn(self, batch: RolloutBatchProtocol, *args: Any, **kwargs: Any) -> MeDQNTrainingStats:
        """Take E gradient steps of the host on a batch, each with consolidation."""
        self._warn_of_unknown_time()
        host: Any = super(MeDQNPolicy, self)
        weight_B = batch.pop("weight", None)
        steps: list[list[float]] = []
        for _ in range(self.consolidation_epochs):
            batch.pop("weight", None)  # the host leaves new priorities there
            if weight_B is not None:
                batch.weight = weight_B
            of_states: list[float] = []
            hook = None
            if self._coef > 0 or self.max_grad_norm is not None:
                hook = self.optim.register_step_pre_hook(
                    lambda *_, found=of_states: found.extend(self._consolidate(len(batch.act)))
                )
            try:
                td_loss: float = host.learn(batch, *args, **kwargs).loss
            finally:
                if hook is not None:
                    hook.remove()
            total = td_loss + (self._coef * of_states[0] if of_states else 0.0)
            steps.append([td_loss, total, *of_states])
        return self._stats(*torch.tensor(steps, dtype=torch.float64).mean(dim=0).tolist())

    def _consolidate(self, batch_size: int) -> list[float]:
        """Add the gradient of the consolidation; return its loss and the drift."""
        terms = []
        if self._coef > 0:
            size = self.consolidation_batch_size or batch_size
            obs = self.state_sampler.sample(size, self._buffer())
            online_BAN, target_BAN = self._distributions(Batch(obs=obs, info=Batch()))
            loss = type(self).distance(
                online_BAN, target_BAN, reduction=self.consolidation_reduction
            )
            (self._coef * loss).backward()
            q_BA, target_q_BA = (self.compute_q_value(d, None) for d in (online_BAN, target_BAN))
            terms = [loss.item(), relative_drift(q_BA, target_q_BA).item()]
        if self.max_grad_norm is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_grad_norm)
        return terms

    def _distributions(self, states: Any) -> tuple[torch.Tensor, torch.Tensor]:
        with torch.no_grad():
            target_BAN = self(states, model="model_old").logits
        return self(states).logits, target_BAN


class MeQRDQNPolicy(ConsolidatedDistribution, QRDQNPolicy[Any]):
    """Tianshou's QRDQNPolicy with consolidation by the Wasserstein distance of the quantiles."""

    distance = staticmethod(wasserstein_loss)


class MeC51Policy(ConsolidatedDistribution, C51Policy[Any]):
    """Tianshou's C51Policy with consolidation by the KL divergence of the categories."""

    distance = staticmethod(categorical_kl_loss)


class MeRainbowPolicy(ConsolidatedDistribution, RainbowPolicy[Any]):
    """Tianshou's RainbowPolicy with the consolidation of :class:`MeC51Policy`.

    Consolidation compares networks without noise: each has noise of its own in its noisy layers.
    """

    distance = staticmethod(categorical_kl_loss)

    def _distributions(self, states: Any) -> tuple[torch.Tensor, torch.Tensor]:
        networks = [(network, network.training) for network in (self.model, self.model_old)]
        for network, _ in networks:
            network.eval()
        try:
            return super()._distributions(states)
        finally:
            for network, training in networks:
                network.train(training)


class MeIQNPolicy(ConsolidatedDistribution, IQNPolicy[Any]):
    """Tianshou's IQNPolicy with consolidation at the same sampled fractions in both networks.

    Its network must take these as ``taus``, as :class:`ImplicitQuantileNetwork` does.
    """

    distance = staticmethod(wasserstein_loss)

    def _distributions(self, states: Any) -> tuple[torch.Tensor, torch.Tensor]:
        obs = network_input(states.obs)
        device = next(self.model.parameters()).device
        taus = torch.rand(len(obs), self.online_sample_size, device=device)
        with torch.no_grad():
            (target_BAN, _), _ = self.model_old(obs, taus=taus)
        (online_BAN, _), _ = self.model(obs, taus=taus)
        return online_BAN, target_BAN


HEADS: dict[str, tuple[type[ConsolidatedDistribution], dict[str, Any]]] = {
    "qr": (MeQRDQNPolicy, {"num_quantiles": QUANTILES}),
    "c51": (MeC51Policy, {"num_atoms": ATOMS, "v_min": V_MIN, "v_max": V_MAX}),
    "iqn": (MeIQNPolicy, {}),
}
"""The policy of each distributional head, and its options."""

"""Which networks the fast paths may treat as they please, and a cheap check that it still holds.

The fast paths evaluate several batches in one pass, skip passes whose result nobody uses, and run
small networks through compiled code. The results are the same only for networks whose behaviour is
known in full: exactly our own classes and plain layers, with no hook and no replaced method.
"""

from collections.abc import Sequence
from typing import Self
from weakref import WeakKeyDictionary

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from medqn_tianshou.algorithm.networks import (
    MinAtarQNetwork,
    MLPQNetwork,
    NatureQNetwork,
    QNetwork,
)
from medqn_tianshou.fast.compiled import CompiledNetwork

_NETWORKS = {QNetwork, NatureQNetwork, MinAtarQNetwork, MLPQNetwork}
_LAYERS = {nn.Sequential, nn.Flatten, nn.Linear, nn.Conv2d, nn.ReLU}
_HOOKS = (
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks",
)  # fmt: skip
_GLOBAL_HOOKS = [
    getattr(torch_module, f"_global{name}") for name in (*_HOOKS, "_forward_hooks_always_called")
]
_REPLACEMENTS = ("forward", "train", "_compiled_call_impl")
"""Attributes that only an instance has whose methods were replaced, or given to torch.compile."""


class KnownNetwork:
    """A network of plain layers, each of which does what its class does.

    :param network: a network for which :meth:`of` found this to be true.
    """

    def __init__(self, network: QNetwork) -> None:
        # A reference to the network would keep it alive: hold on to its attributes instead.
        modules = list(network.modules())
        self._attributes = [vars(module) for module in modules]
        self._hooks = [attributes[name] for attributes in self._attributes for name in _HOOKS]
        self._hooks += _GLOBAL_HOOKS
        self._tables = [m._parameters if m._parameters else m._modules for m in modules]
        # The entries are kept alive, so that no other object gets the id of one of them.
        self._entries = [entry for table in self._tables for entry in table.values()]
        self._ids = list(map(id, self._entries))
        self.parameters: Sequence[nn.Parameter] = list(network.parameters())
        self._addresses = [parameter.data_ptr() for parameter in self.parameters]
        self.compiled = CompiledNetwork.of(network)

    @classmethod
    def of(cls, network: nn.Module) -> Self | None:
        """Inspect a network; return None where it is not known in full."""
        if type(network) not in _NETWORKS:
            return None
        _, *layers = network.modules()
        if any(type(layer) not in _LAYERS for layer in layers):
            return None
        known = cls(network)  # type: ignore[arg-type]
        return known if known.is_current else None

    @property
    def is_current(self) -> bool:
        """Whether modules, parameters and their memory are the same, and nothing is hooked in."""
        return (
            not any(self._hooks)
            and [id(entry) for table in self._tables for entry in table.values()] == self._ids
            and [parameter.data_ptr() for parameter in self.parameters] == self._addresses
            and not any(map(_has_replacement, self._attributes))
        )

    @property
    def is_trained_plainly(self) -> bool:
        """Whether every parameter takes its gradient, and no hook sees or changes it."""
        for parameter in self.parameters:
            if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
                return False
            if not parameter.requires_grad:
                return False
        return True

    def train(self, mode: bool) -> None:
        """Switch all modules to training or evaluation, as their ``train`` does."""
        for attributes in self._attributes:
            attributes["training"] = mode

    def is_optimized_by(self, optim: torch.optim.Optimizer) -> bool:
        """Whether an optimizer updates exactly the parameters of this network."""
        params = [parameter for group in optim.param_groups for parameter in group["params"]]
        return list(map(id, params)) == list(map(id, self.parameters))


def _has_replacement(attributes: dict[str, object]) -> bool:
    return not attributes.keys().isdisjoint(_REPLACEMENTS)


class KnownNetworks:
    """Remembers the result of inspecting networks; a copy or pickle starts empty."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[nn.Module, KnownNetwork | None] = WeakKeyDictionary()

    def __reduce__(self) -> tuple[type[Self], tuple[()]]:
        return type(self), ()

    def of(self, network: nn.Module) -> KnownNetwork | None:
        """Return what is known of a network; None where the plain code must be used.

        A network found to be unknown stays so.
        """
        try:
            known = self._known[network]
        except KeyError:
            known = self._known[network] = KnownNetwork.of(network)
        if known is not None and not known.is_current:
            known = self._known[network] = KnownNetwork.of(network)
        return known

"""Decides which networks the fast paths support, and checks cheaply that this is still true.

The fast paths evaluate several batches in one pass, skip passes whose results are unused, and run
small networks in compiled code. The results are the same only for networks whose behaviour is
completely known: our own classes and plain layers, without hooks or replaced methods.
"""

from collections.abc import Sequence
from functools import partial
from itertools import chain
from operator import attrgetter, is_
from typing import Any, Self, TypeGuard, TypeVar

import torch
from torch import nn
from torch.nn.modules import module as torch_module

from medqn_tianshou.algorithm.networks import (
    MinAtarQNetwork,
    MLPQNetwork,
    NatureQNetwork,
    QNetwork,
)
from medqn_tianshou.fast.flat import FlatNetwork

_NETWORKS = {QNetwork, NatureQNetwork, MinAtarQNetwork, MLPQNetwork}
_LAYERS = {nn.Sequential, nn.Flatten, nn.Linear, nn.Conv2d, nn.ReLU}
_HOOKS = (
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks",
)  # fmt: skip
_GLOBAL_HOOKS = [
    getattr(torch_module, f"_global{name}") for name in (*_HOOKS, "_forward_hooks_always_called")
]
_REPLACEMENTS = {"forward", "embed", "train", "_compiled_call_impl"}
"""Attributes of an object that replace methods of its class."""
Sampler = TypeVar("Sampler")
_METHODS = {
    (kind, name): getattr(kind, name)
    for name, kinds in (("forward", _NETWORKS | _LAYERS), ("embed", _NETWORKS))
    for kind in kinds
}
"""Methods of the known classes, which a user may replace."""
_address = torch.Tensor.data_ptr
_MOST_NETWORKS = 8


class KnownMethods:
    """Methods of a policy that a fast path replaces.

    :param methods: by name, the methods of the class for which the fast path was written.
    """

    def __init__(self, **methods: Any) -> None:
        self._names = frozenset(methods)
        self._read, self._methods = attrgetter(*methods), tuple(methods.values())

    def are_kept_by(self, policy: nn.Module) -> bool:
        """Whether the methods of a policy are these, and it has no hooks."""
        own = vars(policy)
        return (
            self._read(type(policy)) == self._methods
            and own.keys().isdisjoint(self._names)
            and not (own["_forward_hooks"] or own["_forward_pre_hooks"])
        )


def samples_as(sampler: Any, kind: type[Sampler]) -> TypeGuard[Sampler]:
    """Whether a sampler is of exactly this class, and has not replaced its ``sample``."""
    return type(sampler) is kind and "sample" not in vars(sampler)


class KnownNetwork:
    """A network of plain layers with unmodified behaviour.

    :param network: a network for which :meth:`of` found this to be true.
    :param flatten: whether to lay out a small network for compiled code.
    """

    def __init__(self, network: QNetwork, *, flatten: bool) -> None:
        # A reference to the network would keep it alive: keep its attributes instead.
        modules = list(network.modules())
        self._attributes = [vars(module) for module in modules]
        self._hooks = [attributes[name] for attributes in self._attributes for name in _HOOKS]
        self._hooks += _GLOBAL_HOOKS
        tables = [m._parameters if m._parameters else m._modules for m in modules]
        self._views = [table.values() for table in tables]
        self._sized = [*self._attributes, *self._views]
        self._sizes = list(map(len, self._sized))
        self._entries = list(chain.from_iterable(self._views))
        self.parameters: Sequence[nn.Parameter] = list(network.parameters())
        self.flat = FlatNetwork.of(network) if flatten else None
        """For compiled code; None where that does not apply."""
        self._addresses = list(map(_address, self.parameters))
        kinds = {type(module) for module in modules}
        own = {key: method for key, method in _METHODS.items() if key[0] in kinds}
        self._classes, self._names = zip(*own, strict=True)
        self._methods = list(own.values())

    @classmethod
    def of(cls, network: nn.Module, *, flatten: bool) -> Self | None:
        """Inspect a network; return None if it is not completely known."""
        if type(network) not in _NETWORKS:
            return None
        _, *layers = modules = list(network.modules())
        if any(type(layer) not in _LAYERS for layer in layers):
            return None
        if any(not _REPLACEMENTS.isdisjoint(vars(module)) for module in modules):
            return None
        known = cls(network, flatten=flatten)  # type: ignore[arg-type]
        return known if known.is_current else None

    @property
    def is_current(self) -> bool:
        """Whether modules, parameters and their memory are the same, and nothing is hooked in."""
        # Written for speed: it runs several times for each environment step. A replaced method is
        # one more attribute of its object.
        return (
            all(map(is_, map(getattr, self._classes, self._names), self._methods))
            and not any(self._hooks)
            and list(map(len, self._sized)) == self._sizes
            and all(map(is_, chain.from_iterable(self._views), self._entries))
            and list(map(_address, self.parameters)) == self._addresses
        )

    @property
    def is_trained_plainly(self) -> bool:
        """Whether every parameter has a gradient, without hooks."""
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
        groups = optim.param_groups
        params = groups[0]["params"] if len(groups) == 1 else []
        return len(params) == len(self.parameters) and all(map(is_, params, self.parameters))


class KnownNetworks:
    """Caches the inspection of networks; a copy or pickle starts empty.

    :param flatten: whether to lay out small networks for compiled code.
    """

    def __init__(self, *, flatten: bool) -> None:
        self._flatten = flatten
        self._known: dict[int, tuple[nn.Module, KnownNetwork | None]] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), flatten=self._flatten), ()

    def of(self, network: nn.Module) -> KnownNetwork | None:
        """Return the known network; None if the plain code must run.

        A network found to be unknown stays so.
        """
        entry = self._known.get(id(network))
        if entry is None or (entry[1] is not None and not entry[1].is_current):
            if len(self._known) == _MOST_NETWORKS:  # those of a policy, and replaced ones
                self._known.clear()
            known = KnownNetwork.of(network, flatten=self._flatten)
            entry = self._known[id(network)] = (network, known)
        return entry[1]

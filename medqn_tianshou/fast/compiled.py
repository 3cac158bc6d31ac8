"""Gradient steps of small networks on the CPU through compiled code.

A step of MinAtar takes microseconds, and a gradient step on 32 states of MountainCar needs a few
hundred thousand multiplications. torch's calls take many times as long as that arithmetic. Here
a pass is a few calls of compiled code on the very memory of the parameters; products of large
matrices are left to torch. Values and gradients are torch's up to rounding.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from medqn_tianshou.algorithm.networks import QNetwork
from medqn_tianshou.fast import kernels

Floats = NDArray[np.float32]

_MOST_WEIGHTS = 1_000_000
"""Above it, torch's own overhead is small beside the work."""
_MOST_SMALL_WEIGHTS = 8_192
"""Up to here, in one layer, loops are quicker than a library's product of matrices."""


class CompiledNetwork:
    """Passes of a stack of linear layers with ReLU between them, after at most one convolution.

    :param convolution: the first layer, or None.
    :param dense: the linear layers.
    """

    def __init__(self, convolution: nn.Conv2d | None, dense: list[nn.Linear]) -> None:
        layers: list[Any] = [layer for layer in (convolution, *dense) if layer is not None]
        self.parameters = [p for layer in layers for p in (layer.weight, layer.bias)]
        self.convolution = None if convolution is None else _arrays(convolution)
        self.weights = tuple(_arrays(layer)[0] for layer in dense)
        self.biases = tuple(_arrays(layer)[1] for layer in dense)
        self.is_small = all(weight.size <= _MOST_SMALL_WEIGHTS for weight in self.weights)
        self._shape: tuple[int, ...] = ()

    @classmethod
    def of(cls, network: QNetwork) -> Self | None:
        """Compile a network of plain layers; return None where that is impossible or of no use."""
        parameters = list(network.parameters())
        if sum(map(torch.numel, parameters)) > _MOST_WEIGHTS or not all(map(_is_plain, parameters)):
            return None
        features, advantage = network.features, network.advantage
        if network.value is not None or not isinstance(features, nn.Sequential | nn.Flatten):
            return None
        layers = list(advantage) if isinstance(advantage, nn.Sequential) else []
        convolution, *flat = _convolution_first(features)
        dense: list[Any] = layers[::2]
        types = [type(layer) for layer in layers]
        if flat != [nn.Flatten] or types != ([nn.Linear, nn.ReLU] * len(dense))[:-1]:
            return None
        if any(layer.bias is None for layer in (convolution, *dense) if layer is not None):
            return None
        if any(one.out_features != other.in_features for one, other in pairwise(dense)):
            return None
        compiled = cls(convolution, dense)
        # A layer that occurs twice, or one that the passes know nothing of, would be missed.
        is_whole = list(map(id, compiled.parameters)) == list(map(id, parameters))
        return compiled if is_whole else None

    def takes(self, obs: Any) -> bool:
        """Whether these observations fit the network; bytes do not, they may have to be scaled."""
        if not isinstance(obs, np.ndarray) or obs.dtype.kind not in "biuf" or obs.dtype == np.uint8:
            return False
        if obs.shape[1:] != self._shape:
            if (
                obs.ndim < 2
                or _feature_count(obs.shape, self.convolution) != self.weights[0].shape[1]
            ):
                return False
            self._shape = obs.shape[1:]
        return len(obs) > 0

    def act_values(self, obs: NDArray[Any]) -> Floats:
        """Give the action values of a few observations, for which nothing is prepared.

        :param obs: a batch of observations.
        """
        if self.convolution is None:
            return np.asarray(kernels.dense_values(_flat(obs), self.weights, self.biases))
        if obs.dtype != np.bool_:
            obs = obs.astype(np.float32)
        return np.asarray(kernels.grid_values(obs, *self.convolution, self.weights, self.biases))

    def forward(self, obs: NDArray[Any]) -> tuple[Floats, list[Any]]:
        """Give the action values, and what the backward pass needs."""
        if self.convolution is None:
            return self._dense_forward(_flat(obs), [])
        weight, bias = self.convolution
        outputs, _, *size = weight.shape
        patches = kernels.patches(np.ascontiguousarray(obs), *size)
        result_OP = _tensor(weight).view(outputs, -1) @ _tensor(patches)
        features_BF = kernels.rectified_features(result_OP.numpy(), bias, len(obs))
        return self._dense_forward(features_BF, [patches])

    def backward(self, grad_BA: Floats, kept: list[Any]) -> list[torch.Tensor]:
        """Give the gradient of each parameter.

        :param grad_BA: the gradient of the action values.
        :param kept: what the forward pass kept.
        """
        if self.convolution is None:
            return self._dense_backward(grad_BA, kept, to_input=False)[0]
        patches, *inputs = kept
        gradients, grad_features_BF = self._dense_backward(grad_BA, inputs, to_input=True)
        weight = self.convolution[0]
        grad_OP, grad_bias = kernels.place_gradients(grad_features_BF, inputs[0], len(weight))
        grad_weight = (_tensor(grad_OP) @ _tensor(patches).t()).view(weight.shape)
        return [grad_weight, _tensor(grad_bias), *gradients]

    def _dense_forward(self, values: Floats, kept: list[Any]) -> tuple[Floats, list[Any]]:
        if self.is_small:
            *inputs, q_BA = kernels.dense_forward(values, self.weights, self.biases)
            return q_BA, [*kept, *inputs]
        last = len(self.weights) - 1
        current = _tensor(values)
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            kept.append(current.numpy())
            current = torch.addmm(_tensor(bias), current, _tensor(weight).t())
            if layer < last:
                current.relu_()
        return current.numpy(), kept

    def _dense_backward(
        self, grad_BA: Floats, inputs: list[Floats], to_input: bool
    ) -> tuple[list[torch.Tensor], Floats]:
        """Give the gradients of weights and biases in turn, and of the input, if that is wanted."""
        if self.is_small:
            gradients, grad_input = kernels.dense_backward(
                grad_BA, tuple(inputs), self.weights, to_input
            )
            return [_tensor(gradient) for pair in gradients for gradient in pair], grad_input
        grad = _tensor(grad_BA)
        pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        for layer in reversed(range(len(self.weights))):
            pairs.append((grad.t() @ _tensor(inputs[layer]), grad.sum(0)))
            if layer or to_input:
                grad = grad @ _tensor(self.weights[layer])
            if layer:
                grad.mul_(_tensor(inputs[layer]) > 0)
        return [tensor for pair in reversed(pairs) for tensor in pair], grad.numpy()


@dataclass(frozen=True, kw_only=True)
class CompiledLoss:
    """MeDQN's loss, with squared or Huber TD errors and squared consolidation.

    :param huber: whether the TD loss is Huber's.
    :param per_action: whether consolidation is the mean over actions, not their sum.
    """

    huber: bool
    per_action: bool

    def differentiate(
        self,
        network: CompiledNetwork,
        obs: NDArray[Any],
        act_B: NDArray[np.int_],
        returns_B: Floats,
        target_q_SA: Floats,
        coef: float,
    ) -> tuple[float, float, Floats]:
        """Give the parameters the gradient of the loss.

        :param network: the Q network.
        :param obs: observations of the TD batch, then the states to consolidate on.
        :param act_B: actions.
        :param returns_B: TD targets.
        :param target_q_SA: what the target network says of the states; may be empty.
        :param coef: weight of consolidation.
        :return: TD loss, consolidation loss, and TD errors.
        """
        q_BA, kept = network.forward(obs)
        td_loss, consolidation_loss, error_B, grad_BA = kernels.loss_gradient(
            q_BA, act_B, returns_B, target_q_SA, coef, self.huber, self.per_action
        )
        gradients = network.backward(grad_BA, kept)
        for parameter, gradient in zip(network.parameters, gradients, strict=True):
            parameter.grad = gradient
        return td_loss, consolidation_loss, error_B


_tensor = torch.from_numpy


def _flat(obs: NDArray[Any]) -> Floats:
    return np.ascontiguousarray(obs, np.float32).reshape(len(obs), -1)


def _is_plain(parameter: nn.Parameter) -> bool:
    is_float = parameter.dtype == torch.float32
    return parameter.device.type == "cpu" and is_float and parameter.is_contiguous()


def _arrays(layer: nn.Conv2d | nn.Linear) -> tuple[Floats, Floats]:
    bias: Any = layer.bias
    return layer.weight.detach().numpy(), bias.detach().numpy()


def _feature_count(shape: tuple[int, ...], convolution: tuple[Floats, Floats] | None) -> int:
    """How many features the first linear layer gets of each observation; 0 where none fit."""
    if convolution is None:
        return prod(shape[1:])
    outputs, channels, *size = convolution[0].shape
    if len(shape) != 4 or shape[1] != channels:
        return 0
    places = [cells - kernel + 1 for cells, kernel in zip(shape[2:], size, strict=True)]
    return int(outputs * prod(places)) if min(places) > 0 else 0


def _convolution_first(features: Iterable[nn.Module] | nn.Flatten) -> list[Any]:
    """Return the convolution that features begin with, or None, and the types of other layers."""
    layers = [features] if isinstance(features, nn.Flatten) else list(features)
    if any(type(x) is nn.Flatten and (x.start_dim, x.end_dim) != (1, -1) for x in layers):
        return [None]
    if len(layers) == 3 and type(layers[0]) is nn.Conv2d and type(layers[1]) is nn.ReLU:
        first = layers[0]
        is_simple = first.stride == first.dilation == (1, 1) and first.padding == (0, 0)
        if is_simple and first.groups == 1:
            return [first, type(layers[2])]
    return [None, *map(type, layers)]

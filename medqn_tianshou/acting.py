"""Choosing actions, for small networks on the CPU through compiled code."""

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import nn

from medqn_tianshou.networks import QNetwork

Floats = NDArray[np.float32]

_MOST_WEIGHTS = 1_000_000
"""Above it, torch's own overhead is small beside the work."""


_EPS_IS_ZERO = 1e-8
"""Below it Tianshou does not explore, nor draw random numbers for it."""


class Actor:
    """Chooses actions as ``forward`` and ``exploration_noise`` of Tianshou's DQN do together.

    :param action_count: number of actions.
    """

    def __init__(self, action_count: int) -> None:
        self._action_count = action_count
        self._compiled: dict[nn.Module, CompiledForward | None] = {}

    def choose(self, network: nn.Module, obs: NDArray[Any], eps: float) -> NDArray[np.int64]:
        """Choose actions, with the random draws that Tianshou makes, in its order.

        :param network: the Q network; not asked where all actions are random.
        :param obs: a batch of observations.
        :param eps: the exploration rate.
        """
        explores = abs(eps) > _EPS_IS_ZERO
        if explores:
            is_random = np.random.rand(len(obs)) < eps
            drawn: NDArray[np.int64] = np.random.rand(len(obs), self._action_count).argmax(1)
            random_count = np.count_nonzero(is_random)
            if random_count == len(obs):
                return drawn
        forward = self.compiled(network)
        actions: NDArray[np.int64]
        if forward is not None and obs.dtype != np.uint8:
            actions = forward(obs).argmax(1)
        else:
            with torch.inference_mode():
                actions = network(obs, state=None, info={})[0].cpu().numpy().argmax(1)
        if explores and random_count:
            actions[is_random] = drawn[is_random]
        return actions

    def compiled(self, network: nn.Module) -> "CompiledForward | None":
        """The compiled forward pass of a network, if it has one."""
        forward = self._compiled.get(network)
        if network not in self._compiled or (forward is not None and not forward.is_current):
            forward = self._compiled[network] = CompiledForward.of(network)
        return forward


class CompiledForward:
    """The forward pass of a small :class:`QNetwork`, on the very memory of its parameters.

    A step of MinAtar takes microseconds, and torch's calls for one state ten times as long. The
    values are torch's up to rounding.

    :param network: the network.
    :param convolution: its first layer, or None.
    :param dense: its linear layers.
    """

    def __init__(
        self, network: QNetwork, convolution: nn.Conv2d | None, dense: list[nn.Linear]
    ) -> None:
        # A module keeps these two for life, so that looking at them needs no look at the module.
        self._hooks = [
            hooks
            for module in network.modules()
            for hooks in (module._forward_hooks, module._forward_pre_hooks)
        ]
        layers: list[Any] = [layer for layer in (convolution, *dense) if layer is not None]
        self._sources = [(layer, layer.weight, layer.weight.data_ptr()) for layer in layers]
        self._convolution = None if convolution is None else _arrays(convolution)
        self._weights = tuple(_arrays(layer)[0] for layer in dense)
        self._biases = tuple(_arrays(layer)[1] for layer in dense)

    @classmethod
    def of(cls, network: nn.Module) -> Self | None:
        """Compile a network, or return None where that is not possible, or of no use."""
        if not isinstance(network, QNetwork) or network.value is not None:
            return None
        parameters = list(network.parameters())
        if sum(map(torch.numel, parameters)) > _MOST_WEIGHTS or not all(map(_is_plain, parameters)):
            return None
        if any(map(_has_hooks, network.modules())):
            return None
        if not isinstance(network.features, nn.Sequential | nn.Flatten):
            return None
        convolution, *flat = _convolution_first(network.features)
        dense: list[Any] = list(network.advantage)
        are_dense = [type(layer) for layer in dense[::2]] == [nn.Linear] * len(dense[::2])
        are_rectified = [type(layer) for layer in dense[1::2]] == [nn.ReLU] * len(dense[1::2])
        if flat != [nn.Flatten] or not (are_dense and are_rectified):
            return None
        return cls(network, convolution, dense[::2])

    @property
    def is_current(self) -> bool:
        """Whether the network still has its parameters where they were, and no hooks."""
        for layer, weight, address in self._sources:
            if layer._parameters["weight"] is not weight or weight.data_ptr() != address:
                return False
        return not any(self._hooks)

    def __call__(self, obs: NDArray[Any]) -> Floats:
        """Give the action values.

        :param obs: a batch of observations.
        """
        if self._convolution is None:
            flat = np.ascontiguousarray(obs, np.float32).reshape(len(obs), -1)
            return np.asarray(_dense_values(flat, self._weights, self._biases))
        weight, bias = self._convolution
        if obs.dtype != np.bool_:
            obs = obs.astype(np.float32)
        return np.asarray(_values(obs, weight, bias, self._weights, self._biases))


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)


def _is_plain(parameter: nn.Parameter) -> bool:
    is_float = parameter.dtype == torch.float32
    return parameter.device.type == "cpu" and is_float and parameter.is_contiguous()


def _arrays(layer: nn.Conv2d | nn.Linear) -> tuple[Floats, Floats]:
    bias = torch.zeros(len(layer.weight)) if layer.bias is None else layer.bias.detach()
    return layer.weight.detach().numpy(), bias.numpy()


def _convolution_first(features: Iterable[nn.Module] | nn.Flatten) -> list[Any]:
    """The convolution that features begin with, or None, and the types of the layers after it."""
    layers = [features] if isinstance(features, nn.Flatten) else list(features)
    if len(layers) == 3 and type(layers[0]) is nn.Conv2d and type(layers[1]) is nn.ReLU:
        first = layers[0]
        is_simple = first.stride == first.dilation == (1, 1) and first.padding == (0, 0)
        if is_simple and first.groups == 1:
            return [first, type(layers[2])]
    return [None, *map(type, layers)]


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def _forward_dense(flat, weights, biases):  # type: ignore[no-untyped-def]  # pragma: no cover
    values = flat
    last = len(weights) - 1
    for layer in range(len(weights)):
        weight, bias = weights[layer], biases[layer]
        result = np.empty(len(bias), np.float32)
        for row in range(len(bias)):
            total = np.float32(0.0)
            for column in range(weight.shape[1]):
                total += weight[row, column] * values[column]
            total += bias[row]
            # Not a number stays what it is, as in torch.
            result[row] = np.float32(0.0) if layer < last and total < 0 else total
        values = result
    return values


@njit(cache=True, nogil=True)
def _dense_values(obs, weights, biases):  # type: ignore[no-untyped-def]  # pragma: no cover
    result = np.empty((len(obs), len(biases[-1])), np.float32)
    for state in range(len(obs)):
        result[state] = _forward_dense(obs[state], weights, biases)
    return result


@njit(cache=True, nogil=True)
def _values(  # type: ignore[no-untyped-def]  # pragma: no cover
    obs, kernel, kernel_bias, weights, biases
):
    outputs, channels, kernel_height, kernel_width = kernel.shape
    height, width = obs.shape[2] - kernel_height + 1, obs.shape[3] - kernel_width + 1
    result = np.empty((len(obs), len(biases[-1])), np.float32)
    image = np.empty((outputs, height, width), np.float32)
    for state in range(len(obs)):
        for output in range(outputs):
            image[output] = kernel_bias[output]
        for channel in range(channels):
            for y in range(obs.shape[2]):
                for x in range(obs.shape[3]):
                    value = np.float32(obs[state, channel, y, x])
                    if value == 0:  # most cells of a grid are empty
                        continue
                    for ky in range(max(0, y - height + 1), min(kernel_height, y + 1)):
                        for kx in range(max(0, x - width + 1), min(kernel_width, x + 1)):
                            for output in range(outputs):
                                weight = kernel[output, channel, ky, kx]
                                image[output, y - ky, x - kx] += value * weight
        for output in range(outputs):
            for y in range(height):
                for x in range(width):
                    if image[output, y, x] < 0:
                        image[output, y, x] = 0.0
        result[state] = _forward_dense(image.reshape(-1), weights, biases)
    return result

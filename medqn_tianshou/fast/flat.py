"""Small networks in flat memory, for compiled code to work on.

The parameters of a network lie in one flat array, of which torch's parameters are views; so do
their gradients and the optimizer's state. ``state_dict``, checkpoints, copies and other code see
ordinary modules and optimizers.
"""

from itertools import pairwise
from math import isqrt, prod
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from medqn_tianshou.algorithm.networks import QNetwork
from medqn_tianshou.fast import kernels, sparse
from medqn_tianshou.fast.blas import product_scratch

Floats = NDArray[np.float32]

_MOST_WEIGHTS = 1_000_000
"""In larger networks, torch's overhead is small compared with the arithmetic."""
_ALIGNMENT = 64
"""Bytes. With aligned arrays, BLAS rounds the same way in every process."""
_STEP = _ALIGNMENT // np.dtype(np.float32).itemsize


class FlatNetwork:
    """Linear layers with ReLU between them, after at most one convolution of MinAtar's kind.

    :param convolution: the first layer, or None.
    :param dense: the linear layers.
    """

    def __init__(self, convolution: nn.Conv2d | None, dense: list[nn.Linear]) -> None:
        self.parameters = _parameters(convolution, dense)
        self._places = _places([parameter.numel() for parameter in self.parameters])
        self.values = aligned_zeros(self._places[-1])
        self.layout = np.zeros((1 + len(dense), 5), np.int64)
        places = self._places[:-1].reshape(-1, 2)
        self.shape: tuple[int, ...] = ()
        if convolution is not None:
            side = _side(dense[0])
            self.shape = (convolution.in_channels, side, side)
            self.layout[0] = (*self.shape, *places[0])
            places = places[1:]
        for row, layer, place in zip(self.layout[1:], dense, places, strict=True):
            row[:4] = (layer.in_features, layer.out_features, *place)
        with torch.no_grad():
            for parameter, view in zip(self.parameters, self.views(self.values), strict=True):
                view.copy_(parameter)
                parameter.data = view
        self._work, self._most = make_work(self.layout, 1), 1
        self._taken: Any = None
        """Shape and type of the last observations that fitted."""

    @classmethod
    def of(cls, network: QNetwork) -> Self | None:
        """Lay out a network of plain layers; return None if that is impossible or useless."""
        parameters = list(network.parameters())
        if sum(map(torch.numel, parameters)) > _MOST_WEIGHTS:
            return None
        if not all(p.dtype == torch.float32 and p.device.type == "cpu" for p in parameters):
            return None
        features: Any = network.features
        layers = list(network.advantage) if isinstance(network.advantage, nn.Sequential) else []
        dense: list[Any] = layers[::2]
        is_plain = [type(layer) for layer in layers] == ([nn.Linear, nn.ReLU] * len(dense))[:-1]
        if not dense or not is_plain or network.value is not None:
            return None
        convolution: Any = None
        if isinstance(features, nn.Sequential):
            if [type(layer) for layer in features] != [nn.Conv2d, nn.ReLU, nn.Flatten]:
                return None
            convolution, _, features = features
            fits = sparse.CHANNELS * (_side(dense[0]) - sparse.EDGE) ** 2 == dense[0].in_features
            if not _is_of_minatar(convolution) or not fits:
                return None
        if (
            type(features) is not nn.Flatten
            or (features.start_dim, features.end_dim) != (1, -1)
            or any(layer.bias is None for layer in (convolution, *dense) if layer is not None)
            or any(one.out_features != other.in_features for one, other in pairwise(dense))
        ):
            return None
        # This excludes layers that occur twice, and layers that the passes do not support.
        is_whole = list(map(id, _parameters(convolution, dense))) == list(map(id, parameters))
        return cls(convolution, dense) if is_whole else None

    def views(self, values: Floats) -> list[torch.Tensor]:
        """Return a tensor for each parameter on the memory of a flat array."""
        flat = torch.from_numpy(values)
        return [
            _view(flat[place : place + parameter.numel()], parameter.shape)
            for parameter, place in zip(self.parameters, self._places.tolist(), strict=False)
        ]

    def takes(self, obs: Any) -> bool:
        """Whether these observations fit the network; bytes do not, as they may need scaling."""
        if isinstance(obs, np.ndarray) and (obs.shape, obs.dtype) == self._taken:
            return True
        is_taken = self._fits(obs)
        if is_taken:
            self._taken = obs.shape, obs.dtype
        return is_taken

    def _fits(self, obs: Any) -> bool:
        if not isinstance(obs, np.ndarray) or obs.dtype.kind not in "biuf" or obs.dtype == np.uint8:
            return False
        if self.shape:
            return obs.shape[1:] == self.shape and len(obs) > 0
        return obs.ndim > 1 and prod(obs.shape[1:]) == self.layout[1, 0] and len(obs) > 0

    def as_input(self, obs: NDArray[Any]) -> NDArray[Any]:
        """Return observations as the kernels take them: rows of booleans, for a grid, or floats."""
        dtype = np.bool_ if self.shape and obs.dtype == np.bool_ else np.float32
        return np.ascontiguousarray(obs, dtype).reshape(len(obs), -1)

    def action_values(self, obs: NDArray[Any]) -> Floats:
        """Return the action values of some observations; the next call overwrites them."""
        if len(obs) > self._most:
            self._work, self._most = make_work(self.layout, len(obs)), len(obs)
        q_BA: Floats = kernels.values_of(self.as_input(obs), self.values, self.layout, self._work)
        return q_BA

    def best_action(self, obs: NDArray[Any]) -> int:
        """Return the best action for a batch of one observation."""
        action: int = kernels.best_action(self.as_input(obs), self.values, self.layout, self._work)
        return action


def make_work(layout: NDArray[np.int64], count: int) -> kernels.Work:
    """Make memory for passes over at most ``count`` states."""
    places = _places([int(width) * count for width in (layout[1, 0], *layout[1:, 1])])
    channels, height, width = layout[0, :3].tolist()
    cells = channels * height * width
    edge = sparse.EDGE
    features = int(layout[1, 0])
    tile = np.arange(sparse.tile_size(layout), dtype=np.uint32)
    tile = tile.reshape(height + edge, width + edge, sparse.CHANNELS)
    order = tile[edge:height, edge:width].transpose(2, 0, 1).reshape(-1)
    lowest = np.tile(tile[edge:, :width, 0].reshape(-1), channels)
    weights = np.arange(channels).repeat(height * width) * sparse.KERNEL**2 * sparse.CHANNELS
    return kernels.Work(
        values=aligned_zeros(places[-1]),
        gradients=aligned_zeros(places[-1]),
        places=places[:-1],
        cells=aligned_zeros(count * cells).reshape(count, cells),
        active=np.zeros((count, cells + 1), np.int32),
        reach=np.stack([lowest, weights], 1).astype(np.int64),
        order=order,
        found=np.zeros(features, np.int32),
        ends=np.zeros(features, np.int32),
        owners=np.zeros(count * features, np.int32),
        shares=aligned_zeros(count * features),
        products=product_scratch(),
    )


def aligned_zeros(count: int) -> Floats:
    """Return zeros whose memory is aligned as BLAS wants it."""
    raw = np.zeros(int(count) * 4 + _ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % _ALIGNMENT
    return raw[start : start + int(count) * 4].view(np.float32)


def _view(values: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """Give values the shape of a parameter; the kernels want linear weights a row per input."""
    return values.view(shape[::-1]).t() if len(shape) == 2 else values.view(shape)


def _places(sizes: list[int]) -> NDArray[np.int64]:
    """Return where arrays of some sizes start one after another, aligned; the last is the end."""
    return np.cumsum([0, *(-(-size // _STEP) * _STEP for size in sizes)])


def _parameters(convolution: Any, dense: list[Any]) -> list[nn.Parameter]:
    layers = [layer for layer in (convolution, *dense) if layer is not None]
    return [parameter for layer in layers for parameter in (layer.weight, layer.bias)]


def _side(first: nn.Linear) -> int:
    """The side of a square grid whose convolution has as many outputs as a layer has inputs."""
    return isqrt(first.in_features // sparse.CHANNELS) + sparse.EDGE


def _is_of_minatar(layer: nn.Conv2d) -> bool:
    plain = (layer.stride, layer.padding, layer.dilation, layer.groups, layer.padding_mode)
    return (
        plain == ((1, 1), (0, 0), (1, 1), 1, "zeros")
        and layer.kernel_size == (sparse.KERNEL, sparse.KERNEL)
        and layer.out_channels == sparse.CHANNELS
    )

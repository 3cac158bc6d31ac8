"""Q networks in the form Tianshou's policies call them: ``network(obs, state, info)``."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from medqn_tianshou.fast import kernels
from medqn_tianshou.fast.compiled import CompiledNetwork

Observations = NDArray[Any] | torch.Tensor


class QNetwork(nn.Module):
    """Features, then one linear layer to action values.

    :param features: maps a float batch of observations to feature vectors.
    :param hidden: the layers between the features and the action values, with the width they end
        in. A dueling network has them twice.
    :param action_count: number of actions.
    :param dueling: estimate state values and advantages separately (arXiv:1511.06581).
    :param scale_uint8: divide uint8 observations by 255, on the device.
    :param channels_last: lay out images and convolutions with the channels last in memory.
    """

    _device_probe: torch.Tensor

    def __init__(
        self,
        *,
        features: nn.Module,
        hidden: Sequence[int],
        action_count: int,
        dueling: bool = False,
        scale_uint8: bool = True,
        channels_last: bool = False,
    ) -> None:
        super().__init__()
        self.features = features
        self.advantage = _linear_layers([*hidden, action_count])
        self.value = _linear_layers([*hidden, 1]) if dueling else None
        self.scale_uint8 = scale_uint8
        self._memory_format = torch.channels_last if channels_last else torch.contiguous_format
        super().to(memory_format=self._memory_format)  # type: ignore[call-overload]
        # Moves with the parameters; asking one of them for its device takes ten times as long.
        self.register_buffer("_device_probe", torch.empty(0), persistent=False)
        self._compiled: CompiledNetwork | None = None
        self._may_compile = not dueling

    @property
    def compiled(self) -> CompiledNetwork | None:
        """Its passes through compiled code, if it is small and plain enough for them."""
        compiled = self._compiled
        if self._may_compile and (compiled is None or not compiled.is_current):
            compiled = CompiledNetwork.of(self, self.features, list(self.advantage))
            # Not by assignment: nn.Module's takes as long as a pass.
            self.__dict__["_compiled"] = compiled
            self.__dict__["_may_compile"] = compiled is not None
        return compiled

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        """Forget compiled passes: the parameters move to another device or dtype."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._compiled, self._may_compile = None, self.value is None
        return self

    def __getstate__(self) -> dict[str, Any]:
        """A copy compiles its own."""
        return {**self.__dict__, "_compiled": None}

    def forward(
        self, obs: Observations, state: Any = None, info: Any = None
    ) -> tuple[torch.Tensor, Any]:
        """Return the action values, and the recurrent state as it came.

        :param obs: a batch of observations; uint8 travels to the device as uint8.
        :param state: not used, part of Tianshou's interface.
        :param info: not used, part of Tianshou's interface.
        """
        images = self._scaled(to_device(obs, self._device_probe.device))
        features_BF = _apply(self.features, images.float())
        q_BA = _apply(self.advantage, features_BF)
        if self.value is not None:
            q_BA = _apply(self.value, features_BF) + q_BA - q_BA.mean(dim=1, keepdim=True)
        return q_BA, state

    def _scaled(self, images: torch.Tensor) -> torch.Tensor:
        """Turn bytes into floats in the layout of the network; others are taken as they are."""
        if images.dtype != torch.uint8:
            return images
        is_last = self._memory_format == torch.channels_last
        is_stack = images.dim() == 4 and images.shape[1] == 4 and images.is_contiguous()
        if (
            is_last
            and is_stack
            and images.device.type == "cpu"
            and not torch.compiler.is_compiling()
        ):
            scale = np.float32(1 / 255 if self.scale_uint8 else 1)
            pixels = kernels.scaled_images(images.numpy(), scale)  # torch takes three passes
            return torch.from_numpy(pixels).permute(0, 3, 1, 2)
        # Bytes are quicker to lay out anew than floats.
        images = images.contiguous(memory_format=self._memory_format).float()
        return images.mul_(1 / 255) if self.scale_uint8 else images


class NatureQNetwork(QNetwork):
    """The network of "Human-level control through deep reinforcement learning" (nature14236).

    :param observation_shape: channels (stacked frames), height, width.
    :param action_count: number of actions.
    :param dueling: estimate state values and advantages separately.
    :param scale_uint8: divide uint8 observations by 255, on the device.
    :param channels_last: lay out images and convolutions with the channels last in memory.
    """

    def __init__(
        self,
        *,
        observation_shape: Sequence[int],
        action_count: int,
        dueling: bool = False,
        scale_uint8: bool = True,
        channels_last: bool = False,
    ) -> None:
        channels, _, _ = observation_shape
        features = nn.Sequential(
            nn.Conv2d(channels, 32, kernel_size=8, stride=4),
            nn.ReLU(inplace=True),
            nn.Conv2d(32, 64, kernel_size=4, stride=2),
            nn.ReLU(inplace=True),
            nn.Conv2d(64, 64, kernel_size=3, stride=1),
            nn.ReLU(inplace=True),
            nn.Flatten(),
        )
        with torch.no_grad():
            feature_count = features(torch.zeros(1, *observation_shape)).shape[1]
        super().__init__(
            features=features,
            hidden=(feature_count, 512),
            action_count=action_count,
            dueling=dueling,
            scale_uint8=scale_uint8,
            channels_last=channels_last,
        )


class MinAtarQNetwork(QNetwork):
    """The network that MinAtar's authors and the paper use for its games.

    :param observation_shape: channels, height, width.
    :param action_count: number of actions.
    :param dueling: estimate state values and advantages separately.
    """

    def __init__(
        self, *, observation_shape: Sequence[int], action_count: int, dueling: bool = False
    ) -> None:
        channels, height, width = observation_shape
        super().__init__(
            features=nn.Sequential(
                nn.Conv2d(channels, 16, kernel_size=3), nn.ReLU(inplace=True), nn.Flatten()
            ),
            hidden=(16 * (height - 2) * (width - 2), 128),
            action_count=action_count,
            dueling=dueling,
        )


class MLPQNetwork(QNetwork):
    """A multi-layer perceptron with ReLU, as the paper uses for low-dimensional tasks.

    :param observation_shape: the shape of one observation, flattened before the first layer.
    :param action_count: number of actions.
    :param hidden_sizes: width of each hidden layer.
    :param dueling: estimate state values and advantages separately.
    """

    def __init__(
        self,
        *,
        observation_shape: Sequence[int],
        action_count: int,
        hidden_sizes: Sequence[int] = (32, 32),
        dueling: bool = False,
    ) -> None:
        super().__init__(
            features=nn.Flatten(),
            hidden=(prod(observation_shape), *hidden_sizes),
            action_count=action_count,
            dueling=dueling,
        )


def to_device(values: Observations, device: torch.device) -> torch.Tensor:
    """Bring an array to a device; to a GPU without waiting for the copy.

    :param values: an array, or a tensor wherever it is.
    :param device: where to.
    """
    tensor = torch.as_tensor(values)
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def _apply(layers: nn.Module, values: torch.Tensor) -> torch.Tensor:
    """Call the layers of a module one after another.

    ``nn.Module.__call__`` looks for hooks, which takes longer than a small layer itself.
    """
    for layer in layers if isinstance(layers, nn.Sequential) else (layers,):
        has_hooks = layer._forward_pre_hooks or layer._forward_hooks
        has_hooks = has_hooks or layer._backward_pre_hooks or layer._backward_hooks
        values = layer(values) if has_hooks else layer.forward(values)
    return values


def _linear_layers(widths: Sequence[int]) -> nn.Sequential:
    """Linear layers with ReLU between them, none after the last."""
    layers: list[nn.Module] = []
    for width_in, width_out in pairwise(widths):
        layers += [nn.Linear(width_in, width_out), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers[:-1])

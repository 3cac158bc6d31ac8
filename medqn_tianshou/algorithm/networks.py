"""Q networks in the form Tianshou's policies call them: ``network(obs, state, info)``."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import Any, Literal, get_args

import torch
from numpy.typing import NDArray
from torch import nn

Observations = NDArray[Any] | torch.Tensor
Initialization = Literal["torch", "kaiming", "kaiming-output"]


class QNetwork(nn.Module):
    """Features, then one linear layer to action values.

    :param features: maps a float batch of observations to feature vectors.
    :param hidden: the layers between the features and the action values, with the width they end
        in. A dueling network has them twice.
    :param dueling: estimate state values and advantages separately (arXiv:1511.06581).
    :param scale_uint8: divide uint8 observations by 255, on the device.
    :param channels_last: lay out images and convolutions with the channels last in memory.
    :param initialization: of the linear layers. ``"torch"`` keeps torch's default, ``"kaiming"``
        has Kaiming-uniform weights (gain sqrt 2 before a ReLU, 1 in the last layer) and zero
        biases, ``"kaiming-output"`` has them in the last layer alone.
    """

    def __init__(
        self,
        *,
        features: nn.Module,
        hidden: Sequence[int],
        action_count: int,
        dueling: bool = False,
        scale_uint8: bool = True,
        channels_last: bool = False,
        initialization: Initialization = "torch",
    ) -> None:
        super().__init__()
        self.features = features
        self.advantage = _linear_layers([*hidden, action_count])
        self.value = _linear_layers([*hidden, 1]) if dueling else None
        if initialization not in get_args(Initialization):
            choices = ", ".join(get_args(Initialization))
            raise ValueError(f"initialization={initialization!r} must be one of {choices}")
        if initialization != "torch":
            for layers in filter(None, (self.advantage, self.value)):
                _initialize(layers, only_last=initialization == "kaiming-output")
        self.scale_uint8 = scale_uint8
        self.channels_last = channels_last
        if channels_last:
            super().to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(
        self, obs: Observations, state: Any = None, info: Any = None
    ) -> tuple[torch.Tensor, Any]:
        """Return the action values, and the recurrent state unchanged.

        :param obs: a batch of observations; uint8 is sent to the device as uint8.
        :param state: not used, part of Tianshou's interface.
        :param info: not used, part of Tianshou's interface.
        """
        features_BF = self.embed(obs)
        q_BA = self.advantage(features_BF)
        if self.value is not None:
            q_BA = self.value(features_BF) + q_BA - q_BA.mean(dim=1, keepdim=True)
        return q_BA, state

    def embed(self, obs: Observations) -> torch.Tensor:
        """Return the features of a batch of observations."""
        parameter = next(self.parameters())
        values = to_device(obs, parameter.device)
        if values.dtype == torch.uint8:
            if self.channels_last and values.dim() == 4:  # bytes are cheaper to reorder than floats
                values = values.contiguous(memory_format=torch.channels_last)
            values = values.to(parameter.dtype)
            if self.scale_uint8:
                values = values.mul_(1 / 255)
        features_BF: torch.Tensor = self.features(values.to(parameter.dtype))
        return features_BF


class NatureQNetwork(QNetwork):
    """The network of "Human-level control through deep reinforcement learning" (nature14236).

    :param observation_shape: channels (stacked frames), height, width.
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
    :param initialization: the paper's experiments used ``"kaiming-output"``.
    """

    def __init__(
        self,
        *,
        observation_shape: Sequence[int],
        action_count: int,
        dueling: bool = False,
        initialization: Initialization = "torch",
    ) -> None:
        channels, height, width = observation_shape
        super().__init__(
            features=nn.Sequential(
                nn.Conv2d(channels, 16, kernel_size=3), nn.ReLU(inplace=True), nn.Flatten()
            ),
            hidden=(16 * (height - 2) * (width - 2), 128),
            action_count=action_count,
            dueling=dueling,
            initialization=initialization,
        )


class MLPQNetwork(QNetwork):
    """A multi-layer perceptron with ReLU, as the paper uses for low-dimensional tasks.

    :param observation_shape: the shape of one observation, flattened before the first layer.
    :param hidden_sizes: width of each hidden layer.
    :param initialization: the paper's experiments used ``"kaiming"``.
    """

    def __init__(
        self,
        *,
        observation_shape: Sequence[int],
        action_count: int,
        hidden_sizes: Sequence[int] = (32, 32),
        dueling: bool = False,
        initialization: Initialization = "torch",
    ) -> None:
        super().__init__(
            features=nn.Flatten(),
            hidden=(prod(observation_shape), *hidden_sizes),
            action_count=action_count,
            dueling=dueling,
            initialization=initialization,
        )


def action_values(network: nn.Module, obs: Observations) -> torch.Tensor:
    """Return the value of each action, also where a network predicts their distributions."""
    evaluate: Any = getattr(network, "action_values", None)
    values_BA: torch.Tensor = network(obs)[0] if evaluate is None else evaluate(obs)
    return values_BA


def to_device(values: Observations, device: torch.device) -> torch.Tensor:
    """Copy an array or tensor to a device; to a GPU without waiting for the copy."""
    tensor = torch.as_tensor(values)
    if device.type == "cuda" and tensor.device.type == "cpu":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def _linear_layers(widths: Sequence[int]) -> nn.Sequential:
    """Linear layers with ReLU between them, none after the last."""
    layers: list[nn.Module] = []
    for width_in, width_out in pairwise(widths):
        layers += [nn.Linear(width_in, width_out), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers[:-1])


def _initialize(layers: nn.Sequential, *, only_last: bool) -> None:
    """Draw Kaiming-uniform weights, and set the biases to zero."""
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    for layer in linear[-1:] if only_last else linear:
        nonlinearity: Any = "linear" if layer is linear[-1] else "relu"
        nn.init.kaiming_uniform_(layer.weight, nonlinearity=nonlinearity)
        nn.init.zeros_(layer.bias)

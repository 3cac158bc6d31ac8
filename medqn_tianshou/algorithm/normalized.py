"""The network of the baselines without a replay buffer, and how they choose actions."""

from collections.abc import Sequence
from math import ceil, prod, sqrt
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from medqn_tianshou.algorithm.networks import Observations

Array = NDArray[Any]
FLAX_EPSILON = 1e-6
"""Of layer normalization; torch's is 1e-5."""
DEVIATION_OF_CUT_NORMAL = 0.87962566
"""The standard deviation of a standard normal distribution that is cut off at -2 and 2."""


class Moments(nn.Module):
    """Running mean and variance (Welford), as buffers of the network that normalizes by them."""

    count: torch.Tensor
    mean: torch.Tensor
    squares: torch.Tensor

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        # In float32, a million small steps would add up to wrong moments.
        for name, of_shape in (("count", ()), ("mean", shape), ("squares", shape)):
            self.register_buffer(name, torch.zeros(tuple(of_shape), dtype=torch.float64))

    def update(self, value: torch.Tensor) -> None:
        """Count one more value."""
        self.count += 1
        distance = value - self.mean
        self.mean += distance / self.count
        self.squares += distance * (value - self.mean)

    @property
    def variance(self) -> torch.Tensor:
        """The sample variance; 1 before there are two values."""
        return self.squares / (self.count - 1) if self.count > 1 else torch.ones_like(self.squares)


class ChannelNorm(nn.LayerNorm):
    """Layer normalization over the channels of each cell of an image, as in PQN's released code."""

    def forward(self, values_BCHW: torch.Tensor) -> torch.Tensor:
        """Normalize."""
        return super().forward(values_BCHW.movedim(1, -1)).movedim(-1, 1)


class NormalizedQNetwork(nn.Module):
    """A Q network with layer normalization before each activation instead of a target network.

    :param observation_shape: three axes add MinAtar's convolution of 16 channels.
    :param hidden_sizes: width of each hidden layer.
    :param streaming: Stream-Q's: leaky ReLU, normalization of whole layers without parameters,
        sparse initial weights, and observations normalized by their running moments. Otherwise
        PQN's.
    """

    def __init__(
        self,
        *,
        observation_shape: Sequence[int],
        action_count: int,
        hidden_sizes: Sequence[int],
        streaming: bool,
    ) -> None:
        super().__init__()
        self.moments = Moments(observation_shape) if streaming else None

        def activated(layer: nn.Module, shape: Sequence[int]) -> list[nn.Module]:
            if streaming:
                return [layer, nn.LayerNorm(list(shape), elementwise_affine=False), nn.LeakyReLU()]
            norm = ChannelNorm if len(shape) > 1 else nn.LayerNorm
            return [layer, norm(shape[0], eps=FLAX_EPSILON), nn.ReLU()]

        layers: list[nn.Module] = []
        width = prod(observation_shape)
        if len(observation_shape) == 3:
            channels, height, width = observation_shape
            shape = (16, height - 2, width - 2)
            layers += activated(nn.Conv2d(channels, 16, kernel_size=3), shape)
            width = prod(shape)
        layers.append(nn.Flatten())
        for size in hidden_sizes:
            layers += activated(nn.Linear(width, size), (size,))
            width = size
        output = nn.Linear(width, action_count)
        self.layers = nn.Sequential(*layers, output)
        for layer in self.layers:
            if isinstance(layer, nn.Linear | nn.Conv2d):
                if streaming:
                    sparse_init(layer)
                else:
                    normal_init(layer, gain=1.0 if layer is output else 2.0)

    def normalized(self, obs: Observations) -> torch.Tensor:
        """Normalize observations by the moments until now; PQN's stay as they are."""
        values = torch.as_tensor(obs)
        if self.moments is not None:
            values = (values.double() - self.moments.mean) / (self.moments.variance + 1e-8).sqrt()
        return values.float()

    def forward(
        self, obs: Observations, state: Any = None, info: Any = None
    ) -> tuple[torch.Tensor, Any]:
        """Return the action values, and the recurrent state unchanged."""
        q_BA: torch.Tensor = self.layers(self.normalized(obs))
        return q_BA, state


def normal_init(layer: nn.Linear | nn.Conv2d, gain: float) -> None:
    """Draw weights as Flax does: normal, of variance gain / fan_in, within two deviations."""
    fan_in = layer.weight[0].numel()
    std = sqrt(gain / fan_in) / DEVIATION_OF_CUT_NORMAL
    nn.init.trunc_normal_(layer.weight, std=std, a=-2 * std, b=2 * std)
    nn.init.zeros_(layer.bias)  # type: ignore[arg-type]


def sparse_init(layer: nn.Linear | nn.Conv2d, sparsity: float = 0.9) -> None:
    """Draw weights uniformly within 1 / sqrt(fan_in), and set most inputs of each output to 0."""
    with torch.no_grad():
        weights = layer.weight.view(len(layer.weight), -1)
        fan_in = weights.shape[1]
        weights.uniform_(-1 / sqrt(fan_in), 1 / sqrt(fan_in))
        for row in weights:
            row[torch.randperm(fan_in)[: ceil(sparsity * fan_in)]] = 0
        if layer.bias is not None:
            layer.bias.zero_()


@torch.no_grad()
def evaluate(network: nn.Module, obs: Any) -> Array:
    """Return action values as an array."""
    values: Array = network(obs)[0].numpy()
    return values


def explore(q_EA: Array, eps: float) -> Array:
    """Choose the best action of each row, or a random one with probability eps."""
    random_E = np.random.random(len(q_EA)) < eps
    actions_E = np.random.randint(q_EA.shape[1], size=len(q_EA))
    return np.where(random_E, actions_E, q_EA.argmax(axis=1))


def load(module: nn.Module, values: dict[str, Any]) -> None:
    """Load parameters and buffers from arrays."""
    module.load_state_dict({name: torch.as_tensor(value) for name, value in values.items()})

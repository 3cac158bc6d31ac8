"""Forward passes of known networks."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from medqn_tianshou.algorithm.networks import QNetwork
from medqn_tianshou.fast import kernels


def action_values(network: Any, obs: Any, *, compiled: bool) -> torch.Tensor:
    """Evaluate a known network through torch, without the action that ``forward`` copies to numpy.

    :param compiled: whether to convert images with compiled code.
    """
    if compiled and isinstance(obs, np.ndarray) and obs.dtype == np.uint8:
        obs = scaled_images(network, obs)
    q_BA: torch.Tensor = network(obs)[0]
    return q_BA


def scaled_images(network: QNetwork, obs: NDArray[np.uint8]) -> NDArray[np.uint8] | torch.Tensor:
    """Convert stacks of four frames to scaled floats with the channels last, in one pass.

    torch needs three passes over the images. Other observations are returned unchanged.
    """
    if not (network.channels_last and obs.ndim == 4 and obs.shape[1] == 4):
        return obs
    parameter = next(network.parameters())
    is_suited = parameter.device.type == "cpu" and parameter.dtype == torch.float32
    if not is_suited or not obs.flags.c_contiguous:
        return obs
    scale = np.float32(1 / 255 if network.scale_uint8 else 1)
    return torch.from_numpy(kernels.scaled_images(obs, scale)).permute(0, 3, 1, 2)

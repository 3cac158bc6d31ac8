"""Parameter files: safetensors, and torch's format, which earlier versions wrote."""

from pathlib import Path

import torch
from safetensors import torch as safetensors


def parameter_bytes(parameters: dict[str, torch.Tensor]) -> bytes:
    """Return the content of a safetensors file."""
    # Clones, because the library refuses tensors that share memory or are not contiguous.
    format_ = torch.contiguous_format
    clones = {name: tensor.clone(memory_format=format_) for name, tensor in parameters.items()}
    return safetensors.save(clones)


def read_parameters(path: Path) -> dict[str, torch.Tensor]:
    """Read parameters to the CPU; the suffix of the file determines its format.

    Both formats contain only data: reading them runs no code.
    """
    if path.suffix == ".safetensors":
        return safetensors.load(path.read_bytes())
    loaded: dict[str, torch.Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return loaded

"""Parameters come back from a file as they were, from safetensors and from torch's own format."""

import pytest
import torch

from medqn_tianshou.files.parameters import parameter_bytes, read_parameters

WIDE = torch.arange(24.0)


@pytest.mark.parametrize(
    "parameters",
    [
        {"weight": WIDE.reshape(4, 6), "_extra_state": torch.arange(5, dtype=torch.uint8)},
        {"all": WIDE, "part": WIDE[3:9]},  # shared memory, as of a network in one vector
        {"transposed": WIDE.reshape(4, 6).T},
        {"last": WIDE.reshape(1, 2, 3, 4).to(memory_format=torch.channels_last)},
        {"scalar": torch.tensor(3), "empty": torch.zeros(0, 2)},
    ],
    ids=lambda parameters: next(iter(parameters)),
)
@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_every_tensor_comes_back(tmp_path, parameters, suffix):
    path = tmp_path / f"policy{suffix}"
    if suffix == ".pth":
        torch.save(parameters, path)
    else:
        path.write_bytes(parameter_bytes(parameters))
    found = read_parameters(path)
    assert found.keys() == parameters.keys()
    for name, tensor in parameters.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


def test_the_bytes_depend_on_the_values_alone():
    parameters = {"one": WIDE, "two": WIDE[:3]}
    assert parameter_bytes(parameters) == parameter_bytes(dict(reversed(parameters.items())))

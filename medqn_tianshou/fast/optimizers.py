"""torch's gradient steps, with less overhead for small networks on the CPU."""

from collections.abc import Callable
from typing import Any

import torch

from medqn_tianshou.fast.updates import CENTERED_RMSPROP, RMSPROP, optimize

_UNUSED = ("weight_decay", "momentum", "maximize", "capturable", "differentiable")


class FusedRMSprop(torch.optim.RMSprop):
    """RMSprop with a fused kernel for the CPU, which torch does not have.

    It takes the same arguments, keeps the same state, and takes the same steps up to rounding. On
    other devices, and with options that the kernel does not support, torch's own step is taken.
    """

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a step; with a closure, torch's own."""
        if closure is not None or not all(map(_suits, self.param_groups)):
            plain: Any = torch.optim.RMSprop.step
            if hasattr(plain, "hooked"):  # by another optimizer; the hooks of this one have run
                plain = plain.__wrapped__
            return plain(self, closure)
        for group in self.param_groups:
            names = ("grad_avg", "square_avg") if group["centered"] else ("square_avg",)
            kind = CENTERED_RMSPROP if group["centered"] else RMSPROP
            numbers = (group["lr"], group["alpha"], 0.0, group["eps"])
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    fresh = {name: torch.zeros_like(parameter) for name in names}
                    state.update(step=torch.zeros(()), **fresh)
                state["step"] += 1
                tensors = (parameter, parameter.grad, state[names[0]], state[names[-1]])
                values = [tensor.detach().numpy().reshape(-1) for tensor in tensors]
                optimize(kind, values[0], values[1], values[2], values[3], 0, numbers)
        return None


def _suits(group: dict[str, Any]) -> bool:
    """Whether the kernel supports the options and tensors of a group."""
    tensors = [tensor for p in group["params"] for tensor in (p, p.grad)]
    is_plain = all(tensor is not None and _is_plain(tensor) for tensor in tensors)
    return is_plain and not any(map(group.get, _UNUSED)) and isinstance(group["lr"], float)


def _is_plain(tensor: torch.Tensor) -> bool:
    is_float = tensor.dtype == torch.float32
    return is_float and tensor.device.type == "cpu" and tensor.is_contiguous()

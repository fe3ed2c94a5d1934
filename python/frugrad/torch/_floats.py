"""Tensors of any kind as the library wants them: float32, contiguous, on the host."""

import ctypes
import warnings
from typing import Set

import torch

_shown: Set[str] = set()


def warn_once(text: str) -> None:
    """Warn, but only the first time in this process."""
    if text not in _shown:
        _shown.add(text)
        warnings.warn(text, stacklevel=4)


def as_floats(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself where it is float32, contiguous and on the host; otherwise a copy that is."""
    if tensor.dtype is torch.float32 and tensor.is_contiguous() and tensor.device.type == "cpu":
        return tensor
    return tensor.detach().to(device="cpu", dtype=torch.float32).contiguous()


def _touch(tensor: torch.Tensor) -> None:
    tensor.view(-1)[:0].zero_()  # changes nothing but the version that autograd compares


_changed = getattr(torch.autograd.graph, "increment_version", _touch)


def put_back(tensor: torch.Tensor, floats: torch.Tensor) -> None:
    """After the library has changed as_floats(tensor): have the tensor, and autograd, know of it. Wants no_grad."""
    if floats is tensor:
        _changed(tensor)
    else:
        tensor.copy_(floats)  # rounds to nearest where the tensor is shorter


def check_parameter(p: torch.Tensor, name: str) -> None:
    """Refuse parameters that cannot be trained; warn of slow and inexact ones."""
    if not p.is_floating_point():
        raise TypeError(f"{name} is {p.dtype}; only real floating-point parameters can be trained")
    if p.device.type != "cpu":
        warn_once(f"parameters on {p.device.type}: gradients and weights are copied to the host and back at every step")
    if p.dtype in (torch.float16, torch.bfloat16):
        warn_once(f"parameters in {p.dtype} are rounded after every step, which loses changes of less than half a unit"
                 " in the last place; keep weights in float32 and use autocast where that matters")


def check_gradient(grad: torch.Tensor, name: str) -> None:
    if grad.is_sparse or grad.layout != torch.strided:
        raise RuntimeError(f"the gradient of {name} is sparse; only dense ones can be used (Embedding(sparse=False))")


def bytes_tensor(data: bytes) -> torch.Tensor:
    """Bytes as a tensor, for a state_dict."""
    return torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)


def tensor_bytes(tensor: torch.Tensor) -> bytes:
    """And back, from any device."""
    if tensor.dtype != torch.uint8:
        raise ValueError(f"a saved state is bytes, not {tensor.dtype}")
    tensor = tensor.cpu().contiguous()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel())

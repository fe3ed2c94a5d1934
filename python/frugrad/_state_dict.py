"""State dicts as one flat buffer of float32: what federated training exchanges.

Values are PyTorch tensors, on any device, or NumPy arrays. Floating-point ones have their place in the buffer; others
(counters, masks) and empty ones are not exchanged.
"""

from ctypes import c_float
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ._core import Layout, Tensor

State = Dict[str, Any]


def _is_torch(value: Any) -> bool:
    return hasattr(value, "data_ptr")


def _is_exchanged(name: str, value: Any) -> bool:
    """Whether a value is of real numbers in floating point, at least one."""
    if _is_torch(value):
        kind = "f" if value.is_floating_point() else "c" if value.is_complex() else "i"
        return _real(name, kind) and value.numel() > 0
    if hasattr(value, "dtype") and hasattr(value, "ctypes"):
        return _real(name, value.dtype.kind) and value.size > 0
    raise TypeError(f"'{name}' is neither a PyTorch tensor nor a NumPy array but {type(value).__name__}")


def _real(name: str, kind: str) -> bool:
    if kind in "cO":
        raise TypeError(f"'{name}' is not of real numbers")
    return kind == "f"


def _width(value: Any) -> int:
    return value.element_size() if _is_torch(value) else value.dtype.itemsize


def _assign(target: Any, value: Any) -> None:
    if _is_torch(value):
        target.copy_(value.detach())
    else:
        target[...] = value


class FlatState:
    """A state dict's form: names, shapes, dtypes, devices.

    like    a state dict
    order   names of the tensors in the buffer, all of them; None: as in the dict

    >>> import numpy as np
    >>> flat = FlatState({"w": np.ones((2, 3)), "steps": np.array(7), "b": np.zeros(3, np.float16)})
    >>> [tensor.name for tensor in flat.tensors], flat.layout.elements
    (['w', 'b'], 9)
    >>> buffer = flat.buffer()
    >>> flat.write({"w": np.full((2, 3), 0.5), "steps": np.array(8), "b": np.ones(3)}, buffer)
    >>> list(buffer)
    [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 1.0, 1.0, 1.0]
    >>> flat.read(buffer)["b"].dtype, int(flat.read(buffer)["steps"])
    (dtype('float16'), 8)
    """

    def __init__(self, like: Mapping[str, Any], order: Optional[Sequence[str]] = None):
        self._values = dict(like)  # of these names; those that are not exchanged as they were last given
        names = order or [name for name, value in like.items() if _is_exchanged(name, value)]
        if not names:
            raise ValueError("the state dict has no floating-point tensor to train")
        self.layout = Layout(Tensor(name, tuple(like[name].shape)) for name in names)
        self.tensors: List[Tensor] = [self.layout[i] for i in range(len(self.layout))]

    def buffer(self) -> Any:
        """Memory for all tensors."""
        return (c_float * self.layout.elements)()

    def _shaped(self, buffer: Any, tensor: Tensor) -> Any:
        """A tensor of the buffer, of the same framework as its value."""
        if _is_torch(self._values[tensor.name]):
            import torch

            return torch.frombuffer(buffer, dtype=torch.float32)[tensor.place].view(tensor.shape)
        import numpy as np

        return np.frombuffer(buffer, np.float32)[tensor.place].reshape(tensor.shape)

    def _rounded(self, shaped: Any, name: str) -> Any:
        """A copy of the buffer's tensor in the dtype and on the device of its value."""
        value = self._values[name]
        if _is_torch(value):
            return shaped.to(device=value.device, dtype=value.dtype, copy=True)
        return shaped.astype(value.dtype)

    def write(self, state: Mapping[str, Any], buffer: Any, read_from: Any = None) -> None:
        """Copy a state dict into the buffer.

        read_from   the buffer whose values, as read(), the state dict has been trained from. Where they were rounded to
                    a shorter dtype, the difference to them counts: rounding is no training.
        """
        missing = [name for name in self._values if name not in state]
        if missing:
            raise ValueError(f"the state dict has no '{missing[0]}'")
        for tensor in self.tensors:
            value = state[tensor.name]
            if tuple(value.shape) != tensor.shape:
                raise ValueError(f"'{tensor.name}' has shape {tuple(value.shape)}; it had {tensor.shape}")
            target = self._shaped(buffer, tensor)
            _assign(target, value)
            if read_from is not None and _width(self._values[tensor.name]) < _width(target):
                exact = self._shaped(read_from, tensor)
                rounded = exact + 0
                _assign(rounded, self._rounded(exact, tensor.name))
                target += exact - rounded
        exchanged = {tensor.name for tensor in self.tensors}
        self._values.update({name: state[name] for name in self._values if name not in exchanged})

    def read(self, buffer: Any) -> State:
        """A new state dict from the buffer."""
        state = dict(self._values)
        for tensor in self.tensors:
            state[tensor.name] = self._rounded(self._shaped(buffer, tensor), tensor.name)
        return state

"""Compact files in PyTorch: weights that ``frugrad export`` wrote, as a state dict, or in a model that runs them packed."""

import os
from ctypes import byref, c_void_p
from pathlib import Path
from typing import Any, Dict, Iterator, Tuple, Union

import torch

from .._core import address
from .._lib import CompactInfo, CompactTotals, SparseInfo, lib

_F32, _END = 0, 255
_PACKED_MOST = 32  # vectors; for more of them, rows are unpacked and multiplied dense
_UNPACKED_ROWS = 256
_COLS_MOST = 65536  # of a packed matrix


def _records(data: bytes) -> Iterator[Tuple[str, CompactInfo]]:
    """The tensors of a file, which is checked first."""
    lib.frug_compact_check(address(data), len(data), byref(CompactTotals()))
    at = 0
    while True:
        info = CompactInfo()
        lib.frug_compact_read(address(data) + at, len(data) - at, byref(info))
        if info.code == _END:
            return
        begin = info.name - address(data)
        yield data[begin:begin + info.name_len].decode(), info
        at += info.bytes


def _decode(info: CompactInfo) -> torch.Tensor:
    tensor = torch.empty(tuple(info.shape[:info.ndim]), dtype=torch.float32)
    lib.frug_compact_decode(byref(info), tensor.data_ptr())
    return tensor


def load_state(path: Union[str, "os.PathLike[str]"]) -> Dict[str, torch.Tensor]:
    """All tensors of a compact file as dense f32, for ``model.load_state_dict()``::

        model.load_state_dict(frugrad.torch.load_state("model.fgc"))

    Raises FormatError or its kin for files that are no compact file, damaged or cut off.
    """
    data = Path(path).read_bytes()
    return {name: _decode(info) for name, info in _records(data)}


class PackedLinear(torch.nn.Module):
    """A linear layer whose weights stay packed: sparse, int8 or both. For inference on the CPU, without gradients.

    ``load()`` makes them, and has an example.
    """

    def __init__(self, info: CompactInfo, bias: Any) -> None:
        super().__init__()
        self._matrix = c_void_p()
        lib.frug_compact_pack(byref(info), byref(self._matrix))
        found = SparseInfo()
        lib.frug_sparse_get_info(self._matrix, byref(found))
        self.in_features, self.out_features = int(found.cols), int(found.rows)
        self.packed_bytes = int(found.bytes)
        self._work_floats = (int(found.work_bytes) + 3) // 4
        self.bias = bias

    def __del__(self) -> None:
        if getattr(self, "_matrix", None):
            lib.frug_sparse_destroy(self._matrix)

    def extra_repr(self) -> str:
        """Sizes, for print(model)."""
        return f"in_features={self.in_features}, out_features={self.out_features}, packed_bytes={self.packed_bytes}"

    def _unpack(self, first: int, count: int) -> torch.Tensor:
        rows = torch.empty(count, self.in_features)
        lib.frug_sparse_unpack(self._matrix, first, count, rows.data_ptr())
        return rows

    @property
    def weight(self) -> torch.Tensor:
        """All weights, unpacked anew: for modules that read them, as nn.MultiheadAttention does."""
        return self._unpack(0, self.out_features)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """x W' + b over the last dimension."""
        rows = x.detach().to(torch.float32).reshape(-1, self.in_features).contiguous()
        y = torch.empty(len(rows), self.out_features)
        if 0 < len(rows) <= _PACKED_MOST:
            work = torch.empty(self._work_floats)
            lib.frug_sparse_multiply(self._matrix, torch.get_num_threads(), rows.data_ptr(), len(rows),
                                     self.in_features, y.data_ptr(), self.out_features, work.data_ptr())
        elif len(rows) > 0:
            for first in range(0, self.out_features, _UNPACKED_ROWS):
                some = self._unpack(first, min(_UNPACKED_ROWS, self.out_features - first))
                y[:, first:first + len(some)] = rows @ some.T
        if self.bias is not None:
            y += self.bias.detach()
        return y.reshape(*x.shape[:-1], self.out_features)


def _is_linear(module: Any, info: CompactInfo) -> bool:
    """nn.Linear, or Conv1D of Transformers, which has its input first."""
    if isinstance(module, torch.nn.Linear):
        return not info.input_first
    return type(module).__name__ == "Conv1D" and bool(info.input_first)


def _check_names(model: torch.nn.Module, state: Dict[str, torch.Tensor], records: Dict[str, CompactInfo]) -> None:
    for name, info in records.items():
        if name not in state:
            raise KeyError(f"the model has no tensor '{name}'")
        if tuple(state[name].shape) != tuple(info.shape[:info.ndim]):
            raise ValueError(f"'{name}' has shape {tuple(info.shape[:info.ndim])}, in the model {tuple(state[name].shape)}")
    loaded = {state[name].data_ptr() for name in records}
    for name, value in model.named_parameters():
        if value.data_ptr() not in loaded:
            raise KeyError(f"the file has no tensor '{name}'")


def load(path: Union[str, "os.PathLike[str]"], model: torch.nn.Module) -> torch.nn.Module:
    """Load a compact file, which ``frugrad export`` wrote, into a model, and return the model, which is for inference::

        model = frugrad.torch.load("model.fgc", Model())
        scores = model(inputs)

    Linear layers whose weights the file has sparse or as int8 are replaced by PackedLinear, which multiplies them
    without unpacking; all other tensors are copied, and so are the weights of a model that is itself a linear layer.
    Names are those of the model's state dict; of parameters that share memory, the file needs one.

    Raises KeyError for a tensor that the model does not have or a parameter that the file does not have, ValueError for
    another shape, and FormatError or its kin for files that are no compact file, damaged or cut off.
    """
    data = Path(path).read_bytes()
    state, records = model.state_dict(), dict(_records(data))
    _check_names(model, state, records)
    for name, info in records.items():  # of packed layers too: others may share their memory
        state[name].copy_(_decode(info))
    for name, info in records.items():
        owner, _, leaf = name.rpartition(".")
        if owner and leaf == "weight" and info.code != _F32 and info.ndim == 2 and info.cols <= _COLS_MOST and _is_linear(
                model.get_submodule(owner), info):
            parent, _, child = owner.rpartition(".")
            setattr(model.get_submodule(parent), child, PackedLinear(info, model.get_submodule(owner).bias))
    return model.eval()

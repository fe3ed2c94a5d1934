"""Compact files in PyTorch: written from a model, read as a state dict, or run packed. ``frugrad export`` writes them, too."""

import os
from ctypes import byref, c_size_t, c_uint64, c_void_p, create_string_buffer
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple, Union

import torch

from .._core import address, c_text
from .._lib import MAX_DIMS, CompactInfo, CompactTensor, CompactTotals, SparseInfo, lib

_F32, _INT8, _SPARSE, _END = 0, 1, 2, 255  # sparse and int8 are added up
_END_BYTES = 64
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


def _record(name: str, value: torch.Tensor, int8: bool, input_first: bool) -> bytes:
    """The record of a tensor, with the code that needs the fewest bytes: a bitmap has a bit for each weight."""
    values, code = value.detach().to("cpu", torch.float32).contiguous(), _F32
    if value.dim() >= 2:
        width = 1 if int8 else 4
        sparse = int(values.count_nonzero()) * width + value.numel() // 8 < value.numel() * width
        code = (_SPARSE if sparse else 0) + (_INT8 if int8 else 0)
    tensor = CompactTensor(name=c_text(name, "a tensor's name"), code=code, input_first=int(input_first),
                           ndim=value.dim(), shape=(c_uint64 * MAX_DIMS)(*value.shape), data=values.data_ptr())
    room, length = c_size_t(), c_size_t()
    lib.frug_compact_bound(byref(tensor), byref(room))
    buffer = create_string_buffer(room.value)
    lib.frug_compact_write(byref(tensor), buffer, room, byref(length))
    return buffer.raw[:length.value]


def save(path: Union[str, "os.PathLike[str]"], model: torch.nn.Module, code: str = "f32") -> int:
    """Write the weights of a model as a compact file, and return its size in bytes: for ``load()``, ``frugrad eval``.

    Matrices and kernels of which enough weights are zero are stored as a bitmap and the others, all others as they are;
    with ``code="int8"`` as int8 with one scale for each output. Vectors and buffers are float32; integer buffers, such
    as the number of batches that a batch norm has seen, are left out. Tensors that share memory are written once.
    Raises ValueError for a model that ``load()`` has packed.

    >>> import tempfile, torch, frugrad.torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(100, 100))
    >>> with torch.no_grad():
    ...     _ = model[0].weight.mul_(torch.arange(100) % 10 == 0)
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     size, packed = frugrad.torch.save(file.name, model, "int8"), frugrad.torch.load(file.name, model)
    >>> size < 4000, type(packed[0]).__name__
    (True, 'PackedLinear')
    """
    if code not in ("f32", "int8"):
        raise ValueError(f"frugrad.torch.save(): code is 'f32' or 'int8', not {code!r}")
    for name, module in model.named_modules():
        if isinstance(module, PackedLinear):
            raise ValueError(f"frugrad.torch.save(): layer '{name}' is packed, as load() returns it, for inference only:"
                             " save the model before load(), or one that has the tensors of load_state()")
    transposed = {f"{name}.weight" for name, module in model.named_modules() if type(module).__name__ == "Conv1D"}
    records: List[bytes] = []
    totals, seen, end, length = CompactTotals(), set(), create_string_buffer(_END_BYTES), c_size_t()
    for name, value in model.state_dict().items():
        if not value.is_floating_point() or (value.numel() and value.data_ptr() in seen):
            continue
        seen.add(value.data_ptr())
        records.append(_record(name, value, code == "int8", name in transposed))
        info = CompactInfo()
        lib.frug_compact_read(address(records[-1]), len(records[-1]), byref(info))
        lib.frug_compact_add(byref(totals), byref(info))
    lib.frug_compact_end(byref(totals), end, _END_BYTES, byref(length))
    data = b"".join(records) + end.raw[:length.value]
    Path(path).write_bytes(data)
    return len(data)

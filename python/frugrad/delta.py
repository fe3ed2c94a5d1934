"""Weight deltas: the difference between two versions of the weights, as few bytes, without loss.

Works on PyTorch tensors and NumPy arrays in host memory, in place and without copies:

>>> import numpy as np, frugrad.delta
>>> base = {"w": np.zeros(1000, np.float16)}             # what the receivers have
>>> result = {"w": base["w"].copy()}
>>> result["w"][7] = 1.5
>>> patch = frugrad.delta.make(base, result)             # bytes: send them any way you like
>>> frugrad.delta.apply(base, patch)                     # on every receiver: all of the patch or nothing of it
>>> float(base["w"][7])
1.5

Patches are those of the commands ``frugrad diff`` and ``frugrad patch``, which work on files.
"""

import mmap
from ctypes import addressof, byref, c_char, c_size_t, c_uint64
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Tuple, Union

from . import _lib
from ._core import address, as_bytes, c_text
from ._lib import DeltaInfo, DeltaTensor, DeltaTotals, lib

__all__ = ["Change", "Patch", "SparseWeightPatch", "apply", "describe", "from_sparse", "make", "to_sparse"]

Bytes = Union[bytes, bytearray, memoryview]
KINDS = {1: "change", 2: "full", 3: "removed", 4: "header"}
_END, _CHANGE = 5, 1

# Names of safetensors, of PyTorch and of NumPy.
_NAMES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3",
          "float8_e5m2": "F8_E5M2", "float8_e8m0fnu": "F8_E8M0", "int8": "I8", "uint8": "U8", "bool": "BOOL",
          "int16": "I16", "uint16": "U16", "int32": "I32", "uint32": "U32", "int64": "I64", "uint64": "U64"}


class Change(NamedTuple):
    """One tensor of a patch."""

    name: str
    kind: str  # "change", "full" (of the result only) or "removed" (of the base only)
    dtype: str  # as in safetensors: "BF16"
    shape: Tuple[int, ...]
    entries: int  # changed elements
    bytes: int
    base: str  # hash of the tensor in the base, and in the result
    result: str


class Patch(NamedTuple):
    """What a patch holds."""

    base: str  # names the version of the weights that it leads from, and to
    result: str
    tensors: Tuple[Change, ...]

    @property
    def entries(self) -> int:
        """Changed elements of all tensors."""
        return sum(tensor.entries for tensor in self.tensors)


class SparseWeightPatch(NamedTuple):
    """The fields that vLLM calls by this name: values at flat indices of one weight."""

    name: str
    indices: Any  # int32, flat, ascending
    values: Any
    full_shape: Tuple[int, ...]


class _Weights(NamedTuple):
    """A tensor as the library wants it."""

    dtype: str
    width: int
    shape: Tuple[int, ...]
    address: int


def _torch_weights(name: str, tensor: Any) -> _Weights:
    if tensor.device.type != "cpu":
        raise ValueError(f"'{name}' is on {tensor.device}; deltas are made and applied in host memory: use .cpu(), or"
                         " load the values of frugrad.delta.to_sparse() on the device")
    if not tensor.is_contiguous():
        raise ValueError(f"'{name}' is not contiguous; use .contiguous()")
    return _Weights(str(tensor.dtype).rpartition(".")[2], tensor.element_size(), tuple(tensor.shape), tensor.data_ptr())


def _numpy_weights(name: str, array: Any) -> _Weights:
    if not array.flags.c_contiguous or not array.dtype.isnative:
        raise ValueError(f"'{name}' is not contiguous, or not in this machine's byte order; use np.ascontiguousarray()")
    return _Weights(array.dtype.name, array.dtype.itemsize, tuple(array.shape), array.ctypes.data)


def _weights(name: str, tensor: Any) -> _Weights:
    if hasattr(tensor, "data_ptr"):
        made = _torch_weights(name, tensor)
    elif hasattr(tensor, "ctypes") and hasattr(tensor, "dtype"):
        made = _numpy_weights(name, tensor)
    else:
        raise TypeError(f"'{name}' is neither a PyTorch tensor nor a NumPy array but {type(tensor).__name__}")
    if made.dtype not in _NAMES:
        raise TypeError(f"'{name}' is {made.dtype}; deltas know {', '.join(sorted(_NAMES))}")
    if len(made.shape) > _lib.MAX_DIMS:
        raise ValueError(f"'{name}' has more than {_lib.MAX_DIMS} dimensions")
    return made._replace(dtype=_NAMES[made.dtype])


def _described(name: str, weights: _Weights) -> DeltaTensor:
    tensor = DeltaTensor(name=c_text(name, "the name of a tensor"), dtype=weights.dtype.encode(), width=weights.width,
                         ndim=len(weights.shape))
    for i, n in enumerate(weights.shape):
        tensor.shape[i] = n
    return tensor


_NOTHING = b"\0" * 8  # what an empty tensor points to: NULL would mean that there is none
_nothing = address(_NOTHING)


class _Writer:
    """Records in memory of the system, which costs only what is written of it."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.room = mmap.mmap(-1, 1 << 16)
        self.totals = DeltaTotals()
        self.parts: List[bytes] = []

    def add(self, tensor: DeltaTensor) -> None:
        need, length = c_size_t(), c_size_t()
        lib.frug_delta_bound(byref(tensor), byref(need))
        if need.value > len(self.room):
            self.room = mmap.mmap(-1, need.value)
        start = c_char.from_buffer(self.room)
        lib.frug_delta_make(byref(tensor), self.threads, addressof(start), len(self.room), byref(length))
        del start
        record = self.room[:length.value]
        info = DeltaInfo()
        lib.frug_delta_read(address(record), len(record), byref(info))
        lib.frug_delta_add(byref(self.totals), byref(info))
        self.parts.append(record)

    def end(self) -> bytes:
        last, length = (c_char * 72)(), c_size_t()
        lib.frug_delta_end(byref(self.totals), addressof(last), len(last), byref(length))
        return b"".join(self.parts + [last.raw[:length.value]])


def make(base: Mapping[str, Any], result: Mapping[str, Any], *, threads: int = 0) -> bytes:
    """The patch that leads from one version of the weights to another.

    base, result   state dicts, or any mappings from names to tensors or arrays. Tensors that only one of them has, or
                   whose dtype or shape differ, are stored whole; such a patch is for files
    threads        0: one per core

    >>> import numpy as np, frugrad.delta
    >>> patch = frugrad.delta.make({"w": np.arange(9)}, {"w": np.arange(9) % 8})
    >>> frugrad.delta.describe(patch).entries
    1
    """
    writer = _Writer(threads)
    for name in list(base) + [name for name in result if name not in base]:
        before = _weights(name, base[name]) if name in base else None
        after = _weights(name, result[name]) if name in result else None
        if before and after and before[:3] == after[:3]:
            both = _described(name, after)
            both.before, both.after = before.address or _nothing, after.address or _nothing
            writer.add(both)
            continue
        if before:
            removed = _described(name, before)
            removed.before = before.address or _nothing
            writer.add(removed)
        if after:
            added = _described(name, after)
            added.after = after.address or _nothing
            writer.add(added)
    return writer.end()


def apply(weights: Mapping[str, Any], patch: Bytes, *, back: bool = False, threads: int = 0) -> None:
    """Change weights in place from the base of a patch to its result or, with back, the other way.

    weights   a state dict, or any mapping; tensors that the patch does not name are left alone

    Raises MismatchError if a tensor of the patch is missing, has another dtype or shape or is not the base, or if the
    patch adds or removes tensors, and FormatError for a damaged patch. All weights are then as before.

    >>> import numpy as np, frugrad.delta
    >>> weights, new = {"w": np.zeros(5, np.float32)}, {"w": np.ones(5, np.float32)}
    >>> patch = frugrad.delta.make(weights, new)
    >>> frugrad.delta.apply(weights, patch)
    >>> weights["w"].tolist()
    [1.0, 1.0, 1.0, 1.0, 1.0]
    >>> frugrad.delta.apply(weights, patch, back=True)
    >>> weights["w"].sum().item()
    0.0
    """
    data = as_bytes(patch, "a patch")
    named = {change.name for change in describe(data).tensors}
    tensors = []
    for name, tensor in weights.items():
        if name in named:
            if hasattr(tensor, "flags") and not tensor.flags.writeable:
                raise ValueError(f"'{name}' is read-only")
            described = _described(name, _weights(name, tensor))
            described.after = _weights(name, tensor).address or _nothing
            tensors.append(described)
    array = (DeltaTensor * len(tensors))(*tensors)
    lib.frug_delta_apply_all(address(data), len(data), int(back), array, len(tensors), threads)


def _records(data: bytes) -> Iterator[Tuple[int, DeltaInfo]]:
    """The offset and the description of every record of a checked patch, but the end."""
    at = 0
    while True:
        info = DeltaInfo()
        lib.frug_delta_read(address(data) + at, len(data) - at, byref(info))
        if info.kind == _END:
            return
        yield at, info
        at += info.bytes


def _name(data: bytes, info: DeltaInfo) -> str:
    first = info.name - address(data) if info.name_len else 0
    return data[first:first + info.name_len].decode(errors="replace")


def describe(patch: Bytes) -> Patch:
    """Check a patch and describe it. Raises FormatError.

    >>> import numpy as np, frugrad.delta
    >>> old, new = np.zeros(100, np.float16), np.zeros(100, np.float16)
    >>> new[3:5] = 1
    >>> described = frugrad.delta.describe(frugrad.delta.make({"w": old}, {"w": new}))
    >>> [(t.name, t.kind, t.dtype, t.shape, t.entries) for t in described.tensors]
    [('w', 'change', 'F16', (100,), 2)]
    """
    data = as_bytes(patch, "a patch")
    totals = DeltaTotals()
    lib.frug_delta_check(address(data), len(data), byref(totals))
    tensors = [Change(_name(data, info), KINDS[info.kind], info.dtype.decode(errors="replace"),
                      tuple(info.shape[:info.ndim]), info.entries, info.bytes, f"{info.base:016x}",
                      f"{info.result:016x}") for _, info in _records(data) if KINDS[info.kind] != "header"]
    return Patch(f"{totals.base:016x}", f"{totals.result:016x}", tuple(tensors))


def _integers(tensor: Any) -> Any:
    """A flat view of a tensor's elements as integers, which every operation knows."""
    import torch

    width = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    return tensor.detach().reshape(-1).view(width)


def to_sparse(patch: Bytes, weights: Mapping[str, Any]) -> List[SparseWeightPatch]:
    """A patch in the fields of vLLM's sparse weight patches.

    weights   PyTorch tensors of the patch's result, on any device, where indices and values will be too

    Tensors without changes are left out.

    >>> import torch, frugrad.delta
    >>> old, new = {"w": torch.zeros(2, 4)}, {"w": torch.tensor([[0., 3., 0., 0.], [0., 0., 0., 5.]])}
    >>> [sparse] = frugrad.delta.to_sparse(frugrad.delta.make(old, new), new)
    >>> sparse.indices.tolist(), sparse.values.tolist(), sparse.full_shape
    ([1, 7], [3.0, 5.0], (2, 4))
    """
    import torch

    data = as_bytes(patch, "a patch")
    describe(data)
    made = []
    for at, info in _records(data):
        if info.kind != _CHANGE or info.entries == 0:
            continue
        name = _name(data, info)
        tensor = weights[name]
        if tuple(tensor.shape) != tuple(info.shape[:info.ndim]):
            raise ValueError(f"'{name}' has shape {tuple(tensor.shape)}, in the patch {tuple(info.shape[:info.ndim])}")
        if info.count > 2**31:
            raise ValueError(f"'{name}' has {info.count} elements, and vLLM's indices are int32")
        indices = torch.empty(info.entries, dtype=torch.int64)
        lib.frug_delta_indices(address(data) + at, info.bytes, indices.data_ptr())
        indices = indices.to(tensor.device)
        values = _integers(tensor)[indices].view(tensor.dtype)
        made.append(SparseWeightPatch(name, indices.to(torch.int32), values, tuple(tensor.shape)))
    return made


def from_sparse(patches: Iterable[Any], base: Mapping[str, Any], *, threads: int = 0) -> bytes:
    """A patch from vLLM's sparse weight patches: of the tensors that they name.

    patches   objects with name, indices, values and full_shape
    base      the PyTorch tensors that they are for, in host memory

    >>> import torch, frugrad.delta
    >>> base = {"w": torch.zeros(2, 4), "b": torch.zeros(3)}
    >>> sparse = frugrad.delta.SparseWeightPatch("w", torch.tensor([1], dtype=torch.int32), torch.tensor([2.5]), (2, 4))
    >>> frugrad.delta.apply(base, frugrad.delta.from_sparse([sparse], base))
    >>> base["w"].tolist()
    [[0.0, 2.5, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    """
    result: Dict[str, Any] = {}
    for patch in patches:
        tensor = base[patch.name]
        if tuple(patch.full_shape) != tuple(tensor.shape) or patch.values.dtype != tensor.dtype:
            raise ValueError(f"'{patch.name}' is {tensor.dtype} {tuple(tensor.shape)}, in the sparse patch"
                             f" {patch.values.dtype} {tuple(patch.full_shape)}")
        changed = result.setdefault(patch.name, tensor.detach().clone())
        _integers(changed)[patch.indices.to(device=tensor.device).long()] = _integers(patch.values.to(tensor.device))
    return make({name: base[name] for name in result}, result, threads=threads)

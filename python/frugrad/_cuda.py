"""The library's compressor for GPUs over bare addresses, where libfrugrad_cuda is there.

It is looked for beside libfrugrad, or at FRUGRAD_CUDA_LIBRARY, and loaded on first use. Addresses are
those of the current device; a stream is the integer that ``torch.cuda.Stream.cuda_stream`` is. A library that emulates
the device (tests/cuda/emulator) takes addresses of the host, and 0 for every stream.
"""

import ctypes
import os
from ctypes import POINTER, byref, c_double, c_size_t, c_uint64, c_void_p
from typing import Any, Dict, Optional, Sequence

from . import _lib
from ._core import Compressor, Config, Layout
from ._lib import Owned, Range

_FUNCTIONS: Dict[str, Any] = {
    "frug_cuda_create": [c_void_p, c_void_p, POINTER(_lib.Options), POINTER(c_void_p)],
    "frug_cuda_bound": [c_void_p, Range, POINTER(c_size_t)],
    "frug_cuda_compress": [c_void_p, c_uint64, Range, c_void_p, c_void_p, c_size_t, POINTER(c_size_t), c_void_p],
    "frug_cuda_decode_add": [c_void_p, c_uint64, Range, POINTER(c_void_p), c_size_t, c_double, c_void_p, c_void_p],
    "frug_cuda_residual_add": [c_void_p, c_uint64, Range, c_void_p, c_void_p],
    "frug_cuda_check": [c_void_p, c_void_p],
    "frug_cuda_to_host": [c_void_p, c_void_p],
    "frug_cuda_from_host": [c_void_p, c_void_p],
    "frug_cuda_destroy": ([c_void_p], None),
}

MOST_FRAMES = 64  # that can be added up at once

_loaded: Optional[ctypes.CDLL] = None


def library() -> ctypes.CDLL:
    """libfrugrad_cuda; ImportError where there is none."""
    global _loaded
    if _loaded is None:
        loaded = _lib.open_beside("cuda")
        _lib.declare(loaded, _FUNCTIONS)
        _loaded = loaded
    return _loaded


def emulated() -> bool:
    """Whether FRUGRAD_CUDA_LIBRARY names a library whose device is the host."""
    if not os.environ.get("FRUGRAD_CUDA_LIBRARY"):
        return False
    try:
        return hasattr(library(), "frug_cuda_emulated")
    except ImportError:
        return False


class CudaCompressor(Owned):
    """One worker's compressor on the current device."""

    def __init__(self, config: Config, layout: Layout, total_steps: int = 0, source: int = 0):
        self.config, self.layout, self.lib = config, layout, library()
        options = _lib.Options(total_steps=total_steps, source=source)
        super().__init__(self.lib.frug_cuda_create, config.handle, layout.handle, byref(options))

    def __del__(self) -> None:
        handle, self.handle = getattr(self, "handle", None), None
        if handle:
            self.lib.frug_cuda_destroy(handle)

    def bound(self, begin: int, count: int) -> int:
        size = c_size_t()
        self.lib.frug_cuda_bound(self.handle, Range(begin, count), byref(size))
        return size.value

    def length(self, step: int, begin: int, count: int) -> int:
        """How long a frame of a range is at a step."""
        length = c_size_t()
        try:
            self.lib.frug_cuda_compress(self.handle, step, Range(begin, count), 16, 16, 0, byref(length), 0)
        except _lib.FrugradError:
            if not length.value:  # another reason than that there is no room
                raise
        return length.value

    def compress(self, step: int, begin: int, count: int, grad: int, dst: int, room: int, stream: int = 0) -> int:
        """Put one frame onto the stream; its length is known at once."""
        length = c_size_t()
        self.lib.frug_cuda_compress(self.handle, step, Range(begin, count), grad, dst, room, byref(length), stream)
        return length.value

    def decode_add(self, step: int, frames: Sequence[int], scale: float, begin: int, count: int, dst: int,
                       stream: int = 0) -> None:
        """dst += scale * (sum of the frames)."""
        n = len(frames)
        self.lib.frug_cuda_decode_add(self.handle, step, Range(begin, count), (c_void_p * n)(*frames), n, scale, dst,
                                      stream)

    def residual_add(self, step: int, begin: int, count: int, values: int, stream: int = 0) -> None:
        """Add values to the residual of a range."""
        self.lib.frug_cuda_residual_add(self.handle, step, Range(begin, count), values, stream)

    def check(self, stream: int = 0) -> None:
        """Wait for the stream; raise if a frame was invalid."""
        self.lib.frug_cuda_check(self.handle, stream)

    def to_host(self, compressor: Compressor) -> None:
        self.lib.frug_cuda_to_host(self.handle, compressor.handle)

    def from_host(self, compressor: Compressor) -> None:
        self.lib.frug_cuda_from_host(self.handle, compressor.handle)

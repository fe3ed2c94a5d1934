"""Tensors to frames and back, without a state: ``compress()`` and ``decompress()``, on the CPU and on a GPU.

Both are operators of ``torch.library`` where PyTorch has custom_op (2.4 and later), so that torch.compile() takes them
into a graph. A graph needs sizes before anything is computed, and a frame may be as long as its content asks for: so the
result has the size of the longest frame of this shape and config, and ends in zeros. A frame's header has its length.
"""

import functools
import threading
from typing import Any, List, Sequence, Tuple, Union

import torch

from .._core import Compressor, Config, Layout, Tensor
from .._cuda import CudaCompressor
from .._lib import FormatError
from .device import DeviceStreams
from .engine import by_blocks

_CONFIG = "frugrad,feedback=none"
_HEADER, _LENGTH = 48, slice(8, 16)  # docs/wire-format.md


class _Codec:
    """Compressors for one shape and config on one device."""

    def __init__(self, shape: Tuple[int, ...], text: str, device: torch.device):
        self.shape, self.device, self.config = shape, device, Config(text)
        if self.config.option("feedback") != "none":
            raise ValueError(f"'{text}' keeps what is not sent in a residual, and compress() has none: write"
                             f" '{text},feedback=none', or use DDPState or frugrad.Compressor")
        self.layout = Layout([Tensor("tensor", shape if len(shape) > 1 else (1, *shape))])
        self.count, self.lock, self.streams = self.layout.elements, threading.Lock(), DeviceStreams(device)
        self.size = Compressor(self.config, self.layout).bound(0, self.count)
        self._kept = self._new() if device.type == "cuda" or by_blocks(self.config) else None

    def _new(self) -> Union[Compressor, CudaCompressor]:
        with self.streams.current_device():
            return (CudaCompressor if self.device.type == "cuda" else Compressor)(self.config, self.layout)

    def _compressor(self) -> Union[Compressor, CudaCompressor]:
        """One that remembers nothing of earlier calls."""
        return self._kept or self._new()

    def encode(self, x: torch.Tensor, step: int) -> torch.Tensor:
        frame = torch.empty(self.size, dtype=torch.uint8, device=self.device)
        with self.lock, self.streams.current_device():
            length = self._compressor().compress(step, 0, self.count, x.data_ptr(), frame.data_ptr(), self.size,
                                                 *self._stream())
        frame[length:].zero_()
        return frame

    def decode(self, frames: Sequence[torch.Tensor], step: int, scale: float) -> torch.Tensor:
        out, addresses = torch.zeros(self.shape, device=self.device), [frame.data_ptr() for frame in frames]
        with self.lock, self.streams.current_device():
            compressor = self._compressor()
            if isinstance(compressor, CudaCompressor):
                self._require_bytes(frames, compressor.length(step, 0, self.count))
                compressor.decode_add(step, addresses, scale, 0, self.count, out.data_ptr(), *self._stream())
                compressor.check(*self._stream())
            else:
                compressor.decode_add(addresses, list(map(frame_length, frames)), scale, 0, self.count, out.data_ptr())
        return out

    def _require_bytes(self, frames: Sequence[torch.Tensor], length: int) -> None:
        """Refuse frames that are shorter than kernels read, which get addresses only."""
        for frame in frames:
            if frame.dtype != torch.uint8 or frame.numel() < length:
                raise FormatError(f"{frame.numel()} elements of {frame.dtype} are no frame: one of this shape, config and"
                                  f" step has {length} bytes")

    def _stream(self) -> List[int]:
        return [self.streams.stream()] if self.device.type == "cuda" else []


@functools.lru_cache(maxsize=256)
def _codec(shape: Tuple[int, ...], text: str, device: torch.device) -> _Codec:
    return _Codec(shape, text, device)


def _compress(x: torch.Tensor, config: str, step: int) -> torch.Tensor:
    return _codec(tuple(x.shape), config, x.device).encode(x, step)


def _decompress(frames: List[torch.Tensor], shape: List[int], config: str, step: int, scale: float) -> torch.Tensor:
    return _codec(tuple(shape), config, frames[0].device).decode(frames, step, scale)


def _compress_fake(x: torch.Tensor, config: str, step: int) -> torch.Tensor:
    return x.new_empty(_codec(tuple(map(int, x.shape)), config, torch.device("cpu")).size, dtype=torch.uint8)


def _decompress_fake(frames: List[torch.Tensor], shape: List[int], config: str, step: int,
                     scale: float) -> torch.Tensor:
    return frames[0].new_empty(shape, dtype=torch.float32)


_compress_op: Any = _compress
_decompress_op: Any = _decompress
if hasattr(torch.library, "custom_op"):
    _compress_op = torch.library.custom_op("frugrad::compress", _compress, mutates_args=())
    _decompress_op = torch.library.custom_op("frugrad::decompress", _decompress, mutates_args=())
    _compress_op.register_fake(_compress_fake)
    _decompress_op.register_fake(_decompress_fake)


def frame_length(frame: torch.Tensor) -> int:
    """The length of a frame without the zeros behind it; waits for a GPU.

    >>> frame_length(torch.cat([compress(torch.ones(100, 100)), torch.zeros(24, dtype=torch.uint8)]))
    1976
    """
    if frame.dtype != torch.uint8 or frame.numel() < _HEADER:
        raise FormatError(f"{frame.numel()} elements of {frame.dtype} are no frame")
    return min(int.from_bytes(bytes(frame[_LENGTH].tolist()), "little"), frame.numel())


def compress(tensor: torch.Tensor, config: str = _CONFIG, step: int = 0) -> torch.Tensor:
    """A frame with the entries of a tensor that a config selects: bytes, on the tensor's device.

    It has no state: what is not sent is ``tensor - decompress(frame, tensor)``, for the caller to keep or to drop, so the
    config must have feedback=none. float32 tensors are read in place. A frame is as long as the longest of this shape and
    config, and ends in zeros (with the default config there are none); ``frame[:frame_length(frame)]`` has none.

    >>> frame = compress(torch.ones(100, 100))
    >>> frame.numel(), int(decompress(frame, torch.empty(100, 100)).sum())
    (1976, 625)
    """
    return _compress_op(tensor.detach().to(torch.float32).contiguous(), config, step)


def decompress(frames: Union[torch.Tensor, Sequence[torch.Tensor]], like: torch.Tensor, config: str = _CONFIG,
               step: int = 0) -> torch.Tensor:
    """The tensor in a frame, or the mean of several; zeros where nothing was sent.

    like    a tensor of the shape and dtype of the result; its values do not matter
    config  that of the frames, and the step: a GPU needs them, the CPU finds both in the frames

    Frames are not trusted: all of one is checked before anything is used. Raises FormatError or MismatchError, on a GPU
    ValueError. On a GPU that waits for the stream.

    >>> frames = [compress(torch.full((64, 64), x)) for x in (1.0, 3.0)]
    >>> decompress(frames, torch.empty(64, 64)).unique()
    tensor([0., 2.])
    """
    listed = [frames] if isinstance(frames, torch.Tensor) else list(frames)
    if not listed:
        raise ValueError("there is no frame to decompress")
    if len({frame.device for frame in listed}) > 1:
        raise ValueError(f"the frames are on different devices: {', '.join(sorted({str(f.device) for f in listed}))}")
    mean = _decompress_op([frame.contiguous() for frame in listed], list(like.shape), config, step, 1 / len(listed))
    return mean.to(like.dtype)

"""Frames on a GPU: its streams, the compressor there, and collectives from GPU to GPU.

All work is put onto two streams of the hook, so that backward does not wait. One compresses, the other adds up
received frames; a compressor's calls must not overlap on the device, so each of the library's objects belongs to one of
them. With the emulated library (frugrad._cuda) the device is the host, and there are no streams and events.
"""

import contextlib
import math
import threading
import warnings
from typing import Any, ContextManager, Dict, Iterator, List, Optional, Sequence, Tuple

import torch

from .. import _cuda
from .._core import Compressor, Config, Tensor
from .._cuda import CudaCompressor
from .._lib import ConfigError
from .engine import NO_FEEDBACK, Engine, Range, by_blocks
from .exchange import Exchange, Handle
from .pipeline import raise_failure


class DeviceStreams:
    """The device of buckets, and its two streams."""

    def __init__(self, device: torch.device):
        self.device, self.cuda = device, device.type == "cuda"
        if self.cuda:
            self._compress, self._sum = torch.cuda.Stream(device), torch.cuda.Stream(device)

    def current_device(self) -> ContextManager:
        """A context in which the device is the current one."""
        if self.cuda:
            return torch.cuda.device(self.device)
        return contextlib.nullcontext()

    def compress_stream(self, behind: bool = True) -> ContextManager:
        """The stream that compresses; with ``behind``, after all work that is on the caller's stream now."""
        if not self.cuda:
            return contextlib.nullcontext()
        if behind:
            self._compress.wait_stream(torch.cuda.current_stream(self.device))
        return torch.cuda.stream(self._compress)

    def sum_stream(self) -> ContextManager:
        """The stream that decodes and sums."""
        if self.cuda:
            return torch.cuda.stream(self._sum)
        return contextlib.nullcontext()

    def stream(self) -> int:
        """The handle of the current stream, for the library."""
        return torch.cuda.current_stream(self.device).cuda_stream if self.cuda else 0

    def record_event(self) -> Optional["torch.cuda.Event"]:
        """An event on the current stream."""
        if not self.cuda:
            return None
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self.device))
        return event

    def wait_event(self, event: Optional["torch.cuda.Event"]) -> None:
        """Have the current stream wait for an event."""
        if event is not None:
            torch.cuda.current_stream(self.device).wait_event(event)

    def record_use(self, tensor: torch.Tensor) -> None:
        """The current stream uses a tensor that may be freed before it is done."""
        if self.cuda:
            stream: Any = torch.cuda.current_stream(self.device)
            tensor.record_stream(stream)

    def empty(self, n: int, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
        return torch.empty(n, dtype=dtype, device=self.device)

    def empty_host(self, n: int) -> torch.Tensor:
        return torch.empty(n, dtype=torch.uint8, pin_memory=self.cuda)


class Collective:
    """One collective of a bucket, from device memory to device memory.

    ``direct``: the group sends from there (NCCL), and only streams wait. Otherwise bytes are copied to the host, which
    waits for those that it sends.
    """

    def __init__(self, exchange: Exchange, streams: DeviceStreams, direct: bool):
        self.exchange, self.streams, self.direct = exchange, streams, direct
        self.sent = self.received = self._from = self._to = streams.empty(0)
        self._event: Optional["torch.cuda.Event"] = None
        self._handle = Handle()
        self.expected = 0

    def prepare(self, sent: torch.Tensor, expected: int) -> None:
        """Set the bytes to send and the number of bytes to receive."""
        self.sent = sent
        if self.received.numel() < expected:
            self.received = self.streams.empty(expected)
        if not self.direct and self._to.numel() < expected:
            self._to = self.streams.empty_host(expected)
        if not self.direct and self._from.numel() < sent.numel():
            self._from = self.streams.empty_host(sent.numel())
        self.expected = expected

    def pack(self) -> None:
        """Copy the bytes to the host, after the work on the current stream."""
        if not self.direct:
            self._from[:self.sent.numel()].copy_(self.sent, non_blocking=True)
            self._event = self.streams.record_event()

    def start(self, sizes: Optional[Sequence[int]] = None, out_sizes: Sequence[int] = ()) -> None:
        """Start an all-to-all; without sizes, an all-gather."""
        if not self.direct and self._event is not None:
            self._event.synchronize()
        mine = self.sent if self.direct else self._from[:self.sent.numel()]
        out = (self.received if self.direct else self._to)[:self.expected]
        if sizes is None:
            self._handle = self.exchange.gather(mine, out)
        else:
            self._handle = self.exchange.scatter(mine, sizes, out, out_sizes)
        if self.direct:
            self._event = self.streams.record_event()

    def finish(self) -> None:
        """Have the current stream wait for the received bytes."""
        self.streams.wait_event(self._event)
        self._handle.wait()
        if not self.direct:
            self.received[:self.expected].copy_(self._to[:self.expected], non_blocking=True)

    def raise_remote_failure(self, frames: int, wait: bool = False) -> None:
        """Raise the error of a rank that failed; with NCCL only with ``wait``, since that waits for the device."""
        if not self.expected or (self.direct and not wait):
            return
        rows = (self.received if self.direct else self._to)[:self.expected].view(frames, -1)
        raise_failure(row[:512].cpu() for row in rows)


class DeviceEngine(Engine):
    """An engine whose compressor is on a GPU; residuals are copied to the host to be saved or read."""

    def __init__(self, streams: DeviceStreams, *arguments: Any):
        self.streams = streams
        super().__init__(*arguments)

    def _make(self) -> None:
        plain = Config(self.config.text + NO_FEEDBACK)
        with self.streams.current_device():
            self.encoder = CudaCompressor(self.config, self.layout, self.total_steps, self.rank)
            self.decoder = CudaCompressor(plain, self.layout, self.total_steps, self.rank)
        self.planner = Compressor(plain, self.layout, self.total_steps, 1, self.rank)
        self.lock = threading.Lock()  # of the decoder and the selectors
        self.steady = (self.config.option("schedule").startswith("constant")
                       and not int(self.config.option("warmup")) and not int(self.config.option("dense_every")))
        self._selectors: Dict[Tuple[str, bool], CudaCompressor] = {}
        self._steps, self._last, self._sum = 0, 1.0, 0.0  # shares that were sent: of the last step, and of all
        self._pending_error: Optional[ValueError] = None  # of the engine that this one has replaced

    def extended(self, tensors: Sequence[Tensor]) -> "DeviceEngine":
        grown = super().extended(tensors)
        try:
            self.check_frames()
        except ValueError as error:
            grown._pending_error = error
        return grown

    def host_compressor(self) -> Compressor:
        twin = self._twin()
        with self.streams.current_device():
            self.encoder.to_host(twin)
        return twin

    @contextlib.contextmanager
    def edit_residuals(self) -> Iterator[Compressor]:
        twin = self.host_compressor()
        yield twin
        with self.streams.current_device():
            self.encoder.from_host(twin)

    def probe(self) -> CudaCompressor:
        return self.decoder

    def lengths(self, compressor: CudaCompressor, step: int, ranges: Sequence[Range]) -> List[int]:
        """The lengths of frames, by the decoder or a selector."""
        with self.lock, self.streams.current_device():
            return [compressor.length(step, r.begin, r.count) for r in ranges]

    def selector(self, step: int, sum_config: Optional[Config], size: int, own: bool = False) -> CudaCompressor:
        """The compressor for sums of a shard (reduce=split): by ``sum_config``; None: with room for all sent entries.

        ``own``: one that decodes no frame of another rank: after an invalid frame it would add nothing.
        """
        text = sum_config.text if sum_config is not None else self._union(step, size)
        if (text, own) not in self._selectors:
            with self.streams.current_device():
                self._selectors[text, own] = CudaCompressor(Config(text), self.layout, self.total_steps, self.rank)
        return self._selectors[text, own]

    def _union(self, step: int, size: int) -> str:
        # Counts in a block may be fractions, carried from block to block; whole ones leave room in every block.
        most = max((p["density"] for p in self._plan(step) if not p["dense"]), default=1.0)
        block = int(self.config.option("block"))
        density = min(1.0, size * math.ceil(block * most - 1e-6) / block)
        return f"{self.config.text},schedule=constant:{1 - density},layers=even,value=f32{NO_FEEDBACK}"

    def _plan(self, step: int) -> List[dict]:
        return [self.planner.plan(step, i) for i in range(len(self.tensors))]

    def check_frames(self) -> None:
        """Wait, and raise if a frame since the last check was invalid."""
        found, self._pending_error = self._pending_error, None
        with self.lock, self.streams.sum_stream():
            for compressor in (self.decoder, *self._selectors.values()):  # all of them, so that none raises later
                try:
                    compressor.check(self.streams.stream())
                except ValueError as error:
                    found = found or error
        if found is not None:
            raise found

    def count(self, step: int) -> None:
        """Count a step that was compressed."""
        if not self._steps or not self.steady:
            plans = self._plan(step)
            sent = sum(t.elements if p["dense"] else p["selected"] for t, p in zip(self.tensors, plans))
            self._last = sent / max(sum(t.elements for t in self.tensors), 1)
        self._steps += 1
        self._sum += self._last

    def stats(self) -> dict:
        """The share that was sent; kernels do not count energy or skipped blocks."""
        return {"density_mean": self._sum / self._steps if self._steps else 1.0, "energy_sent_mean": None,
                "blocks_skipped": None}


def device_engine(device: torch.device, exchange: Exchange, config: Config, *arguments: Any) -> Optional[DeviceEngine]:
    """An engine on the device of gradients, if that is a GPU and the library has kernels for the config; else None."""
    if device.type != "cuda" and not _cuda.emulated():
        return None
    try:
        if device.type == "cuda" and _cuda.emulated():
            raise ImportError("the library that FRUGRAD_CUDA_LIBRARY names has no GPU")
        if config.option("reduce") not in ("gather", "split"):
            raise ConfigError(f"reduce={config.option('reduce')} has no kernels")
        if not by_blocks(config):
            raise ConfigError("frames of this config differ in length")
        if exchange.size > _cuda.MOST_FRAMES:
            raise ConfigError(f"there are more than {_cuda.MOST_FRAMES} ranks")
        return DeviceEngine(DeviceStreams(device), config, *arguments, exchange.rank)
    except (ConfigError, ImportError) as error:
        warnings.warn(f"frugrad compresses on the host: gradients are copied from the GPU and back ({error})")
        return None

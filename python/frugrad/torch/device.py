"""Frames on a GPU: where a bucket lies, the compressor there, and the way that bytes take from one GPU to all.

All work is put onto two streams of the hook, so that backward does not wait. One compresses, the other adds up
received frames; a compressor's calls must not overlap on the device, so each of the library's objects belongs to one of
them. With the emulated library (frugrad._cuda) the device is the host, and streams and events are nothing.
"""

import contextlib
import math
import threading
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

import torch

from .._core import Compressor, Config
from .._cuda import CudaCompressor
from .engine import NO_FEEDBACK, Engine, Range
from .exchange import Exchange
from .pipeline import raise_failure


class Place:
    """The device of some buckets."""

    def __init__(self, device: torch.device):
        self.device, self.cuda = device, device.type == "cuda"
        if self.cuda:
            self._press, self._sum = torch.cuda.Stream(device), torch.cuda.Stream(device)

    def current_device(self):
        """A context in which the device is the current one."""
        return torch.cuda.device(self.device) if self.cuda else contextlib.nullcontext()

    def compress_stream(self, behind: bool = True):
        """The stream that compresses; ``behind`` all that the caller's stream has been given so far."""
        if not self.cuda:
            return contextlib.nullcontext()
        if behind:
            self._press.wait_stream(torch.cuda.current_stream(self.device))
        return torch.cuda.stream(self._press)

    def sum_stream(self):
        """The stream that adds up."""
        return torch.cuda.stream(self._sum) if self.cuda else contextlib.nullcontext()

    def stream(self) -> int:
        """The current stream, as the library takes it."""
        return torch.cuda.current_stream(self.device).cuda_stream if self.cuda else 0

    def record_event(self) -> Optional["torch.cuda.Event"]:
        """A point on the current stream."""
        if not self.cuda:
            return None
        event = torch.cuda.Event()
        event.record(torch.cuda.current_stream(self.device))
        return event

    def wait_event(self, event: Optional["torch.cuda.Event"]) -> None:
        """Let the current stream wait for such a point."""
        if event is not None:
            torch.cuda.current_stream(self.device).wait_event(event)

    def record_use(self, tensor: torch.Tensor) -> None:
        """The current stream uses a tensor that may be freed before it is done."""
        if self.cuda:
            tensor.record_stream(torch.cuda.current_stream(self.device))

    def empty(self, n: int, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
        return torch.empty(n, dtype=dtype, device=self.device)

    def empty_host(self, n: int) -> torch.Tensor:
        return torch.empty(n, dtype=torch.uint8, pin_memory=self.cuda)


class Leg:
    """One collective of a bucket, from device memory to device memory.

    ``direct``: the group sends from there (NCCL), and only streams wait. Otherwise bytes are copied to the host, which
    waits for those that it sends.
    """

    def __init__(self, exchange: Exchange, place: Place, direct: bool):
        self.exchange, self.place, self.direct = exchange, place, direct
        self.sent = self.got = self._from = self._to = place.empty(0)
        self._event = self._handle = None
        self.expected = 0

    def fit(self, sent: torch.Tensor, expected: int) -> None:
        """What is sent, and how much will come."""
        self.sent = sent
        if self.got.numel() < expected:
            self.got = self.place.empty(expected)
        if not self.direct and self._to.numel() < expected:
            self._to = self.place.empty_host(expected)
        if not self.direct and self._from.numel() < sent.numel():
            self._from = self.place.empty_host(sent.numel())
        self.expected = expected

    def pack(self) -> None:
        """Behind what the current stream writes there."""
        if not self.direct:
            self._from[:self.sent.numel()].copy_(self.sent, non_blocking=True)
            self._event = self.place.record_event()

    def start(self, sizes: Optional[Sequence[int]] = None, out_sizes: Sequence[int] = ()) -> None:
        """Begin: all to all with sizes, a gather without."""
        if not self.direct and self._event is not None:
            self._event.synchronize()
        mine = self.sent if self.direct else self._from[:self.sent.numel()]
        out = (self.got if self.direct else self._to)[:self.expected]
        if sizes is None:
            self._handle = self.exchange.gather(mine, out)
        else:
            self._handle = self.exchange.scatter(mine, sizes, out, out_sizes)
        if self.direct:
            self._event = self.place.record_event()

    def arrive(self) -> None:
        """From here on the current stream has what came."""
        self.place.wait_event(self._event)
        self._handle.wait()
        if not self.direct:
            self.got[:self.expected].copy_(self._to[:self.expected], non_blocking=True)

    def raise_remote_failure(self, frames: int, look: bool = False) -> None:
        """Raise the error of a rank that failed; with NCCL only with ``look``, since that waits for the device."""
        if not self.expected or (self.direct and not look):
            return
        rows = (self.got if self.direct else self._to)[:self.expected].view(frames, -1)
        raise_failure(row[:512].cpu() for row in rows)


class DeviceEngine(Engine):
    """An engine whose compressor is on a GPU; residuals are copied to the host to be saved or read."""

    def __init__(self, place: Place, *arguments):
        self.place = place
        super().__init__(*arguments)

    def _make(self) -> None:
        plain = Config(self.config.text + NO_FEEDBACK)
        with self.place.current_device():
            self.compressor = CudaCompressor(self.config, self.layout, self.total_steps, self.rank)
            self.decoder = CudaCompressor(plain, self.layout, self.total_steps, self.rank)
        self.planner = Compressor(plain, self.layout, self.total_steps, 1, self.rank)
        self.lock = threading.Lock()  # of the decoder and the selectors
        self.steady = (self.config.option("schedule").startswith("constant")
                       and not int(self.config.option("warmup")) and not int(self.config.option("dense_every")))
        self._selectors: Dict[Tuple[str, bool], CudaCompressor] = {}
        self._steps, self._last, self._sum = 0, None, 0.0
        self._pending_error: Optional[ValueError] = None  # of the engine that this one has replaced

    def _like(self, tensors) -> "DeviceEngine":
        return DeviceEngine(self.place, self.config, tensors, self.total_steps, self.threads, self.rank)

    def extended(self, tensors) -> "DeviceEngine":
        grown = super().extended(tensors)
        try:
            self.check_frames()
        except ValueError as error:
            grown._pending_error = error
        return grown

    def host_compressor(self) -> Compressor:
        twin = self._twin()
        with self.place.current_device():
            self.compressor.to_host(twin)
        return twin

    @contextlib.contextmanager
    def edit_residuals(self) -> Iterator[Compressor]:
        twin = self.host_compressor()
        yield twin
        with self.place.current_device():
            self.compressor.from_host(twin)

    def probe(self) -> CudaCompressor:
        return self.decoder

    def lengths(self, compressor: CudaCompressor, step: int, ranges: Sequence[Range]) -> List[int]:
        """How long frames are; asked of the decoder or a selector."""
        with self.lock, self.place.current_device():
            return [compressor.length(step, r.begin, r.count) for r in ranges]

    def selector(self, step: int, again: Optional[Config], size: int, own: bool = False) -> CudaCompressor:
        """What an owner of reduce=split selects by: ``again``, or with None what holds all that so many ranks send.

        ``own``: one that reads no other rank's frames, since it would add up nothing after a bad one.
        """
        text = again.text if again is not None else self._union(step, size)
        if (text, own) not in self._selectors:
            with self.place.current_device():
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
        with self.lock, self.place.sum_stream():
            for compressor in (self.decoder, *self._selectors.values()):  # all of them, so that none raises later
                try:
                    compressor.verdict(self.place.stream())
                except ValueError as error:
                    found = found or error
        if found is not None:
            raise found

    def count(self, step: int) -> None:
        """A step was compressed."""
        if self._last is None or not self.steady:
            plans = self._plan(step)
            sent = sum(t.elements if p["dense"] else p["kept"] for t, p in zip(self.tensors, plans))
            self._last = sent / max(sum(t.elements for t in self.tensors), 1)
        self._steps += 1
        self._sum += self._last

    def stats(self) -> dict:
        """The share that was sent; kernels do not count energy or skipped blocks."""
        return {"density_mean": self._sum / self._steps if self._steps else 1.0, "energy_kept_mean": None,
                "blocks_held": None}

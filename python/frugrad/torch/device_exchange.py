"""reduce=gather and reduce=split for one bucket whose frames are encoded and decoded on a GPU.

The library's reducer works on host memory; here the lengths of frames are known beforehand, and work is only put
onto streams. ``begin`` compresses, ``send`` and ``start_second`` start collectives, in the same order on all ranks, and
``end`` decodes.
"""

from typing import Dict, List, Optional, Sequence, Union

import torch

from .._core import Config
from .._cuda import CudaCompressor
from .._lib import ConfigError
from .device import Collective, DeviceEngine
from .engine import NO_FEEDBACK, Range
from .exchange import Exchange
from .pipeline import Clock, Times, mark_failure
from .ranges import aligned, cut, limited

_PHASES = 16  # steps after which fractions of an entry a block repeat
_TEXT = 64  # bytes at least, for the error text of a rank that failed


def second_config(config: Config) -> Optional[Config]:
    """The config for sums of a shard; None: all non-zeros are sent. ConfigError where there are no kernels."""
    down = config.option("down")
    if down == "union":
        return None
    kind, _, sparsity = config.option("schedule").partition(":")
    if config.option("rule") != "topk" or kind != "constant" or config.option("feedback") == "dgc":
        raise ConfigError(f"down={down} on a GPU takes rule=topk, a constant schedule and a feedback other than dgc")
    density = min(1.0, int(down) * (1.0 - float(sparsity)))
    return Config(f"{config.text},density={density},dense_every=0,warmup=0{NO_FEEDBACK}")


class _Bucket:
    """Base of both: the frames of some ranges one after the other, and their first transfer."""

    def __init__(self, engine: DeviceEngine, exchange: Exchange, ranges: Sequence[Range], direct: bool):
        self.engine, self.streams, self.exchange, self.direct = engine, engine.streams, exchange, direct
        self.ranges = list(ranges)
        self.memory = self.streams.empty(sum(aligned(engine.encoder.bound(r.begin, r.count)) for r in ranges))
        self.memory.zero_()
        self.first = Collective(exchange, self.streams, direct)
        self.error: Optional[BaseException] = None

    def compress(self, step: int, grad: int) -> List[int]:
        """Compress the bucket at address grad; returns each frame's length."""
        encoder, stream = self.engine.encoder, self.streams.stream()
        lengths, at, end = [], self.memory.data_ptr(), self.memory.data_ptr() + self.memory.numel()
        for begin, count, offset in self.ranges:
            lengths.append(encoder.compress(step, begin, count, grad + 4 * offset, at, end - at, stream))
            at += aligned(lengths[-1])
        return lengths

    def _compress_or_fail(self, step: int, source: torch.Tensor, times: Times,
                          error: Optional[BaseException]) -> List[int]:
        lengths = None
        if error is None:
            try:
                with Clock(times, "compress"):
                    lengths = self.compress(step, source.data_ptr())
                times.bytes_sent += sum(lengths)
            except Exception as failed:
                error = failed
        self.step, self.error = step, error
        return lengths if lengths is not None else self.engine.lengths(self.engine.probe(), step, self.ranges)

    def _add(self, compressor: CudaCompressor, frames: Sequence[int], scale: float, r: Range, target: int) -> None:
        with self.engine.lock:
            compressor.decode_add(self.step, frames, scale, r.begin, r.count, target, self.streams.stream())

    def _raise_own_error(self) -> None:
        """Raise this rank's error, where all ranks raise it in this step."""
        if self.error is not None and not self.direct:
            raise self.error


class DeviceGather(_Bucket):
    """All-gather of frames."""

    def begin(self, step: int, source: torch.Tensor, times: Times, error: Optional[BaseException]) -> None:
        self.lengths = self._compress_or_fail(step, source, times, error)
        self.stride = sum(map(aligned, self.lengths))
        self.first.prepare(self.memory[:self.stride], self.stride * self.exchange.size)
        if self.error is not None:
            mark_failure(self.first.sent, self.error)
        self.first.pack()

    def send(self) -> None:
        pass

    def start_second(self, times: Times) -> None:
        with Clock(times, "wait"), self.streams.compress_stream(behind=False):
            self.first.start()

    def end(self, target: torch.Tensor, times: Times) -> None:
        """Make ``target`` the mean over all ranks."""
        with Clock(times, "wait"):
            self.first.finish()
        self._raise_own_error()
        self.first.raise_remote_failure(self.exchange.size)
        with Clock(times, "decode"):
            target.zero_()
            size, at = self.exchange.size, self.first.received.data_ptr()
            for r, length in zip(self.ranges, self.lengths):
                frames = [at + rank * self.stride for rank in range(size)]
                self._add(self.engine.decoder, frames, 1.0 / size, r, target.data_ptr() + 4 * r.offset)
                at += aligned(length)

    def raise_rank_error(self) -> None:
        """Raise the error of a rank that failed, after check_frames()."""
        if self.first.direct and self.first.received.numel():
            self.first.raise_remote_failure(self.exchange.size, wait=True)


class DeviceSplit(_Bucket):
    """Each rank owns a shard, adds up the frames of all ranks for it, and sends the sum to all."""

    def __init__(self, engine: DeviceEngine, exchange: Exchange, ranges: Sequence[Range], sizes: Sequence[int],
                 direct: bool, sum_config: Optional[Config]):
        self.parts = cut(ranges, sizes, exchange.size, int(engine.config.option("block")))
        super().__init__(engine, exchange, [r for part in self.parts for r in part], direct)
        self.mine, self.sum_config = self.parts[exchange.rank], sum_config
        self.total = self.streams.empty(sum(r.count for r in self.mine), torch.float32)
        self.second, self.message = Collective(exchange, self.streams, direct), self.streams.empty(0)
        self.tails = _Tails(self, sizes) if sum_config is None else None
        self.has_residual = sum_config is not None and engine.config.option("feedback") != "none"
        self._known: Dict[int, List[List[int]]] = {}  # their lengths by phase, where steps repeat them

    def begin(self, step: int, source: torch.Tensor, times: Times, error: Optional[BaseException]) -> None:
        lengths = self._compress_or_fail(step, source, times, error)
        self._prepare(step)
        self.up, at = [], 0
        for part in self.parts:
            self.up.append(lengths[at:at + len(part)])
            at += len(part)
        self.sizes = [sum(map(aligned, row)) for row in self.up]
        self.first.prepare(self.memory[:sum(self.sizes)], self.sizes[self.exchange.rank] * self.exchange.size)
        if self.error is not None:
            for piece in self.first.sent.split(self.sizes):
                mark_failure(piece, self.error)
        self.first.pack()

    def _prepare(self, step: int) -> None:
        """Compute the lengths of the frames with sums."""
        self.selector = self.engine.selector(step, self.sum_config, self.exchange.size)
        self.writer = self.engine.selector(step, self.sum_config, self.exchange.size, own=self.has_residual)
        phase = step % _PHASES
        if phase not in self._known or not self.engine.steady:
            self._known[phase] = [self.engine.lengths(self.selector, step, part) for part in self.parts]
        self.down = self._known[phase]
        self.framed = max(_TEXT, max(sum(map(aligned, row)) for row in self.down))
        self.stride = self.framed + (self.tails.bytes if self.tails else 0)
        if self.message.numel() < self.stride:
            self.message = self.streams.empty(self.stride)
            self.message.zero_()
        self.second.prepare(self.message[:self.stride], self.stride * self.exchange.size)

    def send(self) -> None:
        with self.streams.compress_stream(behind=False):
            self.first.start(self.sizes, [self.sizes[self.exchange.rank]] * self.exchange.size)

    def start_second(self, times: Times) -> None:
        """Add up the own shard, and start sending the sum to all."""
        with self.streams.sum_stream():
            with Clock(times, "wait"):
                self.first.finish()
            try:
                if self.error is not None:
                    raise self.error
                if self.sizes[self.exchange.rank]:
                    self.first.raise_remote_failure(self.exchange.size)
                with Clock(times, "decode"):
                    self._add_up()
                with Clock(times, "compress"):
                    self._select(times)
            except Exception as failed:
                self.error = failed
                self.second.sent.zero_()
                mark_failure(self.second.sent[:self.framed], failed)
            self.second.pack()
            with Clock(times, "wait"):
                self.second.start()

    def _add_up(self) -> None:
        rank, size = self.exchange.rank, self.exchange.size
        self.total.zero_()
        at = self.first.received.data_ptr()
        for r, length in zip(self.mine, self.up[rank]):
            self._add(self.engine.decoder, [at + i * self.sizes[rank] for i in range(size)], 1.0, r, self._at(r))
            at += aligned(length)

    def _at(self, r: Range) -> int:
        """The address of a range of the own shard in the sums."""
        return self.total.data_ptr() + 4 * (r.offset - self.mine[0].offset)

    def _select(self, times: Times) -> None:
        at, end = self.message.data_ptr(), self.message.data_ptr() + self.message.numel()
        for r in self.mine:
            with self.engine.lock:
                length = self.writer.compress(self.step, r.begin, r.count, self._at(r), at, end - at,
                                              self.streams.stream())
            if self.has_residual:
                self._add(self.writer, [at], -1.0, r, self._at(r))
            times.bytes_sent += length
            at += aligned(length)
        if self.has_residual and self.mine:
            self._add_to_residual()
        elif self.tails:
            self.tails.write(self.total, self.message[self.framed:self.stride])

    def _add_to_residual(self) -> None:
        """Add the entries that were not selected to the own residual, on the stream that compresses."""
        done = self.streams.record_event()
        with self.streams.compress_stream(behind=False):
            self.streams.wait_event(done)
            self.streams.record_use(self.total)  # no other stream waits for this
            for r in self.mine:
                self.engine.encoder.residual_add(self.step, r.begin, r.count, self._at(r), self.streams.stream())

    def end(self, target: torch.Tensor, times: Times) -> None:
        """Make ``target`` the mean over all ranks."""
        with Clock(times, "wait"):
            self.second.finish()
        self._raise_own_error()
        self.second.raise_remote_failure(self.exchange.size)
        with Clock(times, "decode"):
            target.zero_()
            for rank, part in enumerate(self.parts):
                at = self.second.received.data_ptr() + rank * self.stride
                for r, length in zip(part, self.down[rank]):
                    self._add(self.selector, [at], 1.0 / self.exchange.size, r, target.data_ptr() + 4 * r.offset)
                    at += aligned(length)
            if self.tails:
                rows = self.second.received[:self.second.expected].view(self.exchange.size, self.stride)
                self.tails.read(rows[:, self.framed:], 1.0 / self.exchange.size, target)

    def raise_rank_error(self) -> None:
        """Raise the error of a rank that failed, after check_frames()."""
        if self.first.direct and self.second.received.numel():
            if self.sizes[self.exchange.rank]:
                self.first.raise_remote_failure(self.exchange.size, wait=True)
            self.second.raise_remote_failure(self.exchange.size, wait=True)


class _Tails:
    """Elements after the last whole block of each tensor, sent dense: a selection by whole counts may drop some."""

    def __init__(self, bucket: DeviceSplit, sizes: Sequence[int]):
        block, starts, at = int(bucket.engine.config.option("block")), [], 0
        for size in sizes:
            starts.append((at + size // block * block, at + size))
            at += size
        device, parts = bucket.streams.device, []
        for part in bucket.parts:
            low, high = (part[0].offset, part[-1].offset + part[-1].count) if part else (0, 0)
            parts.append([i for begin, end in starts if low <= begin < high for i in range(begin, end)])
        self.counts, mine = list(map(len, parts)), parts[bucket.exchange.rank]
        self.bytes = aligned(4 * max(self.counts))
        first = bucket.mine[0].offset if bucket.mine else 0
        self._mine = torch.tensor([i - first for i in mine], dtype=torch.int64, device=device)
        self._all = [torch.tensor(part, dtype=torch.int64, device=device) for part in parts]

    def write(self, total: torch.Tensor, room: torch.Tensor) -> None:
        """Write the own sums into the message."""
        if len(self._mine):
            room.view(torch.float32)[:len(self._mine)] = total[self._mine]

    def read(self, rows: torch.Tensor, scale: float, target: torch.Tensor) -> None:
        """Read the sums of all ranks from their messages."""
        for row, count, indices in zip(rows, self.counts, self._all):
            if count:
                target[indices] = row.view(torch.float32)[:count] * scale + 0.0


def device_bucket(engine: DeviceEngine, exchange: Exchange, ranges: Sequence[Range], sizes: Sequence[int],
                  direct: bool) -> Union[DeviceGather, DeviceSplit]:
    """The exchange of a bucket of tensors of these sizes, by the config's reduce=."""
    ranges = limited(ranges, sizes)
    if engine.config.option("reduce") == "gather":
        return DeviceGather(engine, exchange, ranges, direct)
    return DeviceSplit(engine, exchange, ranges, sizes, direct, second_config(engine.config))

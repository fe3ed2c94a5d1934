"""reduce=gather for one bucket: every rank's frames go to every rank, and all add them up in rank order.

Buffers, views and argument arrays are made once and kept; a step in which nothing changes its length makes none. Where
frames may differ in length from rank to rank, lengths are exchanged first, and the shorter ones padded.
"""

from ctypes import c_size_t, c_void_p
from typing import List, Optional, Sequence, Tuple

import torch

from .._lib import lib
from .engine import Engine, Range
from .exchange import Exchange, Handle
from .pipeline import Clock, Times, mark_failure, raise_failure

_ALIGN = 16
_MOST = 1 << 27  # entries
TEXT = 512  # bytes to say why one has failed, where frames have no agreed length


def aligned(n: int) -> int:
    return -(-n // _ALIGN) * _ALIGN


def limited(ranges: Sequence[Range], sizes: Sequence[int]) -> List[Range]:
    """Ranges none of whose frames comes near the most that a GPU's kernels take, 2^30 bytes."""
    parts = -(-sum(sizes) // _MOST)
    return [r for part in cut(ranges, sizes, parts, 4096) for r in part] if parts > 1 else list(ranges)


def cut(ranges: Sequence[Range], sizes: Sequence[int], parts: int, block: int) -> List[List[Range]]:
    """Divide a bucket: at multiples of the block into a tensor, or with block 0 between tensors."""
    total, starts = sum(sizes), []
    at = 0
    for size in sizes:
        starts.append(at)
        at += size
    cuts = [0]
    for part in range(1, parts):
        goal = total * part // parts
        start = max((s for s in starts if s <= goal), default=0)
        cuts.append(max(cuts[-1], start + (goal - start) // block * block if block else start))
    cuts.append(total)
    return [[Range(r.begin + max(low - r.offset, 0), min(high, r.offset + r.count) - max(low, r.offset),
                   max(low, r.offset)) for r in ranges if r.offset < high and r.offset + r.count > low]
            for low, high in zip(cuts, cuts[1:])]


class Frames:
    """Room for the frames of some ranges, one after the other, and their compression."""

    def __init__(self, engine: Engine, ranges: Sequence[Range]):
        self.engine, self.ranges = engine, list(ranges)
        room = sum(aligned(engine.compressor.bound(r.begin, r.count)) for r in ranges)
        self.memory = torch.zeros(room, dtype=torch.uint8)
        self._length = c_size_t()

    def begin(self, exchange: Exchange, fixed: bool, step: int, source: torch.Tensor, times: Times,
              error: Optional[BaseException]) -> Tuple[List[List[int]], Optional[BaseException]]:
        """Compress, unless this rank has failed before: every rank's lengths, and what is wrong here, if anything.

        Lengths that are not fixed are exchanged, and are -1 where a rank has failed.
        """
        lengths = [-1] * len(self.ranges)
        if error is None:
            try:
                with Clock(times, "compress"):
                    lengths = self.compress(step, source.data_ptr())
                times.bytes_sent += sum(lengths)
            except Exception as failed:
                error = failed
        if not fixed:
            return exchange.gather_numbers(lengths), error
        return [lengths if error is None else self.probe(step)] * exchange.size, error

    def compress(self, step: int, grad: int) -> List[int]:
        """Compress the bucket at address grad; returns each frame's length."""
        return self._compress(self.engine.compressor.handle, step, grad)

    def probe(self, step: int) -> List[int]:
        """The lengths that frames of this step have, of a gradient of zeros."""
        zeros = torch.zeros(max((r.offset + r.count for r in self.ranges), default=0))
        compressor = self.engine.probe()
        return self._compress(compressor.handle, step, zeros.data_ptr())

    def _compress(self, handle, step: int, grad: int) -> List[int]:
        lengths, at, end = [], self.memory.data_ptr(), self.memory.data_ptr() + self.memory.numel()
        for begin, count, offset in self.ranges:
            lib.frug_compress(handle, step, begin, count, grad + 4 * offset, at, end - at, self._length)
            lengths.append(self._length.value)
            at += aligned(self._length.value)
        return lengths


class _Arrays:
    """What decoding takes, for one set of lengths."""

    def __init__(self, rows: Sequence[Sequence[int]], stride: int, base: int):
        n = len(rows)
        self.calls = []
        at = [base + rank * stride for rank in range(n)]
        for i in range(len(rows[0])):
            lengths = [row[i] for row in rows]
            self.calls.append(((c_void_p * n)(*at), (c_size_t * n)(*lengths)))
            at = [a + aligned(length) for a, length in zip(at, lengths)]


class GatherBucket:
    """One bucket's exchange."""

    def __init__(self, engine: Engine, exchange: Exchange, ranges: Sequence[Range], fixed: bool):
        self.engine, self.exchange, self.fixed = engine, exchange, fixed
        self.frames = Frames(engine, ranges)
        self.received: Optional[torch.Tensor] = None
        self._key = None

    def begin(self, step: int, source: torch.Tensor, times: Times, error: Optional[BaseException]) -> Handle:
        """Compress and start sending; ``error``: this rank has failed before, and says so instead."""
        rows, self.error = self.frames.begin(self.exchange, self.fixed, step, source, times, error)
        self._prepare(rows)
        if self.error is not None:
            mark_failure(self.sent, self.error)
        return self.exchange.gather(self.sent, self.got)

    def _prepare(self, rows: List[List[int]]) -> None:
        if rows == self._key:
            return
        failed = any(length < 0 for row in rows for length in row)
        stride = TEXT if failed else max(sum(map(aligned, row)) for row in rows)
        size = self.exchange.size
        if self.received is None or self.received.numel() < stride * size:
            self.received = torch.empty(stride * size, dtype=torch.uint8)
        # All ranks have the same bound, so the longest of them fits here too.
        self.sent = torch.zeros(stride, dtype=torch.uint8) if failed else self.frames.memory[:stride]
        self.got = self.received[:stride * size]
        self._arrays = None if failed else _Arrays(rows, stride, self.received.data_ptr())
        self._key = None if failed else rows

    def end(self, handle: Handle, target: torch.Tensor, times: Times) -> None:
        """Wait, and make ``target`` the mean over all ranks."""
        with Clock(times, "wait"):
            handle.wait()
        if self.error is not None:
            raise self.error
        with Clock(times, "decode"):
            if self._arrays is None:
                self._explain()
            target.zero_()
            try:
                with self.engine.lock:
                    for r, (frames, lengths) in zip(self.frames.ranges, self._arrays.calls):
                        lib.frug_decompress_add(self.engine.decoder.handle, frames, lengths, self.exchange.size,
                                                1.0 / self.exchange.size, r.begin, r.count,
                                                target.data_ptr() + 4 * r.offset)
            except ValueError:
                self._explain()
                raise

    def _explain(self) -> None:
        """Raise what a rank that failed says, if one did."""
        raise_failure(self.got.view(self.exchange.size, -1))

"""reduce=split for one bucket: each rank owns a part of it, adds up everyone's frames of that part, and tells all.

First the frames of part r go from every rank to rank r; then what rank r has added up goes to every rank. With
down=union that is all that is not zero, exact, so the result is that of reduce=gather; with down=1, 2 or 4 the owner
selects again, and what it drops joins its own residual. The second half of a bucket begins when the next bucket
is handed over (or at once behind the last one), so that all ranks begin all collectives in the same order.
"""

from typing import List, Optional, Sequence

import torch

from .._core import Compressor, Config, Layout, Tensor
from .engine import FORGETFUL, Engine, Range
from .exchange import Exchange
from .gather import TEXT, Frames, aligned, cut
from .pipeline import Clock, RemoteError, Times, mark_failure, raise_failure

_UNION = "rule=threshold:absolute:1.4e-45,segment=tensor,density=1,feedback=none,value=f32,index=auto,min_size=0," \
         "vectors=sparse"


def second_config(config: Config) -> Optional[Config]:
    """What an owner selects by; None for all that is not zero."""
    down = config.option("down")
    if down == "union":
        return None
    kind, _, held = config.option("schedule").partition(":")
    if config.option("rule") != "topk" or kind != "constant" or config.option("feedback") == "dgc":
        raise ValueError(f"reduce=split,down={down} in the hook takes rule=topk, a constant schedule and a feedback"
                         " other than dgc; take down=union")
    density = min(1.0, int(down) * (1.0 - float(held)))
    return Config(f"{config.text},density={density},dense_every=0,warmup=0{FORGETFUL}")


class _Sum:
    """What an owner sends of its part, and how others read it."""

    def __init__(self, engine: Engine, part: Sequence[Range], again: Optional[Config], selector, own: bool):
        self.engine, self.part, self.selector = engine, list(part), selector
        self.count = sum(r.count for r in part)
        self.offset = part[0].offset if part else 0
        if again is None and self.count:
            layout = Layout([Tensor("part", (self.count,))])
            self.reader = Compressor(Config("feedback=none"), layout)
            self.writer = Compressor(Config(_UNION), layout) if own else None
        self.again = again

    def room(self) -> int:
        if not self.count:
            return 0
        if self.again is None:
            return self.writer.bound(0, self.count)
        return sum(aligned(self.selector.bound(r.begin, r.count)) for r in self.part)

    def write(self, step: int, sums: torch.Tensor, memory: torch.Tensor) -> List[int]:
        """Frames of the sums, in memory; what is dropped joins the residual."""
        if not self.count:
            return []
        if self.again is None:
            return [self.writer.compress(step, 0, self.count, sums.data_ptr(), memory.data_ptr(), memory.numel())]
        lengths, at = [], 0
        for r in self.part:
            piece = sums[r.offset - self.offset:][:r.count]
            address = memory.data_ptr() + at
            n = self.selector.compress(step, r.begin, r.count, piece.data_ptr(), address, memory.numel() - at)
            with self.engine.lock:
                self.engine.decoder.decompress_add([address], [n], -1.0, r.begin, r.count, piece.data_ptr())
            if self.engine.config.option("feedback") != "none":
                self.engine.add_residual(r.begin, piece)
            lengths.append(n)
            at += aligned(n)
        return lengths

    def read(self, address: int, lengths: Sequence[int], scale: float, target: torch.Tensor) -> None:
        if not self.count:
            return
        if self.again is None:
            self.reader.decompress_add([address], lengths[:1], scale, 0, self.count,
                                       target.data_ptr() + 4 * self.offset)
            return
        for r, n in zip(self.part, lengths):
            with self.engine.lock:
                self.engine.decoder.decompress_add([address], [n], scale, r.begin, r.count,
                                                   target.data_ptr() + 4 * r.offset)
            address += aligned(n)


class SplitBucket:
    """One bucket's exchange. ``begin``, ``turn`` and ``end`` are its two halves."""

    def __init__(self, engine: Engine, exchange: Exchange, ranges: Sequence[Range], sizes: Sequence[int], fixed: bool,
                 again: Optional[Config], selector: Optional[Compressor]):
        self.engine, self.exchange, self.fixed = engine, exchange, fixed
        rank, size = exchange.rank, exchange.size
        self.parts = cut(ranges, sizes, size, int(engine.config.option("block")) if fixed else 0)
        self.frames = Frames(engine, [r for part in self.parts for r in part])
        self.sums = [_Sum(engine, part, again, selector, p == rank) for p, part in enumerate(self.parts)]
        self.mine = self.sums[rank]
        self.total = torch.zeros(self.mine.count)
        self.most = max(len(part) for part in self.parts)
        self.room = torch.zeros(max(aligned(self.mine.room()), TEXT), dtype=torch.uint8)

    def begin(self, step: int, source: torch.Tensor, times: Times, error: Optional[BaseException]) -> None:
        """Compress, and send every owner its part."""
        self.rows, self.error = self.frames.begin(self.exchange, self.fixed, step, source, times, error)
        self.step, rank = step, self.exchange.rank
        self.failed = self.error is not None or any(n < 0 for row in self.rows for n in row)
        if self.failed and not self.fixed:
            return
        sizes = [sum(map(aligned, row)) for row in self._by_part(self.rows[rank])]
        self.out_sizes = [sum(map(aligned, self._by_part(row)[rank])) for row in self.rows]
        sent = self.frames.memory[:sum(sizes)]
        if self.error is not None:
            for piece in sent.split(sizes):
                mark_failure(piece, self.error)
        self.got = torch.empty(sum(self.out_sizes), dtype=torch.uint8)
        self.handle = self.exchange.scatter(sent, sizes, self.got, self.out_sizes)

    def turn(self, times: Times) -> None:
        """Add up the own part, and start telling all."""
        lengths = [-1] * self.most
        if not self.failed or self.fixed:
            with Clock(times, "wait"):
                self.handle.wait()
        if not self.failed:
            try:
                with Clock(times, "decode"):
                    self._add_up()
                with Clock(times, "compress"):
                    written = self.mine.write(self.step, self.total, self.room)
                lengths = written + [0] * (self.most - len(written))
                times.bytes_sent += sum(written)
            except Exception as failed:
                self.error = failed
        self.down = self.exchange.gather_numbers(lengths)
        failed = any(n < 0 for row in self.down for n in row)
        self.stride = TEXT if failed else max(sum(map(aligned, row)) for row in self.down)
        sent = self.room[:self.stride]
        if sent.numel() < self.stride:
            sent = torch.cat([sent, torch.zeros(self.stride - sent.numel(), dtype=torch.uint8)])
        if failed:
            sent.zero_()
            if self.error is not None:
                mark_failure(sent, self.error)
        self.out = torch.empty(self.stride * self.exchange.size, dtype=torch.uint8)
        self.ended = failed
        self.handle = self.exchange.gather(sent, self.out)

    def end(self, target: torch.Tensor, times: Times) -> None:
        """Wait, and make ``target`` the mean over all ranks."""
        with Clock(times, "wait"):
            self.handle.wait()
        if self.ended:
            self._raise()
        with Clock(times, "decode"):
            target.zero_()
            for rank, sums in enumerate(self.sums):
                sums.read(self.out.data_ptr() + rank * self.stride, self.down[rank], 1.0 / self.exchange.size, target)

    def _by_part(self, lengths: Sequence[int]) -> List[List[int]]:
        """A rank's lengths, owner by owner."""
        found, at = [], 0
        for part in self.parts:
            found.append(list(lengths[at:at + len(part)]))
            at += len(part)
        return found

    def _add_up(self) -> None:
        self.total.zero_()
        pieces = self.got.split(self.out_sizes)
        rows = [self._by_part(row)[self.exchange.rank] for row in self.rows]
        at = [piece.data_ptr() for piece in pieces]
        try:
            for i, r in enumerate(self.parts[self.exchange.rank]):
                lengths = [row[i] for row in rows]
                with self.engine.lock:
                    self.engine.decoder.decompress_add(at, lengths, 1.0, r.begin, r.count,
                                                       self.total.data_ptr() + 4 * (r.offset - self.mine.offset))
                at = [a + aligned(n) for a, n in zip(at, lengths)]
        except ValueError:
            raise_failure(pieces)
            raise

    def _raise(self) -> None:
        if self.error is not None:
            raise self.error
        raise_failure(self.out.view(self.exchange.size, -1))
        raise RemoteError("another rank failed")

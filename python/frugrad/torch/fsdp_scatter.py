"""A compressed reduce-scatter: every rank sends each other rank a frame of that rank's shard of the gradient."""

from typing import Any, Callable, List, Sequence

import torch
import torch.distributed as dist

from .engine import Engine, Range
from .exchange import Exchange
from .pipeline import Clock, Times

_FAILED = -1  # in place of a length


class CompressedReduceScatter:
    """For ``FSDPModule.set_custom_reduce_scatter``: calls ``reduce(output, values, scale)``."""

    def __init__(self, reduce: Callable[[torch.Tensor, torch.Tensor, float], None]):
        self._reduce = reduce

    def allocate(self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: torch.Tensor, input_tensor: torch.Tensor, group: Any, op: Any,
                 async_op: bool = False) -> None:
        if op not in (dist.ReduceOp.AVG, dist.ReduceOp.SUM):
            raise ValueError(f"frugrad's reduce-scatter has no {op}: with set_gradient_divide_factor() also call"
                             " set_force_sum_reduction_for_comms(True)")
        scale = 1.0 / dist.get_world_size(group) if op == dist.ReduceOp.AVG else 1.0
        self._reduce(output_tensor, input_tensor, scale)


class ScatterBucket:
    """The reduce-scatter of one module. ``rows[r]`` are the ranges of rank r's shard."""

    def __init__(self, engine: Engine, exchange: Exchange, rows: List[List[Range]]):
        self.compressor, self.exchange, self.rows = engine.compressor, exchange, rows
        room = sum(self.compressor.bound(r.begin, r.count) for row in rows for r in row)
        self.frames = torch.empty(room, dtype=torch.uint8)
        self.received = torch.empty(0, dtype=torch.uint8)

    def run(self, step: int, gradient: Callable[[], torch.Tensor], output: torch.Tensor, scale: float,
            times: Times) -> None:
        """Make ``output`` scale times the sum over ranks. Blocks. ``gradient`` returns float32 values to compress."""
        failed: List[Exception] = []
        try:
            with Clock(times, "compress"):
                lengths = self._compress(step, gradient())
        except Exception as error:
            failed, lengths = [error], [[_FAILED] * len(row) for row in self.rows]
        with Clock(times, "wait"):
            theirs = self._exchange_lengths(lengths)
            if any(_FAILED in row for row in theirs):
                self.exchange.together(lambda: _raise(failed))
            self._exchange_frames([sum(row) for row in lengths], [sum(row) for row in theirs])
        times.bytes_sent += self._sent(lengths)
        with Clock(times, "decode"):
            self._add_up(theirs, output, scale)

    def _compress(self, step: int, values: torch.Tensor) -> List[List[int]]:
        """Write the frames for all ranks one after the other; returns their lengths by rank."""
        at, end = self.frames.data_ptr(), self.frames.data_ptr() + self.frames.numel()
        lengths: List[List[int]] = []
        for row in self.rows:
            lengths.append([])
            for r in row:
                address = values.data_ptr() + 4 * r.offset
                lengths[-1].append(self.compressor.compress(step, r.begin, r.count, address, at, end - at))
                at += lengths[-1][-1]
        return lengths

    def _exchange_lengths(self, lengths: List[List[int]]) -> List[List[int]]:
        mine = torch.tensor(lengths, dtype=torch.int64).flatten()
        theirs, each = torch.empty_like(mine), [len(self.rows[0])] * self.exchange.size
        self.exchange.scatter(mine, each, theirs, each).wait()
        return theirs.view(self.exchange.size, -1).tolist()

    def _exchange_frames(self, sizes: List[int], their_sizes: List[int]) -> None:
        if self.received.numel() < sum(their_sizes):
            self.received = torch.empty(sum(their_sizes), dtype=torch.uint8)
        self.exchange.scatter(self.frames[:sum(sizes)], sizes, self.received[:sum(their_sizes)], their_sizes).wait()

    def _sent(self, lengths: List[List[int]]) -> int:
        """Bytes for another rank, on average."""
        others = sum(sum(row) for rank, row in enumerate(lengths) if rank != self.exchange.rank)
        return others // max(self.exchange.size - 1, 1)

    def _add_up(self, lengths: List[List[int]], output: torch.Tensor, scale: float) -> None:
        output.zero_()
        starts, at = [], self.received.data_ptr()
        for row in lengths:
            starts.append(at)
            at += sum(row)
        mine = self.rows[self.exchange.rank]
        first = min(r.offset for r in mine)
        for i, r in enumerate(mine):
            frames = [start + sum(row[:i]) for start, row in zip(starts, lengths)]
            self.compressor.decode_add(frames, [row[i] for row in lengths], scale, r.begin, r.count,
                                       output.data_ptr() + 4 * (r.offset - first))


def _raise(errors: List[Exception]) -> None:
    if errors:
        raise errors[0]

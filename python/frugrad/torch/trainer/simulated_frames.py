"""Exchanges that compute with PyTorch what frames of some methods contain, where the GPU has no kernels for them.

They are for rivals in comparisons: 1-bit SGD, and top-k of whole tensors with a plain residual, as DGC, or without one
for gossip. The host makes their frames at a few GB/s, too slow for a large model. What arrives is the same but for the
order of sums, and for a few entries at the threshold; the length of a frame is that of a real one, which
the library makes of the values that are sent, at the first step, whenever the density changes and every some hundred
steps.
"""

import math
from typing import Any, Callable, List, Optional, Tuple

import torch

from ..._core import Compressor, Config
from ..._lib import lib
from .flat import Flat
from .workers import Exchange, shares

_USUAL = {"rule": "topk", "unit": "element", "layers": "even", "norm": "off", "frequency": "off", "clip": "0",
          "warmup": "0", "dense_every": "0", "transform": "off", "bucket": "auto", "mean": "all", "topology": "ring",
          "average_every": "0"}
_BUCKET = 512  # values that share two means: bucket=auto
_LEAST_WIDTH = 256  # LargestEntries: the common divisor of sizes
_MEASURE_EVERY = 500  # steps between real frames, where their length depends on the data


def can_simulate(config: Config) -> bool:
    """Whether a config is one of those methods."""
    names = "value", "segment", "feedback", "mask", "residual", "reduce"
    value, segment, feedback, mask, residual, reduce = map(config.option, names)
    keeps = reduce == "gather" and residual == "f32" and (feedback == "plain" or feedback == "dgc" and mask == "on")
    one_bit = value == "onebit" and keeps and feedback == "plain"
    top_k = value == "f32" and segment == "tensor" and (keeps or reduce == "gossip")
    return (one_bit or top_k) and all(config.option(name) == usual for name, usual in _USUAL.items())


Function = Callable[..., torch.Tensor]


class SimulatedFrames(Exchange):
    """Base: residuals of all workers, and the sum of what they send."""

    def __init__(self, flat: Flat, workers: int, planner: Compressor, steps: int, threads: int, compiled: bool = False):
        super().__init__(flat, workers)
        self._fuse: Callable[[Function], Function] = getattr(torch, "compile") if compiled else lambda function: function
        self.name = f"{planner.config.option('reduce')}, frames simulated"
        self.planner, self.steps = planner, steps
        keeps = planner.config.option("feedback") != "none"
        self.residual = torch.zeros(workers if keeps else 0, flat.n, device=flat.grad.device)
        self.total = torch.zeros_like(flat.grad)
        self._real = Compressor(Config(planner.config.text + ",feedback=none,mask=auto"), flat.layout, steps, threads)
        self._frame = torch.empty(self._real.bound(0, flat.n), dtype=torch.uint8)
        self._own_state, self.length = lib.frug_compressor_state_size(planner.handle), 0
        self._shares: Optional[List[float]] = None
        self._plan: List[Tuple[int, int, int]] = []  # begin, end and number of sent entries of compressed tensors

    def add_gradient(self, worker: int, step: int) -> None:
        self.encode(worker, step)
        self.total.add_(self.flat.grad)

    def encode(self, worker: int, step: int) -> None:
        """Replace ``flat.grad`` of a worker by what it sends; ``length`` becomes that of its frame."""
        if worker == 0:
            self._prepare(step)
        self._send(worker)
        if worker == 0 and self._due:
            self._measure(step)
        self.state_bytes = max(self.state_bytes, self._own_state + self.workers * self.length)

    def mean(self, step: int) -> None:
        torch.mul(self.total, 1 / self.workers, out=self.flat.grad)
        self.total.zero_()
        self.sent = self.length * (self.workers - 1)

    def _prepare(self, step: int) -> None:
        """Read the plan of a step, where the density has changed."""
        now = shares(self.planner, step, len(self.flat.sizes))
        self._due = now != self._shares or step % _MEASURE_EVERY == 0
        if now == self._shares:
            return
        self._shares, self._plan, at = now, [], 0
        for i, size in enumerate(self.flat.sizes):
            plan = self.planner.plan(step, i)
            if not plan["dense"]:
                self._plan.append((at, at + size, plan["selected"]))
            at += size
        self.density = sum(x * n for x, n in zip(now, self.flat.sizes)) / self.flat.n
        self._use_plan()

    def _use_plan(self) -> None:
        """Prepare what depends on the plan."""
        raise NotImplementedError

    def _measure(self, step: int) -> None:
        values = self.flat.grad.cpu()
        self.length = self._real.compress(step, 0, self.flat.n, values.data_ptr(), self._frame.data_ptr(),
                                           self._frame.numel())

    def _send(self, worker: int) -> None:
        """Add the gradient to the residual of a worker, and leave in ``flat.grad`` what it sends."""
        raise NotImplementedError


class OneBit(SimulatedFrames):
    """Each value as the mean of the values of its sign among its neighbors."""

    def _use_plan(self) -> None:
        self._two_means = self._fuse(two_means)
        self._parts: List[Tuple[int, int]] = []  # of the buffers; tensors of whole buckets are processed with the next one
        for begin, end, _ in self._plan:
            joins = self._parts and self._parts[-1][1] == begin and (begin - self._parts[-1][0]) % _BUCKET == 0
            self._parts.append((self._parts.pop()[0] if joins else begin, end))

    def _send(self, worker: int) -> None:
        for begin, end in self._parts:
            x, out = self.residual[worker, begin:end], self.flat.grad[begin:end]
            x.add_(out)
            whole = (end - begin) // _BUCKET * _BUCKET
            out[:whole] = self._two_means(x[:whole].view(-1, _BUCKET)).flatten()
            if whole < end - begin:
                out[whole:] = two_means(x[whole:].view(1, -1)).flatten()
            x.sub_(out)


def two_means(rows: torch.Tensor) -> torch.Tensor:
    """Rows whose entries are replaced by the mean of those of their sign in the row."""
    upper = rows >= 0
    count = upper.sum(1, keepdim=True)
    sums = (rows * upper).sum(1, keepdim=True)
    lower = (rows.sum(1, keepdim=True) - sums) / (rows.shape[1] - count).clamp(min=1)
    return torch.where(upper, sums / count.clamp(min=1), lower)


class LargestEntries:
    """Finds the largest entries of each of some tensors, which follow each other.

    torch.topk is slow, and one call for each tensor. Where their sizes have a common divisor that is long enough for a row,
    all thresholds are found at once, from the highest bit of the magnitudes to the 19th: entries within 1/2048 of the
    threshold are selected too.
    """

    def __init__(self, sizes: List[int], counts: List[int], device: torch.device, count_reached: Function):
        self._sizes, self._counts, self._count_reached = sizes, counts, count_reached
        self._width = math.gcd(*sizes)
        if self._width >= _LEAST_WIDTH:
            rows = torch.tensor([size // self._width for size in sizes], device=device)
            self._owner = torch.arange(len(sizes), device=device).repeat_interleave(rows)
            self._wanted = torch.tensor(counts, device=device)

    def mask(self, x: torch.Tensor) -> torch.Tensor:
        """Which entries of ``x``, all of the tensors, are selected."""
        return self._mask_exact(x) if self._width < _LEAST_WIDTH else self._mask_rows(x)

    def _mask_exact(self, x: torch.Tensor) -> torch.Tensor:
        mask, at = torch.zeros_like(x, dtype=torch.bool), 0
        for size, count in zip(self._sizes, self._counts):
            mask[at + x[at:at + size].abs().topk(count, sorted=False).indices] = True
            at += size
        return mask

    def _mask_rows(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.abs().view(torch.int32).view(-1, self._width)  # magnitudes are ordered as these integers are
        threshold = torch.zeros_like(self._wanted, dtype=torch.int32)
        for bit in range(30, 11, -1):
            higher = threshold | 1 << bit
            reached = torch.zeros_like(self._wanted).index_add_(0, self._owner,
                                                                self._count_reached(rows, higher[self._owner, None]))
            threshold = torch.where(reached >= self._wanted, higher, threshold)
        return (rows >= threshold.clamp(min=1)[self._owner, None]).view(-1)


def count_reached(rows: torch.Tensor, limits: torch.Tensor) -> torch.Tensor:
    """The number of entries in each row that are not below its limit."""
    return (rows >= limits).sum(1)


class TensorTopK(SimulatedFrames):
    """The largest entries of each tensor, without a residual, with a plain one or with DGC's momentum."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        config = self.planner.config
        self.mu = float(config.option("momentum"))
        self.momentum = torch.zeros_like(self.residual) if config.option("feedback") == "dgc" else None

    def _use_plan(self) -> None:
        """Tensors that follow each other are processed together."""
        runs: List[List[Tuple[int, int, int]]] = []
        for part in self._plan:
            if runs and runs[-1][-1][1] == part[0]:
                runs[-1].append(part)
            else:
                runs.append([part])
        count = self._fuse(count_reached)
        self._runs = [(run[0][0], run[-1][1],
                       LargestEntries([end - begin for begin, end, _ in run], [sent for _, _, sent in run],
                                      self.flat.grad.device, count)) for run in runs]

    def _accumulate(self, worker: int, begin: int, end: int) -> torch.Tensor:
        """What a worker selects from."""
        new = self.flat.grad[begin:end]
        if not len(self.residual):
            return new.clone()
        if self.momentum is not None:
            new = self.momentum[worker, begin:end].mul_(self.mu).add_(new)
        return self.residual[worker, begin:end].add_(new)

    def _send(self, worker: int) -> None:
        for begin, end, largest in self._runs:
            x = self._accumulate(worker, begin, end)
            chosen = largest.mask(x)
            self.flat.grad[begin:end] = torch.where(chosen, x, x.new_zeros(()))
            x.masked_fill_(chosen, 0)
            if self.momentum is not None:
                self.momentum[worker, begin:end].masked_fill_(chosen, 0)


def simulate(flat: Flat, planner: Compressor, workers: int, steps: int, threads: int,
             compiled: bool = False) -> SimulatedFrames:
    """The simulated exchange of a method for which ``can_simulate`` holds; ``compiled``: passes over all entries are."""
    kind = OneBit if planner.config.option("value") == "onebit" else TensorTopK
    return kind(flat, workers, planner, steps, threads, compiled)

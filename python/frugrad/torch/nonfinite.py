"""Gradients with a NaN or an infinity: skipped and warned of, or shown to all ranks, as DistributedDataParallel does.

The library skips a block with such a number, so that it does not get into residuals. ``propagate`` has all ranks know
of it at the end of the step: the last bucket becomes NaN, and a GradScaler, or whoever looks at gradients, sees it.
"""

import warnings
from typing import Any, Optional

import torch

from .._core import Config, Layout, Tensor
from .device import DeviceStreams
from .engine import ReducerEngine
from .exchange import Exchange
from .transport import Comm, Reducer

CHOICES = ("skip", "propagate")


def _warn(step: int, rank: int, what: str) -> None:
    warnings.warn(f"rank {rank}, step {step}: {what} NaN or infinite, and skipped: that part of this rank's gradient was"
                  " not sent. DDPState(nonfinite='propagate') has all ranks see it, as DDP does; with a GradScaler give"
                  " scaler=...", stacklevel=4)


class HostWatch:
    """Counts blocks that were skipped. Collective where it propagates."""

    def __init__(self, comm: Comm, propagate: bool):
        self._flag = Reducer(Config("dense"), Layout([Tensor("skipped", (1,))]), 0, 1, comm) if propagate else None
        self._value = torch.zeros(1)
        self._rank, self._seen = comm.rank, 0
        self._engine: Optional[ReducerEngine] = None
        self._found = (0, 0)  # step and blocks that nobody was told of

    def end_step(self, step: int, engine: ReducerEngine, floats: torch.Tensor) -> None:
        """After the last exchange of a step, on its thread."""
        if engine is not self._engine:
            self._engine, self._seen = engine, 0
        total = engine.stats()["blocks_skipped"]
        new, self._seen = total - self._seen, total
        if self._flag is None:
            self._found = (step, new) if new else self._found
            return
        self._value.fill_(float(new))
        self._flag.sum(step, 0, 1, self._value.data_ptr(), 1.0)
        if self._value.item() > 0:
            floats.fill_(float("nan"))

    def warn(self) -> None:
        (step, blocks), self._found = self._found, (0, 0)
        if blocks:
            _warn(step, self._rank, f"{blocks} blocks were")


class DeviceWatch:
    """The same on a GPU, where nothing waits: the sum of a bucket times zero is zero, or NaN."""

    def __init__(self, exchange: Exchange, streams: DeviceStreams, propagate: bool):
        self._exchange, self._propagate = exchange, propagate
        self._probe: Optional[torch.Tensor] = None
        self._total: Optional[torch.Tensor] = None  # of all ranks
        self._mine = torch.zeros(1, pin_memory=streams.cuda)  # on the host, for the warning
        self._work: Any = None
        self._step = 0

    def see(self, step: int, floats: torch.Tensor, last: bool) -> None:
        """A bucket, before it is compressed. At the last one the ranks' probes add up to NaN where one of them is."""
        probe = floats.sum() * 0
        probe = probe if self._probe is None else self._probe + probe
        self._probe, self._step = None if last else probe, step
        if last:
            self._share(probe)

    def _share(self, probe: torch.Tensor) -> None:
        if self._propagate:
            self._total = probe.to(self._exchange.device)
            self._work = self._exchange.sum(self._total)
        else:
            self._mine.copy_(probe, non_blocking=True)

    def end_step(self, floats: torch.Tensor) -> None:
        """On the stream that sums: the last bucket becomes NaN if one rank's gradient was."""
        if self._total is not None:
            self._work.wait()
            floats.add_(self._total.to(floats.device))

    def warn(self) -> None:
        """Of the step before, whose sums the caller has waited for."""
        if self._mine.isnan().item():
            self._mine.zero_()
            _warn(self._step, self._exchange.rank, "the gradient was")

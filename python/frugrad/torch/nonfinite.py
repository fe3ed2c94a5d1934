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
        self._rank, self._engine, self._seen = comm.rank, None, 0
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
        self._exchange, self._streams, self._propagate = exchange, streams, propagate
        self._probe: Optional[torch.Tensor] = None
        self._last: Optional[torch.Tensor] = None
        self._work: Any = None
        self._step = 0

    def see(self, step: int, floats: torch.Tensor) -> None:
        """A bucket, before it is compressed."""
        probe = floats.sum() * 0
        self._probe, self._step = probe if self._probe is None else self._probe + probe, step

    def share(self) -> None:
        """After the last bucket: the ranks' probes add up to NaN where one of them is."""
        self._last, self._probe = self._probe, None
        if self._propagate:
            self._last = self._last.to(self._exchange.device)
            self._work = self._exchange.sum(self._last)

    def end_step(self, floats: torch.Tensor) -> None:
        """On the stream that sums: the last bucket becomes NaN if one rank's gradient was."""
        if self._propagate:
            self._work.wait()
            floats.add_(self._last.to(floats.device))

    def warn(self) -> None:
        """Of the step before, which the caller has waited for."""
        last, self._last = self._last, None
        if not self._propagate and last is not None and last.isnan().item():
            _warn(self._step, self._exchange.rank, "the gradient was")

"""Gradients with a NaN or an infinity in a model of ``fully_shard``; nonfinite.py has the same for DDP.

With ``propagate`` the gradient of the module itself becomes NaN, on the ranks that exchange it. Of the last module of a
step, which DDPState makes NaN, a rank may have an empty shard. A GradScaler and clip_grad_norm_() look at all shards.
"""

import torch

from .device import DeviceEngine
from .engine import Engine
from .exchange import Exchange


class ModuleWatch:
    """Looks at the gradients of one module. Collective where it propagates."""

    def __init__(self, engine: Engine, exchange: Exchange, propagate: bool):
        self._engine, self._exchange, self._propagate = engine, exchange, propagate
        self._skipped = 0
        self._probe = torch.zeros(1)  # NaN: this rank's gradient was not finite
        self._mine = torch.zeros(1, pin_memory=isinstance(engine, DeviceEngine) and engine.streams.cuda)  # on the host

    def begin(self, values: torch.Tensor) -> None:
        """Before values are compressed. On a GPU, where skipped blocks are not counted, their sum times zero tells."""
        if isinstance(self._engine, DeviceEngine):
            self._probe = values.sum() * 0
            self._mine.copy_(self._probe, non_blocking=True)
        else:
            self._skipped = self._engine.stats()["blocks_skipped"]

    def end(self, values: torch.Tensor) -> None:
        """After the exchange: values become NaN if one rank's gradient was not finite."""
        if not isinstance(self._engine, DeviceEngine):
            new = self._engine.stats()["blocks_skipped"] - self._skipped
            self._probe = self._mine.fill_(float("nan") if new else 0.0)
        if self._propagate:
            total = self._probe.to(self._exchange.device, copy=True)
            self._exchange.sum(total).wait()
            values.add_(total.to(values.device))

    def found(self) -> bool:
        """Whether this rank skipped blocks and told nobody, since the last call. On a GPU after check_frames()."""
        found = not self._propagate and bool(self._mine.isnan().item())
        self._mine.zero_()
        return found

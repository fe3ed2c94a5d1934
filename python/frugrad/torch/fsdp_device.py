"""The exchange between replicas of FSDP2 where gradients are on a GPU and are compressed there."""

from typing import Optional, Sequence

import torch

from .device import DeviceEngine
from .device_exchange import device_bucket
from .engine import Range
from .exchange import Exchange
from .pipeline import Times


class DeviceBucket:
    """One module's exchange, as a ReducerBucket. The stream of FSDP waits for it; with NCCL the host does not."""

    def __init__(self, engine: DeviceEngine, exchange: Exchange, ranges: Sequence[Range], sizes: Sequence[int]):
        self._streams, self._entries = engine.streams, sum(sizes)
        self._bucket = device_bucket(engine, exchange, ranges, sizes, exchange.device.type == "cuda")

    def run(self, step: int, values: torch.Tensor, times: Times, error: Optional[BaseException] = None) -> None:
        """Make values the mean over all ranks."""
        with self._streams.compress_stream():
            self._bucket.begin(step, values, times, error)
        self._bucket.send()
        self._bucket.start_second(times)
        with self._streams.sum_stream():
            self._bucket.end(values, times)
            done = self._streams.record_event()
        self._streams.wait_event(done)

    def fail(self, step: int, error: BaseException) -> None:
        """Send the other ranks an error that came before the exchange: all raise it, here or with NCCL at the next step."""
        self.run(step, self._streams.empty(self._entries, torch.float32), Times(), error)

    def raise_rank_error(self) -> None:
        self._bucket.raise_rank_error()

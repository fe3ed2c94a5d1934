"""Broadcast, mean and all-gather for optimizers. One process alone needs no torch.distributed."""

import hashlib
from typing import Any, Iterable, List, Optional

import torch
import torch.distributed as dist

from ._floats import tensor_bytes
from .exchange import Exchange, Handle


class Group:
    """A process group, or this process alone where torch.distributed has not been initialized."""

    def __init__(self, handle: Optional[Any] = None):
        together = dist.is_available() and dist.is_initialized()
        if handle is not None and not together:
            raise ValueError("a process group was given, but torch.distributed has not been initialized")
        self.exchange = Exchange(handle) if together else None
        self.rank, self.size = (self.exchange.rank, self.exchange.size) if self.exchange else (0, 1)

    def broadcast(self, tensors: Iterable[torch.Tensor]) -> None:
        """Give every process the first one's tensors. Wants no_grad."""
        if self.exchange is None or self.size == 1:
            return
        for tensor in tensors:
            if tensor.numel():
                self.exchange.broadcast(tensor.detach())

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        """The mean over all processes, the same bits on each, on the host; values may be overwritten."""
        if self.exchange is None or self.size == 1:
            return values
        staged = values.to(self.exchange.device)
        self.exchange.sum(staged).wait()
        return staged.div_(self.size).cpu()


def digest(states: Iterable[torch.Tensor]) -> str:
    """A short hash of saved states, by which ranks compare what they have loaded."""
    made = hashlib.sha256()
    for state in states:
        made.update(tensor_bytes(state))
    return made.hexdigest()[:16]


class AllGather:
    """An all-gather of frames in progress. ``lengths``: of every process's frames, in rank order."""

    def __init__(self, exchange: Exchange, frames: List[torch.Tensor], lengths: List[List[int]]):
        self._lengths, most = lengths, max(sum(each) for each in lengths)
        mine = torch.cat([*frames, torch.zeros(most - sum(f.numel() for f in frames), dtype=torch.uint8)])
        self._mine = mine  # until it has been sent
        self._all = torch.empty(exchange.size * most, dtype=torch.uint8)
        self._handle: Handle = exchange.gather(mine, self._all)

    def wait(self) -> List[List[torch.Tensor]]:
        """The frames of every process, in rank order, as views of one buffer."""
        self._handle.wait()
        rows = self._all.view(len(self._lengths), -1).unbind()
        return [list(row[:sum(n)].split(n)) for row, n in zip(rows, self._lengths)]

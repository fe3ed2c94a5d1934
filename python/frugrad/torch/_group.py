"""Broadcast, mean and all-gather for optimizers. One process alone needs no torch.distributed."""

from typing import Any, Iterable, List, Optional

import torch
import torch.distributed as dist

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
        group = self.exchange.group
        first = 0 if group is dist.group.WORLD else dist.get_global_rank(group, 0)
        for tensor in tensors:
            staged = tensor.detach().to(self.exchange.device).contiguous()
            dist.broadcast(staged, first, group=group)
            tensor.copy_(staged)

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        """The mean over all processes, the same bits on each, on the host; values may be overwritten."""
        if self.exchange is None or self.size == 1:
            return values
        staged = values.to(self.exchange.device)
        self.exchange.sum(staged).wait()
        return staged.div_(self.size).cpu()


class AllGather:
    """An all-gather of bytes of any length in progress: first the lengths are sent, then the bytes."""

    def __init__(self, exchange: Exchange, mine: torch.Tensor):
        self._exchange, self._mine = exchange, mine
        self._length = torch.tensor([mine.numel()])
        self._lengths = torch.empty(exchange.size, dtype=torch.int64)
        self._handle: Handle = exchange.gather(self._length, self._lengths)
        self._all = torch.empty(0, dtype=torch.uint8)

    def post(self) -> None:
        """Wait for the lengths of all processes, then start sending the bytes. Once, in the same order on all."""
        self._handle.wait()
        most = int(self._lengths.max())
        if self._mine.numel() < most:
            self._mine = torch.cat([self._mine, torch.zeros(most - self._mine.numel(), dtype=torch.uint8)])
        self._all = torch.empty(self._exchange.size * most, dtype=torch.uint8)
        self._handle = self._exchange.gather(self._mine, self._all)

    def wait(self) -> List[torch.Tensor]:
        """The bytes of every process, in rank order, as views of one buffer, with padding."""
        self._handle.wait()
        return list(self._all.view(self._exchange.size, -1).unbind())

"""Processes that train together, over torch.distributed; one process alone where that is not in use."""

from typing import Any, Iterable, List, Optional, Tuple

import torch
import torch.distributed as dist


class Pending:
    """Bytes of every process, on their way. A gather has two parts: how many, and then the bytes."""

    def __init__(self, group: "Group", mine: torch.Tensor):
        self._group, self._mine = group, mine.to(group.device)
        self._all: List[torch.Tensor] = []
        size = torch.tensor([mine.numel()], dtype=torch.int64, device=group.device)
        self._sizes = [torch.empty_like(size) for _ in range(group.size)]
        self._work = dist.all_gather(self._sizes, size, group=group.handle, async_op=True)

    def post(self) -> None:
        """Send the bytes: once, in the same order on all processes. Waits until all have told their sizes."""
        self._work.wait()
        most = max(int(size) for size in self._sizes)
        mine = self._mine
        if mine.numel() < most:
            mine = torch.cat([mine, mine.new_zeros(most - mine.numel())])
        self._mine = mine  # gloo reads it until the work is done
        self._all = [torch.empty_like(mine) for _ in range(self._group.size)]
        self._work = dist.all_gather(self._all, mine, group=self._group.handle, async_op=True)

    def wait(self) -> List[torch.Tensor]:
        """Everyone's bytes in the order of ranks, on the host."""
        self._work.wait()
        return [each[:int(size)].cpu() for each, size in zip(self._all, self._sizes)]


class Group:
    """A process group, or one process alone where torch.distributed has not been initialised."""

    def __init__(self, handle: Optional[Any] = None):
        self.handle = handle
        together = dist.is_available() and dist.is_initialized()
        if handle is not None and not together:
            raise ValueError("a process group was given, but torch.distributed is not initialised")
        self.size = dist.get_world_size(handle) if together else 1
        self.rank = dist.get_rank(handle) if together else 0
        nccl = together and str(dist.get_backend(handle)) == "nccl"
        self.device = torch.device("cuda", torch.cuda.current_device()) if nccl else torch.device("cpu")

    def broadcast(self, tensors: Iterable[torch.Tensor]) -> None:
        """Give every process the first one's tensors. Wants no_grad."""
        if self.size == 1:
            return
        first = 0 if self.handle is None else dist.get_global_rank(self.handle, 0)
        for tensor in tensors:
            staged = tensor.detach().to(self.device).contiguous()
            dist.broadcast(staged, first, group=self.handle)
            if staged.data_ptr() != tensor.data_ptr():
                tensor.copy_(staged)

    def mean(self, values: torch.Tensor) -> torch.Tensor:
        """The mean over all processes, the same bits on each, on the host; values may be overwritten."""
        if self.size == 1:
            return values
        staged = values.to(self.device)
        dist.all_reduce(staged, group=self.handle)
        return staged.div_(self.size).cpu()

    def gather(self, numbers: torch.Tensor) -> torch.Tensor:
        """Everyone's numbers, as many from each, in rows."""
        staged = numbers.to(self.device)
        rows = [torch.empty_like(staged) for _ in range(self.size)]
        if self.size == 1:
            return numbers[None]
        dist.all_gather(rows, staged, group=self.handle)
        return torch.stack(rows).cpu()

    def start(self, mine: torch.Tensor) -> Pending:
        """Begin to gather byte tensors of any lengths."""
        return Pending(self, mine)

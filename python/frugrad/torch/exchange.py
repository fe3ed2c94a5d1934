"""Collectives over c10d for the hook on a GPU, for agreement between ranks, and for the optimizers.

Frames are bytes in host memory, or with NCCL on the GPU. A group of gloo sends from the host; one of NCCL can send
from the GPU only, so host memory is copied to a buffer there. Payload buffers are the caller's and live
until the handle has been waited for.
"""

import contextlib
import hashlib
import json
import threading
import time
import warnings
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, TypeVar

import torch
import torch.distributed as dist

from .._core import Config, Tensor
from .._lib import RemoteError

_Result = TypeVar("_Result")
_EXIT_DELAY = 0.1  # seconds
_PATIENCE = 60.0  # seconds until a warning that a rank does not answer; the error comes with the group's timeout
_ANSWER_TAG = 0x4672FFFF  # beside the messages of transport.py
_NO_ANSWER = ("did not answer when ranks compared their options: it has ended, is late, or did not call this; with DDP:"
              " is frugrad.torch.hook registered on every rank?")


def cause(error: BaseException) -> str:
    """The first sentence of an error of c10d, without the place in its source."""
    text = str(error).split("\n")[0]
    return text[text.find("] ") + 2 if text.startswith("[") else 0:].split(". ")[0]


@contextlib.contextmanager
def _warn_late(text: str) -> Iterator[None]:
    """Warn if the block takes long."""
    timer = threading.Timer(_PATIENCE, warnings.warn_explicit, (text, UserWarning, "frugrad.torch", 0))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Handle:
    """A collective in progress. ``wait()`` returns when its result is in the caller's memory, or raises."""

    def __init__(self, work: Any = None, source: Optional[torch.Tensor] = None, target: Optional[torch.Tensor] = None):
        self._work, self._source, self._target = work, source, target

    def wait(self) -> None:
        if self._work is not None:
            self._work.wait()
        if self._source is not None and self._target is not None:
            self._target.copy_(self._source)  # from the GPU; blocks until it is there
        self._work = self._source = None


class Exchange:
    """One process group as a channel for bytes. All ranks make the same calls in the same order."""

    def __init__(self, group: Any = None):
        if not dist.is_initialized():
            raise RuntimeError("torch.distributed has no process group yet: call init_process_group() first")
        self.group = group if group is not None else dist.group.WORLD
        self.rank, self.size = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.device = _device(self.group)
        self._alone = self.size == 1 and self.device.type == "cpu"
        self._into: Optional[bool] = None  # gather into one tensor; gloo before PyTorch 2 cannot. None: not tried yet
        # A thread of gloo releases a collective's tensors only after the wait. If it has the last reference to one
        # that Python knew, it needs the GIL, and aborts the process once the interpreter is shutting down. So there
        # is a short delay after the last collective, and at exit.
        if self.size > 1 and self.device.type == "cpu":
            weakref.finalize(self, time.sleep, _EXIT_DELAY)

    def gather(self, mine: torch.Tensor, out: torch.Tensor) -> Handle:
        """All-gather of equally many bytes, in rank order: ``out`` has size times as many as ``mine``."""
        if not mine.numel():  # of all ranks; gloo before PyTorch 2 divides by the length
            return Handle()
        if self._alone:
            out.copy_(mine)
            return Handle()
        sent, got = self._there(mine), self._room(out)
        return self._handle(self._gather(sent, got), got, out)

    def scatter(self, mine: torch.Tensor, sizes: Sequence[int], out: torch.Tensor, out_sizes: Sequence[int]) -> Handle:
        """All-to-all: part r of ``mine``, sizes[r] bytes, is sent to rank r; part r of ``out`` is received from it."""
        if self._alone:
            out.copy_(mine)
            return Handle()
        sent, got = self._there(mine), self._room(out)
        work = dist.all_to_all_single(got, sent, list(out_sizes), list(sizes), group=self.group, async_op=True)
        return self._handle(work, got, out)

    def gather_numbers(self, numbers: Sequence[int]) -> List[List[int]]:
        """A few whole numbers of every rank, in rank order. Blocks."""
        mine = torch.tensor(list(numbers), dtype=torch.int64)
        out = torch.empty(self.size * len(mine), dtype=torch.int64)
        self.gather(mine, out).wait()
        return out.view(self.size, -1).tolist()

    def gather_bytes(self, mine: torch.Tensor) -> List[torch.Tensor]:
        """Byte tensors of different lengths from every rank. Blocks."""
        lengths = [row[0] for row in self.gather_numbers([mine.numel()])]
        padded = torch.zeros(max(lengths), dtype=torch.uint8)
        padded[:mine.numel()] = mine
        out = torch.empty(self.size * len(padded), dtype=torch.uint8)
        self.gather(padded, out).wait()
        return [row[:n].clone() for row, n in zip(out.view(self.size, -1), lengths)]

    def sum(self, tensor: torch.Tensor) -> Any:
        """All-reduce in place; the tensor is on the group's device. Returns c10d's Work."""
        return dist.all_reduce(tensor, group=self.group, async_op=True)

    def broadcast(self, tensor: torch.Tensor) -> None:
        """Make a tensor that of rank 0. Blocks."""
        sent = self._there(tensor.contiguous())
        dist.broadcast(sent.view(-1).view(torch.uint8), dist.get_global_rank(self.group, 0), group=self.group)
        if sent is not tensor:
            tensor.copy_(sent)

    def gather_texts(self, text: str) -> List[str]:
        """A text of every rank. Blocks."""
        rows = self.gather_bytes(torch.tensor(list(text.encode(errors="replace")) or [0], dtype=torch.uint8))
        return [bytes(row.tolist()).rstrip(b"\0").decode() for row in rows]

    def agree(self, items: Mapping[str, Any]) -> None:
        """Raise on all ranks if they do not have the same items; the error has the first that differs, and both values."""
        mine = json.dumps({name: str(value) for name, value in items.items()})
        if len(set(self._answers(int.from_bytes(hashlib.sha256(mine.encode()).digest()[:7], "big")))) == 1:
            return
        rows = [json.loads(text) for text in self.gather_texts(mine)]
        for name in [name for row in rows for name in row]:
            values = [row.get(name, "none") for row in rows]
            other = next((rank for rank, value in enumerate(values) if value != values[0]), None)
            if other is not None:
                raise RuntimeError(f"ranks differ in {name}: rank {self._name(0)} has {values[0]},"
                                   f" rank {self._name(other)} has {values[other]}")
        raise RuntimeError(f"ranks differ in the order of {', '.join(rows[0])}")

    def _answers(self, number: int) -> List[int]:
        """A number of every rank. From the host each rank gets an answer of every other, so that an error has the number
        of the one that gives none: a collective would not say which it is."""
        if self._alone or self.device.type != "cpu":
            return [row[0] for row in self.gather_numbers([number])]
        mine, rows = torch.tensor([number]), torch.tensor([number]).repeat(self.size, 1)
        peers, sent, received = [rank for rank in range(self.size) if rank != self.rank], [], []
        peer = peers[0]
        try:
            for peer in peers:
                sent.append(self.group.send([mine], peer, _ANSWER_TAG))
                received.append(self.group.recv([rows[peer]], peer, _ANSWER_TAG))
            for peer, work in zip(peers, received):
                with _warn_late(f"rank {self._name(peer)} {_NO_ANSWER} Still waiting, until the group's timeout."):
                    work.wait()
            for peer, work in zip(peers, sent):
                work.wait()
        except RuntimeError as error:
            raise RuntimeError(f"rank {self._name(peer)} {_NO_ANSWER} ({cause(error)})") from error
        return rows.view(-1).tolist()

    def together(self, work: Callable[[], _Result]) -> _Result:
        """Do something that may fail on some ranks: then all ranks raise, and none waits. Collective."""
        try:
            result, error = work(), None
        except Exception as failed:  # raised below
            result, error = None, failed
        if not any(row[0] for row in self.gather_numbers([int(error is not None)])):
            return result  # type: ignore[return-value]
        texts = self.gather_texts("" if error is None else f"{type(error).__name__}: {error}")
        if error is not None:
            raise error
        rank, text = next((rank, text) for rank, text in enumerate(texts) if text)
        raise RemoteError(f"rank {self._name(rank)} failed: {text}")

    def _name(self, rank: int) -> int:
        """The number of a rank of this group among all processes."""
        return rank if self.group is dist.group.WORLD else dist.get_global_rank(self.group, rank)

    def _gather(self, sent: torch.Tensor, got: torch.Tensor) -> Any:
        if self._into is None:
            try:
                with warnings.catch_warnings():  # once only: it makes Python forget which warnings it has shown
                    warnings.simplefilter("ignore")
                    work = dist.all_gather_into_tensor(got, sent, group=self.group, async_op=True)
                self._into = True
                return work
            except RuntimeError as error:
                if "no support" not in str(error):
                    raise
                self._into = False  # refused before anything was sent, and by all ranks alike
        if self._into:
            return dist.all_gather_into_tensor(got, sent, group=self.group, async_op=True)
        return dist.all_gather(list(got.view(self.size, -1).unbind()), sent, group=self.group, async_op=True)

    def _there(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self.device.type == tensor.device.type else tensor.to(self.device, non_blocking=True)

    def _room(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor if self.device.type == tensor.device.type else torch.empty_like(tensor, device=self.device)

    @staticmethod
    def _handle(work: Any, got: torch.Tensor, out: torch.Tensor) -> Handle:
        return Handle(work) if got is out else Handle(work, got, out)


def config_items(config: Config) -> Dict[str, str]:
    """The options of a config, for agree()."""
    return {f"the config's {name}": value for name, _, value in (part.partition("=") for part in config.text.split(","))}


def layout_items(tensors: Iterable[Tensor]) -> Dict[str, str]:
    """The parameters, for agree()."""
    return {f"names, shapes or order of parameters (number {i})": f"{t.name} {tuple(t.shape)}"
            for i, t in enumerate(tensors)}


def _device(group: Any) -> torch.device:
    """The device of a group's tensors: the host if it supports that, else this process's GPU."""
    kinds = getattr(group, "_device_types", None)
    if kinds is None:
        kinds = [torch.device("cuda" if dist.get_backend(group) == "nccl" else "cpu")]
    if any(kind.type == "cpu" for kind in kinds):
        return torch.device("cpu")
    return torch.device(kinds[0].type, torch.cuda.current_device())

"""Forward and backward pass of a worker's batch: operation by operation, or recorded once and replayed.

A GPU computes small batches faster than Python launches their kernels. A CUDA graph launches all kernels of a pass at
once. Batches of a run have the same shape, so one recording serves all of them. Of a model with repeated blocks
torch.compile can compile a block, once for all of them, which fuses many small kernels; the whole model took over a
minute for GPT-2 small.
"""

import contextlib
import sys
from typing import Callable, ContextManager, Iterator, List, Optional, Tuple

import torch

from . import UsageError
from .flat import Flat
from .tasks import Batch

_WARM_UP = 3  # batches before the recording: libraries choose their kernels

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # of a model's output and what was wanted


def autocast(device: torch.device) -> ContextManager:
    """bf16 on a GPU; float32 elsewhere."""
    if device.type == "cuda":
        return torch.autocast("cuda", dtype=torch.bfloat16)
    return contextlib.nullcontext()


class Passes:
    """Operation by operation."""

    def __init__(self, model: torch.nn.Module, loss: Loss, flat: Flat):
        self._model, self._loss, self._flat = model, loss, flat
        self._value: Optional[torch.Tensor] = None

    def forward(self, batch: Batch) -> torch.Tensor:
        """The loss of a batch."""
        with autocast(self._flat.grad.device):
            self._value = self._loss(self._model(batch[0]), batch[1])
        return self._value.detach()

    def backward(self) -> None:
        """Write the gradient of the last batch to ``flat.grad``."""
        assert self._value is not None, "forward() comes first"
        self._flat.grad.zero_()
        self._value.backward()
        self._value = None


class RecordedPasses(Passes):
    """The first batches operation by operation, later ones by replaying a recording."""

    def __init__(self, model: torch.nn.Module, loss: Loss, flat: Flat):
        super().__init__(model, loss, flat)
        self._stream, self._batches = torch.cuda.Stream(), 0
        self._batch: Optional[Batch] = None
        self._graphs: Optional[Tuple[torch.cuda.CUDAGraph, torch.cuda.CUDAGraph]] = None

    def forward(self, batch: Batch) -> torch.Tensor:
        self._batches += 1
        if self._batches == _WARM_UP + 1:
            self._record(batch)
        if self._graphs is None or self._batch is None:
            with self._beside():
                return super().forward(batch)
        for mine, given in zip(self._batch, batch):
            mine.copy_(given)
        self._graphs[0].replay()
        return self._recorded_loss

    def backward(self) -> None:
        if self._graphs is not None:
            return self._graphs[1].replay()
        with self._beside():
            super().backward()

    @contextlib.contextmanager
    def _beside(self) -> Iterator[None]:
        """On the stream of the recording, between what the current stream did and what it does next."""
        current = torch.cuda.current_stream()
        self._stream.wait_stream(current)
        with torch.cuda.stream(self._stream):
            yield
        current.wait_stream(self._stream)

    def _record(self, batch: Batch) -> None:
        """Record both passes; where that fails, later batches are computed like the first."""
        forward, backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        self._batch = batch[0].clone(), batch[1].clone()
        try:
            with torch.cuda.graph(forward, stream=self._stream):
                self._recorded_loss = super().forward(self._batch)
            with torch.cuda.graph(backward, pool=forward.pool(), stream=self._stream):
                super().backward()
        except RuntimeError as error:
            print(f"frugrad: passes are not recorded: {str(error).splitlines()[0]}", file=sys.stderr)
            return
        self._graphs = forward, backward


class CompiledPasses(RecordedPasses):
    """As recorded, of compiled blocks and a compiled loss. After the recording blocks are as before: evaluations have
    other shapes."""

    def __init__(self, model: torch.nn.Module, blocks: List[torch.nn.Module], loss: Loss, flat: Flat):
        compiled: Callable = getattr(torch, "compile")  # PyTorch 2 has it
        super().__init__(model, compiled(loss, dynamic=False), flat)
        self._blocks = blocks
        for block in blocks:
            block.forward = compiled(block.forward, dynamic=False)

    def _record(self, batch: Batch) -> None:
        super()._record(batch)
        for block in self._blocks:
            del block.forward


def _repeated_blocks(model: torch.nn.Module) -> List[torch.nn.Module]:
    """Modules of our own in a list or a sequence: a transformer's layers, a residual network's blocks."""
    lists = [module for module in model.modules() if isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential))]
    return [block for blocks in lists for block in blocks if not type(block).__module__.startswith("torch.nn")]


def make_passes(kind: str, model: torch.nn.Module, loss: Loss, flat: Flat) -> Passes:
    """Passes of a kind: eager, graph or compiled; auto is graph on a GPU and eager elsewhere."""
    gpu = flat.grad.is_cuda
    if kind in ("graph", "compiled") and not gpu:
        raise UsageError(f"--passes: {kind} needs a GPU")
    if kind == "compiled":
        blocks = _repeated_blocks(model)
        if not blocks:
            raise UsageError("--passes: compiled is for models with repeated blocks; this one has none")
        return CompiledPasses(model, blocks, loss, flat)
    return (RecordedPasses if gpu and kind != "eager" else Passes)(model, loss, flat)

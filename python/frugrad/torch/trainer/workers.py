"""The workers of a run, simulated by one process: what each sends of its gradient, and the mean.

An exchange gets ``flat.grad`` of one worker after the other and writes the mean there. Bytes are those that one worker
would send: a frame to each of the others, or its part of a ring.
"""

import math
import sys
from typing import Dict, List

import torch

from ... import _cuda
from ..._core import Compressor, Config
from ..._lib import ConfigError, FrugradError, lib
from ..config import unsupported_option
from . import RunError, UsageError
from .flat import Flat


def read_config(text: str, optimizer: str) -> Config:
    """The config of a method with an optimizer; UsageError if one process cannot simulate it."""
    try:
        config = Config(text, optimizer)
    except ConfigError as error:
        raise UsageError(f"--method: {error}") from None
    reduce = config.option("reduce")
    if reduce not in ("gather", "dense", "gossip"):
        raise UsageError(f"--method: reduce={reduce} is not a mean of all workers' frames; this trainer simulates"
                         " workers in one process and supports reduce=gather, dense and gossip. `frugrad train` has all")
    if config.option("feedback") == "ef21" and reduce != "dense":
        raise UsageError("--method: feedback=ef21 is not supported by this trainer: its receivers have a state")
    unsupported = unsupported_option(config)
    if unsupported:
        raise UsageError(f"--method: {unsupported}")
    return config


class Exchange:
    """The sum of dense gradients."""

    name, text = "dense", ""  # text: the method, where the config does not describe it

    def __init__(self, flat: Flat, workers: int):
        self.flat, self.workers = flat, workers
        self.dense_bytes = 8 * flat.n * (workers - 1) // workers  # of a step of a ring
        self.density, self.sent = 1.0, self.dense_bytes  # of the last step
        self.state_bytes = 0  # of one worker
        self.total = torch.zeros_like(flat.grad if type(self) is Exchange and workers > 1 else flat.grad[:0])

    def add_gradient(self, worker: int, step: int) -> None:
        """Add the gradient of a worker, in ``flat.grad``."""
        if len(self.total):
            self.total.add_(self.flat.grad)

    def mean(self, step: int) -> None:
        """Write the mean to ``flat.grad``."""
        if len(self.total):
            torch.mul(self.total, 1 / self.workers, out=self.flat.grad)
            self.total.zero_()

    def check(self) -> None:
        """Raise if a frame since the last check was invalid."""


class Transform:
    """Option ``transform``: complete blocks of every tensor, as squares, to coefficients and back, in place."""

    def __init__(self, config: Config, flat: Flat):
        kind, block = config.option("transform"), int(config.option("block"))
        side, self.squares = int(block ** 0.5), []
        if kind == "off":
            return
        row, column = torch.arange(side).view(-1, 1).double(), torch.arange(side).view(1, -1).double()
        if kind == "cosine":
            matrix = torch.cos(math.pi / side * (column + 0.5) * row) * (2 / side) ** 0.5
            matrix[0] /= 2 ** 0.5
        else:
            matrix = torch.ones(1, 1).double()
            while len(matrix) < side:
                matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)]) / 2 ** 0.5
        self.matrix, at = matrix.float().to(flat.grad.device), 0
        for size in flat.sizes:
            self.squares.append(flat.grad[at:at + size // block * block].view(-1, side, side))
            at += size

    def forward(self) -> None:
        for x in self.squares:
            x.copy_(self.matrix @ x @ self.matrix.t())

    def inverse(self) -> None:
        for x in self.squares:
            x.copy_(self.matrix.t() @ x @ self.matrix)


class Frames(Exchange):
    """Base of exchanges of frames: a compressor and a frame of each worker."""

    def __init__(self, flat: Flat, workers: int, each: List, planner: Compressor, device: torch.device):
        super().__init__(flat, workers)
        self.each, self.planner, self.transform = each, planner, Transform(planner.config, flat)
        room = each[0].bound(0, flat.n) + 15 & ~15
        self.frames = [torch.empty(room, dtype=torch.uint8, device=device) for _ in each]
        if device.type != "cpu":
            for frame in self.frames:
                frame.zero_()
        self.lengths = [0] * workers
        self._densities: Dict[int, float] = {}
        # The state of one worker, and the frames of all workers, which it has while it decodes them.
        self.state_bytes = lib.frug_compressor_state_size(planner.handle)
        self.most = 0

    def _count(self, density: float) -> None:
        self.sent, self.density = self.lengths[0] * (self.workers - 1), density
        if sum(self.lengths) > self.most:
            self.state_bytes += sum(self.lengths) - self.most
            self.most = sum(self.lengths)


class DeviceFrames(Frames):
    """Frames encoded and decoded on the GPU, or by the emulator on the host."""

    name = "gather, frames made on the GPU"

    def __init__(self, flat: Flat, workers: int, planner: Compressor, steps: int):
        if workers > _cuda.MOST_FRAMES:
            raise ConfigError(f"there are more than {_cuda.MOST_FRAMES} workers")
        each = [_cuda.CudaCompressor(planner.config, flat.frame_layout, steps, i) for i in range(workers)]
        super().__init__(flat, workers, each, planner, flat.grad.device)

    def _stream(self) -> int:
        return torch.cuda.current_stream().cuda_stream if self.flat.grad.is_cuda else 0

    def add_gradient(self, worker: int, step: int) -> None:
        self.transform.forward()
        frame = self.frames[worker]
        self.lengths[worker] = self.each[worker].compress(step, 0, self.flat.n, self.flat.grad.data_ptr(),
                                                          frame.data_ptr(), frame.numel(), self._stream())

    def mean(self, step: int) -> None:
        self.flat.grad.zero_()
        self.each[0].decode_add(step, [f.data_ptr() for f in self.frames], 1 / self.workers, 0, self.flat.n,
                                    self.flat.grad.data_ptr(), self._stream())
        self.transform.inverse()
        if self.lengths[0] not in self._densities:  # here a length implies a density
            self._densities[self.lengths[0]] = sum(x * n for x, n in zip(shares(self.planner, step, len(
                self.flat.sizes)), self.flat.sizes)) / self.flat.n
        self._count(self._densities[self.lengths[0]])

    def check(self) -> None:
        for compressor in self.each:
            compressor.check(self._stream())


class HostFrames(Frames):
    """Frames encoded and decoded on the host; gradients of a GPU are copied there and back."""

    name = "gather"

    def __init__(self, flat: Flat, workers: int, planner: Compressor, steps: int, threads: int):
        each = [Compressor(planner.config, flat.frame_layout, steps, threads, i) for i in range(workers)]
        super().__init__(flat, workers, each, planner, torch.device("cpu"))
        gpu = flat.grad.is_cuda
        self.values = torch.empty(flat.n, pin_memory=True) if gpu else flat.grad
        self.name = "gather, frames made on the host" if gpu else self.name

    def add_gradient(self, worker: int, step: int) -> None:
        self.transform.forward()
        if self.values is not self.flat.grad:
            self.values.copy_(self.flat.grad)
        frame = self.frames[worker]
        self.lengths[worker] = self.each[worker].compress(step, 0, self.flat.n, self.values.data_ptr(),
                                                          frame.data_ptr(), frame.numel())

    def mean(self, step: int) -> None:
        self.values.zero_()
        self.each[0].decode_add([f.data_ptr() for f in self.frames], self.lengths, 1 / self.workers, 0,
                                    self.flat.n, self.values.data_ptr())
        if self.values is not self.flat.grad:
            self.flat.grad.copy_(self.values)
        self.transform.inverse()
        self._count(self.each[0].stats()["density_now"])


def shares(planner: Compressor, step: int, tensors: int) -> List[float]:
    """The density of each tensor at a step; where it depends on the data, the target."""
    plans = [planner.plan(step, i) for i in range(tensors)]
    return [1.0 if p["dense"] else p["selected"] / p["units"] if p["segments"] and p["selected"] else p["density"]
            for p in plans]


def make_planner(config: Config, flat: Flat, steps: int) -> Compressor:
    """A compressor on the host, for plans only."""
    try:
        return Compressor(config, flat.layout, steps)
    except ConfigError as error:
        raise UsageError(f"--method: {error}") from None


def make_exchange(flat: Flat, planner: Compressor, workers: int, steps: int, threads: int) -> Exchange:
    """The exchange: with frames on the GPU if there is one with kernels for the config, else on the host."""
    if planner.config.option("reduce") == "dense":
        return Exchange(flat, workers)
    gpu = flat.grad.is_cuda
    try:
        if gpu or _cuda.emulated():
            if gpu and _cuda.emulated():
                raise ImportError("the library that FRUGRAD_CUDA_LIBRARY names has no GPU")
            return DeviceFrames(flat, workers, planner, steps)
    except (ConfigError, ImportError) as error:
        print(f"frugrad: frames are made on the host: {error}", file=sys.stderr)
    except FrugradError as error:
        raise RunError(f"no compressor on the GPU: {error}") from None
    return HostFrames(flat, workers, planner, steps, threads)

"""Shared by the tests of the hook: a group with a short timeout, small models, data that every rank can generate."""

import atexit
import gzip
import os
from datetime import timedelta
from pathlib import Path

import support

torch = support.need("torch")
import torch.distributed as dist  # noqa: E402
import torch.nn as nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel as DDP  # noqa: E402

import frugrad.torch  # noqa: E402
from frugrad.torch.config import names_feedback  # noqa: E402

FASHION = Path(os.environ.get("FRUGRAD_FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))
RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def begin(seconds: int = 20) -> None:
    torch.set_num_threads(1)
    dist._DEFAULT_FIRST_BUCKET_BYTES = 20000  # else all of a small model is one bucket
    dist.init_process_group("gloo", timeout=timedelta(seconds=seconds))
    atexit.register(dist.destroy_process_group)  # gloo's threads may abort a process that ends without


def state_for(model=None, config: str = "frugrad", **options) -> frugrad.torch.DDPState:
    """A state that goes with any optimizer: where the config names no feedback, there is none."""
    return frugrad.torch.DDPState(model, config if names_feedback(config) else config + ",feedback=none", **options)


def mlp(seed: int = 0) -> nn.Module:
    """About 85,000 parameters; buckets of 0.1 MB make four of them."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))


def wrap(model: nn.Module, state=None, **options) -> DDP:
    options.setdefault("bucket_cap_mb", 0.1)
    ddp = DDP(model, **options)
    if state is not None:
        ddp.register_comm_hook(state, frugrad.torch.hook)
    return ddp


def batch(step: int, rank: int = RANK, n: int = 16):
    """The same numbers for the same step and rank, in any process."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(n, 64, generator=generator)
    teacher = torch.randn(64, 10, generator=torch.Generator().manual_seed(7))
    return x, (x @ teacher).argmax(1)


def train(ddp, steps, lr: float = 0.05, optimizer=None, rank: int = RANK):
    """Steps of SGD with momentum; returns the losses of this rank and the optimizer."""
    optimizer = optimizer or torch.optim.SGD(ddp.parameters(), lr=lr, momentum=0.9)
    losses = []
    for step in steps:
        x, y = batch(step, rank)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(ddp(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, optimizer


class Scaler:
    """A GradScaler for the CPU, which early versions of PyTorch do not have."""

    scale = 1024.0

    def get_scale(self) -> float:
        return self.scale


def flat(model: nn.Module):
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def fashion(kind: str, n: int):
    """The first images and labels of Fashion-MNIST, or a skipped test."""
    if not FASHION.is_dir():
        raise support.unittest.SkipTest(f"{FASHION} is missing")
    raw = bytearray(gzip.open(FASHION / f"{kind}-images-idx3-ubyte.gz").read(16 + 784 * n)[16:])
    labels = bytearray(gzip.open(FASHION / f"{kind}-labels-idx1-ubyte.gz").read(8 + n)[8:])
    images = torch.frombuffer(raw, dtype=torch.uint8).view(n, 1, 28, 28).float().sub_(73).div_(90)
    return images, torch.frombuffer(labels, dtype=torch.uint8).long()

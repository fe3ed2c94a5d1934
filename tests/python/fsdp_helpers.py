"""Shared by the tests of FSDP2: small models on a mesh of replicas and shards, over gloo."""

import os

# Of fork_server.py, which is started later.
os.environ["FRUGRAD_TEST_PRELOAD"] = "torch.distributed.fsdp torch.distributed.checkpoint torch.distributed.tensor"

from ddp_helpers import RANK, batch, begin, dist, mlp, nn, torch

try:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard
except Exception:  # PyTorch 1.13 raises a ValueError under Python 3.11
    FSDPModule = fully_shard = init_device_mesh = None

HOOK = hasattr(FSDPModule, "set_all_reduce_hook")
SCATTER = hasattr(FSDPModule, "set_custom_reduce_scatter")
EVERYTHING = "density=1,value=f32,feedback=none"


def begin_mesh(replicas: int, shards: int):
    begin()
    return make_mesh(replicas, shards)


def make_mesh(replicas: int, shards: int):
    return init_device_mesh("cpu", (replicas, shards), mesh_dim_names=("replicate", "shard"))


def shard(mesh, model=None, **options):
    """Each Linear is a module of its own; by default of dimensions that are no multiples of the number of shards."""
    model = model if model is not None else mlp()
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def narrow(seed: int = 0) -> nn.Module:
    """A last layer of three rows: with four shards one of them is empty."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 130), nn.ReLU(), nn.Linear(130, 10), nn.ReLU(), nn.Linear(10, 3))


def train(model, steps, optimizer=None, rank: int = RANK, clip: float = 0.0):
    """Steps of SGD without momentum; returns the losses of this rank."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in steps:
        x, y = (t.to(next(model.parameters()).device) for t in batch(step, rank))
        optimizer.zero_grad()
        out = model(x)
        loss = nn.functional.cross_entropy(out, y % out.shape[1])
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        losses.append(loss.item())
    return losses


def whole(model):
    """All weights, from all shards."""
    return torch.cat([p.detach().full_tensor().flatten() for p in model.parameters()])


def text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".split("\n")[0]


def message(function, *arguments, **options) -> str:
    """The error that a call raises."""
    try:
        function(*arguments, **options)
    except Exception as error:
        return text(error)
    return "nothing"

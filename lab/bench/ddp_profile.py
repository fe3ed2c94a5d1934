#!/usr/bin/env python3
"""How often a step of DistributedDataParallel with the hook waits for the GPU, by PyTorch's profiler.

    lab/bench/ddp_profile.py --backend nccl                  one process, frames from GPU to GPU
    lab/bench/ddp_profile.py --backend gloo --world 2        two processes on one GPU, frames over the host
    lab/bench/ddp_profile.py --sharded                       FSDP2 instead: each process is a replica, a layer a bucket

A GPT of 25 M parameters, forward and backward with the exchange and the optimizer, dense and with the hook in turn.
Prints what the host called in a step: waits (cudaStreamSynchronize, cudaEventSynchronize, cudaDeviceSynchronize), copies
from the GPU to the host, launches; and times of a step.
"""
import argparse
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from rank_processes import spawn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.profiler import ProfilerActivity, profile

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))
WAITS = ("cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize")


def shard(model):
    """Shard a GPT over one process; returns the mesh, on which every process is a replica."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cuda", (dist.get_world_size(), 1), mesh_dim_names=("replicate", "shard"))
    for module in (*model.layers, model):
        fully_shard(module, mesh=mesh["shard"])
    return mesh


def prepare(method, a):
    """A function that takes one step, and the state of the hook."""
    import frugrad.torch
    from ddp_net import GPT
    torch.manual_seed(1)
    model = GPT(512, 8, 64).cuda()
    mesh = shard(model) if a.sharded else None
    net = model if a.sharded else DDP(model, device_ids=[0], bucket_cap_mb=a.bucket)
    optimizer, state = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True), None
    if method != "dense":
        optimizer = frugrad.torch.optimizer(model, optimizer)
        if a.sharded:
            state = frugrad.torch.fsdp(model, method, optimizer, replicate_group=mesh["replicate"], on_gpu=not a.host)
        else:
            state = frugrad.torch.DDPState(model, method, optimizer)
            net.register_comm_hook(state, frugrad.torch.hook)
    ids = torch.randint(256, (a.batch, 65), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(net(ids[:, :-1]).reshape(-1, 256), ids[:, 1:].reshape(-1)).backward()
        optimizer.step()
    return step, state


def measure(method, a):
    step, state = prepare(method, a)
    for _ in range(6):
        step()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(a.steps):
        step()
    enqueued = time.perf_counter() - start
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as trace:
        for _ in range(a.steps):
            step()
        torch.cuda.synchronize()
    counts = {}
    for event in trace.events():
        name = "Memcpy DtoH" if event.name.startswith("Memcpy DtoH") else event.name
        counts[name] = counts.get(name, 0) + 1
    waits = {name: (counts.get(name, 0) - (name == "cudaDeviceSynchronize")) / a.steps for name in WAITS}
    buckets = len(state.stats()["modules" if a.sharded else "buckets"]) if state else None
    return dict(method=method, sharded=a.sharded, backend=a.backend, world=dist.get_world_size(), buckets=buckets, **waits,
                memcpy_dtoh=counts.get("Memcpy DtoH", 0) / a.steps, launches=counts.get("cudaLaunchKernel", 0) / a.steps,
                ms_host=round(1000 * enqueued / a.steps, 3), ms_step=round(1000 * seconds / a.steps, 3),
                device=state.stats()["device"] if state else "dense", gpu=torch.cuda.get_device_name(),
                torch=torch.__version__)


def worker(a):
    dist.init_process_group(a.backend)
    rows = [measure(method, a) for method in a.methods.split("/")]
    if dist.get_rank() == 0:
        for row in rows:
            print(json.dumps(row), flush=True)
        if a.out:
            with open(a.out, "a", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--backend", default="nccl")
    p.add_argument("--world", type=int, default=1, help="processes; they share the GPU")
    p.add_argument("--methods", default="dense/frugrad/frugrad,feedback=none", help="dense and configs, with / between")
    p.add_argument("--sharded", action="store_true", help="FSDP2 in place of DistributedDataParallel")
    p.add_argument("--host", action="store_true", help="of a sharded model: compress on the host, not on the GPU")
    p.add_argument("--bucket", type=float, default=25, help="MB of a bucket")
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--out", default="", metavar="FILE", help="append JSON lines there")
    a = p.parse_args()
    if "RANK" in os.environ:
        worker(a)
        return 0
    return spawn(a.world)


if __name__ == "__main__":
    sys.exit(main())

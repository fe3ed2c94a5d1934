#!/usr/bin/env python3
"""Is training with frugrad.torch.fsdp level with dense training, at the rate that dense training has?

    lab/bench/fsdp_level.py [--cases cnn,gpt] [--methods dense,replicas-94,...] [--seeds 1,2] [--out FILE]

Four processes over loopback train the models of ddp_level.py, sharded by fully_shard (FSDP2), with a cosine schedule.
"dense" is PyTorch's own hybrid sharding, two replicas of two shards; "replicas" the same with a compressed exchange
between replicas; "scatter" one replica of four shards with a compressed reduce-scatter; --world and --shards change that.
Prints a line per run: accuracy or the loss on held-out text, the mean training loss of every 50 steps, and the share of
bytes sent.
"""
import argparse
import json
import os
import statistics
import sys
import time
from itertools import product

import torch
import torch.distributed as dist
from ddp_level import CASES, DENSITY, add_shape
from rank_processes import append, spawn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

METHODS = ["dense", "replicas-94", "replicas-99", "scatter-94", "scatter-99"]


def sharded(model, mesh):
    for layer in getattr(model, "layers", model):
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=mesh, reshard_after_forward=False)
    return fully_shard(model, mesh=mesh)


def prepare(case, method, steps, more, shards):
    """The model, its optimizer and the state of frugrad.torch.fsdp."""
    import frugrad.torch
    kind, _, density = method.partition("-")
    shards = dist.get_world_size() if kind == "scatter" else shards
    mesh = init_device_mesh("cpu", (dist.get_world_size() // shards, shards), mesh_dim_names=("replicate", "shard"))
    model = sharded(case.model(), mesh if kind == "dense" else mesh["shard"])
    optimizer = case.optimizer(model)
    if kind == "dense":
        return model, optimizer, None
    optimizer = frugrad.torch.optimizer(model, optimizer)
    state = frugrad.torch.fsdp(model, "frugrad" + DENSITY[density] + more, optimizer, total_steps=steps,
                               replicate_group=mesh["replicate"] if kind == "replicas" else None)
    return model, optimizer, state


def run(case, method, seed, steps, more, shards):
    torch.manual_seed(seed)
    model, optimizer, state = prepare(case, method, steps, more, shards)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    draw, losses = torch.Generator().manual_seed(1000 * seed + dist.get_rank()), []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = case.loss(model, draw)
        loss.backward()
        case.clip(model)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    curve = torch.tensor([statistics.mean(losses[i:i + 50]) for i in range(0, steps, 50)])
    dist.all_reduce(curve)
    model.eval()
    with torch.no_grad():
        value = torch.tensor(case.measure(model))
    dist.all_reduce(value)  # running means of batch norm differ from process to process
    curve, value = curve / dist.get_world_size(), value / dist.get_world_size()
    return {"value": round(value.item(), 4), "curve": [round(x, 4) for x in curve.tolist()],
            "bytes": round(1 / state.stats()["ratio"], 4) if state else 1.0}


def worker(a):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    lines = []
    for name, seed, method in product(a.cases.split(","), map(int, a.seeds.split(",")), a.methods.split(",")):
        case, start = CASES[name](a), time.perf_counter()
        case.rate = a.rate or case.rate
        lines.append({"case": name, "method": method, "seed": seed, "steps": a.steps, "rate": case.rate, "more": a.more,
                      "world": dist.get_world_size(), "shards": a.shards, "shape": a.shape, "rows": a.rows,
                      **run(case, method, seed, a.steps, a.more, a.shards), "seconds": round(time.perf_counter() - start, 1),
                      "torch": torch.__version__})
        if dist.get_rank() == 0:
            print(json.dumps(lines[-1]), flush=True)
    if dist.get_rank() == 0 and a.out:
        append(a.out, lines)
    dist.barrier()
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cases", default="cnn,gpt")
    p.add_argument("--methods", default=",".join(METHODS))
    p.add_argument("--seeds", default="1,2")
    p.add_argument("--more", default="", help="options to add to frugrad's config, as ,warmup=30")
    p.add_argument("--rate", type=float, default=0.0, help="another rate than the case's, for all methods")
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--world", type=int, default=4, help="processes [4]")
    p.add_argument("--shards", type=int, default=2, help="of a replica [2]")
    add_shape(p)
    p.add_argument("--images", default="/usr/share/datasets/fashion-mnist")
    p.add_argument("--out", default="", metavar="FILE", help="also add JSON lines to it")
    a = p.parse_args()
    if "RANK" in os.environ:
        worker(a)
        return 0
    return spawn(a.world)


if __name__ == "__main__":
    sys.exit(main())

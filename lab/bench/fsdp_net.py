#!/usr/bin/env python3
"""A training step of FSDP2 with dense and with compressed exchanges, in turn, in one run.

    tests/net/netns.sh -t -q -p 2 -r 1gbit -- python3 lab/bench/fsdp_net.py     two nodes behind slow links; needs root
    lab/bench/fsdp_net.py                                                       one node

Every node (a network namespace of netns.sh) has two processes, connected by its loopback interface. "hybrid" is
PyTorch's hybrid sharding: a replica of two shards on each node; "alone" the same without any exchange between replicas,
the lower limit; "frugrad-..." with a compressed one. "sharded" is one replica of all processes, "scatter-..." the same
with a compressed reduce-scatter. A turn is as slow as its slowest process. Bytes are those that a node sent through its
link, counted by the kernel.
"""
import argparse
import copy
import faulthandler
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from ddp_net import GPT
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

LOCAL = 2  # processes of a node
METHODS = ["alone", "hybrid", "frugrad-94", "frugrad-99", "sharded", "scatter-94", "scatter-99"]
CONFIGS = {"94": "frugrad", "99": "frugrad,schedule=constant:0.99"}


class Method:
    """The model with one way to exchange gradients."""

    def __init__(self, name, base, nodes):
        import frugrad.torch
        self.name, self.ms, self.bytes, self.state = name, [], [], None
        kind, _, density = name.partition("-")
        one = kind in ("sharded", "scatter")
        mesh = init_device_mesh("cpu", (1, nodes * LOCAL) if one else (nodes, LOCAL),
                                mesh_dim_names=("replicate", "shard"))
        self.model, over = copy.deepcopy(base), mesh if kind == "hybrid" else mesh["shard"]
        for layer in self.model.layers:
            fully_shard(layer, mesh=over)
        fully_shard(self.model, mesh=over)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-9)
        if density:
            self.state = frugrad.torch.fsdp(self.model, CONFIGS[density], self.optimizer,
                                            replicate_group=None if one else mesh["replicate"])

    def step(self, ids):
        self.optimizer.zero_grad()
        out = self.model(ids[:, :-1])
        F.cross_entropy(out.reshape(-1, 256), ids[:, 1:].reshape(-1)).backward()
        self.optimizer.step()


def sent():
    """Bytes that this node has sent."""
    with open(f"/sys/class/net/{os.environ['GLOO_SOCKET_IFNAME']}/statistics/tx_bytes", encoding="ascii") as file:
        return int(file.read())


def turn(method, ids, steps):
    dist.barrier()
    before, start = sent(), time.perf_counter()
    for _ in range(steps):
        method.step(ids)
    ms = torch.tensor([1000 * (time.perf_counter() - start) / steps], dtype=torch.float64)
    dist.all_reduce(ms, dist.ReduceOp.MAX)
    dist.barrier()
    load = torch.tensor([(sent() - before) / steps], dtype=torch.float64)
    dist.all_reduce(load)
    method.ms.append(ms.item())
    method.bytes.append(load.item() / dist.get_world_size())


def measure(a, nodes):
    torch.manual_seed(1)
    base = GPT(a.width, a.layers, 64)
    torch.manual_seed(100 + dist.get_rank())
    ids = torch.randint(256, (1, 65))
    methods = [Method(name, base, nodes) for name in a.methods.split(",")]
    for method in methods:
        for _ in range(2):
            method.step(ids)
    for _ in range(a.rounds):
        for method in methods:
            turn(method, ids, a.steps)
    lines = [{"params": sum(p.numel() for p in base.parameters()), "nodes": nodes, "processes_per_node": LOCAL,
              "rate": a.rate, "rounds": a.rounds, "steps_per_turn": a.steps, "torch": torch.__version__,
              "machine": platform.machine(), "cores": os.cpu_count()}]
    for m in methods:
        line = {"method": m.name, "ms_median": round(statistics.median(m.ms), 1), "ms_min": round(min(m.ms), 1),
                "ms_max": round(max(m.ms), 1), "bytes": int(statistics.median(m.bytes))}
        if m.state is not None:
            line["stats"] = {key: value for key, value in m.state.stats().items() if key != "modules"}
        lines.append(line)
    return lines


def worker(a, nodes):
    faulthandler.dump_traceback_later(a.limit, exit=True)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    lines = measure(a, nodes)
    if dist.get_rank() == 0:
        for line in lines:
            print(json.dumps(line), flush=True)
        if a.out:
            with open(a.out, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
    dist.barrier()
    dist.destroy_process_group()


def start_node(node, nodes):
    """The processes of this node; ends the others when one fails."""
    env = dict(os.environ, FSDP_NET_NODES=str(nodes), WORLD_SIZE=str(LOCAL * nodes), OMP_NUM_THREADS="1")
    if "MASTER_ADDR" not in env:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            env.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(s.getsockname()[1]), GLOO_SOCKET_IFNAME="lo")
    jobs = [subprocess.Popen([sys.executable] + sys.argv, env=dict(env, RANK=str(LOCAL * node + i), LOCAL_RANK=str(i)))
            for i in range(LOCAL)]
    while any(job.poll() is None for job in jobs) and not any(job.poll() for job in jobs):
        time.sleep(0.2)
    for job in jobs:
        if job.poll() is None:
            job.kill()
    return max(abs(job.wait()) for job in jobs)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rate", default="none", help="what the links carry, for the record [none: no limit]")
    p.add_argument("--methods", default=",".join(METHODS))
    p.add_argument("--rounds", type=int, default=5, help="turns of each method [5]")
    p.add_argument("--steps", type=int, default=2, help="steps of a turn [2]")
    p.add_argument("--width", type=int, default=512, help="width of the GPT [512]")
    p.add_argument("--layers", type=int, default=8, help="its layers [8: 25 M parameters]")
    p.add_argument("--limit", type=int, default=1200, help="give up after so many seconds [1200]")
    p.add_argument("--out", default="", metavar="FILE", help="also write JSON lines there")
    a = p.parse_args()
    if "FSDP_NET_NODES" in os.environ:
        worker(a, int(os.environ["FSDP_NET_NODES"]))
        return 0
    return start_node(int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)))


if __name__ == "__main__":
    sys.exit(main())

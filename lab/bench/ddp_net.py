#!/usr/bin/env python3
"""A training step of DistributedDataParallel with each way to exchange gradients, in turn, in one run.

    lab/bench/ddp_net.sh --world 4 --rate 1gbit --grace DIR      over slow links; needs root
    lab/bench/ddp_net.py --world 2                               over loopback
    lab/bench/ddp_net.py --world 2 --overhead                    cost of the hook on a link without cost

All methods train the same weights in the same processes: each has a DDP wrapper of its own, and they run in turn. A step
is forward, backward with the exchange, and SGD at a rate too small to matter. A turn is as slow as its slowest process.
Bytes are those that a process sent through its interface, counted by the kernel. "same": all processes had the same
gradients. GRACE is run from a copy of its source (github.com/sands-lab/grace), as its examples do.
"""
import argparse
import contextlib
import copy
import faulthandler
import json
import os
import platform
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from rank_processes import spawn, turn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel as DDP

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "python"))

CONFIGS = {"frugrad-94": "frugrad", "frugrad-94-f32": "frugrad,residual=f32", "frugrad-94-int8": "frugrad,value=int8",
           "frugrad-99": "frugrad,schedule=constant:0.99",
           "frugrad-99-int8": "frugrad,schedule=constant:0.99,value=int8"}
METHODS = ["none", "dense", "fp16", "bf16", "powersgd-1", "powersgd-2", "powersgd-4", "topk-94", "topk-99", "grace-94",
           "grace-99"] + list(CONFIGS)
DENSITY = {"94": 0.0625, "99": 0.01}


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2, self.heads = nn.LayerNorm(width), nn.LayerNorm(width), heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc, self.out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask):
        n, t, c = x.shape
        q, k, v = (z.view(n, t, self.heads, -1).transpose(1, 2) for z in self.qkv(self.norm1(x)).split(c, 2))
        y = (q @ k.transpose(2, 3) * (c // self.heads) ** -0.5 + mask).softmax(3) @ v
        x = x + self.proj(y.transpose(1, 2).reshape(n, t, c))
        return x + self.out(F.gelu(self.fc(self.norm2(x))))


class GPT(nn.Module):
    """A GPT on bytes: 12 layers width^2 parameters and a little more."""

    def __init__(self, width, layers, length):
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width, max(1, width // 64)) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1))

    def forward(self, ids):
        x = self.tokens(ids) + self.places.weight
        for layer in self.layers:
            x = layer(x, self.mask)
        return self.norm(x) @ self.tokens.weight.t()


class TopK:
    """Plain top-k in torch: the largest of a bucket and their indices, all-gathered, with error feedback."""

    def __init__(self, density):
        self.density, self.residual = density, {}

    def hook(self, state, bucket):
        flat, world = bucket.buffer(), dist.get_world_size()
        key = (bucket.index(), flat.numel())
        total = flat + self.residual[key] if key in self.residual else flat.clone()
        places = total.abs().topk(max(1, int(self.density * total.numel())), sorted=False)[1]
        values = total[places]
        total[places] = 0
        self.residual[key] = total
        mine = torch.cat([values, places.int().view(torch.float32)])
        everyone = [torch.empty_like(mine) for _ in range(world)]

        def add(future):
            future.wait()
            flat.zero_()
            for theirs in everyone:
                v, p = theirs.chunk(2)
                flat.index_add_(0, p.view(torch.int32).long(), v / world)
            return flat

        return dist.all_gather(everyone, mine, async_op=True).get_future().then(add)


class PowerSGD:
    """PyTorch's hook, one bucket after the other in a thread of its own. Unchanged, it waits for collectives in
    gloo's two threads: with two buckets in flight both wait, and no thread is left to run the collectives: a deadlock."""

    def __init__(self, rank):
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook  # needs NumPy
        self.state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=2)
        self.inner, self.thread = powerSGD_hook.powerSGD_hook, ThreadPoolExecutor(1)

    def hook(self, state, bucket):
        done = torch.futures.Future()

        def job():
            try:
                done.set_result(self.inner(self.state, bucket).wait())
            except Exception as error:  # backward() raises it
                done.set_exception(error)

        self.thread.submit(job)
        return done


def load_grace(folder, density):
    sys.path.insert(0, folder)
    from grace_dl.dist.communicator.allgather import Allgather
    from grace_dl.dist.compressor.topk import TopKCompressor
    from grace_dl.dist.memory.residual import ResidualMemory
    return Allgather(TopKCompressor(density, kernel="torch"), ResidualMemory(), dist.get_world_size())


class Method:
    """One way to exchange gradients, with its model."""

    def __init__(self, name, base, a):
        self.name, self.state, self.grace, self.turns = name, None, None, []
        model = copy.deepcopy(base)
        for mine, shared in zip(model.parameters(), base.parameters()):
            mine.data = shared.data
        self.ddp = DDP(model, gradient_as_bucket_view=a.views)
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=1e-7)
        kind, _, number = name.partition("-")
        if kind in ("fp16", "bf16"):
            self.ddp.register_comm_hook(None, getattr(default_hooks, kind + "_compress_hook"))
        elif kind == "powersgd":
            self.ddp.register_comm_hook(None, PowerSGD(int(number)).hook)
        elif kind == "topk":
            self.ddp.register_comm_hook(None, TopK(DENSITY[number]).hook)
        elif kind == "grace":
            self.grace = load_grace(a.grace, DENSITY[number])
        elif kind == "frugrad":
            import frugrad.torch
            self.optimizer = frugrad.torch.optimizer(model, self.optimizer)
            self.state = frugrad.torch.DDPState(model, CONFIGS[name], self.optimizer)
            self.ddp.register_comm_hook(self.state, frugrad.torch.hook)

    def step(self, ids):
        self.optimizer.zero_grad(set_to_none=True)
        alone = self.name == "none" or self.grace
        with self.ddp.no_sync() if alone else contextlib.nullcontext():
            out = self.ddp(ids[:, :-1])
            F.cross_entropy(out.reshape(-1, 256), ids[:, 1:].reshape(-1)).backward()
        if self.grace:
            for name, p in self.ddp.named_parameters():
                p.grad = self.grace.step(p.grad, name)
        self.optimizer.step()

    def same(self):
        """Whether all processes have the same gradients."""
        mine = torch.stack([torch.stack([p.grad.double().sum(), p.grad.double().norm()])
                            for p in self.ddp.parameters()])
        everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        dist.all_gather(everyone, mine)
        return all(torch.equal(mine, theirs) for theirs in everyone)


def supports_bf16():
    try:
        dist.all_reduce(torch.zeros(1, dtype=torch.bfloat16))
        return True
    except RuntimeError:
        return False


def wanted(a):
    names = ["dense", "frugrad-94", "frugrad-94-f32", "frugrad-99"] if a.overhead else METHODS
    names = a.methods.split(",") if a.methods else names
    for name in names:
        if name not in METHODS:
            raise SystemExit(f"ddp_net: '{name}' is no method; there are {', '.join(METHODS)}")
    left_out = {}
    if not a.grace:
        left_out.update({n: "no --grace" for n in names if n.startswith("grace")})
    try:
        import numpy  # noqa: F401
    except ImportError:
        left_out.update({n: "PyTorch's hook needs NumPy" for n in names if n.startswith("powersgd")})
    if "bf16" in names and not supports_bf16():
        left_out["bf16"] = "this gloo adds no bf16"
    return [n for n in names if n not in left_out], left_out


def measure(a):
    torch.manual_seed(1)
    length = min(a.tokens, 64)
    base = GPT(a.width, a.layers, length)
    torch.manual_seed(100 + dist.get_rank())
    ids = torch.randint(256, (max(1, a.tokens // length), length + 1))
    names, left_out = wanted(a)
    methods, same = [Method(name, base, a) for name in names], {}
    for method in methods:
        for _ in range(a.warm):
            method.step(ids)
        same[method.name] = method.same()
        method.optimizer.zero_grad(set_to_none=True)
    for done in range(a.rounds):
        for method in methods:
            method.turns.append(turn(lambda: method.step(ids), a.steps))
            method.optimizer.zero_grad(set_to_none=True)
        say(f"round {done + 1} of {a.rounds}")
    head = {"params": sum(p.numel() for p in base.parameters()), "world": dist.get_world_size(), "rate": a.rate, "views": a.views,
            "tokens_per_process": ids.shape[0] * length, "rounds": a.rounds, "steps_per_turn": a.steps,
            "torch": torch.__version__, "machine": platform.machine(), "cores": os.cpu_count(), "left_out": left_out}
    lines = [head]
    for m in methods:
        ms, cpu, sent = zip(*m.turns)
        line = {"method": m.name, "ms_median": round(statistics.median(ms), 2), "ms_min": round(min(ms), 2),
                "ms_max": round(max(ms), 2), "cpu_ms": round(statistics.median(cpu), 2),
                "bytes": int(statistics.median(sent)), "same": same[m.name]}
        dense = next((other for other in methods if other.name == "dense"), None)
        if dense:
            # Each turn is compared with the dense turn of the same round, so that a slow phase affects both.
            line["times_dense"] = round(statistics.median(d[0] / t[0] for d, t in zip(dense.turns, m.turns)), 3)
        if m.state is not None:
            line["config"], line["stats"] = CONFIGS[m.name], m.state.stats()
        lines.append(line)
    return lines


def per_bucket(steps):
    """Microseconds for a bucket of 64 x 64 in a group of one process: Python by the hook's own clock, and the total that it
    adds to a step and to its processor time beyond a hook that does nothing, compression and threads included."""
    import frugrad.torch
    alone, buckets = dist.new_group([0]), [0]
    if dist.get_rank() != 0:
        return None
    dist._DEFAULT_FIRST_BUCKET_BYTES = 1  # the first bucket would have 1 MB, whatever bucket_cap_mb says

    def nothing(_, bucket):
        buckets[0] += 1
        future = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    def wrapped(state, hook):
        net = DDP(nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(64))), bucket_cap_mb=0.015,
                  process_group=alone)
        net.register_comm_hook(state(net) if state else None, hook)
        return net

    states = []

    def state_of(net):
        states.append(frugrad.torch.DDPState(net, CONFIGS["frugrad-94"] + ",feedback=merged", process_group=alone))
        return states[0]

    nets, x, times = [wrapped(None, nothing), wrapped(state_of, frugrad.torch.hook)], torch.randn(1, 64), ([], [])
    for step in range(steps + 6):
        if step == 6:
            before, buckets[0] = states[0].stats(), 0
        for net, took in zip(nets, times):
            start, busy = time.perf_counter(), time.process_time()
            net(x).sum().backward()
            took.append((time.perf_counter() - start, time.process_time() - busy))
    after = states[0].stats()
    python = (after["seconds"]["python"] - before["seconds"]["python"]) / buckets[0]
    wall, cpu = ((statistics.median(t[i] for t in times[1][6:]) - statistics.median(t[i] for t in times[0][6:]))
                 / (buckets[0] / steps) for i in (0, 1))
    return {"buckets": buckets[0] // steps, "us_python": round(1e6 * python, 1), "us_wall": round(1e6 * wall, 1),
            "us_cpu": round(1e6 * cpu, 1)}


def say(text):
    if dist.get_rank() == 0:
        print("ddp_net:", text, file=sys.stderr, flush=True)


def table(lines):
    head, rows = lines[0], lines[1:]
    median = {r["method"]: r["ms_median"] for r in rows}
    print(f"{head['params'] / 1e6:.1f} M parameters, {head['world']} processes, link {head['rate']}, "
          f"{head['tokens_per_process']} tokens a process, torch {head['torch']}, {head['machine']}\n")
    print("| method | step ms, median (min to max) | times faster than dense | of the rate alone | CPU ms | MB sent | same |")
    print("|---|---:|---:|---:|---:|---:|---|")
    for r in rows:
        alone = f"{median['none'] / r['ms_median']:.0%}" if "none" in median else ""
        spread = f"{r['ms_median']:.0f} ({r['ms_min']:.0f} to {r['ms_max']:.0f})"
        print(f"| {r['method']} | {spread} | {r.get('times_dense', '')} | {alone} | {r['cpu_ms']:.0f} | "
              f"{r['bytes'] / 1e6:.2f} | {'yes' if r['same'] else '-' if r['method'] == 'none' else 'NO'} |")
    for name, why in head["left_out"].items():
        print(f"\n{name} left out: {why}")


def worker(a):
    faulthandler.dump_traceback_later(a.limit, exit=True)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    lines = measure(a)
    if a.overhead:
        lines[0].update(per_bucket(100) or {})
    if dist.get_rank() == 0:
        table(lines)
        if a.overhead:
            print("\nmicroseconds for each of {buckets} buckets: {us_python} of Python; {us_wall} in all, {us_cpu} of "
                  "processor time".format(**lines[0]))
        if a.out:
            with open(a.out, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
    dist.barrier()
    dist.destroy_process_group()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--world", type=int, default=4, help="processes [4]")
    p.add_argument("--rate", default="none", help="what the links carry: 1gbit; ddp_net.sh sets it up [none: no limit]")
    p.add_argument("--rounds", type=int, default=4, help="turns of each method [4]")
    p.add_argument("--steps", type=int, default=2, help="steps of a turn [2]")
    p.add_argument("--warm", type=int, default=3, help="steps of each method beforehand [3]")
    p.add_argument("--tokens", type=int, default=64, help="tokens of each process in a step [64]")
    p.add_argument("--width", type=int, default=512, help="width of the GPT [512]")
    p.add_argument("--layers", type=int, default=8, help="its layers [8: 25 M parameters]")
    p.add_argument("--methods", default="", help="comma-separated, of " + ", ".join(METHODS) + " [all]")
    p.add_argument("--views", action="store_true", help="DDP with gradient_as_bucket_view=True, for all methods")
    p.add_argument("--grace", default="", metavar="DIR", help="where GRACE's source lies")
    p.add_argument("--overhead", action="store_true", help="dense and the hook only, and microseconds per bucket")
    p.add_argument("--limit", type=int, default=1200, help="give up after so many seconds [1200]")
    p.add_argument("--out", default="", metavar="FILE", help="also write JSON lines there")
    a = p.parse_args()
    if "RANK" in os.environ:
        worker(a)
        return 0
    return spawn(a.world)


if __name__ == "__main__":
    sys.exit(main())

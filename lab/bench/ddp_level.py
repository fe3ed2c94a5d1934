#!/usr/bin/env python3
"""Is training with the hook level with dense training, at the rate that dense training has?

    lab/bench/ddp_level.py [--cases cnn,gpt] [--methods dense,frugrad,none] [--out FILE]

Two processes over loopback train with DistributedDataParallel as a script of a new user does: a network with batch norm
on Fashion-MNIST with SGD (momentum 0.9, weight decay), and a GPT on bytes with AdamW and clipping to 1; 300 steps
with a cosine schedule, with one rate for all methods. "frugrad" is frugrad.torch.optimizer() and the hook, "none" the hook with the optimizer as it is
and without error feedback, each at 94 and 99 % sparsity. Prints a line per run: test accuracy, or loss on held-out text.
"""
import argparse
import gzip
import json
import os
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from rank_processes import append, spawn
from torch.nn.parallel import DistributedDataParallel as DDP

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "examples")]
DENSITY = {"94": "", "99": ",schedule=constant:0.99"}


class Images:
    """A small convolutional network with batch norm; the measure is accuracy on test images."""

    higher_is_better, rate = True, 0.05

    def __init__(self, a):
        self.train, self.test = (self._load(a.images, part) for part in ("train", "t10k"))

    @staticmethod
    def _load(folder, part):
        pixels = bytearray(gzip.open(f"{folder}/{part}-images-idx3-ubyte.gz").read()[16:])
        labels = bytearray(gzip.open(f"{folder}/{part}-labels-idx1-ubyte.gz").read()[8:])
        images = torch.frombuffer(pixels, dtype=torch.uint8).view(-1, 1, 28, 28).float().sub_(73).div_(90)
        return images, torch.frombuffer(labels, dtype=torch.uint8).long()

    def model(self):
        def block(inputs, outputs):
            return [nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        return nn.Sequential(*block(1, 32), *block(32, 64), *block(64, 128), nn.Flatten(), nn.Linear(2048, 128),
                             nn.ReLU(), nn.Linear(128, 10))

    def optimizer(self, model):
        return torch.optim.SGD(model.parameters(), lr=self.rate, momentum=0.9, weight_decay=5e-4)

    def loss(self, ddp, draw):
        pick = torch.randint(len(self.train[1]), (32,), generator=draw)
        return F.cross_entropy(ddp(self.train[0][pick]), self.train[1][pick])

    def clip(self, model):
        pass

    def measure(self, model):
        found = torch.cat([model(x).argmax(1) for x in self.test[0].split(500)])
        return (found == self.test[1]).float().mean().item()


class Text:
    """The GPT of examples/torch_lm.py on the sources of this project; the measure is the loss on the last tenth."""

    higher_is_better, rate = False, 1e-3

    def __init__(self, a):
        self.width, self.layers, self.length = map(int, a.shape.split(","))
        self.rows = a.rows
        files = sorted(path for folder in ("lib", "trainer", "program") for path in (ROOT / folder).rglob("*.c"))
        text = b"".join(path.read_bytes() for path in files)
        ids = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
        self.train, self.held = ids.split([len(ids) - len(ids) // 10, len(ids) // 10])

    def model(self):
        from torch_lm import GPT
        return GPT(self.width, self.layers, self.length)

    def optimizer(self, model):
        return torch.optim.AdamW(model.parameters(), lr=self.rate)

    def _loss(self, model, text, starts):
        ids = torch.stack([text[s:s + self.length + 1] for s in starts.tolist()])
        return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    def loss(self, ddp, draw):
        return self._loss(ddp, self.train, torch.randint(len(self.train) - self.length, (self.rows,), generator=draw))

    def clip(self, model):
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    def measure(self, model):
        starts = torch.arange(256) * ((len(self.held) - self.length) // 256)
        return statistics.mean(self._loss(model, self.held, part).item() for part in starts.split(32))


CASES = {"cnn": Images, "gpt": Text}


def run(case, method, density, seed, steps, more):
    """One training run; returns the measure and the share of bytes that was sent."""
    import frugrad.torch
    torch.manual_seed(seed)
    model = case.model()
    ddp = DDP(model)
    optimizer, state = case.optimizer(model), None
    if method == "frugrad":
        optimizer = frugrad.torch.optimizer(model, optimizer)
    if method != "dense":
        text = "frugrad" + DENSITY[density] + (",feedback=none" if method == "none" else more)
        state = frugrad.torch.DDPState(model, text, optimizer=optimizer, total_steps=steps)
        ddp.register_comm_hook(state, frugrad.torch.hook)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    draw = torch.Generator().manual_seed(1000 * seed + dist.get_rank())
    for _ in range(steps):
        optimizer.zero_grad()
        case.loss(ddp, draw).backward()
        case.clip(model)
        optimizer.step()
        schedule.step()
    model.eval()
    with torch.no_grad():
        found = torch.tensor(case.measure(model))
    dist.all_reduce(found)  # running means of batch norm differ from process to process
    return found.item() / dist.get_world_size(), 1 / state.stats()["ratio"] if state else 1.0


def worker(a):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    lines = []
    for name in a.cases.split(","):
        case = CASES[name](a)
        case.rate = a.rate or case.rate
        for method in a.methods.split(","):
            for density in [""] if method == "dense" else a.densities.split(","):
                for seed in map(int, a.seeds.split(",")):
                    start = time.perf_counter()
                    value, sent = run(case, method, density, seed, a.steps, a.more)
                    lines.append({"case": name, "method": method, "sparsity": density, "seed": seed, "steps": a.steps,
                                  "rate": case.rate, "value": round(value, 4), "bytes": round(sent, 4),
                                  "seconds": round(time.perf_counter() - start, 1), "torch": torch.__version__,
                                  "more": a.more, "world": dist.get_world_size()})
                    if dist.get_rank() == 0:
                        print(json.dumps(lines[-1]), flush=True)
    if dist.get_rank() == 0 and a.out:
        append(a.out, lines)
    dist.barrier()
    dist.destroy_process_group()


def add_shape(p):
    """Options for the size of the GPT and its batches."""
    p.add_argument("--shape", default="128,4,64", help="width, layers and bytes of text of the GPT [128,4,64]")
    p.add_argument("--rows", type=int, default=8, help="its texts of each process in a step [8]")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cases", default="cnn,gpt")
    p.add_argument("--methods", default="dense,frugrad,none")
    p.add_argument("--densities", default="94,99", help="sparsity in percent")
    p.add_argument("--rate", type=float, default=0.0, help="another rate than the case's, for all methods")
    p.add_argument("--more", default="", help="options to add to frugrad's config, as ,beta=0.9")
    p.add_argument("--seeds", default="1,2,3")
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--world", type=int, default=2, help="processes")
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

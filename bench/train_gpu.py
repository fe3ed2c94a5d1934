#!/usr/bin/env python3
"""Train ResNet-50 (CIFAR-10) and GPT-2 small (WikiText-2) on one GPU with frames made and added up there.

    export FRUGRAD_LIBRARY=build/release/libfrugrad.so PYTHONPATH=python
    python3 bench/train_gpu.py --data DATA --task resnet50 gpt2 --out results/train-gpu.jsonl
    torchrun --nproc_per_node 2 bench/train_gpu.py --ddp --data DATA --task gpt2 --steps 60 --out results/ddp-gpu.jsonl

One process plays all workers: their batches go through the model one after the other, each worker has a compressor of
its own on the GPU and sends frames, and the mean of the frames moves the weights. Tensors of one dimension travel
whole. With --ddp there are as many processes as torchrun starts, on one GPU over gloo, with DistributedDataParallel and
the hook. A run that --out has already is not made again. --tiny makes models and data small, to try the program without
a GPU.

Methods: dense; none:S, merged:S, plain:S (the feedback, and the share S that is not sent; merged:S:B with the momentum
B instead of the one that goes with S). With merged the optimiser has no momentum of its own: ResNet-50 w -= rate /
(1 - 0.9) * mean, GPT-2 Adam without a first moment (docs/optimizers.md); inertia:S is merged with a momentum of 0.5 at
the receiver besides.
"""

import argparse
import contextlib
import json
import lzma
import math
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, List, Tuple

import torch
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python"))

from frugrad import _cuda  # noqa: E402
from frugrad._core import Config, Layout, Tensor  # noqa: E402

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda", 0) if CUDA else torch.device("cpu")


# ---- models

class Bottleneck(nn.Module):
    def __init__(self, inside: int, width: int, stride: int):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width))
        self.short = nn.Identity()
        if stride != 1 or inside != 4 * width:
            self.short = nn.Sequential(nn.Conv2d(inside, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x), inplace=True)


def resnet50(tiny: bool) -> nn.Module:
    """ResNet-50 with the stem for small images: 3x3, stride 1, no pooling. 23.5 M parameters with ten classes."""
    depth, width = ((1, 1, 1, 1), 8) if tiny else ((3, 4, 6, 3), 64)
    layers: List[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    inside = width
    for stage, blocks in enumerate(depth):
        for i in range(blocks):
            layers.append(Bottleneck(inside, width << stage, 2 if stage and i == 0 else 1))
            inside = 4 * (width << stage)
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 10)]
    model = nn.Sequential(*layers)
    for m in model.modules():
        if isinstance(m, nn.Conv2d):
            nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(m, Bottleneck):
            nn.init.zeros_(m.body[-1].weight)
    return model


class Block(nn.Module):
    def __init__(self, width: int, heads: int, layers: int):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        for linear in (self.qkv, self.up):
            nn.init.normal_(linear.weight, std=0.02)
        for linear in (self.out, self.down):
            nn.init.normal_(linear.weight, std=0.02 / math.sqrt(2 * layers))
        for linear in (self.qkv, self.out, self.up, self.down):
            nn.init.zeros_(linear.bias)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.ln1(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class GPT2(nn.Module):
    """GPT-2 small: 124.4 M parameters, embeddings tied."""

    def __init__(self, tiny: bool):
        super().__init__()
        width, heads, layers, context = (64, 2, 2, 64) if tiny else (768, 12, 12, 1024)
        self.wte, self.wpe = nn.Embedding(50257, width), nn.Embedding(context, width)
        nn.init.normal_(self.wte.weight, std=0.02)
        nn.init.normal_(self.wpe.weight, std=0.01)
        self.blocks = nn.ModuleList(Block(width, heads, layers) for _ in range(layers))
        self.ln = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe.weight[:ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.ln(x), self.wte.weight)


# ---- tasks: data on the GPU, a batch of a worker, a loss, a test

def unpacked(path: Path) -> torch.Tensor:
    with lzma.open(path) as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)


class Cifar:
    """CIFAR-10 with random crops (4 pixels of padding) and flips."""

    name, per_worker, rate, optimizer = "resnet50", 128, 0.1, "sgd"

    def __init__(self, folder: Path, tiny: bool):
        self.tiny, self.per_worker = tiny, 8 if tiny else self.per_worker
        files = [folder / "cifar10" / f"data_batch_{i}.bin.xz" for i in range(1, 2 if tiny else 6)]
        self.x, self.y = self._load(files)
        self.tx, self.ty = self._load([folder / "cifar10" / "test_batch.bin.xz"])
        if tiny:
            self.tx, self.ty = self.tx[:64], self.ty[:64]

    @staticmethod
    def _load(files) -> Tuple[torch.Tensor, torch.Tensor]:
        rows = torch.cat([unpacked(file).view(-1, 3073) for file in files]).to(DEVICE)
        mean = torch.tensor([125.3, 123.0, 113.9], device=DEVICE).view(3, 1, 1)
        std = torch.tensor([63.0, 62.1, 66.7], device=DEVICE).view(3, 1, 1)
        images = torch.empty(len(rows), 3, 32, 32, device=DEVICE, dtype=torch.bfloat16)
        for at in range(0, len(rows), 10000):
            images[at:at + 10000] = (rows[at:at + 10000, 1:].view(-1, 3, 32, 32).float() - mean) / std
        return images, rows[:, 0].long()

    def model(self) -> nn.Module:
        return resnet50(self.tiny).to(DEVICE, memory_format=torch.channels_last)

    def steps(self, workers: int) -> int:
        return 8 * (len(self.x) // (workers * self.per_worker))

    def start(self, seed: int) -> None:
        self.random = torch.Generator(DEVICE).manual_seed(seed)
        self.order, self.at = torch.empty(0, dtype=torch.int64, device=DEVICE), 0

    def batch(self):
        n = self.per_worker
        if self.at + n > len(self.order):
            self.order, self.at = torch.randperm(len(self.x), generator=self.random, device=DEVICE), 0
        chosen = self.order[self.at:self.at + n]
        self.at += n
        shift = torch.randint(0, 9, (2, n), generator=self.random, device=DEVICE)
        flip = torch.randint(0, 2, (n, 1), generator=self.random, device=DEVICE)
        line = torch.arange(32, device=DEVICE)
        columns = torch.where(flip.bool(), 31 - line, line) + shift[1].view(-1, 1)
        rows = line + shift[0].view(-1, 1)
        padded = F.pad(self.x[chosen], (4, 4, 4, 4))
        every = torch.arange(n, device=DEVICE).view(-1, 1, 1)
        images = padded.permute(0, 2, 3, 1)[every, rows.view(n, 32, 1), columns.view(n, 1, 32)]
        return images.permute(0, 3, 1, 2), self.y[chosen]  # channels last

    @staticmethod
    def loss(model, batch) -> torch.Tensor:
        return F.cross_entropy(model(batch[0]).float(), batch[1])

    @torch.no_grad()
    def test(self, model) -> Dict[str, float]:
        model.eval()
        loss, right = 0.0, 0
        for x, y in zip(self.tx.split(1000), self.ty.split(1000)):
            said = model(x.contiguous(memory_format=torch.channels_last)).float()
            loss += F.cross_entropy(said, y, reduction="sum").item()
            right += (said.argmax(1) == y).sum().item()
        model.train()
        return {"test_loss": loss / len(self.ty), "test_accuracy": right / len(self.ty)}


class Wikitext:
    """WikiText-2 as GPT-2's tokens, in windows at random places."""

    name, per_worker, rate, optimizer = "gpt2", 8, 6e-4, "adamw"

    def __init__(self, folder: Path, tiny: bool):
        self.tiny, self.length, self.per_worker = tiny, 32 if tiny else 512, 2 if tiny else self.per_worker
        self.train, self.valid = (self._load(folder / "wikitext-2" / f"{part}.gpt2bpe.u16.xz")
                                  for part in ("train", "valid"))
        if tiny:
            self.valid = self.valid[:500]

    @staticmethod
    def _load(path: Path) -> torch.Tensor:
        raw = unpacked(path).view(-1, 2).to(DEVICE).int()
        return (raw[:, 0] + 256 * raw[:, 1]).long()

    def model(self) -> nn.Module:
        return GPT2(self.tiny).to(DEVICE)

    def steps(self, workers: int) -> int:
        return 400

    def start(self, seed: int) -> None:
        self.random = torch.Generator(DEVICE).manual_seed(seed)

    def batch(self):
        at = torch.randint(0, len(self.train) - self.length - 1, (self.per_worker, 1), generator=self.random,
                           device=DEVICE)
        rows = self.train[at + torch.arange(self.length + 1, device=DEVICE)]
        return rows[:, :-1], rows[:, 1:]

    @staticmethod
    def loss(model, batch) -> torch.Tensor:
        return F.cross_entropy(model(batch[0]).float().flatten(0, 1), batch[1].flatten())

    @torch.no_grad()
    def test(self, model) -> Dict[str, float]:
        model.eval()
        n = (len(self.valid) - 1) // self.length
        x = self.valid[:n * self.length].view(n, -1)
        y = self.valid[1:n * self.length + 1].view(n, -1)
        loss = sum(self.loss(model, pair).item() * len(pair[0]) for pair in zip(x.split(16), y.split(16))) / n
        model.train()
        return {"test_loss": loss, "perplexity": math.exp(min(loss, 50))}


TASKS = {task.name: task for task in (Cifar, Wikitext)}


# ---- one flat gradient, and optimisers over it

class Flat:
    """Weights and gradients of a model as one buffer each."""

    def __init__(self, model: nn.Module):
        self.params = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        sizes = [p.numel() for _, p in self.params]
        self.n = sum(sizes)
        self.weights, self.grad = (torch.zeros(self.n, device=DEVICE) for _ in range(2))
        at = 0
        for (_, p), size in zip(self.params, sizes):
            view = self.weights[at:at + size].as_strided(p.shape, p.stride()) if p.dim() == 4 else \
                self.weights[at:at + size].view(p.shape)
            view.copy_(p.data)
            p.data = view
            grad = self.grad[at:at + size]
            p.grad = grad.as_strided(p.shape, p.stride()) if p.dim() == 4 else grad.view(p.shape)
            at += size
        self.matrix = torch.cat([torch.full((size,), p.dim() > 1, device=DEVICE)
                                 for (_, p), size in zip(self.params, sizes)])
        self.layout = Layout([Tensor(name, tuple(p.shape)) for name, p in self.params])


class Mover:
    """SGD with momentum 0.9 or AdamW (0.9, beta2), on the mean; with ``merged`` matrices have no momentum here."""

    def __init__(self, flat: Flat, kind: str, merged: bool, inertia: float, beta2: float):
        self.flat, self.kind, self.merged, self.beta2, self.t = flat, kind, merged, beta2, 0
        self.first = torch.zeros_like(flat.grad)
        self.second = torch.zeros_like(flat.grad) if kind == "adamw" else None
        self.decay = flat.matrix.float() * (0.1 if kind == "adamw" else 5e-4)
        ones = torch.ones_like(flat.grad)
        if merged:  # momentum of matrices is in the residuals; what travels whole has its own
            self.mu = torch.where(flat.matrix, inertia, 0.9)
            self.gain = torch.where(flat.matrix, 10.0 * (1 - inertia), 1.0) if kind == "sgd" else ones
        else:
            self.mu, self.gain = 0.9 * ones, ones

    def step(self, rate: float) -> None:
        g, w = self.flat.grad, self.flat.weights
        self.t += 1
        w.mul_(1 - rate * self.decay)
        if self.kind == "sgd":
            self.first.mul_(self.mu).add_(g)
            w.addcmul_(self.first, self.gain, value=-rate)
            return
        self.first.mul_(self.mu).addcmul_(1 - self.mu, g)
        self.second.mul_(self.beta2).addcmul_(g, g, value=1 - self.beta2)
        root = (self.second / (1 - self.beta2 ** self.t)).sqrt_().add_(1e-8)
        w.addcdiv_(self.first / (1 - self.mu ** self.t), root, value=-rate)


class Timer:
    """Milliseconds of a part of each step, by events that nobody waits for before the end."""

    def __init__(self):
        self.marks: Dict[str, list] = {}
        self.host: Dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, name: str):
        if not CUDA:
            begun = time.perf_counter()
            yield
            self.host[name] = self.host.get(name, 0.0) + 1e3 * (time.perf_counter() - begun)
            return
        pair = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        pair[0].record()
        yield
        pair[1].record()
        self.marks.setdefault(name, []).append(pair)

    def means(self, steps: int) -> Dict[str, float]:
        if not CUDA:
            return {name: round(total / max(steps, 1), 3) for name, total in self.host.items()}
        torch.cuda.synchronize()
        return {name: round(sum(a.elapsed_time(b) for a, b in pairs) / max(steps, 1), 3)
                for name, pairs in self.marks.items()}


class Workers:
    """The compressors of all workers, and their frames."""

    def __init__(self, flat: Flat, config: str, count: int, steps: int):
        self.flat, self.count = flat, count
        self.each = [_cuda.CudaCompressor(Config(config), flat.layout, steps, i) for i in range(count)]
        room = self.each[0].bound(0, flat.n)
        self.frames = [torch.zeros(room + 15 & ~15, dtype=torch.uint8, device=DEVICE) for _ in range(count)]
        self.length = 0

    @staticmethod
    def stream() -> int:
        return torch.cuda.current_stream().cuda_stream if CUDA else 0

    def compress(self, i: int, step: int) -> None:
        self.length = self.each[i].compress(step, 0, self.flat.n, self.flat.grad.data_ptr(),
                                            self.frames[i].data_ptr(), self.frames[i].numel(), self.stream())

    def decode(self, step: int) -> None:
        self.flat.grad.zero_()
        self.each[0].decompress_add(step, [f.data_ptr() for f in self.frames], 1.0 / self.count, 0, self.flat.n,
                                    self.flat.grad.data_ptr(), self.stream())


def rate_at(peak: float, step: int, steps: int) -> float:
    """A twentieth of the steps upwards, then half a cosine down to a twentieth of the rate."""
    rise = max(1, steps // 20)
    if step < rise:
        return peak * (step + 1) / rise
    return peak * (0.05 + 0.475 * (1 + math.cos(math.pi * (step - rise) / max(1, steps - rise))))


def parse(method: str) -> Tuple[str, float, str]:
    """Feedback, sparsity and, where it is said, beta of a method."""
    feedback, share, beta = (method.split(":") + ["", ""])[:3]
    if feedback not in ("dense", "none", "plain", "merged", "inertia") or (feedback == "dense") == bool(share):
        raise SystemExit(f"'{method}' is no method: dense, none:S, plain:S, merged:S[:BETA] or inertia:S[:BETA]")
    return feedback, float(share or 0), beta or "auto"


def config_of(feedback: str, sparsity: float, beta: str) -> str:
    return f"frugrad,feedback={feedback},beta={beta},schedule=constant:{sparsity},reduce=gather"


def autocast():
    return torch.autocast(DEVICE.type, dtype=torch.bfloat16)


def train(task, method: str, rate: float, seed: int, args) -> dict:
    """One run, all workers in this process."""
    feedback, sparsity, beta = parse(method)
    inertia = 0.5 if feedback == "inertia" else 0.0
    feedback = "merged" if feedback == "inertia" else feedback
    torch.manual_seed(seed)
    model = task.model()
    flat = Flat(model)
    steps = args.steps or task.steps(args.workers)
    mover = Mover(flat, task.optimizer, feedback == "merged", inertia, args.beta2)
    workers = Workers(flat, config_of(feedback, sparsity, beta), args.workers, steps) if feedback != "dense" else None
    total = torch.zeros_like(flat.grad) if workers is None else None
    task.start(seed)
    timer, curve, losses, begun = Timer(), [], torch.zeros((), device=DEVICE), time.perf_counter()
    if CUDA:
        torch.cuda.reset_peak_memory_stats()
    for step in range(steps):
        for i in range(args.workers):
            flat.grad.zero_()
            with timer("model"), autocast():
                loss = task.loss(model, task.batch())
            with timer("model"):
                loss.backward()
            losses += loss.detach() / args.workers
            if workers is None:
                total.add_(flat.grad)
            else:
                with timer("compress"):
                    workers.compress(i, step)
        with timer("decode"):
            if workers is None:
                flat.grad.copy_(total.mul_(1.0 / args.workers))
                total.zero_()
            else:
                workers.decode(step)
        with timer("optimizer"):
            mover.step(rate_at(rate, step, steps))
        if (step + 1) % max(1, steps // 40) == 0 or step + 1 == steps:
            curve.append([step + 1, losses.item() / max(1, step + 1 - (curve[-1][0] if curve else 0))])
            losses.zero_()
            if not math.isfinite(curve[-1][1]) or args.stop():
                break
    if workers is not None:
        workers.each[0].verdict(Workers.stream())
    done = curve[-1][0]
    if CUDA:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - begun
    with autocast():
        tested = task.test(model)
    return dict(tested, sparsity=sparsity, feedback=feedback, steps=done, planned=steps, parameters=flat.n,
                workers=args.workers, per_worker=task.per_worker, curve=[[s, round(x, 4)] for s, x in curve],
                train_loss=curve[-1][1], bytes_per_step=workers.length if workers else 4 * flat.n,
                seconds=round(seconds, 1), step_ms=round(1e3 * seconds / done, 2), split_ms=timer.means(done),
                max_memory=torch.cuda.max_memory_allocated() if CUDA else 0)


def train_ddp(task, method: str, rate: float, seed: int, args) -> dict:
    """One run of this rank with DistributedDataParallel and the hook."""
    import torch.distributed as dist
    from frugrad.torch import DDPState, hook
    feedback, sparsity, beta = parse(method)
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(seed)
    model = task.model()
    ddp = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    merged = feedback == "merged"
    if task.optimizer == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.0 if merged else 0.9, weight_decay=5e-4)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.0 if merged else 0.9, args.beta2),
                                      weight_decay=0.1)
    steps = args.steps or task.steps(size)
    state = None
    if feedback != "dense":
        state = DDPState(model, config_of(feedback, sparsity, beta), total_steps=steps, optimizer=optimizer)
        ddp.register_comm_hook(state, hook)
    task.start(1000 * seed + rank)
    curve, losses, begun = [], torch.zeros((), device=DEVICE), time.perf_counter()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(rate, step, steps) * (10 if merged and task.optimizer == "sgd" else 1)
        optimizer.zero_grad(set_to_none=True)
        with autocast():
            loss = task.loss(ddp, task.batch())
        loss.backward()
        optimizer.step()
        losses += loss.detach()
        if (step + 1) % max(1, steps // 20) == 0 or step + 1 == steps:
            mean = losses.cpu() / size
            dist.all_reduce(mean)
            curve.append([step + 1, mean.item() / (step + 1 - (curve[-1][0] if curve else 0))])
            losses.zero_()
    if CUDA:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - begun
    with autocast():
        tested = task.test(model)
    stats = state.stats() if state else {}
    return dict(tested, sparsity=sparsity, feedback=feedback, ddp=True, steps=steps, planned=steps, workers=size,
                per_worker=task.per_worker, curve=[[s, round(x, 4)] for s, x in curve], train_loss=curve[-1][1],
                seconds=round(seconds, 1), step_ms=round(1e3 * seconds / steps, 2), device_of_hook=stats.get("device"),
                bytes_per_step=stats["bytes_sent"] / steps if stats else 4 * sum(p.numel() for p in model.parameters()),
                hook_seconds=stats.get("seconds"), max_memory=torch.cuda.max_memory_allocated() if CUDA else 0)


# ---- runs

def machine() -> dict:
    def said(*command) -> str:
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True,
                                  cwd=Path(__file__).parent).stdout.strip().split("\n")[0]
        except (OSError, subprocess.CalledProcessError):
            return ""
    return {"machine": torch.cuda.get_device_name() if CUDA else "cpu", "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "driver": said("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
            "commit": os.environ.get("FRUGRAD_COMMIT") or said("git", "describe", "--always", "--dirty")}


def done_before(path: Path) -> set:
    """What the file has, also of a run that was cut off in the middle of a line."""
    found = set()
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
            if row["steps"] == row["planned"] or not math.isfinite(row["train_loss"]):
                found.add(key_of(row["task"], row["method"], row["rate"], row["seed"], row.get("ddp", False),
                                 row.get("beta2", 0.95)))
        except (ValueError, KeyError):
            continue
    return found


def key_of(task: str, method: str, rate: float, seed: int, ddp: bool, beta2: float) -> tuple:
    return task, method, float(f"{rate:g}"), seed, ddp, beta2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with cifar10 and wikitext-2")
    parser.add_argument("--task", nargs="+", choices=sorted(TASKS), default=sorted(TASKS))
    parser.add_argument("--methods", nargs="+", default=["dense", "none:0.9375", "none:0.99", "none:0.999",
                                                         "merged:0.9375", "merged:0.99", "merged:0.999"])
    parser.add_argument("--rates", type=float, nargs="+", default=[1.0], help="times the task's own rate")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    parser.add_argument("--beta2", type=float, default=0.95, help="of AdamW")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=0, help="0: 8 epochs of CIFAR-10, 400 steps of GPT-2")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no run, and end it, after so many")
    parser.add_argument("--out", type=Path, default=Path("train-gpu.jsonl"))
    parser.add_argument("--ddp", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    begun = time.monotonic()
    args.stop = lambda: time.monotonic() - begun > args.seconds
    if CUDA:
        torch.backends.cudnn.benchmark = True
        torch.set_float32_matmul_precision("high")
    rank = 0
    if args.ddp:
        import torch.distributed as dist
        dist.init_process_group("gloo")
        rank = dist.get_rank()
    have, said = done_before(args.out), machine()
    for name in args.task:
        task = TASKS[name](args.data, args.tiny)
        for seed in args.seeds:
            for method in args.methods:
                for times in args.rates:
                    rate = task.rate * times
                    if key_of(name, method, rate, seed, args.ddp, args.beta2) in have or (args.stop() and not args.ddp):
                        continue
                    row = (train_ddp if args.ddp else train)(task, method, rate, seed, args)
                    if rank == 0:
                        row = dict(task=name, method=method, seed=seed, rate=float(f"{rate:g}"), beta2=args.beta2,
                                   **row, **said)
                        print(json.dumps(row), flush=True)
                        with open(args.out, "a", encoding="utf-8") as out:
                            out.write(json.dumps(row) + "\n")
    if args.ddp:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()

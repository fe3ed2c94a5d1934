#!/usr/bin/env python3
"""Forms of momentum under a changing density: simulated workers on one GPU, every form at several rates.

    lab/bench/momentum_torch.py --data DIR --out FILE.jsonl [--tasks resnet,gpt] [--forms ...] [--processes 6] [--seconds S]
    lab/bench/momentum_torch.py --out FILE.jsonl --table

--data has cifar10/data_batch_*.bin.xz and wikitext-2/{train,valid}.gpt2bpe.u16.xz. Evaluated on data held out from
training: this selects a method and its rate, and reports no test accuracy. Four workers have batches of their own; each
keeps its own residual. Entries of matrices are selected in blocks of 256 by PyTorch's topk and sent as bf16, all else
is averaged dense. A form is NAME@SCHEDULE, with the schedules dense, 94, 99 (constant) and prog (50 to 94 % by half).
Runs that are in the file are not repeated.

The forms, with g a worker's gradient, C the selection, r the mean of the received entries, rho the density:
  momentum   dense: r = mean g, then SGD with momentum 0.9, or AdamW
none       C(g), no residual; SGD with momentum, or AdamW, at the receiver
merged     m = b m + g, C(m) is sent and removed from m; SGD without momentum at rate / (1 - mu), or Adam without first moment
hold       as merged, but only (1 - h) C(m) is removed, h = max(0, 1 - (1 - mu/b) / rho): at density 1 that is momentum
inertia    merged, and a momentum at the receiver that compensates the missing delay of the residual; inertia:0.7
             a receiver momentum of 0.7, whatever the delay
  local      transformers: u = g / sqrt(v), v of the worker's own gradients; m = b m + u, C(m) is sent; w -= rate r
  local-inertia, local-hold   both
"""
import argparse
import json
import lzma
import math
import os
import statistics
import time

import torch
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

WORKERS, MU, BLOCK = 4, 0.9, 256
RATES = {"resnet": [0.05, 0.1, 0.2, 0.4], "gpt": [5e-4, 1e-3, 2e-3, 4e-3]}
FORMS = {
    "resnet": ["momentum@dense", "merged@94", "merged@99", "merged@prog", "hold@prog", "hold@94", "inertia@prog", "inertia@94",
               "none@94", "none@prog"],
    "gpt": ["momentum@dense", "merged@94", "merged@99", "merged@prog", "hold@prog", "hold@94", "inertia@prog", "inertia@94",
            "none@94", "none@prog", "local@94", "local@99", "local@prog", "local-inertia@prog", "local-inertia@94",
            "local-hold@prog"],
}


# ---- models and data

class Basic(nn.Module):
    def __init__(self, wide_in, wide, stride):
        super().__init__()
        self.a, self.an = nn.Conv2d(wide_in, wide, 3, stride, 1, bias=False), nn.BatchNorm2d(wide)
        self.b, self.bn = nn.Conv2d(wide, wide, 3, 1, 1, bias=False), nn.BatchNorm2d(wide)
        self.side = nn.Sequential()
        if stride != 1 or wide_in != wide:
            self.side = nn.Sequential(nn.Conv2d(wide_in, wide, 1, stride, bias=False), nn.BatchNorm2d(wide))

    def forward(self, x):
        y = F.relu(self.an(self.a(x)))
        return F.relu(self.bn(self.b(y)) + self.side(x))


def resnet18() -> nn.Module:
    layers, wide_in = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()], 64
    for wide, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Basic(wide_in, wide, stride), Basic(wide, wide, 1)]
        wide_in = wide
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.n1, self.n2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, w))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class GPT(nn.Module):
    def __init__(self, layers=6, width=384, heads=6, length=256, vocab=50257):
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.blocks, self.norm = nn.ModuleList(Block(width, heads) for _ in range(layers)), nn.LayerNorm(width)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers) if "out" in name or "down" in name else 0.02)

    def forward(self, x):
        y = self.tokens(x) + self.places.weight[:x.shape[1]]
        for block in self.blocks:
            y = block(y)
        return F.linear(self.norm(y), self.tokens.weight)


class Images:
    """Training images; the last 2,000 are for evaluation."""
    steps, batch = 500, 128

    def __init__(self, data):
        rows = []
        for i in range(1, 6):
            path = os.path.join(data, "cifar10", f"data_batch_{i}.bin.xz")
            if os.path.exists(path):
                rows.append(torch.frombuffer(bytearray(lzma.open(path).read()), dtype=torch.uint8).view(-1, 3073))
        rows = torch.cat(rows).cuda()
        self.x = (rows[:, 1:].view(-1, 3, 32, 32).float() / 255 - 0.47) / 0.25
        self.y, self.train_count = rows[:, 0].long(), len(rows) - 2000

    def model(self):
        return resnet18().cuda().to(memory_format=torch.channels_last)

    def loss(self, model, generator):
        i = torch.randint(0, self.train_count, (self.batch,), device="cuda", generator=generator)
        x = F.pad(self.x[i], (4, 4, 4, 4), mode="reflect")
        dx, dy, flip = (torch.randint(0, n, (self.batch,), device="cuda", generator=generator) for n in (9, 9, 2))
        span = torch.arange(32, device="cuda")
        cols = dx[:, None] + span
        cols = torch.where(flip[:, None] == 1, cols.flip(1), cols)
        x = x[torch.arange(self.batch, device="cuda")[:, None, None, None], torch.arange(3, device="cuda")[None, :, None, None],
              (dy[:, None] + span)[:, None, :, None], cols[:, None, None, :]]
        return F.cross_entropy(model(x.contiguous(memory_format=torch.channels_last)).float(), self.y[i], label_smoothing=0.1)

    def evaluate(self, model):
        model.eval()
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            right = sum((model(x).argmax(1) == y).sum().item() for x, y in
                        zip(self.x[self.train_count:].split(500), self.y[self.train_count:].split(500)))
        model.train()
        return {"accuracy": right / 2000}


class Text:
    steps, batch, length = 600, 8, 256

    def __init__(self, data):
        read = lambda name: torch.frombuffer(bytearray(lzma.open(os.path.join(data, "wikitext-2", name)).read()),
                                             dtype=torch.int16).cuda().long() & 0xffff
        self.train, self.valid = read("train.gpt2bpe.u16.xz"), read("valid.gpt2bpe.u16.xz")

    def model(self):
        return GPT(length=self.length).cuda()

    def loss(self, model, generator):
        at = torch.randint(0, len(self.train) - self.length - 1, (self.batch, 1), device="cuda", generator=generator)
        rows = self.train[at + torch.arange(self.length + 1, device="cuda")]
        return F.cross_entropy(model(rows[:, :-1]).flatten(0, 1).float(), rows[:, 1:].flatten())

    def evaluate(self, model):
        n = (len(self.valid) - 1) // self.length
        x, y = self.valid[:n * self.length].view(n, -1), self.valid[1:n * self.length + 1].view(n, -1)
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            losses = [F.cross_entropy(model(a).flatten(0, 1).float(), b.flatten()).item() for a, b in zip(x.split(32), y.split(32))]
        return {"loss": statistics.mean(losses)}


# ---- workers

class Flat:
    """A model's parameters and gradients as two flat arrays: matrices first, each padded to whole blocks."""

    def __init__(self, model):
        large = [p for p in model.parameters() if p.dim() > 1 and p.numel() >= 4096]
        small = [p for p in model.parameters() if not (p.dim() > 1 and p.numel() >= 4096)]
        pad = lambda n: -(-n // BLOCK) * BLOCK
        self.sparse = sum(pad(p.numel()) for p in large)
        total = self.sparse + sum(p.numel() for p in small)
        self.w, self.g = torch.zeros(total, device="cuda"), torch.zeros(total, device="cuda")
        at = 0
        for p in large + small:
            n = p.numel()
            order = p.data.permute(0, 2, 3, 1) if p.dim() == 4 else p.data  # as channels_last lies in memory
            self.w[at:at + n] = order.reshape(-1)
            view = lambda flat: (flat[at:at + n].view(order.shape).permute(0, 3, 1, 2) if p.dim() == 4
                                 else flat[at:at + n].view(p.shape))
            p.data, p.grad = view(self.w), view(self.g)
            at += pad(n) if at < self.sparse else n


def largest(m: torch.Tensor, rho: float) -> torch.Tensor:
    """The largest of every block in bf16, zero elsewhere; a fraction of an entry goes to some of the blocks."""
    rows, k = m.view(-1, BLOCK), rho * BLOCK
    top = rows.abs().topk(math.ceil(k), dim=1)
    index, keep = top.indices, torch.ones_like(top.values)
    if k != math.ceil(k):
        keep[:, -1] = (torch.rand(len(rows), device="cuda") < k - math.floor(k)).float()
    out = torch.zeros_like(rows)
    out.scatter_(1, index, (rows.gather(1, index) * keep).bfloat16().float())
    return out.view(-1)


def density(schedule: str, progress: float) -> float:
    if schedule == "prog":
        return round(BLOCK * (1 - (0.5 + 0.44 * min(1.0, progress / 0.5)))) / BLOCK
    return {"dense": 1.0, "94": 0.0625, "99": 0.01}[schedule]


def delay_left(rho: float, beta: float) -> float:
    """The receiver's momentum that adds to the residual's delay what it lacks of ordinary momentum's."""
    kept = beta * (1 - rho)
    left = max(0.0, MU / (1 - MU) - kept / (1 - kept))
    return left / (1 + left)


def retention(rho: float, beta: float) -> float:
    return max(0.0, 1 - (1 - MU / beta) / rho)


def train(task, name: str, form: str, rate: float, seed: int) -> dict:
    torch.manual_seed(seed)
    kind, schedule = form.split("@")
    adam, beta = name == "gpt", 0.99 if schedule == "99" else 0.95
    model = task.model()
    flat = Flat(model)
    n = flat.sparse
    generators = [torch.Generator("cuda").manual_seed(1000 * seed + p) for p in range(WORKERS)]
    m = [torch.zeros(n, device="cuda") for _ in range(WORKERS)] if kind not in ("momentum", "none") else []
    own = [torch.zeros(n, device="cuda") for _ in range(WORKERS)] if kind.startswith("local") else []
    u, v = torch.zeros_like(flat.w), torch.zeros_like(flat.w)
    mean = torch.zeros_like(flat.w)
    begun, curve, warm = time.time(), [], task.steps // 10
    b2 = 0.99 if kind in ("momentum", "none") else 0.95
    for step in range(task.steps):
        rho = density(schedule, step / task.steps)
        lr = rate * min(1.0, (step + 1) / warm) * (0.5 + 0.5 * math.cos(math.pi * max(0, step - warm) / (task.steps - warm)))
        mean.zero_()
        total = torch.zeros((), device="cuda")
        h = retention(rho, beta) if kind.endswith("hold") else 0.0
        for p in range(WORKERS):
            flat.g.zero_()
            with torch.autocast("cuda", torch.bfloat16):
                loss = task.loss(model, generators[p])
            loss.backward()
            total += loss.detach() / WORKERS
            g = flat.g[:n]
            if own:
                own[p].lerp_(g * g, 1 - b2)
                g = g / ((own[p] / (1 - b2 ** (step + 1))).sqrt() + 1e-8)
            if m:
                m[p].mul_(beta).add_(g)
                sent = largest(m[p], rho) if rho < 1 else m[p].clone()
                m[p].sub_(sent, alpha=1 - h)
            else:
                sent = largest(g, rho) if rho < 1 else g
            mean[:n] += sent / WORKERS
            mean[n:] += flat.g[n:] / WORKERS
        with torch.no_grad():
            step_by(flat, mean, u, v, n, step, lr, kind, adam, rho, beta, h, b2)
        if step % 20 == 19:
            curve.append([step + 1, round(total.item(), 4)])
            if not math.isfinite(curve[-1][1]):
                break
    return {"seconds": round(time.time() - begun, 1), "curve": curve, **task.evaluate(model)}


def step_by(flat, r, u, v, n, step, lr, kind, adam, rho, beta, h, b2) -> None:
    """Update the weights. Tensors that are sent dense have ordinary momentum or AdamW in all forms."""
    fixed = float(kind.partition(":")[2] or "nan")
    mr = fixed if fixed == fixed else delay_left(rho, beta) if kind.endswith("inertia") else MU if kind in ("momentum", "none") else 0.0
    big, small = slice(0, n), slice(n, None)
    if not adam:
        r += 5e-4 * flat.w  # coupled decay, as torch.optim.SGD has it
        u[small].mul_(MU).add_(r[small])
        if mr > 0:
            u[big].mul_(mr).add_(r[big], alpha=1 - mr)
        else:
            u[big] = r[big]
        gain = (1 - h * beta) / (1 - MU)
        flat.w[big].sub_(u[big], alpha=lr * gain)
        flat.w[small].sub_(u[small], alpha=lr)
        return
    flat.w.mul_(1 - lr * 0.01)
    u[small].lerp_(r[small], 1 - MU)
    if mr > 0:
        u[big].lerp_(r[big], 1 - mr)
    else:
        u[big] = r[big]
    correct = 1 - mr ** (step + 1) if kind in ("momentum", "none") else 1.0
    v.lerp_(r * r, 1 - b2)
    root = (v / (1 - b2 ** (step + 1))).sqrt_().add_(1e-8)
    flat.w[small].sub_(u[small] / (1 - MU ** (step + 1)) / root[small], alpha=lr)
    if kind.startswith("local"):
        flat.w[big].sub_(u[big], alpha=lr * (1 - h * beta))
    else:
        flat.w[big].sub_(u[big] / correct / root[big], alpha=lr)


# ---- many runs

def work(index, args, jobs, lock) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    tasks = {}
    while True:
        try:
            name, form, rate, seed = jobs.get(timeout=1)
        except Exception:
            return
        if time.time() - args.begun > args.seconds:
            return
        if name not in tasks:
            tasks[name] = {"resnet": Images, "gpt": Text}[name](args.data)
        row = {"task": name, "form": form, "rate": rate, "seed": seed, "workers": WORKERS, "steps": tasks[name].steps,
               "device": torch.cuda.get_device_name(), "torch": torch.__version__}
        try:
            row.update(train(tasks[name], name, form, rate, seed))
        except Exception as error:
            row["error"] = f"{type(error).__name__}: {error}"
        with lock, open(args.out, "a") as out:
            out.write(json.dumps(row) + "\n")
        print(f"{time.time() - args.begun:6.0f} s ", {k: row.get(k) for k in ("task", "form", "rate", "seed", "accuracy", "loss", "seconds", "error")},
              flush=True)


def rows_of(path):
    return [json.loads(line) for line in open(path)] if os.path.exists(path) else []


def table(path) -> None:
    found = {}
    for row in rows_of(path):
        if "error" not in row:
            value = row["accuracy"] * 100 if row["task"] == "resnet" else row["loss"]
            found.setdefault((row["task"], row["form"]), {}).setdefault(row["rate"], []).append(value)
    for (task, form), rates in sorted(found.items()):
        best = (max if task == "resnet" else min)(rates, key=lambda rate: statistics.mean(rates[rate]))
        cells = "  ".join(f"{rate:g}: {statistics.mean(v):.3f}{'*' if rate == best else ''} ({len(v)})" for rate, v in sorted(rates.items()))
        print(f"{task:7} {form:20} {cells}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data")
    parser.add_argument("--out", required=True)
    parser.add_argument("--tasks", default="resnet,gpt")
    parser.add_argument("--forms", help="instead of all")
    parser.add_argument("--rates", help="instead of all")
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=1e9, help="start no run after this")
    parser.add_argument("--table", action="store_true")
    args = parser.parse_args()
    if args.table:
        return table(args.out)
    args.begun = time.time()
    done = {(r["task"], r["form"], r["rate"], r["seed"]) for r in rows_of(args.out)}
    context = mp.get_context("spawn")
    jobs, lock = context.Queue(), context.Lock()
    for seed in map(int, args.seeds.split(",")):
        for i in (1, 2, 0, 3):
            for name in args.tasks.split(","):
                rates = list(map(float, args.rates.split(","))) if args.rates else RATES[name]
                for form in args.forms.split(",") if args.forms else FORMS[name]:
                    if i < len(rates) and (name, form, rates[i], seed) not in done:
                        jobs.put((name, form, rates[i], seed))
    mp.spawn(work, (args, jobs, lock), nprocs=args.processes)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""A training step of `frugrad train` against PyTorch on the same processor, in turn, in one run.

    lab/bench/train_torch.py [--frugrad PATH] [--python PYTHON]... [--models resnet20,gpt2] [--threads 1,2]
                             [--rounds 3] [--onednn both|on|off] [--json]

Each --python names an interpreter with a PyTorch of its own (Debian's /usr/bin/python3, a virtual environment with a
current build); it is tried with oneDNN on and off, and images also with channels last, and the best setting counts.
A step is: batch ready, forward, backward, optimizer (SGD with momentum, AdamW); no exchange. PyTorch's batch is always
the same; the time to make ours is subtracted.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

MODELS = {
    "lenet": {"model": "lenet", "batch": 128},
    "resnet20": {"model": "resnet20", "batch": 128},
    "resnet18": {"model": "resnet18", "batch": 16},
    "gpt2": {"model": "gpt2:layers=4,width=256,heads=4,length=256,dropout=0", "batch": 8, "vocab": 50257},
}

PEER = r'''
import json, sys, time
import torch, torch.nn as nn, torch.nn.functional as F
job = json.loads(sys.argv[1])
torch.manual_seed(1)
torch.set_num_threads(job["threads"])
torch.backends.mkldnn.enabled = job["onednn"]

class Block(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
        self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        self.o, self.stride = o, stride
    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.stride != 1:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.o // 4, self.o // 4))
        return F.relu(y + x)

def resnet20():
    layers, i = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()], 16
    for stage in range(3):
        for k in range(3):
            layers.append(Block(i, 16 << stage, 2 if stage and k == 0 else 1))
            i = 16 << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))

class ProjectedBlock(Block):
    def __init__(self, i, o, stride):
        super().__init__(i, o, stride)
        self.downsample = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))
    def forward(self, x):
        return F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))) + self.downsample(x))

def resnet18():
    layers, i = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for stage in range(4):
        for k in range(2):
            layers.append((ProjectedBlock if stage and k == 0 else Block)(i, 64 << stage, 2 if stage and k == 0 else 1))
            i = 64 << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000))

def lenet():
    return nn.Sequential(nn.Conv2d(1, 6, 5, 1, 2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                         nn.Linear(84, 10))

class Layer(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.fc, self.out = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.heads = heads
    def forward(self, x):
        n, t, d = x.shape
        q, k, v = (z.view(n, t, self.heads, -1).transpose(1, 2) for z in self.qkv(self.ln_1(x)).split(d, 2))
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mask = torch.ones(t, t, dtype=torch.bool).triu(1)
            y = (q @ k.transpose(2, 3) * (d // self.heads) ** -0.5).masked_fill(mask, float("-inf")).softmax(3) @ v
        x = x + self.proj(y.transpose(1, 2).reshape(n, t, d))
        return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))

class GPT(nn.Module):
    def __init__(self, vocab, d, heads, layers, t):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, d), nn.Embedding(t, d)
        self.h, self.ln_f = nn.Sequential(*(Layer(d, heads) for _ in range(layers))), nn.LayerNorm(d)
    def forward(self, x):
        return self.ln_f(self.h(self.wte(x) + self.wpe.weight[: x.shape[1]])) @ self.wte.weight.t()

images = {"lenet": (lenet, 1, 28), "resnet20": (resnet20, 3, 32), "resnet18": (resnet18, 3, 224)}
if job["kind"] in images:
    build, channels, size = images[job["kind"]]
    net, x, y = build(), torch.randn(job["batch"], channels, size, size), torch.arange(job["batch"]) % 10
    if job["last"]:
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    opt = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
else:
    net = GPT(job["vocab"], 256, 4, 4, 256)
    ids = torch.randint(job["vocab"], (job["batch"], 257))
    x, y = ids[:, :-1], ids[:, 1:].reshape(-1)
    opt = torch.optim.AdamW(net.parameters(), lr=1e-4)
times = []
for _ in range(job["steps"]):
    t = time.perf_counter()
    opt.zero_grad(set_to_none=True)
    out = net(x)
    F.cross_entropy(out.view(-1, out.shape[-1]), y).backward()
    opt.step()
    times.append(1000 * (time.perf_counter() - t))
print(json.dumps({"ms": sorted(times[1:]), "torch": torch.__version__}))
'''


def environment(threads):
    return {**os.environ, "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}


def peer(python, job, threads):
    done = subprocess.run([python, "-W", "ignore", "-c", PEER, json.dumps(job)], env=environment(threads), check=True,
                          capture_output=True, text=True)
    return json.loads(done.stdout)


def ours(a, what, threads, steps):
    model = what["model"] + (f",vocab={what['vocab']}" if "vocab" in what else "")
    command = [a.frugrad, "train", "--model", model, "--data", "builtin", "--method", "dense", "--workers", "1",
               "--threads", str(threads), "--batch", str(what["batch"]), "--steps", str(steps), "--no-eval", "--json",
               "--quiet", "--rate", "0.0001"]
    env = {k: v for k, v in os.environ.items() if k not in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    run = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, env=env).stdout)
    return run["step_ms"] - run["time_ms"]["data"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--frugrad", default="build/release/frugrad")
    p.add_argument("--python", action="append", default=[])
    p.add_argument("--models", default=",".join(MODELS))
    p.add_argument("--threads", default="1,2")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=6)
    p.add_argument("--onednn", choices=["both", "on", "off"], default="both")
    p.add_argument("--json", action="store_true")
    a = p.parse_args()
    rows = []
    for kind in a.models.split(","):
        what = MODELS[kind]
        for threads in (int(x) for x in a.threads.split(",")):
            settings = [(py, onednn, last) for py in a.python or [sys.executable] for onednn in (False, True)
                        if a.onednn in ("both", "on" if onednn else "off")
                        for last in ((False,) if kind == "gpt2" else (False, True))]
            times = {s: [] for s in settings}
            own, versions = [], {}
            for _ in range(a.rounds):
                own.append(ours(a, what, threads, a.steps))
                for s in settings:
                    job = {"kind": kind, "threads": threads, "onednn": s[1], "last": s[2], "steps": a.steps, **what}
                    got = peer(s[0], job, threads)
                    versions[s] = got["torch"]
                    times[s].append(statistics.median(got["ms"]))
            for s in settings:
                ms = statistics.median(times[s])
                rows.append({"model": what["model"], "batch": what["batch"], "threads": threads, "torch": versions[s],
                             "onednn": s[1], "channels_last": s[2], "torch_ms": ms, "frugrad_ms": statistics.median(own),
                             "ratio": ms / statistics.median(own), "rounds": a.rounds})
                if a.json:
                    print(json.dumps(rows[-1]), flush=True)
    if not a.json:
        print("| model | threads | PyTorch | oneDNN | channels last | PyTorch ms | frugrad ms | ratio |")
        print("|---|---:|---|---|---|---:|---:|---:|")
        for r in rows:
            print(f"| {r['model']} | {r['threads']} | {r['torch']} | {r['onednn']} | {r['channels_last']} | "
                  f"{r['torch_ms']:.0f} | {r['frugrad_ms']:.0f} | {r['ratio']:.2f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Fine-tune pretrained models for images with few optimizer states, and measure how sparse their gradients are.

    lab/bench/finetune_images.py --data DIR --weights DIR [--out FILE.jsonl] [--tasks resnet20,resnet32,vit]
                                 [--methods ...] [--jobs N] [--seconds S]
    lab/bench/finetune_images.py --out FILE.jsonl --table

Models that were trained on CIFAR-10 learn Fashion-MNIST (DIR/fashion-mnist, or Debian's package), whose images are
padded to 32 x 32 and repeated in three channels. --weights has resnet20.safetensors and so on; that of vit is made by
    python3 -m frugrad.torch.train --model vit --data DIR/cifar10 --method dense --workers 1 --batch 512 --steps 3000 \\
        --optimizer adamw:decay=0.05 --rate 1e-3 --clip 1 --save vit.safetensors

The method trains the targets (ResNets: all convolutions of the three stages; ViT: queries and values) and AdamW the
classifier, with the same rate for all methods; everything else is frozen, and running statistics follow the batches.
For every model and method five rates are tried on 5,000 held-out training images, and the next one out where the first
or last is the best; the best is then run with three seeds at every number of states and evaluated on the 10,000 test
images. The output has one line of JSON per run; runs that are in the file are not repeated. With "full", a run also
has "shares": the share of the squared norm in the largest 1, 5 and 10 % of a target's gradient entries, the mean over
all targets, at some steps. The task "minilm" (DIR/glue/SST-2, minilm.safetensors, minilm-vocab.txt) is there to compare
these with those of a language model.

The forward and backward passes run on a GPU if there is one, optimizers of the library on the host, a thread each.
"""
import argparse
import concurrent.futures
import functools
import math
import multiprocessing
import statistics
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from job_pool import key, load, run_jobs  # noqa: E402
from frugrad.torch import SGC  # noqa: E402
from frugrad.torch.trainer.data_files import read  # noqa: E402
from frugrad.torch.trainer.models import parse_model  # noqa: E402
from frugrad.torch.trainer.pretrained import load_bert, load_images  # noqa: E402
from frugrad.torch.trainer.sentences import Sentences  # noqa: E402
from frugrad.torch.trainer.tasks import Images  # noqa: E402

TASKS = {  # what the weights expect of pixels, words in the names of targets (none: convolutions), the rank of cesgc
    "resnet20": {"pixels": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), "targets": (), "rank": 16},
    "resnet32": {"pixels": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), "targets": (), "rank": 16},
    "vit": {"pixels": ((0.4914, 0.4824, 0.4467), (0.2471, 0.2435, 0.2616)), "targets": ("query", "value"), "rank": 32},
    "minilm": {"targets": ("query", "value"), "rank": 32},
}
SKETCHES = ["table", "cesgc", "mesgc", "sgc"]
METHODS = ["full", "head", "lora", "galore", "apollo", *SKETCHES]
HEAD_RATE, HOLD_OUT, WARMUP, KAPPA = 1e-3, 5000, 20, 7
RATES = {
    **{m: [1e-4, 3e-4, 1e-3, 3e-3, 1e-2] for m in ("full", "head", "galore", "apollo")},
    **{m: [3e-4, 1e-3, 3e-3, 1e-2, 3e-2] for m in ("lora", *SKETCHES)},
}
# Entries of a target, or a rank, the first of them also in the search. A sketch of 49 entries has about as many states
# as LoRA of rank 1. The time of sgc grows with the square of its entries.
SIZES = {"lora": [1, 4], "galore": [1, 4], "apollo": [1, 4], **{m: [8, 49, 196] for m in SKETCHES}, "sgc": [8, 49]}
SHARES, SHARE_STEPS = (0.01, 0.05, 0.10), 6


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", type=Path)
    p.add_argument("--weights", type=Path, default=Path("."), help="directory")
    p.add_argument("--out", default="finetune-images.jsonl")
    p.add_argument("--tasks", default="resnet20,resnet32,vit")
    p.add_argument("--methods", default=",".join(METHODS))
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--seeds", default="1,2,3")
    p.add_argument("--jobs", type=int, default=4)
    p.add_argument("--seconds", type=float, default=math.inf, help="after which no run is started")
    p.add_argument("--table", action="store_true", help="print what is in --out")
    a = p.parse_args()
    for name, known in (("tasks", TASKS), ("methods", METHODS)):
        words = getattr(a, name).split(",")
        if set(words) - set(known):
            p.error(f"--{name}: expected some of {','.join(known)}")
        setattr(a, name, words)
    a.seeds = [int(s) for s in a.seeds.split(",")]
    if not a.table and a.data is None:
        p.error("--data DIR missing")
    return a


# ---- data ----

class Fashion(Images):
    """Fashion-MNIST in the form of CIFAR-10, as bytes; batches are float32."""

    def __init__(self, *arguments, pixels):
        super().__init__(*arguments)
        self.mean, self.std = (torch.tensor(row, device=self.device).view(3, 1, 1) for row in pixels)

    def _read(self, split):
        name = {"train": "train", "test": "t10k"}[split]
        rows = read(self.folder, name + "-images-idx3-ubyte")
        images = torch.frombuffer(rows, dtype=torch.uint8, offset=16).view(-1, 1, 28, 28).to(self.device)
        labels = torch.frombuffer(read(self.folder, name + "-labels-idx1-ubyte"), dtype=torch.uint8, offset=8)
        return F.pad(images, (2, 2, 2, 2)), labels.long().to(self.device)

    def _samples(self, split, chosen):
        x, y = super()._samples(split, chosen)
        return (x / 255.0 - self.mean) / self.std, y


@functools.lru_cache
def open_task(name, data, weights, seed, hold_out):
    """A task and its model, with data on the device."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "minilm":
        model = parse_model("minilm:length=64,dropout=0")
        task = Sentences(data / "glue" / "SST-2", device, seed, 0, tokens=str(weights / "minilm-vocab.txt"), length=64)
        return task, model
    folder = data / "fashion-mnist"
    folder = folder if folder.is_dir() else Path("/usr/share/datasets/fashion-mnist")
    return Fashion(folder, device, seed, hold_out, pixels=TASKS[name]["pixels"]), parse_model(name)


# ---- one run ----

def find_targets(task, model):
    words = TASKS[task]["targets"]
    if not words:  # the convolutions but the first
        return [m.weight for m in model.modules() if isinstance(m, torch.nn.Conv2d) and m.in_channels > 3]
    return [p for name, p in model.named_parameters() if p.dim() > 1 and any(word in name for word in words)]


def find_head(task, model):
    if not TASKS[task]["targets"]:
        return [p for m in model.modules() if isinstance(m, torch.nn.Linear) for p in m.parameters()]
    return [p for name, p in model.named_parameters() if name.startswith(("classifier.", "pooler."))]


def optimizer(job, targets, head):
    size, method = job.get("size"), job["method"]
    groups = [{"params": head, "variant": "adamw", "lr": job["rate"] if method == "head" else HEAD_RATE}]
    if method == "head":
        return SGC(groups, threads=1)
    group = {"params": targets, "lr": job["rate"], "variant": "adamw" if method == "full" else method}
    if method in ("lora", "galore", "apollo"):
        group["rank"] = size
    if method in SKETCHES:
        group.update(s=size, kappa=KAPPA, **({"chunks": max(1, size // 7)} if method != "sgc" else {}))
    if method == "cesgc":
        group["rank"] = TASKS[job["task"]]["rank"]
    if method not in ("full", "lora"):
        group["scale"] = 1.0
    return SGC([group, *groups], min_size=1, threads=1)


def gradient_shares(targets):
    """Of the squared norm, in the largest entries, a mean over the targets."""
    rows = []
    for p in targets:
        squares = p.grad.flatten().double().square().sort(descending=True).values
        total = squares.sum().item()
        rows.append([squares[:round(share * len(squares))].sum().item() / total if total else 0.0 for share in SHARES])
    return [round(statistics.mean(column), 4) for column in zip(*rows)]


def tune(job, data, weights):
    """Run a job; the row of the output."""
    begin = time.time()
    torch.set_num_threads(1)
    torch.manual_seed(job["seed"])
    task, named = open_task(job["task"], data, weights, job["seed"], HOLD_OUT if job["phase"] == "tune" else 0)
    model = named.build(task.vocab).to(task.device)
    (load_bert if job["task"] == "minilm" else load_images)(model, weights / f"{job['task']}.safetensors")
    targets = find_targets(job["task"], model)
    head = find_head(job["task"], model)
    for p in model.parameters():
        p.requires_grad_(False)
    for p in head + (targets if job["method"] != "head" else []):
        p.requires_grad_(True)
    opt, steps = optimizer(job, targets, head), job["steps"]
    rates, shares = [group["lr"] for group in opt.param_groups], {}
    for step in range(steps):
        for group, rate in zip(opt.param_groups, rates):
            group["lr"] = rate * min(1.0, (step + 1) / WARMUP) * (1 - step / steps)
        opt.zero_grad(set_to_none=True)
        loss = task.loss(model, task.batch(step, 0, 1, job["batch"]))
        loss.backward()
        if job["method"] == "full" and job["phase"] == "test" and step % (steps // SHARE_STEPS) == 0:
            shares[step] = gradient_shares(targets)
        opt.step()
    score = task.evaluate(model, "valid" if job["phase"] == "tune" else "test", 0)
    row = {"accuracy": round(score.accuracy, 5), "loss": round(score.loss, 5), "states": opt.states,
           "bytes": opt.state_bytes, "head_states": 2 * sum(p.numel() for p in head),
           "target_params": sum(p.numel() for p in targets), "targets": len(targets),
           "device": torch.cuda.get_device_name() if task.device.type == "cuda" else "cpu"}
    return {"job": job, "seconds": round(time.time() - begin, 2), "result": {**row, **({"shares": shares} if shares else {})}}


def run(job, data, weights):
    try:
        return tune(job, data, weights)
    except Exception as error:  # noqa: BLE001 - a run that fails is an outcome
        return {"job": job, "failed": f"{type(error).__name__}: {error}"}


# ---- what to run ----

def score(row):
    """Higher is better: accuracy, and among equals the lower loss; a failed run is the worst."""
    result = row.get("result", {})
    return (result["accuracy"], -result["loss"]) if math.isfinite(result.get("loss", math.nan)) else (-1, -math.inf)


def job_of(a, phase, task, method, rate, seed, size):
    job = {"phase": phase, "task": task, "method": method, "rate": rate, "seed": seed, "steps": a.steps,
           "batch": a.batch, "size": size}
    return {k: v for k, v in job.items() if v is not None}


def search(a, rows, task, method):
    """(missing jobs, the best rate or None while there are any). Extends past its ends by at most two rates."""
    rates, more = list(RATES[method]), 0
    size = SIZES[method][0] if method in SIZES else None
    while True:
        jobs = [job_of(a, "tune", task, method, rate, 100, size) for rate in rates]
        missing = [j for j in jobs if key(j) not in rows]
        if missing:
            return missing, None
        best = max(range(len(rates)), key=lambda i: score(rows[key(jobs[i])]))
        if 0 < best < len(rates) - 1 or more == 2:
            return [], rates[best]
        more += 1
        rates = [float(f"{rates[0] / 3:.1g}")] + rates if best == 0 else rates + [float(f"{rates[-1] * 3:.1g}")]


def wanted(a, rows):
    """All jobs that can be run now: searches, then the first size of every method, and so on."""
    jobs, tests = [], []
    for task in a.tasks:
        for method in a.methods if task != "minilm" else ["full"]:
            missing, best = search(a, rows, task, method) if task != "minilm" else ([], 3e-4)
            jobs += missing
            if best is not None:
                tests += [(i, seed, job_of(a, "test", task, method, best, seed, size))
                          for i, size in enumerate(SIZES.get(method, [None])) for seed in a.seeds]
    return jobs + [job for _, _, job in sorted(tests, key=lambda t: t[:2])]


def run_all(a, rows):
    pool = concurrent.futures.ProcessPoolExecutor(a.jobs, mp_context=multiprocessing.get_context("spawn"))
    run_jobs(a, rows, pool, wanted, lambda job: pool.submit(run, job, a.data, a.weights),
             lambda job, row: row["result"]["accuracy"])


# ---- reading ----

def print_tables(rows):
    groups, shares = {}, {}
    for row in rows.values():
        job = row["job"]
        if job["phase"] == "test" and "result" in row:
            groups.setdefault(job["task"], {}).setdefault((job["method"], job.get("size", 0)), []).append(row)
            if "shares" in row["result"]:
                shares[job["task"], job["seed"]] = row["result"]["shares"]
    for task, cells in groups.items():
        print(f"\n## {task}\n| method | rate | states | bytes | accuracy, % | seeds |\n|---|---:|---:|---:|---:|---:|")
        for (method, _), found in sorted(cells.items(), key=lambda c: (METHODS.index(c[0][0]), c[0][1])):
            values = [100 * r["result"]["accuracy"] for r in found]
            spread = statistics.stdev(values) if len(values) > 1 else 0.0
            first = found[0]["result"]
            states, size = first["states"] - first["head_states"], first["bytes"] - 4 * first["head_states"]
            numbers = "| |" if method == "head" else f"{states:,} | {size:,} |"
            print(f"| `{method}` | {found[0]['job']['rate']:g} | {numbers} {statistics.mean(values):.2f} ± {spread:.2f} |"
                  f" {len(found)} |")
    print("\n## share of the squared norm in the largest 1, 5, 10 % of a target's entries, by step")
    for (task, seed), found in sorted(shares.items()):
        print(f"| {task}, seed {seed} | " + " | ".join(f"{step}: " + " ".join(f"{x:.2f}" for x in share)
                                                      for step, share in found.items()) + " |")


def main():
    a = arguments()
    rows = load(a.out)
    if a.table:
        print_tables(rows)
    else:
        run_all(a, rows)


if __name__ == "__main__":
    main()

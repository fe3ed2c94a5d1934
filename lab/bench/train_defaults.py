#!/usr/bin/env python3
"""What a new user gets: `frugrad train --model M --data D --method X` with no other option, dense and FruGrad at 94 and
99 % sparsity, several seeds.

    lab/bench/train_defaults.py --data DIR [--frugrad PATH] [--task NAME]... [--seeds 8] [--workers 1] [--jobs 2] --out FILE

DIR has fashion-mnist/, digits/ (idx files), cifar10/, text/ (train.txt, test.txt), SST-2/ and vocab.txt (WordPiece); tasks
whose data is missing are skipped. Nothing is searched. --workers and --threads 1 are the only options beside the seed;
digits, a set of 1,437 images, is used for 15 epochs. One line of JSON for each run, with its command, then a table:
quality over that of dense training with the same seeds, and the worst seed.
"""
import argparse
import concurrent.futures
import json
import os
import statistics
import subprocess

TASKS = {
    "lenet-digits": ["--model", "lenet", "--data", "digits", "--epochs", "15"],
    "lenet-fashion": ["--model", "lenet", "--data", "./fashion-mnist"],
    "resnet20-cifar10": ["--model", "resnet20", "--data", "cifar10"],
    "gpt2-nano-bytes": ["--model", "gpt2-nano", "--data", "text"],
    "bert-sst2": ["--model", "bert-mini:layers=2,width=64,heads=2,length=32", "--data", "SST-2", "--tokens", "vocab.txt"],
}
METHODS = {"dense": "dense", "94 %": "frugrad", "99 %": "frugrad,schedule=constant:0.99"}


def run(args, task, method, seed):
    command = ["train", *TASKS[task], "--method", METHODS[method], "--seed", str(seed), "--workers", str(args.workers),
               "--threads", "1", "--json"]
    here = subprocess.run([os.path.abspath(args.frugrad), *command, "--quiet"], cwd=args.data, capture_output=True,
                          text=True)
    row = {"task": task, "name": method, "seed": seed, "workers": args.workers, "command": " ".join(["frugrad", *command])}
    if here.returncode != 0:
        return {**row, "error": here.stderr[-300:]}
    result = json.loads(here.stdout)
    keep = ("accuracy", "perplexity", "loss", "train_loss", "steps", "rate", "clip", "schedule", "optimizer", "config",
            "density_mean", "params", "params_whole", "bytes_sent", "bytes_dense", "version")
    return {**row, **{name: result.get(name) for name in keep}}


def quality(row):
    """Higher is better; 0 for a failed run."""
    if row.get("perplexity"):
        return 1 / row["perplexity"]
    return row.get("accuracy") or 0.0


def table(rows):
    for task in TASKS:
        dense = [quality(r) for r in rows if r["task"] == task and r["name"] == "dense"]
        if not dense:
            continue
        base = statistics.mean(dense)
        if base == 0:
            print(f"{task:18} dense training failed: {next(r.get('error') for r in rows if r['task'] == task)}")
            continue
        for name in METHODS:
            mine = [quality(r) for r in rows if r["task"] == task and r["name"] == name]
            if mine:
                spread = statistics.stdev(mine) / base * 100 if len(mine) > 1 else 0
                print(f"{task:18} {name:6} {100 * statistics.mean(mine) / base:6.1f} % of dense, spread {spread:.1f},"
                      f" worst seed {100 * min(mine) / base:.1f} %, {len(mine)} seeds"
                      f"   (dense {base if base < 1 and task.split('-')[0] != 'gpt2' else 1 / base:.4g})", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True)
    p.add_argument("--frugrad", default="build/release/frugrad")
    p.add_argument("--task", action="append", choices=list(TASKS))
    p.add_argument("--seeds", type=int, default=8)
    p.add_argument("--workers", type=int, default=1)
    p.add_argument("--jobs", type=int, default=2)
    p.add_argument("--out", required=True)
    args = p.parse_args()
    tasks = [t for t in args.task or TASKS if os.path.isdir(os.path.join(args.data, TASKS[t][3]))]
    plan = [(t, m, s) for s in range(1, args.seeds + 1) for t in reversed(tasks) for m in METHODS]
    rows = []
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool, open(args.out, "a", encoding="utf-8") as out:
        for row in pool.map(lambda one: run(args, *one), plan):
            rows.append(row)
            out.write(json.dumps(row) + "\n")
            out.flush()
    table(rows)


if __name__ == "__main__":
    main()

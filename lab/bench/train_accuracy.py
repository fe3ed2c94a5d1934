#!/usr/bin/env python3
"""FruGrad against dense training, each with its own learning rate: first a search with samples held out of the training
split, then several seeds with the rate that was best there, evaluated on the test split.

    lab/bench/train_accuracy.py [--frugrad PATH] [--model lenet] [--data fashion-mnist] [--epochs 8] [--jobs 2]
                            [--seeds 1,2,3] [--rates ...] [--method NAME=CONFIG]... [--judge loss] [--out FILE.jsonl]

The best rate is that with the best mean over the seeds of the search, in which a run that fails counts as the worst.
One line of JSON per run, then a table. A run with 4 workers uses 4 threads; --jobs runs go on at a time.
"""
import argparse
import concurrent.futures
import json
import statistics
import subprocess
import sys

METHODS = {
    "dense": "dense",
    "frugrad": "frugrad",
    "frugrad 99 %": "frugrad,schedule=constant:0.99",
    "frugrad-paper": "frugrad-paper",
}


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--frugrad", default="build/release/frugrad")
    p.add_argument("--model", default="lenet")
    p.add_argument("--data", default="fashion-mnist")
    p.add_argument("--epochs", type=float, default=8)
    p.add_argument("--steps", type=int, help="instead of epochs")
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--schedule", default="cosine,warmup=200")
    p.add_argument("--hold-out", type=int, default=5000)
    p.add_argument("--jobs", type=int, default=1)
    p.add_argument("--seeds", default="1,2,3")
    p.add_argument("--search-seeds", default="100,101")
    p.add_argument("--judge", choices=["accuracy", "loss"], default="accuracy")
    p.add_argument("--rates", default="0.005,0.01,0.02,0.04,0.08,0.16")
    p.add_argument("--method", action="append", default=[], help="NAME=CONFIG; [dense, frugrad, frugrad 99 %%, frugrad-paper]")
    p.add_argument("--extra", default="", help="more options for every run")
    p.add_argument("--out", help="raw results, a line of JSON per run")
    return p.parse_args()


def run(a, name, config, rate, seed, held):
    command = [a.frugrad, "train", "--model", a.model, "--data", a.data, "--workers", str(a.workers), "--threads", "1",
               "--batch", str(a.batch), "--schedule", a.schedule, "--method", config,
               "--rate", str(rate), "--seed", str(seed), "--eval-every", "1000000000", "--json", "--quiet", *a.extra.split()]
    command += ["--steps", str(a.steps)] if a.steps else ["--epochs", str(a.epochs)]
    if held and a.hold_out:
        command += ["--hold-out", str(a.hold_out)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    row = {"name": name, "rate": rate, "seed": seed, "held_out": a.hold_out if held else 0}
    try:
        row.update(json.loads(done.stdout))
    except ValueError:  # a rate that makes the loss infinite is an outcome, not an error of ours
        row["failed"] = done.stderr.strip().splitlines()[-1:] or ["no output"]
    row["name"] = name
    return row


def main():
    a = arguments()
    methods = dict(m.split("=", 1) for m in a.method) or METHODS
    rates = [float(x) for x in a.rates.split(",")]
    seeds = [int(x) for x in a.seeds.split(",")]
    out = open(a.out, "w", encoding="utf-8") if a.out else None
    pool = concurrent.futures.ThreadPoolExecutor(a.jobs)

    def go(tasks):
        rows = []
        for row in pool.map(lambda t: run(a, *t), tasks):
            rows.append(row)
            line = json.dumps(row)
            if out:
                out.write(line + "\n")
                out.flush()
            got = f"{row[a.judge]:.4f}" if a.judge in row else row.get("failed")
            print(f"{row['name']:16} rate {row['rate']:<8g} seed {row['seed']}  {got}", file=sys.stderr)
        return rows

    def merit(name, rate):
        rows = [r for r in search if r["name"] == name and r["rate"] == rate]
        return statistics.mean((1 if a.judge == "accuracy" else -1) * r.get(a.judge, 0 if a.judge == "accuracy" else 99)
                               for r in rows)

    search_seeds = [int(x) for x in a.search_seeds.split(",")]
    search = go([(n, c, r, s, True) for n, c in methods.items() for r in rates for s in search_seeds])
    best = {name: max(rates, key=lambda rate: merit(name, rate)) for name in methods}
    final = go([(n, methods[n], best[n], s, False) for n in best for s in seeds])

    mean = {n: [r[a.judge] for r in final if r["name"] == n and a.judge in r] for n in best}
    dense = statistics.mean(mean["dense"]) if mean.get("dense") else None
    print(f"{a.model} on {a.data}, {a.workers} workers x {a.batch}, {f'{a.steps} steps' if a.steps else f'{a.epochs:g} epochs'}, seeds {a.seeds}\n")
    print(f"| method | rate | test {a.judge}, mean (lowest to highest) | of dense | bytes of dense | density |")
    print("|---|---:|---|---:|---:|---:|")
    for n, acc in mean.items():
        if not acc:
            print(f"| {n} | {best[n]:g} | failed | | | |")
            continue
        rows = [r for r in final if r["name"] == n]
        share = f"{statistics.mean(acc) / dense:.4f}" if dense else ""
        print(f"| {n} | {best[n]:g} | {statistics.mean(acc):.4f} ({min(acc):.4f} to {max(acc):.4f}) | {share} | "
              f"{rows[0]['bytes_sent'] / rows[0]['bytes_dense']:.3f} | {rows[0]['density_mean']:.3f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Made-up records with everything that a report can show: many methods, layers, speeds, workers, densities, failures.

usage: make_sample.py >runs.jsonl
The numbers follow simple formulas and a fixed seed; nothing was measured.
"""
import json
import math
import random

random.seed(7)
MACHINE = {"version": "0.0.0", "commit": "0123abc", "cpu": "made-up CPU", "cores": 2, "system": "none"}
HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&\u0001"
PAPER = [
    ("dense", "dense", 1.0, 0.914), ("frugrad", "FruGrad 94 %", 0.06, 0.913), ("topk", "top-k 30 %", 0.6, 0.909),
    ("frugrad-paper", "FruGrad, published schedule", 0.08, 0.9125), ("frugrad-99", "FruGrad 99 %", 0.012, 0.905),
    ("qsgd", "QSGD", 0.27, 0.9), ("dgc", "DGC 99.9 %", 0.002, 0.893), ("onebit", "1-bit", 0.033, 0.897),
    ("randomk", "random-k", 0.06, 0.86), ("demo", "DeMo", 0.02, 0.904), ("gsgd", "gossip", 0.5, 0.907),
    ("hostile", HOSTILE, 0.05, 0.88),
]
BYTES = 1.08e6


def run(suite, task, metric, method, label, phase, seed, rate, value, share, workers=4, density=None, **more):
    steps = 400
    loss = lambda i: 0.2 + 2.1 * math.exp(-4 * i / 60) + (0.9 - min(value, 0.9)) + 0.02 * random.random()
    curve = {"step": [i * steps // 60 for i in range(1, 61)],
             "seconds": [round(0.2 * i + share * i / 10, 3) for i in range(1, 61)],
             "bytes": [int(BYTES * share * steps * i / 60) for i in range(1, 61)],
             "loss": [round(loss(i), 4) for i in range(1, 61)]}
    evals = {"step": [], "seconds": [], "bytes": [], "value": []}
    for i in (10, 20, 30, 40, 50, 60):
        for name in ("step", "seconds", "bytes"):
            evals[name].append(curve[name][i - 1])
        part = 1 - 0.5 * math.exp(-i / 14)
        evals["value"].append(round(value * part if metric == "accuracy" else value / part, 4))
    record = {"format": 1, "kind": "run", "suite": suite, "size": "small", "task": task, "family": "vision",
              "metric": metric, "method": method, "label": label, "phase": phase, "seed": seed, "rate": rate,
              "command": "frugrad train --method " + method, "environment": MACHINE,
              "begun": "2026-11-15T14:%02d:00Z" % seed, "seconds": 12.5,
              "result": {metric: value, "loss": 0.3, "bytes_sent": int(BYTES * share * steps),
                         "bytes_dense": int(BYTES * steps), "step": steps, "steps": steps, "workers": workers,
                         "density_mean": density if density is not None else min(1, share), "params": 270000,
                         "model_state_bytes": int(4e6 + 1e6 * (1 - share)), "weight_bytes": 1080000,
                         "gradient_bytes": 1080000, "library_bytes": int(1.84e6 + 1e6 * (1 - share)),
                         "step_ms": round(50 / workers + 3 * share, 3),
                         "time_ms": {"data": 1.2, "forward": 9.5, "backward": 21.25, "blocked": 14 * share + 0.4,
                                     "compress": 2.5 * (share < 1), "wait": 1.1, "wire": 18 * share + 0.2,
                                     "decode": 0.8 * (share < 1), "optimizer": 1.5}}}
    if phase == "test":
        record.update(curve=curve, evals=evals)
    record.update(more)
    print(json.dumps(record))


def layers():
    names = ["layer%d.%d.conv%d.weight" % (a, b, c) for a in (1, 2, 3) for b in (0, 1, 2) for c in (1, 2)]
    names = ["conv1.weight", *names, "fc.weight"]
    steps = list(range(0, 400, 20))
    density = [[round(min(1, max(0.01, 0.25 * math.exp(-t / 5) * (1.5 if i < 3 else 1) + 0.01 * (i % 4))), 4)
                for i in range(len(names))] for t in range(len(steps))]
    return {"names": names, "steps": steps, "density": density}


def main():
    for method, label, share, value in PAPER:
        for rate in (0.05, 0.1, 0.2):
            run("paper", "resnet20-cifar10", "accuracy", method, label, "tune", 1, rate, value - abs(rate - 0.1), share)
        for seed in (1, 2, 3):
            more = {"layers": layers()} if seed == 1 and method.startswith("frugrad") else {}
            run("paper", "resnet20-cifar10", "accuracy", method, label, "test", seed, 0.1,
                round(value + 0.002 * (seed - 2), 4), share, **more)
        for seed in (1, 2, 3):
            run("paper", "gpt2-wikitext2", "perplexity", method, label, "test", seed, 0.001,
                round(25 + 150 * (0.914 - value) + 0.2 * seed, 3), share)
    print(json.dumps({"format": 1, "kind": "run", "suite": "paper", "size": "small", "task": "resnet20-cifar10",
                      "metric": "accuracy", "method": "signsgd", "label": "signSGD", "phase": "test", "seed": 1,
                      "rate": 0.1, "status": 1, "error": "the loss is no longer a number"}))
    speeds = (("dense", "dense", 90.0), ("frugrad", "FruGrad 94 %", 40.0), ("alone", "no exchange", 36.0))
    for method, label, ms in speeds:
        print(json.dumps({"format": 1, "kind": "speed", "suite": "paper", "method": method, "label": label,
                          "model": "resnet20", "workers": 4, "link": "1 Gbit/s", "step_ms": [ms - 1, ms, ms + 5], "environment": MACHINE,
                          "command": "mpirun"}))
    for method, label, share in (("dense", "dense", 1.0), ("frugrad", "FruGrad 94 %", 0.06), ("split", "split", 0.04)):
        for workers in (1, 2, 4, 8):
            run("scaling", "resnet20-cifar10", "accuracy", "%s-w%d" % (method, workers),
                "%s, %d workers" % (label, workers), "test", 1, 0.1, 0.914 - 0.002 * workers * (share < 1), share * (workers - 1) / workers, workers)
    run("sparsity", "resnet20-cifar10", "accuracy", "dense", "dense", "test", 1, 0.1, 0.914, 1.0)
    for method, label, fall in (("frugrad", "FruGrad", 0.01), ("topk", "top-k", 0.02), ("randomk", "random-k", 0.12),
                                ("dgc", "DGC", 0.013), ("none", "no feedback", 0.07)):
        for held in (0.5, 0.75, 0.9, 0.94, 0.97, 0.99, 0.995, 0.999):
            for seed in (1, 2):
                value = round(0.914 - fall * math.log10(1 / (1 - held)) + 0.002 * seed, 4)
                run("sparsity", "resnet20-cifar10", "accuracy", "%s-%g" % (method, held),
                    "%s %g %%" % (label, 100 * held), "test", seed, 0.1, value, 2 * (1 - held), density=1 - held)


if __name__ == "__main__":
    main()

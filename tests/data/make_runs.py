#!/usr/bin/env python3
"""Record the runs of tests/data/runs.jsonl: two small tasks on made-up data, as `frugrad compare` records its runs.
Rates are judged by a seed of their own, as every seed makes up other data.

usage: make_runs.py FRUGRAD >runs.jsonl
"""
import json
import os
import platform
import subprocess
import sys
import tempfile
import time

TASKS = {
    "lenet-builtin": ("vision", "accuracy", ["--model", "lenet", "--steps", "160", "--samples", "2560", "--batch", "16",
                                             "--eval-every", "40"]),
    "gpt2-nano-builtin": ("language", "perplexity", ["--model", "gpt2-nano", "--steps", "60", "--batch", "4",
                                                     "--eval-every", "20", "--eval-batches", "8"]),
}
METHODS = {
    "dense": ("dense", "dense"),
    "frugrad": ("FruGrad 94 %", "frugrad"),
    "frugrad-99": ("FruGrad 99 %", "frugrad,schedule=constant:0.99"),
    "topk": ("top-k 30 %", "topk"),
    "qsgd": ("QSGD", "qsgd"),
}
RATES = {"vision": (0.02, 0.05), "language": (None,)}


def machine(program):
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    return {"version": version, "commit": None, "cpu": platform.machine() + " test machine", "cores": os.cpu_count(),
            "system": platform.system() + " " + platform.machine()}


def points(lines, count):
    """The loss of `count` stretches of the run, and what it had taken by then."""
    steps = [line for line in lines if line["kind"] == "step"]
    seconds, total = [], 0.0
    for line in steps:
        total += line["seconds"]
        seconds.append(total)
    ends = [(i + 1) * len(steps) // count for i in range(count)]
    curve = {"step": [], "seconds": [], "bytes": [], "loss": []}
    for begin, end in zip([0] + ends, ends):
        losses = [line["loss"] for line in steps[begin:end]]
        curve["step"].append(steps[end - 1]["step"])
        curve["seconds"].append(round(seconds[end - 1], 4))
        curve["bytes"].append(int(steps[end - 1]["bytes_sent"]))
        curve["loss"].append(round(sum(losses) / len(losses), 5))
    at = {line["step"]: i for i, line in enumerate(steps)}
    evals = {"step": [], "seconds": [], "bytes": [], "value": []}
    for line in lines:
        if line["kind"] in ("valid", "test"):
            i = at[line["step"]]
            value = line.get("perplexity", line.get("accuracy"))
            for name, number in zip(evals, (line["step"], round(seconds[i], 4), int(steps[i]["bytes_sent"]), value)):
                evals[name].append(number)
    return curve, evals


def record(program, environment, task, method, phase, seed, rate):
    family, metric, options = TASKS[task]
    label, config = METHODS[method]
    words = ["train", "--data", "builtin", *options, "--method", config, "--workers", "4", "--threads", "1",
             "--seed", str(seed), "--json", "--quiet"]
    words += ["--rate", str(rate)] if rate is not None else []
    begun = time.time()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "metrics")
        done = subprocess.run([program, *words, "--metrics", path], capture_output=True, text=True)
        line = {"format": 1, "kind": "run", "suite": "paper", "size": "smoke", "task": task, "family": family,
                "metric": metric, "method": method, "label": label, "phase": phase, "seed": seed, "rate": rate,
                "command": "frugrad " + " ".join(words), "environment": environment,
                "begun": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(begun)),
                "seconds": round(time.time() - begun, 3)}
        if done.returncode != 0:
            line.update(status=done.returncode, error=done.stderr.strip().split("\n")[-1])
        else:
            line["result"] = json.loads(done.stdout)
            if phase == "test":
                with open(path) as file:
                    line["curve"], line["evals"] = points([json.loads(text) for text in file], 12)
    print(json.dumps(line, separators=(",", ":")), flush=True)
    return line.get("result", {}).get(metric)


def main():
    program = sys.argv[1]
    environment = machine(program)
    for task, (family, metric, _) in TASKS.items():
        for method in METHODS if family == "vision" else ("dense", "frugrad", "topk"):
            rates = RATES[family]
            values = [record(program, environment, task, method, "tune", 9, rate) for rate in rates] if len(rates) > 1 \
                else [1]
            best = max(zip([-1 if value is None else value for value in values], rates))[1]
            for seed in (1, 2):
                record(program, environment, task, method, "test", seed, best)


if __name__ == "__main__":
    main()

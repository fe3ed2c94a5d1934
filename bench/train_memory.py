#!/usr/bin/env python3
"""What a worker's model state takes at most: FruGrad against dense training with gradients as bucket views.

    bench/train_memory.py [--frugrad PATH] [--out FILE.jsonl]

Two workers (threads), two steps, procedural data. Model state is what the trainer's allocator and the library's counted
at most: weights, gradients, optimiser, residual and communication buffers; activations are not in it. peak_rss_bytes is
of the whole process, both workers and all activations.
"""
import argparse
import json
import subprocess
import sys

MODELS = {"resnet50": "resnet50", "gpt2-small": "gpt2-small:length=64,vocab=50257"}
PAIRS = {"SGD with momentum": ("sgd:momentum=0.9", "merged"), "AdamW": ("adamw", "adam-merged")}


def run(program, model, method, optimizer):
    command = [program, "train", "--model", model, "--data", "builtin", "--samples", "64", "--workers", "2", "--threads", "1",
               "--batch", "1", "--steps", "2", "--no-eval", "--json", "--quiet", "--rate", "1e-6", "--method", method,
               "--optimizer", optimizer]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--frugrad", default="build/release/frugrad")
    p.add_argument("--out")
    a = p.parse_args()
    out = open(a.out, "w", encoding="utf-8") if a.out else None
    print("| model | optimiser | dense, bytes a parameter | FruGrad | share | share of 12 or 16 | peak RSS, both workers |")
    print("|---|---|---:|---:|---:|---:|---|")
    for name, model in MODELS.items():
        for kind, (dense_optimizer, own_optimizer) in PAIRS.items():
            rows = [run(a.frugrad, model, "dense", dense_optimizer), run(a.frugrad, model, "frugrad", own_optimizer)]
            for row in rows:
                if out:
                    out.write(json.dumps({"name": name, "kind": kind, **row}) + "\n")
            dense, own = (r["model_state_bytes"] / r["params"] for r in rows)
            ideal = 12 if kind.startswith("SGD") else 16
            print(f"| {name}, {rows[0]['params'] / 1e6:.1f} M | {kind} | {dense:.2f} | {own:.2f} | {own / dense:.3f} | {own / ideal:.3f} | "
                  f"{rows[0]['peak_rss_bytes'] / 1e9:.2f} and {rows[1]['peak_rss_bytes'] / 1e9:.2f} GB |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

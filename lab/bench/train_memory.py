#!/usr/bin/env python3
"""Peak memory of a worker's model state: FruGrad against dense training with gradients as bucket views.

    lab/bench/train_memory.py [--frugrad PATH] [--out FILE.jsonl] [--peak] [--optimizers Muon]

Two workers (threads), two steps, procedural data. Model state is what the trainer's allocator and the library's counted
at most: weights, gradients, optimizer, residual and communication buffers; activations are not in it. peak_rss_bytes is
of the whole process, both workers and all activations. --peak: samples of full length, with activations kept and
computed again (--recompute), and what the process took at most.
"""
import argparse
import json
import subprocess
import sys

MODELS = {"resnet50": "resnet50", "gpt2-small": "gpt2-small:length=64,vocab=50257"}
PAIRS = {"SGD with momentum": ("sgd:momentum=0.9", "merged", 12), "AdamW": ("adamw", "adam-merged", 16),
         "Muon": ("muon", "muon-merged", None)}  # the third: bytes a parameter of dense training without any buffers
PEAK = {"resnet50": ("resnet50", "SGD with momentum", "2"), "gpt2-small": ("gpt2-small:vocab=50257", "AdamW", "1")}


def run(program, model, method, optimizer, *more):
    command = [program, "train", "--model", model, "--data", "builtin", "--samples", "64", "--workers", "2", "--threads", "1",
               "--batch", "1", "--steps", "2", "--no-eval", "--json", "--quiet", "--rate", "1e-6", "--method", method,
               "--optimizer", optimizer, *more]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def peak(program, out):
    print("| model, 2 workers, batch 1 | method | model state a worker | activations a worker | peak RSS | step |")
    print("|---|---|---:|---:|---:|---:|")
    for name, (model, kind, steps) in PEAK.items():
        dense, own, _ = PAIRS[kind]
        for method, optimizer, *more in (("dense", dense), ("dense", dense, "--recompute"), ("frugrad", own),
                                         ("frugrad", own, "--recompute")):
            row = run(program, model, method, optimizer, "--steps", steps, *more)
            if out:
                out.write(json.dumps({"name": name, "kind": kind, **row}) + "\n")
                out.flush()
            print(f"| {name}, {row['params'] / 1e6:.1f} M, {kind} | {' '.join([method, *more])} | {row['model_state_bytes'] / 1e6:.0f} MB | "
                  f"{row['activation_bytes'] / 1e6:.0f} MB | {row['peak_rss_bytes'] / 1e9:.2f} GB | {row['step_ms'] / 1e3:.1f} s |", flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--frugrad", default="build/release/frugrad")
    p.add_argument("--out")
    p.add_argument("--peak", action="store_true")
    p.add_argument("--optimizers", nargs="+", choices=PAIRS, help="only these; not with --peak, which has its own")
    a = p.parse_args()
    if a.peak and a.optimizers:
        p.error("--peak has optimizers of its own: leave out --optimizers")
    out = open(a.out, "w", encoding="utf-8") if a.out else None
    if a.peak:
        peak(a.frugrad, out)
        return 0
    print("| model | optimizer | dense, bytes a parameter | FruGrad | share | share of 12 or 16 | peak RSS, both workers |")
    print("|---|---|---:|---:|---:|---:|---|")
    for name, model in MODELS.items():
        for kind in a.optimizers or PAIRS:
            dense_optimizer, own_optimizer, ideal = PAIRS[kind]
            rows = [run(a.frugrad, model, "dense", dense_optimizer), run(a.frugrad, model, "frugrad", own_optimizer)]
            for row in rows:
                if out:
                    out.write(json.dumps({"name": name, "kind": kind, **row}) + "\n")
            dense, own = (r["model_state_bytes"] / r["params"] for r in rows)
            bare = f"{own / ideal:.3f}" if ideal else ""
            print(f"| {name}, {rows[0]['params'] / 1e6:.1f} M | {kind} | {dense:.2f} | {own:.2f} | {own / dense:.3f} | {bare} | "
                  f"{rows[0]['peak_rss_bytes'] / 1e9:.2f} and {rows[1]['peak_rss_bytes'] / 1e9:.2f} GB |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

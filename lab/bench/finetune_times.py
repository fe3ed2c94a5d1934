#!/usr/bin/env python3
"""How long a step of fine-tuning takes with each method, beside LoRA, in one run.

    lab/bench/finetune_times.py [--frugrad PATH] [--rounds 3] [--steps 12] [--out FILE.jsonl]

Two models with random weights (time does not depend on them) on text that the program makes up. Methods take turns, every run is
a process of its own with one thread; the ratio to LoRA is the median over rounds of the ratio within a round. The time of a step is
the median over steps, so it leaves out the renewal of a basis, which `refresh` (200) steps share. The time of the optimizer is
the mean over steps, of which the first one makes the basis.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile

MODELS = {"4 x 128": ("gpt2:layers=4,width=128,heads=4,length=128,dropout=0", 8),
          "2 x 768": ("gpt2:layers=2,width=768,heads=12,length=128,dropout=0", 1)}
METHODS = {"lora": ["--rank", "8"], "full": [], "table": [], "mesgc": [], "cesgc": [], "galore": [], "apollo": []}


def frugrad(args, *words):
    done = subprocess.run([args.frugrad, *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return done.stdout


def one_run(args, folder, model, batch, method):
    words = ["finetune", "--model", model, "--weights", os.path.join(folder, "start.safetensors"), "--data", "builtin",
             "--method", method, *METHODS[method], "--steps", str(args.steps), "--batch", str(batch), "--threads", "1",
             "--rate", "1e-5", "--no-eval", "--json", "--quiet"]
    said = json.loads(frugrad(args, *words))
    ms, times = said["step_ms"], said["time_ms"]
    optimizer = sum(times.get(part, 0) for part in ("project", "recover", "apply"))
    return {"step_ms": ms, "optimizer_ms": optimizer, "states": said["states"], "bytes": said["optimizer_bytes"], **times}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--frugrad", default="build/release/frugrad")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=12)
    p.add_argument("--out")
    args = p.parse_args()
    for name, (model, batch) in MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            frugrad(args, "train", "--model", model, "--data", "builtin", "--steps", "1", "--batch", "1", "--no-eval",
                    "--save", folder, "--quiet")
            saved = [f for f in os.listdir(folder) if f.endswith(".safetensors")][0]
            os.rename(os.path.join(folder, saved), os.path.join(folder, "start.safetensors"))
            rounds = [{m: one_run(args, folder, model, batch, m) for m in METHODS} for _ in range(args.rounds)]
        print(f"\n## GPT-2, {name}, batch {batch} x 128\n| method | states | step ms | times LoRA | optimizer, ms |\n|---|---|---|---|---|")
        for m in METHODS:
            step = statistics.median(r[m]["step_ms"] for r in rounds)
            ratio = statistics.median(r[m]["step_ms"] / r["lora"]["step_ms"] for r in rounds)
            work = statistics.median(r[m]["optimizer_ms"] for r in rounds)
            print(f"| {m} | {rounds[0][m]['states']} | {step:.1f} | {ratio:.3f} | {work:.2f} |")
            if args.out:
                with open(args.out, "a", encoding="utf-8") as out:
                    row = {"model": name, "method": m, "step_ms": step, "times_lora": ratio, "optimizer_ms": work,
                           "rounds": [r[m] for r in rounds]}
                    out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Quality and bytes of federated runs with 32 clients: dense updates, and compressed ones.

    lab/bench/federated.py --out results/federated-aarch64.jsonl
    lab/bench/federated.py --task gpt --data wikitext-2/ --out results/federated-aarch64.jsonl
    lab/bench/federated.py --task gpt --data wikitext-2/ --methods decay --options '--server-rate 4'

lenet: Fashion-MNIST, every class divided among the clients by a Dirichlet(0.3) distribution. gpt: text, in equal shares.
The server and its clients are threads of `frugrad serve`, with the connections and messages of processes. Methods have
the same splits, seeds, rounds and steps. A line has what the server counted: quality on the test split, and bytes that
clients sent (messages, with their headers, without TLS) and received.
"""
import argparse
import json
import os
import platform
import subprocess
import tempfile

TASKS = {"lenet": "--model lenet --alpha 0.3 --rounds 100 --local-steps 10 --batch 20",
         "gpt": "--model gpt2-nano --tokens bytes --rounds 100 --local-steps 10 --batch 8"}
METHODS = {"dense": "--config dense", "100x": "",
           # a residual that decays, and larger steps of the server: for many clients with few steps
           "decay": "--config segment=all,density=0.036,feedback=merged,beta=0.5,residual=f32,index=auto,value=sign"}


def run(args: argparse.Namespace, method: str, seed: int) -> dict:
    options = f"--data {args.data} --local-clients {args.clients} --quorum {args.clients} --seed {seed} --eval-every 10"
    options = f"{TASKS[args.task]} {options} {METHODS[method]} {args.options}"
    with tempfile.TemporaryDirectory(prefix="federated-", dir=args.directory) as save:
        subprocess.run([args.program, "serve", *options.split(), "--save", save, "--quiet"], check=True)
        with open(f"{save}/status.json", encoding="utf-8") as file:
            status = json.load(file)
        with open(f"{save}/rounds.jsonl", encoding="utf-8") as file:
            rounds = [json.loads(line) for line in file]
    evaluated = [(r["step"], r["eval_loss"], r["eval_accuracy"]) for r in rounds if r["eval_loss"] is not None]
    updates = sum(r["updates"] for r in rounds)
    return {"federated": args.task, "method": method, "options": options, "job": status["job"],
            "parameters": status["parameters"], "clients": args.clients, "seed": seed, "updates": updates,
            "loss": evaluated[-1][1], "accuracy": evaluated[-1][2], "curve": evaluated,
            "bytes_updates": sum(r["bytes_up"] for r in rounds), "bytes_up": status["bytes_up"],
            "bytes_down": status["bytes_down"], "times_fewer": 4 * status["parameters"] * updates / status["bytes_up"],
            "machine": platform.machine()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/frugrad")
    parser.add_argument("--task", choices=TASKS, default="lenet")
    parser.add_argument("--data", default="fashion-mnist")
    parser.add_argument("--methods", default="dense,100x", help=f"of {', '.join(METHODS)}")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--options", default="", help="more options of frugrad serve, for all methods")
    parser.add_argument("--directory", help="where the state of a run is while it runs [/tmp]")
    parser.add_argument("--out", help="append lines to this file")
    args = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for seed in map(int, args.seeds.split(",")):
        for method in args.methods.split(","):
            line = json.dumps(run(args, method, seed))
            print(line, flush=True)
            if args.out:
                with open(args.out, "a", encoding="utf-8") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    main()

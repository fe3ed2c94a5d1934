#!/usr/bin/env python3
"""Accuracy, bytes and seconds of federated runs: 32 clients, Fashion-MNIST split by Dirichlet(0.3), LeNet.

    lab/bench/federated.py --program build/release/frugrad --out results/federated-aarch64.jsonl

Every client is a process `frugrad join` with a directory of its own samples; the server is `frugrad serve`. All methods
have the same splits, seeds, rounds and steps. A line has what the server counted: accuracy on the test split, bytes that
clients sent (messages, with their headers, without TLS) and received, and seconds from the first round to the last.
"""
import argparse
import gzip
import json
import os
import platform
import subprocess
import sys
import tempfile
import time

import numpy as np

FILES = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]
SPARSE = "feedback=plain,residual=f32,value=bf16,vectors=sparse,min_size=1,density="
METHODS = {"dense": "dense", "100x": SPARSE + "0.01", "330x": SPARSE + "0.001"}


def read_idx(path: str) -> np.ndarray:
    with gzip.open(path) as file:
        data = file.read()
    shape = np.frombuffer(data, ">u4", data[3], 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(shape)


def write_idx(path: str, array: np.ndarray) -> None:
    with open(path, "wb") as file:
        file.write(bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes())


def split(labels: np.ndarray, clients: int, alpha: float, seed: int) -> list:
    """Indices of every client: of each class, shares drawn from a Dirichlet distribution; at least 50 samples each, and
    one of the last class, by which a client counts the classes."""
    rng = np.random.default_rng(seed)
    while True:
        parts = [[] for _ in range(clients)]
        for label in range(10):
            index = rng.permutation(np.flatnonzero(labels == label))
            spare, index = (index[:clients], index[clients:]) if label == 9 else (index[:0], index)
            cuts = np.cumsum(rng.dirichlet([alpha] * clients) * len(index)).astype(int)[:-1]
            for number, (part, some) in enumerate(zip(parts, np.split(index, cuts))):
                part += [some, spare[number:number + 1]]
        parts = [np.sort(np.concatenate(part)) for part in parts]
        if min(map(len, parts)) >= 50:
            return parts


def write_clients(root: str, source: str, clients: int, alpha: float, seed: int) -> list:
    arrays = [read_idx(f"{source}/{name}.gz") for name in FILES]
    directories = []
    for number, part in enumerate(split(arrays[1], clients, alpha, seed)):
        directory = f"{root}/data-{number}/fashion-mnist"  # the name decides the normalization
        os.makedirs(directory)
        for name, array in zip(FILES, [arrays[0][part], arrays[1][part], arrays[2][:100], arrays[3][:100]]):
            write_idx(f"{directory}/{name}", array)
        directories.append(directory)
    return directories


def make_keys(program: str, root: str, clients: int) -> None:
    with open(f"{root}/clients.txt", "w", encoding="utf-8") as listed:
        for number in range(clients):
            line = subprocess.run([program, "keygen", f"{root}/key-{number}"], check=True, capture_output=True, text=True)
            listed.write(line.stdout)
    subprocess.run([program, "keygen", f"{root}/server"], check=True, capture_output=True)


def run(args: argparse.Namespace, root: str, data: list, method: str) -> dict:
    save, port = f"{root}/run-{method}", 7700 + os.getpid() % 1000
    serve = [args.program, "serve", "--model", "lenet", "--data", args.source, "--clients", f"{root}/clients.txt",
             "--listen", f"127.0.0.1:{port}", "--save", save, "--key", f"{root}/server", "--config", METHODS[method],
             "--rounds", str(args.rounds), "--local-steps", str(args.steps), "--batch", str(args.batch), "--rate",
             str(args.learning_rate), "--seed", str(args.seed), "--robust", args.robust, "--eval-every",
             str(args.eval_every), "--quorum", str(len(data))]
    with open(f"{root}/{method}.log", "w", encoding="utf-8") as log:
        processes = [subprocess.Popen(serve, stdout=log, stderr=log)]
        time.sleep(1)
        for number, directory in enumerate(data):
            join = [args.program, "join", f"127.0.0.1:{port}", "--key", f"{root}/key-{number}", "--server",
                    f"{root}/server.pub", "--data", directory, "--state", f"{root}/state-{method}-{number}", "--quiet"]
            processes.append(subprocess.Popen(join, stdout=log, stderr=log))
        try:
            codes = [process.wait() for process in processes[1:] + processes[:1]]
        finally:
            for process in processes:
                process.kill()
    if any(codes):
        sys.exit(f"{method}: exit statuses {codes}; see {root}/{method}.log")
    with open(f"{save}/status.json", encoding="utf-8") as file:
        status = json.load(file)
    with open(f"{save}/rounds.jsonl", encoding="utf-8") as file:
        rounds = [json.loads(line) for line in file]
    curve = [(r["step"], r["eval_accuracy"]) for r in rounds if r["eval_accuracy"] is not None]
    return {"federated": "fashion-mnist", "method": method, "config": METHODS[method], "model": "lenet",
            "parameters": status["parameters"], "samples": args.samples, "clients": len(data), "alpha": args.alpha, "rounds": args.rounds,
            "steps": args.steps, "batch": args.batch, "learning_rate": args.learning_rate, "seed": args.seed,
            "robust": args.robust, "links": "loopback", "accuracy": curve[-1][1], "curve": curve,
            "loss": rounds[-1]["loss"], "updates": sum(r["updates"] for r in rounds),
            "bytes_updates": sum(r["bytes_up"] for r in rounds), "bytes_up": status["bytes_up"],
            "bytes_down": status["bytes_down"], "seconds": sum(r["seconds"] for r in rounds),
            "machine": platform.machine()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/frugrad")
    parser.add_argument("--source", default="/usr/share/datasets/fashion-mnist", help="directory of the data")
    parser.add_argument("--methods", default="dense,100x,330x")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--alpha", type=float, default=0.3)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--learning-rate", type=float, default=0.02)
    parser.add_argument("--eval-every", type=int, default=5)
    parser.add_argument("--robust", default="mean")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", help="append lines to this file")
    args = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="federated-") as root:
        args.samples = len(read_idx(f"{args.source}/{FILES[1]}.gz"))
        data = write_clients(root, args.source, args.clients, args.alpha, args.seed)
        make_keys(args.program, root, args.clients)
        for method in args.methods.split(","):
            line = json.dumps(run(args, root, data, method))
            print(line, flush=True)
            if args.out:
                with open(args.out, "a", encoding="utf-8") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    main()

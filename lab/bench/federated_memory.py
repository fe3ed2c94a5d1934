#!/usr/bin/env python3
"""Memory of a federated server: 1,000 idle and 100 active clients, a model of 25.6 M parameters.

    lab/bench/federated_memory.py --program build/dev/frugrad --peer build/dev/tests/federated_peer \\
        --out results/federated-memory-aarch64.jsonl

Idle clients have joined and say nothing. Active ones get the weights, all at once, and send an update of random
numbers, other ones each, round after round. A line has the resident memory of the server (VmRSS, and VmHWM, its
peak, in MiB): as it starts, when all have joined, and at the end. The data that it evaluates on are few: they are the
operator's choice.
"""
import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time

from loopback_port import free_port

# the default of `frugrad serve` for a model with running statistics
CONFIG = "segment=tensor,min_size=1,density=0.036,feedback=plain,residual=f32,index=auto,value=sign"


def memory(pid: int) -> dict:
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return {name: round(int(kib) / 1024, 1) for name, kib in re.findall(r"(VmRSS|VmHWM):\s+(\d+) kB", file.read())}


def measure(args: argparse.Namespace, root: str) -> dict:
    subprocess.run([args.peer, "keys", root, str(args.idle + args.active)], check=True)
    address = f"127.0.0.1:{free_port()}"
    serve = [args.program, "serve", "--model", args.model, "--data", "builtin", "--samples", "32", "--clients",
             f"{root}/clients.txt", "--listen", address, "--save", f"{root}/run", "--rounds", str(args.rounds + 1),
             "--quorum", str(args.active), "--deadline", "0.1", "--eval-every", str(args.eval_every), "--robust",
             args.robust, "--config", args.config]
    load = [args.peer, "load", address, root, str(args.idle), str(args.active), str(args.rounds), args.model,
            args.config]
    with open(f"{root}/log", "w", encoding="utf-8") as log:
        server = subprocess.Popen(serve, stderr=log, stdout=log)
        clients = None
        try:
            while "listening" not in open(f"{root}/log", encoding="utf-8").read():
                if server.poll() is not None:
                    sys.exit(open(f"{root}/log", encoding="utf-8").read())
                time.sleep(0.1)
            started = memory(server.pid)
            clients = subprocess.Popen(load, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            said = [clients.stdout.readline().strip()]
            time.sleep(2)
            joined = memory(server.pid)
            began = time.monotonic()
            clients.stdin.write("\n")
            clients.stdin.flush()
            said.append(clients.stdout.readline().strip())
            seconds = time.monotonic() - began
            if said != ["joined", "sent"]:
                sys.exit(f"the clients got as far as {said}")
            while f"round {args.rounds}/" not in open(f"{root}/log", encoding="utf-8").read():
                time.sleep(0.2)
            time.sleep(1.5)
            ended = memory(server.pid)
            with open(f"{root}/run/status.json", encoding="utf-8") as file:
                status = json.load(file)
        finally:
            server.kill()
            if clients:
                clients.kill()
    return {"federated": "memory", "model": args.model, "parameters": status["parameters"], "idle": args.idle,
            "active": args.active, "rounds": args.rounds, "config": args.config, "robust": args.robust, "eval_every": args.eval_every,
            "connections": status["connections"], "updates": sum(r["updates"] for r in status["history"]),
            "bytes_up": status["bytes_up"], "bytes_down": status["bytes_down"], "started_mib": started,
            "joined_mib": joined, "ended_mib": ended, "seconds": round(seconds, 1), "machine": platform.machine()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/dev/frugrad")
    parser.add_argument("--peer", default="build/dev/tests/federated_peer")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--idle", type=int, default=1000)
    parser.add_argument("--active", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--config", default=CONFIG, help="of the updates")
    parser.add_argument("--robust", default="clip")
    parser.add_argument("--eval-every", type=int, default=1)
    parser.add_argument("--out", help="append the line to this file")
    args = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="federated-memory-") as root:
        line = json.dumps(measure(args, root))
    print(line)
    if args.out:
        with open(args.out, "a", encoding="utf-8") as file:
            file.write(line + "\n")


if __name__ == "__main__":
    main()

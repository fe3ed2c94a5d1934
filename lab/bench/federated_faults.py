#!/usr/bin/env python3
"""Random faults in a federated run: nothing is lost, nothing is counted twice, and the weights have the same bits.

    lab/bench/federated_faults.py --program build/release/frugrad --events 100 --out results/federated-faults-aarch64.jsonl

First a run without faults, then one with the same keys and so many events: a client or the server is killed (-9), a
connection is cut in mid-message by a proxy, the disk of the server or a client is full for a moment, a clock jumps by up
to ten years. The last two are made by tests/support/fault_injection.c. Who has ended is started again with the same command. Rounds
wait for all clients, so the order of updates has no effect, and the weights of both runs must be equal. With --deadline
they do not wait, and updates may be late or refused. Exit status 1, after the reason, when one of the claims does not
hold; the directory is kept then.
"""
import argparse
import collections
import json
import os
import platform
import random
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

from loopback_port import free_port

WAITS_FOR_ALL = 1e6
KINDS = ["kill client", "kill server", "cut", "server disk full", "client disk full", "server clock", "client clock"]


class Proxy:
    """Forwards connections of one client to the server, and cuts them after some bytes when told to."""

    def __init__(self, target: int):
        self.target, self.left, self.cuts = target, None, 0
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            near = self.listener.accept()[0]
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                near.close()
                continue
            for pair in (near, far), (far, near):
                threading.Thread(target=self.forward, args=pair, daemon=True).start()

    def allowed(self, count: int) -> int:
        with self.lock:
            if self.left is None or self.left >= count:
                self.left = None if self.left is None else self.left - count
                return count
            allowed, self.left = self.left, None
            self.cuts += 1
            return allowed

    def forward(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                allowed = self.allowed(len(data))
                sink.sendall(data[:allowed])
                if allowed < len(data):
                    for s in source, sink:  # the peers see a reset
                        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    break
        except OSError:
            pass
        for s in source, sink:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            s.close()

    def cut_after(self, count: int) -> None:
        with self.lock:
            self.left = count


class Process:
    """A command that is started again when it ends early. Its faults are files in a directory of its own."""

    def __init__(self, command: list, root: str, name: str, library: str):
        self.command, self.log, self.faults = command, f"{root}/{name}.log", f"{root}/{name}.faults"
        os.mkdir(self.faults)
        self.environment = dict(os.environ, LD_PRELOAD=library, FAULTS=self.faults, OPENBLAS_NUM_THREADS="1")
        self.starts = 0
        self.start()

    def start(self) -> None:
        self.starts += 1
        with open(self.log, "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log, env=self.environment)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def text(self) -> str:
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return log.read()

    def set(self, fault: str, text: str) -> None:
        with open(f"{self.faults}/{fault}.part", "w", encoding="utf-8") as file:
            file.write(text)
        os.rename(f"{self.faults}/{fault}.part", f"{self.faults}/{fault}")

    def clear(self, fault: str) -> None:
        os.unlink(f"{self.faults}/{fault}")


class Run:
    """A server and its clients, each behind a proxy."""

    def __init__(self, args: argparse.Namespace, root: str, name: str, library: str):
        self.args, self.save = args, f"{root}/{name}"
        port = free_port()
        serve = [args.program, "serve", "--model", "mlp", "--data", "builtin", "--samples", "400", "--clients",
                 f"{root}/clients.txt", "--listen", f"127.0.0.1:{port}", "--save", self.save, "--key", f"{root}/server",
                 "--rounds", str(args.rounds), "--local-steps", "4", "--eval-every", "0", "--deadline", str(args.deadline),
                 "--server-optimizer", "momentum"]
        self.server = Process(serve, root, f"{name}-server", library)
        self.proxies = [Proxy(port) for _ in range(args.clients)]
        self.clients = []
        for number, proxy in enumerate(self.proxies):
            join = [args.program, "join", f"127.0.0.1:{proxy.port}", "--key", f"{root}/key-{number}", "--server",
                    f"{root}/server.pub", "--data", "builtin", "--samples", "400", "--share",
                    f"{number + 1}/{args.clients}", "--state", f"{root}/{name}-state-{number}", "--patience", "60"]
            self.clients.append(Process(join, root, f"{name}-client-{number}", library))
        self.finished = [False] * args.clients

    def round(self) -> int:
        """The round that is open."""
        return max([0] + [int(r) for r in re.findall(r"^\S+ round (\d+)/", self.server.text(), re.M)])

    def is_over(self) -> bool:
        return os.path.exists(f"{self.save}/weights.safetensors")

    def restart(self) -> None:
        """Starts again who has ended; a client that has seen the last round is done."""
        if self.server.has_ended() and not self.is_over():
            self.server.start()
        for number, client in enumerate(self.clients):
            if client.has_ended() and not self.finished[number]:
                self.finished[number] = client.process.returncode == 0
                if not self.finished[number] and not self.is_over():
                    client.start()

    def wait(self, seconds: float, ready) -> bool:
        end = time.monotonic() + seconds
        while not ready() and not self.is_over():
            if time.monotonic() > end:
                return False
            self.restart()
            time.sleep(0.02)
        return True

    def stop(self) -> None:
        for process in self.clients + [self.server]:
            process.kill()

    def log(self) -> dict:
        with open(f"{self.save}/rounds.jsonl", encoding="utf-8") as file:
            return {line["step"]: line for line in map(json.loads, file)}

    def status(self) -> dict:
        with open(f"{self.save}/status.json", encoding="utf-8") as file:
            return json.load(file)


def cause(run: Run, rng: random.Random, kind: str) -> None:
    """One event, from its beginning to its end."""
    number = rng.randrange(len(run.clients))
    victim = run.server if "server" in kind else run.clients[number]
    if kind.startswith("kill"):
        victim.kill()
        run.restart()
    elif kind == "cut":
        proxy, before = run.proxies[number], run.proxies[number].cuts
        proxy.cut_after(rng.randrange(1, 4000))
        run.wait(60, lambda: proxy.cuts > before)
    elif "full" in kind:
        victim.set("full", "")
        run.wait(rng.uniform(0.2, 1.5), lambda: False)
        victim.clear("full")
    else:
        victim.set("clock", str(rng.choice([-1, 1]) * rng.randrange(1, 10 * 365 * 86400)))


def run_with_faults(run: Run, events: int, seed: int) -> collections.Counter:
    """Events are spread over the first half of the rounds; in which order is drawn."""
    rng = random.Random(seed)
    kinds = [KINDS[i % len(KINDS)] for i in range(events)]
    rng.shuffle(kinds)
    done = collections.Counter()
    for number, kind in enumerate(kinds):
        due = number * run.args.rounds // 2 // events
        if not run.wait(120, lambda: run.round() >= due):
            sys.exit(f"round {due} does not come: {run.server.text()[-2000:]}")
        run.wait(rng.uniform(0, 0.2), lambda: False)
        if run.is_over():
            break
        cause(run, rng, kind)
        done[kind] += 1
    return done


def make_keys(args: argparse.Namespace, root: str) -> None:
    with open(f"{root}/clients.txt", "w", encoding="utf-8") as listed:
        for number in range(args.clients):
            listed.write(subprocess.run([args.program, "keygen", f"{root}/key-{number}"], check=True,
                                        stdout=subprocess.PIPE, text=True).stdout)
    subprocess.run([args.program, "keygen", f"{root}/server"], check=True, stdout=subprocess.DEVNULL)


def check(run: Run, straight: Run) -> dict:
    """What the server's book and the clients' logs say. A client writes a line for each update that was counted, unless
    it is killed just then; so its log may have fewer than the book, and never more, and none twice."""
    counted = {c["name"]: c["counted"] for c in run.status()["clients"]}
    lines = {f"key-{i}": re.findall(r"^\S+ round (\d+)/\d+  (?:loss [0-9.]+|the update .* is counted)$", c.text(), re.M)
             for i, c in enumerate(run.clients)}
    weights = [open(f"{r.save}/weights.safetensors", "rb").read() for r in (run, straight)]
    in_rounds = [line["updates"] for line in run.log().values()]
    waits = run.args.deadline == WAITS_FOR_ALL
    return {"updates": sum(counted.values()), "lines_of_clients": sum(map(len, lines.values())),
            "lost": sum(max(len(lines[name]) - counted[name], 0) for name in lines)
            + waits * (run.args.rounds * run.args.clients - sum(counted.values())),
            "doubled": sum(max(count - run.args.rounds, 0) for count in counted.values())
            + sum(len(numbers) - len(set(numbers)) for numbers in lines.values()),
            "lines_of_rounds": len(in_rounds), "updates_in_lines_of_rounds": sum(in_rounds),
            "same_weights": weights[0] == weights[1]}


def finish(run: Run) -> None:
    if not run.wait(300, run.is_over):
        sys.exit(f"the run does not end: {run.server.text()[-2000:]}")
    run.server.process.wait()


def measure(args: argparse.Namespace, root: str) -> dict:
    library = f"{root}/faults.so"
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/support/fault_injection.c")
    subprocess.run([os.environ.get("CC", "cc"), "-O1", "-shared", "-fPIC", source, "-o", library], check=True)
    make_keys(args, root)
    straight = Run(args, root, "straight", library)
    try:
        finish(straight)
    finally:
        straight.stop()
    run = Run(args, root, "faults", library)
    began = time.monotonic()
    try:
        events = run_with_faults(run, args.events, args.seed)
        finish(run)
    finally:
        run.stop()
    log = run.server.text()
    return {"federated": "faults", "clients": args.clients, "rounds": args.rounds, "deadline": args.deadline,
            "seed": args.seed, "events": sum(events.values()), "kinds": dict(events), **check(run, straight),
            "starts_of_server": run.server.starts, "starts_of_clients": sum(c.starts for c in run.clients),
            "rounds_closed_again": log.count("could not be closed"),
            "updates_refused_for_now": log.count("cannot store"),
            "seconds": round(time.monotonic() - began, 1), "machine": platform.machine()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/frugrad")
    parser.add_argument("--events", type=int, default=100)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--deadline", type=float, default=WAITS_FOR_ALL, help="of a round, in seconds [it waits for all]")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", help="append the line to this file")
    args = parser.parse_args()
    root = tempfile.mkdtemp(prefix="federated-faults-")
    result = measure(args, root)
    line = json.dumps(result)
    print(line, flush=True)
    if args.out:
        with open(args.out, "a", encoding="utf-8") as file:
            file.write(line + "\n")
    claims = {"none is lost": not result["lost"], "none is counted twice": not result["doubled"],
              "the weights are equal": result["same_weights"] or args.deadline < WAITS_FOR_ALL,
              "all events were in the run": result["events"] == args.events}
    if not all(claims.values()):
        sys.exit(f"not true: {', '.join(text for text, holds in claims.items() if not holds)}; see {root}")
    shutil.rmtree(root)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Seconds of federated rounds over slow links: dense and compressed updates, and Flower, with the same model and data.

    lab/bench/federated_links.py --flower VENV/bin/python --out results/federated-links-aarch64.jsonl

Server and clients are processes in network namespaces of their own; a link sends 1 Mbit/s up and 10 Mbit/s down. Every
client trains LeNet on its share of Fashion-MNIST. A line has the seconds of each round, their median without the first
one, in which clients start, and the bytes that clients put on their links, with all headers. Methods take turns. Needs
root, ip and tc; Flower: pip install flwr.
"""
import argparse
import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

FLOWER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "federated_flower.py")
PORT = "7700"


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


class Links(contextlib.AbstractContextManager):
    """Namespaces of a server and of clients, which exist until the end of the context.

    A link limits what is sent: at the client's end to `up`, at the server's to `down`, as tc writes rates. Every client
    has a network of its own, so no bridge is needed.
    """

    def __init__(self, clients: int, up: str, down: str) -> None:
        self.clients, self.up, self.down = clients, up, down
        self.server = f"fg{os.getpid()}s"

    def client(self, number: int) -> str:
        return f"fg{os.getpid()}c{number}"

    @staticmethod
    def address(number: int, end: int) -> str:
        return f"10.92.{number}.{end}"

    def __enter__(self) -> "Links":
        try:
            ip("netns", "add", self.server)
            for number in range(self.clients):
                self.add_client(number)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in [self.server, *map(self.client, range(self.clients))]:
            subprocess.run(["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL)

    def add_client(self, number: int) -> None:
        name, port = self.client(number), f"port{number}"
        ip("netns", "add", name)
        ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", port, "netns", self.server)
        for space, device, end, rate in ((name, "eth0", 2, self.up), (self.server, port, 1, self.down)):
            ip("-n", space, "addr", "add", self.address(number, end) + "/24", "dev", device)
            ip("-n", space, "link", "set", device, "up")
            ip("netns", "exec", space, "tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", "16kb",
               "latency", "500ms")

    def start(self, space: str, command: list, log: str) -> subprocess.Popen:
        with open(log, "w", encoding="utf-8") as file:
            return subprocess.Popen(["ip", "netns", "exec", space, *command], stdout=file, stderr=file)

    def bytes_up(self) -> int:
        command = ["ip", "netns", "exec", self.server, "sh", "-c", "cat /sys/class/net/port*/statistics/rx_bytes"]
        return sum(map(int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()))


def frugrad_commands(args: argparse.Namespace, root: str, config: list) -> tuple:
    """The command of the server, and a function that gives a client's."""
    with open(f"{root}/clients.txt", "w", encoding="utf-8") as listed:
        for name in [f"key-{number}" for number in range(args.clients)] + ["server.key"]:
            made = subprocess.run([args.program, "keygen", f"{root}/{name}"], check=True, capture_output=True, text=True)
            listed.write(made.stdout if name != "server.key" else "")
    serve = [args.program, "serve", "--model", "lenet", "--data", args.data, "--clients", f"{root}/clients.txt", "--listen",
             PORT, "--save", root, "--rounds", str(args.rounds), "--local-steps", str(args.steps), "--batch",
             str(args.batch), "--quorum", str(args.clients), "--eval-every", "0", *config]

    def join(number: int, address: str) -> list:
        return [args.program, "join", address, "--key", f"{root}/key-{number}", "--server", f"{root}/server.key.pub",
                "--data", args.data, "--share", f"{number + 1}/{args.clients}"]
    return serve, join


def flower_commands(args: argparse.Namespace) -> tuple:
    serve = [args.flower, FLOWER, "serve", PORT, str(args.clients), str(args.rounds)]

    def join(number: int, address: str) -> list:
        return [args.flower, FLOWER, "join", address, args.data, str(number), str(args.clients), str(args.steps),
                str(args.batch)]
    return serve, join


def run(args: argparse.Namespace, links: Links, method: str, root: str) -> dict:
    """One run; the server's last line of output, or its file of rounds, has the seconds."""
    serve, join = flower_commands(args) if method == "flower" else frugrad_commands(
        args, root, ["--config", "dense"] if method == "dense" else [])
    before = links.bytes_up()
    processes = [links.start(links.server, serve, f"{root}/server.log")]
    time.sleep(args.wait)
    for number in range(args.clients):
        address = f"{links.address(number, 1)}:{PORT}"
        processes.append(links.start(links.client(number), join(number, address), f"{root}/client-{number}.log"))
    try:
        codes = [process.wait(args.limit) for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(codes):
        with open(f"{root}/server.log", encoding="utf-8") as log:
            sys.exit(f"{method}: exit statuses {codes}\n{log.read()[-2000:]}")
    if method == "flower":
        with open(f"{root}/server.log", encoding="utf-8") as log:
            result = json.loads(log.read().splitlines()[-1])
    else:
        with open(f"{root}/rounds.jsonl", encoding="utf-8") as rounds:
            result = {"round_seconds": [json.loads(line)["seconds"] for line in rounds]}
    seconds = result["round_seconds"]
    return {"federated_links": "fashion-mnist", "method": method, **result, "median": statistics.median(seconds[1:]),
            "load": os.getloadavg()[0], "link_bytes_up": links.bytes_up() - before, "clients": args.clients,
            "rounds": args.rounds, "steps": args.steps, "batch": args.batch, "up": args.up, "down": args.down,
            "machine": platform.machine()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/release/frugrad")
    parser.add_argument("--flower", help="Python with flwr and torch; without it Flower is not measured")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--batch", type=int, default=20)
    parser.add_argument("--up", default="1mbit")
    parser.add_argument("--down", default="10mbit")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--wait", type=float, default=5, help="seconds until the server listens")
    parser.add_argument("--limit", type=float, default=600, help="seconds that a run may take")
    parser.add_argument("--out", help="append lines to this file")
    args = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with Links(args.clients, args.up, args.down) as links:
        for method in ["dense", "sparse", *(["flower"] if args.flower else [])] * args.turns:
            with tempfile.TemporaryDirectory(prefix="federated-") as root:
                line = json.dumps(run(args, links, method, root))
            print(line, flush=True)
            if args.out:
                with open(args.out, "a", encoding="utf-8") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Attacks on a federated server that is in use: each is refused or contained, with a line in the log, in bounded memory.

    lab/bench/federated_hostile.py --program build/dev/frugrad --peer build/dev/tests/federated_peer \\
        --out results/federated-hostile-aarch64.jsonl

A line for each attack: what the server said about it, how many rounds two clients of the run closed meanwhile, and the
peak memory of the server before and after (VmHWM, KiB). Then mutated messages with valid keys for some seconds, and
runs in which 3 of 32 clients send wrong updates; with --only-poison, these alone. Exit status 1, after the reason, when
one was not contained.
"""
import argparse
import json
import os
import platform
import re
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time

from loopback_port import free_port

CONFIG = "density=0.01,feedback=plain,residual=f32,value=bf16,vectors=sparse,min_size=1"  # as that of federated_peer.c
CASES = "none/clip,times1000/clip,flipped/clip,nan/clip,none/trim,times1000/trim,flipped/trim"
HELLO, WELCOME, JOIN, JOINED, PULL, WEIGHTS, CHUNK, OFFER, SEND, CONFIRM, REFUSE = range(1, 12)


def message(kind: int, payload: bytes, announced: int = -1) -> bytes:
    return b"FG" + struct.pack("<BBI", 1, kind, len(payload) if announced < 0 else announced) + payload


class Server:
    """`frugrad serve` with its log."""

    def __init__(self, args: argparse.Namespace, root: str, name: str, options: list, config: str = CONFIG):
        self.root, self.port, self.log, self.save = root, free_port(), f"{root}/{name}.log", f"{root}/{name}"
        self.address = f"127.0.0.1:{self.port}"
        command = [args.program, "serve", "--model", "mlp", "--data", "builtin", "--clients", f"{root}/clients.txt",
                   "--listen", self.address, "--save", self.save, "--key", f"{root}/server", "--config",
                   config] + options
        with open(self.log, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.wait_for("listening")

    def text(self) -> str:
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()

    def wait_for(self, pattern: str, seconds: float = 60, since: int = 0) -> str:
        """The first line of the log after a position that has the pattern."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            if found := re.search(f"^.*{pattern}.*$", self.text()[since:], re.M):
                return found[0]
            time.sleep(0.05)
        sys.exit(f"no '{pattern}' in the server's log: {self.text()[-2000:]}")

    def peak(self) -> int:
        with open(f"/proc/{self.process.pid}/status", encoding="utf-8") as file:
            return int(re.search(r"VmHWM:\s+(\d+)", file.read())[1])


class Peer:
    """A connection with a key, by hand."""

    def __init__(self, server: Server, key: str = ""):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if key:
            path = f"{server.root}/{key}"
            if not os.path.exists(f"{path}.crt"):
                subprocess.run(["openssl", "req", "-x509", "-new", "-key", path, "-subj", "/CN=x", "-out", f"{path}.crt"],
                               check=True)
            context.load_cert_chain(f"{path}.crt", path)
        self.socket = context.wrap_socket(socket.create_connection(("127.0.0.1", server.port), timeout=60))

    def say(self, kind: int, payload: bytes, announced: int = -1) -> None:
        self.socket.sendall(message(kind, payload, announced))

    def read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise ConnectionError
            data += more
        return data

    def hear(self) -> tuple:
        """Type and payload; (0, b"") at the end."""
        try:
            header = self.read(8)
            return header[3], self.read(struct.unpack("<I", header[4:])[0])
        except (ConnectionError, ssl.SSLError, OSError):
            return 0, b""

    def join(self) -> "Peer":
        self.say(HELLO, struct.pack("<I", 1) + b"x")
        payload = self.hear()[1]
        self.run, self.round = payload[:16], struct.unpack("<Q", payload[32:40])[0]
        self.say(JOIN, payload[:32] + struct.pack("<Q", 1))
        assert self.hear()[0] == JOINED
        return self

    def offer(self, run: bytes, base: int, upload: int, size: int, checksum: int = 0) -> tuple:
        self.say(OFFER, run + struct.pack("<QQQQId", base, upload, 1, size, checksum, 1.0))
        return self.hear()

    def close(self) -> None:
        self.socket.close()


def refusal(answer: tuple) -> str:
    """Of a REFUSE: its text."""
    assert answer[0] == REFUSE, answer
    return answer[1][4:].decode()


# ---- attacks: each returns a pattern of the line that the server must write ----

def no_key(server: Server) -> str:
    peer = Peer(server)
    assert peer.hear()[0] == 0
    return "refused: it has no key"


def no_tls(server: Server) -> str:
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.sendall(b"GET / HTTP/1.1\r\n\r\n" + bytes(range(256)) * 40)
        s.settimeout(20)
        try:
            while s.recv(4096):
                pass
        except ConnectionError:
            pass
    return "refused: TLS: "


def wrong_key(server: Server) -> str:
    assert Peer(server, "stranger").hear()[0] == 0
    return "refused: its key is not in the list of clients"


def revoked_key(server: Server) -> str:
    peer = Peer(server, "key-9").join()
    path = f"{server.root}/clients.txt"
    with open(path, encoding="utf-8") as file:
        lines = file.readlines()
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        file.writelines(line for line in lines if not line.endswith(" key-9\n"))
    os.rename(f"{path}.part", path)
    assert peer.hear()[0] == 0 and Peer(server, "key-9").hear()[0] == 0
    return "key-9: no longer in the list of clients"


def replayed_upload(server: Server) -> str:
    """An update that was counted is offered again under another number."""
    peer = Peer(server, "key-0").join()
    assert "is counted" in refusal(peer.offer(peer.run, 0, 12345, 100))
    peer.close()
    return "key-0: refused: another update of this client for round 0 or a later one is counted"


def another_run(server: Server) -> str:
    peer = Peer(server, "key-8").join()
    assert "another run" in refusal(peer.offer(bytes(16), peer.round, 1, 100)) and peer.hear()[0] == 0
    return "key-8: refused: this is of another run"


def oversized_message(server: Server) -> str:
    peer = Peer(server, "key-8").join()
    peer.say(CHUNK, b"", 0x7fffffff)
    refusal(peer.hear())
    return "key-8: refused: .*bytes"


def oversized_update(server: Server) -> str:
    peer = Peer(server, "key-8").join()
    refusal(peer.offer(peer.run, peer.round, 1, 1 << 62))
    return "key-8: refused: an update of 4611686018427387904 bytes"


def future_update(server: Server) -> str:
    peer = Peer(server, "key-8").join()
    refusal(peer.offer(peer.run, 1 << 40, 1, 100))
    peer.close()
    return "key-8: refused: the update is of round .*, which has not begun"


def other_version(server: Server) -> str:
    peer = Peer(server, "key-8")
    peer.say(HELLO, struct.pack("<I", 9) + b"x")
    assert "install the same release" in refusal(peer.hear())
    return "key-8: refused: the client has version 9 of the protocol"


def other_model(server: Server) -> str:
    peer = Peer(server, "key-8")
    peer.say(HELLO, struct.pack("<I", 1) + b"x")
    payload = peer.hear()[1]
    peer.say(JOIN, payload[:16] + bytes(16) + struct.pack("<Q", 1))
    assert "use the run's model" in refusal(peer.hear())
    return "key-8: refused: the client's model has 0 parameters"


def too_many_requests(server: Server) -> str:
    """More refusals than the log gets lines of."""
    peer = Peer(server, "key-8").join()
    while "too many requests" not in refusal(peer.offer(peer.run, 1 << 40, 1, 100)):
        pass
    return "key-8: refused: the update is of round"


def slow_drip(server: Server) -> str:
    """A byte a second: it is let go half a minute after the message began."""
    peer = Peer(server, "key-8").join()
    began = time.monotonic()
    try:
        for byte in message(PULL, bytes(36)) + bytes(100):
            peer.socket.sendall(bytes([byte]))
            time.sleep(1)
    except (ConnectionError, ssl.SSLError):
        pass
    assert 25 < time.monotonic() - began < 45
    return "key-8: a message arrives too slowly"


def half_open(server: Server) -> str:
    """A handshake that never goes on."""
    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.sendall(b"\x16\x03\x01\x02\x00\x01")
        s.settimeout(30)
        began = time.monotonic()
        try:
            assert s.recv(1) == b""
        except ConnectionError:
            pass
        assert 9 < time.monotonic() - began < 20
    return "refused: the handshake took too long"


def thousand_connections(server: Server) -> str:
    opened = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(1000)]
    time.sleep(2)
    for s in opened:
        s.close()
    return "refused: too many handshakes at once"


def reconnecting(server: Server) -> str:
    """The same key again and again: the older connection ends."""
    peers = [Peer(server, "key-8").join() for _ in range(50)]
    assert peers[0].hear()[0] == 0
    for peer in peers:
        peer.close()
    return "key-8: joined"


ATTACKS = [no_key, no_tls, wrong_key, revoked_key, replayed_upload, another_run, oversized_message, oversized_update,
           future_update, other_version, other_model, too_many_requests, half_open, thousand_connections, reconnecting,
           slow_drip]


def join(args: argparse.Namespace, server: Server, number: int, clients: int) -> subprocess.Popen:
    command = [args.program, "join", server.address, "--key", f"{server.root}/key-{number}", "--server",
               f"{server.root}/server.pub", "--data", "builtin", "--share", f"{number + 1}/{clients}", "--state",
               f"{server.save}-state-{number}", "--quiet", "--patience", "60"]
    with open(f"{server.save}-client-{number}.log", "w", encoding="utf-8") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def rounds_of(server: Server) -> int:
    return len(re.findall(r"^\S+ round \d+/", server.text(), re.M))


def attack(server: Server, clean: list, what) -> dict:
    before, since, rounds = server.peak(), len(server.text()), rounds_of(server)
    line = server.wait_for(what(server), since=since)
    began = time.monotonic()
    done = rounds_of(server)
    while rounds_of(server) < done + 2:  # at least one that began after the attack
        if time.monotonic() - began > 60 or any(c.poll() is not None for c in clean):
            sys.exit(f"{what.__name__}: the clean clients do not go on")
        time.sleep(0.02)
    return {"attack": what.__name__, "line": line.split(" ", 1)[1], "rounds_meanwhile": rounds_of(server) - rounds,
            "peak_before_kib": before, "peak_after_kib": server.peak()}


def run_attacks(args: argparse.Namespace, root: str) -> list:
    server = Server(args, root, "attacked", ["--samples", "400", "--rounds", "1000000", "--local-steps", "1", "--deadline",
                                             "0.2", "--quorum", "2", "--eval-every", "0"])
    clean = [join(args, server, number, 2) for number in range(2)]
    lines = []
    try:
        server.wait_for("round 3/")
        for what in ATTACKS:
            lines.append(attack(server, clean, what))
            print(json.dumps(lines[-1]), flush=True)
        lines.append(run_fuzz(args, server, clean))
        print(json.dumps(lines[-1]), flush=True)
    finally:
        for process in clean + [server.process]:
            process.kill()
    return lines


def run_fuzz(args: argparse.Namespace, server: Server, clean: list) -> dict:
    """Clients 2 to 7, on a list of their own for the tool, which counts from 0."""
    os.mkdir(f"{server.root}/fuzz")
    for number in range(2, 8):
        os.link(f"{server.root}/key-{number}", f"{server.root}/fuzz/key-{number - 2}")
    before, size, rounds = server.peak(), len(server.text()), rounds_of(server)
    out = subprocess.run([args.peer, "fuzz", server.address, f"{server.root}/fuzz", "6", str(args.seconds), "1", "mlp"],
                         check=True, stdout=subprocess.PIPE, text=True).stdout
    went_on = rounds_of(server) - rounds
    if server.process.poll() is not None or any(c.poll() is not None for c in clean) or went_on < 1:
        sys.exit(f"mutated messages: the run does not go on: {server.text()[-2000:]}")
    return {"attack": "mutated_messages", **json.loads(out), "seconds": args.seconds, "rounds_meanwhile": went_on,
            "bytes_of_log": len(server.text()) - size, "peak_before_kib": before, "peak_after_kib": server.peak()}


def run_poison(args: argparse.Namespace, root: str, kind: str, robust: str) -> dict:
    """29 clean clients and 3 that are not; without a kind, 32 clean ones."""
    server = Server(args, root, f"poison-{kind}-{robust}",
                    ["--samples", "6400", "--rounds", str(args.rounds), "--local-steps", "4", "--deadline", "5", "--robust",
                     robust, "--eval-every", "5", "--quorum", "29", "--seed", str(args.seed)], args.config)
    processes = []
    try:
        for number in range(32):
            if kind == "none" or number >= 3:
                processes.append(join(args, server, number, 32))
            else:
                with open(f"{server.save}-client-{number}.log", "w", encoding="utf-8") as log:
                    processes.append(subprocess.Popen([args.peer, "poison", server.address, f"{root}/key-{number}",
                                                       f"{root}/server.pub", kind, f"{number + 1}/32",
                                                       f"{server.save}-state-{number}"], stdout=log, stderr=log))
        server.process.wait(timeout=600)
    finally:
        for process in processes + [server.process]:
            process.kill()
    with open(f"{server.save}/status.json", encoding="utf-8") as file:
        status = json.load(file)
    wrong = [c for c in status["clients"] if c["name"] in ("key-0", "key-1", "key-2")]
    last = status["history"][-1]
    curve = [(r["round"], r["eval_accuracy"]) for r in status["history"] if r["eval_accuracy"] is not None]
    return {"attack": f"poison_{kind}", "robust": robust, "config": args.config, "seed": args.seed, "curve": curve, "clients": 32, "wrong_clients": 0 if kind == "none" else 3,
            "rounds": status["round"], "accuracy": last["eval_accuracy"], "loss": last["eval_loss"],
            "limited_of_wrong": sum(c["limited"] for c in wrong),
            "refused_of_wrong": sum(c["refused"].get("invalid", 0) for c in wrong)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default="build/dev/frugrad")
    parser.add_argument("--peer", default="build/dev/tests/federated_peer")
    parser.add_argument("--seconds", type=float, default=180, help="of mutated messages")
    parser.add_argument("--rounds", type=int, default=20, help="of the runs with wrong updates; 0: none of them")
    parser.add_argument("--only-poison", action="store_true", help="only the runs with wrong updates")
    parser.add_argument("--config", default=CONFIG, help="of the runs with wrong updates")
    parser.add_argument("--cases", default=CASES, help="of the runs with wrong updates: KIND/ROBUST, ...")
    parser.add_argument("--seed", type=int, default=1, help="of the runs with wrong updates")
    parser.add_argument("--out", help="append lines to this file")
    args = parser.parse_args()
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory(prefix="federated-hostile-") as root:
        subprocess.run([args.peer, "keys", root, "32"], check=True)
        for name in "server", "stranger":
            subprocess.run([args.program, "keygen", f"{root}/{name}"], check=True, stdout=subprocess.DEVNULL)
        with open(f"{root}/clients.txt", encoding="utf-8") as file:
            listed = file.read()
        lines = [] if args.only_poison else run_attacks(args, root)
        with open(f"{root}/clients.txt", "w", encoding="utf-8") as file:
            file.write(listed)
        for case in args.cases.split(",") if args.rounds else []:
            lines.append(run_poison(args, root, *case.split("/")))
            print(json.dumps(lines[-1]), flush=True)
    if args.out:
        with open(args.out, "a", encoding="utf-8") as file:
            for line in lines:
                file.write(json.dumps({"federated": "hostile", **line, "machine": platform.machine()}) + "\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Step times of a suite's methods over slow links, as records of kind "speed" beside those of `frugrad compare`.

    lab/bench/compare_net.py [--build build/release] [--out DIR] [--suite paper] [--methods a,b] [--workers 4] [--rate 1gbit]
                         [--rounds 2] [--steps 8] [--model MODEL] [--batch 1]

Every worker is a process in a network namespace of its own (tests/net/netns.sh), so it needs root, and build/frugrad-mpi.
The methods run in turn in every round, so that other load affects all of them. "alone" exchanges nothing. The
methods are read from `frugrad compare --plan`. With --out the records are appended to DIR/runs.jsonl. On a
machine with fewer cores than workers the workers share them, so compression costs more than on a cluster.
"""
import argparse
import fcntl
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LINKS = {"1gbit": "1 Gbit/s", "10gbit": "10 Gbit/s", "100mbit": "100 Mbit/s"}


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build/release")
    p.add_argument("--out", help="directory of a comparison")
    p.add_argument("--suite", default="paper")
    p.add_argument("--methods", help="only these, and dense and alone")
    p.add_argument("--workers", type=int, default=4)
    p.add_argument("--rate", default="1gbit", help="of every link, in the words of tc")
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--steps", type=int, default=8)
    p.add_argument("--model", default="gpt2:layers=6,width=384,heads=6,length=64,dropout=0")
    p.add_argument("--batch", type=int, default=1)
    return p.parse_args()


def methods_of(a):
    """(id, label, options) of every method, from the language task of the smallest size."""
    plan = subprocess.run([os.path.join(a.build, "frugrad"), "compare", "--suite", a.suite, "--size", "smoke", "--tasks",
                           "gpt2-rules", "--plan"], check=True, capture_output=True, text=True).stdout
    found = [("alone", "no exchange", ["--alone"])]
    for name, label, command in re.findall(r"^# gpt2-rules, (\S+): (.*)\n(frugrad train .*)$", plan, re.M):
        words = shlex.split(command, comments=True)
        options = [w for flag in ("--method", "--optimizer") if flag in words for w in (flag, words[words.index(flag) + 1])]
        found.append((name, label, options))
    wanted = a.methods.split(",") if a.methods else None
    for name in wanted or []:
        if name not in [f[0] for f in found]:
            sys.exit(f"compare_net: suite {a.suite} has no method {name}")
    return [f for f in found if wanted is None or f[0] in wanted or f[0] in ("alone", "dense")]


def measure(a, options):
    """Median milliseconds of a step and the command, or None and why not."""
    words = ["train", "--model", a.model, "--data", "builtin", "--batch", str(a.batch), "--threads", "1", "--no-eval",
             "--steps", str(a.steps), *options]
    command = [os.path.join(HERE, "tests", "net", "netns.sh"), "-q", "-p", str(a.workers), "-r", a.rate,
               os.path.abspath(os.path.join(a.build, "frugrad-mpi")), *words, "--json", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        sys.exit(f"compare_net: {done.stderr.strip()}")
    try:
        return json.loads(done.stdout), shlex.join(["mpirun", "-n", str(a.workers), "frugrad", *words])
    except ValueError:
        said = [line for line in done.stderr.splitlines() if line.startswith("frugrad: ")]
        return None, (said or ["no result"])[-1]


def environment(a, version):
    text = subprocess.run([os.path.join(a.build, "frugrad"), "inspect", "--json"], check=True, capture_output=True, text=True)
    machine = json.loads(text.stdout)
    system = platform.uname()
    return {"version": version, "commit": None, "cpu": machine["cpu"], "cores": machine["cpus"],
            "system": f"{system.system} {system.release} {system.machine}"}


def append(path, records):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "a+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # `frugrad compare` holds it while it writes
        if file.seek(0, os.SEEK_END) > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                sys.exit(f"compare_net: {path} ends in half a line; frugrad compare cuts it off")
        file.write("".join(json.dumps(r) + "\n" for r in records).encode())


def main():
    a = arguments()
    methods, times, said = methods_of(a), {}, {}
    for turn in range(a.rounds):
        for name, _, options in methods:
            result, text = measure(a, options)
            print(f"compare_net: round {turn + 1}, {name}: {result['step_ms']:.0f} ms" if result else
                  f"compare_net: round {turn + 1}, {name}: {text}", file=sys.stderr)
            if result:
                times.setdefault(name, []).append(result["step_ms"])
                said[name] = (text, result["version"])
    records = [{"format": 1, "kind": "speed", "suite": a.suite, "method": name, "label": label, "model": a.model,
                "workers": a.workers, "link": LINKS.get(a.rate, a.rate), "step_ms": times[name],
                "environment": environment(a, said[name][1]), "command": said[name][0]}
               for name, label, _ in methods if name in times]
    if a.out:
        append(os.path.join(a.out, "runs.jsonl"), records)
    dense = statistics.median(times["dense"]) if "dense" in times else None
    print("| method | step ms | times faster than dense |\n|---|---:|---:|")
    for r in records:
        ms = statistics.median(r["step_ms"])
        print(f"| {r['label']} | {ms:.0f} | {f'{dense / ms:.2f}' if dense else ''} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())

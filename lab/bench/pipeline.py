#!/usr/bin/env python3
"""Steps of pipeline stages over slow links: floats against frames, as records of JSON.

    lab/bench/pipeline.py [--build build/release] [--out FILE] [--stages 2,4] [--rate 1gbit] [--rounds 3] [--steps 6]
                          [--model gpt2-mini] [--batch 32] [--accumulate 8] [--configs 'dense;density=1,value=int8']

Every stage is a process in a network namespace of its own (tests/net/netns.sh), so it needs root, and build/frugrad-mpi.
Configs take turns in every round, so that other load affects all of them. Configs are separated by semicolons.
`wire` is the time from the length of a message to its last byte, of the messages that stage 0 receives in a step. It
depends on the load of the machine: bytes that arrive while the stage computes count nothing, and a stage that waits for
a core counts as waiting for bytes. The limit of a link also lets 128 KB through at once after a pause. `link` depends on
none of this: what the busiest link carried in one direction, with the headers of all layers and what MPI sends, over its
rate, by the kernel's counters.
"""
import argparse
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys

# Open MPI moves a longer message on only while its sender is in MPI, and a stage that has sent computes.
EAGER = ["--mca", "btl_tcp_eager_limit", "8388608"]
HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", default="build/release")
    p.add_argument("--out", help="file to append records to")
    p.add_argument("--stages", default="2,4")
    p.add_argument("--rate", default="1gbit", help="of every link, in the words of tc")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=6)
    p.add_argument("--model", default="gpt2-mini")
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--accumulate", type=int, default=8)
    p.add_argument("--configs", default="dense;density=1,value=int8")
    return p.parse_args()


def bytes_per_second(rate):
    """Of a rate in the words of tc."""
    number, unit = re.fullmatch(r"(\d+)([kmg])bit", rate).groups()
    return int(number) * {"k": 1e3, "m": 1e6, "g": 1e9}[unit] / 8


def measure(a, stages, config):
    """The summary of a run, its command, and the bytes that the busiest link carried."""
    words = ["train", "--model", a.model, "--batch", str(a.batch), "--accumulate", str(a.accumulate), "--threads", "1",
             "--no-eval", "--steps", str(a.steps), "--stages", str(stages), "--stage-config", config]
    command = [os.path.join(HERE, "tests", "net", "netns.sh"), "-p", str(stages), "-r", a.rate, "--", *EAGER,
               os.path.abspath(os.path.join(a.build, "frugrad-mpi")), *words, "--json", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"pipeline: {done.stderr.strip()}")
    carried = max(map(int, re.findall(r"netns: worker \d+ sent (\d+) bytes", done.stderr)))
    return json.loads(done.stdout), shlex.join(["mpirun", "-n", str(stages), "frugrad", *words]), carried


def main():
    a = arguments()
    records = {}
    for turn in range(a.rounds):
        for stages in map(int, a.stages.split(",")):
            for config in a.configs.split(";"):
                run, command, carried = measure(a, stages, config)
                r = records.setdefault((stages, config), {
                    "model": a.model, "stages": stages, "config": config, "rate": a.rate, "command": command,
                    "bytes": run["bytes_sent"], "bytes_dense": run["bytes_dense"], "steps": a.steps,
                    "system": f"{platform.system()} {platform.machine()}", "step_ms": [], "wire_ms": [], "link_ms": []})
                r["step_ms"].append(run["step_ms"])
                r["wire_ms"].append(run["time_ms"]["wire"])
                r["link_ms"].append(1e3 * carried / a.steps / bytes_per_second(a.rate))
                print(f"pipeline: round {turn + 1}, {stages} stages, {config}: step {run['step_ms']:.0f} ms, wire "
                      f"{r['wire_ms'][-1]:.1f} ms, link {r['link_ms'][-1]:.1f} ms", file=sys.stderr)
    print("| stages | config | bytes | link ms | wire ms | step ms |\n|---|---|---:|---:|---:|---:|")
    for (stages, config), r in records.items():
        dense = records[(stages, "dense")] if (stages, "dense") in records else r
        cells = [f"{dense['bytes'] / r['bytes']:.2f} x less"]
        for name in ("link_ms", "wire_ms"):
            mine = statistics.median(r[name])
            cells.append(f"{mine:.1f}, {statistics.median(dense[name]) / mine:.2f} x less")
        print(f"| {stages} | `{config}` | {' | '.join(cells)} | {statistics.median(r['step_ms']):.0f} |")
    if a.out:
        with open(a.out, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(r) + "\n" for r in records.values())
    return 0


if __name__ == "__main__":
    sys.exit(main())

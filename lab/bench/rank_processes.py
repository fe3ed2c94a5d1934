"""Processes of torch.distributed on this machine, and what a turn of some steps costs them: for scripts that measure."""
import json
import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist

from loopback_port import free_port


def loopback():
    """Variables for processes that meet over the loopback interface."""
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "GLOO_SOCKET_IFNAME": "lo"}


def spawn(world):
    """This script again in a process per rank, over loopback; ends the others when one fails."""
    env = dict(os.environ, **loopback(), WORLD_SIZE=str(world), OMP_NUM_THREADS="1")
    jobs = []
    try:
        jobs = [subprocess.Popen([sys.executable] + sys.argv, env=dict(env, RANK=str(r), LOCAL_RANK=str(r)))
                for r in range(world)]
        while any(job.poll() is None for job in jobs) and not any(job.poll() for job in jobs):
            time.sleep(0.2)
    finally:
        for job in jobs:
            if job.poll() is None:
                job.kill()
    return max(abs(job.wait()) for job in jobs)


def append(path, lines):
    """Add objects to a file of JSON lines."""
    with open(path, "a", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)


def sent():
    """Bytes that were sent through the interface. Loopback is shared by all processes: each gets an equal share."""
    device = os.environ["GLOO_SOCKET_IFNAME"]
    with open(f"/sys/class/net/{device}/statistics/tx_bytes", encoding="ascii") as file:
        return int(file.read()) / (dist.get_world_size() if device == "lo" else 1)


def turn(step, steps):
    """Milliseconds of a step in the slowest process; of processor time and bytes sent, the mean over processes."""
    dist.barrier()
    before, busy, start = sent(), time.process_time(), time.perf_counter()
    for _ in range(steps):
        step()
    ms, cpu = 1000 * (time.perf_counter() - start) / steps, 1000 * (time.process_time() - busy) / steps
    slowest = torch.tensor([ms], dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    dist.barrier()
    means = torch.tensor([cpu, (sent() - before) / steps], dtype=torch.float64)
    dist.all_reduce(means)
    cpu, load = (means / dist.get_world_size()).tolist()
    return slowest.item(), cpu, load

"""A process that has imported PyTorch and makes copies of itself: support.torchrun() has its workers from here.

To import PyTorch takes seconds of each process, to fork one that has done so takes milliseconds. Nothing but imports
happens before a fork: no thread runs, and no test module, process group or library of FruGrad is there yet.

Each line of stdin is a request in JSON: a list of workers with their environment, argv and the file for what they
print. Each is answered on stdout by a line with the process ids, each its own process group, and, as they end, by a
line with the rank and the exit status (negative: a signal) of every one.
"""

import importlib
import json
import os
import runpy
import sys
from typing import Any, Dict

import run

PRELOAD = ("numpy", "torch", "torch.distributed", "torch.nn.parallel")


def become(worker: Dict[str, Any]) -> int:
    """In the copy: be the process that was asked for, as if the interpreter had just been started."""
    with open(worker["output"], "wb") as output, open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(write_through=True)
    os.environ.clear()
    os.environ.update(worker["env"])
    if worker["argv"][0] == "--worker":
        return run.work(*worker["argv"][1:])
    sys.argv = worker["argv"]
    sys.path[0] = os.path.dirname(sys.argv[0])
    runpy.run_path(sys.argv[0], run_name="__main__")
    return 0


def serve() -> int:
    for name in PRELOAD:
        try:
            importlib.import_module(name)
        except ImportError:
            pass  # the tests that need it are skipped
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    for line in iter(sys.stdin.readline, ""):
        ranks = {}
        for rank, worker in enumerate(json.loads(line)):
            pid = os.fork()
            if pid == 0:
                answers.close()
                return become(worker)
            os.setpgid(pid, pid)
            ranks[pid] = rank
        print(json.dumps(list(ranks)), file=answers)
        while ranks:
            pid, status = os.wait()
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            print(json.dumps([ranks.pop(pid), code]), file=answers)
    return 0


if __name__ == "__main__":
    sys.exit(serve())

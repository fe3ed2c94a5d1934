"""A process that has imported PyTorch and forks the workers of support.torchrun().

Importing PyTorch takes seconds per process; forking one that has imported it takes milliseconds. Nothing but imports
happens before a fork: no thread is running, and no test module, process group or FruGrad library is loaded.

Each line of stdin is a request in JSON: a list of workers with their environment, argv and output file. The answer on
stdout is a line with the process ids (each process is its own process group) and, as each worker ends, a line with its
rank and exit status (negative: a signal).
"""

import atexit
import importlib
import json
import os
import runpy
import sys
import threading
from typing import Any, Dict

import run

PRELOAD = ["numpy", "torch", "torch.distributed", "torch.nn.parallel",
           *os.environ.get("FRUGRAD_TEST_PRELOAD", "").split()]


def run_worker(worker: Dict[str, Any]) -> int:
    """In the forked process: run the requested worker as if the interpreter had just been started."""
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


def end_process(code: int) -> None:
    """End a worker after its exit handlers. To take PyTorch's modules apart would take half a second more."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


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
                end_process(run_worker(worker))
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

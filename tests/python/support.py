"""What the Python tests share: modules that may be missing, places, and groups of processes that cannot hang.

A test module is tests/python/test_*.py with unittest cases. CTest runs it as `run.py test_name`, where a module that
skips everything is reported as skipped; `python3 -m unittest discover tests/python` runs all of them too. Both need
PYTHONPATH=python and FRUGRAD_LIBRARY, or an installed package.
"""

import importlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Union

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent.parent
PROGRAM = os.environ.get("FRUGRAD", "")  # the command-line program, where CTest runs the tests


def need(name: str):
    """Import a module, or skip the test module that asks for it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise unittest.SkipTest(f"{name} is missing ({error})")


class Worker(NamedTuple):
    """How one process of a group ended."""

    rank: int
    code: Optional[int]  # None: it was killed when the time was up
    output: str  # stdout and stderr
    value: Any  # what the function returned, as far as JSON can say it; None if it did not get there


def free_port() -> int:
    """A port of the loopback that nobody listens on; below those that the system hands out to outgoing connections."""
    while True:
        port = random.SystemRandom().randrange(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def torchrun(n: int, what: Union[Callable, str, Path], timeout: float = 60, grace: float = 30,
             args: Sequence[str] = (), env: Optional[Dict[str, str]] = None) -> List[Worker]:
    """Run n processes as torchrun would, for the backend gloo on the loopback; none outlives the call.

    what     a function of a test module's top level, called with args as strings, or the path of a script
    timeout  seconds for all of them
    grace    seconds that the others may go on after one has failed
    """
    if callable(what):
        command = [str(HERE / "run.py"), "--worker", what.__module__, what.__qualname__]
    else:
        command = [str(what)]
    common = dict(os.environ, WORLD_SIZE=str(n), LOCAL_WORLD_SIZE=str(n), MASTER_ADDR="127.0.0.1",
                  MASTER_PORT=str(free_port()), GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1", PYTHONUNBUFFERED="1")
    common["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    common.update(env or {})
    with tempfile.TemporaryDirectory(prefix="frugrad-test-") as folder:
        processes = []
        try:
            for rank in range(n):
                own = dict(common, RANK=str(rank), LOCAL_RANK=str(rank), FRUGRAD_TEST_VALUE=f"{folder}/{rank}.json")
                with open(f"{folder}/{rank}.out", "wb") as output:
                    processes.append(subprocess.Popen([sys.executable, *command, *map(str, args)], env=own,
                                                      stdin=subprocess.DEVNULL, stdout=output,
                                                      stderr=subprocess.STDOUT, start_new_session=True))
            codes = _wait(processes, timeout, grace)
        finally:
            for process in processes:
                _end(process)
        return [Worker(rank, codes[rank], Path(folder, f"{rank}.out").read_text(errors="replace"),
                       _value(Path(folder, f"{rank}.json"))) for rank in range(n)]


def _wait(processes: List[subprocess.Popen], timeout: float, grace: float) -> List[Optional[int]]:
    end = time.monotonic() + timeout
    while True:
        codes = [process.poll() for process in processes]
        if None not in codes:
            return codes
        if any(codes):
            end = min(end, time.monotonic() + grace)
            grace = timeout  # only the first failure counts
        if time.monotonic() >= end:
            return codes
        time.sleep(0.02)


def _end(process: subprocess.Popen) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _value(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None


def values(workers: List[Worker]) -> List[Any]:
    """What all workers returned; where one failed or was killed, an AssertionError with what they all said."""
    if any(worker.code != 0 for worker in workers):
        said = "\n".join(f"--- rank {w.rank}, exit status {w.code}\n{w.output}" for w in workers)
        raise AssertionError(f"workers failed\n{said}")
    return [worker.value for worker in workers]

"""Helpers of the Python tests: optional modules, paths, and groups of processes that cannot hang.

A test module is tests/python/test_*.py with unittest cases. CTest runs it as `run.py test_name`, where a module that
skips everything is reported as skipped; `python3 -m unittest discover tests/python` runs all of them too. Both need
PYTHONPATH=python and FRUGRAD_LIBRARY, or an installed package.
"""

import atexit
import importlib
import importlib.util
import json
import os
import random
import select
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


def has(name: str) -> bool:
    """Whether a module is there to import."""
    return importlib.util.find_spec(name) is not None


class Worker(NamedTuple):
    """How one process of a group ended."""

    rank: int
    code: Optional[int]  # None: it was killed when the time was up
    output: str  # stdout and stderr
    value: Any  # what the function returned, through JSON; None if it did not return


def free_port() -> int:
    """A free port of the loopback interface, below the ephemeral range of the system."""
    while True:
        port = random.SystemRandom().randrange(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def torchrun(n: int, what: Union[Callable, str, Path], timeout: float = 60, grace: float = 30,
             args: Sequence[str] = (), env: Optional[Dict[str, str]] = None, fresh: bool = False) -> List[Worker]:
    """Run n processes as torchrun would, for the backend gloo on the loopback; none outlives the call.

    what     a function of a test module's top level, called with args as strings, or the path of a script
    timeout  seconds for all of them
    grace    seconds that the others may continue after one has failed
    fresh    whether each is an interpreter of its own, which takes seconds more and orders sets in its own way, as
             with torchrun; else they are forks of one that has imported PyTorch (see fork_server.py)
    """
    argv = ["--worker", what.__module__, what.__qualname__] if callable(what) else [str(what)]
    argv += map(str, args)
    common = dict(_environment(), WORLD_SIZE=str(n), LOCAL_WORLD_SIZE=str(n), MASTER_ADDR="127.0.0.1",
                  MASTER_PORT=str(free_port()), GLOO_SOCKET_IFNAME="lo", **(env or {}))
    with tempfile.TemporaryDirectory(prefix="frugrad-test-") as folder:
        workers = [dict(argv=argv, output=f"{folder}/{rank}.out",
                        env=dict(common, RANK=str(rank), LOCAL_RANK=str(rank),
                                 FRUGRAD_TEST_VALUE=f"{folder}/{rank}.json")) for rank in range(n)]
        group = (_Interpreters if fresh else _Forks)(workers)
        try:
            codes = _wait(group, timeout, grace)
        finally:
            group.end()
        return [Worker(rank, codes[rank], Path(folder, f"{rank}.out").read_text(errors="replace"),
                       _value(Path(folder, f"{rank}.json"))) for rank in range(n)]


def _environment() -> Dict[str, str]:
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return dict(os.environ, OMP_NUM_THREADS="1", PYTHONUNBUFFERED="1", PYTHONPATH=path)


class _Interpreters:
    """A group of processes, each a new interpreter."""

    def __init__(self, workers: List[Dict[str, Any]]):
        self.processes = []
        for worker in workers:
            script = [str(HERE / "run.py")] if worker["argv"][0] == "--worker" else []
            with open(worker["output"], "wb") as output:
                self.processes.append(subprocess.Popen([sys.executable, *script, *worker["argv"]], env=worker["env"],
                                                       stdin=subprocess.DEVNULL, stdout=output,
                                                       stderr=subprocess.STDOUT, start_new_session=True))

    def codes(self, seconds: float) -> List[Optional[int]]:
        """The exit status of each process, None while it runs; may wait for this many seconds."""
        time.sleep(seconds)
        return [process.poll() for process in self.processes]

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


class _Forks:
    """A group of processes that are forks of fork_server.py."""

    server: Optional[subprocess.Popen] = None  # runs until its stdin is closed at exit

    def __init__(self, workers: List[Dict[str, Any]]):
        if _Forks.server is None:
            _Forks.server = subprocess.Popen([sys.executable, "-B", str(HERE / "fork_server.py")], env=_environment(),
                                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
            atexit.register(_Forks.server.communicate)
        _Forks.server.stdin.write(json.dumps(workers).encode() + b"\n")
        _Forks.server.stdin.flush()
        self.left = dict(enumerate(self._answer()))
        self.ended: List[Optional[int]] = [None] * len(workers)

    @staticmethod
    def _answer() -> List[int]:
        """One line, read byte by byte so that select() reports whether there is more."""
        line = b""
        while not line.endswith(b"\n"):
            byte = os.read(_Forks.server.stdout.fileno(), 1)
            if not byte:
                raise RuntimeError("fork_server.py ended")
            line += byte
        return json.loads(line)

    def codes(self, seconds: float) -> List[Optional[int]]:
        while self.left and select.select([_Forks.server.stdout], [], [], seconds)[0]:
            rank, code = self._answer()
            del self.left[rank]
            self.ended[rank] = code
        return list(self.ended)

    def end(self) -> None:
        for pid in self.left.values():
            os.killpg(pid, signal.SIGKILL)
        while self.left:
            self.codes(1)


def _wait(group: Union[_Interpreters, _Forks], timeout: float, grace: float) -> List[Optional[int]]:
    end = time.monotonic() + timeout
    while True:
        codes = group.codes(0.02)
        if None not in codes:
            return codes
        if any(codes):
            end = min(end, time.monotonic() + grace)
            grace = timeout  # only the first failure counts
        if time.monotonic() >= end:
            return codes


def _value(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None


def values(workers: List[Worker]) -> List[Any]:
    """The values of all workers; where one failed or was killed, an AssertionError with the output of all."""
    if any(worker.code != 0 for worker in workers):
        output = "\n".join(f"--- rank {w.rank}, exit status {w.code}\n{w.output}" for w in workers)
        raise AssertionError(f"workers failed\n{output}")
    return [worker.value for worker in workers]

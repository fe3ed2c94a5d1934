"""A process group of PyTorch as a transport of the library's reducer.

The reducer (``frug_reducer`` of frugrad.h) compresses, exchanges and adds up; here are only its messages, which c10d
sends and receives. So a config means the same in the hook as in C, and every algorithm of ``reduce=`` is there.

Messages are point-to-point, with tags of their own: they need no order relative to the collectives that DDP and the
script start on the same group from another thread. gloo cannot test whether a send or receive has completed without
failing the whole group, so the transport has ``exchange``, which blocks, in place of ``test``.
"""

import ctypes
from ctypes import byref
from typing import Any, Callable, Dict, List, Optional

import torch
import torch.distributed as dist

from .. import _lib
from .._core import Compressor, Config, Layout, number
from .._lib import CommError, FrugradError, Owned, lib
from .exchange import cause

_TAG = 0x46720000  # of our messages: those of a script on the same group are numbered from 0

_view = ctypes.pythonapi.PyMemoryView_FromMemory
_view.argtypes, _view.restype = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int), ctypes.py_object
_WRITABLE = 0x200  # PyBUF_WRITE


def _tensor(address: int, n: int, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
    """Memory of the library as a tensor; valid while the library keeps it."""
    return torch.frombuffer(_view(address, n, _WRITABLE), dtype=dtype)


def host_group(group: Any, device: torch.device) -> Any:
    """The group itself where it can send from the host; otherwise a gloo group of the same ranks. Collective."""
    if device.type == "cpu":
        return group
    if group is dist.group.WORLD:
        return dist.new_group(backend="gloo")
    options: Dict[str, Any] = {"backend": "gloo", "use_local_synchronization": True}
    try:
        return dist.new_group(dist.get_process_group_ranks(group), **options)
    except (AttributeError, TypeError):
        raise RuntimeError("this config is exchanged over the host, and the process group cannot send from there: make"
                           " it with backend 'cpu:gloo,cuda:nccl', or use PyTorch 2.1 or later") from None


class _Channel:
    """The callbacks. An exception must not pass through C: it is kept, and the library gets its text."""

    def __init__(self, group: Any):
        self.group = group
        self.error: Optional[BaseException] = None
        self._posted: Dict[int, Any] = {}  # c10d's Work by handle
        self._last = 0

    def _start(self, m: _lib.Message) -> Any:
        start = self.group.send if m.sending else self.group.recv
        return start([_tensor(m.data, m.bytes)], m.peer, _TAG + m.tag)

    def post(self, _ctx: Any, message: Any) -> int:
        """Start a message."""
        m = message.contents
        try:
            self._last += 1
            self._posted[self._last] = self._start(m) if m.bytes else None
            m.handle = self._last
            return 0
        except BaseException as error:
            return self._fail(error, m.peer)

    def exchange(self, _ctx: Any, messages: Any, n: int) -> int:
        """Start the messages that are not posted, then wait for all that are not complete."""
        peer = -1
        try:
            works = []
            for i in range(n):
                m = messages[i]
                if not m.done:
                    handle, peer = m.handle, m.peer
                    works.append((peer, self._posted.pop(handle) if handle else self._start(m) if m.bytes else None))
            for peer, work in works:
                if work is not None:
                    work.wait()
            return 0
        except BaseException as error:
            return self._fail(error, peer)

    def _fail(self, error: BaseException, peer: int) -> int:
        self._posted.clear()
        self.error = self.error or error
        text = f"comm: rank {peer} does not answer, because it has ended or is late: {cause(error)}"
        return lib.frug_set_last_error(_lib.ERR_COMM, text.encode(errors="replace"))


class Comm(Owned):
    """A group of the library over a process group. One thread at a time uses it."""

    _destroy = "frug_comm_destroy"

    def __init__(self, group: Any, rank: int, size: int):
        self.rank, self.size = rank, size
        self._channel = _Channel(group)
        # The library calls and reads these as long as the group lives.
        self._post, self._exchange = _lib.POST(self._channel.post), _lib.EXCHANGE(self._channel.exchange)
        self._name = b"c10d"
        transport = _lib.Transport(name=self._name, any_thread=1, post=self._post, exchange=self._exchange)
        super().__init__(lib.frug_comm_create, byref(transport), None, rank, size)

    def failure(self) -> Optional[BaseException]:
        """The exception that a callback raised first, if one did."""
        return self._channel.error


class _ReducerCompressor(Compressor):
    """The compressor inside a reducer, which owns it."""

    _destroy = ""

    def __init__(self, reducer: "Reducer"):
        self.config, self.layout, self._reducer = reducer.config, reducer.layout, reducer
        self.handle = lib.frug_reducer_compressor(reducer.handle)

    def __del__(self) -> None:
        self.handle = None


_ABANDONED: List["Reducer"] = []  # reducers whose messages may be under way still


class Reducer(Owned):
    """One worker's end of an exchange. Collective: all ranks make it, with the same config and layout."""

    _destroy = "frug_reducer_destroy"

    def __init__(self, config: Config, layout: Layout, total_steps: int, threads: int, comm: Comm):
        self.config, self.layout, self.comm = config, layout, comm
        self.error: Optional[BaseException] = None
        self._last = _lib.BucketStats()
        options = _lib.Options(threads=number(threads, 31, "threads"),
                               total_steps=number(total_steps, 64, "total_steps"))
        self._guarded(super().__init__, lib.frug_reducer_create, config.handle, layout.handle, byref(options),
                      comm.handle)

    def _guarded(self, function: Callable, *arguments: Any) -> None:
        try:
            function(*arguments)
        except FrugradError as error:
            self.error = error
            if isinstance(error, CommError):
                _ABANDONED.append(self)  # c10d may still write into its buffers
            raise error from self.comm.failure()

    def compressor(self) -> Compressor:
        """The reducer's compressor, to save, restore and look at between exchanges."""
        return _ReducerCompressor(self)

    @property
    def algorithm(self) -> str:
        """The name of the algorithm, also where the config has reduce=auto."""
        return lib.frug_reducer_algorithm(self.handle).decode()

    def sum(self, step: int, begin: int, count: int, values: int, scale: float) -> _lib.ReduceStats:
        """In place: values become scale * (rank 0's + rank 1's + ...) of what all ranks send. Returns its times.

        After an error every later call raises the same one: all ranks have raised it, and none is waiting.
        """
        if self.error is not None:
            raise self.error
        self._guarded(lib.frug_reducer_sum, self.handle, step, _lib.Range(begin, count), values, scale)
        lib.frug_reducer_bucket(self.handle, 0, byref(self._last))
        return self._last.stats

    def fail(self, step: int, begin: int, count: int, error: BaseException) -> None:
        """Take part in an exchange with nothing but an error, so that the others raise instead of waiting."""
        if self.error is None:
            self.error = error
            lib.frug_reducer_fail(self.handle, step, _lib.Range(begin, count), f"{type(error).__name__}: {error}".encode())

"""The thread that runs the exchanges of buckets, times of buckets, and error texts in frames.

On a GPU a rank whose compressor fails still takes part, with a frame that has its error text, so that the others do not
wait: all ranks raise that error where the bucket's future is waited for.
"""

import contextlib
import queue
import threading
import weakref
from time import perf_counter
from typing import Any, Callable, Iterable, List, Optional, Tuple, Union

import torch

from .._lib import RemoteError

_MARK = b"FAIL"


def mark_failure(frame: torch.Tensor, error: BaseException) -> None:
    """Write an error text into a frame."""
    frame.zero_()
    text = (_MARK + f"{type(error).__name__}: {error}".encode())[:max(frame.numel() - 1, 0)]
    if text:
        frame[:len(text)] = torch.tensor(list(text), dtype=torch.uint8)


def failure_in(frame: torch.Tensor) -> Optional[str]:
    """The error text in a frame, or None."""
    if bytes(frame[:len(_MARK)].tolist()) != _MARK:
        return None
    return bytes(frame[len(_MARK):512].tolist()).split(b"\0")[0].decode(errors="replace")


def raise_failure(frames: Iterable[torch.Tensor]) -> None:
    """Raise the first error text in frames, which are in rank order."""
    for rank, frame in enumerate(frames):
        text = failure_in(frame)
        if text is not None:
            raise RemoteError(f"rank {rank} failed: {text}") from None


class ExchangeThread:
    """A thread that runs the exchanges of buckets in order."""

    def __init__(self) -> None:
        self._jobs: "queue.SimpleQueue" = queue.SimpleQueue()
        thread = threading.Thread(target=_run, args=(self._jobs,), name="frugrad", daemon=True)
        thread.start()
        # Also at exit: a thread that is inside PyTorch when the interpreter ends takes the process down.
        weakref.finalize(self, _stop, self._jobs, thread)

    def submit(self, job: Callable[[], None], result: torch.Tensor) -> torch.futures.Future:
        """Run a job later; the future gets ``result``, or the job's exception."""
        future, release = self.prepare(job, result)
        release()
        return future

    def prepare(self, job: Callable[[], None], result: torch.Tensor, around: Callable[[], Any] = contextlib.nullcontext,
             here: bool = False) -> Tuple[torch.futures.Future, Callable[[], None]]:
        """The same for a job that is not ready yet: the second result is a function that queues it.

        around   a context for the job. If it sets a stream, the stream that waits for the future waits for that one
        here     that function runs the job itself, because the job only puts work onto streams
        """
        devices: List[Union[int, str, torch.device]] = [result.device] if result.is_cuda else []
        done: torch.futures.Future = torch.futures.Future(devices=devices)
        outcome: List[Optional[BaseException]] = []

        def unwrap(_: torch.futures.Future) -> torch.Tensor:
            # An exception of a callback reaches DDP as an error; set_exception() would be an odd value to it.
            if outcome[0] is not None:
                raise outcome[0]
            return result

        item = (job, done, outcome, result, around)
        return done.then(unwrap), (lambda: _do(item)) if here else (lambda: self._jobs.put(item))

    def wait_all(self) -> None:
        """Wait until all jobs are done."""
        reached = threading.Event()
        self._jobs.put((reached.set, None, [], None, contextlib.nullcontext))
        reached.wait()


def _run(jobs: "queue.SimpleQueue") -> None:
    while True:
        item = jobs.get()
        if item is None:
            return
        _do(item)
        del item


def _do(item: tuple) -> None:
    job, done, outcome, result, around = item
    with around():
        try:
            job()
            outcome.append(None)
        except BaseException as error:  # raised where the bucket is waited for
            outcome.append(error)
        if done is not None:
            done.set_result(result if outcome[0] is None else None)  # on a GPU: also a mark on the current stream


def _stop(jobs: "queue.SimpleQueue", thread: threading.Thread) -> None:
    jobs.put(None)
    if threading.current_thread() is not thread:
        thread.join()


class Times:
    """Seconds of a bucket by stage, and its bytes."""

    __slots__ = ("calls", "bytes_sent", "bytes_dense", "compress", "wait", "decode", "python")

    def __init__(self) -> None:
        self.calls = self.bytes_sent = self.bytes_dense = 0
        self.compress = self.wait = self.decode = self.python = 0.0

    def as_dict(self) -> dict:
        return {name: getattr(self, name) for name in self.__slots__}


class Clock:
    """Adds the time of a block to one field of a Times."""

    __slots__ = ("times", "field", "begun")

    def __init__(self, times: Times, field: str):
        self.times, self.field = times, field

    def __enter__(self) -> None:
        self.begun = perf_counter()

    def __exit__(self, *_: Any) -> None:
        setattr(self.times, self.field, getattr(self.times, self.field) + perf_counter() - self.begun)

"""Federated training of any model, with a training loop of its own: state dicts in, state dicts out.

State dicts are those of PyTorch, or any dicts of tensors or NumPy arrays. Server and clients speak as ``frugrad serve``
and ``frugrad join`` do (docs/federated.md). Here one process has a server, and a client in a thread:

>>> import tempfile, threading, numpy as np, frugrad.federated
>>> folder = tempfile.TemporaryDirectory()
>>> line = frugrad.federated.keygen(folder.name + "/alice")
>>> _ = open(folder.name + "/clients.txt", "w").write(line)
>>> def train():
...     with frugrad.federated.Client(f"127.0.0.1:{server.port}", key=folder.name + "/alice", server=server.key) as alice:
...         alice.join({"w": np.zeros(4, np.float32)}, examples=100)
...         for weights in alice:                       # of every round, until the run ends
...             weights["w"] -= 0.1 * (weights["w"] - 3)  # training
...             alice.push(weights, loss=float(abs(weights["w"] - 3).mean()))
>>> start = {"w": np.zeros(4, np.float32)}
>>> with frugrad.federated.Server(start, clients=folder.name + "/clients.txt", directory=folder.name + "/run", rounds=2,
...                               listen="127.0.0.1:0", config="dense") as server:
...     server.start()
...     client = threading.Thread(target=train)
...     client.start()
...     weights = server.wait()
...     client.join()
>>> print(weights["w"].round(2))
[0.57 0.57 0.57 0.57]
>>> folder.cleanup()
"""

import json
import logging
import math
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from ctypes import (CFUNCTYPE, POINTER, addressof, byref, c_char_p, c_double, c_float, c_int, c_size_t, c_uint64, c_void_p,
                    memmove, sizeof)
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Tuple, Union

from . import _lib
from ._core import c_text, number
from ._lib import CommError, FrugradError, MismatchError, Owned, Sized
from ._state_dict import FlatState, State

__all__ = ["Client", "Server", "keygen"]

_log = logging.getLogger(__name__)

Path = Union[str, "os.PathLike[str]"]
_MODEL = "python"  # the model of a job with tensors of its own; the program refuses it by this word
_JOB_BYTES = 60000  # with more the tensors are left out: a message has 64 KiB

_LOG = CFUNCTYPE(None, c_void_p, c_char_p)
_STOPPED = CFUNCTYPE(c_int, c_void_p)


class _Round(Sized):
    _fields_ = [("struct_size", c_size_t), ("round", c_uint64), ("rounds", c_uint64), ("updates", c_uint64),
                ("bytes_up", c_uint64), ("changes", c_uint64), ("loss", c_double), ("seconds", c_double),
                ("eval_loss", c_double), ("eval_accuracy", c_double)]


_ROUND = CFUNCTYPE(None, c_void_p, POINTER(_Round), POINTER(c_float), c_uint64)


class _ClientOptions(Sized):
    _fields_ = [("struct_size", c_size_t), ("server", c_char_p), ("key", c_char_p), ("server_key", c_char_p),
                ("directory", c_char_p), ("patience", c_double), ("ctx", c_void_p), ("log", _LOG),
                ("is_stopped", _STOPPED)]


class _ServerOptions(Sized):
    _fields_ = [("struct_size", c_size_t), ("listen", c_char_p), ("key", c_char_p), ("clients", c_char_p),
                ("directory", c_char_p), ("layout", c_void_p), ("weights", c_void_p), ("job", c_char_p),
                ("optimizer", c_char_p), ("down", c_char_p), ("robust", c_char_p), ("rate", c_double),
                ("deadline", c_double), ("stale_power", c_double), ("trim", c_double), ("linger", c_double),
                ("rounds", c_uint64), ("quorum", c_uint64), ("stale", c_uint64), ("threads", c_int), ("ctx", c_void_p),
                ("log", _LOG), ("round", _ROUND)]


_FUNCTIONS: Dict[str, Any] = {
    "frug_federated_keygen": [c_char_p, c_char_p],
    "frug_federated_default_config": ([], c_char_p),
    "frug_federated_client_open": [POINTER(_ClientOptions), POINTER(c_void_p)],
    "frug_federated_client_close": ([c_void_p], None),
    "frug_federated_client_job": ([c_void_p], c_char_p),
    "frug_federated_client_rounds": ([c_void_p], c_uint64),
    "frug_federated_client_join": [c_void_p, c_void_p, c_uint64],
    "frug_federated_client_pull": [c_void_p, c_void_p, POINTER(c_uint64), POINTER(c_int)],
    "frug_federated_client_push": [c_void_p, c_void_p, c_double, POINTER(c_int)],
    "frug_federated_client_traffic": ([c_void_p, POINTER(c_uint64), POINTER(c_uint64)], None),
    "frug_federated_server_create": [POINTER(_ServerOptions), POINTER(c_void_p)],
    "frug_federated_server_destroy": ([c_void_p], None),
    "frug_federated_server_port": ([c_void_p], c_int),
    "frug_federated_server_key": ([c_void_p], c_char_p),
    "frug_federated_server_run": [c_void_p],
    "frug_federated_server_stop": ([c_void_p], None),
    "frug_federated_server_is_done": ([c_void_p], c_int),
    "frug_federated_server_weights": ([c_void_p, c_void_p, POINTER(c_uint64)], None),
}

try:
    _lib_federated = _lib.open_beside("federated")
except ImportError as missing:
    raise ImportError(f"{missing}; it is built where OpenSSL 3 and jansson are found (on Debian, packages libssl-dev and"
                      " libjansson-dev), and needs them at run time") from None
_lib.declare(_lib_federated, _FUNCTIONS)


def _path(path: Path, what: str) -> bytes:
    return c_text(os.fspath(path), what)


def _note(_ctx: Any, line: bytes) -> None:
    _log.info("%s", line.decode(errors="replace"))


class _Object(Owned):
    """An object of libfrugrad_federated."""

    def close(self) -> None:
        """End it; also done by ``with``."""
        handle = self.__dict__.pop("handle", None)
        if handle:
            getattr(_lib_federated, self._destroy)(handle)

    def __getattr__(self, name: str) -> Any:
        if name == "handle":
            raise FrugradError(f"the {type(self).__name__.lower()} is closed")
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __del__(self) -> None:
        self.close()

    def __exit__(self, *_error: Any) -> None:
        self.close()


def keygen(path: Path, name: Optional[str] = None) -> str:
    """Write a private key to a file, which must not exist, and the public one to FILE.pub.

    name   in lists and logs; None: the file's name

    Returns the line of FILE.pub, for the list of the server.

    >>> import tempfile, frugrad.federated
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     line = frugrad.federated.keygen(folder + "/bob")
    >>> line.startswith("ed25519:"), line.endswith("= bob\\n")
    (True, True)
    """
    name = os.path.basename(os.fspath(path)) if name is None else name
    _lib_federated.frug_federated_keygen(_path(path, "the file"), c_text(name, "the name"))
    with open(os.fspath(path) + ".pub", encoding="utf-8") as file:
        return file.read()


def _job(flat: FlatState, config: str, settings: Mapping[str, Any]) -> bytes:
    job = {"model": _MODEL, "config": config, "settings": dict(settings),
           "tensors": [[t.name, list(t.shape)] for t in flat.tensors]}
    if len(json.dumps(job)) > _JOB_BYTES:
        del job["tensors"]
    return json.dumps(job, sort_keys=True).encode()


def _tensors(job: Mapping[str, Any]) -> Optional[Dict[str, Tuple[int, ...]]]:
    """The shapes of the run's tensors by name, where the job has them. It comes from the server, and may be anything."""
    try:
        return {str(name): tuple(shape) for name, shape in job["tensors"]}
    except (KeyError, TypeError, ValueError):
        return None


def _difference(own: Mapping[str, Tuple[int, ...]], run: Mapping[str, Tuple[int, ...]]) -> Optional[str]:
    for name, shape in run.items():
        if name not in own:
            return f"it has no '{name}'"
        if own[name] != shape:
            return f"'{name}' has shape {own[name]}, and {shape} in the run"
    extra = [name for name in own if name not in run]
    return f"the run has no '{extra[0]}'" if extra else None


class Client(_Object):
    """One client of a federated run: gets weights, trains on its own data, sends what has changed.

    address     HOST:PORT of the server
    key         file of its private key, from ``keygen``; the server must list FILE.pub
    server      the server's public key, "ed25519:...", or a file with it
    directory   for its residual and an update in flight: with them a client that was killed continues with the same
                bits. None: KEY.state
    patience    seconds to try to reach the server

    Connects at once; ``settings`` then has what the server tells its clients. Ctrl-C ends every wait.

    ``with Client(...) as client:`` and ``client.join(model.state_dict(), examples=len(data))``, then::

        for weights in client:
            model.load_state_dict(weights)
            loss = train(model)                    # some steps: any optimizer, any loop
            client.push(model.state_dict(), loss)
        model.load_state_dict(client.weights())    # the result of the run

    A client that trains the same way from the same weights has the same bits after a restart. Use it from one thread
    at a time.
    """

    _destroy = "frug_federated_client_close"

    def __init__(self, address: str, *, key: Path, server: Path, directory: Optional[Path] = None,
                 patience: float = 600.0):
        self._stop = False
        self._worker = ThreadPoolExecutor(1, "frugrad-client")  # where calls wait, so that Ctrl-C is noticed
        self._flat: Optional[FlatState] = None
        self.round: Optional[int] = None  # the round of weights()
        directory = os.fspath(key) + ".state" if directory is None else directory
        self._options = _ClientOptions(server=c_text(address, "the address"), key=_path(key, "the key"),
                                       server_key=_path(server, "the server's key"),
                                       directory=_path(directory, "the directory"), patience=patience,
                                       log=_LOG(_note), is_stopped=_STOPPED(lambda _ctx: self._stop))
        self._wait(super().__init__, _lib_federated.frug_federated_client_open, byref(self._options))
        try:
            job = json.loads(_lib_federated.frug_federated_client_job(self.handle))
        except (ValueError, RecursionError):  # join() refuses what is not from a Server
            job = None
        self._job: Dict[str, Any] = job if isinstance(job, dict) else {}
        self.rounds: int = _lib_federated.frug_federated_client_rounds(self.handle)

    def __enter__(self) -> "Client":
        return self

    def _wait(self, call: Callable, *arguments: Any) -> Any:
        done = self._worker.submit(call, *arguments)
        try:
            return done.result()
        except KeyboardInterrupt:
            self._stop = True
            done.exception()  # ends soon
            self._stop = False
            raise

    def close(self) -> None:
        """Leave the run; also done by ``with``."""
        if "_worker" in self.__dict__:
            self._stop = True
            self._worker.shutdown()  # a call that still waits ends soon
        super().close()

    @property
    def settings(self) -> Dict[str, Any]:
        """What the server tells its clients: its argument ``settings``. Not more to be trusted than the server is."""
        settings = self._job.get("settings")
        return settings if isinstance(settings, dict) else {}

    def join(self, model: Mapping[str, Any], examples: int) -> None:
        """Join with a model.

        model      its state dict: floating-point tensors must have the names and shapes of the run, in any order (in
                   the same one where the names need more than 60 kB)
        examples   training examples of this client: its weight in the mean

        Raises MismatchError for another model than that of the run.
        """
        flat, run = FlatState(model), _tensors(self._job)
        shapes = {tensor.name: tensor.shape for tensor in flat.tensors}
        wrong = _difference(shapes, run) if run is not None else None
        if wrong:
            wrong = f"this is not the model of the run: {wrong}; make the model that the server was started with"
        elif self._job.get("model") != _MODEL:
            wrong = f"the run trains '{self._job.get('model')}' with 'frugrad serve': join it with 'frugrad join'"
        if run is not None and not wrong:
            flat = FlatState(model, list(run))
        try:
            self._wait(_lib_federated.frug_federated_client_join, self.handle, flat.layout.handle,
                       number(examples, 64, "examples"))
        except CommError:
            if not wrong:
                raise
        if wrong:  # the server has it in its log as well
            raise MismatchError(wrong)
        self._flat, self._pulled, self._trained = flat, flat.buffer(), flat.buffer()

    def _joined(self) -> FlatState:
        if self._flat is None:
            raise FrugradError("join() comes first")
        return self._flat

    def pull(self) -> Optional[State]:
        """Wait for the next round and get its weights, as a new state dict; None when the run has ended."""
        self._joined()
        round, more = c_uint64(), c_int()
        self._wait(_lib_federated.frug_federated_client_pull, self.handle, self._pulled, byref(round), byref(more))
        self.round = round.value
        return self.weights() if more.value else None

    def __iter__(self) -> Iterator[State]:
        while True:
            weights = self.pull()
            if weights is None:
                return
            yield weights

    def weights(self) -> State:
        """The weights of the last pull(): after the end of the run, its result."""
        if self.round is None:
            raise FrugradError("pull() comes first")
        return self._joined().read(self._pulled)

    def push(self, state: Mapping[str, Any], loss: float = math.nan) -> bool:
        """Send what has changed since pull(), compressed.

        state   the model's state dict after training
        loss    mean over the steps, for display

        Returns whether the update counts; an update that came too late does not, and is sent with the next one.
        """
        flat, counted = self._joined(), c_int()
        if self.round is None:
            raise FrugradError("pull() comes first")
        flat.write(state, self._trained, self._pulled)
        self._wait(_lib_federated.frug_federated_client_push, self.handle, self._trained, loss, byref(counted))
        return bool(counted.value)

    def traffic(self) -> Tuple[int, int]:
        """Bytes of messages that were sent and received."""
        sent, received = c_uint64(), c_uint64()
        _lib_federated.frug_federated_client_traffic(self.handle, byref(sent), byref(received))
        return sent.value, received.value


class Server(_Object):
    """The server of a federated run.

    model        state dict to start from; a run that is in the directory continues with its own weights
    clients      file with the lines of the clients' .pub files; read again when it changes
    directory    of the run: weights, state, status.json, rounds.jsonl. A server that was killed continues from it with
                 the same bits, when it is made with the same arguments
    listen       HOST:PORT, or a port; port 0 is any free one
    key          file of the private key; None: DIRECTORY/server.key, made when missing
    rounds       of the run
    settings     for the clients, such as the rate and the steps of a round: anything that JSON can hold
    config       how clients compress their updates; None: the signs of the largest 3.6 %
    optimizer    average, momentum, adam, muon, or an optimizer of the library; rate: its learning rate
    quorum       updates without which a round does not close; None: half of the clients
    deadline     seconds after which a round closes with a quorum
    stale        how many rounds an update may be late; stale_power: its weight is (1 + rounds) ** -stale_power
    robust       mean; clip: norms limited to their median; trim: also a mean without the share ``trim`` at each end
    down         config that compresses the server's step as well, for less to download
    threads      that check updates
    linger       seconds after the last round in which clients may get its weights
    evaluate     function of a state dict that returns loss and accuracy, called after every round, on another thread

    Listens at once, and serves from start() to the end of the run. Lines about it are logged to "frugrad.federated".
    Tensors that are not of floating point stay as they are in ``model``.
    """

    _destroy = "frug_federated_server_destroy"

    def __init__(self, model: Mapping[str, Any], *, clients: Path, directory: Path, listen: str = "7700",
                 key: Optional[Path] = None, rounds: int = 10, settings: Optional[Mapping[str, Any]] = None,
                 config: Optional[str] = None, optimizer: str = "average", rate: Optional[float] = None,
                 quorum: Optional[int] = None, deadline: float = 600.0, stale: int = 1, stale_power: float = 0.5,
                 robust: str = "clip", trim: float = 0.1, down: Optional[str] = None, threads: int = 2,
                 linger: float = 30.0, evaluate: Optional[Callable[[State], Tuple[float, float]]] = None):
        self._flat, self._evaluate, self._directory = FlatState(model), evaluate, os.fspath(directory)
        self._weights = self._flat.buffer()
        self._thread: Optional[threading.Thread] = None
        self._failure: Optional[Exception] = None
        self._flat.write(model, self._weights)
        config = _lib_federated.frug_federated_default_config().decode() if config is None else config
        self._options = _ServerOptions(
            listen=c_text(listen, "listen"), key=None if key is None else _path(key, "the key"),
            clients=_path(clients, "the list of clients"), directory=_path(directory, "the directory"),
            layout=self._flat.layout.handle, weights=addressof(self._weights),
            job=_job(self._flat, config, settings or {}), optimizer=c_text(optimizer, "the optimizer"),
            down=None if down is None else c_text(down, "down"), robust=c_text(robust, "robust"), rate=rate or 0,
            deadline=deadline, stale_power=stale_power, trim=trim, linger=linger, rounds=number(rounds, 32, "rounds"),
            quorum=0 if quorum is None else number(quorum, 32, "quorum"), stale=number(stale, 32, "stale"),
            threads=number(threads, 10, "threads"), log=_LOG(_note), round=_ROUND(self._close_round))
        super().__init__(_lib_federated.frug_federated_server_create, byref(self._options))

    def __enter__(self) -> "Server":
        return self

    def close(self) -> None:
        """Stop and end it; also done by ``with``. A server with the same arguments continues the run."""
        if "handle" in self.__dict__:
            self.stop()
        super().close()

    @property
    def port(self) -> int:
        """The port in use."""
        return _lib_federated.frug_federated_server_port(self.handle)

    @property
    def key(self) -> str:
        """The public key, "ed25519:...", which clients need."""
        return _lib_federated.frug_federated_server_key(self.handle).decode()

    def _close_round(self, _ctx: Any, report: Any, weights: Any, count: int) -> None:
        """Called by the library after every round, on a thread of its own."""
        r = report.contents
        if self._evaluate is not None:
            try:
                memmove(self._weights, weights, count * sizeof(c_float))
                r.eval_loss, r.eval_accuracy = map(float, self._evaluate(self._flat.read(self._weights)))
            except Exception:  # of the caller's function; the run continues
                _log.exception("round %d was not evaluated", r.round + 1)
        _log.info("round %d/%d  loss %.4f  evaluated %.4f, accuracy %.4f  %d updates, %d bytes, %.1f s", r.round + 1,
                  r.rounds, r.loss, r.eval_loss, r.eval_accuracy, r.updates, r.bytes_up, r.seconds)

    def _serve(self) -> None:
        try:
            _lib_federated.frug_federated_server_run(self.handle)
        except Exception as error:
            self._failure = error

    def start(self) -> None:
        """Serve, on a thread of its own."""
        if self._thread is not None:
            raise FrugradError("the server was started before; make another one to continue the run")
        self._thread = threading.Thread(target=self._serve, name="frugrad-server")
        self._thread.start()

    def stop(self) -> None:
        """End serving soon, and wait for that."""
        _lib_federated.frug_federated_server_stop(self.handle)
        if self._thread is not None:
            self._thread.join()

    def wait(self) -> State:
        """Wait for the end of the run, and return its weights."""
        if self._thread is None:
            raise FrugradError("start() comes first")
        self._thread.join()
        if self._failure is not None:
            raise self._failure
        return self.weights()

    def run(self) -> State:
        """Serve until the end of the run, and return its weights."""
        self.start()
        return self.wait()

    def _idle(self) -> None:
        if self._thread is not None and self._thread.is_alive():
            raise FrugradError("the server runs: stop() or wait() comes first")

    @property
    def done(self) -> bool:
        """Whether all rounds have closed; not while the server runs."""
        self._idle()
        return bool(_lib_federated.frug_federated_server_is_done(self.handle))

    def weights(self) -> State:
        """The weights, as a new state dict; not while the server runs."""
        self._idle()
        round = c_uint64()
        _lib_federated.frug_federated_server_weights(self.handle, self._weights, byref(round))
        return self._flat.read(self._weights)

    def status(self) -> Dict[str, Any]:
        """The state of the run, at most a second old: round, clients, bytes, history; empty before start()."""
        try:
            with open(os.path.join(self._directory, "status.json"), encoding="utf-8") as file:
                return json.load(file)
        except FileNotFoundError:
            return {}

"""Compression of NumPy arrays."""

from collections import Counter
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

try:
    import numpy as np
except ImportError as error:
    raise ImportError("frugrad.Compressor works on NumPy arrays, and NumPy is not installed") from error

from . import _core
from ._core import Config, Layout, Tensor, address, as_bytes, number

ONLY = "gradient"  # the name of a tensor that is alone


def _shape(of: Any, name: str) -> Tuple[int, ...]:
    """The shape of an array, or a shape itself."""
    shape = getattr(of, "shape", of)
    try:
        return tuple(number(n, 48, f"{name}: an extent") for n in ((shape,) if np.ndim(shape) == 0 else shape))
    except TypeError:
        raise TypeError(f"{name}: neither an array nor a shape but {type(of).__name__}") from None


def _is_shape(like: Any) -> bool:
    whole = (int, np.integer)
    return isinstance(like, whole) or (isinstance(like, (tuple, list)) and all(isinstance(n, whole) for n in like))


def _tensor(of: Any, name: str) -> Tensor:
    return of._replace(name=name, offset=None) if isinstance(of, Tensor) else Tensor(name, _shape(of, name))


def _tensors(pairs: Iterable[Tuple[Any, Any]], named: bool) -> List[Tensor]:
    """The tensors of a dict, by its keys, or of a list, by their own names or numbers."""
    made = [_tensor(x, x.name if isinstance(x, Tensor) and not named else str(key)) for key, x in pairs]
    twice = [name for name, times in Counter(t.name for t in made).items() if times > 1]
    if twice:
        raise ValueError(f"two tensors are named '{twice[0]}'")
    return made


def _float32(x: Any, shape: Tuple[int, ...], name: str) -> "np.ndarray":
    """An array as contiguous float32 of the machine's byte order: itself where it is one, otherwise a copy."""
    x = np.asarray(x)
    if x.shape != shape:
        raise ValueError(f"{name} has shape {x.shape}; the compressor was made for {shape}")
    if not np.can_cast(x.dtype, np.float32, "same_kind"):
        raise TypeError(f"{name} has dtype {x.dtype}, which is no kind of real number")
    with np.errstate(over="ignore"):
        return np.require(x, np.float32, ["C", "A"])


class Compressor:
    """One worker's compressor: what it has not sent yet, for one array or several.

    like          what gradients look like: an array or a shape; a dict or a list of arrays or shapes (of several
                  tensors); or a Layout, for a flat array of all its tensors. In a dict a ``Tensor`` says what a
                  parameter is for (its role, its heads). An only tensor of one dimension is taken as one row, so
                  that it is compressed; beside others it is sent whole.
    config        a config string, or a Config
    total_steps   length of training, for schedules
    threads       0: as many as OpenMP would use
    rank          this worker's, recorded in its frames

    Gradients go in and come out as ``like``. float32 arrays in C order are used in place (several are copied into one
    buffer); other real dtypes, orders and byte orders are converted to float32, rounding to nearest; a number beyond
    float32 becomes infinite, and its block is skipped. Same inputs give the same bytes on every machine.

    >>> import numpy as np
    >>> gradient = np.random.default_rng(0).standard_normal((100, 256), np.float32)
    >>> compressor = Compressor((100, 256), "frugrad")
    >>> frame = compressor.compress(gradient, step=0)
    >>> len(frame) * 15 < gradient.nbytes
    True
    >>> compressor.decompress([frame]).shape
    (100, 256)
    """

    def __init__(self, like: Any, config: Union[str, Config] = "frugrad", total_steps: int = 0, threads: int = 1,
                 rank: int = 0):
        self._names: List[str] = []  # of a dict or a list
        self._dict = isinstance(like, Mapping)
        self._several = False
        self._whole: Tuple[int, ...] = ()  # the shape of the only array
        if isinstance(like, Layout):
            self.layout, self._whole = like, (like.elements,)
        elif self._dict or (isinstance(like, (tuple, list)) and not isinstance(like, Tensor) and not _is_shape(like)):
            tensors = _tensors(like.items() if self._dict else enumerate(like), self._dict)
            self._names, self.layout = [t.name for t in tensors], Layout(tensors)
            self._several = True
        else:
            tensor = _tensor(like, like.name if isinstance(like, Tensor) else ONLY)
            self._whole = tensor.shape
            self.layout = Layout([tensor if len(tensor.shape) > 1 else tensor._replace(shape=(1, tensor.elements))])
        self.tensors = [self.layout[i] for i in range(len(self.layout))]
        self.config = config if isinstance(config, Config) else Config(config)
        self._core = _core.Compressor(self.config, self.layout, total_steps, threads, rank)
        self._count = self.layout.elements
        self._room: Optional[np.ndarray] = None  # for a frame, and for several tensors side by side
        self._buffer: Optional[np.ndarray] = None

    @property
    def shape(self) -> Optional[Tuple[int, ...]]:
        """The shape of the only array; None of several."""
        return None if self._several else self._whole

    def _views(self, flat: "np.ndarray") -> List["np.ndarray"]:
        return [flat[t.place].reshape(t.shape) for t in self.tensors]

    def _listed(self, arrays: Any, what: str) -> List[Any]:
        """The arrays of a dict or a list, in the order of the layout."""
        if self._dict:
            if not isinstance(arrays, Mapping):
                raise TypeError(f"{what} must be a dict of arrays by name, not {type(arrays).__name__}")
            wrong = [f"'{n}' is missing" for n in self._names if n not in arrays]
            wrong += [f"'{n}' is not known" for n in arrays if n not in set(self._names)]
            if wrong:
                raise ValueError(f"{what}: {', '.join(wrong)}")
            return [arrays[n] for n in self._names]
        if len(arrays) != len(self._names):
            raise ValueError(f"{what}: {len(arrays)} arrays; the compressor was made for {len(self._names)}")
        return list(arrays)

    def _flat(self, grad: Any) -> "np.ndarray":
        if not self._several:
            return _float32(grad, self._whole, "the gradient")
        given = self._listed(grad, "the gradient")
        if self._buffer is None:
            self._buffer = np.zeros(self._count, np.float32)
        ready = [_float32(x, t.shape, f"the gradient of '{t.name}'") for x, t in zip(given, self.tensors)]
        for view, x in zip(self._views(self._buffer), ready):
            view[...] = x
        return self._buffer

    def _shaped(self, flat: "np.ndarray") -> Any:
        if not self._several:
            return flat.reshape(self._whole)
        return dict(zip(self._names, self._views(flat))) if self._dict else self._views(flat)

    def compress(self, grad: Any, step: int) -> bytes:
        """Add the residual to a gradient, select, and return the frame to send. Once per step; steps count from 0."""
        step, flat = number(step, 64, "the step"), self._flat(grad)
        if self._room is None:
            self._room = np.empty(self._core.bound(0, self._count), np.uint8)
        length = self._core.compress(step, 0, self._count, flat.ctypes.data, self._room.ctypes.data, self._room.size)
        return self._room[:length].tobytes()

    def decompress(self, frames: Union[bytes, Sequence[bytes]], out: Any = None, scale: Optional[float] = None) -> Any:
        """The scaled sum of several workers' frames, added in the order given; zeros where nothing was sent.

        frames   the frames of one step, or one frame; untrusted, and checked whole before anything else happens
        out      float32 arrays in C order, as gradients are given, that get the result; None: new ones
        scale    None: one over the number of frames, for the mean

        Raises FormatError for bytes that are no frames, MismatchError for those of another layout.
        """
        if isinstance(frames, (bytes, bytearray, memoryview, np.ndarray)):
            frames = [frames]
        data = [as_bytes(frame, f"frame {i}") for i, frame in enumerate(frames)]
        if not data:
            raise ValueError("there is no frame to decompress")
        targets = None if out is None else self._targets(out)
        flat = np.zeros(self._count, np.float32)
        self._core.decode_add([address(d) for d in data], [len(d) for d in data],
                                  1 / len(data) if scale is None else scale, 0, self._count, flat.ctypes.data)
        result = self._shaped(flat)
        if targets is None:
            return result
        for target, view in zip(targets, self._views(flat) if self._several else [result]):
            target[...] = view
        return out

    def _targets(self, out: Any) -> List["np.ndarray"]:
        if not self._several:
            given, shapes, names = [out], [self._whole], ["out"]
        else:
            given, shapes = self._listed(out, "out"), [t.shape for t in self.tensors]
            names = [f"out of '{t.name}'" for t in self.tensors]
        for x, shape, name in zip(given, shapes, names):
            if not isinstance(x, np.ndarray) or x.dtype != np.float32 or not x.flags.writeable:
                raise TypeError(f"{name} must be a float32 array that can be written to")
            if x.shape != shape:
                raise ValueError(f"{name} has shape {x.shape}; the compressor was made for {shape}")
        return given

    def residual(self) -> Any:
        """The residual, in the form in which gradients are given."""
        flat = np.zeros(self._count, np.float32)
        self._core.get_residual(0, self._count, flat.ctypes.data)
        return self._shaped(flat)

    def save(self) -> bytes:
        """The state with which a compressor of the same config and layout continues bit for bit."""
        return self._core.save()

    def restore(self, state: bytes) -> None:
        """Restore a saved state. Raises FormatError or MismatchError, and then nothing has changed."""
        self._core.restore(state)

    def stats(self) -> Dict[str, Any]:
        """Totals since it was made: bytes_sent, bytes_dense, density_mean, energy_sent_mean, seconds_compress, ..."""
        return self._core.stats()

    def plan(self, step: int) -> Dict[str, Dict[str, Any]]:
        """What a step would send of each tensor: dense, unit, units, selected, density, ..."""
        step = number(step, 64, "the step")
        return {t.name: self._core.plan(step, i) for i, t in enumerate(self.tensors)}

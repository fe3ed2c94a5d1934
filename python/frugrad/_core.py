"""The library's objects over bare addresses: shared by the modules for NumPy and PyTorch.

An address is an integer (``array.ctypes.data``, ``tensor.data_ptr()``); the caller makes sure that the memory
is float32, contiguous, long enough and alive during the call.
"""

import ctypes
import operator
from ctypes import byref, c_size_t, c_uint64, c_void_p
from typing import Any, Callable, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from . import _lib
from ._lib import Owned, Range, lib


class Tensor(NamedTuple):
    """One tensor of a flat buffer.

    >>> Tensor("attn.q", (64, 64), "attn_q", heads=4).elements
    4096
    """

    name: str
    shape: Tuple[int, ...]
    role: str = "other"
    offset: Optional[int] = None  # None: after the last one
    heads: int = 0
    kv_heads: int = 0
    module: int = 0
    input_first: bool = False

    @property
    def elements(self) -> int:
        count = 1
        for n in self.shape:
            count *= n
        return count

    @property
    def begin(self) -> int:
        """The offset, in a layout, which sets it."""
        return self.offset or 0

    @property
    def place(self) -> slice:
        """The elements of the flat buffer, in a layout."""
        return slice(self.begin, self.begin + self.elements)


def number(value: int, bits: int, what: str) -> int:
    """A whole number that fits; ctypes would truncate one that does not."""
    value = operator.index(value)
    if not 0 <= value < 2**bits:
        raise ValueError(f"{what} is {value}; it must lie between 0 and 2^{bits} - 1")
    return value


def c_text(value: str, what: str) -> bytes:
    """A text for C, which ends at a zero byte."""
    if "\0" in value:
        raise ValueError(f"{what} has a zero byte in it")
    return value.encode()


def as_bytes(buffer: Any, what: str) -> bytes:
    """Bytes as they are, a copy of any other buffer."""
    if type(buffer) is bytes:
        return buffer
    try:
        return memoryview(buffer).tobytes()
    except TypeError:
        raise TypeError(f"{what} must be bytes or a buffer of bytes, not {type(buffer).__name__}") from None


def address(buffer: bytes) -> int:
    """The address of bytes, which must stay alive."""
    return ctypes.cast(ctypes.c_char_p(buffer), c_void_p).value or 0


def _role_names() -> Tuple[str, ...]:
    names: List[str] = []
    while True:
        name = lib.frug_role_name(len(names))
        if name is None:
            return tuple(names)
        names.append(name.decode())


ROLES = _role_names()


class Config(Owned):
    """How gradients are compressed: ``[preset][,option=value]...``

    With the text of an optimizer the preset ``frugrad`` means frugrad-sgd, frugrad-adam or frugrad-muon, whichever goes with it.

    >>> config = Config("frugrad,schedule=constant:0.99", optimizer="adam")
    >>> config.option("schedule"), config.option("hold")
    ('constant:0.99', 'adam')
    """

    _destroy = "frug_config_destroy"

    def __init__(self, text: str = "frugrad", optimizer: Optional[str] = None):
        if optimizer is None:
            super().__init__(lib.frug_config_create, c_text(text, "the config"))
        else:
            super().__init__(lib.frug_config_create_for, c_text(text, "the config"),
                             c_text(optimizer, "the optimizer"))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Config, (self.text,)

    @property
    def text(self) -> str:
        """The config with every option."""
        return lib.frug_config_text(self.handle).decode()

    def option(self, name: str) -> str:
        """The value of one option.

        >>> Config("dgc,value=int8").option("value")
        'int8'
        """
        value = lib.frug_config_get(self.handle, name.encode())
        if value is None:
            raise KeyError(name)
        return value.decode()


class Layout(Owned):
    """The tensors of a flat buffer, by ascending offset.

    >>> layout = Layout([Tensor("weight", (10, 20)), Tensor("bias", (20,))])
    >>> len(layout), layout.elements, layout[1].offset
    (2, 220, 200)
    """

    _destroy = "frug_layout_destroy"

    def __init__(self, tensors: Iterable[Tensor]):
        super().__init__(lib.frug_layout_create)
        for t in tensors:
            if t.role not in ROLES:
                raise ValueError(f"{t.name}: '{t.role}' is no role; there are {', '.join(ROLES)}")
            if len(t.shape) > _lib.MAX_DIMS:
                raise ValueError(f"{t.name} has {len(t.shape)} dimensions; {_lib.MAX_DIMS} are the most")
            shape = [number(n, 64, f"{t.name}: an extent") for n in t.shape]
            raw = _lib.Tensor(name=c_text(t.name, "a tensor's name"), role=ROLES.index(t.role), ndim=len(shape),
                              shape=(c_uint64 * _lib.MAX_DIMS)(*shape),
                              offset=_lib.APPEND if t.offset is None else number(t.offset, 64, f"{t.name}: the offset"),
                              heads=number(t.heads, 32, f"{t.name}: heads"),
                              kv_heads=number(t.kv_heads, 32, f"{t.name}: kv_heads"),
                              module=number(t.module, 32, f"{t.name}: the module"), input_first=int(t.input_first))
            lib.frug_layout_add(self.handle, byref(raw))

    def __len__(self) -> int:
        return lib.frug_layout_count(self.handle)

    def __getitem__(self, i: int) -> Tensor:
        raw = _lib.Tensor()
        if not 0 <= i < len(self):
            raise IndexError(i)
        lib.frug_layout_get(self.handle, i, byref(raw))
        return Tensor(raw.name.decode(), tuple(raw.shape[:raw.ndim]), ROLES[raw.role], raw.offset, raw.heads,
                      raw.kv_heads, raw.module, bool(raw.input_first))

    def __iter__(self) -> Iterator[Tensor]:
        return map(self.__getitem__, range(len(self)))

    @property
    def elements(self) -> int:
        return lib.frug_layout_elements(self.handle)

    @property
    def hash(self) -> int:
        return lib.frug_layout_hash(self.handle)


def _saved(size: Callable, save: Callable, handle: Any) -> bytes:
    room = size(handle)
    buffer, length = ctypes.create_string_buffer(room), c_size_t()
    save(handle, ctypes.addressof(buffer), room, byref(length))
    return buffer.raw[:length.value]


def _restore(restore: Callable, handle: Any, state: bytes) -> None:
    state = as_bytes(state, "a state")
    restore(handle, address(state), len(state))


class Compressor(Owned):
    """One worker's compressor over addresses."""

    _destroy = "frug_compressor_destroy"

    def __init__(self, config: Config, layout: Layout, total_steps: int = 0, threads: int = 1, source: int = 0):
        self.config, self.layout = config, layout
        options = _lib.Options(threads=number(threads, 31, "threads"),
                               total_steps=number(total_steps, 64, "total_steps"),
                               source=number(source, 32, "the rank"))
        super().__init__(lib.frug_compressor_create, config.handle, layout.handle, byref(options))

    def bound(self, begin: int, count: int) -> int:
        """The largest size of a frame of a range, at any step."""
        size = c_size_t()
        lib.frug_compressor_bound(self.handle, Range(begin, count), byref(size))
        return size.value

    def compress(self, step: int, begin: int, count: int, grad: int, dst: int, room: int) -> int:
        """Write one frame and return its length."""
        length = c_size_t()
        lib.frug_compress(self.handle, step, Range(begin, count), grad, dst, room, byref(length))
        return length.value

    def decode_add(self, frames: Sequence[int], lengths: Sequence[int], scale: float, begin: int, count: int,
                       dst: int) -> None:
        """dst += scale * (sum of the frames)."""
        n = len(frames)
        lib.frug_decode_add(lib.frug_compressor_decoder(self.handle), Range(begin, count), (c_void_p * n)(*frames),
                            (c_size_t * n)(*lengths), n, scale, dst)

    def get_residual(self, begin: int, count: int, dst: int) -> None:
        lib.frug_compressor_get_residual(self.handle, Range(begin, count), dst)

    def set_residual(self, begin: int, count: int, src: int) -> None:
        lib.frug_compressor_set_residual(self.handle, Range(begin, count), src)

    def plan(self, step: int, tensor: int) -> dict:
        """What a step would send of one tensor."""
        plan = _lib.Plan()
        lib.frug_compressor_plan(self.handle, step, tensor, byref(plan))
        return dict(plan.as_dict(), unit=plan.unit.decode())

    def save(self) -> bytes:
        return _saved(lib.frug_compressor_state_size, lib.frug_compressor_save, self.handle)

    def restore(self, state: bytes) -> None:
        _restore(lib.frug_compressor_restore, self.handle, state)

    def stats(self) -> dict:
        stats = _lib.Stats()
        lib.frug_compressor_stats(self.handle, byref(stats))
        return stats.as_dict()


class Optimizer(Owned):
    """One of the library's optimizers over addresses."""

    _destroy = "frug_optimizer_destroy"

    def __init__(self, text: str, layout: Layout, compressor: Optional[Compressor] = None):
        self.layout = layout
        super().__init__(lib.frug_optimizer_create, c_text(text, "the optimizer"), layout.handle,
                         compressor.handle if compressor else None)

    @property
    def text(self) -> str:
        return lib.frug_optimizer_text(self.handle).decode()

    @property
    def states(self) -> int:
        """The number of state values of the optimizer."""
        return lib.frug_optimizer_state_count(self.handle)

    def gain(self, rate: float) -> float:
        """The factor by which the optimizer multiplies this rate."""
        return lib.frug_optimizer_gain(self.handle, rate)

    def can_split(self, tensor: int) -> bool:
        """Whether step() accepts ranges that end inside a tensor."""
        return bool(lib.frug_optimizer_can_split(self.handle, tensor))

    def step(self, step: int, begin: int, count: int, grad: int, rate: float, weights: int) -> None:
        lib.frug_optimizer_step(self.handle, step, Range(begin, count), grad, rate, weights)

    def measure_count(self, step: int, begin: int, count: int) -> int:
        """The number of floats that a worker sends of a range."""
        return lib.frug_optimizer_measure_count(self.handle, step, Range(begin, count))

    def measure(self, step: int, begin: int, count: int, grad: int, measured: int) -> None:
        lib.frug_optimizer_measure(self.handle, step, Range(begin, count), grad, measured)

    def step_measured(self, step: int, begin: int, count: int, measured: int, rate: float, weights: int) -> None:
        lib.frug_optimizer_step_measured(self.handle, step, Range(begin, count), measured, rate, weights)

    def times(self) -> dict:
        times = _lib.OptimizerTimes()
        lib.frug_optimizer_time(self.handle, byref(times))
        return times.as_dict()

    def save(self) -> bytes:
        return _saved(lib.frug_optimizer_state_size, lib.frug_optimizer_save, self.handle)

    def restore(self, state: bytes) -> None:
        _restore(lib.frug_optimizer_restore, self.handle, state)

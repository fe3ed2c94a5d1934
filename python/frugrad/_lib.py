"""The C library as Python sees it: where it is found, its structures, its functions, its errors.

Nothing here knows about arrays or PyTorch; pointers are integers. ctypes releases the interpreter's lock while a call
runs, so compression and waiting do not stop other threads.
"""

import ctypes
import os
from ctypes import (CDLL, CFUNCTYPE, POINTER, Structure, byref, c_char, c_char_p, c_double, c_float, c_int, c_size_t,
                    c_uint32, c_uint64, c_void_p)
from pathlib import Path
from typing import Any, Callable, Dict, List

VERSION = "1.0"  # major.minor of the library this package goes with

MAX_DIMS = 8
APPEND = 2**64 - 1
INDEX_CODES = 8


class FrugradError(RuntimeError):
    """A call of the library failed; the text is the library's own sentence."""


class ConfigError(FrugradError, ValueError):
    """A config string or an optimizer's text was not understood."""


class FormatError(FrugradError, ValueError):
    """Bytes from outside are not what they should be: damaged, cut short, or of another version."""


class MismatchError(FrugradError, ValueError):
    """Sound bytes, but for another layout or config."""


class RemoteError(FrugradError):
    """Another rank failed, or ranks disagree: all of them get this, with the rank's own error text."""


class CommError(FrugradError):
    """A message could not be sent or received."""


ERR_COMM = -10

_ERRORS = {-1: FrugradError, -2: MemoryError, -3: ConfigError, -5: FormatError, -6: FormatError, -7: FormatError,
           -8: MismatchError, -9: RemoteError, ERR_COMM: CommError}


class Sized(Structure):
    """A structure whose first field is its size, as the library wants it."""

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        self.struct_size = ctypes.sizeof(self)

    def as_dict(self) -> dict:
        return {name: getattr(self, name) for name, *_ in self._fields_ if name != "struct_size"}


class Range(Structure):
    """Elements begin .. begin + count - 1 of the flat buffer."""

    _fields_ = [("begin", c_uint64), ("count", c_uint64)]


class Tensor(Sized):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("role", c_int), ("ndim", c_uint32),
                ("shape", c_uint64 * MAX_DIMS), ("offset", c_uint64), ("heads", c_uint32), ("kv_heads", c_uint32),
                ("module", c_uint32), ("input_first", c_uint32), ("absent", c_uint32)]


class Options(Sized):
    _fields_ = [("struct_size", c_size_t), ("threads", c_int), ("total_steps", c_uint64), ("source", c_uint32)]


class Plan(Sized):
    _fields_ = [("struct_size", c_size_t), ("dense", c_int), ("unit", c_char_p), ("unit_h", c_uint64),
                ("unit_w", c_uint64), ("units", c_uint64), ("segments", c_uint64), ("selected", c_uint64),
                ("density", c_double)]


class Stats(Sized):
    _fields_ = [("struct_size", c_size_t), ("calls", c_uint64), ("bytes_sent", c_uint64), ("bytes_dense", c_uint64),
                ("entries_sent", c_uint64), ("entries_seen", c_uint64), ("blocks_skipped", c_uint64),
                ("density_now", c_double), ("density_mean", c_double), ("energy_sent_now", c_double),
                ("energy_sent_mean", c_double), ("seconds_feedback", c_double), ("seconds_select", c_double),
                ("seconds_encode", c_double), ("seconds_store", c_double), ("seconds_checksum", c_double),
                ("seconds_compress", c_double), ("seconds_decode", c_double)]


class OptimizerTimes(Sized):
    _fields_ = [("struct_size", c_size_t), ("seconds_project", c_double), ("seconds_recover", c_double),
                ("seconds_apply", c_double)]


class FrameInfo(Sized):
    _fields_ = [("struct_size", c_size_t), ("version", c_uint32), ("source", c_uint32), ("step", c_uint64),
                ("layout_hash", c_uint64), ("bytes", c_uint64), ("begin", c_uint64), ("count", c_uint64),
                ("entries", c_uint64), ("sections", c_uint32), ("skipped", c_uint32)]


class SectionInfo(Sized):
    _fields_ = [("struct_size", c_size_t), ("index", c_char_p), ("value", c_char_p), ("block", c_uint32),
                ("tensor", c_uint32), ("begin", c_uint64), ("count", c_uint64), ("entries", c_uint64),
                ("bytes", c_uint64), ("density", c_double), ("unit_h", c_uint64), ("unit_w", c_uint64),
                ("units", c_uint64), ("selected", c_uint64), ("index_bytes", c_uint64 * INDEX_CODES)]


class DeltaTensor(Sized):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("dtype", c_char_p), ("width", c_uint32),
                ("ndim", c_uint32), ("shape", c_uint64 * MAX_DIMS), ("before", c_void_p), ("after", c_void_p)]


class DeltaInfo(Sized):
    _fields_ = [("struct_size", c_size_t), ("kind", c_int), ("bytes", c_uint64), ("name", c_void_p),
                ("name_len", c_size_t), ("dtype", c_char * 16), ("width", c_uint32), ("ndim", c_uint32),
                ("shape", c_uint64 * MAX_DIMS), ("count", c_uint64), ("entries", c_uint64), ("base", c_uint64),
                ("result", c_uint64), ("body", c_void_p), ("body_len", c_uint64)]


class DeltaTotals(Structure):
    _fields_ = [("records", c_uint64), ("base", c_uint64), ("result", c_uint64)]


class CompactTensor(Sized):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("code", c_int), ("input_first", c_int),
                ("ndim", c_uint32), ("shape", c_uint64 * MAX_DIMS), ("data", c_void_p)]


class CompactInfo(Sized):
    _fields_ = [("struct_size", c_size_t), ("code", c_int), ("input_first", c_int), ("bytes", c_uint64),
                ("name", c_void_p), ("name_len", c_size_t), ("ndim", c_uint32), ("shape", c_uint64 * MAX_DIMS),
                ("count", c_uint64), ("rows", c_uint64), ("cols", c_uint64), ("entries", c_uint64),
                ("hash", c_uint64), ("body", c_void_p), ("body_len", c_uint64)]


class CompactTotals(Structure):
    _fields_ = [("records", c_uint64), ("hash", c_uint64)]


class SparseInfo(Sized):
    _fields_ = [("struct_size", c_size_t), ("rows", c_uint32), ("cols", c_uint32), ("code", c_int),
                ("form", c_char_p), ("entries", c_uint64), ("bytes", c_size_t), ("work_bytes", c_size_t)]


class Message(Structure):
    _fields_ = [("peer", c_int), ("tag", c_int), ("sending", c_int), ("data", c_void_p), ("bytes", c_size_t),
                ("handle", c_void_p), ("done", c_int)]


POST = CFUNCTYPE(c_int, c_void_p, POINTER(Message))
EXCHANGE = CFUNCTYPE(c_int, c_void_p, POINTER(Message), c_size_t)


class Transport(Sized):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("any_thread", c_int), ("post", POST),
                ("test", c_void_p), ("wait", c_void_p), ("allreduce", c_void_p), ("abandon", c_void_p),
                ("destroy", c_void_p), ("exchange", EXCHANGE)]


class ReduceStats(Sized):
    _fields_ = [("struct_size", c_size_t), ("calls", c_uint64), ("bytes_sent", c_uint64), ("bytes_received", c_uint64),
                ("seconds_compress", c_double), ("seconds_wait", c_double), ("seconds_wire", c_double),
                ("seconds_decode", c_double), ("seconds_total", c_double), ("seconds_blocked", c_double)]


class BucketStats(Sized):
    _fields_ = [("struct_size", c_size_t), ("step", c_uint64), ("begin", c_uint64), ("count", c_uint64),
                ("stats", ReduceStats)]  # type: ignore[list-item]


class Option(Structure):
    _fields_ = [("name", c_char_p), ("values", c_char_p), ("fallback", c_char_p), ("help", c_char_p)]


class Preset(Structure):
    _fields_ = [("name", c_char_p), ("text", c_char_p), ("help", c_char_p)]


class OptimizerKind(Structure):
    _fields_ = [("name", c_char_p), ("options", c_char_p), ("help", c_char_p)]


# name: (arguments, result). "status" is checked, and an error becomes an exception.
_OBJECT, _ADDRESS = c_void_p, c_void_p
_OUT = POINTER(c_void_p)
_FUNCTIONS = {
    "frug_version": ([], c_char_p),
    "frug_status_text": ([c_int], c_char_p),
    "frug_last_error": ([], c_char_p),
    "frug_memory": ([POINTER(c_uint64), POINTER(c_uint64)], None),
    "frug_isa": ([], c_char_p),
    "frug_option_at": ([c_size_t], POINTER(Option)),
    "frug_preset_at": ([c_size_t], POINTER(Preset)),
    "frug_role_name": ([c_int], c_char_p),
    "frug_index_code_at": ([c_size_t], c_char_p),
    "frug_config_create": ([c_char_p, _OUT], "status"),
    "frug_config_create_for": ([c_char_p, c_char_p, _OUT], "status"),
    "frug_config_destroy": ([_OBJECT], None),
    "frug_config_text": ([_OBJECT], c_char_p),
    "frug_config_get": ([_OBJECT, c_char_p], c_char_p),
    "frug_layout_create": ([_OUT], "status"),
    "frug_layout_destroy": ([_OBJECT], None),
    "frug_layout_add": ([_OBJECT, POINTER(Tensor)], "status"),
    "frug_layout_count": ([_OBJECT], c_size_t),
    "frug_layout_elements": ([_OBJECT], c_uint64),
    "frug_layout_get": ([_OBJECT, c_size_t, POINTER(Tensor)], "status"),
    "frug_layout_hash": ([_OBJECT], c_uint64),
    "frug_compressor_create": ([_OBJECT, _OBJECT, POINTER(Options), _OUT], "status"),
    "frug_compressor_destroy": ([_OBJECT], None),
    "frug_compressor_bound": ([_OBJECT, Range, POINTER(c_size_t)], "status"),
    "frug_compress": ([_OBJECT, c_uint64, Range, _ADDRESS, _ADDRESS, c_size_t, POINTER(c_size_t)],
                      "status"),
    "frug_decode_add": ([_OBJECT, Range, POINTER(c_void_p), POINTER(c_size_t), c_size_t, c_double, _ADDRESS], "status"),
    "frug_compressor_decoder": ([_OBJECT], _OBJECT),
    "frug_decode_apply": ([_OBJECT, Range, POINTER(c_void_p), POINTER(c_size_t), c_size_t, c_double, c_double,
                           _ADDRESS], "status"),
    "frug_compressor_set_signal": ([_OBJECT, c_int, c_size_t, POINTER(c_double), c_size_t], "status"),
    "frug_compressor_plan": ([_OBJECT, c_uint64, c_size_t, POINTER(Plan)], "status"),
    "frug_compressor_state_size": ([_OBJECT], c_size_t),
    "frug_compressor_save": ([_OBJECT, _ADDRESS, c_size_t, POINTER(c_size_t)], "status"),
    "frug_compressor_restore": ([_OBJECT, _ADDRESS, c_size_t], "status"),
    "frug_compressor_set_residual": ([_OBJECT, Range, _ADDRESS], "status"),
    "frug_compressor_get_residual": ([_OBJECT, Range, _ADDRESS], "status"),
    "frug_compressor_stats": ([_OBJECT, POINTER(Stats)], "status"),
    "frug_optimizer_at": ([c_size_t], POINTER(OptimizerKind)),
    "frug_optimizer_create": ([c_char_p, _OBJECT, _OBJECT, _OUT], "status"),
    "frug_optimizer_destroy": ([_OBJECT], None),
    "frug_optimizer_text": ([_OBJECT], c_char_p),
    "frug_optimizer_step": ([_OBJECT, c_uint64, Range, _ADDRESS, c_double, _ADDRESS], "status"),
    "frug_optimizer_measure_count": ([_OBJECT, c_uint64, Range], c_uint64),
    "frug_optimizer_measure": ([_OBJECT, c_uint64, Range, _ADDRESS, _ADDRESS], "status"),
    "frug_optimizer_step_measured": ([_OBJECT, c_uint64, Range, _ADDRESS, c_double, _ADDRESS], "status"),
    "frug_optimizer_gain": ([_OBJECT, c_double], c_double),
    "frug_optimizer_can_split": ([_OBJECT, c_size_t], c_int),
    "frug_optimizer_state_count": ([_OBJECT], c_uint64),
    "frug_optimizer_time": ([_OBJECT, POINTER(OptimizerTimes)], "status"),
    "frug_optimizer_state_size": ([_OBJECT], c_size_t),
    "frug_optimizer_save": ([_OBJECT, _ADDRESS, c_size_t, POINTER(c_size_t)], "status"),
    "frug_optimizer_restore": ([_OBJECT, _ADDRESS, c_size_t], "status"),
    "frug_comm_create": ([POINTER(Transport), c_void_p, c_int, c_int, _OUT], "status"),
    "frug_comm_destroy": ([_OBJECT], None),
    "frug_set_last_error": ([c_int, c_char_p], c_int),
    "frug_reducer_create": ([_OBJECT, _OBJECT, POINTER(Options), _OBJECT, _OUT], "status"),
    "frug_reducer_destroy": ([_OBJECT], None),
    "frug_reducer_sum": ([_OBJECT, c_uint64, Range, _ADDRESS, c_double], "status"),
    "frug_reducer_fail": ([_OBJECT, c_uint64, Range, c_char_p], c_int),
    "frug_reducer_compressor": ([_OBJECT], _OBJECT),
    "frug_reducer_algorithm": ([_OBJECT], c_char_p),
    "frug_reducer_bucket": ([_OBJECT, c_size_t, POINTER(BucketStats)], "status"),
    "frug_frame_check": ([_ADDRESS, c_size_t, POINTER(FrameInfo)], "status"),
    "frug_frame_section": ([_ADDRESS, c_size_t, c_uint32, POINTER(SectionInfo)], "status"),
    "frug_delta_bound": ([POINTER(DeltaTensor), POINTER(c_size_t)], "status"),
    "frug_delta_make": ([POINTER(DeltaTensor), c_int, _ADDRESS, c_size_t, POINTER(c_size_t)], "status"),
    "frug_delta_read": ([_ADDRESS, c_size_t, POINTER(DeltaInfo)], "status"),
    "frug_delta_add": ([POINTER(DeltaTotals), POINTER(DeltaInfo)], None),
    "frug_delta_end": ([POINTER(DeltaTotals), _ADDRESS, c_size_t, POINTER(c_size_t)], "status"),
    "frug_delta_check": ([_ADDRESS, c_size_t, POINTER(DeltaTotals)], "status"),
    "frug_delta_apply_all": ([_ADDRESS, c_size_t, c_int, POINTER(DeltaTensor), c_size_t, c_int], "status"),
    "frug_delta_indices": ([_ADDRESS, c_size_t, _ADDRESS], "status"),
    "frug_compact_bound": ([POINTER(CompactTensor), POINTER(c_size_t)], "status"),
    "frug_compact_write": ([POINTER(CompactTensor), _ADDRESS, c_size_t, POINTER(c_size_t)], "status"),
    "frug_compact_add": ([POINTER(CompactTotals), POINTER(CompactInfo)], None),
    "frug_compact_end": ([POINTER(CompactTotals), _ADDRESS, c_size_t, POINTER(c_size_t)], "status"),
    "frug_compact_check": ([_ADDRESS, c_size_t, POINTER(CompactTotals)], "status"),
    "frug_compact_read": ([_ADDRESS, c_size_t, POINTER(CompactInfo)], "status"),
    "frug_compact_decode": ([POINTER(CompactInfo), _ADDRESS], None),
    "frug_compact_pack": ([POINTER(CompactInfo), _OUT], "status"),
    "frug_sparse_get_info": ([_OBJECT, POINTER(SparseInfo)], "status"),
    "frug_sparse_destroy": ([_OBJECT], None),
    "frug_sparse_multiply": ([_OBJECT, c_int, _ADDRESS, c_size_t, c_size_t, _ADDRESS, c_size_t, _ADDRESS], None),
    "frug_sparse_unpack": ([_OBJECT, c_uint32, c_uint32, _ADDRESS], None),
}


def _candidates() -> List[str]:
    """Where the library may be, best first."""
    named = os.environ.get("FRUGRAD_LIBRARY")
    if named:
        return [named]
    carried = sorted(str(path) for path in (Path(__file__).parent / "lib").glob("libfrugrad.so*"))
    return carried[:1] + ["libfrugrad.so." + VERSION, "libfrugrad.so"]


def _open() -> CDLL:
    reasons = []
    for name in _candidates():
        try:
            return CDLL(name)
        except OSError as error:
            reasons.append(str(error))
    raise ImportError("libfrugrad was not found: install this package with its library (pip install .), install the"
                      " library (make install), or name it in FRUGRAD_LIBRARY. " + "; ".join(reasons))


def _check(status: int, _function: Any, _arguments: Any) -> None:
    if status != 0:
        raise _ERRORS.get(status, FrugradError)(lib.frug_last_error().decode(errors="replace"))


def _load() -> CDLL:
    library = _open()
    library.frug_version.restype = c_char_p
    version = library.frug_version().decode()
    if version.rsplit(".", 1)[0] != VERSION:
        raise ImportError(f"libfrugrad is version {version}, and this package wants {VERSION}")
    for name, (arguments, result) in _FUNCTIONS.items():
        function = getattr(library, name, None)
        if function is None:
            raise ImportError(f"libfrugrad {version} has no {name}: it is older than this package")
        function.argtypes = arguments
        function.restype = c_int if result == "status" else result
        if result == "status":
            function.errcheck = _check
    return library


lib = _load()


def open_beside(kind: str) -> CDLL:
    """libfrugrad_KIND from beside libfrugrad, or from where FRUGRAD_KIND_LIBRARY says; ImportError without it."""
    folder, base = os.path.split(lib._name)
    beside = os.path.join(folder, base.replace("libfrugrad.so", f"libfrugrad_{kind}.so", 1))
    try:
        return CDLL(os.environ.get(f"FRUGRAD_{kind.upper()}_LIBRARY") or beside)
    except OSError as error:
        raise ImportError(f"libfrugrad_{kind} is not there: {error}") from None


def declare(library: CDLL, functions: Dict[str, Any]) -> None:
    """Set the types of functions: a list is of the arguments of one that returns a status, which is checked."""
    for name, types in functions.items():
        function = getattr(library, name)
        function.argtypes, function.restype = types if isinstance(types, tuple) else (types, c_int)
        if not isinstance(types, tuple):
            function.errcheck = _check


class Owned:
    """An object of the library, destroyed with its Python object."""

    _destroy = ""

    def __init__(self, create: Callable, *arguments: Any) -> None:
        handle = c_void_p()
        create(*arguments, byref(handle))
        self.handle = handle.value

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled: it is an object of the library")

    def __del__(self) -> None:
        handle, self.handle = getattr(self, "handle", None), None
        if handle and lib is not None:
            getattr(lib, self._destroy)(handle)


def version() -> str:
    """The version of the library in use.

    >>> version().count(".")
    2
    """
    return lib.frug_version().decode()

"""Description of frames."""

from ctypes import byref
from typing import Any, Dict

from . import _lib
from ._core import address, as_bytes
from ._lib import lib


def _section(frame: bytes, i: int, codes: tuple) -> Dict[str, Any]:
    info = _lib.SectionInfo()
    lib.frug_frame_section(address(frame), len(frame), i, byref(info))
    fields = info.as_dict()
    sizes = [None if size == 2**64 - 1 else size for size in info.index_bytes]
    return dict(fields, index=info.index.decode(), value=info.value.decode(), index_bytes=dict(zip(codes, sizes)))


def inspect(frame: Any) -> Dict[str, Any]:
    """Validate a frame and describe its content.

    frame   bytes, or a Payload, whose tensors then name the sections

    The result has version, source (the sender's rank), step, layout_hash, bytes, begin, count, entries, skipped (blocks
    with a NaN or an infinity), ratio (bytes of the same range as f32 over bytes) and sections, a list of dicts: index
    and value (the codes), block, tensor, begin, count, entries, bytes, density, unit_h, unit_w, units, selected and
    index_bytes (the size of the same indices in each index code; None where it cannot encode them). Raises FormatError.

    >>> import numpy as np, frugrad
    >>> frame = frugrad.Compressor((64, 256), rank=3).compress(np.ones((64, 256), np.float32), step=5)
    >>> described = inspect(frame)
    >>> described["source"], described["step"], described["sections"][0]["value"]
    (3, 5, 'bf16')
    """
    tensors = getattr(frame, "tensors", None)
    data = as_bytes(frame if tensors is None else frame.frame, "a frame")
    info = _lib.FrameInfo()
    lib.frug_frame_check(address(data), len(data), byref(info))
    codes = tuple(lib.frug_index_code_at(i).decode() for i in range(_lib.INDEX_CODES))
    sections = [_section(data, i, codes) for i in range(info.sections)]
    if tensors is not None:
        for section in sections:
            if section["tensor"] < len(tensors):
                section["name"] = tensors[section["tensor"]].name
    return dict(info.as_dict(), ratio=4 * info.count / info.bytes, sections=sections)

"""Payload files (.fgr): one frame and the layout it belongs to, as `frugrad compress` writes them.

They are safetensors files with one U8 tensor, frugrad.frame; docs/wire-format.md has the metadata.
"""

import json
import os
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple, Union

from ._core import ROLES, Layout, Tensor, as_bytes
from ._frames import inspect
from ._lib import FormatError, FrugradError, MismatchError

FRAME = "frugrad.frame"
MOST = 100_000_000  # bytes of a safetensors header
SOURCES = ("raw", "npy", "safetensors")


class Payload(NamedTuple):
    """What a payload file holds. The frame has not been checked yet; ``inspect`` and ``decompress`` do that."""

    frame: bytes
    config: str  # of the compressor that made it, every option spelled out
    tensors: Tuple[Tensor, ...]
    source: str = "safetensors"  # the kind of file that was compressed: raw, npy or safetensors
    shape: Optional[Tuple[int, ...]] = None  # of the only tensor in that file, where the layout has another
    metadata: Optional[Dict[str, str]] = None  # of that file

    def decompress(self) -> Any:
        """The frame as arrays: a dict by name for safetensors, one array otherwise."""
        from ._arrays import Compressor

        layout = Layout(self.tensors)
        flat = Compressor(layout, "residual=f32,feedback=none").decompress(self.frame)
        placed = [layout[i] for i in range(len(layout))]
        arrays = {t.name: flat[t.place].reshape(t.shape) for t in placed}
        if self.shape is not None:
            arrays = {name: array.reshape(self.shape) for name, array in arrays.items()}
        return arrays if self.source == "safetensors" else next(iter(arrays.values()))


def write_payload(path: Union[str, os.PathLike], frame: Union[bytes, Payload], compressor: Any = None,
                  metadata: Optional[Mapping[str, str]] = None) -> None:
    """Write a frame, and what is needed to decompress it, to a file that `frugrad decompress` and `inspect` read.

    frame        bytes, with the Compressor that made them or one like it; or a Payload, alone
    compressor   of one array: the file decompresses to a .npy file; otherwise to a safetensors file
    metadata     what that safetensors file gets as metadata

    Raises FormatError for bytes that are no frame, MismatchError for a frame of another layout. ``read_payload`` has an
    example.
    """
    if isinstance(frame, Payload):
        payload = frame
    else:
        alone = len(compressor.tensors) == 1 and compressor.shape is not None
        shape = compressor.shape if alone and compressor.shape != compressor.tensors[0].shape else None
        source = "npy" if alone else "safetensors"
        payload = Payload(as_bytes(frame, "a frame"), compressor.config.text, tuple(compressor.tensors), source, shape,
                          None if metadata is None else dict(metadata))
    header = _header(payload)
    with open(path, "wb") as file:
        file.write(header)
        file.write(payload.frame)


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _header(payload: Payload) -> bytes:
    back_to_back, layout = Layout(t._replace(offset=None) for t in payload.tensors), Layout(payload.tensors)
    if back_to_back.hash != layout.hash:
        raise ValueError("a payload file has tensors back to back; this layout has gaps")
    if inspect(payload.frame)["layout_hash"] != layout.hash:
        raise MismatchError("the frame belongs to another layout than the compressor")
    tensors = [{"name": t.name, "shape": list(t.shape), "role": t.role} for t in payload.tensors]
    fields = {"frugrad": "1", "frugrad.source": payload.source, "frugrad.config": payload.config,
            "frugrad.layout": _compact(tensors)}
    if payload.shape is not None:
        fields["frugrad.shape"] = _compact(list(payload.shape))
    if payload.metadata is not None:
        fields["frugrad.metadata"] = _compact(payload.metadata)
    n = len(payload.frame)
    text = _compact({"__metadata__": fields, FRAME: {"dtype": "U8", "shape": [n], "data_offsets": [0, n]}}).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def read_payload(path: Union[str, os.PathLike]) -> Payload:
    """Read a payload file; raises FormatError for anything else, and OSError.

    >>> import numpy as np, frugrad, os, tempfile
    >>> compressor = frugrad.Compressor((8, 256))
    >>> path = os.path.join(tempfile.mkdtemp(), "step0.fgr")
    >>> write_payload(path, compressor.compress(np.ones((8, 256)), 0), compressor)
    >>> read_payload(path).tensors[0].shape
    (8, 256)
    """
    with open(path, "rb") as file:
        data = file.read()
    try:
        return _parse(data)
    except (FrugradError, ValueError, TypeError, RecursionError) as error:
        raise FormatError(f"{os.fspath(path)}: {error}") from error


def _expect(holds: bool, what: str) -> None:
    if not holds:
        raise FormatError(what)


def _once(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    made = dict(pairs)
    _expect(len(made) == len(pairs), "a JSON name occurs twice")
    return made


def _json(text: Union[str, bytes]) -> Any:
    return json.loads(text, object_pairs_hook=_once)


def _parse(data: bytes) -> Payload:
    length = int.from_bytes(data[:8], "little")
    _expect(len(data) >= 8 and length <= min(MOST, len(data) - 8) and data[8:9] == b"{", "is not a safetensors file")
    head, frame = _json(data[8:8 + length].decode()), data[8 + length:]
    fields, n = head.get("__metadata__"), len(frame)
    ours = isinstance(fields, dict) and set(head) == {"__metadata__", FRAME} and isinstance(head[FRAME], dict)
    keys = ("frugrad", "frugrad.source", "frugrad.config", "frugrad.layout")
    _expect(ours and all(isinstance(v, str) for v in fields.values()) and all(k in fields for k in keys),
            "is a safetensors file, but not a payload of frugrad compress")
    entry = {"dtype": "U8", "shape": [n], "data_offsets": [0, n]}
    _expect(head[FRAME] == entry, f"the frame must be {n} bytes of U8, which is what is left of the file")
    _expect(fields["frugrad"] == "1", f"payload version '{fields['frugrad'][:20]}' is unknown")
    source = fields["frugrad.source"]
    _expect(source in SOURCES, f"payload source format '{source[:20]}' is unknown")
    layout = _layout(_json(fields["frugrad.layout"]))
    _expect(source == "safetensors" or len(layout) == 1, f"a {source} file holds one tensor, the layout has more")
    shape = _shape(_json(fields["frugrad.shape"])) if "frugrad.shape" in fields else None
    if shape is not None:
        elements = Tensor("", shape).elements
        _expect(len(layout) == 1 and elements == layout.elements, "shape and layout do not agree")
    metadata = _json(fields["frugrad.metadata"]) if "frugrad.metadata" in fields else None
    if metadata is not None:
        _expect(isinstance(metadata, dict) and all(isinstance(v, str) for v in metadata.values()),
                "the metadata is not a map of strings")
    tensors = tuple(layout[i] for i in range(len(layout)))
    return Payload(frame, fields["frugrad.config"], tensors, source, shape, metadata)


def _shape(value: Any) -> Tuple[int, ...]:
    _expect(isinstance(value, list) and len(value) <= 8 and all(type(n) is int and n >= 0 for n in value), "bad shape")
    return tuple(value)


def _layout(rows: Any) -> Layout:
    _expect(isinstance(rows, list) and len(rows) > 0, "the payload has no layout")
    _expect(all(isinstance(row, dict) and all(isinstance(row.get(k), str) for k in ("name", "role")) for row in rows),
            "a tensor of the layout has no name or no role")
    return Layout(Tensor(row["name"], _shape(row.get("shape")), row["role"] if row["role"] in ROLES else "other")
                  for row in rows)

"""Top-k in blocks with error feedback in plain NumPy, written from docs/wire-format.md and docs/methods.md alone.

It shares no code with the library, so bytes that agree are those of the page. Written to be read beside that page,
block by block; slow.
"""

import struct
from functools import lru_cache
from typing import List, NamedTuple, Tuple

import numpy as np

VALUES = {"f32": 0, "bf16": 1, "f16": 2, "int8": 3}
NONE, LOCAL, BITMAP = 0, 1, 2
LARGEST = np.finfo(np.float32).max


# ---- numbers ---------------------------------------------------------------------------------------------------------


def bits(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x, np.float32).view(np.uint32)


def floats(u: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(u, np.uint32).view(np.float32)


def from_bf16(half: np.ndarray) -> np.ndarray:
    return floats(np.asarray(half, np.uint32) << np.uint32(16))


def to_bf16(x: np.ndarray) -> np.ndarray:
    """To nearest, ties to even; the largest finite one instead of an infinity."""
    u = bits(x).astype(np.uint64)
    half = (u + 0x7fff + (u >> 16 & 1)) >> 16
    return np.where(half & 0x7fff >= 0x7f80, half - 1, half).astype(np.uint16)


def bf16_above(x: np.float32) -> int:
    """The bits of the smallest bf16 that is not below a float."""
    return min((int(bits(np.array([x]))[0]) + 0xffff) >> 16, 0x7f7f)


def random(key: int, s: int, x: int) -> int:
    """Philox-2x32 with ten rounds."""
    m = key ^ (s * 0x9e3779b97f4a7c15 % 2**64)
    r, lo, hi = (m ^ m >> 32) % 2**32, x % 2**32, x >> 32
    for _ in range(10):
        p = lo * 0xd256d193
        lo, hi, r = p >> 32 ^ r ^ hi, p % 2**32, (r + 0x9e3779b9) % 2**32
    return lo


def _crc_table() -> List[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82f63b78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC = _crc_table()


@lru_cache(maxsize=4)  # a frame is sealed and then checked
def crc32c(data: bytes) -> int:
    crc = 0xffffffff
    for byte in data:
        crc = _CRC[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xffffffff


# ---- layouts ---------------------------------------------------------------------------------------------------------


class Tensor(NamedTuple):
    name: str
    shape: Tuple[int, ...]
    offset: int

    @property
    def elements(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


def lay_out(shapes: dict) -> List[Tensor]:
    """Tensors back to back."""
    tensors, offset = [], 0
    for name, shape in shapes.items():
        tensors.append(Tensor(name, tuple(shape), offset))
        offset += tensors[-1].elements
    return tensors


def layout_hash(tensors: List[Tensor]) -> int:
    h = 0xcbf29ce484222325
    for t in tensors:
        for byte in t.name.encode() + struct.pack(f"<{2 + len(t.shape)}Q", t.offset, len(t.shape), *t.shape):
            h = (h ^ byte) * 0x100000001b3 % 2**64
    return h


# ---- sections --------------------------------------------------------------------------------------------------------


class Section(NamedTuple):
    index: int
    value: int
    block: int
    tensor: int
    begin: int
    count: int
    kappa: int
    first: int

    @property
    def lengths(self) -> List[int]:
        whole, rest = divmod(self.count, self.block)
        return [self.block] * whole + ([rest] if rest else [])

    @property
    def counts(self) -> List[int]:
        """The number of entries that each block sends."""
        ks = []
        for b, length in enumerate(self.lengths):
            j = self.first + b
            k = (((j + 1) * self.kappa >> 32) - (j * self.kappa >> 32)) % 2**32
            ks.append(k if length == self.block else -(-k * length // self.block))
        return ks


def padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def encode_values(code: int, v: np.ndarray) -> Tuple[bytes, bytes, np.ndarray]:
    """A block's scale, its encoded values, and the values they decode to."""
    if code == VALUES["f32"]:
        return b"", v.astype("<f4").tobytes(), v
    if code == VALUES["bf16"]:
        half = to_bf16(v)
        return b"", half.astype("<u2").tobytes(), from_bf16(half)
    most = np.abs(v).max(initial=np.float32(0))
    if code == VALUES["f16"]:
        e = max((int(bits(np.array([most]))[0]) >> 23) - 127 - 14, -114)
        half = np.ldexp(v, -e).astype(np.float16)
        return struct.pack("<b", e), half.astype("<f2").tobytes(), np.ldexp(half.astype(np.float32), e)
    scale_bits = min(bf16_above(most / np.float32(127)), 0x7c01)
    scale = from_bf16(np.array([scale_bits]))[0]
    whole = np.clip(np.rint(v / (scale or np.float32(1))), -127, 127)
    return struct.pack("<H", scale_bits), whole.astype(np.int8).tobytes(), whole * scale


def encode_indices(section: Section, indices: np.ndarray) -> bytes:
    if section.index == NONE:
        return b""
    if section.index == LOCAL:
        return indices.astype("<u1" if section.block <= 256 else "<u2").tobytes()
    row = np.zeros(section.block, bool)
    row[indices] = True
    return np.packbits(row, bitorder="little").tobytes()


def write_section(section: Section, scales: bytes, indices: bytes, values: bytes) -> bytes:
    payload = padded(scales) + padded(indices) + padded(values)
    return struct.pack("<BBHIQQQQQ", section.index, section.value, section.block, section.tensor, section.begin,
                       section.count, section.kappa, section.first, len(payload)) + payload


def write_frame(sections: List[bytes], step: int, layout: int, rank: int, skipped: int) -> bytes:
    body = b"".join(sections)
    head = struct.pack("<4sBBHQQQIII", b"FGR1", 2, 48, 0, 48 + len(body), step, layout, rank, len(sections), skipped)
    return head + struct.pack("<I", crc32c(head + bytes(4) + body)) + body


# ---- decoding --------------------------------------------------------------------------------------------------------


def _decode_values(code: int, scale: bytes, data: bytes) -> np.ndarray:
    if code == VALUES["f32"]:
        return np.frombuffer(data, "<f4").astype(np.float32)
    if code == VALUES["bf16"]:
        return from_bf16(np.frombuffer(data, "<u2"))
    if code == VALUES["f16"]:
        return np.ldexp(np.frombuffer(data, "<f2").astype(np.float32), struct.unpack("<b", scale)[0])
    return np.frombuffer(data, np.int8).astype(np.float32) * from_bf16(np.frombuffer(scale, "<u2"))[0]


def _take(data: bytes, at: int, sizes: List[int]) -> Tuple[List[bytes], int]:
    """Consecutive arrays, and the offset after them."""
    pieces = []
    for size in sizes:
        pieces.append(data[at:at + size])
        at += size
    return pieces, at + -sum(sizes) % 4


def decode(frame: bytes, elements: int) -> np.ndarray:
    """Decode a valid frame of sections by blocks."""
    magic, version, header, _, length, _, _, _, sections, _, checksum = struct.unpack_from("<4sBBHQQQIIII", frame)
    assert (magic, version, header, length) == (b"FGR1", 2, 48, len(frame))
    assert checksum == crc32c(frame[:44] + bytes(4) + frame[48:])
    dense, at = np.zeros(elements, np.float32), 48
    for _ in range(sections):
        *fields, payload = struct.unpack_from("<BBHIQQQQQ", frame, at)
        section, end = Section(*fields), at + 48 + payload
        counts, blocks = section.counts, len(section.lengths)
        scales, at = _take(frame, at + 48, [(0, 0, 1, 2)[section.value]] * blocks)
        width = 1 if section.block <= 256 else 2
        sizes = {NONE: [0] * blocks, LOCAL: [width * k for k in counts], BITMAP: [section.block // 8] * blocks}
        indices, at = _take(frame, at, sizes[section.index])
        values, at = _take(frame, at, [(4, 2, 2, 1)[section.value] * k for k in counts])
        assert at == end
        for b, k in enumerate(counts):
            if section.index == NONE:
                selected = np.arange(k)
            elif section.index == LOCAL:
                selected = np.frombuffer(indices[b], f"<u{width}").astype(int)
            else:
                selected = np.flatnonzero(np.unpackbits(np.frombuffer(indices[b], np.uint8), bitorder="little"))
            dense[section.begin + b * section.block + selected] = _decode_values(section.value, scales[b], values[b])
    assert at == len(frame)
    return dense


# ---- residuals -------------------------------------------------------------------------------------------------------


def stored(e: np.ndarray, form: str, random_number: int) -> np.ndarray:
    """A block of residuals after storing and loading it."""
    if form == "f32":
        return e
    rolled = (np.uint64(random_number) + np.arange(len(e), dtype=np.uint64) * np.uint64(0x9e3779b9)) % np.uint64(2**32)
    if form == "bf16":
        own = bits(e).astype(np.uint64)
        moved = own + (rolled >> np.uint64(16))
        return from_bf16(np.where(moved & 0x7fffffff >= 0x7f800000, own, moved) >> 16)
    levels = {"int8": 126, "int4": 6}[form]
    scale = from_bf16(np.array([bf16_above(np.abs(e).max() / np.float32(levels))]))[0]
    if scale < 2.0**-110:
        return np.zeros_like(e)
    r = np.rint(e * (np.float32(2**15) / scale)).astype(np.int64)
    number = (r + (rolled >> np.uint64(17)).astype(np.int64)) >> 15
    with np.errstate(over="ignore"):
        return np.clip(number.astype(np.float32) * scale, -LARGEST, LARGEST)


# ---- the compressor --------------------------------------------------------------------------------------------------


class Compressor:
    """One worker's compressor, for whole gradients."""

    def __init__(self, tensors: List[Tensor], rank: int = 0, block: int = 256, density: float = 0.0625,
                 beta: float = 0.95, select: str = "hist", value: str = "bf16", residual: str = "int8",
                 min_size: int = 4096, seed: int = 0):
        self.tensors, self.rank, self.block, self.beta = tensors, rank, block, np.float32(beta)
        self.select, self.value, self.residual, self.seed = select, VALUES[value], residual, seed
        self.kappa = int(min(max(density * block * 2**32 + 0.5, 2**28), block * 2**32))
        self.compressed = [len(t.shape) > 1 and t.elements >= min_size for t in tensors]
        self.elements = max((t.offset + t.elements for t in tensors), default=0)
        self.left = np.zeros(self.elements, np.float32)

    def sections(self, step: int) -> List[Section]:
        made, numbered = [], 0
        for i, (t, compressed) in enumerate(zip(self.tensors, self.compressed)):
            if t.elements == 0:
                continue
            if compressed:
                section = Section(LOCAL, self.value, self.block, i, t.offset, t.elements, self.kappa,
                                  numbered + step % 16)
                made.append(section._replace(index=self.index_of(section)))
                numbered += len(section.lengths)
            elif made and self.is_dense(made[-1]) and made[-1].begin + made[-1].count == t.offset:
                made[-1] = made[-1]._replace(count=made[-1].count + t.elements)
            else:
                made.append(Section(NONE, 0, self.block, i, t.offset, t.elements, self.block << 32, 0))
        return made

    def is_dense(self, section: Section) -> bool:
        return not self.compressed[section.tensor]

    def index_of(self, section: Section) -> int:
        if section.kappa == section.block << 32:
            return NONE
        local = sum(section.counts) * (1 if section.block <= 256 else 2)
        bitmap = len(section.lengths) * section.block // 8
        return BITMAP if bitmap < local else LOCAL

    def compress(self, gradient: np.ndarray, step: int) -> bytes:
        gradient, written, skipped, numbered = np.asarray(gradient, np.float32), [], 0, 0
        for section in self.sections(step):
            scales, indices, values = b"", b"", b""
            for b, (length, k) in enumerate(zip(section.lengths, section.counts)):
                here = slice(section.begin + b * section.block, section.begin + b * section.block + length)
                scale, index, value, fine = self.one_block(section, here, gradient[here], k, step, numbered)
                scales, indices, values, skipped = scales + scale, indices + index, values + value, skipped + (not fine)
                numbered += not self.is_dense(section)
            written.append(write_section(section, scales, indices, values))
        return write_frame(written, step, layout_hash(self.tensors), self.rank, skipped)

    def one_block(self, section: Section, here: slice, g: np.ndarray, k: int, step: int, n: int):
        dense = self.is_dense(section)
        with np.errstate(over="ignore", invalid="ignore"):
            a = g + np.float32(0) if dense else self.beta * self.left[here] + g
        if not np.isfinite(a).all():
            scale, value, _ = encode_values(section.value, np.zeros(k, np.float32))
            return scale, encode_indices(section, np.arange(k)), value, False
        indices = np.arange(k) if section.index == NONE else self.largest(a, k)
        scale, value, decoded = encode_values(section.value, a[indices])
        if not dense:
            a[indices] -= decoded
            whole = np.zeros(section.block, np.float32)
            whole[:len(a)] = a
            self.left[here] = stored(whole, self.residual, random(self.seed, step, n))[:len(a)]
        return scale, encode_indices(section, indices), value, True

    def largest(self, a: np.ndarray, k: int) -> np.ndarray:
        key = (bits(a) & np.uint32(0x7fffffff)).astype(np.int64)
        if self.select == "hist":
            key >>= 16
        return np.sort(np.argsort(-key, kind="stable")[:k])

"""Compact files, written and read from docs/compact-format.md alone: slow, and without the library.

python3 compact_oracle.py prints tests/unit/golden_compact.inc.
"""

import struct

from delta_oracle import crc32c, hash_of, pack, unpack, word

F32, INT8, SPARSE_F32, SPARSE_INT8, END = 0, 1, 2, 3, 255


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def rows_of(values, shape, input_first):
    rows = 1 if len(shape) < 2 else shape[-1 if input_first else 0]
    cols = len(values) // rows
    if input_first:
        return [[values[c * rows + r] for c in range(cols)] for r in range(rows)]
    return [list(values[r * cols:(r + 1) * cols]) for r in range(rows)]


def body_of(code, values, shape, input_first):
    """The body of a record, and the number of entries."""
    if code == F32:
        return struct.pack(f"<{len(values)}f", *values), len(values)
    scales, marks, stored = b"", b"", []
    for row in rows_of(values, shape, input_first):
        if code in (INT8, SPARSE_INT8):
            scale = f32(max(abs(w) for w in row) / 127)
            scales += struct.pack("<f", scale)
            row = [round(f32(w / scale)) if scale else 0 for w in row]
        if code != INT8:
            marks += pack([int(w != 0) for w in row])
            row = [w for w in row if w != 0]
        stored += row
    front = scales + marks
    front += bytes(-len(front) % 4)
    return front + struct.pack(f"<{len(stored)}{'f' if code == SPARSE_F32 else 'b'}", *stored), len(stored)


def seal(code, name, shape, input_first, entries, body, hash=None):
    rest = struct.pack(f"<{len(shape)}Q", *shape) + name.encode()
    rest += bytes(-len(rest) % 8) + body
    rest += bytes(-len(rest) % 8)
    hash = hash_of(rest, 65536) if hash is None else hash
    record = bytearray(b"FGC1" + bytes([code, len(shape), int(input_first), 0]))
    record += struct.pack("<QIIQQQ16x", 64 + len(rest), len(name), 0, entries, len(body), hash) + rest
    record[20:24] = struct.pack("<I", crc32c(bytes(record)))
    return bytes(record), hash


def write(tensors):
    """A file of (name, code, values, shape, input_first)."""
    file, total = b"", 0
    for name, code, values, shape, input_first in tensors:
        body, entries = body_of(code, values, shape, input_first)
        record, hash = seal(code, name, shape, input_first, entries, body)
        file += record
        total = word(total, hash)
    return file + seal(END, "", (), False, len(tensors), b"", total)[0]


def read(file):
    """{name: (shape, values)} of a file, which is trusted."""
    tensors, at = {}, 0
    while file[at + 4] != END:
        code, ndim, input_first = file[at + 4:at + 7]
        length, name_len, _, entries, body_len = struct.unpack_from("<QIIQQ", file, at + 8)
        shape = struct.unpack_from(f"<{ndim}Q", file, at + 64)
        name = file[at + 64 + 8 * ndim:][:name_len].decode()
        begin = at + (64 + 8 * ndim + name_len + 7) // 8 * 8
        body = file[begin:begin + body_len]
        tensors[name] = (shape, values_of(code, shape, input_first, entries, body))
        at += length
    return tensors


def values_of(code, shape, input_first, entries, body):
    count = 1
    for side in shape:
        count *= side
    if code == F32:
        return list(struct.unpack(f"<{count}f", body))
    rows = 1 if len(shape) < 2 else shape[-1 if input_first else 0]
    cols = count // rows
    int8 = code in (INT8, SPARSE_INT8)
    scales = struct.unpack_from(f"<{rows}f", body) if int8 else [1.0] * rows
    row_bytes = (cols + 7) // 8 if code != INT8 else 0
    marks = body[4 * rows if int8 else 0:][:rows * row_bytes]
    begin = ((4 * rows if int8 else 0) + rows * row_bytes + 3) // 4 * 4
    stored = iter(struct.unpack_from(f"<{entries}{'b' if int8 else 'f'}", body, begin))
    values = [0.0] * count
    for r in range(rows):
        present = [1] * cols if code == INT8 else unpack(marks[r * row_bytes:(r + 1) * row_bytes])[:cols]
        for c in range(cols):
            w = f32(next(stored) * scales[r]) if present[c] else 0.0
            values[c * rows + r if input_first else r * cols + c] = w
    return values


def golden():
    matrix = (0, 1.5, 0, 0, -2, 0.25, 0, 0, 127, 0)
    return write([("b", F32, (0.5, -0.0, 3.0), (3,), False), ("dense8", INT8, matrix, (2, 5), False),
                  ("sparse", SPARSE_F32, matrix, (2, 5), False), ("sparse8", SPARSE_INT8, matrix, (2, 5), False),
                  ("turned", SPARSE_INT8, matrix, (2, 5), True)])


if __name__ == "__main__":
    data = golden()
    print("/* Worked out from docs/compact-format.md by tests/python/compact_oracle.py, not by this library. */")
    print("static const unsigned char golden_compact[] = {")
    for i in range(0, len(data), 12):
        print("    " + " ".join(f"0x{byte:02x}," for byte in data[i:i + 12]))
    print("};")

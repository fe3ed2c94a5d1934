"""Records of weight deltas, written and read from docs/delta-format.md alone: slow, and without the library."""

import struct

MASK = 2**64 - 1
KEY, STEP, CHUNK = 0x6A09E667F3BCC908, 0x9E3779B97F4A7C15, 32768


def mix(x):
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD & MASK
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 & MASK
    return x ^ x >> 33


def word(hash, number):
    return mix((hash * STEP + number) & MASK)


def hash_of(data, chunk_bytes):
    result = 0
    for first in range(0, len(data), chunk_bytes):
        chunk = data[first:first + chunk_bytes]
        lanes, own = [0] * 16, len(chunk)
        chunk += bytes(-len(chunk) % 128)
        for i in range(0, len(chunk), 128):
            numbers = struct.unpack_from("<32I", chunk, i)
            keys = [(KEY + s * STEP) & MASK for s in (i // 64, i // 64 + 1)]
            for e in range(16):
                shift = e % 2 * 32
                x, y = (numbers[e + 16 * s] ^ (keys[s] >> shift & 0xFFFFFFFF) for s in (0, 1))
                lanes[e] += x * y
        for lane in lanes:
            own = word(own, lane & MASK)
        result = word(result, own)
    return result


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 & -(crc & 1))
    return crc ^ 0xFFFFFFFF


def pack(bits):
    """Bits, lowest first, as bytes."""
    bits = bits + [0] * (-len(bits) % 8)
    return bytes(sum(bits[i + j] << j for j in range(8)) for i in range(0, len(bits), 8))


def unpack(data):
    return [byte >> j & 1 for byte in data for j in range(8)]


def number(bits):
    return sum(bit << i for i, bit in enumerate(bits))


def golomb(v, k):
    u = v + (1 << k)
    b = u.bit_length() - 1
    return [0] * (b - k) + [1] + [u >> i & 1 for i in range(b)]


def upper_bits(entries, n, low):
    return entries + ((n - 1) >> low) + 1


def encode_chunk(before, after, width):
    """The row of the table and the body of a chunk; before and after are lists of numbers."""
    n, top = len(before), 1 << 8 * width
    differences = [(b - a) % top for a, b in zip(before, after)]
    index = [i for i, d in enumerate(differences) if d]
    if not index:
        return struct.pack("<IHBB", 0, 0, 0, 0), b""
    signed = [d - top if d >= top // 2 else d for d in (differences[i] for i in index)]
    m = len(index)
    flags = sum(abs(d) > 1 for d in signed) < m - m // 4
    values = [abs(d) - 2 for d in signed if abs(d) > 1] if flags else [abs(d) - 1 for d in signed]
    classes = [(v + 1).bit_length() - 1 for v in values]
    orders = range(max(classes, default=0) + 1)
    order = min(orders, key=lambda k: (sum(k + 1 if c <= k else 2 * c + 1 - k for c in classes), k))
    codes = [(len(pack([0] * n)), -1, 16)]
    codes += [(len(pack([0] * upper_bits(m, n, low))) + (m * low + 7) // 8, low, low) for low in range(16)]
    _, _, code = min(codes)
    if code == 16:
        where = pack([int(d != 0) for d in differences])
    else:
        high = [0] * upper_bits(m, n, code)
        for i, place in enumerate(index):
            high[(place >> code) + i] = 1
        where = pack(high) + pack([place >> j & 1 for place in index for j in range(code)])
    body = where + pack([int(d < 0) for d in signed]) + (pack([int(abs(d) > 1) for d in signed]) if flags else b"")
    body += pack([bit for v in values for bit in golomb(v, order)])
    if len(body) >= n * width:
        return (struct.pack("<IHBB", n * width, m, 17, 0), b"".join(d.to_bytes(width, "little") for d in differences))
    return struct.pack("<IHBB", len(body), m, code, order | (64 if flags else 0)), body


def decode_chunk(row, body, n, width):
    """The differences of a chunk as a dict from index to number."""
    length, m, code, value = struct.unpack("<IHBB", row)
    assert length == len(body)
    if m == 0:
        return {}
    if code == 17:
        numbers = [int.from_bytes(body[i:i + width], "little") for i in range(0, n * width, width)]
        return {i: d for i, d in enumerate(numbers) if d}
    if code == 16:
        size = (n + 7) // 8
        index = [i for i, bit in enumerate(unpack(body[:size])) if bit]
    else:
        first = (upper_bits(m, n, code) + 7) // 8
        size = first + (m * code + 7) // 8
        ones = [i for i, bit in enumerate(unpack(body[:first])) if bit]
        low = unpack(body[first:size])
        index = [(one - i << code) + number(low[i * code:i * code + code]) for i, one in enumerate(ones)]
    plane = (m + 7) // 8
    negative, at = unpack(body[size:size + plane]), size + plane
    above = [1] * m
    if value & 64:
        above, at = unpack(body[at:at + plane]), at + plane
    bits, found, order = unpack(body[at:]), {}, value & 63
    for i in range(m):
        magnitude = 1
        if above[i]:
            zeros = bits.index(1)
            b = zeros + order
            magnitude = number(bits[zeros + 1:zeros + 1 + b]) + (1 << b) - (1 << order) + (2 if value & 64 else 1)
            bits = bits[zeros + 1 + b:]
        found[index[i]] = -magnitude if negative[i] else magnitude
    return found


def record(kind, width, shape, dtype, name, base, result, entries, body):
    text = dtype.encode() + name.encode()
    head = b"".join(struct.pack("<Q", n) for n in shape) + text
    head += bytes(-len(head) % 8)
    tail = bytes(8 + -len(body) % 8)
    total = 64 + len(head) + len(body) + len(tail)
    start = b"FGD1" + bytes([kind, width, len(shape), len(dtype)]) + struct.pack("<Q", total)
    start += struct.pack("<I", len(name.encode()))
    rest = struct.pack("<QQQQQ", base, result, entries, len(body), 0) + head + body + tail
    return start + struct.pack("<I", crc32c(start + bytes(4) + rest)) + rest


def change(before, after, width, shape, dtype, name):
    """The record of a tensor in two versions, given as bytes."""
    numbers = [[int.from_bytes(data[i:i + width], "little") for i in range(0, len(data), width)]
               for data in (before, after)]
    rows, bodies, entries = [], [], 0
    for first in range(0, len(numbers[0]), CHUNK):
        row, body = encode_chunk(*(version[first:first + CHUNK] for version in numbers), width)
        rows.append(row)
        bodies.append(body)
        entries += struct.unpack("<IHBB", row)[1]
    hashes = [hash_of(data, CHUNK * width) for data in (before, after)]
    return record(1, width, shape, dtype, name, *hashes, entries, b"".join(rows + bodies))


if __name__ == "__main__":
    old = struct.pack("<8H", 0x3F80, 0xBF80, 0x0000, 0x4000, 0x4000, 0x7FFF, 0x1234, 0x8000)
    new = struct.pack("<8H", 0x3F81, 0xBF80, 0xFFFF, 0x4009, 0x4000, 0x8001, 0x1234, 0x7F00)
    data = change(old, new, 2, (2, 4), "BF16", "w")
    print("/* Worked out from docs/delta-format.md by tests/python/delta_oracle.py, not by this library. */")
    print("static const unsigned char golden_delta[] = {")
    for i in range(0, len(data), 12):
        print("    " + " ".join(f"0x{byte:02x}," for byte in data[i:i + 12]))
    print("};")

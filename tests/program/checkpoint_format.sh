#!/usr/bin/env bash
# A checkpoint read by other programs: an independent safetensors reader, with json and struct alone, finds the
# model under its names, every tensor at its offset and the correct checksum; Python's safetensors, if installed,
# opens it too.
set -euo pipefail
export FRUGRAD_PROGRESS=off # how long things take must not change what is printed
: "${FRUGRAD_SOURCE:=$(cd "$(dirname "$0")/../.." && pwd)}"
: "${FRUGRAD_BUILD:=$FRUGRAD_SOURCE/build/dev}"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$FRUGRAD_BUILD/tests/test_checkpoint" "$work"

python3 - "$work/step-000000012.safetensors" <<'PY'
import json, struct, sys

with open(sys.argv[1], "rb") as file:
    data = file.read()
(length,) = struct.unpack("<Q", data[:8])
assert length % 8 == 0, "the data is not aligned to 8 bytes"
header = json.loads(data[8 : 8 + length])
metadata = header.pop("__metadata__")
assert metadata["format"] == "pt" and metadata["frugrad.step"] == "12" and metadata["frugrad.workers"] == "1", metadata

want = {
    "layer1.weight": ("F32", [40, 50]),
    "layer1.bias": ("F32", [41]),
    "fc.weight": ("F32", [10, 41]),
    "bn.running_mean": ("F32", [5]),
}
for name, (dtype, shape) in want.items():
    assert header[name]["dtype"] == dtype and header[name]["shape"] == shape, (name, header[name])
assert set(header) - set(want) == {"frugrad.optimizer", "frugrad.residual.0", "frugrad.checksum"}, sorted(header)

at = 0
for name, entry in sorted(header.items(), key=lambda pair: pair[1]["data_offsets"]):
    begin, end = entry["data_offsets"]
    size = {"F32": 4, "U8": 1}[entry["dtype"]]
    count = 1
    for extent in entry["shape"]:
        count *= extent
    assert begin == at and begin % size == 0 and end - begin == count * size, (name, entry)
    at = end
assert 8 + length + at == len(data), "the tensors do not cover the file"
weights = struct.unpack("<2000f", data[8 + length : 8 + length + 8000])
assert 0.05 < (sum(w * w for w in weights) / 2000) ** 0.5 < 0.2, "not the weights of the model"

crc = 0xFFFFFFFF
for byte in data[:-4]:
    crc ^= byte
    for _ in range(8):
        crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
assert struct.unpack("<I", data[-4:])[0] == crc ^ 0xFFFFFFFF, "the checksum is another"

try:
    from safetensors import safe_open
except ImportError:
    print("safetensors for Python is not installed; its own reader was not asked")
else:
    with safe_open(sys.argv[1], framework="numpy") as file:
        assert set(file.keys()) == set(header) and file.get_tensor("fc.weight").shape == (10, 41)
PY

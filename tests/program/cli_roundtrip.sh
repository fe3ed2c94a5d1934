#!/usr/bin/env bash
# What compress writes, decompress restores: bit for bit when everything is sent, and over several
# steps with a residual. Files keep their names, modes and links.
. "$(dirname "$0")/../support/script.sh"
cd "$work"
all=density=1,value=f32

cat >make.py <<'PY'
"""Write files with the same 30,000 odd numbers in every format the program reads."""
import json, random, struct

random.seed(1)
n = 120 * 250 + 7
x = [struct.unpack("<f", struct.pack("<f", random.gauss(0, 1) ** 3))[0] for _ in range(n)]
x[:3] = [0.0, struct.unpack("<f", b"\1\0\0\0")[0], struct.unpack("<f", b"\xff\xff\x7f\x80")[0]]

def npy(name, descr, order, shape, data):
    text = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (descr, order, shape)
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    with open(name, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + data)

def safetensors(name, tensors, metadata=None):
    header, body = ({"__metadata__": metadata} if metadata else {}), b""
    for key, dtype, shape, data in tensors:
        header[key] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with open(name, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + body)

f32 = lambda values, order="<": struct.pack("%s%df" % (order, len(values)), *values)
m = x[: 120 * 250]
columns = [m[250 * i + j] for j in range(250) for i in range(120)]
coarse = [struct.unpack("<f", b"\0\0" + struct.pack("<f", v)[2:])[0] for v in m]
open("grad.f32", "wb").write(f32(x))
open("grad.other", "wb").write(f32(x))
npy("vector.npy", "<f4", "False", "(%d,)" % n, f32(x))
npy("scalar.npy", "<f4", "False", "()", f32(x[9:10]))
npy("matrix.npy", "<f4", "False", "(120, 250)", f32(m))
npy("big.npy", ">f4", "False", "(120, 250)", f32(m, ">"))
npy("fortran.npy", "<f4", "True", "(120, 250)", f32(columns))
npy("double.npy", "<f8", "False", "(120, 250)", struct.pack("<%dd" % len(m), *m))
npy("coarse.npy", "<f4", "False", "(120, 250)", f32(coarse))
safetensors("model.safetensors", [
    ("conv.weight", "F32", [8, 8, 9, 9], f32(m[: 8 * 8 * 81])),
    ("conv.bias", "F32", [8], f32(m[:8])),
    ("empty", "F32", [0, 3], b""),
    ("fc \"1\".weight \u00e9", "F32", [100, 200], f32(m[:20000])),
    ("scale", "F32", [], f32(m[5:6])),
], {"format": "pt", "note": "kept"})
safetensors("vector.safetensors", [("g", "F32", [n], f32(x))])
safetensors("bf16.safetensors", [("g", "BF16", [120, 250], b"".join(struct.pack("<f", v)[2:] for v in m))])
safetensors("coarse.safetensors", [("g", "F32", [120, 250], f32(coarse))])
PY
python3 make.py

# same IN EXPECTED [OPTIONS]: everything sent, the restored file must be EXPECTED bit for bit
same() {
    local in=$1 expected=$2
    shift 2
    "$FRUGRAD" compress "$in" -o p.fgr --config "$all" "$@" >/dev/null || fail "$in: compress fails"
    "$FRUGRAD" decompress p.fgr -o restored --force >/dev/null || fail "$in: decompress fails"
    cmp restored "$expected" || fail "$in does not come back as $expected"
    rm -f p.fgr restored
}
for file in grad.f32 grad.other vector.npy scalar.npy matrix.npy model.safetensors vector.safetensors; do
    same "$file" "$file"
done
same matrix.npy matrix.npy --format npy
same model.safetensors model.safetensors --format=safetensors
same big.npy matrix.npy
same fortran.npy matrix.npy
same double.npy matrix.npy
same bf16.safetensors coarse.safetensors

# By content when the ending does not tell.
cp matrix.npy plain && same plain matrix.npy
cp model.safetensors plain && same plain model.safetensors
rm plain

# Default names, nothing overwritten without --force.
"$FRUGRAD" compress matrix.npy -c "$all" >/dev/null
"$FRUGRAD" decompress matrix.npy.fgr >/dev/null
cmp matrix.npy matrix.restored.npy || fail "the default output is not matrix.restored.npy"
echo mine >matrix.restored.npy
"$FRUGRAD" decompress matrix.npy.fgr 2>err && fail "an existing file is overwritten"
grep -q 'exists already' err || fail "no word about the existing file"
[ "$(cat matrix.restored.npy)" = mine ] || fail "the existing file has changed"
"$FRUGRAD" decompress matrix.npy.fgr --force >/dev/null
cmp matrix.npy matrix.restored.npy || fail "--force does not replace the file"
mkdir dir.d && cp grad.f32 dir.d/plain && "$FRUGRAD" compress dir.d/plain -c "$all" >/dev/null
"$FRUGRAD" decompress dir.d/plain.fgr >/dev/null && cmp grad.f32 dir.d/plain.restored || fail "a dot in a folder misleads"

# Pipes give the same bytes as files.
"$FRUGRAD" compress - <grad.f32 >piped.fgr 2>summary
"$FRUGRAD" compress grad.f32 -o named.fgr >/dev/null
cmp piped.fgr named.fgr || fail "pipe and file give different payloads"
grep -q ratio summary || fail "no summary on stderr beside a payload on stdout"
"$FRUGRAD" decompress - <piped.fgr | cmp - <("$FRUGRAD" decompress named.fgr -o -) || fail "pipes restore differently"
mkfifo pipe && cat pipe >through &
reader=$!
until [ -p pipe ]; do sleep 0.1; done
"$FRUGRAD" compress grad.f32 -o pipe >/dev/null
wait $reader
cmp through named.fgr || fail "a named pipe gets other bytes"

# A link stays a link, a file keeps its mode, a new file is as the umask says.
echo old >real && ln -s real link && chmod 640 real
"$FRUGRAD" compress grad.f32 -o link >/dev/null
[ -L link ] && cmp link named.fgr || fail "the link was replaced"
[ "$(stat -c %a real)" = 640 ] || fail "the mode was lost"
(umask 027 && "$FRUGRAD" compress grad.f32 -o fresh >/dev/null)
[ "$(stat -c %a fresh)" = 640 ] || fail "a new file ignores the umask"

# The default config sends about 1 of 16, and the summary says so.
"$FRUGRAD" compress matrix.npy --json -o m.fgr >m.json
python3 - <<'PY' || fail "the summary of the default config is off"
import json, os
s = json.load(open("m.json"))
assert s["elements"] == 30000 and s["bytes_in"] == 120000 and s["format"] == "npy" and s["tensors"] == 1, s
assert 0.06 < s["density"] < 0.07 and 15 < s["ratio"] < 25 and 0.3 < s["energy_sent"] < 1, s
assert s["bytes_out"] == os.path.getsize("m.fgr") > s["bytes_frame"] and s["gbps"] > 0, s
PY

# The reported energy is that of all tensors, whatever comes first: here a small one that is sent dense.
python3 - <<'PY'
import json, random, struct
random.seed(4)
shapes = {"a.bias": [8], "b.weight": [64, 256], "c.weight": [3, 100], "d.weight": [32, 256]}
head, data = {}, b""
for name, shape in shapes.items():
    n = shape[0] * (shape[1] if len(shape) > 1 else 1)
    values = [random.gauss(0, 1) for _ in range(n)]
    head[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * n]}
    data += struct.pack("<%df" % n, *values)
text = json.dumps(head).encode()
open("small_first.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data)
PY
for config in frugrad topk; do
    "$FRUGRAD" compress small_first.safetensors -c $config,value=f32 --json -o e.fgr >e.json
    "$FRUGRAD" compress small_first.safetensors -c $config,value=f32 -o e.fgr >e.text
    "$FRUGRAD" decompress e.fgr --force -o e.safetensors >/dev/null
    python3 - <<'PY' || fail "$config: the energy sent is not that of the whole file"
import json, struct
def squares(path):
    raw = open(path, "rb").read()
    body = raw[8 + struct.unpack("<Q", raw[:8])[0] :]
    return sum(x * x for x in struct.unpack("<%df" % (len(body) // 4), body))
true = squares("e.safetensors") / squares("small_first.safetensors")
reported = json.load(open("e.json"))["energy_sent"]
assert 0.2 < true < 0.9 and abs(reported - true) < 1e-6, (reported, true)
assert "energy sent  %.2f %%" % (100 * true) in open("e.text").read(), (true, open("e.text").read())
PY
done

# The residual of one step is sent in later ones: a gradient, then zeros, add up to the gradient.
head -c 120000 /dev/zero >zero.f32 && tail -c 120000 grad.f32 >g.f32
config=density=0.25,value=f32,feedback=plain,residual=f32,select=exact
for step in 0 1 2 3; do
    "$FRUGRAD" compress "$([ $step = 0 ] && echo g.f32 || echo zero.f32)" -c $config -r left --step $step -o s$step.fgr >/dev/null
    "$FRUGRAD" decompress s$step.fgr -o s$step.f32 >/dev/null
done
python3 - <<'PY' || fail "four quarters do not add up to the gradient"
import struct
read = lambda name: struct.unpack("<30000f", open(name, "rb").read())
parts = [read("s%d.f32" % step) for step in range(4)]
want = read("g.f32")
assert [sum(p) for p in zip(*parts)] == list(want)
assert all(sum(1 for v in p if v) > 7000 for p in parts)
PY

# The payload is a safetensors file that others can open.
python3 - <<'PY' || fail "the payload is not a valid safetensors file"
import json, struct
raw = open("m.fgr", "rb").read()
length = struct.unpack("<Q", raw[:8])[0]
header = json.loads(raw[8 : 8 + length])
frame = header["frugrad.frame"]
assert frame["dtype"] == "U8" and frame["data_offsets"] == [0, len(raw) - 8 - length] and (8 + length) % 8 == 0
meta = header["__metadata__"]
assert meta["frugrad"] == "1" and meta["frugrad.source"] == "npy"
assert json.loads(meta["frugrad.layout"])[0]["shape"] == [120, 250]
PY
# A transform is the trainers' part.
"$FRUGRAD" compress grad.f32 -o demo.fgr -c demo 2>err >/dev/null || fail "demo: compress fails"
grep -q 'transform=cosine is done by the trainers' err || fail "demo: no hint: $(cat err)"
[ -z "$(find . -name '.frugrad-*')" ] || fail "temporary files are left"
echo "cli_roundtrip: all right"

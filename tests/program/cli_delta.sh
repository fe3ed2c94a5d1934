#!/usr/bin/env bash
# `frugrad diff` and `frugrad patch`: files come back byte for byte, through chains, forward and back; other versions,
# damaged and cut patches are refused with a sentence, and leave the file as it was.
. "$(dirname "$0")/../support/script.sh"
cd "$work"

cat >make.py <<'PY'
"""Five versions of a file of weights in many formats: old, new, newer, grown (other tensors), other (one bit off)."""
import json, random, struct

random.seed(2)
SIZES = {"F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I8": 1, "U8": 1, "BOOL": 1, "I16": 2,
         "I32": 4, "I64": 8, "U64": 8, "F64": 8}

def write(name, tensors, metadata):
    header, body = {"__metadata__": metadata}, b""
    for key, (dtype, shape, data) in tensors.items():
        header[key] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    open(name, "wb").write(struct.pack("<Q", len(text)) + text + body)

def step(data, width, share):
    numbers = [int.from_bytes(data[i:i + width], "little") for i in range(0, len(data), width)]
    for i in random.sample(range(len(numbers)), int(share * len(numbers))):
        numbers[i] = (numbers[i] + random.choice([1, -1, 1, -1, 1, -1, 3, -700, random.getrandbits(64)])) % 256**width
    return b"".join(n.to_bytes(width, "little") for n in numbers)

old = {f"w.{dtype}": (dtype, [30, 50], random.randbytes(1500 * size)) for dtype, size in SIZES.items()}
old["large"] = ("BF16", [300, 300], random.randbytes(180000))
old["scalar"], old["empty"] = ("F32", [], random.randbytes(4)), ("BF16", [0, 7], b"")
change = lambda tensors, share: {k: (t, s, step(d, SIZES[t], share)) for k, (t, s, d) in tensors.items()}
new = change(old, 0.02)
newer = change(new, 0.3)
grown = {"added": ("F32", [9], random.randbytes(36)), **{k: v for k, v in newer.items() if k != "scalar"}}
grown["w.I8"] = ("I8", [1501], random.randbytes(1501))
final = change(grown, 0.01)
write("old", old, {"step": "1"})
write("new", new, {"step": "1"})
write("newer", newer, {"step": "2"})
write("grown", grown, {"step": "3"})
write("final", final, {"step": "3"})
other = dict(old, large=("BF16", [300, 300], bytes([old["large"][2][0] ^ 1]) + old["large"][2][1:]))
write("other", other, {"step": "1"})
PY
python3 make.py
"$FRUGRAD" diff old new -o 1.fgd >summary || fail "diff fails"
"$FRUGRAD" diff new newer -o 2.fgd >/dev/null
"$FRUGRAD" diff newer grown -o 3.fgd >/dev/null
"$FRUGRAD" diff grown final -o 4.fgd --threads 1 >/dev/null
grep -q 'changed      2.0' summary && grep -q 'tensors      17 with' summary || fail "the summary is off: $(cat summary)"
[ "$(stat -c %s 1.fgd)" -lt 9000 ] || fail "2 % of 219 kB takes $(stat -c %s 1.fgd) bytes"

"$FRUGRAD" patch old 1.fgd -o made >/dev/null && cmp made new || fail "old and patch do not make new"
"$FRUGRAD" patch old 1.fgd 2.fgd 3.fgd 4.fgd -o chained >/dev/null && cmp chained final || fail "a chain does not lead to the last version"
"$FRUGRAD" patch new 1.fgd --back -o back >/dev/null && cmp back old || fail "the patch does not lead back"
cp old here && "$FRUGRAD" patch here 1.fgd >/dev/null && cmp here new || fail "without -o the file is not replaced"
"$FRUGRAD" patch old 1.fgd -o - | cmp - new || fail "standard output gets other bytes"
"$FRUGRAD" diff old new -o - 2>/dev/null | cmp - 1.fgd || fail "a patch to standard output has other bytes"
FRUG_ISA=ref "$FRUGRAD" diff old new -t 3 -o ref.fgd >/dev/null && cmp ref.fgd 1.fgd || fail "the reference kernel gives other bytes"
"$FRUGRAD" diff old old -o none.fgd --json >none.json && "$FRUGRAD" patch old none.fgd -o made --force >/dev/null && cmp made old
python3 -c 'import json; s = json.load(open("none.json")); assert s["entries"] == 0 and s["base"] == s["result"], s'

# refused PATTERN ARGUMENTS...: exit status 1, a sentence, and nothing is written
refused() {
    local pattern=$1 code=0
    shift
    "$FRUGRAD" "$@" >out 2>err || code=$?
    [ "$code" = 1 ] || fail "'$*' exits with $code, not 1: $(cat err)"
    grep -q "$pattern" err || fail "'$*' says '$(cat err)', not '$pattern'"
    [ ! -e x ] || fail "'$*' leaves a file"
}
refused "tensor 'large' is not the version that the patch was made from" patch other 1.fgd -o x
refused "is the result already" patch new 1.fgd -o x
refused 'its header is not that of the file' patch newer 1.fgd -o x
refused 'newer: has the header that 2.fgd leads to' patch newer 2.fgd -o x
refused '1.fgd: does not continue 1.fgd' patch old 1.fgd 1.fgd -o x
refused '3.fgd: does not continue 1.fgd' patch old 1.fgd 3.fgd -o x
refused 'cannot go back: the header of the file changed' patch newer 2.fgd --back -o x
refused 'made: exists already' patch old 1.fgd -o made
refused 'both a patch and the output' patch old 1.fgd -o 1.fgd --force
refused 'cannot open' patch old missing.fgd -o x
refused 'is not a patch' patch old new -o x
refused 'both input and output' diff old new -o old
refused 'safetensors' diff old 1.fgd -o x
cp other here && "$FRUGRAD" patch here 1.fgd >/dev/null 2>&1 && fail "another version is patched in place"
cmp here other || fail "a refused patch changed the file"
for bytes in 0 1 63 64 500 4000 $(($(stat -c %s 1.fgd) - 1)); do
    head -c "$bytes" 1.fgd >cut.fgd
    refused 'cut.fgd: delta: ' patch old cut.fgd -o x
done
cat 1.fgd 2.fgd >long.fgd
refused 'bytes behind the end' patch old long.fgd -o x
head -c 72 1.fgd >spliced.fgd && tail -c 72 1.fgd >>spliced.fgd
refused 'records of the patch are missing' patch old spliced.fgd -o x
python3 - <<'PY'
import random
random.seed(3)
good = open("1.fgd", "rb").read()
for i in range(12):
    bad = bytearray(good)
    bad[random.randrange(len(bad))] ^= 1 << random.randrange(8)
    open(f"bad{i}.fgd", "wb").write(bad)
PY
for i in $(seq 0 11); do
    refused "bad$i.fgd: delta: " patch old bad$i.fgd -o x
done
code=0
(ulimit -f 1; "$FRUGRAD" patch old 1.fgd -o x >out 2>err) || code=$?
[ "$code" = 1 ] && [ ! -e x ] || fail "a full disk leaves half a file"
[ -z "$(find . -name '.frugrad-*')" ] || fail "temporary files are left"
echo "cli_delta: all right"

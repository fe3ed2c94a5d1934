#!/usr/bin/env bash
# Bad input, unreadable files and full disks get one error line and a non-zero exit, and leave nothing
# behind: no output, no temporary file, no changed residual.
set -euo pipefail
export FRUGRAD_PROGRESS=off # how long things take must not change what is printed
# A leak check costs seconds per process on ARM; cli_inspect.sh makes it for every command.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0

work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
mkdir "$work/in"
cd "$work/in"
fail() { echo "cli_bad_input: $*" >&2; exit 1; }
state() { find . -printf '%p %s\n' | sort; }

# check_error WHAT PATTERN CODE: check ../err after a command that should have failed
check_error() {
    [ "$3" = 1 ] || [ "$3" = 2 ] || fail "$1: exit status $3 ($(tail -1 ../err))"
    [ "$(grep -vc '^  hint: ' ../err)" = 1 ] || fail "$1: not one line but: $(cat ../err)"
    grep -q '^frugrad: ' ../err || fail "$1: no error line but: $(cat ../err)"
    grep -Eq -- "$2" ../err || fail "$1: does not print '$2' but: $(cat ../err)"
    [ "$(state)" = "$before" ] || fail "$1: files have changed: $(diff <(echo "$before") <(state))"
}
# refused PATTERN ARGUMENTS...
refused() {
    local pattern=$1 code=0
    shift
    before=$(state)
    "$FRUGRAD" "$@" >../out 2>../err </dev/null || code=$?
    check_error "'$*'" "$pattern" "$code"
}

python3 - <<'PY'
import random, struct
random.seed(2)
f32 = lambda n: struct.pack("<%df" % n, *(random.gauss(0, 1) for _ in range(n)))
npy = lambda shape, data: b"\x93NUMPY\x01\x00\x50\0" + (
    "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }" % shape).ljust(80).encode() + data
st = lambda header, data: struct.pack("<Q", len(header)) + header.encode() + data
w = lambda name, data: open(name, "wb").write(data)
w("good.f32", f32(9000))
w("other.f32", f32(9001))
w("good.npy", npy("(90, 100)", f32(9000)))
w("odd.f32", f32(10) + b"x")
w("empty.f32", b"")
w("empty.npy", npy("(0, 5)", b""))
w("cut.npy", npy("(90, 100)", f32(8999)))
w("header.npy", npy("(90, 100)", b"")[:40])
w("absurd.npy", npy("(4294967296, 4294967296)", b""))
w("huge.npy", npy("(200000000000000,)", b""))
w("nine.npy", npy("(1, 1, 1, 1, 1, 1, 1, 1, 1)", f32(1)))
w("ints.npy", npy("(1,)", f32(1)).replace(b"<f4", b"<i4"))
entry = '"a":{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}'
w("cut.safetensors", st("{%s}" % (entry % ("F32", "4", 0, 16)), f32(3)))
w("twice.safetensors", st("{%s,%s}" % (entry % ("F32", "1", 0, 4), entry % ("F32", "1", 4, 8)), f32(2)))
w("ints.safetensors", st("{%s}" % (entry % ("I64", "1", 0, 8)), f32(2)))
w("absurd.safetensors", st("{%s}" % (entry % ("F32", "4294967296,4294967296", 0, 0)), b""))
w("length.safetensors", b"\xff" * 8 + b"{}")
w("escape.safetensors", st('{"\\u001b[31m\\n":{"dtype":"F31","shape":[],"data_offsets":[0,4]}}', f32(1)))
w("noname.safetensors", st('{"":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', f32(1)))
PY
mkdir folder

# -- unreadable input
refused 'missing.f32: cannot open: No such file' compress missing.f32
refused 'folder: is a directory' compress folder
refused 'good.f32/x: cannot open: Not a directory' compress good.f32/x
refused 'odd.f32: 41 bytes are not a whole number of f32' compress odd.f32
refused 'empty.f32: holds no numbers' compress empty.f32
refused 'empty.npy: holds no numbers' compress empty.npy
refused 'standard input: is not a .npy file' compress - --format npy
refused 'cut.npy: the shape needs 36000 bytes of data, the file has 35996' compress cut.npy
refused 'header.npy: ends inside the npy header' compress header.npy
refused 'absurd.npy: .*2\^48' compress absurd.npy
refused 'huge.npy: the shape needs 800000000000000 bytes' compress huge.npy
refused 'nine.npy: has more than 8 dimensions' compress nine.npy
refused "ints.npy: holds elements of type '<i4'" compress ints.npy
refused 'good.f32: is not a .npy file' compress good.f32 --format npy
refused 'cut.safetensors: .*ends outside the file' compress cut.safetensors
refused 'twice.safetensors: .*duplicate' compress twice.safetensors
refused 'ints.safetensors: .*holds no F32' compress ints.safetensors
refused 'absurd.safetensors: .*2\^48' compress absurd.safetensors
refused 'length.safetensors: .*100 MB' compress length.safetensors
refused 'noname.safetensors: ' compress noname.safetensors
refused "escape.safetensors: tensor '\?\[31m\?'" compress escape.safetensors
refused 'missing.fgr: cannot open' decompress missing.fgr
refused 'missing.fgr: cannot open' inspect missing.fgr
refused 'folder: is a directory' inspect folder
refused 'good.f32: ' inspect good.f32
refused 'good.f32: ' decompress good.f32 -o x
refused 'unknown|no such' compress good.f32 --config nonsense
if [ "$(id -u)" != 0 ]; then
    cp good.f32 secret.f32 && chmod 0 secret.f32
    refused 'secret.f32: cannot open: Permission denied' compress secret.f32
fi

# -- unwritable output
refused 'folder: cannot write: is a directory' compress good.f32 -o folder
refused 'no/such/x: cannot write: No such file' compress good.f32 -o no/such/x
refused '/dev/full: cannot write: No space left' compress good.f32 -o /dev/full
refused "$(printf 'a%.0s' {1..300}): cannot write: File name too long" compress good.f32 -o "$(printf 'a%.0s' {1..300})"
refused 'good.f32: is both input and output' compress good.f32 -o ./good.f32
refused 'good.f32: is both the residual and' compress good.f32 -r good.f32
refused "'-'" compress good.f32 -r -
before=$(state)
code=0
(ulimit -f 1; "$FRUGRAD" compress good.f32 -c dense >../out 2>../err) || code=$?
check_error "compress past the size limit" 'good.f32.fgr: cannot write: File too large' $code
code=0
"$FRUGRAD" inspect 2>../err >/dev/full || code=$?
check_error "inspect to a full disk" 'standard output: No space left' $code
code=0
"$FRUGRAD" compress good.f32 -o - 2>../err >/dev/full || code=$?
check_error "compress to a full disk" 'standard output: cannot write: No space left' $code

"$FRUGRAD" compress good.f32 -c dense >/dev/null
refused '/dev/full: cannot write: No space left' decompress good.f32.fgr -o /dev/full
refused 'folder: cannot write' decompress good.f32.fgr -o folder
refused 'both input and output' decompress good.f32.fgr -o good.f32.fgr --force
before=$(state)
code=0
(ulimit -f 1; "$FRUGRAD" decompress good.f32.fgr >../out 2>../err) || code=$?
check_error "decompress past the size limit" 'good.restored.f32: cannot write: File too large' $code
code=0
"$FRUGRAD" compress good.f32 -o - 2>../err | true || code=${PIPESTATUS[0]}
[ "$code" != 141 ] || fail "a closed pipe kills the program"

# -- residuals: of another layout or config, damaged, or on a full disk; the old one stays
"$FRUGRAD" compress good.f32 -c residual=f32 -r left -o s.fgr >/dev/null
refused 'left: state: it was made for tensors of layout [0-9a-f]*, and these are [0-9a-f]*' compress other.f32 -c residual=f32 -r left -o x.fgr
refused 'left: state: it was made with residual=f32, and this config has bf16' compress good.f32 -c residual=bf16 -r left -o x.fgr
refused 'left: state: it was made with feedback=merged, and this config has plain' compress good.f32 -c residual=f32,feedback=plain -r left -o x.fgr
refused 'left: state: it was made with block=256, and this config has 64' compress good.f32 -c residual=f32,block=64 -r left -o x.fgr
before=$(state)
code=0
(ulimit -f 8; "$FRUGRAD" compress good.f32 -c residual=f32 -r left -o x.fgr >../out 2>../err) || code=$?
check_error "a residual past the size limit" 'left: cannot write: File too large' $code
head -c 999 left >cut.left
refused 'cut.left: ' compress good.f32 -c residual=f32 -r cut.left -o x.fgr
refused 'folder: ' compress good.f32 -r folder -o x.fgr

# -- a truncated or damaged payload
cat >../damage.py <<'PY'
"""Try every kind of damage on one payload; the program must refuse it, or restore exactly what was sent."""
import os, struct, subprocess, sys

program, name = sys.argv[1:3]
good = open(name, "rb").read()
start = 8 + struct.unpack("<Q", good[:8])[0]
restore = lambda: subprocess.run([program, "decompress", "../bad.fgr", "-o", "../bad.out"], capture_output=True)
open("../bad.fgr", "wb").write(good)
assert restore().returncode == 0
want = open("../bad.out", "rb").read()

def attempt(what, data, may_pass):
    if os.path.exists("../bad.out"):
        os.remove("../bad.out")
    open("../bad.fgr", "wb").write(data)
    done = restore()
    if done.returncode == 0:
        assert may_pass and open("../bad.out", "rb").read() == want, what + ": accepted"
        return
    lines = [line for line in done.stderr.decode().splitlines() if not line.startswith("  hint: ")]
    assert done.returncode == 1 and len(lines) == 1 and lines[0].startswith("frugrad: ../bad.fgr: "), (what, done)
    assert not os.path.exists("../bad.out"), what + ": leaves an output"
    assert not [f for f in os.listdir("..") if f.startswith(".frugrad")], what + ": leaves a temporary file"

lengths = list(range(0, start, 61)) + list(range(start, len(good), max(1, (len(good) - start) // 60)))
for length in lengths + [len(good) - 1]:
    attempt("cut to %d bytes" % length, good[:length], False)
attempt("one byte too many", good + b"\0", False)
flip = lambda at, bit: good[:at] + bytes([good[at] ^ 1 << bit]) + good[at + 1:]
for i in range(60):
    at = start + i * (len(good) - start) // 60
    attempt("bit %d of byte %d flipped" % (i % 8, at), flip(at, i % 8), False)
for at in range(start, min(start + 64, len(good))):
    attempt("bit of frame header byte %d flipped" % (at - start), flip(at, at % 8), False)
for at in range(0, start, 7):  # the config text and the roles are only notes: damage there may pass
    attempt("bit %d of header byte %d flipped" % (at % 7, at), flip(at, at % 7), True)
PY
"$FRUGRAD" compress good.npy -o p.fgr >/dev/null
python3 ../damage.py "$FRUGRAD" p.fgr || fail "a damaged payload was accepted, or rejected with a bad message"

# -- a valid frame with a description of more elements than any machine has memory for
python3 - <<'PY'
import json, struct
raw = open("p.fgr", "rb").read()
length = struct.unpack("<Q", raw[:8])[0]
header = json.loads(raw[8 : 8 + length])
header["__metadata__"]["frugrad.layout"] = json.dumps([{"name": "gradient", "shape": [1 << 24, 1 << 24], "role": "other"}])
text = json.dumps(header).encode()
open("absurd.fgr", "wb").write(struct.pack("<Q", len(text)) + text + raw[8 + length :])
PY
refused 'absurd.fgr: ' decompress absurd.fgr
refused 'good.npy: ' inspect good.npy
cp good.npy plain.safetensors
refused 'plain.safetensors: ' compress plain.safetensors

# -- an interrupt while the files are being written: the residual is a pipe without a reader
rm -f pipe && mkfifo pipe
before=$(state)
"$FRUGRAD" compress good.f32 -o late.fgr -r pipe >/dev/null 2>&1 &
pid=$!
for _ in $(seq 100); do
    [ -n "$(find . -name '.frugrad-*')" ] && break
    sleep 0.1
done
[ -n "$(find . -name '.frugrad-*')" ] || fail "no temporary file was seen, the interrupt is not tested"
kill -TERM $pid
code=0
wait $pid || code=$?
[ "$code" = 143 ] || fail "SIGTERM ends the program with $code"
[ "$(state)" = "$before" ] || fail "an interrupt leaves files: $(diff <(echo "$before") <(state))"
echo "cli_bad_input: all right"

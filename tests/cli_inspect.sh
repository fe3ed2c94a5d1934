#!/usr/bin/env bash
# inspect tells about the machine, a config and a payload, as tables and as JSON that parses and agrees.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fail() { echo "cli_inspect: $*" >&2; exit 1; }

"$FRUGRAD" inspect >machine
grep -q '(in use)' machine || fail "no variant is in use"
grep -q '^  frugrad ' machine || fail "the presets are missing"
"$FRUGRAD" inspect --json | python3 -c '
import json, sys
m = json.load(sys.stdin)
assert m["variants"][0] == "ref" and m["variant"] in m["variants"] and m["threads"] >= 1 and m["cpus"] >= 1, m
assert "frugrad" in m["presets"], m' || fail "inspect --json is off"
FRUG_ISA=ref "$FRUGRAD" inspect | grep -q 'ref (in use)' || fail "FRUG_ISA=ref is not followed"
if FRUG_ISA=abacus "$FRUGRAD" inspect 2>err; then fail "FRUG_ISA=abacus is accepted"; fi
grep -q '^frugrad: .*abacus' err || fail "FRUG_ISA=abacus is not named"

"$FRUGRAD" inspect --config frugrad,value=int8 | grep -Eq '^value +int8 ' || fail "the table does not show value=int8"
"$FRUGRAD" inspect --config frugrad,value=int8 --json | python3 -c '
import json, sys
c = json.load(sys.stdin)
assert {o["option"]: o["value"] for o in c["options"]}["value"] == "int8" and "value=int8" in c["config"], c' ||
    fail "inspect --config --json is off"

python3 - <<'PY'
import json, struct
entry = lambda shape, a, b: {"dtype": "F32", "shape": shape, "data_offsets": [a, b]}
text = json.dumps({"fc.weight": entry([100, 100], 0, 40000), "fc.bias": entry([60], 40000, 40240),
                   "bn.weight": entry([40], 40240, 40400)}).encode()
values = [((i * 2654435761) % 1000003) / 1000003 - 0.5 for i in range(10100)]
open("g.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + struct.pack("<10100f", *values))
PY
"$FRUGRAD" compress g.safetensors --step 7 >/dev/null
"$FRUGRAD" inspect g.safetensors.fgr >table
grep -q 'step 7' table || fail "the step is missing"
grep -q '^fc.weight ' table || fail "a tensor is missing"
grep -q '^total ' table || fail "the total is missing"
"$FRUGRAD" inspect g.safetensors.fgr --json >payload.json
python3 - <<'PY' || fail "the JSON of a payload is off"
import json, struct
raw = open("g.safetensors.fgr", "rb").read()
length = struct.unpack("<Q", raw[:8])[0]
open("bare", "wb").write(raw[8 + length :])
p = json.load(open("payload.json"))
assert p["step"] == 7 and p["count"] == 10100 and p["bytes"] == len(raw) - 8 - length, p
assert sum(s["entries"] for s in p["sections"]) == p["entries"] and sum(s["count"] for s in p["sections"]) == 10100, p
assert p["sections"][0]["tensor"] == "fc.weight" and p["sections"][0]["density"] < 0.1, p
assert p["sections"][-1]["tensor"] == "fc.bias" and p["sections"][-1]["density"] == 1, p
assert sum(s["tensors"] for s in p["sections"]) == 3, p
assert abs(p["ratio"] - 40400 / p["bytes"]) < 1e-6 and "block=" in p["config"], p
PY
"$FRUGRAD" inspect bare --json >bare.json
python3 - <<'PY' || fail "a bare frame is described differently"
import json
bare, payload = json.load(open("bare.json")), json.load(open("payload.json"))
payload.pop("config")
names = [s.pop("tensor") for s in bare["sections"]]
for section in bare["sections"] + payload["sections"]:
    section.pop("tensor", None)
    section.pop("tensors")
assert bare == payload and names[0] == "#0", (bare, payload)
PY

# The other commands once each, well and badly, where a sanitizer looks for leaks.
"$FRUGRAD" decompress g.safetensors.fgr >/dev/null
"$FRUGRAD" compress g.safetensors.fgr 2>err && fail "a payload is compressed again"
head -c 500 g.safetensors.fgr >cut.fgr
"$FRUGRAD" decompress cut.fgr 2>>err && fail "half a payload is restored"
"$FRUGRAD" compress g.safetensors -r left -o /dev/full 2>>err && fail "a full disk takes a payload"
[ "$(grep -c '^frugrad: ' err)" = 3 ] && ! grep -q Sanitizer err || fail "not three errors but: $(cat err)"
echo "cli_inspect: all right"

#!/usr/bin/env bash
# inspect shows the machine, a config and a payload, as tables and as JSON with the same contents.
set -euo pipefail
export FRUGRAD_PROGRESS=off # how long things take must not change what is printed

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
FRUG_ISA=ref "$FRUGRAD" inspect | grep 'ref (in use)' >/dev/null || fail "FRUG_ISA=ref is not followed"
if FRUG_ISA=abacus "$FRUGRAD" inspect 2>err; then fail "FRUG_ISA=abacus is accepted"; fi
grep -q '^frugrad: .*abacus' err || fail "FRUG_ISA=abacus is not named"

"$FRUGRAD" inspect --config frugrad,value=int8 | grep -E '^value +int8 ' >/dev/null || fail "the table does not show value=int8"
"$FRUGRAD" inspect --config frugrad,value=int8 --json | python3 -c '
import json, sys
c = json.load(sys.stdin)
assert {o["option"]: o["value"] for o in c["options"]}["value"] == "int8" and "value=int8" in c["config"], c' ||
    fail "inspect --config --json is off"

# A name, a blank, its value: for every option, whichever is the longest.
"$FRUGRAD" inspect --config frugrad --json >config.json
"$FRUGRAD" inspect --config frugrad >config
python3 - <<'PY' || fail "a name and its value run together"
import json
lines = open("config").read().splitlines()
for option in json.load(open("config.json"))["options"]:
    assert any(line.split()[:2] == [option["option"], option["value"]] for line in lines), option
assert max(map(len, lines[:-2])) <= 80, max(lines[:-2], key=len)
PY

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

# What a config would send of a model: by name, and from a file of the same tensors, which is then compressed.
"$FRUGRAD" inspect --model resnet20 --json >named.json
python3 - <<'PY' || fail "the tensors of resnet20 are off"
import json, random, struct
random.seed(5)
m = json.load(open("named.json"))
header, data = {}, b""
for t in m["tensors"]:
    count = 1
    for extent in t["shape"]:
        count *= extent
    part = struct.pack(f"<{count}f", *(random.gauss(0, 1) for _ in range(count)))
    header[t["tensor"]] = {"dtype": "F32", "shape": t["shape"], "data_offsets": [len(data), len(data) + len(part)]}
    data += part
text = json.dumps(header).encode()
open("resnet20.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data)
assert m["parameters"] == 269722 and m["bytes_dense"] == 4 * 269722 and len(m["tensors"]) == 59, m
PY
cat >check_model.py <<'PY'
import json, sys
named, filed, frame = json.load(open("named.json")), json.load(open("filed.json")), json.load(open("frame.json"))
for m in named, filed:
    assert m["bytes"] == m["frame_header"] + sum(t["bytes"] for t in m["tensors"]), "the tensors do not add up"
    assert abs(m["ratio"] - m["bytes_dense"] / m["bytes"]) < 1e-6, "ratio"
    assert abs(m["bits_per_parameter"] - 8 * m["bytes"] / m["parameters"]) < 1e-6, "bits per parameter"
    for t in m["tensors"]:
        name = t["tensor"]
        assert t["bytes"] == t["header_bytes"] + t["index_bytes"] + t["value_bytes"], name
        if t["dense"]:
            continue
        codes = t["index_bytes_by_code"]
        assert 1 <= t["sent"] <= t["units"] * t["sections"] and t["entries"] >= t["sent"], name
        assert t["index"] == "mixed" or codes[t["index"]] == t["index_bytes"], (name, codes)
        if "index=auto" in m["config"] and t["sections"] == 1:
            assert all(b is None or t["index_bytes"] <= b for c, b in codes.items() if c not in ("none", "seeded")), name
        if "threshold" not in m["config"] and "probabilistic" not in m["config"] and t["segments"] > 0:
            assert t["sent"] == t["k"], (name, t["sent"], t["k"])
    assert any(not t["dense"] for t in m["tensors"]) and any(t["dense"] for t in m["tensors"])
assert [t["role"] for t in named["tensors"]] == [t["role"] for t in filed["tensors"]], "roles"
assert filed["bytes"] == frame["bytes_frame"], (filed["bytes"], frame["bytes_frame"])
assert "same" not in sys.argv or named["bytes"] == filed["bytes"], "sizes depend on the numbers"
PY
for config in frugrad-sgd dgc demo sparseloco feedback=ef21; do # options of a residual, which the trial does not have
    "$FRUGRAD" inspect --model resnet20 --config $config >/dev/null || fail "inspect --model refuses $config"
done
# If indices do not depend on the values, a model by name must give the exact size of the frame.
while read -r same config; do
    "$FRUGRAD" inspect --model resnet20 --config "$config" --json >named.json
    "$FRUGRAD" inspect --model resnet20.safetensors --config "$config" --json >filed.json
    "$FRUGRAD" compress resnet20.safetensors -o frame.fgr --config "$config" --json >frame.json
    python3 check_model.py "$same" || fail "inspect --model with $config is off"
    "$FRUGRAD" inspect --model resnet20 --config "$config" >table
    [ "$(wc -L <table)" -le 120 ] || fail "the table for $config is too wide"
    grep -q '^layer2.0.conv1.weight  *32x16x3x3  *conv ' table || fail "no row for a tensor with $config"
    grep -q '^[0-9]* dense tensors ' table && grep -q '^total ' table || fail "no sums with $config"
    grep -q '^resnet20: 269722 parameters, .* bits per parameter$' table || fail "no last line with $config"
done <<'CONFIGS'
same frugrad
same value=f32,index=bitmap
same segment=tensor,index=coo
data segment=tensor,index=auto
data segment=tensor,index=rice,value=int4
data segment=all,value=int8
same segment=2:4
same unit=channel,segment=tensor,density=0.25,index=bitmap
same unit=tile:8x8,segment=tensor,index=coo
same rule=random,segment=tensor,value=bf16
data rule=threshold:percentile,segment=tensor
data rule=probabilistic,segment=tensor,feedback=none
data rule=hybrid,segment=tensor
same density=1,value=qsgd,feedback=none
CONFIGS

# Attention: two modules of 4 heads, keys and values shared by two of them each.
python3 - <<'PY'
import json, random, struct
random.seed(6)
header, data = {}, b""
for layer in 0, 1:
    for name, rows in ("q_proj", 64), ("k_proj", 32), ("v_proj", 32), ("o_proj", 64):
        part = struct.pack(f"<{64 * rows}f", *(random.gauss(0, 1) for _ in range(64 * rows)))
        header[f"layers.{layer}.self_attn.{name}.weight"] = {
            "dtype": "F32", "shape": [rows, 64], "data_offsets": [len(data), len(data) + len(part)]}
        data += part
text = json.dumps(header).encode()
open("attention.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data)
PY
heads=unit=head,segment=tensor,density=0.5,min_size=64
"$FRUGRAD" inspect --model attention.safetensors --heads 4:2 --config $heads --json >heads.json
python3 - <<'PY' || fail "heads are off"
import json
m = json.load(open("heads.json"))
assert [t["role"] for t in m["tensors"]] == ["attn_q", "attn_k", "attn_v", "attn_o"] * 2, m
assert [t["module"] for t in m["tensors"]] == [1] * 4 + [2] * 4 and all(t["heads"] == 4 for t in m["tensors"]), m
assert all(t["unit"] == "head" and t["units"] == 2 and t["sent"] == 1 for t in m["tensors"]), m
PY
"$FRUGRAD" compress attention.safetensors --heads 4:2 --config $heads -o heads.fgr >/dev/null

refuses() { # exit status, text, arguments
    local want=$1 text=$2 rc=0
    shift 2
    "$FRUGRAD" "$@" >/dev/null 2>err || rc=$?
    [ "$rc" = "$want" ] || fail "frugrad $*: exit status $rc, not $want: $(cat err)"
    grep -qF -- "$text" err || fail "frugrad $*: no '$text' in: $(cat err)"
    [ "$(grep -vc '^  hint:' err)" = 1 ] || fail "frugrad $*: not one line but: $(cat err)"
}
refuses 2 head inspect --model resnet20 --config unit=head,segment=tensor
refuses 2 head inspect --model attention.safetensors --config $heads
refuses 2 3:2 inspect --model resnet20 --config segment=3:2
refuses 2 'did you mean resnet20?' inspect --model resnet2O
refuses 2 'accepted: resnet20, resnet18' inspect --model zzz
refuses 2 'needs --model' inspect --heads 4
refuses 2 "'4:'" inspect --model attention.safetensors --heads 4:
refuses 2 "'4:2:1'" inspect --model attention.safetensors --heads 4:2:1
refuses 2 'knows its heads' inspect --model gpt2 --heads 12
refuses 2 'one of them' inspect --model resnet20 resnet20.safetensors
refuses 2 '--step' inspect --model resnet20 --step -1
"$FRUGRAD" inspect --help >help
for model in $("$FRUGRAD" inspect --model zzz 2>&1 | sed -n 's/.*known: //p' | tr -d ,); do
    grep -qw -- "$model" help || fail "the help does not list $model"
done

# The other commands once each, with and without errors, for the leak sanitizer.
"$FRUGRAD" decompress g.safetensors.fgr >/dev/null
"$FRUGRAD" compress g.safetensors.fgr 2>err && fail "a payload is compressed again"
head -c 500 g.safetensors.fgr >cut.fgr
"$FRUGRAD" decompress cut.fgr 2>>err && fail "half a payload is restored"
"$FRUGRAD" compress g.safetensors -r left -o /dev/full 2>>err && fail "a full disk takes a payload"
[ "$(grep -c '^frugrad: ' err)" = 3 ] && ! grep -q Sanitizer err || fail "not three errors but: $(cat err)"

# -- threads of OpenMP poll for a moment only, unless the environment says otherwise; other libraries than GCC's print no count
spin() { env -u OMP_WAIT_POLICY -u GOMP_SPINCOUNT OMP_DISPLAY_ENV=verbose "$@" "$FRUGRAD" train --help 2>&1 | sed -n "s/.*GOMP_SPINCOUNT = '\(.*\)'/\1/p" | tail -1; }
if [ -n "$(spin OMP_WAIT_POLICY=active)" ]; then
    [ "$(spin)" = 10000 ] || fail "OpenMP's threads poll $(spin) times"
    [ "$(spin GOMP_SPINCOUNT=7)" = 7 ] || fail "GOMP_SPINCOUNT is not obeyed"
    [ "$(spin OMP_WAIT_POLICY=passive)" = 0 ] || fail "OMP_WAIT_POLICY is not obeyed"
fi
echo "cli_inspect: all right"

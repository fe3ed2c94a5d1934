#!/usr/bin/env bash
# `frugrad plan` predicts, measures and counts; units are strict, and it advises against compression that gains nothing.
. "$(dirname "$0")/../support/script.sh"
given="--compress-speed 1G --decode-speed 2G"

# -- the table: every algorithm, every density, and the recommendation
"$FRUGRAD" plan --params 124M --workers 8 --bandwidth 1Gbit --latency 50us --compute 300ms $given >"$work/table"
for row in dense gather split:1 split:2 split:4 split:union tree server:2 server:union; do
    grep -Eq "^  $row +" "$work/table" || fail "the table has no row $row"
done
[ "$(grep -c '^  gather ' "$work/table")" = 3 ] || fail "not three densities unless asked for"
! grep -q '^  nodes' "$work/table" || fail "nodes of one worker are shown"
grep -q '^verdict: a dense step of .* waits .* % makes it .* faster' "$work/table" ||
    fail "the verdict at 1 Gbit/s is: $(tail -1 "$work/table")"
"$FRUGRAD" plan --per-node 4 $given | grep '^  nodes ' >/dev/null || fail "nodes of four workers are not shown"
"$FRUGRAD" plan --bandwidth 100Gbit --compute 300ms --overlap --compress-speed 300M --decode-speed 2G |
    grep -q '^verdict: .*100 Gbit/s.*do not compress' || fail "advises compression at 100 Gbit/s"

# -- the same as JSON, against an independent copy of the formulas
"$FRUGRAD" plan -n 10M -p 4 -b 800Mbit/s -l 100us -t 20ms -d 6.25% --config value=f32 $given --json >"$work/json"
python3 - "$work/json" <<'PY'
import json, sys
plan = json.load(open(sys.argv[1]))
n, p, b = 10e6, 4, 1e8
assert (plan["params"], plan["workers"], plan["bandwidth_bytes"], plan["link"]) == (n, p, b, "given"), plan
rows = {row["name"]: row for row in plan["predictions"]}
near = lambda a, b: abs(a - b) <= 1e-3 * abs(b) or (a, b)
payload = n / 256 * 80
assert abs(plan["speeds"][0]["payload_per_param"] * n - payload) < 1e-3 * payload, plan["speeds"]
for name, want in {"dense": 8 * n * 3 / 4, "gather": 3 * payload, "split:1": payload * 3 / 2}.items():
    assert near(rows[name]["bytes_received"], want) is True, (name, rows[name], want)
dense = rows["dense"]
assert near(dense["seconds_wire"], 8 * n * 3 / 4 / b + (2 * 3 + 2) * 1e-4) is True, dense
for row in rows.values():
    parts = sum(row["seconds_" + k] for k in ("compress", "decode", "exposed")) + 0.02
    assert near(row["seconds_step"], parts) is True, row
    assert near(row["speedup"], dense["seconds_step"] / row["seconds_step"]) is True, row
PY

# -- one dense step, and every speed-up is over that one: in the table, in the sentence below and in JSON
scenes=("-n 1G -b 25Gbit --overlap --per-node 4 -d 6.25%,1%" "-d 5%,1%" "-n 5M -p 2 -b 100Mbit -d 1%,0.1%")
[ -z "${FRUG_TEST_SHORT:-}" ] || scenes=("${scenes[0]}")
for words in "${scenes[@]}"; do
    "$FRUGRAD" plan $words >"$work/text"
    "$FRUGRAD" plan $words --json >"$work/json"
    python3 - "$work/text" "$work/json" <<'PY' || fail "plan $words: speed-ups disagree"
import json, re, sys
text = open(sys.argv[1]).read()
unit = {"us": 1e-6, "ms": 1e-3, "s": 1}
rows = []
for line in text.splitlines():
    found = re.match(r"  (\S+) .* ([0-9.]+) (us|ms|s) +([0-9.]+)x$", line)
    if found:
        density = re.search(r"([0-9.]+) %", line)
        rows.append((found[1], density and density[1], float(found[2]) * unit[found[3]], found[4]))
assert rows[0][0] == "dense" and len(rows) > 5, text
for name, density, step, speedup in rows:
    assert abs(rows[0][2] / step - float(speedup)) < 0.006 + 0.01 * float(speedup), (name, step, rows[0], speedup)
best = min(rows, key=lambda row: row[2])
summary = re.search(r"; (\S+) at ([0-9.]+) % makes it ([0-9.]+) times faster", text)
if summary:
    assert summary.groups() in [(row[0], row[1], row[3]) for row in rows], (summary.groups(), rows)
    assert float(summary[3]) == max(float(row[3]) for row in rows), (summary.groups(), rows)
else:
    assert "do not compress for speed" in text and float(best[3]) < 1.06, text
plan = json.load(open(sys.argv[2]))
dense = plan["predictions"][0]["seconds_step"]
for row in plan["predictions"]:
    assert abs(dense / row["seconds_step"] - row["speedup"]) < 1e-6 * row["speedup"], row
best = min(plan["predictions"], key=lambda row: row["seconds_step"])
assert (plan["best"], plan["best_density"], plan["best_speedup"]) == (best["name"], best["density"], best["speedup"]), plan
if plan["compress"]:
    assert " %.2f times faster" % best["speedup"] in plan["verdict"], plan["verdict"]
PY
done

# -- a config's own density; measured speeds and links
"$FRUGRAD" plan --config topk $given >"$work/own"
[ "$(grep -c '^  gather ' "$work/own")" = 1 ] || fail "a config without --density has not one row of gather"
grep -q '^  density 30 %' "$work/own" || fail "topk's own density is not 30 %: $(cat "$work/own")"
grep -q 'per message (default)' "$work/own" || fail "the link is not called the default: $(cat "$work/own")"
"$FRUGRAD" plan --measure --workers 3 --density 1% --json >"$work/measured"
python3 - "$work/measured" <<'PY'
import json, sys
plan = json.load(open(sys.argv[1]))
assert "threads" in plan["link"] and plan["bandwidth_bytes"] > 1e6 and plan["latency"] < 5, plan
speed = plan["speeds"][0]
assert 0 < speed["compress_seconds_per_param"] < 1e-5 and abs(speed["density"] - 0.01) < 1e-4, speed
PY

# -- counted
"$FRUGRAD" plan --simulate --workers 64 --json >"$work/count"
"$FRUGRAD" plan --simulate --workers 64 --shared 50% --svg "$work/plot.svg" --json >"$work/shared"
python3 - "$work/count" "$work/shared" "$work/plot.svg" <<'PY'
import json, sys, xml.dom.minidom
rows = [json.load(open(path))["bytes_received_per_param"] for path in sys.argv[1:3]]
assert {row["workers"] for row in rows[0]} == {8, 16, 32, 64}
for row in rows[0]:
    assert abs(row["counted"] / row["predicted"] - 1) < 0.03, row
few = [row for row in rows[1] if row["workers"] == 8 and row["algorithm"] in ("tree", "split:union")]
assert len(few) == 2 and all(row["counted"] < 0.9 * row["predicted"] for row in few), few
text = xml.dom.minidom.parse(sys.argv[3]).toxml()
assert all(">%s<" % name in text for name in ("dense", "gather", "tree", "split:1")), text
PY
python3 - "$work/steps.safetensors" <<'PY'
import random, struct, sys, json
random.seed(3)
n, steps = 8192, 4
base = [random.gauss(0, 1) for _ in range(n)]
data = b"".join(struct.pack("<%df" % n, *(b + random.gauss(0, 0.3) for b in base)) for _ in range(steps))
head = json.dumps({"step_%04d" % i: {"dtype": "F32", "shape": [32, 256], "data_offsets": [4 * n * i, 4 * n * (i + 1)]}
                   for i in range(steps)}).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(head)) + head + data)
PY
"$FRUGRAD" plan --simulate --grad "$work/steps.safetensors" --json >"$work/recorded"
python3 - "$work/recorded" <<'PY'
import json, sys
rows = json.load(open(sys.argv[1]))["bytes_received_per_param"]
assert {row["workers"] for row in rows} == {2, 4}
union = [row for row in rows if row["algorithm"] == "split:union" and row["workers"] == 4][0]
assert union["counted"] < 0.8 * union["predicted"], union  # alike gradients have alike supports
PY

# -- invalid options
wrong() {
    local pattern=$1 code=0
    shift
    "$FRUGRAD" plan "$@" >"$work/out" 2>"$work/err" || code=$?
    [ "$code" = 2 ] || fail "'$*' exits with $code, not 2"
    [ ! -s "$work/out" ] || fail "'$*' prints on stdout"
    [ "$(grep -vc '^  hint: ' "$work/err")" = 1 ] || fail "'$*': not one line but: $(cat "$work/err")"
    grep -Eq -- "$pattern" "$work/err" || fail "'$*' does not print '$pattern' but: $(cat "$work/err")"
}
wrong "'Gbits' is not a unit of a bandwidth" --bandwidth 1Gbits
wrong 'did you mean 1Gbit\?' --bandwidth 1Gbits
wrong 'did you mean 1Gbit\?' --bandwidth 1gbit
wrong "'GB' is not a unit" --bandwidth 1GB
wrong 'a bandwidth needs a unit' --bandwidth 1000
wrong 'write it like 10Gbit' --bandwidth fast
wrong "'1e9bit' *: 'e9bit' is not a unit|'e9bit' is not a unit" --bandwidth 1e9bit
wrong 'out of range' --bandwidth 0Gbit
wrong "'' is not a bandwidth" --bandwidth ''
wrong 'a time needs a unit' --latency 50
wrong "'usec' is not a unit of a time" --latency 50usec
wrong "is not a time" --compute -3ms
wrong "is not a time" --compute 1.2.3ms
wrong "'m' is not a unit of a count" --params 124m
wrong "is not a count" --params nan
wrong "is not a count" --params ' 1M'
wrong 'out of range' --params 0
wrong 'out of range' --density 120%
wrong "'' is not a share" --density 1%,,2%
wrong 'more than 8 shares' --density 1%,1%,1%,1%,1%,1%,1%,1%,1%
wrong 'one worker exchanges nothing' --workers 1
wrong '8 workers do not fill nodes of 3' --per-node 3
wrong '9 of 8 workers' --servers 9
wrong 'excludes --bandwidth' --measure --bandwidth 1Gbit
wrong 'needs --simulate' --grad x
wrong 'did you mean --bandwidth' --bandwith 1Gbit
wrong "did you mean 'frugrad'" --config fugrad
wrong 'give one of them' --simulate --grad "$work/steps.safetensors" --shared 10%
code=0
"$FRUGRAD" plan --simulate --grad "$work/steps.safetensors" --workers 8 2>"$work/err" || code=$?
[ "$code" = 1 ] && grep -q '4 recorded steps are too few for 8 workers' "$work/err" || fail "8 workers of 4 steps"
code=0
"$FRUGRAD" plan --simulate --workers 8 --svg "$work/no/such" >/dev/null 2>"$work/err" || code=$?
[ "$code" = 1 ] && grep -q 'no/such: cannot write' "$work/err" || fail "a picture in no folder: $(cat "$work/err")"

ASAN_OPTIONS=$leaks "$FRUGRAD" plan --simulate --grad "$work/steps.safetensors" --svg "$work/plot.svg" >/dev/null
ASAN_OPTIONS=$leaks "$FRUGRAD" plan --measure --workers 2 >/dev/null
echo "cli_plan: all right"

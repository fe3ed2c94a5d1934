#!/usr/bin/env bash
# README.md and docs/results.md have the tables and charts of results/compare; `tools/results.py` fills them, keeps what
# is written around them, notices what is out of step, and makes records small without changing their content.
. "$(dirname "$0")/../support/script.sh"
: "${FRUGRAD_SOURCE:=$(cd "$(dirname "$0")/../.." && pwd)}"
: "${FRUGRAD:=$FRUGRAD_SOURCE/build/release/frugrad}"
export FRUGRAD
tool=$FRUGRAD_SOURCE/tools/results.py

python3 -B "$tool" fill --check || fail "a page does not match results/compare"
cd "$FRUGRAD_SOURCE"
# -- records call a method what `frugrad compare` calls it now, in words of the field
mkdir -p "$work/data/linux-text"
touch "$work/data/linux-text/test.u16" # a plan reads nothing
for suite in paper ablation sparsity structured scaling momentum sgc evidence; do
    options=
    [ "$suite" = evidence ] && options="--size full --tasks gpt2-linux --data $work/data"
    "$FRUGRAD" compare --suite "$suite" $options --plan --out "$work/none" | sed -n "s/^# [^ ]*, \([^ ]*\): /$suite \1 /p" >>"$work/names"
done
python3 - "$work/names" results/compare/*.jsonl results/full/*.jsonl results/evidence/*.jsonl <<'PY'
import json, re, sys
names = {tuple(line.rstrip("\n").split(" ", 2)[:2]): line.rstrip("\n").split(" ", 2)[2] for line in open(sys.argv[1], encoding="utf-8")}
assert len(names) > 120, len(names)
for path in sys.argv[2:]:
    for line in open(path, encoding="utf-8"):
        run = json.loads(line)
        suite = "ablation" if run["suite"] == "bytes" else run["suite"]
        name = names.get((suite, run["method"]), "no exchange" if run["method"] == "alone" else None)
        assert run["label"] == name, (path, suite, run["method"], run["label"], name)
bad = [name for name in names.values() if re.search(r"forgot|nothing held|held|owner|hand on|left behind", name)]
assert not bad, bad
PY
! grep -REl '"(command|error)":"[^"]*[ =](/|~/|\.\./)' results/compare results/full results/evidence 2>/dev/null || fail "a record has a local path"
! grep -REl '"data": ?"(/|~/|\.\./)' results || fail "a record has a local path to its data"

# -- slim: fewer bytes, no local path, the same tables
cd "$work"
python3 "$FRUGRAD_SOURCE/tests/data/make_sample.py" >sample.jsonl
python3 - "$FRUGRAD_SOURCE/tests/data/runs.jsonl" <<'PY'
import json, sys
with open("long.jsonl", "w", encoding="utf-8") as out:
    for line in open(sys.argv[1], encoding="utf-8"):
        r = json.loads(line)
        r["command"] = ("frugrad train --data /home/me/data/glue/SST-2 --tokens ../up/tokenizers/v.txt --model 'x:a=1' "
                        "--data=~/else/where --method frugrad")
        r["environment"] = {"version": "0.2.0", "commit": None, "cpu": "aarch64", "cores": 2, "system": "Linux 6.1.2-x y"}
        r["curve"] = {"step": [3 * i + 3 for i in range(50)] + [151], "seconds": [i / 7 for i in range(51)],
                      "bytes": [i * 100 for i in range(51)], "loss": [2.5 - i / 50 for i in range(51)]}
        r["layers"] = {"names": ["a"], "steps": [1], "density": [[0.5]]}
        out.write(json.dumps(r) + "\n")
PY
{ cat long.jsonl; printf '{"format":1,"suite'; } >torn.jsonl
python3 -B "$tool" slim torn.jsonl long.jsonl -o root/results/compare/smoke-a.jsonl --commit abc1234 --cpu Fast >out
python3 -B "$tool" slim sample.jsonl -o root/results/compare/small-b.jsonl >>out
"$FRUGRAD" report long.jsonl --no-times >before
"$FRUGRAD" report root/results/compare/smoke-a.jsonl --no-times >after
cmp before after || fail "slim records have another content"
python3 - <<'PY'
import json
runs = [json.loads(line) for line in open("root/results/compare/smoke-a.jsonl", encoding="utf-8")]
long = [json.loads(line) for line in open("long.jsonl", encoding="utf-8")]
assert len(runs) == len(long), (len(runs), len(long))
for r, was in zip(runs, long):
    assert r["command"] == ("frugrad train --data data/glue/SST-2 --tokens data/tokenizers/v.txt --model 'x:a=1' "
                            "--data=data/where --method frugrad"), r["command"]
    assert r["environment"] == {"version": "0.2.0", "commit": "abc1234", "cpu": "Fast", "cores": 2, "system": "Linux 6.1 y"}
    assert r["result"] == was["result"]
    if r["phase"] == "tune":
        assert "curve" not in r
        continue
    curve, old = r["curve"], was["curve"]
    assert {len(values) for values in curve.values()} == {20} and curve["step"][-1] == 151 and curve["bytes"][-1] == 5000
    area = lambda c: sum((b - a) * loss for a, b, loss in zip([0] + c["step"], c["step"], c["loss"]))
    assert abs(area(curve) - area(old)) < 1e-3, (area(curve), area(old))
tasks = [r["task"] for r in runs if "layers" in r]
assert len(tasks) == len(set(tasks)) == len({r["task"] for r in runs}), tasks
PY

# -- fill: marks get what belongs there, words around them stay
mkdir root/docs
printf 'first\n\n<!-- results: paper -->\nold\n<!-- /results -->\nlast\n' >root/README.md
printf '%s\n' 'words <!-- results -->' '<!-- results: files -->' '<!-- /results -->' '<!-- results: paper tables -->' \
    '<!-- /results -->' '<!-- results: paper losses -->' '<!-- /results -->' '<!-- results: sparsity charts sparsity -->' \
    '<!-- /results -->' '<!-- results: momentum -->' '<!-- /results -->' '<!-- results: scaling -->' '<!-- /results -->' \
    >root/docs/results.md
fill() { python3 -B "$tool" fill --root root "$@" >out 2>err; }
if fill --check; then fail "--check finds nothing wrong with pages that are not filled"; fi
grep -q 'README.md, docs/results.md, docs/results/sparsity-small' err || fail "--check does not report what is wrong: $(cat err)"
grep -q '^old$' root/README.md && [ ! -e root/docs/results ] || fail "--check writes"
fill || fail "fill fails: $(cat err)"
fill --check || fail "what was just filled is wrong: $(cat err)"
[ "$(head -1 root/README.md) $(tail -1 root/README.md)" = "first last" ] || fail "words around marks are lost"
! grep -q '^old$' root/README.md || fail "what was between marks stays"
grep -q '^| FruGrad 94 % | 6.0 % | 6.0 % | 123.5 % | 99.9 ± 0.2 % | 99.4 ± 0.8 % | 3 |$' root/README.md || fail "no row of FruGrad: $(cat root/README.md)"
grep -q '^\*\*paper (smoke)\*\*$' root/README.md || fail "two sizes have no titles"
grep -q '^- FruGrad 99 % is behind dense by more than the spread' root/docs/results.md || fail "no losses"
grep -q '^No runs of the suite `momentum` are recorded yet.$' root/docs/results.md || fail "a suite without runs is not reported"
grep -q '^!\[.*\](results/sparsity-small-resnet20-cifar10-sparsity.svg)$' root/docs/results.md || fail "no chart"
grep -Eq '^\| `results/compare/smoke-a.jsonl` \| [0-9]+ \| 0 \| 2 cores, Fast, Linux 6.1 y \| 0.2.0 \| abc1234 \|$' root/docs/results.md ||
    fail "the files are not listed: $(grep smoke-a root/docs/results.md)"
! grep -Eq 'state vs dense \| ms/step|as long as a dense' root/README.md root/docs/results.md || fail "times of busy machines are shown"

# -- what is out of step is found
try() { # WHAT FILE SED-SCRIPT PATTERN: after the change --check fails and prints PATTERN
    cp "$2" kept
    sed -i "$3" "$2"
    ! cmp -s "$2" kept || fail "$1: nothing was changed"
    if fill --check; then fail "$1 is not noticed"; fi
    grep -q -- "$4" err || fail "$1: not '$4' but: $(cat err)"
    cp kept "$2"
}
try "another number" root/README.md 's/99.9 ± 0.2/99.9 ± 0.1/' 'not what results/ says: README.md'
try "another record" root/results/compare/small-b.jsonl '/"method":"dense"/s/"accuracy":0.9/"accuracy":0.8/' 'not what results/ says'
try "another chart" root/docs/results/sparsity-small-resnet20-cifar10-sparsity.svg 's/>99 %</>98 %</' 'sparsity.svg'
try "a mark without its end" root/README.md '/^<!-- .results -->$/d' 'without its'
try "a strange mark" root/README.md 's/results: paper/results: paper speeds/' 'paper speeds'
cp root/results/compare/smoke-a.jsonl root/results/compare/smoke-c.jsonl
if fill; then fail "the same run in two files is taken"; fi
grep -q 'have the same run' err || fail "the same run in two files: $(cat err)"
rm root/results/compare/smoke-c.jsonl
cp root/docs/results/*.svg root/docs/results/unused.svg
fill || fail "$(cat err)"
[ ! -e root/docs/results/unused.svg ] || fail "a chart that no page shows stays"
# -- the first page has the tests at the rate that the search prefers, one of each seed
python3 -B - "$FRUGRAD_SOURCE/tools" <<'PY' || fail "tools/readme_figure.py takes other runs"
import sys
sys.path.insert(0, sys.argv[1])
from readme_figure import tests_of

def run(phase, seed, rate, perplexity):
    return dict(phase=phase, seed=seed, rate=rate, metric="perplexity", result=dict(perplexity=perplexity))

tests = [run("test", 1, 0.1, 7), run("test", 2, 0.1, 8), run("test", 1, 0.2, 5), run("test", 1, 0.1, 6)]
search = [run("tune", 100, 0.1, 3), run("tune", 100, 0.2, 4)]
assert [r["result"]["perplexity"] for r in tests_of(tests + search)] == [6, 8]
assert [r["rate"] for r in tests_of(tests[:3])] == [0.2]
PY

echo "results: all right"

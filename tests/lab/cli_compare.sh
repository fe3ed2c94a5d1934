#!/usr/bin/env bash
# `frugrad compare` runs every method of a suite once, resumes after a signal and after kill -9 without repeating a run,
# leaves no child running, records a run that diverges and continues, and reports wrong options.
. "$(dirname "$0")/../support/script.sh"
cd "$work"

compare="$FRUGRAD compare --suite paper --size smoke --tasks mlp-stripes --methods dense,frugrad,frugrad-99"

# lines COUNT: wait until runs.jsonl of a comparison has so many
lines() {
    for _ in $(seq 1200); do
        [ -f "$1/runs.jsonl" ] && [ "$(wc -l <"$1/runs.jsonl")" -ge "$2" ] && return
        sleep 0.05
    done
    fail "no $2 runs in a minute"
}

# no_child DIR: no child that writes there is left
no_child() {
    for _ in $(seq 100); do
        pgrep -f -- "--metrics $1/work" >left || return 0
        sleep 0.05
    done
    fail "children are left: $(cat left)"
}

# -- the plan names every run, starts none and writes nothing
$compare --seeds 2 --rates 3 --plan --out a >plan
[ ! -e a ] || fail "--plan writes"
[ "$(grep -c '^frugrad train .*--judge valid' plan)" = 9 ] || fail "the plan has not 9 searches: $(cat plan)"
[ "$(grep -c '^frugrad train .*# at the best rate' plan)" = 6 ] || fail "the plan has not 6 tests: $(cat plan)"
tail -1 plan | grep -q '^# 15 runs' || fail "the plan does not have 15 runs: $(tail -1 plan)"

# -- a signal (a shell ignores Ctrl-C for background jobs), then kill -9 and half a line, then the rest
$compare --seeds 2 --jobs 1 --out a >out 2>err &
pid=$!
lines a 1
kill -TERM $pid
code=0
wait $pid || code=$?
[ $code = 130 ] || fail "after a signal the status is $code: $(cat err)"
grep -q 'interrupted; . runs are left' err || fail "a signal is not reported: $(cat err)"
no_child a
before=$(wc -l <a/runs.jsonl)
$compare --seeds 2 --jobs 1 --out a >out 2>err &
pid=$!
lines a $((before + 1))
if $compare --seeds 2 --out a >out2 2>err2; then fail "two comparisons write one file"; fi
grep -q 'in use' err2 || fail "no message that the file is in use: $(cat err2)"
kill -9 $pid
{ wait $pid || true; } 2>wait.err
no_child a
printf '{"format":1,"kind":"run","suite":"pap' >>a/runs.jsonl
cp a/runs.jsonl before.jsonl
$compare --seeds 2 --jobs 2 --out a >out 2>err || fail "going on fails: $(cat err)"
cp a/runs.jsonl whole.jsonl
: >a/work/mlp-stripes.frugrad.test.0.02.1.err # as if killed between recording this run and removing its files
$compare --seeds 2 --jobs 2 --out a >out 2>err || fail "where all is done, it fails: $(cat err)"
cmp -s a/runs.jsonl whole.jsonl || fail "what is done is done again"
grep -Eq '^FruGrad 99 % +[0-9.]+ +[0-9.]+ ± .* 2$' out || fail "no line of FruGrad 99 %: $(cat out)"
! grep -Eq '^method +(workers|steps)' out || fail "a column for what does not differ: $(cat out)"
[ -z "$(ls a/work)" ] || fail "files of runs that went well stay: $(ls a/work)"

python3 - <<'PY' || fail "the records are not as promised"
import json

kept = open("before.jsonl", encoding="utf-8").read().splitlines()[:-1]
assert open("a/runs.jsonl", encoding="utf-8").read().splitlines()[: len(kept)] == kept, "what was there has changed"
runs = [json.loads(line) for line in open("a/runs.jsonl", encoding="utf-8")]
keys = sorted((r["method"], r["phase"], r["seed"]) for r in runs)
assert keys == sorted((m, "test", s) for m in ("dense", "frugrad", "frugrad-99") for s in (1, 2)), keys
for r in runs:
    assert (r["format"], r["kind"], r["suite"], r["size"], r["family"]) == (1, "run", "paper", "smoke", "vision"), r
    assert r["metric"] == "accuracy" and r["result"]["accuracy"] > 0.3, r["result"]
    assert r["result"]["workers"] == 4 and r["result"]["threads"] == 1 and r["result"]["split"] == "test", r["result"]
    assert r["environment"]["cores"] >= 1 and r["environment"]["version"], r["environment"]
    curve, evals = r["curve"], r["evals"]
    assert len(curve["step"]) == len(curve["loss"]) == len(curve["bytes"]) == len(curve["seconds"]) <= 60, curve
    assert curve["step"][-1] == 100 and curve["bytes"][-1] == r["result"]["bytes_sent"], curve
    assert all(a < b for a, b in zip(curve["seconds"], curve["seconds"][1:])), curve
    assert evals["step"][-1] == 100 and evals["value"][-1] == r["result"]["accuracy"], evals
    layers = r.get("layers")
    assert (layers is not None) == (r["seed"] == 1), r.keys()
    if layers:
        assert layers["steps"][0] == 1 and layers["steps"][-1] == 100, layers["steps"]
        assert [len(row) for row in layers["density"]] == [len(layers["names"])] * len(layers["steps"]), layers
        share = dict(zip(layers["names"], layers["density"][-1]))
        most = max(layers["density"][-1]), min(layers["density"][-1])
        assert most == {"dense": (1, 1), "frugrad": (1, 0.0625)}.get(r["method"], (1, most[1])), (r["method"], share)
    assert "--metrics" not in r["command"] and "--seed %d" % r["seed"] in r["command"], r["command"]
PY

# -- a search: the test is at the best rate, which is inside unless it went out twice. Under sanitizers, fine-tuning
# -- below makes the searches.
if [ -z "${FRUG_TEST_SHORT:-}" ]; then
    "$FRUGRAD" compare --tasks gpt2-rules --methods dense --rates 2 --out b >out 2>err || fail "a search fails: $(cat err)"
    python3 - <<'PY' || fail "the records of a search are not as promised"
import json

runs = [json.loads(line) for line in open("b/runs.jsonl", encoding="utf-8")]
tune = {r["rate"]: r["result"]["perplexity"] for r in runs if r["phase"] == "tune"}
(test,) = [r for r in runs if r["phase"] == "test"]
assert test["rate"] == min(tune, key=tune.get), (test["rate"], tune)
rates = sorted(tune)
assert 2 <= len(rates) <= 4 and all(2 < b / a < 3 for a, b in zip(rates, rates[1:])), rates
assert len(rates) == 4 or rates[0] < test["rate"] < rates[-1], (test["rate"], rates)
assert all(r["result"]["split"] == "valid" and r["seed"] == 100 for r in runs if r["phase"] == "tune"), runs
PY
fi

# -- a method whose config goes by the family of the task is found again
for _ in 1 2; do
    "$FRUGRAD" compare --tasks gpt2-rules --methods frugrad --rates 1 --seeds 1 --out fit >out 2>err || fail "$(cat err)"
done
[ "$(wc -l <fit/runs.jsonl)" = 1 ] || fail "what is done is done again for the second family"
grep -q -- '--method frugrad-adam' fit/runs.jsonl || fail "GPT-2 does not get the preset for Adam"

# -- suite bytes goes by runs of suite ablation: as many bytes, other steps, and a warm-up of their length
equal="--tasks mlp-stripes --methods dense,plain,progressive --out equal"
if "$FRUGRAD" compare --suite bytes $equal >out 2>err; then fail "suite bytes runs without knowing any bytes"; fi
grep -q 'needs the bytes of runs of suite ablation, and there are none' err || fail "no reason given: $(cat err)"
grep -q 'first: frugrad compare --suite ablation' err || fail "no way out given: $(cat err)"
"$FRUGRAD" compare --suite ablation --tasks mlp-stripes --methods dense,plain --out equal >out 2>err || fail "$(cat err)"
"$FRUGRAD" compare --suite bytes $equal >out 2>err || fail "suite bytes fails: $(cat err)"
if "$FRUGRAD" compare --suite bytes $equal --workers 2 >out2 2>err2; then fail "bytes of four workers are taken for those of two"; fi
grep -q '1 of 3 cells are skipped' err || fail "what is left out is not reported: $(cat err)"
"$FRUGRAD" compare --suite ablation $equal >out 2>err || fail "$(cat err)"
"$FRUGRAD" compare --suite bytes $equal >out 2>err || fail "suite bytes does not continue: $(cat err)"
grep -Eq '^method +steps +rate' out || fail "steps that differ are not in the table: $(cat out)"
grep -Eq '^base, sparsity rising from 50 to 94 % .*B +(9[0-9]|10[0-9])\.[0-9] % ' out || fail "bytes are not put beside all of dense: $(cat out)"
python3 - <<'PY' || fail "runs of suite bytes are not as promised"
import json

runs = [json.loads(line) for line in open("equal/runs.jsonl", encoding="utf-8")]
runs = {(r["suite"], r["method"]): r for r in runs}
sent = {m: runs["bytes", m]["result"]["bytes_sent"] for m in ("dense", "plain", "progressive")}
steps = {m: runs["bytes", m]["result"]["steps"] for m in sent}
assert steps["plain"] == 100 and sent["plain"] == runs["ablation", "plain"]["result"]["bytes_sent"], (steps, sent)
for method in "dense", "progressive":
    assert 3 < steps[method] < 90, steps
    assert abs(sent[method] / sent["plain"] - 1) < 0.6 / steps[method] + 0.02, (steps, sent)
    assert "--schedule cosine,warmup=%d " % round(steps[method] / 10) in runs["bytes", method]["command"], runs
PY

# -- a run that failed is tried again
"$FRUGRAD" compare --suite structured --tasks gpt2-rules --methods heads --workers 1 --out c >out 2>err || fail "$(cat err)"
sed 's/"result":{.*/"status":1,"error":"no memory"}/' c/runs.jsonl >d.jsonl
mkdir d && cp d.jsonl d/runs.jsonl
"$FRUGRAD" compare --suite structured --tasks gpt2-rules --methods heads --workers 1 --out d >out 2>err || fail "$(cat err)"
[ "$(wc -l <d/runs.jsonl)" = 2 ] || fail "what failed is not tried again: $(cat d/runs.jsonl)"

# -- runs by another command are not taken for these, nor are they in the table: that is reported
mkdir j
sed 's/--steps 100/--steps 90/' a/runs.jsonl >j/runs.jsonl
$compare --seeds 2 --plan --out j >out 2>err
grep -q '6 runs of these methods by other commands' err || fail "runs by other commands are not reported: $(cat err)"
tail -1 out | grep -q '^# 6 runs' || fail "runs by other commands count: $(tail -1 out)"
$compare --seeds 2 --seconds 0 --out j >out 2>err || fail "--seconds 0 beside other runs: $(cat err)"
[ ! -s out ] || fail "runs by other commands are in the table: $(cat out)"
cat a/runs.jsonl j/runs.jsonl >both && mv both j/runs.jsonl
$compare --seeds 2 --jobs 2 --out a >table 2>err
$compare --seeds 2 --jobs 2 --out j >out 2>err || fail "beside runs by other commands: $(cat err)"
cmp -s table out || fail "runs by other commands, recorded later, change the table: $(cat table out)"
$compare --methods dense,frugrad --seeds 2 --out a >out 2>err
! grep -q '99 %' out || fail "a method that was not asked for is in the table: $(cat out)"
$compare --seeds 2 --plan --out a >out 2>err
[ ! -s err ] || fail "runs by this command are called others: $(cat err)"

# -- a run that diverges is recorded as such, and is the worst: the search goes down from there
[ -n "${FRUG_TEST_SHORT:-}" ] || python3 - <<'PY' || fail "a run that diverged does not count as one"
import json, subprocess, os

runs = [json.loads(line) for line in open("b/runs.jsonl", encoding="utf-8")]
os.mkdir("i")
with open("i/runs.jsonl", "w", encoding="utf-8") as file:
    for r in runs:
        if r["method"] == "dense" and r["phase"] == "tune" and r["rate"] in (0.002, 0.005):
            del r["result"]
            file.write(json.dumps(dict(r, status=1, error="the loss is not finite", diverged=True)) + "\n")
subprocess.run([os.environ["FRUGRAD"], "compare", "--tasks", "gpt2-rules", "--methods", "dense", "--rates", "2", "--out", "i"],
               check=True, capture_output=True)
runs = [json.loads(line) for line in open("i/runs.jsonl", encoding="utf-8")]
assert [r.get("diverged") for r in runs[:2]] == [True, True] and len(runs) >= 4, [(r["phase"], r["rate"]) for r in runs]
assert runs[2]["phase"] == "tune" and runs[2]["rate"] < min(r["rate"] for r in runs[:2]), runs[2]["rate"]
PY

# -- fine-tuning: a model is trained first, once; a scale is searched where the method has one; states are reported
sgc="$FRUGRAD compare --suite sgc --tasks gpt2-rules --methods head,lora-4096,mesgc-1024 --rates 2 --out tuned"
$sgc >out 2>err || fail "fine-tuning fails: $(cat err)"
made=$(stat -c %Y.%i tuned/work/before-gpt2-rules/*.safetensors)
cp tuned/runs.jsonl was
$sgc >out 2>err || fail "fine-tuning does not continue: $(cat err)"
cmp -s tuned/runs.jsonl was || fail "fine-tuning repeats what is done"
[ "$(stat -c %Y.%i tuned/work/before-gpt2-rules/*.safetensors)" = "$made" ] || fail "the model to begin with is made again"
grep -Eq '^method +rate or scale +perplexity +states +optimizer bytes +ms/step +seeds$' out || fail "columns: $(cat out)"
grep -Eq '^MESGC, 1024 states at most .* 1008 +4.07 kB ' out || fail "no states of mesgc: $(cat out)"
"$FRUGRAD" report tuned --svg drawn >out2 2>err || fail "a report of fine-tuning fails: $(cat err)"
[ "$(ls drawn | tr '\n' ' ')" = "sgc-smoke-gpt2-rules-optimizer-bytes.svg sgc-smoke-gpt2-rules-states.svg " ] ||
    fail "charts of fine-tuning: $(ls drawn)"
for name in MESGC LoRA 'classifier head only'; do
    grep -q ">$name" drawn/sgc-smoke-gpt2-rules-states.svg || fail "no line of $name over the states"
done
python3 - <<'PY' || fail "records of fine-tuning are not as promised"
import json

runs = [json.loads(line) for line in open("tuned/runs.jsonl", encoding="utf-8")]
assert not any(r["phase"] == "tune" for r in runs if r["method"] == "head"), "nothing to search, and searched"
for method, states, size in ("lora-4096", 4096, 24616), ("mesgc-1024", 1008, 4072):
    tune = [r for r in runs if r["method"] == method and r["phase"] == "tune"]
    (test,) = [r for r in runs if r["method"] == method and r["phase"] == "test"]
    assert 2 <= len(tune) <= 4 and test["rate"] in [r["rate"] for r in tune], (test["rate"], tune)
    assert (test["result"]["states"], test["result"]["optimizer_bytes"]) == (states, size), test["result"]
    assert test["result"]["workers"] == 1 and test["result"]["perplexity"] < 64, test["result"]
    words = test["command"].split()
    searched = "--scale" if method == "mesgc-1024" else "--rate"
    assert words[1] == "finetune" and float(words[words.index(searched) + 1]) == test["rate"], words
    assert (searched == "--rate") == ("--scale" not in words), words
(head,) = [r for r in runs if r["method"] == "head"]
change = head["result"]["perplexity"] / head["result"]["before"]["perplexity"] - 1
assert abs(change) < 1e-4, "where nothing but the head moves, and there is none, perplexity changes by %g" % change
PY

# -- its text is the sentences of SST-2, each a line without its label
mkdir -p sst/glue/SST-2 weights
printf 'sentence\tlabel\r\n a cat sat \t1\r\nno dogs\t0' >sst/glue/SST-2/train.tsv
printf 'label\tsentence\n1\tyes\n' >sst/glue/SST-2/dev.tsv
printf 'nothing\n' >sst/glue/SST-2/test_labeled.tsv
touch weights/gpt2-bytes.safetensors
lm="--suite sgc --size small --tasks lm --data sst --seconds 0 --out k"
if "$FRUGRAD" compare $lm --weights weights >out 2>err; then fail "a table without sentences passes"; fi
grep -q "test_labeled.tsv: no column 'sentence'" err || fail "no message which column is missing: $(cat err)"
cp sst/glue/SST-2/train.tsv sst/glue/SST-2/test_labeled.tsv
"$FRUGRAD" compare $lm --weights weights >out 2>err || fail "the text of SST-2 fails: $(cat err)"
[ "$(cat k/work/text/train.txt)" = $'a cat sat\nno dogs' ] || fail "the text is: $(cat k/work/text/train.txt)"
[ "$(cat k/work/text/valid.txt)" = yes ] || fail "the text is: $(cat k/work/text/valid.txt)"

# -- time that is up, and words that are wrong
$compare --seconds 0 --out e >out 2>err || fail "--seconds 0 fails: $(cat err)"
grep -q 'no time for another run; 3 runs are left' err || fail "no message that time is up: $(cat err)"
mkdir l && sed 's/"seconds":[0-9.]*,"result"/"seconds":1000,"result"/' whole.jsonl >l/runs.jsonl
lines=$(wc -l <l/runs.jsonl)
$compare --seeds 3 --jobs 2 --seconds 900 --out l >out 2>err || fail "no time for a run: $(cat err)"
grep -q 'no time for another run; 3 runs are left; about 25:00 at 2 a time' err || fail "no message of how long it takes: $(cat err)"
[ "$(wc -l <l/runs.jsonl)" = "$lines" ] || fail "a run is started that would not end in time"
$compare --seeds 3 --jobs 2 --seconds 1100 --out l >out 2>err || fail "time for each run: $(cat err)"
[ "$(wc -l <l/runs.jsonl)" = $((lines + 3)) ] || fail "runs that would end in time are not started: $(cat err)"
sed -i 's/"seconds":[0-9.]*,"result"/"result"/' l/runs.jsonl # as records of other programs may be
$compare --seeds 4 --plan --out l >plan
tail -1 plan | grep -q '^# 3 runs.* are recorded already$' || fail "runs without a time have one: $(tail -1 plan)"

# -- a disk that is full is not a matter of time, and leaves no half a line
mkdir full
for i in $(seq 1020); do
    printf '{"format":1,"kind":"speed","suite":"s","method":"m","model":"m","link":"%08d","step_ms":[1]}\n' "$i"
done >full.jsonl
cp full.jsonl full/runs.jsonl
room=$(($(wc -c <full.jsonl) / 1024 + 1))
code=0
(trap '' XFSZ; ulimit -f $room; $compare --jobs 1 --out full >out 2>err) || code=$?
[ $code = 1 ] || fail "a full disk exits with $code: $(cat err)"
grep -q 'runs.jsonl: cannot write' err || fail "a full disk is not reported: $(cat err)"
if grep -q 'no time for another run' err; then fail "a full disk is called time: $(cat err)"; fi
cmp -s full.jsonl full/runs.jsonl || fail "a full disk leaves half a line"

# wrong STATUS PATTERN ARGUMENTS... -- one line (and hints) on stderr that matches, that status, nothing on stdout
wrong() {
    local status=$1 pattern=$2 code=0
    shift 2
    "$FRUGRAD" compare "$@" >out 2>err || code=$?
    [ "$code" = "$status" ] || fail "'$*' exits with $code, not $status: $(cat err)"
    [ ! -s out ] || fail "'$*' prints on stdout: $(cat out)"
    [ "$(grep -vc '^  hint: ' err)" = 1 ] || fail "'$*': not one line but: $(cat err)"
    grep -Eq -- "$pattern" err || fail "'$*' does not print '$pattern' but: $(cat err)"
}
wrong 2 -- '--out DIR missing'
wrong 2 'papr' --suite papr --out f
wrong 2 'smal' --size smal --out f
wrong 2 'did you mean frugrad-99' --methods dense,frugrad-9 --out f
wrong 2 "has no ''" --methods '' --out f
wrong 2 "has no 'lenet'" --tasks lenet --out f
wrong 2 "'0' is not a whole number" --seeds 0 --out f
wrong 2 "'-1' is not a number" --seconds -1 --out f
wrong 2 'needs data in --data DIR/wikitext-2' --size small --out f
wrong 2 'only suite sgc' --weights k --out f
wrong 1 'task lm needs --weights DIR/gpt2-bytes.safetensors' $lm
wrong 1 'task lm needs k/gpt2-bytes.safetensors' $lm --weights k
wrong 1 'needs data in \./glue/SST-2' --size small --tasks bert-sst2 --data . --out f
# what chooses a rate must not test it: official GLUE has no labels of its test rows
mkdir -p official/glue/SST-2
printf 'sentence\tlabel\ngood\t1\nbad\t0\n' | tee official/glue/SST-2/train.tsv >official/glue/SST-2/dev.tsv
wrong 1 'with test_labeled.tsv' --size small --tasks bert-sst2 --data official --out f

# -- a file that is not ours is refused, with the line, and stays as it is
good=$(head -1 a/runs.jsonl)
n=0
for bad in 'no json' '[1]' '{"format":2,"kind":"run"}' '{"format":1}' '{"format":1,"kind":"run","suite":7}' \
    '{"format":1,"kind":"run","suite":"paper","size":"smoke","task":"mlp-stripes","method":"dense","phase":"test","command":"x","seed":1,"rate":"?"}' \
    '{"format":1,"format":1,"kind":"speed"}' $'{"format":1,"kind":"r\xff"}' "$(printf '[%.0s' {1..5000})"; do
    n=$((n + 1))
    mkdir "g$n"
    printf '%s\n%s\n' "$good" "$bad" >"g$n/runs.jsonl"
    cp "g$n/runs.jsonl" was
    wrong 1 'runs.jsonl: line 2: ' --out "g$n"
    cmp -s "g$n/runs.jsonl" was || fail "a file that is refused is changed: $bad"
done
mkdir h
ln -s /dev/zero h/runs.jsonl # which has no end
wrong 1 'runs.jsonl: not a plain file' --out h

ASAN_OPTIONS=$leaks "$FRUGRAD" compare --plan --out a >out 2>err || fail "leaks: $(cat err)"
echo "cli_compare: all right"

#!/usr/bin/env bash
# `frugrad compare --size full` starts Python for every run, one at a time, with the words that are recorded; takes its
# summary and metrics as those of `frugrad train`; and reports once, before the first run, that PyTorch cannot be loaded. The Python
# here is a script that trains nothing; tests/python/test_train.py has the trainer.
. "$(dirname "$0")/../support/script.sh"
cd "$work"

mkdir -p data/cifar10 data/wikitext-2 data/glue/SST-2 data/tokenizers bin
printf 'image' | tee data/cifar10/test_batch.bin >data/cifar10/data_batch_1.bin
touch data/wikitext-2/test.gpt2bpe.u16.xz data/glue/SST-2/test_labeled.tsv

# A Python that knows the module: dense is best at the middle rate, no-feedback diverges at the highest, topk is
# refused.
cat >bin/fake <<'PY'
#!/usr/bin/env python3
import atexit, json, os, sys

words = sys.argv[1:]
if words[:1] == ["-c"]:
    sys.exit(0 if words[1] == "import frugrad.torch.train" else 1)
assert words[:2] == ["-m", "frugrad.torch.train"], words
assert sys.argv[0].endswith("/bin/fake"), sys.argv
os.mkdir("alone")  # one at a time: there is one GPU
atexit.register(os.rmdir, "alone")
with open(os.environ["STARTED"], "a") as file:
    file.write(" ".join(words[2:]) + "\n")
switches = ("--json", "--quiet", "--metrics-layers")
rest = [word for word in words[2:] if word not in switches]
asked = dict(zip(rest[::2], rest[1::2]))
assert "--json" in words and "--quiet" in words and set(map(len, (rest[::2], rest[1::2]))) == {len(rest) // 2}, words
rate, steps, seed = float(asked["--rate"]), int(asked["--steps"]), int(asked["--seed"])
if asked["--method"] == "topk":
    print("frugrad: --method: not here", file=sys.stderr)
    sys.exit(2)
if asked["--method"] == "feedback=none" and rate > 0.25:
    print("a warning\nfrugrad: the loss is not finite after step 3; a lower --rate may help", file=sys.stderr)
    sys.exit(1)
dense = 1000 * steps
sent = dense if asked["--method"] == "dense" else dense // 10
value = 0.9 - abs(rate - 0.25) - 0.001 * seed
with open(asked["--metrics"], "w") as file:
    for step in range(1, steps + 1):
        print(json.dumps({"kind": "step", "step": step, "loss": 1 / step, "seconds": 0.01,
                          "bytes_sent": sent * step // steps, "bytes_dense": 1000 * step}), file=file)
        if "--metrics-layers" in words and step == 1:
            print(json.dumps({"kind": "layers", "step": 1, "names": ["a"], "density": [0.0625]}), file=file)
    print(json.dumps({"kind": "test", "step": steps, "loss": 1, "accuracy": value, "perplexity": 10 + rate}), file=file)
print(json.dumps({"accuracy": value, "perplexity": 10 + rate, "correlation": 0.5, "loss": 1, "split": "test", "step": steps, "workers": 4,
                  "bytes_sent": sent, "bytes_dense": dense, "density_mean": sent / dense, "step_ms": 10,
                  "model_state_bytes": 160, "weight_bytes": 40, "gradient_bytes": 40, "library_bytes": 80,
                  "time_ms": {"forward": 3, "backward": 5, "compress": 1}, "device": "none"}, indent=2))
PY
chmod +x bin/fake
export FRUGRAD_PYTHON=$work/bin/fake STARTED=$work/started
full="$FRUGRAD compare --suite paper --size full --data data"

# -- the plan: three tasks, all of them by Python, no method that it does not simulate
$full --plan >plan 2>err || fail "--plan fails: $(cat err)"
grep -v '^#' plan >commands
if grep -v '^python3 -m frugrad.torch.train --model ' commands; then fail "a command is not Python's"; fi
for task in resnet18-cifar10 gpt2-wikitext2 bert-sst2; do
    grep -q "^# $task, dense: " plan || fail "no $task in the plan"
done
[ ! -e started ] || fail "--plan starts Python"
for suite in ablation scaling; do
    "$FRUGRAD" compare --suite $suite --size full --data data --plan >plan.$suite
    ! grep -q 'reduce=split' plan.$suite || fail "reduce=split is in suite $suite"
done
"$FRUGRAD" compare --suite paper --size paper --data data --plan >plan.paper 2>err || fail "size paper: $(cat err)"
for task in resnet50-cifar10 gpt2-wikitext2 bert-base-sst2; do
    grep -q "^# $task, frugrad: " plan.paper || fail "no $task in the plan of size paper"
done
grep -v '^#' plan.paper | sed -n 's/^python3 -m frugrad.torch.train --model \([^ ]*\) .*/\1/p' | sort -u >models
printf 'bert-base:length=128\ngpt2-small:length=1024,dropout=0\nresnet50\n' | cmp - models || fail "models: $(cat models)"

# -- suite evidence: of size full only; all methods are clipped alike; MiniLM begins with pretrained weights
mkdir -p all/cifar10 all/linux-text all/glue/SST-2 all/glue/MRPC all/glue/CoLA all/minilm
touch all/cifar10/test_batch.bin all/linux-text/test.u16 all/glue/SST-2/test_labeled.tsv \
    all/glue/MRPC/msr_paraphrase_test.txt all/glue/CoLA/dev.tsv
"$FRUGRAD" compare --suite evidence --size full --data all --plan >plan.evidence 2>err
grep -q 'task minilm-cola is skipped, it needs all/glue/CoLA with dev.tsv, and minilm/model.safetensors' err ||
    fail "missing weights: $(cat err)"
! grep -q 'minilm' plan.evidence || fail "MiniLM is in the plan without weights"
touch all/minilm/model.safetensors
"$FRUGRAD" compare --suite evidence --size full --data all --plan >plan.evidence
grep -v '^#' plan.evidence >commands.evidence
if grep -v -- '--clip auto' commands.evidence; then fail "a method is clipped otherwise"; fi
for task in gpt2-linux gpt2-linux-10 resnet18-cifar10 resnet50-cifar10 minilm-sst2 minilm-mrpc minilm-cola; do
    for method in dense muon frugrad frugrad-99 frugrad-999 frugrad-muon topk powersgd-4 demo sparseloco gsgd; do
        grep -q "^# $task, $method: " plan.evidence || fail "no $method of $task in the plan"
    done
done
grep 'glue/CoLA' commands.evidence | grep -vq -- '--weights all/minilm/model.safetensors .*--tokens all/minilm/vocab.txt' &&
    fail "CoLA without weights"
grep 'glue/CoLA .* --seed 100' commands.evidence | grep -vq -- '--hold-out 855' && fail "CoLA's rates are searched on its tests"
grep -q -- '--method dense --optimizer muon:decay=0.1 .*--steps 2050' commands.evidence || fail "no Muon"
grep '^# gpt2-linux, dense: ' -A1 plan.evidence | grep -q -- '--schedule cosine,warmup=30% ' || fail "another warm-up than the trainers'"
[ "$(grep -c -- '--method gsgd .*--rate \(0.0003\|0.0006\|0.0012\) .*warmup=30% .*--steps 2050 --seed 100' commands.evidence)" = 3 ] ||
    fail "rates are not half, once and twice the middle one"

"$FRUGRAD" compare --suite evidence --size full --rates 1 --data all --plan >plan.tests
grep -q 'linux-text --method feedback=none --rate 0.0015 ' plan.tests || fail "a rate is not the one that was found"

# -- recorded evidence is of this suite, and a comparison continues from it: threads and evaluations do not matter, data does
mkdir -p recorded elsewhere && ln -s ../all elsewhere/data && cat "$FRUGRAD_SOURCE"/results/evidence/*.jsonl >recorded/runs.jsonl
"$FRUGRAD" compare --suite evidence --size full --rates 1 --data all --plan --out recorded >plan.left 2>err
grep -q 'runs of these methods by other commands' err || fail "runs with data of another folder are taken for these"
left="$FRUGRAD compare --suite evidence --size full --rates 1 --data data/ --plan --out ../recorded"
(cd elsewhere && $left) >plan.left 2>err
[ ! -s err ] || fail "recorded evidence is not of this suite: $(cat err)"
tail -1 plan.left | grep -q "; $(wc -l <recorded/runs.jsonl) are recorded already" || fail "recorded evidence is lost: $(tail -1 plan.left)"
! grep -q '^python3 .*linux-text --method dense --rate 0.0006 .*warmup=30% .*--seed [12] ' plan.left || fail "what is recorded is run again"
sed -i 's/--steps 2050/--steps 2051/' recorded/runs.jsonl
(cd elsewhere && $left) >plan.left 2>err
grep -q 'runs of these methods by other commands' err || fail "runs of other lengths are taken for these"
code=0
"$FRUGRAD" compare --suite evidence --size small --data all --plan >out 2>err || code=$?
[ $code = 2 ] && grep -q 'suite evidence has no size small; it has full' err || fail "evidence, small: $code, $(cat err)"

code=0
"$FRUGRAD" compare --suite sgc --size paper --weights data --data data --plan >out 2>err || code=$?
[ $code = 2 ] && grep -q 'suite sgc has no size paper' err || fail "suite sgc of size paper: $code, $(cat err)"
"$FRUGRAD" compare --suite sgc --size full --weights data --data data --plan >plan.sgc 2>err &&
    fail "suite sgc of size full needs no weights"
grep -q 'gpt2-bytes.safetensors' err || fail "suite sgc is not as it was: $(cat err)"
"$FRUGRAD" compare --suite paper --size small --tasks bert-sst2 --data data --plan >plan.small
if grep -v '^#' plan.small | grep -qv '^frugrad train'; then fail "size small starts Python"; fi

# -- a correlation is a metric
"$FRUGRAD" compare --suite evidence --size full --data all --tasks minilm-cola --methods dense --seeds 1 --rates 1 --out cola >out 2>err ||
    fail "CoLA: $(cat err)"
python3 -c '
import json
runs = [json.loads(line) for line in open("cola/runs.jsonl")]
assert [r["metric"] for r in runs] == ["correlation"] and runs[0]["result"]["correlation"] == 0.5, runs' || fail "CoLA: its metric"
rm started

# -- runs: searches, tests, one that diverges, one that is refused
code=0
$full --tasks resnet18-cifar10 --methods dense,topk,frugrad,no-feedback --seeds 2 --out a >out 2>err || code=$?
[ $code = 1 ] || fail "with a refused method the status is $code: $(cat err)"
grep -q '1 run failed; their output is in a/work' err || fail "a refused run is not reported: $(cat err)"
grep -Eq '^FruGrad 94 % +0\.25 +89\.85 ± .* 2$' out || fail "no line of FruGrad: $(cat out)"
python3 - <<'PY' || fail "the records are not as promised"
import json

runs = [json.loads(line) for line in open("a/runs.jsonl", encoding="utf-8")]
started = open("started").read().splitlines()
assert len(runs) == len(started), (len(runs), len(started))
for r in runs:
    assert (r["suite"], r["size"], r["task"], r["metric"]) == ("paper", "full", "resnet18-cifar10", "accuracy"), r
    words = r["command"].split()
    assert words[:4] == ["python3", "-m", "frugrad.torch.train", "--model"] and "fake" not in r["command"], words
    assert not {"--metrics", "--json", "--no-augment", "--samples"} & set(words), words
    assert words[words.index("--data") + 1] == "data/cifar10", words
    assert ("--hold-out" in words) == (r["phase"] == "tune") and "--judge" not in words, words
    assert any(line.startswith(" ".join(words[3:]) + " ") for line in started), words
    if "result" in r:
        assert r["result"]["device"] == "none" and len(r["curve"]["step"]) <= 60 and r["evals"]["step"] == [980], r
        assert ("layers" in r) == (r["phase"] == "test" and r["seed"] == 1), r.keys()
tests = {(r["method"], r["seed"], r["rate"]) for r in runs if r["phase"] == "test"}
assert tests == {(m, s, 0.25) for m in ("dense", "frugrad", "no-feedback") for s in (1, 2)}, tests
diverged = {(r["method"], r["rate"]) for r in runs if r.get("diverged")}
assert diverged == {("no-feedback", 0.62)}, diverged
(refused,) = [r for r in runs if r["method"] == "topk"]
assert (refused["status"], refused["error"]) == (2, "--method: not here"), refused
PY
"$FRUGRAD" report a --no-times >report 2>err || fail "a report fails: $(cat err)"
grep -q 'FruGrad 94 %' report || fail "a report without FruGrad: $(cat report)"
cp started before
$full --tasks resnet18-cifar10 --methods dense,frugrad,no-feedback --seeds 2 --out a >out 2>err || fail "$(cat err)"
cmp -s started before || fail "what is done is done again"
sed -i 's/ --threads 16 / --threads 1 /' a/runs.jsonl # does not change a result
$full --tasks resnet18-cifar10 --methods dense,frugrad,no-feedback --seeds 2 --out a >out 2>err || fail "$(cat err)"
cmp -s started before || fail "what was done with other threads is done again"
$full --jobs 5 --plan | grep -v '^#' >plan.jobs
[ "$(grep -c -- ' --threads 3 ' plan.jobs)" = "$(wc -l <plan.jobs)" ] || fail "five runs at a time do not share the threads"

# -- a language model's words: tokens are files, and a search goes by the validation split
$full --tasks gpt2-wikitext2 --methods dense --rates 2 --seeds 1 --out b >out 2>err || fail "gpt2 fails: $(cat err)"
tail -1 started >last
grep -q -- '--model gpt2-small:length=512,dropout=0 --data data/wikitext-2 --method dense' last || fail "$(cat last)"
grep -q -- '--judge valid' started || fail "a search of GPT-2 is not judged by the validation split"

# -- no PyTorch is reported once, and nothing is started
printf '#!/bin/sh\necho "ModuleNotFoundError: No module named '"'torch'"'" >&2\nexit 1\n' >bin/bare
chmod +x bin/bare
without() {
    local code=0
    FRUGRAD_PYTHON=$1 $full --out c >out 2>err || code=$?
    [ $code = 1 ] || fail "without PyTorch the status is $code: $(cat err)"
    [ "$(grep -vc '^  hint: ' err)" = 1 ] || fail "not one line but: $(cat err)"
    grep -q "$2" err || fail "no message that '$2': $(cat err)"
    [ ! -s c/runs.jsonl ] || fail "runs without PyTorch are recorded"
    [ -z "$(ls c/work)" ] || fail "files stay: $(ls c/work)"
}
without "$work/bin/bare" "bare cannot import it: ModuleNotFoundError: No module named 'torch'"
without "$work/bin/nothing" 'it cannot be started'
echo "cli_compare_torch: all right"

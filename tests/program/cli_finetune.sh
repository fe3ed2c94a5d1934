#!/usr/bin/env bash
# `frugrad finetune` learns with every method, reports states and bytes, resumes after kill -9 with the same bits, and
# rejects invalid options with one line; threads and MPI processes give the same weights.
. "$(dirname "$0")/../support/script.sh"
cd "$work"

tiny=layers=1,width=32,heads=2,length=16
"$FRUGRAD" train --model bert-mlm-mini:$tiny --samples 64 --steps 2 --threads 1 --save hidden --quiet >/dev/null ||
    fail "no BERT to begin with"
bert="--model bert-mini:$tiny --samples 64 --batch 4 --threads 1 --eval-batches 2"
begun=hidden/step-000000002.safetensors

# -- a pretrained language model learns more by updating the targets, and nothing else changes
mkdir text
python3 -c 'print("the cat sat on the mats. " * 400)' >text/train.txt
cp text/train.txt text/test.txt
gpt2="--model gpt2:$tiny --data text --tokens bytes --threads 1 --eval-batches 2"
"$FRUGRAD" train $gpt2 --steps 60 --rate 0.01 --save words --quiet >/dev/null || fail "no GPT-2 to begin with"
for method in full lora galore apollo sgc mesgc cesgc table; do
    states=--states=1000
    [ $method != full ] || states=
    "$FRUGRAD" finetune $gpt2 --weights words/step-000000060.safetensors --method $method $states --steps 25 \
        --rate 0.003 --workers 2 --json --quiet >$method.json 2>$method.err || fail "$method fails: $(cat $method.err)"
done
python3 - <<'PY' || fail "a method does not learn, or its summary lacks fields"
import json


def memory(method, text, n=32, m=96):
    """Bytes of the states of one n x m target, as docs/sgc.md has them."""
    o = dict(x.split("=") for x in text.split(":")[1].split(","))
    s, kappa, c, rank = (int(o.get(x, 1)) for x in ("s", "kappa", "c", "rank"))
    return {
        "full": 8 * n * m,
        "lora": 12 * rank * (n + m),
        "galore": 8 * rank * max(n, m) + 4 * rank * min(n, m),
        "apollo": 8 * rank * max(n, m) + 4,
        "cesgc": 8 * kappa * s + 4 * rank * min(n, m),
        "table": 10 * c * (8 * kappa * s // (10 * c)),
    }.get(method, 8 * kappa * s)


for method in "full lora galore apollo sgc mesgc cesgc table".split():
    r = json.load(open(method + ".json"))
    assert r["method"] == method and r["targets"] == "qv" and r["target_count"] == 1 and r["head_count"] == 0, r
    assert r["perplexity"] < r["before"]["perplexity"], (method, r["perplexity"], r["before"])
    assert r["states"] == 2 * 32 * 96 if method == "full" else 500 <= r["states"] <= 1000, (method, r["states"])
    assert r["optimizer_bytes"] == 40 + memory(method, r["optimizer"]) and r["peak_rss_bytes"] > r["model_state_bytes"], r
    for name in "forward backward project recover apply exchange other".split():
        assert r["time_ms"][name] >= 0, (method, r["time_ms"])
    measures = "sgc" in method
    assert (r["bytes_sent"] < 0.5 * r["bytes_dense"]) == measures, (method, r["bytes_sent"], r["bytes_dense"])
    assert measures or r["bytes_sent"] == r["bytes_dense"], (method, r["bytes_sent"], r["bytes_dense"])
PY

# -- a classifier gets a head, which AdamW trains; the summary shows it; gradients are recorded
"$FRUGRAD" finetune $bert --weights $begun --steps 6 --states 500 --record grads.safetensors --record-steps 4 \
    >head.txt 2>head.err || fail "a classifier: $(cat head.err)"
[ "$(grep -c 'no values for 4 tensors of the model' head.err)" = 1 ] || fail "no hint about a new head: $(cat head.err)"
grep -q '^  moved  *2 targets (qv), 2,048 parameters; head: 4 tensors, ' head.txt || fail "what moved: $(cat head.txt)"
for word in accuracy before loss states sent step 'model state' memory method optimizer; do
    grep -q "^  $word  *" head.txt || fail "the summary has no $word: $(cat head.txt)"
done
python3 - <<'PY' || fail "the file of gradients is not as promised"
import json, struct

data = open("grads.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8 : 8 + size])
assert header.pop("__metadata__")["model"].startswith("bert-mini"), header
name = "bert.encoder.layer.0.attention.self.query.weight"
assert sorted(header) == [f"{step}/{name}" for step in range(4)], sorted(header)
assert all(t["dtype"] == "F32" and t["shape"] == [32, 32] for t in header.values()), header
numbers = struct.unpack(f"<{4 * 32 * 32}f", data[8 + size :])
assert any(numbers) and all(abs(x) < 100 for x in numbers)
PY

# -- kill -9 at any moment: the same bits as without it
arguments="${bert/ --eval-batches 2/} --workers 2 --method cesgc --states 500 --refresh 40 --steps 150 --save-every 50 --no-eval"
last=step-000000150.safetensors
"$FRUGRAD" finetune $arguments --weights $begun --save whole --quiet >whole.txt 2>/dev/null || fail "cesgc"
cp $begun start.safetensors
again="$arguments --weights start.safetensors --save killed --resume --quiet" # for the first start and every restart
"$FRUGRAD" finetune $again >killed.txt 2>/dev/null &
child=$!
until ls killed/step-*.safetensors >/dev/null 2>&1 || ! kill -0 $child 2>/dev/null; do sleep 0.01; done
kill -9 $child 2>/dev/null || true
wait $child 2>/dev/null || true
rm start.safetensors # weights serve the first start only
"$FRUGRAD" finetune $again >killed.txt 2>killed.err ||
    fail "going on after kill -9 fails: $(cat killed.err)"
cmp -s whole/$last killed/$last || fail "the weights after a break are not those of a run without one"
mpi=$(dirname "$FRUGRAD")/frugrad-mpi
if [ -x "$mpi" ] && command -v mpirun >/dev/null; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
    timeout 60 mpirun -n 2 "$FRUGRAD" finetune $arguments --weights $begun --save mpi --quiet >mpi.txt 2>mpi.err ||
        fail "mpirun fails: $(cat mpi.err)"
    cmp -s whole/$last mpi/$last || fail "processes give other weights than threads"
else
    echo "cli_finetune: no MPI here; processes are not tried"
fi

# -- a run without remaining steps records nothing, and does not change an earlier recording
cp grads.safetensors kept.safetensors
"$FRUGRAD" finetune $arguments --save whole --resume --record kept.safetensors --quiet >/dev/null 2>kept.err ||
    fail "a run that is at its end: $(cat kept.err)"
cmp -s grads.safetensors kept.safetensors || fail "a recording is lost to a run without steps"

# -- invalid options are rejected with one line that names them
refuse() { # refuse STATUS PATTERN ARGUMENTS...
    local want=$1 pattern=$2 code=0
    shift 2
    "$FRUGRAD" finetune --quiet "$@" >bad.txt 2>bad.err || code=$?
    [ $code = $want ] || fail "$*: exit status $code, not $want: $(cat bad.err)"
    grep -q -- "$pattern" bad.err || fail "$*: $(cat bad.err)"
    [ "$(grep -c '^frugrad: ' bad.err)" = 1 ] || fail "$*: not one line: $(cat bad.err)"
}
base="$bert --steps 2"
refuse 2 '--weights missing' $base
refuse 1 'nowhere: has no checkpoint to resume from' $base --save nowhere --resume
refuse 2 '--model missing' --weights $begun
refuse 1 'no/such' $base --weights no/such
refuse 2 'accepted: full, sgc, mesgc, cesgc, table, lora, galore, apollo$' $base --weights $begun --method muon
refuse 2 'accepted: full, sgc, ' $base --weights $begun --method muon-merged
! "$FRUGRAD" finetune --help | grep '^  muon' || fail "the help lists methods that fine-tuning does not support"
refuse 2 'did you mean cesgc?' $base --weights $begun --method cesg
refuse 2 '--states 27: cesgc takes at least 28 ' $base --weights $begun --method cesgc --states 27
refuse 2 '--states 100: lora takes at least 256 ' $base --weights $begun --method lora --states 100 --workers 2
refuse 2 '--states 200: mesgc takes at least 224 ' $base --weights $begun --method mesgc --states 200 --chunks 8
refuse 2 'full has two states' $base --weights $begun --method full --states 100
refuse 2 '--states and --rank both' $base --weights $begun --method galore --states 1000 --rank 2
refuse 2 '--targets: .*no tensor' $base --weights $begun --targets 'nothing*'
refuse 2 'is not a pattern' $base --weights $begun --targets 'a,b'
refuse 2 'kappa s = 49 states are more than the 16 numbers' $base --weights $begun --method table
refuse 2 "--head: no tensor of this model matches 'nothing\*'" $base --weights $begun --head 'nothing*'
refuse 2 "'others' is set by --head" $base --weights $begun --optimizer-options decay=0.1,others=frozen
refuse 2 "'kappa' is set by --kappa" $base --weights $begun --states 500 --optimizer-options kappa=14
refuse 2 "'s' is set by --states" $base --weights $begun --states 500 --optimizer-options s=90
refuse 2 "'kappa'" $base --weights $begun --method lora --kappa 5
refuse 2 'rank=99 is above' $base --weights $begun --method galore --rank 99
refuse 1 '--record-tensor' $base --weights $begun --states 500 --record x --record-tensor '*.key.weight'
refuse 2 'need --record FILE' $base --weights $begun --record-steps 3
refuse 1 'made with --method cesgc; this command asks for galore$' $arguments --save whole --resume --method galore
[ ! -e x ] || fail "a file was written for nothing"

ASAN_OPTIONS=$leaks "$FRUGRAD" finetune $bert --weights $begun --steps 2 --workers 2 --method mesgc --states 500 \
    --record y --quiet >/dev/null 2>leak.err || fail "$(cat leak.err)"
echo "cli_finetune: all right"

#!/usr/bin/env bash
# Local steps: `frugrad train --method local=H` learns, sends every H steps only, and resumes with the same bits; what
# does not go together with it is refused.
. "$(dirname "$0")/../support/script.sh"
cd "$work"

common="--model mlp --samples 2000 --batch 16 --quiet"
small="--model gpt2:layers=1,width=16,heads=1,length=16 --batch 2 --eval-batches 1 --quiet"

# -- it learns, and sends after steps 8, 16, ... and the last one
"$FRUGRAD" train $common --rate 0.02 --workers 2 --steps 60 --method local=8,vectors=sparse --metrics log.jsonl --json \
    >run.json 2>run.err || fail "a run fails: $(cat run.err)"
python3 - <<'PY' || fail "the summary or the metrics are not as promised"
import json

summary = json.load(open("run.json"))
assert summary["optimizer"].startswith("sgd:momentum=0.9"), summary["optimizer"]
assert summary["accuracy"] > 0.3, summary  # ten classes: chance is 0.1
sent, at = 0, []
for line in map(json.loads, open("log.jsonl")):
    if line["kind"] == "step":
        assert (line["bytes_sent"] > sent) == (line["density"] > 0), line
        at += [line["step"]] if line["bytes_sent"] > sent else []
        sent = line["bytes_sent"]
assert at == [8, 16, 24, 32, 40, 48, 56, 60], at
assert summary["bytes_sent"] == sent < 0.05 * summary["bytes_dense"], summary
PY

# -- checkpoints are written when all workers have the same weights, and have the optimizer of each; the same bits after
# a restart, with threads too; Ctrl-C waits for the exchange
for extra in outer=0.7,outer_momentum=0.9 mean=senders,value=two_bit,block=1024,residual=f32 density=1,reduce=dense,feedback=none,value=f32; do
    rm -rf a b
    "$FRUGRAD" train $small --workers 3 --steps 22 --method local=4,$extra --save a --save-every 6 --keep 9 \
        >/dev/null 2>run.err || fail "$extra: $(cat run.err)"
    [ "$(ls a | tr '\n' ' ')" = "step-000000008.safetensors step-000000012.safetensors step-000000020.safetensors step-000000022.safetensors " ] ||
        fail "checkpoints: $(ls a)"
    "$FRUGRAD" train $small --workers 3 --threads 2 --steps 22 --method local=4,$extra \
        --resume a/step-000000012.safetensors --save b >/dev/null 2>run.err || fail "$extra: $(cat run.err)"
    cmp -s a/step-000000022.safetensors b/step-000000022.safetensors || fail "$extra: other weights after a restart"
done

# -- refusals
refused() {
    local text=$1
    shift
    if "$FRUGRAD" train $small --steps 4 "$@" >/dev/null 2>run.err; then fail "accepted: $*"; fi
    grep -q -- "$text" run.err || fail "$*: $(cat run.err)"
}
refused 'has the optimizers of 3 workers' --workers 2 --method local=4,density=1,reduce=dense,feedback=none,value=f32 \
    --resume a/step-000000012.safetensors
refused 'adam-merged leaves the momentum to the residual' --method local=4 --optimizer adam-merged
refused 'feedback=dgc would count it twice' --method dgc,local=4
refused 'share none; choose local=0' --method gsgd,local=4
refused 'outer=2 does nothing here' --method outer=2
refused 'mean=senders does nothing here' --method local=4,mean=senders,reduce=split

echo "cli_local: local steps learn, and resume with the same bits"

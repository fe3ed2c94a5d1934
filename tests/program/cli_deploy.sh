#!/usr/bin/env bash
# From a trained model to a pruned and compact one: every step keeps what it promises, and bad input is refused.
. "$(dirname "$0")/../support/script.sh"
cd "$work"
frugrad=$FRUGRAD

expect_error() { # status text command...
    local status=$1 text=$2 code=0
    shift 2
    "$frugrad" "$@" >out 2>&1 || code=$?
    [ "$code" = "$status" ] || fail "$* returns $code, not $status: $(cat out)"
    grep -q -- "$text" out || fail "$* does not say '$text': $(cat out)"
}
loss() { # of a file of weights
    "$frugrad" eval $model --weights "$1" --eval-batches 2 --json | tr -d '\n' | sed 's/.*"loss": *\([0-9.e-]*\).*/\1/'
}
near() { # a b share
    awk "BEGIN { d = $1 - $2; exit !(d <= $3 * $1 && -d <= $3 * $1) }"
}
model="--model gpt2-nano --data builtin --threads 1"
"$frugrad" train $model --workers 1 --method dense --steps 6 --batch 4 --no-eval --save run >/dev/null 2>&1 || fail "train"

# Pruned: the promised number, by each criterion; nothing else changes.
for how in "--sparsity 0.8" "--sparsity 0.8 --scope tensor" "--sparsity 0.8 --scope row" "--pattern 2:4" "--pattern 4:8" \
    "--sparsity 0.5 --by wanda $model --eval-batches 1 --batch 2"; do
    "$frugrad" prune run $how --json -o pruned.safetensors >prune.json || fail "prune $how"
    share=$(tr -d '\n' <prune.json | sed 's/.*"matrices": *\([0-9]*\).*"pruned": *\([0-9]*\).*/\2 \1/' |
        awk '{ printf "%.2f", $1 / $2 }')
    case $how in *0.8*) want=0.80 ;; *) want=0.50 ;; esac
    [ "$share" = $want ] || fail "prune $how: $share"
done
"$frugrad" prune run --sparsity 0.5 --skip attn --json -o skipped.safetensors | grep -q '"matrices": 55296' || fail "--skip"

# Compact: the same weights, the same loss, the same text.
"$frugrad" prune run --sparsity 0.8 -o pruned.safetensors >/dev/null
"$frugrad" export pruned.safetensors -o model.fgc >/dev/null
"$frugrad" export model.fgc -o back.safetensors >/dev/null
cmp pruned.safetensors back.safetensors || fail "weights change in a compact file"
dense=$(loss pruned.safetensors)
near "$dense" "$(loss model.fgc)" 1e-5 || fail "loss of the compact file: $(loss model.fgc), of safetensors: $dense"
"$frugrad" export pruned.safetensors --code int8 -o int8.fgc >/dev/null
near "$dense" "$(loss int8.fgc)" 0.01 || fail "loss with int8: $(loss int8.fgc), with f32: $dense"
[ "$(wc -c <int8.fgc)" -lt "$(wc -c <model.fgc)" ] || fail "int8 is not smaller"
for file in pruned.safetensors model.fgc; do
    "$frugrad" sample --model gpt2-nano --weights $file --prompt a --length 8 --temperature 0 >$file.text || fail "sample $file"
done
cmp pruned.safetensors.text model.fgc.text || fail "sample differs"
"$frugrad" train $model --workers 1 --method dense --steps 1 --batch 4 --no-eval --weights model.fgc >/dev/null 2>&1 ||
    fail "train from a compact file"

# A file whose matrices claim not to have their input first, as one tensor more makes export guess: read dense.
python3 - <<'PY'
import json, struct
data = open("pruned.safetensors", "rb").read()
length, = struct.unpack_from("<Q", data)
head = json.loads(data[8:8 + length])
for name, item in head.items():
    if name != "__metadata__":
        item["data_offsets"] = [at + 8 for at in item["data_offsets"]]
head = {"embed.c_attn.weight": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]}, **head}
text = json.dumps(head).encode()
text += b" " * (-len(text) % 8)
open("turned.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + bytes(8) + data[8 + length:])
PY
"$frugrad" export turned.safetensors -o turned.fgc >/dev/null
[ "$(loss turned.fgc)" = "$dense" ] || fail "loss with turned rows: $(loss turned.fgc), without: $dense"
"$frugrad" sample --model gpt2-nano --weights turned.fgc --prompt a --length 8 --temperature 0 >turned.text || fail "sample turned.fgc"
cmp pruned.safetensors.text turned.text || fail "sample differs with turned rows"
expect_error 1 "inputs of tensor 'h.0.attn.c_attn.weight'" prune turned.safetensors --sparsity 0.5 --by wanda $model \
    --eval-batches 1 --batch 2 -o x.safetensors

# Bad input.
head -c 5000 model.fgc >cut.fgc
expect_error 1 "ends inside a record" eval $model --weights cut.fgc
sed 's/^FGC1/FGC9/' model.fgc >new.fgc
expect_error 1 "has version '9'" eval $model --weights new.fgc
expect_error 1 "is a compact file" diff model.fgc pruned.safetensors -o patch
expect_error 1 "both input and output" prune pruned.safetensors --sparsity 0.5 -o pruned.safetensors
expect_error 2 "either --sparsity SHARE or --pattern" prune run -o x.safetensors
expect_error 2 "is not N:M" prune run --pattern 4:2 -o x.safetensors
expect_error 2 "needs --model and --data" prune run --sparsity 0.5 --by wanda -o x.safetensors
expect_error 2 "compact files" export run --code int8 -o x.safetensors
expect_error 2 "with -o" export run
expect_error 1 "cannot open" prune missing --sparsity 0.5 -o x.safetensors
mkdir empty
expect_error 1 "no checkpoint" export empty -o x.fgc

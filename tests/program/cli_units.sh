#!/usr/bin/env bash
# Channels and heads that are pruned while training: in the shortest way from the run to a smaller file, whose loss is
# the same in all printed digits.
. "$(dirname "$0")/../support/script.sh"
cd "$work"
frugrad=$FRUGRAD

number() { # key file
    tr -d '\n' <"$2" | sed "s/.*\"$1\": *\([0-9.e-]*\).*/\1/"
}
printed() { # options of eval: its figures
    "$frugrad" eval $model --eval-batches 4 "$@" | sed "s/.*split, //" | grep loss || fail "eval $*"
}
train() { # directory, options
    local save=$1
    shift
    "$frugrad" train $model --workers 2 --batch 4 --steps 12 --no-eval --save "$save" --json "$@" >"$save.json" 2>log ||
        fail "train $*: $(cat log)"
}

# Gradual pruning, a smaller file, the same loss; and compact, sampled or trained on like any other.
for case in "lenet channels 113 226" "resnet20 channels 168 336" "bert-mini:layers=2,width=24,heads=3 units 98 198" \
    "gpt2-nano units 291 585" "gpt2-nano heads 3 585"; do
    read -r name kind removed units <<<"$case"
    model="--model $name --data builtin --threads 1"
    rm -rf run again
    train run --sparse $kind:updates=4 --save-every 4
    "$frugrad" prune run --units zeros --json -o small.safetensors >prune.json || fail "prune --units zeros of $name"
    [ "$(number removed prune.json)/$(number units prune.json)" = "$removed/$units" ] || fail "$case: $(cat prune.json)"
    before=$(printed --resume run) # on a line of its own: a command that fails within a test ends only its subshell
    after=$(printed --weights small.safetensors)
    [ -n "$before" ] && [ "$before" = "$after" ] || fail "$case: $before, after removal $after"
    [ "$(number params_kept run.json)" -lt "$(number params run.json)" ] || fail "$case: $(cat run.json)"
    "$frugrad" export run -o whole.safetensors >/dev/null
    [ "$(wc -c <small.safetensors)" -lt "$(wc -c <whole.safetensors)" ] || fail "$case: the file is not smaller"
    train again --sparse $kind:updates=4 --resume run/step-000000004.safetensors
    cmp run/step-000000012.safetensors again/step-000000012.safetensors || fail "$case: resumed with other bits"
done
train dense
train sparse --sparse units:density=0.3,from=0,until=0
[ $((3 * $(number bytes_sent sparse.json))) -lt $((2 * $(number bytes_sent dense.json))) ] || fail "frames do not shrink"
"$frugrad" prune run --units zeros -o small.safetensors >/dev/null
"$frugrad" export small.safetensors --code int8 -o small.fgc >/dev/null || fail "export"
printed --weights small.fgc >/dev/null
"$frugrad" sample --model gpt2-nano --weights small.fgc --prompt a --length 8 >/dev/null || fail "sample"
train more --weights small.safetensors --sparse channels:density=0.5

# Layers with fewer inputs than the parts in which a vector is multiplied: the same text.
train few --sparse channels:density=0.01
"$frugrad" prune few --units zeros --json -o few.safetensors >prune.json || fail "prune to 1 %"
[ "$(number removed prune.json)" = 570 ] || fail "not two neurons are left of each layer: $(cat prune.json)"
"$frugrad" sample --model gpt2-nano --resume few --prompt a --length 48 >whole.text || fail "sample of the run"
"$frugrad" sample --model gpt2-nano --weights few.safetensors --prompt a --length 48 >few.text || fail "sample of two neurons"
cmp whole.text few.text || fail "another text after removal: $(cat few.text), before: $(cat whole.text)"

# More layers than those of any usual model.
deep="--model gpt2:layers=130,width=2,heads=1,length=8 --data builtin --threads 1"
model=$deep train deep --sparse channels:density=0.5,from=0,until=0 --samples 8
"$frugrad" prune deep --units zeros -o deep.safetensors >/dev/null || fail "prune 130 layers"
before=$(model=$deep printed --resume deep --samples 8)
after=$(model=$deep printed --weights deep.safetensors --samples 8)
[ -n "$before" ] && [ "$before" = "$after" ] || fail "130 layers: $before, after removal $after"

# Without the checkpoint, only --model says how long a head is; a second removal has nothing to remove.
expect_error 2 "name the --model" prune small.safetensors --units zeros -o x.safetensors
"$frugrad" prune small.safetensors --units zeros --model gpt2-nano -o x.safetensors | grep -q ": 0 of " || fail "twice"
cmp small.safetensors x.safetensors || fail "a second removal changes something"
expect_error 2 "the checkpoint is of gpt2-nano" prune run --units zeros --model gpt2-micro -o x.safetensors
expect_error 2 "the checkpoint is of gpt2-nano" prune run --units zeros --model gpt2-nano:heads=6 -o x.safetensors
"$frugrad" prune run --units zeros --model gpt2-nano -o x.safetensors >/dev/null || fail "--model of the checkpoint"
expect_error 2 "omit --sparsity" prune run --units zeros --sparsity 0.5 -o x.safetensors
expect_error 2 "keep-shapes" prune run --units zeros --keep-shapes -o x.safetensors
expect_error 2 "is not for --units zeros" prune run --units zeros --pattern 2:4 -o x.safetensors
expect_error 2 "has no option 'layers'" train $model --sparse channels:layers=erk --steps 1
expect_error 2 "from 1e-06 to 1" train $model --sparse heads:density=2 --steps 1
model="--model resnet20 --data builtin --threads 1"
expect_error 1 "no attention heads" train $model --sparse heads --steps 1 --no-eval
expect_error 2 "does not support --sparse" train $model --sparse channels --stages 2 --steps 1 --no-eval

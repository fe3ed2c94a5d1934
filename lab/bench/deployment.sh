#!/usr/bin/env bash
# The steps of docs/deployment.md, from `frugrad train` to a compact file, with accuracy and bytes after each: a line of
# JSON each on stdout. FRUGRAD names the program; arguments: the seed [1], the data set [fashion-mnist].
set -euo pipefail
frugrad=${FRUGRAD:-build/release/frugrad} seed=${1:-1} data=${2:-fashion-mnist}
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
export FRUGRAD_PROGRESS=off

field() { # name, of the JSON on stdin
    tr -d '\n' | sed "s/.*\"$1\": *\([0-9.e+-]*\).*/\1/"
}
row() { # after file
    local accuracy
    accuracy=$("$frugrad" eval --model lenet --data "$data" --weights "$2" --threads 1 --json | field accuracy)
    printf '{"after": "%s", "seed": %s, "accuracy": %s, "bytes": %s}\n' "$1" "$seed" "$accuracy" "$(wc -c <"$2")"
}
newest() { # of a directory of checkpoints, as a file of weights alone
    "$frugrad" export "$work/$1" -o "$work/$1.safetensors" >/dev/null
}
train() { # directory options...
    local to=$1
    shift
    "$frugrad" train --model lenet --data "$data" --threads 1 --seed "$seed" --no-eval --quiet --json --keep 1 \
        --save "$work/$to" "$@" >"$work/$to.json"
    newest "$to"
}

train dense --workers 1 --method dense --epochs 3
row train "$work/dense.safetensors"
one_shot() { # options...
    "$frugrad" prune "$work/dense.safetensors" "$@" -o "$work/pruned.safetensors" >/dev/null
    row "prune $*" "$work/pruned.safetensors"
}
wanda="--by wanda --model lenet --data $data --threads 1"
for sparsity in 0.5 0.7 0.8 0.9; do
    one_shot --sparsity $sparsity --scope global
    one_shot --sparsity $sparsity --scope tensor
    one_shot --sparsity $sparsity $wanda
done
one_shot --pattern 2:4
one_shot --pattern 2:4 $wanda
one_shot --pattern 2:4 --skip conv
for sparsity in 0.8 0.9 0.95; do
    "$frugrad" prune "$work/dense.safetensors" --sparsity $sparsity -o "$work/pruned.safetensors" >/dev/null
    row "prune --sparsity $sparsity" "$work/pruned.safetensors"
    train "recovered$sparsity" --workers 2 --epochs 1 --rate 0.02 --weights "$work/pruned.safetensors" --sparse zeros
    row "prune --sparsity $sparsity, train --sparse zeros, 1 epoch" "$work/recovered$sparsity.safetensors"
    for code in f32 int8; do
        "$frugrad" export "$work/recovered$sparsity.safetensors" --code $code -o "$work/model.fgc" >/dev/null
        row "prune --sparsity $sparsity, train --sparse zeros, 1 epoch, export --code $code" "$work/model.fgc"
    done
    printf '{"after": "recovery of %s", "bytes_sent": %s, "bytes_dense": %s, "seconds": %s}\n' "$sparsity" \
        "$(field bytes_sent <"$work/recovered$sparsity.json")" "$(field bytes_dense <"$work/recovered$sparsity.json")" \
        "$(field seconds <"$work/recovered$sparsity.json")"
done

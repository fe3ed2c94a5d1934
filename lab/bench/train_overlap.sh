#!/bin/bash
# train_overlap.sh - a whole training step over slow links: dense gradients in MPI's ring, FruGrad, and no exchange at all.
#
#   lab/bench/train_overlap.sh [-o FILE] [-b BUILD] [-p WORKERS] [-r RATES] [-n ROUNDS] [-m MODEL] [-s BATCH]
#
#   -o   also write the JSON lines there: results/overlap-aarch64.jsonl
#   -b   where frugrad-mpi is [build/release]
#   -p   workers, each in a network namespace of its own [4]
#   -r   bandwidth of the links, in the syntax of tc ["1gbit 100mbit"]
#   -n   rounds; the methods run in turn [3]
#   -m   model; -s samples of each worker [a GPT-2 of 25 M parameters on bytes, 1]
#
# All exchange during backward. Needs root: see tests/net/netns.sh. On a machine with fewer cores than workers the
# workers share them, so compression costs more than on a cluster.
set -euo pipefail
cd "$(dirname "$0")/../.."

output='' build=build/release workers=4 rates='1gbit 100mbit' rounds=3 batch=1
model='gpt2:layers=8,width=512,heads=8,length=64,dropout=0'
while getopts o:b:p:r:n:m:s: option; do
    case $option in
        o) output=$OPTARG ;;
        b) build=$OPTARG ;;
        p) workers=$OPTARG ;;
        r) rates=$OPTARG ;;
        n) rounds=$OPTARG ;;
        m) model=$OPTARG ;;
        s) batch=$OPTARG ;;
        *) sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
program=$(readlink -f "$build/frugrad-mpi") && [ -x "$program" ] || { echo "train_overlap: no frugrad-mpi in $build" >&2; exit 1; }
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT

# take LINK NAME STEPS OPTION...
take() {
    local link=$1 name=$2 steps=$3
    shift 3
    echo "train_overlap: $link, $name" >&2
    tests/net/netns.sh -q -p "$workers" -r "$link" "$program" train --model "$model" --data builtin --batch "$batch" --threads 1 \
        --no-eval --json --quiet --steps "$steps" "$@" | tr -d '\n' | sed "s/^{/{\"link\":\"$link\",\"name\":\"$name\",/" >>"$lines"
    echo >>"$lines"
}

fast=(--optimizer adam-merged:state=f32 --bucket 12M)
for rate in $rates; do
    slow=8
    [ "$rate" = 100mbit ] && slow=2
    for _ in $(seq "$rounds"); do
        take "$rate" "no exchange" 8 --alone --optimizer adam-merged:state=f32
        take "$rate" dense "$slow" --method dense
        take "$rate" "frugrad" 8 --method frugrad
        take "$rate" "frugrad, f32 states, 12 MB buckets" 8 --method frugrad,residual=f32 "${fast[@]}"
        take "$rate" "the same at 99 %" 8 --method frugrad,residual=f32,schedule=constant:0.99 "${fast[@]}"
        [ "$rate" = 100mbit ] && break
    done
done

python3 - "$lines" <<'END'
import json, statistics, sys

rows = {}
for line in open(sys.argv[1], encoding="utf-8"):
    if line.strip():
        r = json.loads(line)
        rows.setdefault((r["link"], r["name"]), []).append(r)
print("| link | method | step ms (median of rounds) | times faster than dense | of the rate without exchange | model state MB |")
print("|---|---|---:|---:|---:|---:|")
for (link, name), runs in rows.items():
    ms = {n: statistics.median(r["step_ms"] for r in rows[link, n]) for n in ("dense", "no exchange", name)}
    print(f"| {link} | {name} | {ms[name]:.0f} | {ms['dense'] / ms[name]:.2f} | {ms['no exchange'] / ms[name]:.0%} | "
          f"{runs[0]['model_state_bytes'] / 1e6:.0f} |")
END
[ -z "$output" ] || cp "$lines" "$output"

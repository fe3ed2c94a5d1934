#!/bin/bash
# net_table.sh - measure exchanges over links of several speeds and print a table.
#
#   tests/net/net_table.sh [-o FILE] [-b BUILD] [-p WORKERS] [-- ARGUMENT...]
#
#   -o   also write the JSON lines there: results/reduce-aarch64.jsonl
#   -b   where frugrad-mpi is [build/release]
#   -p   workers [4]
#
# Arguments are those of frugrad bench reduce (-n, --density, --config, --case, --rounds). Root is needed: see netns.sh.
# Over shared memory the dense sum is measured twice, with a ring and with the algorithm that Open MPI selects; use the
# row with the shorter dense time.
set -euo pipefail
cd "$(dirname "$0")/../.."

output='' build=build/release workers=4
while getopts o:b:p: option; do
    case $option in
        o) output=$OPTARG ;;
        b) build=$OPTARG ;;
        p) workers=$OPTARG ;;
        *) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    esac
done
shift $((OPTIND - 1))
program=$(readlink -f "$build/frugrad-mpi") && [ -x "$program" ] || { echo "table: no frugrad-mpi in $build" >&2; exit 1; }
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT

# measure_link LINK COMMAND...: append the command's JSON lines, with the link as first key.
measure_link() {
    local link=$1
    shift
    echo "table: $link" >&2
    "$@" | sed "s/^{/{\"link\":\"$link\",/" >>"$lines"
}

memory=(mpirun --allow-run-as-root --oversubscribe --bind-to none --mca btl 'self,vader' --mca mpi_yield_when_idle 1
    -np "$workers")
ring=(--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm 4)
measure=("$program" bench reduce --json)
measure_link 100mbit tests/net/netns.sh -q -p "$workers" -r 100mbit "${measure[@]}" --rounds 3 "$@"
measure_link 1gbit tests/net/netns.sh -q -p "$workers" -r 1gbit "${measure[@]}" --rounds 9 "$@"
measure_link "shared memory, ring" "${memory[@]}" "${ring[@]}" "${measure[@]}" --rounds 15 "$@"
measure_link "shared memory" "${memory[@]}" "${measure[@]}" --rounds 15 "$@"

python3 - "$lines" <<'END'
import json, sys

print("| link | reduce | ms | dense ms | times faster | by bytes | share of that | compress / wait / wire / decode ms | verified |")
print("|---|---|---:|---:|---:|---:|---:|---|---|")
dense = 0
for line in open(sys.argv[1], encoding="utf-8"):
    r = json.loads(line)
    if "skipped" in r:
        continue
    if r["reduce"] == "dense":
        dense = r["ms_median"]
        continue
    stages = " / ".join(f"{r[k]:.1f}" for k in ("ms_compress", "ms_wait", "ms_wire", "ms_decode"))
    print(f"| {r['link']} | {r['reduce']} | {r['ms_median']:.1f} | {dense:.1f} | {r['speedup']:.2f} | {r['ideal']:.2f} | "
          f"{r['of_ideal']:.0%} | {stages} | {'yes' if r['verified'] else 'NO'} |")
END
[ -z "$output" ] || cp "$lines" "$output"

#!/usr/bin/env bash
# An exchange between two processes in network namespaces with slow links: results are verified, the links carry the
# bytes that the library counts, and no namespace stays. Skipped without namespaces, rate limits or MPI.
set -euo pipefail
export FRUGRAD_PROGRESS=off # the output must not depend on timing

build=${FRUGRAD_BUILD:?where the programs are}
net=$(dirname "$0")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "net: $*" >&2
    exit 1
}

[ -x "$build/frugrad-mpi" ] || { echo "net: skipped: built without MPI" >&2; exit 77; }

rc=0
"$net/netns.sh" -p 2 -r 200mbit "$build/frugrad-mpi" bench reduce --case gather -n 600000 -r 2 --json \
    >"$work/out" 2>"$work/err" || rc=$?
[ "$rc" -ne 77 ] || { cat "$work/err" >&2; exit 77; }
[ "$rc" -eq 0 ] || fail "exit status $rc: $(cat "$work/err")"
[ "$(grep -c '"verified":true' "$work/out")" -eq 2 ] || fail "not two verified lines: $(cat "$work/out")"

# Three exchanges of each kind; the transport and sync rounds add some percent.
payload=$(grep -o '"bytes_sent":[0-9]*' "$work/out" | cut -d: -f2 | awk '{ sum += 3 * $1 } END { print sum }')
for worker in 0 1; do
    carried=$(awk -v w=$worker '$3 == w && $4 == "sent" { print $5 }' "$work/err")
    [ "${carried:-0}" -ge "$payload" ] || fail "worker $worker sent ${carried:-nothing}, not $payload bytes"
    [ "$carried" -le $((payload * 13 / 10 + 200000)) ] || fail "worker $worker sent $carried bytes for $payload of payload"
done

# A program that fails, and one that is interrupted.
rc=0
"$net/netns.sh" -q -p 2 false >/dev/null 2>&1 || rc=$?
[ "$rc" -eq 1 ] || fail "exit status $rc of a program that fails"
"$net/netns.sh" -q -p 2 sh -c "touch $work/started; exec sleep 60" >/dev/null 2>&1 &
script=$!
until [ -e "$work/started" ] || ! kill -0 $script 2>/dev/null; do sleep 0.05; done
kill -TERM $script || fail "the run to be interrupted has ended already"
rc=0
wait $script || rc=$?
[ "$rc" -eq 143 ] || fail "exit status $rc of an interrupted run"
! ip netns list | grep "^fg$script" >/dev/null || fail "namespaces of $script still exist"

# With -t, as torchrun starts processes; if one fails, the others are ended.
output=$("$net/netns.sh" -q -t -p 2 sh -c 'echo "$RANK of $WORLD_SIZE at $MASTER_ADDR"' | sort)
[ "$output" = "0 of 2 at 10.91.7.1
1 of 2 at 10.91.7.1" ] || fail "-t printed: $output"
rc=0
"$net/netns.sh" -q -t -p 2 sh -c '[ "$RANK" = 0 ] || exit 3; exec sleep 60' >/dev/null 2>&1 || rc=$?
[ "$rc" -eq 3 ] || fail "exit status $rc where one process ends with 3"

#!/usr/bin/env bash
# Server and clients are killed, connections cut, disks full and clocks wrong: a run ends with the same bits, and counts
# every update once. lab/bench/federated_faults.py has the events; here are few of them.
. "$(dirname "$0")/../support/script.sh"
: "${FRUGRAD_SOURCE:=$(cd "$(dirname "$0")/../.." && pwd)}"
export ASAN_OPTIONS=$ASAN_OPTIONS:verify_asan_link_order=0 TMPDIR=$work

python3 "$FRUGRAD_SOURCE/lab/bench/federated_faults.py" --program "$FRUGRAD" --events 8 --rounds 16 --clients 2

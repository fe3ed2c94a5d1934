#!/usr/bin/env bash
# A job that loses a process ends within seconds, with words and an exit status other than 0, and leaves
# nothing running: the process is killed (MPI itself notices), stopped, or never calls (our deadline does).
#   lose_one.sh PROGRAM MPIEXEC...
set -euo pipefail

program=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "lose_one: $*" >&2
    sed 's/^/    /' "$work/said" >&2
    exit 1
}

# Whether a process of this name is still there; a zombie has ended and only waits for its parent.
running() {
    local state
    state=$(ps -o stat= -p "$1" 2>/dev/null) || return 1
    [[ $state != Z* ]]
}

# lose HOW ALGORITHM: run a job of three that loses rank 1.
lose() {
    local start=$SECONDS status=0 pid
    timeout 60 "${mpiexec[@]}" "$program" "$1" "$2" >"$work/said" 2>&1 || status=$?
    [ $status -ne 0 ] || fail "$1, $2: exit status 0"
    [ $((SECONDS - start)) -lt 20 ] || fail "$1, $2: took $((SECONDS - start)) seconds"
    pid=$(sed -n 's/.*lost: \([0-9]*\).*/\1/p' "$work/said")
    [ -n "$pid" ] || fail "$1, $2: rank 1 never came to be lost"
    for _ in $(seq 50); do
        running "$pid" || return 0
        sleep 0.1
    done
    kill -KILL "$pid"
    fail "$1, $2: process $pid was left running"
}

# Both other ranks must have got FRUG_ERR_COMM at the deadline.
expect_deadline() {
    local said
    said=$(grep -c 'communication failed: .* received nothing from rank 1 for 2 seconds' "$work/said" || true)
    [ "$said" -eq 2 ] || fail "$1: $said of 2 ranks noticed"
}

mpiexec=("$@")
lose kill gather
grep -qi -e signal -e killed -e terminat "$work/said" || fail "kill: nothing was said"
lose stop gather
expect_deadline stop
lose idle dense
expect_deadline idle

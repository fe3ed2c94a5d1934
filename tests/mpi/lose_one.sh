#!/usr/bin/env bash
# A job that loses a process ends within seconds with an error message and an exit status other than 0, and no process
# stays running. The process is killed (MPI detects that), is stopped, or makes no calls (our timeout detects that).
#   lose_one.sh PROGRAM MPIEXEC...
set -euo pipefail

program=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "lose_one: $*" >&2
    sed 's/^/    /' "$work/output" >&2
    exit 1
}

# Whether a process is running; a zombie is not.
running() {
    local state
    state=$(ps -o stat= -p "$1" 2>/dev/null) || return 1
    [[ $state != Z* ]]
}

# lose HOW ALGORITHM: run a job of three that loses rank 1.
lose() {
    local start=$SECONDS status=0 pid
    timeout 60 "${mpiexec[@]}" "$program" "$1" "$2" >"$work/output" 2>&1 || status=$?
    [ $status -ne 0 ] || fail "$1, $2: exit status 0"
    [ $((SECONDS - start)) -lt 20 ] || fail "$1, $2: took $((SECONDS - start)) seconds"
    pid=$(sed -n 's/.*lost: \([0-9]*\).*/\1/p' "$work/output")
    [ -n "$pid" ] || fail "$1, $2: rank 1 did not reach step 2"
    for _ in $(seq 50); do
        running "$pid" || return 0
        sleep 0.1
    done
    kill -KILL "$pid"
    fail "$1, $2: process $pid was left running"
}

# Both other ranks must have got FRUG_ERR_COMM by timeout.
expect_timeout() {
    local count
    count=$(grep -c 'communication failed: .* received nothing from rank 1 for 2 seconds' "$work/output" || true)
    [ "$count" -eq 2 ] || fail "$1: $count of 2 ranks report the timeout"
}

mpiexec=("$@")
lose kill gather
grep -qi -e signal -e killed -e terminat "$work/output" || fail "kill: no error message"
lose stop gather
expect_timeout stop
lose idle dense
expect_timeout idle

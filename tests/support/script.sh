# script.sh - the beginning of test scripts, sourced: strict mode, $work, fail(), expect_error().
set -euo pipefail
export FRUGRAD_PROGRESS=off # how long things take must not change what is printed
# A leak check costs seconds per process on ARM. Scripts make it once, with ASAN_OPTIONS=$leaks, or leave it to others.
leaks=${ASAN_OPTIONS:-}
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$(basename "$0" .sh): $*" >&2; exit 1; }
expect_error() { # status text command...: the program fails so, and says that; it prints into the file out
    local status=$1 text=$2 code=0
    shift 2
    "$FRUGRAD" "$@" >out 2>&1 || code=$?
    [ "$code" = "$status" ] || fail "$* returns $code, not $status: $(cat out)"
    grep -q -- "$text" out || fail "$* does not say '$text': $(cat out)"
}

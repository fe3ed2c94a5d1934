# script.sh - the beginning of test scripts, sourced: strict mode, $work, fail().
set -euo pipefail
export FRUGRAD_PROGRESS=off # how long things take must not change what is printed
# A leak check costs seconds per process on ARM. Scripts make it once, with ASAN_OPTIONS=$leaks, or leave it to others.
leaks=${ASAN_OPTIONS:-}
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "$(basename "$0" .sh): $*" >&2; exit 1; }

#!/usr/bin/env bash
# Run every libFuzzer program of a build directory for some seconds each. Inputs that increase the coverage
# are stored in the build directory, as are those that fail; the committed seeds are only read.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?build directory} seconds=${2:?seconds per target}

for program in "$build"/fuzz/fuzz_*; do
    [ -f "$program" ] && [ -x "$program" ] || continue
    subject=${program##*/fuzz_}
    grown=$build/corpus/$subject log=$build/$subject.log
    mkdir -p "$grown"
    if ! "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
        -artifact_prefix="$build/broke-$subject-" "$grown" "fuzz/corpus/$subject" >"$log" 2>&1; then
        tail -n 40 "$log" >&2
        echo "fuzz: $subject FAILED; the input is $build/broke-$subject-*" >&2
        exit 1
    fi
    echo "fuzz: $subject ok, $(sed -n 's/^Done \([0-9]* runs\).*/\1/p' "$log")"
done

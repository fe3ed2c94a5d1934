#!/usr/bin/env bash
# Run every libFuzzer program of a build directory for some seconds each. New inputs that widen the
# coverage stay in the build directory; the committed seeds are only read.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:?build directory} seconds=${2:?seconds per target}

for program in "$build"/fuzz/fuzz_*; do
    [ -f "$program" ] && [ -x "$program" ] || continue
    subject=${program##*/fuzz_}
    grown=$build/corpus/$subject
    mkdir -p "$grown"
    echo "fuzz: $subject for $seconds s"
    "$program" -max_total_time="$seconds" -print_final_stats=0 -verbosity=0 \
        -artifact_prefix="$build/crash-$subject-" "$grown" "fuzz/corpus/$subject"
done

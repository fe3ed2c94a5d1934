#!/usr/bin/env bash
# blas_cores.sh - runs test_threads, which checks that results do not depend on the number of threads, for every kind of
# BLAS kernel that this CPU supports: OpenBLAS uses the kernels of the core type in OPENBLAS_CORETYPE.
set -euo pipefail
export FRUGRAD_PROGRESS=off # how long things take must not change what is printed

program=$FRUGRAD_BUILD/tests/test_threads
if [ -n "${FRUG_TEST_SHORT:-}" ]; then
    echo "skipped: the kernels are OpenBLAS's; test_threads runs the default ones under sanitizers"
    exit 77
fi

# OpenBLAS does not check a core type that is set: on another CPU the program would die of an illegal instruction.
flags=" $(grep -m1 -iE '^(flags|features)[[:space:]]*:' /proc/cpuinfo | cut -d: -f2) "
can_run() { # FLAG...
    local flag
    for flag in "$@"; do
        [[ $flags == *" $flag "* ]] || return 1
    done
}

cores=()
case $(uname -m) in
x86_64)
    cores+=(Core2)
    ! can_run avx || cores+=(Sandybridge)
    ! can_run avx2 fma || cores+=(Haswell Zen)
    ! can_run avx512f avx512bw avx512dq avx512vl avx512cd || cores+=(SkylakeX)
    ! can_run avx512f avx512bw avx512dq avx512vl avx512cd avx512_bf16 || cores+=(Cooperlake)
    ;;
aarch64)
    cores+=(ARMV8 CORTEXA57)
    ! can_run atomics asimdhp || cores+=(NEOVERSEN1)
    ! can_run sve || cores+=(ARMV8SVE)
    ;;
esac

log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=()
for core in "${cores[@]}"; do
    OPENBLAS_CORETYPE=$core "$program" >"$log" 2>&1 || failed+=("$core")
    if grep -qi "core type: $core\$" "$log"; then
        cat "$log"
    else
        echo "$core: this OpenBLAS has no kernels for it, so these are others:" && cat "$log"
    fi
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "blas_cores: the number of threads changes bits with the kernels of ${failed[*]}" >&2
    exit 1
fi

#!/bin/bash
# Builds variants of the GPU kernels and times them, one after the other, on this machine's GPU:
#   bench/cuda_variants.sh [folder for objects, default build/variants]
# A variant is a name and compiler flags; results go to stdout, sorted by case.
set -e
cd "$(dirname "$0")/.."
O=${1:-build/variants}
NVCC=${NVCC:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
CUDA=$(dirname "$(readlink -f "$NVCC")")/..
variants=(
    "reg0-4   -DPRESS_AHEAD=0 -DPRESS_LEAST=4 -DSUM_HALVES=1 -DSUM_LEAST=5"
    "reg0-5   -DPRESS_AHEAD=0 -DPRESS_LEAST=5 -DSUM_HALVES=0 -DSUM_LEAST=5"
    "reg1-3   -DPRESS_AHEAD=1 -DPRESS_LEAST=3 -DSUM_HALVES=1 -DSUM_LEAST=4"
    "reg1-4   -DPRESS_AHEAD=1 -DPRESS_LEAST=4 -DSUM_HALVES=0 -DSUM_LEAST=4"
    "shm-4    -DPRESS_AHEAD=2 -DPRESS_LEAST=4 -DCRC_PART=4096u"
    "shm-5    -DPRESS_AHEAD=2 -DPRESS_LEAST=5 -DCRC_PART=16384u"
    "shm-5-r4 -DPRESS_AHEAD=2 -DPRESS_LEAST=5 -DPRESS_RUN=4u"
    "shm-6    -DPRESS_AHEAD=2 -DPRESS_LEAST=6 -DSUM_LEAST=6"
)
mkdir -p "$O"
jobs=()
c="gcc -std=gnu17 -O3 -fPIC -fopenmp -ffp-contract=off -fno-math-errno -fvisibility=hidden -Isrc -Iinclude"
for f in src/*/*.c; do
    case $(uname -m)$f in
    *comm_mpi* | x86_64*_neon* | x86_64*_arm.c | aarch64*_avx2.c | aarch64*_x86.c | *src/cuda/*) continue ;;
    *_avx2.c) flags="-mavx2 -mfma -mf16c -mbmi -mbmi2 -mlzcnt -mpopcnt" ;;
    *_x86.c) flags="-msse4.2 -mpclmul" ;;
    *_arm.c) flags="-march=armv8-a+crc+crypto" ;;
    *) flags="" ;;
    esac
    $c $flags -c "$f" -o "$O/c_$(basename "$f" .c)_$(basename "$(dirname "$f")").o" &
    jobs+=($!)
done
for v in "${variants[@]}"; do
    read -r name flags <<<"$v"
    for f in press seal sum; do
        "$NVCC" -std=c++17 -O3 -fmad=false -arch=sm_90 -Xcompiler -fPIC -Xptxas -v -DPRESS_FEW $flags -Isrc -Iinclude \
            -c src/cuda/$f.cu -o "$O/$name.$f.o" 2>"$O/$name.$f.txt" &
        jobs+=($!)
    done
done
for f in keep norm qsgd; do # no variants, but the compressor has them
    "$NVCC" -std=c++17 -O3 -fmad=false -arch=sm_90 -Xcompiler -fPIC -Isrc -Iinclude -c src/cuda/$f.cu -o "$O/k_$f.o" &
    jobs+=($!)
done
for f in src/cuda/*.c; do
    $c -isystem "$CUDA/include" -c "$f" -o "$O/h_$(basename "$f" .c).o"
done
$c -isystem "$CUDA/include" -c bench/cuda_variants.c -o "$O/main.o"
for j in "${jobs[@]}"; do wait "$j"; done
for v in "${variants[@]}"; do
    read -r name flags <<<"$v"
    "$NVCC" -o "$O/$name" "$O/main.o" "$O/$name".{press,seal,sum}.o "$O"/[chk]_*.o -lm -Xcompiler -fopenmp
done
for v in "${variants[@]}"; do
    read -r name flags <<<"$v"
    "$O/$name" "$name" >"$O/$name.times" || echo "$name failed"
done
for v in "${variants[@]}"; do
    read -r name flags <<<"$v"
    echo "$name: $flags: $(grep -ohE 'Used [0-9]+ registers' "$O/$name.press.txt" | sort | uniq -c | paste -s -d,)"
done
cat "$O"/*.times | sort -s -k2,2 -k4,4n

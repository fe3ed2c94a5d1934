#!/usr/bin/env bash
# Install the Debian packages that are missing for the groups named on the command line, and say so.
# Does nothing, and needs no network, when nothing is missing.
set -euo pipefail

usage() {
    echo "usage: tools/install-deps.sh GROUP...   (groups: build demo test mpi mpich slurm torch bench clang format deb cross-x86 cross-aarch64)" >&2
    exit 2
}

onednn_package() { # the trainer is faster with it on x86-64 only
    [ "$(dpkg --print-architecture 2>/dev/null)" != amd64 ] || echo libdnnl-dev
}

packages_of() {
    case "$1" in
    build) echo gcc libc6-dev make cmake pkg-config libjansson-dev zlib1g-dev liblzma-dev libopenblas-dev \
        libjpeg62-turbo-dev libpng-dev libssl-dev $(onednn_package) ;;
    demo) echo dataset-fashion-mnist ;; # without it the demo makes up its images
    test) echo g++ libcmocka-dev mypy python3 python3-numpy python3-torch iproute2 dataset-fashion-mnist chromium librsvg2-bin ;;
    mpi) echo libopenmpi-dev openmpi-bin ;;
    mpich) echo libmpich-dev mpich ;; # stands beside Open MPI: mpicc.mpich, mpirun.mpich
    slurm) echo slurm-wlm munge ;;
    torch) echo python3-venv ;;
    bench) echo g++ ;; # optional: bench then compares with std::nth_element
    clang) echo clang libclang-rt-14-dev libomp-dev ;;
    format) echo clang-format ;;
    deb) echo dpkg-dev debhelper fakeroot lintian ;;
    cross-x86) echo gcc-x86-64-linux-gnu libc6-dev-amd64-cross qemu-user ;;
    cross-aarch64) echo gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user ;;
    *) return 1 ;;
    esac
}

installed() {
    [ "$(dpkg-query --show --showformat='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

[ $# -gt 0 ] || usage
wanted=()
for group in "$@"; do
    list=$(packages_of "$group") || usage
    read -ra packages <<<"$list"
    wanted+=("${packages[@]}")
done

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "install-deps: this is not Debian; please see to the equivalents of: ${wanted[*]}" >&2
    exit 0
fi

missing=()
for package in "${wanted[@]}"; do
    installed "$package" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
    echo "install-deps: missing packages; please run as root: apt-get install ${missing[*]}" >&2
    exit 1
fi
echo "install-deps: installing from Debian: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -qq --no-install-recommends "${missing[@]}" >/dev/null

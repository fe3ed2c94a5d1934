#!/usr/bin/env bash
# Unpack the libraries of another architecture that the tests need into build/cross-root-NAME, for the presets
# cross-x86 (amd64) and cross-aarch64 (arm64). Nothing is installed: apt works on lists and caches of its own.
set -euo pipefail
cd "$(dirname "$0")/.."

arch=${1:-}
case "$arch" in
amd64) triplet=x86_64-linux-gnu only=(libquadmath0 libdnnl-dev libdnnl2 ocl-icd-libopencl1) ;;
arm64) triplet=aarch64-linux-gnu only=() ;; # without oneDNN, which is for x86-64 only here
*) echo "usage: tools/cross-root.sh amd64|arm64" >&2 && exit 2 ;;
esac
root=$PWD/build/cross-root-$arch
packages=(libcmocka-dev libcmocka0 libjansson-dev libjansson4 zlib1g-dev zlib1g liblzma-dev liblzma5
    libopenblas-pthread-dev libopenblas0-pthread libgfortran5 libjpeg62-turbo-dev libjpeg62-turbo
    libpng-dev libpng16-16 libssl-dev libssl3 libstdc++6 "${only[@]}")
[ "$(cat "$root/complete" 2>/dev/null)" != "${packages[*]}" ] || exit 0 # a root for fewer packages is made anew
rm -rf "$root"
apt=$root/apt
mkdir -p "$apt/lists/partial" "$apt/archives/partial"
options=(-qq -o "APT::Architecture=$arch" -o "APT::Architectures::=$arch" -o APT::Sandbox::User=root
    -o Dir::State::lists="$apt/lists" -o Dir::Cache="$apt" -o Dir::State::status=/dev/null)

echo "cross-root: fetching libraries for $arch from Debian: ${packages[*]}"
apt-get "${options[@]}" update
cd "$apt/archives"
apt-get "${options[@]}" download "${packages[@]/%/:$arch}"
for package in *.deb; do
    dpkg-deb --extract "$package" "$root"
done
# Merge /lib, which Debian 12 still has, into the rest, so that its absolute links can be rewritten.
libs=$root/usr/lib/$triplet
cp -a "$root/lib/$triplet/." "$libs"
find "$libs" -maxdepth 1 -type l -lname '/lib/*' | while read -r link; do
    ln -sf "$(basename "$(readlink "$link")")" "$link"
done
rm -rf "$apt"
echo "${packages[*]}" >"$root/complete"

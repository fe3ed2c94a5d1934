#!/usr/bin/env bash
# Unpack the amd64 libraries that the tests need into build/cross-root, for the preset cross-x86 on a
# machine of another architecture. Nothing is installed: apt works on lists and caches of its own.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD/build/cross-root
packages=(libcmocka-dev libcmocka0 libjansson-dev libjansson4 zlib1g-dev zlib1g liblzma-dev liblzma5
    libopenblas-pthread-dev libopenblas0-pthread libgfortran5 libquadmath0 libjpeg62-turbo-dev libjpeg62-turbo
    libpng-dev libpng16-16 libssl-dev libssl3 libdnnl-dev libdnnl2 ocl-icd-libopencl1 libstdc++6)
[ "$(cat "$root/complete" 2>/dev/null)" != "${packages[*]}" ] || exit 0 # a root for fewer packages is made anew
rm -rf "$root"
apt=$root/apt
mkdir -p "$apt/lists/partial" "$apt/archives/partial"
options=(-qq -o APT::Architecture=amd64 -o APT::Architectures::=amd64 -o APT::Sandbox::User=root
    -o Dir::State::lists="$apt/lists" -o Dir::Cache="$apt" -o Dir::State::status=/dev/null)

echo "cross-root: fetching amd64 libraries from Debian: cmocka jansson zlib lzma openblas jpeg png ssl onednn"
apt-get "${options[@]}" update
cd "$apt/archives"
apt-get "${options[@]}" download "${packages[@]/%/:amd64}"
for package in *.deb; do
    dpkg-deb --extract "$package" "$root"
done
# Merge /lib, which Debian 12 still has, into the rest, so that its absolute links can be rewritten.
libs=$root/usr/lib/x86_64-linux-gnu
cp -a "$root"/lib/x86_64-linux-gnu/. "$libs"
find "$libs" -maxdepth 1 -type l -lname '/lib/*' | while read -r link; do
    ln -sf "$(basename "$(readlink "$link")")" "$link"
done
rm -rf "$apt"
echo "${packages[*]}" >"$root/complete"

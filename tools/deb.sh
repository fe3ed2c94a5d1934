#!/usr/bin/env bash
# Build the Debian packages of a clean copy of the sources, and check them with lintian: tools/deb.sh [FOLDER]
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-build/deb}
mkdir -p "$out"
out=$(realpath "$out")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/frugrad"
git ls-files -z | grep -zv '^results/' | tar --null -cf - -T - | tar xf - -C "$work/frugrad"
version=$(sed -n 's/^#define FRUG_VERSION_[A-Z]* //p' include/frugrad/core.h | paste -sd.)
[ "$(sed -n '1s/.*(\(.*\)).*/\1/p' debian/changelog)" = "$version" ] || {
    echo "deb: debian/changelog is not of version $version" >&2
    exit 1
}
(cd "$work/frugrad" && DEB_BUILD_OPTIONS="parallel=$(nproc)" dpkg-buildpackage -us -uc -b) >"$out/build.log" 2>&1 || {
    tail -30 "$out/build.log" >&2
    exit 1
}
cp "$work"/*.deb "$work"/*.changes "$work"/*.buildinfo "$out"
lintian --fail-on error,warning --profile debian "$work"/*.changes
ls -l "$out"/*.deb

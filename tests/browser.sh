#!/usr/bin/env bash
# The page of `frugrad report` in a browser: wide and as narrow as a phone, light and dark, it shows charts and numbers,
# is not wider than the window, runs no script of a label and asks for nothing over the network.
set -euo pipefail
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
: "${FRUGRAD_SOURCE:=$(cd "$(dirname "$0")/.." && pwd)}"
if ! command -v chromium >/dev/null; then
    echo "browser: SKIPPED: there is no chromium (Debian: apt-get install chromium)"
    exit 77
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "browser: $*" >&2; exit 1; }

# browse FILE OPTIONS...: no name resolves, so that a fetch fails, and all that was asked for is in $work/net.json
browse() {
    local page=$1
    shift
    timeout 100 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --no-first-run \
        --disable-background-networking --disable-component-update --disable-sync --host-resolver-rules='MAP * ~NOTFOUND' \
        --user-data-dir="$work/profile" --log-net-log="$work/net.json" "$@" "file://$page" 2>"$work/log"
}
# What pages of files have asked for; the browser's own business has another key.
asked() { grep -E '"network_isolation_key":"[^"]*file://' "$work/net.json" | grep -Eo '"url":"[^"]*"' | grep -v '"file:' || true; }

# -- the instruments work: a page that fetches is found out, and one with a script runs it
printf '<!DOCTYPE html><p>x<img src="http://example.invalid/x.png"><script>document.title="ran"</script>' >"$work/control.html"
if ! browse "$work/control.html" --dump-dom >"$work/dom"; then
    echo "browser: SKIPPED: chromium does not start here: $(tail -1 "$work/log")"
    exit 77
fi
grep -q '<title>ran</title>' "$work/dom" || fail "the control's script did not run: $(cat "$work/dom")"
asked >"$work/asked"
grep -q example.invalid "$work/asked" || fail "the control's fetch was not seen"

python3 "$FRUGRAD_SOURCE/tests/data/make_sample.py" >"$work/sample.jsonl"
"$FRUGRAD" report "$work/sample.jsonl" "$FRUGRAD_SOURCE/tests/data/runs.jsonl" -o "$work/page.html" >"$work/table"

browse "$work/page.html" --dump-dom >"$work/dom"
python3 - "$work/dom" <<'PY'
import re, sys
dom = open(sys.argv[1], encoding="utf-8").read()
charts = re.findall(r'<svg class="chart".*?</svg>\s*(?=<fig|</fig)', dom, re.S)
assert len(charts) == 32, len(charts)
for chart in charts:
    assert len(re.findall(r"<(?:path|rect|circle)", chart)) > 5 and "<text" in chart, chart[:300]
for number in ("<td>91.30 ± 0.20 %</td>", "<td>2.25× at 1 Gbit/s</td>", "FruGrad 94 %: 99.9 % of dense", "lenet-builtin"):
    assert number in dom, number
assert "<script" not in dom and "<img" not in dom and "&lt;script&gt;alert(1)" in dom
PY
asked >"$work/asked"
[ ! -s "$work/asked" ] || fail "the page asks for: $(cat "$work/asked")"

# look NAME SIZE COLOURS BACKGROUND: COLOURS is 1 for light, 0 for dark
look() {
    browse "$work/page.html" --window-size="$2" --blink-settings=preferredColorScheme="$3" --screenshot="$work/$1.png" >/dev/null
    asked >"$work/asked"
    [ ! -s "$work/asked" ] || fail "$1: the page asks for: $(cat "$work/asked")"
    python3 - "$work/$1.png" "$2" "$4" <<'PY'
import struct, sys, zlib
data, size, background = open(sys.argv[1], "rb").read(), sys.argv[2], bytes.fromhex(sys.argv[3])
assert data[:8] == b"\x89PNG\r\n\x1a\n"
at, packed = 8, b""
while at < len(data):
    length, kind = struct.unpack(">I4s", data[at:at + 8])
    body = data[at + 8:at + 8 + length]
    if kind == b"IHDR":
        width, height, depth, colours = struct.unpack(">IIBB", body[:10])
    packed += body if kind == b"IDAT" else b""
    at += 12 + length
assert "%d,%d" % (width, height) == size and depth == 8 and colours in (2, 6), (width, height, depth, colours)
raw, bytes_per = zlib.decompress(packed), 3 if colours == 2 else 4
assert raw[1:4] == background, raw[1:5].hex()   # the first pixel is itself whatever the filter
row = 1 + width * bytes_per
busy = sum(any(raw[y * row + 1 + bytes_per:(y + 1) * row]) for y in range(height))
assert busy > height // 3, (busy, height)       # rows that are not all like the one above or of one colour
PY
}
look wide-light 1280,2400 1 ffffff
look wide-dark 1280,2400 0 14181d
look phone-light 390,2400 1 ffffff
look phone-dark 390,2400 0 14181d

# -- on a phone nothing but a box that scrolls is wider than the window. The policy of the page forbids scripts, so
#    a copy without it is measured.
sed '/Content-Security-Policy/d' "$work/page.html" >"$work/open.html"
cat >>"$work/open.html" <<'HTML'
<script>document.title = "width " + document.documentElement.scrollWidth + " of " + innerWidth</script>
HTML
browse "$work/open.html" --window-size=390,900 --dump-dom >"$work/dom"
grep -Eo '<title>width [0-9]+ of [0-9]+' "$work/dom" >"$work/width" || fail "the page cannot be measured"
read -r _ is _ of <"$work/width"
[ "$is" -le "$of" ] || fail "the page is $is wide in a window of $of"
if [ -n "${FRUGRAD_SHOTS:-}" ]; then cp "$work"/*.png "$FRUGRAD_SHOTS"; fi
echo "browser: all right"

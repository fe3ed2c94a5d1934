#!/usr/bin/env bash
# The page of `frugrad report` in a browser: wide and as narrow as a phone, light and dark, it shows charts and numbers,
# is not wider than the window, runs no script of a label and asks for nothing over the network; no text of a chart is cut
# or covers another, and methods can be picked.
. "$(dirname "$0")/../support/script.sh"
: "${FRUGRAD_SOURCE:=$(cd "$(dirname "$0")/../.." && pwd)}"
if ! command -v chromium >/dev/null; then
    echo "browser: SKIPPED: there is no chromium (Debian: apt-get install chromium)"
    exit 77
fi

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

# look NAME SIZE COLORS BACKGROUND: COLORS is 1 for light, 0 for dark
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
        width, height, depth, colors = struct.unpack(">IIBB", body[:10])
    packed += body if kind == b"IDAT" else b""
    at += 12 + length
assert "%d,%d" % (width, height) == size and depth == 8 and colors in (2, 6), (width, height, depth, colors)
raw, bytes_per = zlib.decompress(packed), 3 if colors == 2 else 4
assert raw[1:4] == background, raw[1:5].hex()   # the first pixel is itself whatever the filter
row = 1 + width * bytes_per
busy = sum(any(raw[y * row + 1 + bytes_per:(y + 1) * row]) for y in range(height))
assert busy > height // 3, (busy, height)       # rows that are not all like the one above or of one color
PY
}
look wide-light 1280,2400 1 ffffff
look wide-dark 1280,2400 0 14181d
look phone-light 390,2400 1 ffffff
look phone-dark 390,2400 0 14181d

# -- on a phone nothing but a box that scrolls is wider than the window; in every chart, with one method or 23, no text
#    leaves the chart, covers another or is shortened (but absurd names); and a method is picked without a script. The
#    policy of the page forbids scripts, so a copy without it is measured, in frames as wide as a screen and a phone.
cat >"$work/measure" <<'HTML'
<script>
const faults = [], charts = document.querySelectorAll("svg.chart"), overlap = (a, b) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 0.5 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 0.5;
let texts = 0, picking = "";
for (const chart of charts) {
    const edge = chart.getBoundingClientRect(), seen = [], section = chart.closest("section");
    const absurd = section && section.querySelector("h2").textContent.startsWith("names");
    for (const text of chart.querySelectorAll("text")) {
        const r = text.getBoundingClientRect(), ink = r.height / 6, words = text.firstChild.textContent;
        if (r.width === 0)
            continue;
        const box = {left: r.left, right: r.right, top: r.top + ink, bottom: r.bottom - ink, words};
        const where = `${section ? section.id : ""} ${chart.getAttribute("aria-label")}: ${words}`;
        if (r.left < edge.left - 0.5 || r.right > edge.right + 0.5 || box.top < edge.top - 0.5 || box.bottom > edge.bottom + 0.5)
            faults.push(where + " is cut off");
        if (words.includes("\u2026") && !absurd && !words.includes("<"))
            faults.push(where + " is shortened");
        for (const other of seen)
            if (overlap(box, other))
                faults.push(where + " covers " + other.words);
        seen.push(box);
        texts++;
    }
}
const section = [...document.querySelectorAll("section")].find(s => s.querySelectorAll(".k").length === 17);
if (section) {
    const box = section.querySelector(".k:not(:checked)");
    const line = section.querySelector(`.charts .m${box.className.match(/k(\d+)/)[1]} .l`), color = () => getComputedStyle(line).stroke;
    const gray = color(), lit = section.querySelectorAll(".k:checked").length;
    section.querySelector(`label[for="${box.id}"]`).click();
    const picked = color();
    box.click();
    picking = ` lit ${lit} picked ${gray !== picked && color() === gray}`;
}
parent.document.title += `[${document.documentElement.scrollWidth} wide of ${innerWidth}; ${charts.length} charts, ` +
    `${texts} texts, ${faults.length} faults ${faults.slice(0, 5).join("; ")}${picking}]`;
</script>
HTML
python3 - "$FRUGRAD_SOURCE/tests/data/runs.jsonl" >"$work/many.jsonl" <<'PY'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1], encoding="utf-8")]
dense = next(r for r in lines if r["method"] == "dense" and r["phase"] == "test" and "accuracy" in r["result"])
words = "a method whose name goes on and on, with options=and:numbers, until nothing is left of the width of a chart"
for count in (1, 2, 7, 20):
    for i in range(count):
        run = json.loads(json.dumps(dense))
        run.update(suite="names", task="of-%d" % count, method="dense" if i == 0 else ("frugrad-%d" if i < 4 else "rival-%d") % i + "x",
                   label="dense" if i == 0 else words[:12 + 5 * i] if i % 5 else "W" * 60)
        run["result"]["accuracy"] *= 1 - 0.0004 * (i % 4)
        run["result"]["bytes_sent"] = int(run["result"]["bytes_sent"] * 0.97 ** i)
        print(json.dumps(run))
PY
"$FRUGRAD" report "$work/sample.jsonl" "$FRUGRAD_SOURCE/tests/data/runs.jsonl" "$work/many.jsonl" \
    "$FRUGRAD_SOURCE"/results/compare/{paper,ablation,scaling,sgc}-*.jsonl -o "$work/all.html" >"$work/table"
sed '/Content-Security-Policy/d' "$work/all.html" | cat - "$work/measure" >"$work/open.html"
{ printf '<!DOCTYPE html><meta charset="utf-8"><style>svg{display:block}</style>'; cat "$FRUGRAD_SOURCE"/docs/results/*.svg "$work/measure"; } >"$work/docs.html"
cat >"$work/frames.html" <<'HTML'
<!DOCTYPE html><title></title>
<iframe src="open.html" style="width:1280px;height:900px"></iframe><iframe src="open.html" style="width:390px;height:900px"></iframe>
<iframe src="docs.html" style="width:600px;height:900px"></iframe>
HTML
browse "$work/frames.html" --allow-file-access-from-files --dump-dom >"$work/dom"
python3 - "$work/dom" <<'PY' || fail "charts are not as they should be"
import html, re, sys
title = html.unescape(re.search("<title>(.*?)</title>", open(sys.argv[1], encoding="utf-8").read(), re.S)[1])
found = re.findall(r"\[(\d+) wide of (\d+); (\d+) charts, (\d+) texts, (\d+) faults", title)
assert sorted(int(of) for _, of, *_ in found) == [390, 600, 1280], title
for wide, of, charts, texts, faults in (map(int, words) for words in found):
    assert wide <= of and faults == 0 and charts >= (10 if of == 600 else 90) and texts > 9 * charts, title
assert title.count("lit 6 picked true") == 2, title
PY
if [ -n "${FRUGRAD_SHOTS:-}" ]; then cp "$work"/*.png "$FRUGRAD_SHOTS"; fi
echo "browser: all right"

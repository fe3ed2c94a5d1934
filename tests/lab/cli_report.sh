#!/usr/bin/env bash
# `frugrad report` makes tables, a page and charts of recorded runs: the numbers are right, the page fetches nothing and
# is well-formed where it is XML, and hostile files get one line.
. "$(dirname "$0")/../support/script.sh"
: "${FRUGRAD_SOURCE:=$(cd "$(dirname "$0")/../.." && pwd)}"
recorded=$FRUGRAD_SOURCE/tests/data/runs.jsonl
python3 "$FRUGRAD_SOURCE/tests/data/make_sample.py" >"$work/sample.jsonl"

# -- a folder, a file, several of them: one set
mkdir "$work/dir"
cp "$recorded" "$work/dir/runs.jsonl"
"$FRUGRAD" report "$work/dir" -o "$work/page.html" >"$work/table"
"$FRUGRAD" report "$recorded" >"$work/again"
cmp "$work/table" "$work/again" || fail "a folder and its file differ"
head -9 "$recorded" >"$work/one.jsonl"
tail -n +10 "$recorded" >"$work/two.jsonl"
"$FRUGRAD" report "$work/one.jsonl" "$work/two.jsonl" >"$work/again"
cmp "$work/table" "$work/again" || fail "a file and its two halves differ"
"$FRUGRAD" report "$recorded" "$recorded" >"$work/again"
cmp "$work/table" "$work/again" || fail "runs that are there twice count twice"
"$FRUGRAD" report "$recorded" -o - >"$work/stdout.html"
cmp "$work/page.html" "$work/stdout.html" || fail "-o - prints another page, or more than it"

# -- numbers against the file, worked out once more
"$FRUGRAD" report "$recorded" --markdown >"$work/markdown"
python3 - "$recorded" "$work/table" "$work/markdown" "$work/page.html" <<'PY'
import collections, json, statistics, sys
runs = [json.loads(line) for line in open(sys.argv[1])]
table, markdown, page = (open(path, encoding="utf-8").read() for path in sys.argv[2:])
tests, cells, dense = collections.defaultdict(list), 0, {}
for run in runs:
    group = [r for r in runs if (r["task"], r["method"], r["phase"]) == (run["task"], run["method"], "tune")]
    best = max(group, key=lambda r: r["result"]["accuracy"])["rate"] if group else None
    if run["phase"] == "test" and run["rate"] == best:
        tests[run["task"], run["metric"], run["method"], run["label"]].append(run["result"])
for (task, metric, method, label), results in tests.items():
    values = [r[metric] for r in results]
    mean, sd, sent = statistics.mean(values), statistics.stdev(values), statistics.mean(r["bytes_sent"] for r in results)
    if method == "dense":
        dense[task] = mean, sent
    share = (mean / dense[task][0] if metric == "accuracy" else dense[task][0] / mean) * 100
    words = ["%.2f ± %.2f %%" % (100 * mean, 100 * sd) if metric == "accuracy" else "%.2f ± %.2f" % (mean, sd),
             "%.1f %%" % share, "%.1f %%" % (100 * sent / dense[task][1])]
    rows = [line for line in table.split("\n") if line.startswith(label + " ") and all(w in line for w in words)]
    assert len(rows) == 1, (task, label, words, table)
    assert sum(line.startswith("| %s | " % label) and all("| %s |" % w in line for w in words)
               for line in markdown.split("\n")) == 1, (label, words, markdown)
    assert all("<td>%s</td>" % w in page for w in words), (label, words)
    if method.startswith("frugrad"):
        assert "%s: %.1f %% of dense (" % (label, share) in page, (label, share)
    cells += 1
assert cells == 8, cells
PY

# -- a suite as one table, worked out once more; no times
"$FRUGRAD" report "$recorded" --show summary --markdown >"$work/summary"
"$FRUGRAD" report "$recorded" --show losses --no-times >"$work/losses"
"$FRUGRAD" report "$recorded" --no-times -o "$work/timeless.html" --svg "$work/timeless" >"$work/out" 2>"$work/err"
grep -q ' ms/step ' "$work/table" && ! grep -q ' ms/step ' "$work/out" || fail "--no-times leaves times in the table"
! ls "$work"/timeless/*-time.svg >/dev/null 2>&1 || fail "--no-times draws times"
! grep -q 'as long as a dense' "$work/losses" "$work/timeless.html" || fail "--no-times leaves times in sentences"
python3 - "$recorded" "$work/summary" "$work/losses" "$work/timeless.html" <<'PY'
import html, json, re, statistics, sys
runs = [json.loads(line) for line in open(sys.argv[1])]
summary, losses, page = (open(path, encoding="utf-8").read() for path in sys.argv[2:])
def cell(task, method):
    mine = [r for r in runs if (r["task"], r["method"]) == (task, method)]
    tune = [r for r in mine if r["phase"] == "tune"]
    best = max(tune, key=lambda r: r["result"]["accuracy"])["rate"] if tune else None
    values = [r["result"][r["metric"]] for r in mine if r["phase"] == "test" and r["rate"] == best]
    return (statistics.mean(values), statistics.stdev(values), mine[0]) if values else None
rows = [[word.strip() for word in line.strip("|").split("|")] for line in summary.split("\n") if line.startswith("| ")]
tasks, checked = [word.split(" ")[0] for word in rows[0][4:-1]], 0
for row in rows[1:]:
    for task, word in zip(tasks, row[4:-1]):
        (method,) = {r["method"] for r in runs if r["label"] == row[0]}
        found = cell(task, method)
        assert (found is None) == (word == ""), (row, task)
        if found is None:
            continue
        dense = cell(task, "dense")[0]
        mean, sd, run = found
        share, spread = (mean / dense, sd / dense) if run["metric"] == "accuracy" else (dense / mean, dense * sd / mean ** 2)
        assert word == "%.1f ± %.1f %%" % (100 * share, 100 * spread), (row, task, share, spread)
        checked += 1
assert checked == 8 and [row[-1] for row in rows[1:]] == ["2"] * (len(rows) - 1), (checked, rows)
listed = [html.unescape(text) for text in re.findall(r'<li class="loss">(.*?)</li>', page)]
assert listed and [line[2:] for line in losses.split("\n") if line.startswith("- ")] == listed, (losses, listed)
PY

# -- everything there is to show; nothing is fetched, nothing runs
"$FRUGRAD" report "$work/sample.jsonl" -o "$work/sample.html" --svg "$work/svg" >"$work/sample.table" 2>"$work/err"
grep -q '^20 charts in ' "$work/err" || fail "not 20 charts: $(cat "$work/err")"
grep -Eq '^FruGrad 94 % .* 2\.25× at 1 Gbit/s +3$' "$work/sample.table" || fail "no speed-up in the table"
grep -Eq '^signSGD .* failed .* 0 of 1$' "$work/sample.table" || fail "a failed run is not called diverged"
for page in "$work/page.html" "$work/sample.html"; do
    # a label of the sample has src= in it; it must be text
    sed -E 's/>[^<>]*src=[^<>]*</></g; s/&lt;img sr[^<]*//g' "$page" >"$work/plain"
    ! grep -Eoi '(https?:)?//[a-z0-9]|url\(|src=|<script|<link|@import|<iframe' "$work/plain" || fail "$page may fetch something"
done
python3 - "$work" <<'PY'
import glob, html.parser, os, re, sys, xml.dom.minidom
work = sys.argv[1]
class Page(html.parser.HTMLParser):
    void, open, charts, tags = {"meta", "br", "input"}, [], 0, set()
    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.charts += ("class", "chart") in attributes
        assert not any(name.startswith("on") for name, _ in attributes), attributes
        if tag not in self.void:
            self.open.append(tag)
    def handle_startendtag(self, tag, attributes):
        self.tags.add(tag)
    def handle_endtag(self, tag):
        assert self.open.pop() == tag, tag
page = Page()
page.feed(open(os.path.join(work, "sample.html"), encoding="utf-8").read())
page.close()
assert page.open == [] and page.charts == 20, (page.open, page.charts)
assert not page.tags & {"script", "img", "link", "iframe", "object"}, page.tags
files = sorted(glob.glob(os.path.join(work, "svg", "*.svg")))
assert len(files) == 20, files
for path in files:
    text = open(path, encoding="utf-8").read()
    xml.dom.minidom.parseString(text.encode())
    assert "var(" not in text and "nan" not in re.sub(r"<text.*?</text>", "", text), path
names = {os.path.basename(path).rsplit("cifar10-", 1)[-1] for path in files}
for name in ("quality-bytes", "quality-bytes-curves", "loss-bytes", "loss-time", "time", "memory", "layers-1", "scaling-rate",
             "scaling-bytes", "sparsity"):
    assert name + ".svg" in names, (name, names)
sparsity = open(os.path.join(work, "svg", "sparsity-small-resnet20-cifar10-sparsity.svg"), encoding="utf-8").read()
assert all(word in sparsity for word in (">50 %<", ">90 %<", ">99 %<", ">99.9 %<", ">FruGrad<", ">no feedback<")), sparsity
PY
# -- only what was searched is called searched
head -3 "$recorded" | sed 's/"phase": *"tune"/"phase":"test"/' >"$work/given.jsonl"
"$FRUGRAD" report "$work/given.jsonl" -o "$work/given.html" >"$work/out"
! grep -Eq 'did best in its search|searched ran at the best' "$work/given.html" || fail "rates that were not searched are called the best"
grep -q 'Learning rates were not searched: each method ran at the rate in its row' "$work/given.html" || fail "rates that were given are not reported"
task=$(grep -Em1 '"phase": ?"tune"' "$recorded" | grep -Eo '"task": ?"[^"]*"')
grep -F "$task" "$recorded" >"$work/tuned.jsonl"
"$FRUGRAD" report "$work/tuned.jsonl" -o "$work/tuned.html" >"$work/out"
grep -q 'Each method ran at the learning rate that did best in its search' "$work/tuned.html" || fail "a search is not reported"
grep -q 'Methods whose learning rate was searched ran at the best one' "$work/sample.html" || fail "a search of some is not reported"
grep -q 'searched with 2 runs for every method' "$work/page.html" || fail "the page has no text on how rates were searched"
grep -q 'searched with 0 to 3 runs, not as many' "$work/sample.html" || fail "unequal searches are not reported"
"$FRUGRAD" report "$work/sample.jsonl" --suite scaling >"$work/out"
[ "$(grep -c ': resnet20' "$work/out")" = 1 ] || fail "--suite shows another suite: $(cat "$work/out")"

# -- long names are cut between characters; more tasks than a table has room for go on in another
python3 - >"$work/long.jsonl" <<'PY'
import json
for task in range(23):
    for method in ("dense", "m"):
        print(json.dumps({"format": 1, "kind": "run", "suite": "é" * 150, "size": "|", "task": "x" * (task % 3) + "é€" * 60 + str(task),
                          "metric": "accuracy", "method": method, "label": "ü" * 200, "phase": "test", "seed": 1, "result": {"accuracy": 0.5}}))
PY
for show in tables summary; do
    "$FRUGRAD" report "$work/long.jsonl" --show $show --markdown >"$work/out"
    iconv -f utf-8 -t utf-8 "$work/out" >/dev/null || fail "--show $show cuts characters"
done
[ "$(grep -c '^| method ' "$work/out")" = 3 ] || fail "23 tasks are not three tables"

# -- long labels are cut between characters: all files are UTF-8
python3 - "$recorded" "$work/long.jsonl" <<'PY'
import json, sys
with open(sys.argv[2], "w", encoding="utf-8") as file:
    for line in open(sys.argv[1], encoding="utf-8"):
        run = json.loads(line)
        run["label"] = "x" * len(run["method"]) + "\u00e9\u4e2d" * 90
        file.write(json.dumps(run) + "\n")
PY
"$FRUGRAD" report "$work/long.jsonl" -o "$work/long.html" --svg "$work/long" >"$work/out" 2>"$work/err"
for file in "$work"/long.html "$work"/long/*.svg "$work/out"; do
    iconv -f UTF-8 -t UTF-16 "$file" >/dev/null || fail "$file is not UTF-8"
done

# -- PNG, or a clear word
if command -v rsvg-convert >/dev/null; then
    "$FRUGRAD" report "$recorded" --png "$work/png" >/dev/null 2>&1
    [ "$(head -c 4 "$work"/png/paper-smoke-lenet-builtin-time.png | tail -c 3)" = PNG ] || fail "no PNG was made"
else
    echo "cli_report: no rsvg-convert here: PNG not tried"
fi

# -- one line for what is wrong
wrong() {
    local code=$1 pattern=$2 got=0
    shift 2
    "$FRUGRAD" report "$@" >"$work/out" 2>"$work/err" || got=$?
    [ "$got" = "$code" ] || fail "'$*' exits with $got, not $code"
    [ ! -s "$work/out" ] || fail "'$*' prints on stdout"
    [ "$(grep -vc '^  hint: ' "$work/err")" = 1 ] || fail "'$*': not one line but: $(cat "$work/err")"
    grep -Eq -- "$pattern" "$work/err" || fail "'$*' does not print '$pattern' but: $(cat "$work/err")"
}
mkdir "$work/empty"
: >"$work/nothing.jsonl"
{ cat "$recorded"; echo '{"format":1,"kind":"run","suite":"s\u001b[31m"}'; } >"$work/missing.jsonl"
{ cat "$recorded"; echo 'garbage'; } >"$work/garbage.jsonl"
head -c 300 /dev/zero | tr '\0' '[' >"$work/deep.jsonl"
echo >>"$work/deep.jsonl"
lines=$(wc -l <"$recorded")
wrong 2 'DIR\|FILE' -o x
wrong 2 'summary' --show sumary "$recorded"
wrong 1 "$work/empty/runs.jsonl" "$work/empty"
wrong 1 'no runs in' "$work/nothing.jsonl"
wrong 1 "missing.jsonl: line $((lines + 1)): task is missing" "$work/missing.jsonl"
wrong 1 "garbage.jsonl: line $((lines + 1)): not JSON" "$work/garbage.jsonl"
wrong 1 "deep.jsonl: line 1: not JSON" "$work/deep.jsonl"
wrong 1 "no run of the suite 'zzz'" "$recorded" --suite zzz
code=0
"$FRUGRAD" report "$recorded" -o "$work/no/such.html" >/dev/null 2>"$work/err" || code=$?
[ "$code" = 1 ] && grep -q 'no/such.html: cannot write' "$work/err" || fail "a page in no folder: $(cat "$work/err")"
code=0
PATH=/nowhere "$FRUGRAD" report "$recorded" --png "$work/png" >/dev/null 2>"$work/err" || code=$?
[ "$code" = 1 ] && grep -q 'needs rsvg-convert' "$work/err" || fail "--png without rsvg-convert: $(cat "$work/err")"
{ cat "$recorded"; printf '{"format":1,"kind"'; } >"$work/torn.jsonl"
"$FRUGRAD" report "$work/torn.jsonl" >"$work/out" 2>"$work/err"
cmp "$work/out" "$work/table" && grep -q 'ends in the middle of a line' "$work/err" || fail "a torn end: $(cat "$work/err")"
echo "cli_report: all right"

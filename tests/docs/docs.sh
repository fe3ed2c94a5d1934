#!/usr/bin/env bash
# The pages match the program: docs/methods.md has every preset, every option with its default and
# every value, and names only tests that exist; links and file names in the pages exist.
set -euo pipefail
export FRUGRAD_PROGRESS=off # how long things take must not change what is printed
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
: "${FRUGRAD_SOURCE:=$(cd "$(dirname "$0")/../.." && pwd)}"
: "${FRUGRAD:=$FRUGRAD_SOURCE/build/release/frugrad}"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$FRUGRAD" inspect --json >"$work/machine.json"
"$FRUGRAD" inspect --config frugrad --json >"$work/config.json"

python3 - "$FRUGRAD_SOURCE" "$work" <<'PY'
import glob, json, os, re, subprocess, sys

source, work = sys.argv[1:]
wrong = []


def read(*path):
    with open(os.path.join(source, *path), encoding="utf-8") as file:
        return file.read()


def bits(page, preset):
    """Bits per parameter: the first number of a preset's row."""
    row = re.search(rf"^\| `{re.escape(preset)}` \|.*$", page, re.M)
    number = row and re.search(r"\| (\d+\.\d+) \|", row.group())
    return number and number.group(1)


def long_lines(text):
    """Lines of prose that are not wrapped. The limit is 100 columns; up to 120 pass, so that a longer name in a
    sentence is no failure. Code, tables, images, generated regions and single long words may be longer."""
    fenced = generated = False
    for number, line in enumerate(text.split("\n"), 1):
        fenced ^= line.lstrip().startswith("```")
        generated = (generated or line.startswith("<!-- results")) and not line.startswith("<!-- /")
        breakable = re.sub(r"`[^`]*`", "", re.sub(r"^[ *-]+", "", line)).strip()
        if len(line) > 120 and not (fenced or generated) and not re.match(r" *(\||!\[)|    |```", line) and " " in breakable:
            yield number


methods = read("docs", "methods.md")
# A value in the string of a preset is a use, not an explanation.
spans = set(re.findall(r"`([^`\n,]+)`", methods[: methods.index("## Presets")]))

presets = json.load(open(os.path.join(work, "machine.json")))["presets"]
for name, text in presets.items():
    row = f"| `{name}` | " + (f"`{text}`" if text else "the defaults") + " |"
    if row not in methods:
        wrong.append(f"methods.md has no row '{row}'")
    if bits(methods, name) is None:
        wrong.append(f"methods.md does not have the bits per parameter of {name}")

# threshold:absolute:T is the value threshold:absolute; hybrid[:MOST] is hybrid; numbers have no names.
for option in json.load(open(os.path.join(work, "config.json")))["options"]:
    name, values = option["option"], option["values"]
    words = values.split("|") if "|" in values else []
    words = [w if w == "N:M" else re.sub(r"\[.*|(:[A-Z][A-Z0-9x]*)+(\.\.\.)?$", "", w) for w in words]
    for word in words + [option["default"]]:
        if not any(re.match(re.escape(f"{name}={word}") + r"(?![\w.])", span) for span in spans):
            wrong.append(f"methods.md does not have `{name}={word}`")

cited = set(re.findall(r"`(test_\w+):(\w+)`", methods))
if len(cited) < 50:
    wrong.append(f"methods.md names only {len(cited)} tests")
for program, test in sorted(cited):
    paths = glob.glob(os.path.join(source, "tests", "*", program + ".c"))
    if len(paths) != 1 or f"cmocka_unit_test({test})" not in read(paths[0]):
        wrong.append(f"methods.md names {program}:{test}, which does not exist")

for page in ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"] + [f"docs/{n}" for n in sorted(os.listdir(os.path.join(source, "docs"))) if n.endswith(".md")]:
    text = read(page)
    for link in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        if not os.path.exists(os.path.join(source, os.path.dirname(page), link)):
            wrong.append(f"{page}: nothing at {link}")
    wrong += [f"{page}:{number}: wrap prose at 100 columns" for number in long_lines(text)]
folders = [os.path.join(source, top) for top in ("lib", "include", "io", "federated", "trainer", "program", "lab", "tests", "examples")]
files = {name for folder in folders for _, _, names in os.walk(folder) for name in names}
for name in set(re.findall(r"`(?:[\w/]+/)?(\w+\.(?:c|h|cu|cuh))`", read("docs", "architecture.md"))):
    if name not in files:
        wrong.append(f"architecture.md names {name}, which does not exist")

# Public names in the pages are those of the headers; CHANGELOG.md may have names of the past. frug_gossip_* is a prefix.
headers = "".join(read(path) for path in glob.glob(os.path.join(source, "include", "**", "*.h"), recursive=True))
for page in ["README.md"] + [f"docs/{n}" for n in sorted(os.listdir(os.path.join(source, "docs"))) if n.endswith(".md")]:
    for name in sorted(set(re.findall(r"\b(frug_\w+|FRUG_(?:ERR|SIGNAL)_\w+)", read(page)))):
        if not re.search(rf"\b{name}" + ("" if name.endswith("_") else r"\b"), headers):
            wrong.append(f"{page}: {name} is not in include/")

figure = subprocess.run([sys.executable, "-B", os.path.join(source, "tools", "readme_figure.py"), "--check"], stderr=subprocess.PIPE, text=True)
wrong += figure.stderr.splitlines()

for line in wrong:
    print("docs:", line, file=sys.stderr)
sys.exit(1 if wrong else 0)
PY
echo "docs: all right"

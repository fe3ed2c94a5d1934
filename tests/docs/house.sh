#!/usr/bin/env bash
# The house keeps its order: includes follow the table of folders in docs/architecture.md and make no cycle, no two
# source files and no two types have one name, and every layer uses its own prefix (docs/glossary.md).
set -euo pipefail
: "${FRUGRAD_SOURCE:=$(cd "$(dirname "$0")/../.." && pwd)}"

python3 - "$FRUGRAD_SOURCE" <<'PY'
import os, re, sys

source = sys.argv[1]
LAYERS = ("include", "lib", "io", "federated", "trainer", "program", "lab")
ENDINGS = (".c", ".h", ".cu", ".cuh", ".cpp", ".inc")
wrong = []
text = {}
for top in LAYERS + ("tests", "fuzz"):
    for folder, _, names in os.walk(os.path.join(source, top)):
        for name in names:
            if name.endswith(ENDINGS):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    text[os.path.relpath(path, source)] = file.read()


def room(path):
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[0] in ("lib", "trainer", "lab", "program") and len(parts) > 2 else parts[0]


# -- one name, one file; one name, one type
stems = {}
for path in text:
    stems.setdefault(os.path.splitext(os.path.basename(path))[0], set()).add(os.path.dirname(path))
for stem, folders in sorted(stems.items()):
    if len(folders) > 1:
        wrong.append(f"two source files are called {stem}: in {' and '.join(sorted(folders))}")

types = {}
for path, body in text.items():
    if path.startswith(LAYERS):
        for match in re.finditer(r"^typedef (?:struct|enum|union)[^;{]*\{[^}]*(?:\{[^}]*\}[^}]*)*\}\s*(\w+);"
                                 r"|^(?:struct|enum|union) (\w+) \{", body, re.M):
            name = match.group(1) or match.group(2)
            if re.match(r"frugi?_|fg(io|f|t|p|l)_", name):
                types.setdefault(name, set()).add(path)
for name, paths in sorted(types.items()):
    if len(paths) > 1:
        wrong.append(f"the type {name} is defined in {' and '.join(sorted(paths))}")

# -- every layer its prefix: functions that are not static, and types of headers
PREFIX = {"include": r"frug_", "lib": r"frugi?_", "io": r"fgio_", "federated": r"fgf_|frug_federated_",
          "trainer": r"fgt_", "program": r"fgp_", "lab": r"fgl_"}
for path, body in text.items():
    top = path.split("/")[0]
    if top in PREFIX and path.endswith((".c", ".h")) and not path.endswith(("main.c", "main_mpi.c")):
        for match in re.finditer(r"^(?!static|typedef|extern|return|else)(?:const )?[a-z_]\w*[ *]+\**(\w+)\([^;{}]*\)\s*\{", body, re.M):
            if not re.match(PREFIX[top], match.group(1)):
                wrong.append(f"{path}: {match.group(1)}() has not the prefix of {top}/")

# -- what may include what: the table of docs/architecture.md
with open(os.path.join(source, "docs", "architecture.md"), encoding="utf-8") as file:
    page = file.read()
rows = re.findall(r"^\| `([\w/]+)/` \| .* \| ([^|]*) \|$", page[page.index("| folder |"):page.index("## Where to look")], re.M)
rooms = sorted({room(path) for path in text if path.startswith(LAYERS)})
allowed = {}
above = []
for name, cell in rows:
    if not any(r == name or r.startswith(name + "/") for r in rooms):
        continue  # no C in it
    may = {"include", name}
    for word in re.split(r",\s*", cell.replace("`", "").strip()):
        if word in ("—", "nothing", ""):
            continue
        if word == "all above":
            may |= {r for r in above if r.startswith("lib/")}
        elif word == "all of trainer":
            may |= {r for r in rooms if r.startswith("trainer/")}
        elif name.startswith("lib/") and "lib/" + word in rooms:
            may.add("lib/" + word)
        else:
            found = {r for r in rooms if r == word or r.startswith(word.rstrip("/") + "/")}
            if not found:
                wrong.append(f"architecture.md: '{word}' in the row of {name}/ is no folder")
            may |= found
    allowed[name] = may
    above.append(name)
if len(allowed) < 20:
    wrong.append(f"architecture.md: only {len(allowed)} rows of folders were read")


def row_of(where):
    while where and where not in allowed:
        where = where.rpartition("/")[0]
    return where


EXCEPTIONS = {("program/bench/bench_recover.c", "lib/recover")}
edges = {}
for path, body in text.items():
    if not path.startswith(LAYERS):
        continue
    here = room(path)
    if not row_of(here):
        wrong.append(f"architecture.md has no row for {here}/")
        continue
    for name in re.findall(r'^\s*#\s*include [<"]([\w/.]+)[>"]', body, re.M):
        for candidate in (name, "lib/" + name, "include/" + name, os.path.join(os.path.dirname(path), name)):
            if candidate in text and candidate.startswith(LAYERS):
                there = room(candidate)
                if there != here:
                    edges.setdefault(here, {})[there] = path
                may = allowed[row_of(here)]
                if there not in may and row_of(there) not in may and (path, there) not in EXCEPTIONS:
                    wrong.append(f"{path} includes {candidate}, which architecture.md does not allow {here}/")
                break


def cycle(start, where, seen):
    for there in edges.get(where, {}):
        if there == start:
            return [where, there]
        if there not in seen:
            seen.add(there)
            rest = cycle(start, there, seen)
            if rest:
                return [where] + rest
    return None


for here in sorted(edges):
    found = cycle(here, here, {here})
    if found:
        wrong.append("includes make a cycle: " + " -> ".join(found))

for line in wrong:
    print("house:", line, file=sys.stderr)
sys.exit(1 if wrong else 0)
PY
echo "house: in order"

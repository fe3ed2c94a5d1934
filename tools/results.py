#!/usr/bin/env python3
"""Keep the pages in step with recorded runs.

  results.py slim RUNS.jsonl... -o results/compare/paper-aarch64.jsonl --commit abc1234   records fit to be committed
  results.py fill                       put tables and charts of results/compare/*.jsonl into README.md and docs/results.md
  results.py fill --check               write nothing; fail where a page is not what the records say

What stands between these marks is replaced; all else in a page is kept:

  <!-- results: paper -->                  one table: methods and tasks (`frugrad report --show summary`)
  <!-- results: paper tables -->           a table for each task
  <!-- results: paper losses -->           sentences in which FruGrad comes off worse
  <!-- results: paper charts KIND... -->   charts of these kinds, as files in docs/results/
  <!-- results: paper@full -->             the same of results/full/*.jsonl: what was trained on a GPU; likewise @evidence
  <!-- results: files -->                  the files, their runs and machines
  <!-- /results -->

Tables and charts are made by `frugrad report --no-times`: runs are recorded on busy machines, whose times say nothing.
"""

import argparse
import glob
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from typing import Any, Dict, Iterable, List, Tuple

PAGES = ("README.md", os.path.join("docs", "results.md"))
CHARTS = os.path.join("docs", "results")
MARKS = re.compile(r"(<!-- results: ([^>]*?) -->\n).*?(<!-- /results -->)", re.S)
KEY = ("suite", "size", "task", "method", "phase", "seed", "rate")
# What `frugrad compare --data DIR` looks for in DIR.
FOLDERS = "fashion-mnist|cifar10|wikitext-2|linux-text|glue|minilm|tokenizers"
PATH = re.compile(r"""(?<![^\s"'=:(])(?:~|\.{1,2})?/[^\s"'):,]+""")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")

Record = Dict[str, Any]


def fail(words: str) -> None:
    sys.exit(f"results: {words}")


def read_records(path: str) -> List[Record]:
    """The records of a file; the last line may be incomplete."""
    records = []
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        fail(f"cannot read {path}: {error}")
    for place, line in enumerate(lines, 1):
        try:
            if line.strip():
                records.append(json.loads(line))
                records[-1]["suite"]
        except (ValueError, KeyError, TypeError):
            if place < len(lines):
                fail(f"{path}:{place}: not a record")
    return records


def key_of(record: Record) -> Tuple[Any, ...]:
    """Runs with equal keys are the same run."""
    workers = (record.get("result") or {}).get("workers")
    return tuple(record.get(name) for name in KEY) + (workers,)


# ---- records to commit -------------------------------------------------------------------------------------


def plain_path(path: str) -> str:
    """A path without local folders: data/ and what `frugrad compare` looks for, or a bare name."""
    known = re.search(rf"(?:^|/)((?:{FOLDERS})(?:/.*)?)$", path)
    return "data/" + (known.group(1) if known else os.path.basename(path.rstrip("/")))


def plain(value: Any) -> Any:
    """The same with plain_path() of every path in it."""
    if isinstance(value, str):
        return PATH.sub(lambda found: plain_path(found.group()), value)
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return value


def short(number: Any) -> Any:
    """Six digits are enough for a curve."""
    return float(f"{number:.6g}") if isinstance(number, float) and math.isfinite(number) else number


def thin(curve: Record, points: int) -> Record:
    """A curve with this number of points: losses are means over the steps since the last point, the rest is the state there."""
    steps = curve["step"]
    ends = sorted({max(1, round((i + 1) * len(steps) / points)) for i in range(points)})
    thinned = {name: [short(values[end - 1]) for end in ends] for name, values in curve.items()}
    if "loss" in curve and len(ends) < len(steps):
        widths = [step - before for before, step in zip([0] + steps[:-1], steps)]
        for i, (begin, end) in enumerate(zip([0] + ends[:-1], ends)):
            part = [(width, loss) for width, loss in zip(widths[begin:end], curve["loss"][begin:end]) if loss is not None]
            weight = sum(width for width, _ in part)
            thinned["loss"][i] = short(sum(width * loss for width, loss in part) / weight) if weight else None
    return thinned


def slim_record(record: Record, args: argparse.Namespace, layers: set) -> Record:
    """One record, in few bytes; `layers`: the cells whose densities are kept already."""
    record = plain(record)
    result = record.get("result") or {}
    if "/work/" in str(result.get("data")):  # what compare has unpacked
        result["data"] = plain_path(result["data"])
    machine = record.get("environment") or {}
    if args.commit and not machine.get("commit"):
        machine["commit"] = args.commit
    if args.cpu and machine.get("cpu") in (None, "", "aarch64", "x86_64"):
        machine["cpu"] = args.cpu
    if machine.get("system"):  # a kernel's version to the minor number
        machine["system"] = re.sub(r"(\d+\.\d+)[^\s]*", r"\1", machine["system"])
    for name in ("curve", "evals"):
        if record.get("phase") == "tune":  # nobody looks at those
            record.pop(name, None)
        elif record.get(name) and record[name].get("step"):
            record[name] = thin(record[name], args.points)
    place = tuple(record.get(name) for name in ("suite", "size", "task"))
    if place in layers or not str(record.get("method", "")).startswith(args.layers):
        record.pop("layers", None)
    elif "layers" in record:
        layers.add(place)
    return record


def slim(args: argparse.Namespace) -> None:
    last: Dict[Tuple[Any, ...], Record] = {}
    speeds = []
    for path in args.files:
        for record in read_records(path):
            if record.get("kind") == "run":
                last.pop(key_of(record), None)
                last[key_of(record)] = record
            else:
                speeds.append(record)
    layers: set = set()
    kept = [slim_record(record, args, layers) for record in list(last.values()) + speeds]
    if not kept:
        fail("no records")
    text = "".join(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n" for record in kept)
    os.makedirs(os.path.dirname(os.path.abspath(args.output)), exist_ok=True)
    save(args.output, text)
    before = sum(os.path.getsize(path) for path in args.files)
    print(f"{args.output}: {len(kept)} records, {len(text.encode()) / 1e3:.0f} kB of {before / 1e3:.0f}")


# ---- pages -------------------------------------------------------------------------------------------------


def save(path: str, text: str) -> None:
    with open(path + ".part", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".part", path)


class Book:
    """All records of a folder under results, and their reports by `frugrad report`."""

    def __init__(self, root: str, program: str, folder: str):
        self.root, self.program = root, program
        self.files = sorted(glob.glob(os.path.join(root, "results", folder, "*.jsonl")))
        self.records = {path: read_records(path) for path in self.files}
        self.suites = {record["suite"] for records in self.records.values() for record in records}
        self.charts: Dict[str, str] = {}
        self.used: set = set()
        self.reject_duplicates()

    def reject_duplicates(self) -> None:
        """Reject a run that is in two files: only one of them would count."""
        seen: Dict[Tuple[Any, ...], str] = {}
        for path, records in self.records.items():
            for key in {key_of(record) for record in records if record.get("kind") == "run"}:
                if key in seen:
                    fail(f"{path} and {seen[key]} have the same run: {' '.join(map(str, key))}")
                seen[key] = path

    def report(self, *words: str) -> str:
        done = subprocess.run([self.program, "report", *self.files, "--no-times", *words], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, encoding="utf-8")
        if done.returncode != 0:
            fail(done.stderr.strip())
        return done.stdout

    def tables(self, suite: str, show: str) -> str:
        """As Markdown; titles are bold, and a single one is omitted."""
        text = self.report("--markdown", "--suite", suite, "--show", show)
        titles = re.findall(r"^### .*$", text, re.M)
        if len(titles) == 1 and show == "summary":
            return text.replace(titles[0] + "\n\n", "", 1)
        return re.sub(r"^### (.*)$", r"**\1**", text, flags=re.M)

    def draw(self, suite: str, kinds: List[str], page: str) -> str:
        if not self.charts:
            with tempfile.TemporaryDirectory() as folder:
                self.report("--svg", folder)
                for path in glob.glob(os.path.join(folder, "*.svg")):
                    with open(path, encoding="utf-8") as file:
                        self.charts[os.path.basename(path)] = file.read()
        lines = []
        for kind in kinds:
            for name in sorted(self.charts):
                if name.startswith(suite + "-") and name.endswith(f"-{kind}.svg"):
                    self.used.add(name)
                    words = name[:-len(f"-{kind}.svg")].replace("-", " ") + ": " + kind.replace("-", " ")
                    path = os.path.relpath(os.path.join(CHARTS, name), os.path.dirname(page) or ".")
                    lines.append(f"![{words}]({path})\n")
        return "\n".join(lines)

    def list_files(self) -> str:
        """Rows of a table."""
        rows = ""
        for path, records in self.records.items():
            runs = [record for record in records if record.get("kind") == "run"]
            machines = [record.get("environment") or {} for record in records]
            devices = listed((run.get("result") or {}).get("device") for run in runs)
            machine = listed(f"{m.get('cores', '?')} cores, {m.get('cpu') or '?'}, {m.get('system') or '?'}" for m in machines)
            cells = [f"`{os.path.relpath(path, self.root)}`", str(len(runs)), str(sum("error" in run for run in runs)),
                     f"{devices}; {machine}" if devices else machine,
                     listed(m.get("version") for m in machines), listed(m.get("commit") for m in machines)]
            rows += "| " + " | ".join(cells) + " |\n"
        return rows

    def region(self, words: List[str], page: str) -> str:
        """The text between the markers."""
        what = words[1] if len(words) > 1 else "summary"
        if not words or what not in ("summary", "tables", "losses", "charts") or (len(words) > 2) != (what == "charts"):
            fail(f"{page}: a mark that nobody knows: {' '.join(words)}")
        if words[0] not in self.suites:
            return "" if what == "charts" else f"No runs of the suite `{words[0]}` are recorded yet.\n"
        if what == "charts":
            return self.draw(words[0], words[2:], page)
        return self.tables(words[0], what) or "None.\n"


def listed(words: Any) -> str:
    """The distinct ones, in order."""
    return "; ".join(dict.fromkeys(str(word) for word in words if word)).replace("|", "\\|")


def same_chart(a: str, b: str) -> bool:
    """Coordinates may differ in the last digit, as logarithms of two C libraries do."""
    numbers = zip(NUMBER.findall(a), NUMBER.findall(b))
    return NUMBER.sub("#", a) == NUMBER.sub("#", b) and all(abs(float(x) - float(y)) < 0.15 for x, y in numbers)


def region(books: Dict[str, Book], words: List[str], page: str) -> str:
    """The text between markers, from the folder that they name."""
    if words == ["files"]:
        rows = "".join(book.list_files() for book in books.values())
        head = "| file | runs | failed | machine | version | commit |\n|---|---:|---:|---|---|---|\n"
        return head + rows if rows else "No runs are recorded yet.\n"
    suite, _, folder = (words or [""])[0].partition("@")
    if (folder or "compare") not in books:
        fail(f"{page}: a mark that nobody knows: {' '.join(words)}")
    return books[folder or "compare"].region([suite] + words[1:], page)


def fill(args: argparse.Namespace) -> None:
    program = args.program or os.environ.get("FRUGRAD") or os.path.join(args.root, "build", "release", "frugrad")
    books = {folder: Book(args.root, program, folder) for folder in ("compare", "full", "evidence")}
    wrong = []
    for page in PAGES:
        path = os.path.join(args.root, page)
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if text.count("<!-- results: ") != len(MARKS.findall(text)):
            fail(f"{page}: a mark <!-- results: ... --> without its <!-- /results -->")
        made = MARKS.sub(lambda mark: mark[1] + region(books, mark[2].split(), page) + mark[3], text)
        if made != text and args.check:
            wrong.append(page)
        elif made != text:
            save(path, made)
    wrong += put_charts(books.values(), os.path.join(args.root, CHARTS), args.check)
    if wrong:
        fail(f"not what results/ says: {', '.join(wrong)} (make results)")


def put_charts(books: Iterable[Book], folder: str, check: bool) -> List[str]:
    """Write the charts that pages show and remove unused ones; or return those that are out of date."""
    charts = {name: book.charts[name] for book in books for name in book.used}
    there = {os.path.basename(path) for path in glob.glob(os.path.join(folder, "*.svg"))}
    wrong = []
    for name in sorted(there | set(charts)):
        path, old = os.path.join(folder, name), None
        if name in there:
            with open(path, encoding="utf-8") as file:
                old = file.read()
        if name in charts and old is not None and same_chart(old, charts[name]):
            continue
        if check:
            wrong.append(os.path.join(CHARTS, name))
        elif name in charts:
            os.makedirs(folder, exist_ok=True)
            save(path, charts[name])
        else:
            os.remove(path)
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("slim", help="make records of `frugrad compare` small and free of local paths")
    one.add_argument("files", nargs="+", help="runs.jsonl of one or several comparisons")
    one.add_argument("-o", "--output", required=True)
    one.add_argument("--points", type=int, default=20, help="of a curve [20]")
    one.add_argument("--layers", default="frugrad", metavar="METHOD",
                     help="keep densities of layers of one run of this method for each task [frugrad]")
    one.add_argument("--commit", help="of the program, where records do not say")
    one.add_argument("--cpu", help="its name, where records only have the architecture")
    one.set_defaults(run=slim)
    two = commands.add_parser("fill", help="fill README.md and docs/results.md from results/compare")
    two.add_argument("--check", action="store_true", help="write nothing; fail where something would change")
    two.add_argument("--program", help="frugrad [$FRUGRAD, or the one in build/release]")
    two.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))), help=argparse.SUPPRESS)
    two.set_defaults(run=fill)
    args = parser.parse_args()
    if args.command == "slim" and args.points < 2:
        parser.error("--points: at least 2")
    args.run(args)


if __name__ == "__main__":
    main()

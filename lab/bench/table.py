#!/usr/bin/env python3
"""Turn the JSON lines of `frugrad bench --json` into a Markdown table.

  frugrad bench --json > results/bench-aarch64.jsonl
  table.py results/bench-aarch64.jsonl                          print the table
  table.py --write docs/benchmarks.md results/bench-*.jsonl     put the tables between the marks in a page

A page has the marks <!-- results --> and <!-- /results -->; what stands between them is replaced.
"""

import argparse
import json
import os
import sys

BEGIN, END = "<!-- results -->", "<!-- /results -->"
COLUMNS = [
    ("case", lambda r: f"`{r['case']}`"),
    ("K of B", lambda r: f"{r['k']:g} of {r['block']}"),
    ("threads", lambda r: str(r["threads"])),
    ("ms", lambda r: f"{r['ms_median']:.2f}"),
    ("GB/s", lambda r: f"{r['gbps']:.1f}"),
    ("limit GB/s", lambda r: f"{r['limit_gbps']:.1f}"),
    ("ratio", lambda r: f"{r['ratio']:.2f}"),
    ("x 1 thread", lambda r: number(r["speedup"], "{:.2f}")),
    ("energy kept", lambda r: number(r["energy_kept"], "{:.1%}")),
    ("of exact", lambda r: number(r["energy_vs_exact"], "{:.2%}")),
]


def number(value, form):
    return "" if value is None else form.format(value)


def read_rows(path):
    rows = []
    try:
        with open(path, encoding="utf-8") as file:
            for place, line in enumerate(file, 1):
                if line.strip():
                    try:
                        rows.append(json.loads(line))
                    except json.JSONDecodeError:
                        sys.exit(f"table: {path}:{place}: not a JSON object")
    except OSError as error:
        sys.exit(f"table: cannot read {path}: {error.strerror}")
    if not rows:
        sys.exit(f"table: {path} has no results")
    return rows


def table(rows):
    """One table for each set of gradients in the file, in the order they come."""
    parts = []
    for dist in dict.fromkeys(r["dist"] for r in rows):
        own = [r for r in rows if r["dist"] == dist]
        first = own[0]
        name = os.path.basename(dist)
        parts.append(f"**{first['machine']}, variant {first['isa']}, frugrad {first['version']}; "
                     f"{first['n']:,} elements, gradients: {name}, {first['rounds']} rounds**\n")
        parts.append("| " + " | ".join(title for title, _ in COLUMNS) + " |")
        parts.append("|---|" + "---:|" * (len(COLUMNS) - 1))
        for row in own:
            parts.append("| " + " | ".join(cell(row) for _, cell in COLUMNS) + " |")
            if not row["verified"]:
                sys.exit(f"table: case {row['case']} of {name} did not verify")
        parts.append("")
    return "\n".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("files", nargs="+", help="files with JSON lines of frugrad bench")
    parser.add_argument("--write", metavar="PAGE", help="replace what stands between the marks in this page")
    args = parser.parse_args()
    try:
        text = "\n".join(table(read_rows(path)) for path in args.files)
    except (KeyError, TypeError) as error:
        sys.exit(f"table: a line lacks {error}")
    if not args.write:
        print(text, end="")
        return
    with open(args.write, encoding="utf-8") as file:
        page = file.read()
    if BEGIN not in page or END not in page:
        sys.exit(f"table: {args.write} has no marks {BEGIN} and {END}")
    head, rest = page.split(BEGIN, 1)
    tail = rest.split(END, 1)[1]
    with open(args.write + ".part", "w", encoding="utf-8") as file:
        file.write(head + BEGIN + "\n" + text + END + tail)
    os.replace(args.write + ".part", args.write)


if __name__ == "__main__":
    main()

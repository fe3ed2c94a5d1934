#!/usr/bin/env python3
"""Draw docs/quality.svg and fill the table of README.md from recorded runs of models with 10 M parameters or more.

  readme_figure.py            write docs/quality.svg and the lines of README.md between <!-- quality --> and <!-- /quality -->
  readme_figure.py --check    write nothing; fail when one of them differs from the records

Sources: results/full/*.jsonl (`frugrad compare --size full`) and results/train-torch-h200.jsonl (single runs of
`python3 -m frugrad.torch.train`). Quality is accuracy over dense accuracy, or dense perplexity over perplexity. Bytes are
those that one of four workers sends.
"""

import argparse
import glob
import json
import math
import os
import re
import statistics
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FIGURE = os.path.join("docs", "quality.svg")
MARKS = re.compile(r"(<!-- quality -->\n).*?(<!-- /quality -->)", re.S)
MINIMUM_PARAMETERS = 10e6


# ---- records -----------------------------------------------------------------------------------------------


def read_lines(pattern):
    for path in sorted(glob.glob(os.path.join(ROOT, "results", pattern))):
        with open(path, encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)


def option(command, name):
    found = re.search(rf"--{name} (\S+)", command)
    return found.group(1) if found else None


class Runs:
    """Test runs of one model that differ in nothing but their seed."""

    def __init__(self, runs, what):
        runs = list(runs)
        if not runs:
            sys.exit(f"readme_figure: no run of {what} is recorded")
        if runs[0]["params"] < MINIMUM_PARAMETERS:
            sys.exit(f"readme_figure: {what} is too small for the first page: {runs[0]['params']} parameters")
        self.perplexity = runs[0].get("perplexity") is not None
        self.values = [run["perplexity"] if self.perplexity else 100 * run["accuracy"] for run in runs]
        self.mean = statistics.mean(self.values)
        self.params, self.steps = runs[0]["params"], runs[0]["steps"]
        self.bytes = runs[0]["bytes_sent"] / runs[0]["steps"]
        self.dense_bytes = runs[0]["bytes_dense"] / runs[0]["steps"]

    def versus(self, dense):
        return 100 * (dense.mean / self.mean if self.perplexity else self.mean / dense.mean)

    def share(self):
        return 100 * self.bytes / self.dense_bytes

    def text(self):
        unit = "" if self.perplexity else " %"
        spread = f" ± {statistics.stdev(self.values):.1f}" if len(self.values) > 2 else ""
        return f"{self.mean:.1f}{spread}{unit}"


def compared(task, method):
    """Tests of `frugrad compare --size full`."""
    return Runs((r["result"] for r in read_lines("full/*.jsonl") if r["task"] == task and r["method"] == method
                 and r["phase"] == "test" and "error" not in r), f"{task}, {method}")


def single(model, method, rate, warmup):
    """Runs of `python3 -m frugrad.torch.train`."""
    return Runs((r for r in read_lines("train-torch-h200.jsonl")
                 if r["model"].startswith(model) and option(r["command"], "method") == method and r["rate"] == rate
                 and f"warmup={warmup}" in r["command"]), f"{model}, {method}, rate {rate}, warm-up {warmup}")


def collect():
    """Model -> (dense, [(sparsity, runs)])."""
    gpt2 = "gpt2-small"
    return {
        "resnet18": (compared("resnet18-cifar10", "dense"), [("94 %", compared("resnet18-cifar10", "frugrad"))]),
        "resnet50": (single("resnet50", "dense", 0.1, 20), [
            ("94 %", single("resnet50", "hold=auto", 0.1, 20)),
            ("99 %", single("resnet50", "frugrad,schedule=constant:0.99", 0.1, 20)),
            ("99.9 %", single("resnet50", "schedule=constant:0.999", 0.1, 20))]),
        "bert": (compared("bert-sst2", "dense"), [("94 %", compared("bert-sst2", "frugrad"))]),
        "gpt2-30": (compared("gpt2-wikitext2", "dense"), [
            ("94 %", single(gpt2, "frugrad-adam", 0.00024, 30)),
            ("99 %", single(gpt2, "frugrad-adam,schedule=constant:0.99", 0.00024, 30)),
            ("99.9 %", single(gpt2, "schedule=constant:0.999", 0.00024, 30))]),
        "gpt2-150": (single(gpt2, "dense", 0.0006, 150), [("94 %", single(gpt2, "frugrad-adam", 0.0006, 150))]),
    }


# ---- the table ---------------------------------------------------------------------------------------------


def table(models):
    rows = [("ResNet-18, CIFAR-10, accuracy", "resnet18", 0), ("BERT of 4 layers, SST-2, accuracy", "bert", 0),
            ("ResNet-50, CIFAR-10, 2 epochs, accuracy", "resnet50", 1),
            ("GPT-2 small, WikiText-2, perplexity", "gpt2-150", 0), ("the same, warm-up of 30 steps", "gpt2-30", 1)]
    lines = ["| model, data, measure | parameters | sparsity | MB per step: dense, FruGrad | dense | FruGrad | vs dense | seeds: dense, FruGrad |",
             "|---|---:|---:|---:|---:|---:|---:|---:|"]
    for name, key, index in rows:
        dense, (sparsity, runs) = models[key][0], models[key][1][index]
        versus = runs.versus(dense)
        lost = "**" if versus < 99.5 else ""
        lines.append(f"| {name} | {runs.params / 1e6:.{0 if runs.params > 1e8 else 1}f} M | {sparsity} "
                     f"| {runs.dense_bytes / 1e6:.1f}, {runs.bytes / 1e6:.1f} | {dense.text()} | {runs.text()} "
                     f"| {lost}{versus:.1f} %{lost} | {len(dense.values)}, {len(runs.values)} |")
    return "\n".join(lines) + "\n"


# ---- the figure --------------------------------------------------------------------------------------------

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 62, 24, 44, 52
X_RANGE, Y_RANGE = (0.25, 130.0), (10.0, 125.0)
STYLE = """
  .panel { fill: #ffffff; stroke: #d0d7de }
  text { font: 13px system-ui, sans-serif; fill: #24292f }
  .title { font-size: 15px; font-weight: 600 }
  .small { font-size: 12px; fill: #57606a }
  .grid { stroke: #d0d7de; stroke-width: 1 }
  .level { stroke: #57606a; stroke-width: 1.2; stroke-dasharray: 5 4 }
  .dense { fill: #24292f }
  @media (prefers-color-scheme: dark) {
    .panel { fill: #0d1117; stroke: #30363d }
    text { fill: #e6edf3 }
    .small { fill: #9198a1 }
    .grid { stroke: #30363d }
    .level { stroke: #9198a1 }
    .dense { fill: #e6edf3 }
  }
"""
# Key, color, radius of a ring (0: filled), label and where it is (x in percent of bytes, y in percent of quality).
SERIES = [("resnet50", "#0f9d74", 0, "ResNet-50, 23.5 M, 2 epochs, rate not searched", 0.62, 117.5),
          ("resnet18", "#2f81c7", 0, "ResNet-18, 11.2 M", 12.5, 105.5),
          ("bert", "#a959a0", 9, "BERT, 28.5 M", 12.5, 95),
          ("gpt2-150", "#d95b24", 6, "GPT-2 small, 124 M, warm-up 150", 12.5, 85),
          ("gpt2-30", "#d95b24", 0, "GPT-2 small, 124 M, warm-up 30", 2.4, 63)]


def x_of(share):
    low, high = (math.log(v) for v in X_RANGE)
    return LEFT + (math.log(share) - low) / (high - low) * (WIDTH - LEFT - RIGHT)


def y_of(quality):
    return HEIGHT - BOTTOM - (quality - Y_RANGE[0]) / (Y_RANGE[1] - Y_RANGE[0]) * (HEIGHT - TOP - BOTTOM)


def text(x, y, words, anchor="middle", kind="", color=""):
    attribute = f' class="{kind}"' if kind else f' style="fill:{color}"' if color else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{attribute}>{words}</text>'


def axes():
    parts = [text(LEFT, 27, "Quality against bytes sent, relative to dense training; four workers", "start", "title")]
    for share in (0.3, 1, 3, 10, 30, 100):
        x = x_of(share)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(text(x, HEIGHT - BOTTOM + 18, f"{share:g} %", kind="small"))
    for quality in range(20, 121, 20):
        y = y_of(quality)
        parts.append(f'<line class="{"level" if quality == 100 else "grid"}" x1="{LEFT}" x2="{WIDTH - RIGHT}" '
                     f'y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(text(LEFT - 8, y + 4, f"{quality} %", "end", "small"))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "bytes that a worker sends, percent of dense (log scale)", kind="small"))
    parts.append(f'<text class="small" text-anchor="middle" transform="translate(16 {(TOP + HEIGHT - BOTTOM) / 2:.0f}) '
                 f'rotate(-90)">quality, percent of dense</text>')
    return parts


def draw(models):
    parts = axes()
    for key, color, ring, label, x, y in SERIES:
        dense, points = models[key]
        spots = [(x_of(runs.share()), y_of(runs.versus(dense)), sparsity) for sparsity, runs in points]
        line = " ".join(f"{a:.1f},{b:.1f}" for a, b, _ in spots)
        if len(spots) > 1:
            parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        for a, b, sparsity in spots:
            paint = f'fill="none" stroke="{color}" stroke-width="2"' if ring else f'fill="{color}"'
            parts.append(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="{ring or 5}" {paint}/>')
            if key == "gpt2-30":
                parts.append(text(a, b + 21, sparsity, kind="small"))
        parts.append(text(x_of(x), y_of(y) + 4, label, "start", color=color))
    parts.append(f'<circle class="dense" cx="{x_of(100):.1f}" cy="{y_of(100):.1f}" r="6"/>')
    parts.append(text(x_of(100), y_of(100) - 12, "dense"))
    body = "\n".join(parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">\n'
            f"<title>Quality against bytes sent</title>\n<style>{STYLE}</style>\n"
            f'<rect class="panel" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="6"/>\n{body}\n</svg>\n')


# ---- main --------------------------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where something would change")
    args = parser.parse_args()
    models = collect()
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        readme = file.read()
    if not MARKS.search(readme):
        sys.exit("readme_figure: README.md has no <!-- quality --> ... <!-- /quality -->")
    made = {"README.md": MARKS.sub(lambda mark: mark[1] + table(models) + mark[2], readme), FIGURE: draw(models)}
    for name, content in made.items():
        path = os.path.join(ROOT, name)
        old = open(path, encoding="utf-8").read() if os.path.exists(path) else None
        if old == content:
            continue
        if args.check:
            sys.exit(f"readme_figure: {name} is not what results/ has: run tools/readme_figure.py")
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)


if __name__ == "__main__":
    main()

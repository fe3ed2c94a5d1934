#!/usr/bin/env python3
"""Draw docs/quality.svg and fill the tables of README.md from recorded runs of models with 10 M parameters or more.

  readme_figure.py            write docs/quality.svg and the lines of README.md between <!-- quality: TABLE --> and <!-- /quality -->
  readme_figure.py --check    write nothing; fail when one of them differs from the records

Sources: results/evidence/*.jsonl (suite evidence of `frugrad compare`)
and results/evidence-times-h200.jsonl (steps of one worker, alone on a GPU). Quality is accuracy or correlation over that
of dense, or dense perplexity over perplexity, means over the seeds that both have. Bytes are those that one of four
workers sends. The time of a step over a link is computed: the measured step of a worker, and then its measured bytes, one
after the other.
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
MARKS = re.compile(r"(<!-- quality: (\w+) -->\n).*?(<!-- /quality -->)", re.S)
MINIMUM_PARAMETERS = 10e6
LINKS = (("100 Mbit/s", 1e8), ("1 Gbit/s", 1e9), ("10 Gbit/s", 1e10))


# ---- records -----------------------------------------------------------------------------------------------


def read_lines(pattern):
    for path in sorted(glob.glob(os.path.join(ROOT, "results", pattern))):
        with open(path, encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)


class Runs:
    """Test runs of a method on a task."""

    def __init__(self, records):
        first = records[0]["result"]
        if first["params"] < MINIMUM_PARAMETERS:
            sys.exit(f"readme_figure: {records[0]['task']} is too small for the first page: {first['params']} parameters")
        self.label, self.metric = records[0]["label"], records[0]["metric"]
        self.of_seed = {record["seed"]: record["result"][self.metric] * (1 if self.perplexity else 100) for record in records}
        self.values = list(self.of_seed.values())
        self.mean = statistics.mean(self.values)
        self.params = first["params"]
        self.bytes, self.dense_bytes = (first[name] / first["steps"] for name in ("bytes_sent", "bytes_dense"))

    @property
    def perplexity(self):
        return self.metric == "perplexity"

    def versus(self, dense):
        """Quality relative to dense in percent, over the seeds that both have."""
        seeds = self.of_seed.keys() & dense.of_seed.keys()
        if not seeds:
            sys.exit(f"readme_figure: {self.label} has no seed that dense has, too")
        own, other = (statistics.mean(runs.of_seed[seed] for seed in seeds) for runs in (self, dense))
        return 100 * (other / own if self.perplexity else own / other)

    def share(self):
        return 100 * self.bytes / self.dense_bytes

    def text(self):
        unit = "" if self.metric != "accuracy" else " %"
        spread = f" ± {statistics.stdev(self.values):.2f}" if len(self.values) > 2 else ""
        return f"{self.mean:.2f}{spread}{unit}"


def best_rate(records):
    """The rate of the best mean of the search; without one that of the last test, as in `frugrad report`."""
    searched = {}
    for record in records:
        if record["phase"] == "tune":
            searched.setdefault(record["rate"], []).append(record["result"][record["metric"]])
    sign = -1 if records[0]["metric"] == "perplexity" else 1
    if searched:
        return max(searched, key=lambda rate: sign * statistics.mean(searched[rate]))
    return [record["rate"] for record in records if record["phase"] == "test"][-1]


def tests_of(records):
    """The tests at the best rate, one for each seed: the last counts."""
    rate = best_rate(records)
    return list({record["seed"]: record for record in records
                 if record["phase"] == "test" and record["rate"] == rate}.values())


def collect(pattern):
    """Task -> method -> runs, in the order of the records; runs that failed are left out."""
    found = {}
    for record in read_lines(pattern):
        if "error" not in record:
            found.setdefault(record["task"], {}).setdefault(record["method"], []).append(record)
    tests = {task: {method: tests_of(records) for method, records in methods.items()
                    if any(record["phase"] == "test" for record in records)} for task, methods in found.items()}
    return {task: {method: Runs(records) for method, records in methods.items() if records}
            for task, methods in tests.items()}


def step_times():
    """Method -> milliseconds of a step of one worker, without an exchange."""
    return {record["name"]: record["step_ms"] for record in read_lines("evidence-times-h200.jsonl")}


# ---- the tables --------------------------------------------------------------------------------------------

LANGUAGE = "gpt2-linux"
NAMES = {"dense": "dense AdamW", "muon": "dense Muon", "frugrad": "**FruGrad 94 %, Adam**",
         "frugrad-99": "**FruGrad 99 %, Adam**", "frugrad-999": "**FruGrad 99.9 %, Adam**",
         "frugrad-muon": "**FruGrad 94 %, Muon**", "frugrad-muon-99": "**FruGrad 99 %, Muon**",
         "frugrad-muon-999": "**FruGrad 99.9 %, Muon**"}


def marked(versus):
    """Bold where we lose."""
    return f"**{versus:.1f} %**" if versus < 99.95 else f"{versus:.1f} %"


def seconds(value):
    return f"{value:.0f} s" if value >= 9.5 else f"{value:.1f} s" if value >= 0.95 else f"{1e3 * value:.0f} ms"


def language_table(name, methods, wanted, times):
    dense = methods["dense"]
    lines = [f"| {name} | MB per step | perplexity | vs dense AdamW"
             f" | step over {', '.join(name for name, _ in LINKS)} | seeds |",
             "|---|---:|---:|---:|---:|---:|"]
    for method in sorted(wanted, key=lambda name: methods[name].mean):
        runs, wire = methods[method], ""
        if method in times:
            wire = ", ".join(seconds(times[method] / 1e3 + 8 * runs.bytes / speed) for _, speed in LINKS)
        lines.append(f"| {NAMES.get(method, runs.label)} | {runs.bytes / 1e6:.1f} | {runs.text()} | {runs.versus(dense):.1f} % "
                     f"| {wire} | {len(runs.values)} |")
    return "\n".join(lines) + "\n"


OTHERS = [("resnet18-cifar10", "ResNet-18, CIFAR-10, 64 epochs, accuracy", ("frugrad", "frugrad-99", "frugrad-999")),
          ("resnet50-cifar10", "ResNet-50, CIFAR-10, 80 epochs, accuracy", ("frugrad", "frugrad-99", "frugrad-999")),
          ("minilm-sst2", "MiniLM fine-tuned, SST-2, accuracy", ("frugrad", "frugrad-99")),
          ("minilm-mrpc", "MiniLM fine-tuned, MRPC, accuracy", ("frugrad", "frugrad-99")),
          ("minilm-cola", "MiniLM fine-tuned, CoLA, Matthews", ("frugrad", "frugrad-99"))]
SPARSITY = {"frugrad": "94 %", "frugrad-99": "99 %", "frugrad-999": "99.9 %"}


def other_rows(tasks, wanted):
    for task, name, methods in wanted:
        for method in methods:
            if task not in tasks or method not in tasks[task]:
                continue
            dense, runs = tasks[task]["dense"], tasks[task][method]
            yield (f"| {name} | {runs.params / 1e6:.1f} M | {SPARSITY[method]} | {runs.dense_bytes / 1e6:.1f}, "
                   f"{runs.bytes / 1e6:.1f} | {dense.text()} | {runs.text()} | {marked(runs.versus(dense))} "
                   f"| {len(dense.values)}, {len(runs.values)} |")


def tables(evidence, times):
    """Name -> table."""
    head = ["| other models, data, measure | parameters | sparsity | MB per step: dense, FruGrad | dense | FruGrad | vs dense"
            " | seeds: dense, FruGrad |", "|---|---:|---:|---:|---:|---:|---:|---:|"]
    language = evidence[LANGUAGE]
    rivals = [method for method in language if method == "dense" or method not in NAMES]
    return {"language": language_table(f"GPT-2 small, {language['dense'].params / 1e6:.0f} M parameters, one pass", language,
                                       [method for method in language if method in NAMES], times),
            "rivals": language_table("other methods, the same model", language, rivals, times),
            "others": "\n".join(head + list(other_rows(evidence, OTHERS))) + "\n"}


# ---- the figure --------------------------------------------------------------------------------------------

WIDTH, HEIGHT = 760, 460
LEFT, RIGHT, TOP, BOTTOM = 74, 24, 50, 52
CHARACTER = 7.5  # of a label, in a wide font
STYLE = """
  .panel { fill: #ffffff; stroke: #d0d7de }
  text { font: 13px system-ui, sans-serif; fill: #24292f }
  .label { paint-order: stroke; stroke: #ffffff; stroke-width: 4px; stroke-linejoin: round }
  .title { font-size: 15px; font-weight: 600 }
  .small { font-size: 12px; fill: #57606a }
  .grid { stroke: #d0d7de; stroke-width: 1 }
  .level { stroke: #57606a; stroke-width: 1.2; stroke-dasharray: 5 4 }
  @media (prefers-color-scheme: dark) {
    .panel { fill: #0d1117; stroke: #30363d }
    text { fill: #e6edf3 }
    .label { stroke: #0d1117 }
    .small { fill: #9198a1 }
    .grid { stroke: #30363d }
    .level { stroke: #9198a1 }
  }
"""
OURS, MUON, RIVAL = "#d95b24", "#2f81c7", "#8a8f98"


class Plane:
    """Percent of dense's bytes, on a log scale, and percent of dense's quality."""

    def __init__(self, points):
        shares, qualities = ([point[i] for point in points] for i in (0, 1))
        self.x_range = 0.7 * min(shares), 1.6 * max(shares)
        self.y_range = 10 * math.floor(min(qualities) / 10 - 0.3), 10 * math.ceil(max(qualities) / 10 + 0.5)

    def x(self, share):
        low, high = (math.log(v) for v in self.x_range)
        return LEFT + (math.log(share) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def y(self, quality):
        low, high = self.y_range
        return HEIGHT - BOTTOM - (quality - low) / (high - low) * (HEIGHT - TOP - BOTTOM)


def text(x, y, words, anchor="middle", kind="", color=""):
    paint = f' style="fill:{color}"' if color else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}"{paint}>{words}</text>'


def axes(plane, dense):
    parts = [text(LEFT, 22, f"GPT-2 small, {dense.params / 1e6:.0f} M, four workers: quality against bytes sent", "start", "title"),
             text(LEFT, 38, "relative to dense AdamW, which has the same data, clipping and warm-up", "start", "small")]
    for share in (0.1, 0.3, 1, 3, 10, 30, 100, 300):
        if plane.x_range[0] <= share <= plane.x_range[1]:
            x = plane.x(share)
            parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
            parts.append(text(x, HEIGHT - BOTTOM + 18, f"{share:g} %", kind="small"))
    step = 20 if plane.y_range[1] - plane.y_range[0] > 100 else 10
    for quality in range(int(math.ceil(plane.y_range[0] / step)) * step, int(plane.y_range[1]) + 1, step):
        y = plane.y(quality)
        parts.append(f'<line class="{"level" if quality == 100 else "grid"}" x1="{LEFT}" x2="{WIDTH - RIGHT}" '
                     f'y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(text(LEFT - 8, y + 4, f"{quality} %", "end", "small"))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, "bytes that a worker sends, percent of dense (log scale)", kind="small"))
    parts.append(f'<text class="small" text-anchor="middle" transform="translate(18 {(TOP + HEIGHT - BOTTOM) / 2:.0f}) '
                 f'rotate(-90)">quality, percent of dense AdamW</text>')
    return parts


def place(spots, level):
    """Labels beside their points, as near as they cover no point, no other label and not the line at ``level``."""
    placed = [(x - 5, x + 5, y + 4) for x, y, _, _ in spots] + [(LEFT, WIDTH - RIGHT, level + 4)]

    def free(begin, end, line):
        return LEFT <= begin and end <= WIDTH - RIGHT and not any(
            abs(line - other) < 14 and begin < stop and start < end for start, stop, other in placed)

    for x, y, words, color in sorted(spots, key=lambda spot: abs(spot[1] - level)):  # the narrowest places first
        width = CHARACTER * len(words)
        sides = [("start", x + 9, x + 9, x + 9 + width), ("end", x - 9, x - 9 - width, x - 9)]
        if x + 1.5 * width > WIDTH - RIGHT:  # room on the right is for points farther right
            sides.reverse()
        lines = (y + 4 + sign * shift for shift in range(0, HEIGHT, 2) for sign in (1, -1))
        anchor, at, begin, end, line = next((*side, line) for line in lines for side in sides if free(*side[2:], line))
        placed.append((begin, end, line))
        yield text(at, line, words, anchor, "label", color)


def draw(methods):
    dense = methods["dense"]
    plane = Plane([(runs.share(), runs.versus(dense)) for runs in methods.values()])
    parts, spots = axes(plane, dense), []
    for method, runs in methods.items():
        color = RIVAL if "frugrad" not in method or method == "frugrad-paper" else MUON if "muon" in method else OURS
        x, y = plane.x(runs.share()), plane.y(runs.versus(dense))
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{color}"/>')
        spots.append((x, y, NAMES.get(method, runs.label).strip("*"), color if color != RIVAL else ""))
    body = "\n".join(parts + list(place(spots, plane.y(100))))
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img">\n'
            f"<title>Quality against bytes sent</title>\n<style>{STYLE}</style>\n"
            f'<rect class="panel" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="6"/>\n{body}\n</svg>\n')


# ---- main --------------------------------------------------------------------------------------------------


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail where something would change")
    args = parser.parse_args()
    evidence = collect("evidence/*.jsonl")
    if LANGUAGE not in evidence:
        sys.exit(f"readme_figure: no run of {LANGUAGE} is recorded")
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        readme = file.read()
    filled = tables(evidence, step_times())
    if sorted(mark[2] for mark in MARKS.finditer(readme)) != sorted(filled):
        sys.exit(f"readme_figure: README.md has not one <!-- quality: TABLE --> ... <!-- /quality --> each of {', '.join(filled)}")
    made = {"README.md": MARKS.sub(lambda mark: mark[1] + filled[mark[2]] + mark[3], readme), FIGURE: draw(evidence[LANGUAGE])}
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

#!/usr/bin/env python3
"""Do local steps beat an exchange at every step, at equal wall-clock? Tables from recorded runs, for three links.

    lab/bench/local_links.py r.*.json [--times t.*.json] --save results/local-steps-h200.jsonl     make records, print
    lab/bench/local_links.py results/local-steps-h200.jsonl                                        print tables of records

A run is what `python3 -m frugrad.torch.train --json` printed. Methods are compared by runs of several lengths, each with
its whole schedule of rates. The time of a step over a link is computed: the step of one worker, measured alone on the GPU
(--times: the same methods with --workers 1, one run at a time), and then its measured bytes, without overlap. With local
steps its exchange is made every H steps. Perplexities between two lengths are interpolated, both axes logarithmic.
"""
import argparse
import json
import math
import sys

LINKS = (("100 Mbit/s", 1e8), ("1 Gbit/s", 1e9), ("10 Gbit/s", 1e10))
COPIED = ("model", "data", "method", "optimizer", "rate", "clip", "schedule", "workers", "batch", "steps", "seed", "params",
          "perplexity", "split", "train_loss", "bytes_sent", "bytes_dense", "device", "torch", "version")


def read(path):
    """The objects of a file: one, or one in each line."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        return [json.loads(text)]
    except ValueError:
        return [json.loads(line) for line in text.splitlines() if line.strip()]


def local_of(config):
    """The option local of a config with all options."""
    return next(int(item[6:]) for item in config.split(",") if item.startswith("local="))


def step_alone(run):
    """Milliseconds of a step of one worker, without the wire. The median of local steps has no exchange: its share is
    added."""
    every = local_of(run["config"])
    if every <= 1:
        return run["step_ms"]
    all_exchanges = run["steps"] * (run["time_ms"]["compress"] + run["time_ms"]["decode"])
    return run["step_ms"] + all_exchanges / math.ceil(run["steps"] / every) / every


def make_records(runs, times, commit):
    alone = {}
    for run in times:
        if run["workers"] != 1:
            sys.exit(f"local_links: --times: {run['method']} has {run['workers']} workers, not one")
        alone[run["method"]] = step_alone(run)
    for run in runs:
        if run["method"] not in alone:
            sys.exit(f"local_links: --times: no run of {run['method']}")
        yield {**{name: run[name] for name in COPIED}, "local": local_of(run["config"]),
               "step_ms": round(alone[run["method"]], 3), "commit": commit}


def step_seconds(record, speed):
    return record["step_ms"] / 1e3 + 8 * record["bytes_sent"] / record["steps"] / speed


def seconds(value):
    return f"{value:.0f} s" if value >= 9.5 else f"{value:.1f} s" if value >= 0.95 else f"{1e3 * value:.0f} ms"


class Method:
    """The runs of one method, by length."""

    def __init__(self, name, records):
        self.name, self.runs = name, sorted(records, key=lambda record: record["steps"])
        self.local = self.runs[0]["local"]

    def after(self, time, speed):
        """Perplexity after a time, and whether the longest run had ended before; None: the shortest takes longer."""
        points = [(math.log(run["steps"] * step_seconds(run, speed)), math.log(run["perplexity"])) for run in self.runs]
        at = math.log(time * (1 + 1e-9))
        if at >= points[-1][0]:
            return math.exp(points[-1][1]), at > points[-1][0] + 0.02
        for (a, low), (b, high) in zip(points, points[1:]):
            if a <= at < b:
                return math.exp(low + (high - low) * (at - a) / (b - a)), False
        return None


def methods_of(records):
    names = dict.fromkeys(record["method"] for record in records)
    found = [Method(name, [record for record in records if record["method"] == name]) for name in names]
    return sorted(found, key=lambda method: (method.local, -method.runs[0]["bytes_sent"] / method.runs[0]["steps"]))


def table_of_steps(methods):
    lengths = sorted({run["steps"] for method in methods for run in method.runs})
    yield "| method | MB per step | " + " | ".join(f"perplexity, {n} steps" for n in lengths) + " | step over " + ", ".join(
        name for name, _ in LINKS) + " |"
    yield "|---|---:|" + "---:|" * (len(lengths) + 1)
    for method in methods:
        last, by = method.runs[-1], {run["steps"]: f"{run['perplexity']:.2f}" for run in method.runs}
        yield (f"| `{method.name}` | {last['bytes_sent'] / last['steps'] / 1e6:.3g} | "
               + " | ".join(by.get(n, "") for n in lengths) + " | "
               + ", ".join(seconds(step_seconds(last, speed)) for _, speed in LINKS) + " |")


def table_of_times(methods, reference, link, speed):
    """Perplexities at the times that runs of the reference take."""
    times = [run["steps"] * step_seconds(run, speed) for run in reference.runs]
    yield f"| {link}: perplexity after | " + " | ".join(map(seconds, times)) + " |"
    yield "|---|" + "---:|" * len(times)
    found = [[method.after(time, speed) for time in times] for method in methods]
    best = [min((row[i][0] for row in found if row[i]), default=None) for i in range(len(times))]
    for method, row in zip(methods, found):
        cells = [("**{:.2f}**" if x[0] == b else "{:.2f}").format(x[0]) + ("†" if x[1] else "") if x else "—"
                 for x, b in zip(row, best)]
        yield f"| `{method.name}` | " + " | ".join(cells) + " |"


def verdicts(methods, reference, link, speed):
    """After which of these times local steps are ahead of all that exchange at every step."""
    for method in (method for method in methods if method.local > 1):
        ahead = []
        for time in (run["steps"] * step_seconds(run, speed) for run in reference.runs):
            mine, others = method.after(time, speed), [other.after(time, speed) for other in methods if other.local <= 1]
            if mine and all(mine[0] < other[0] for other in others if other):
                ahead.append(seconds(time))
        yield f"- {link}: `{method.name}` is ahead of every exchange at each step after: {', '.join(ahead) or 'none of these'}."


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", help="runs, or records of this command")
    parser.add_argument("--times", nargs="+", metavar="FILE", help="runs with one worker, alone on the GPU")
    parser.add_argument("--reference", default="frugrad-adam,density=0.01", help="the method whose times are compared at")
    parser.add_argument("--save", metavar="FILE", help="write the records")
    parser.add_argument("--commit", help="of the records")
    args = parser.parse_args()
    records = [record for path in args.files for record in read(path)]
    if args.times:
        records = list(make_records(records, [run for path in args.times for run in read(path)], args.commit))
    if any("local" not in record for record in records):
        sys.exit("local_links: these are runs: give their --times")
    if args.save:
        with open(args.save, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)
    methods = methods_of(records)
    reference = next((method for method in methods if method.name == args.reference), None)
    if reference is None:
        sys.exit(f"local_links: no run of {args.reference}; --reference names another method")
    print("\n".join(table_of_steps(methods)))
    for link, speed in LINKS:
        print("", *table_of_times(methods, reference, link, speed), sep="\n")
    print("\n†: the method's longest run had ended before. —: its shortest run takes longer.\n")
    for link, speed in LINKS:
        print(*verdicts(methods, reference, link, speed), sep="\n")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Quality of fine-tuning over the number of optimizer states, for every method: `frugrad finetune` over a grid.

    lab/bench/finetune_curves.py --data DIR --weights DIR [--frugrad PATH] [--out FILE.jsonl] [--jobs N] [--seconds S]
                             [--suite curves,kappa,chunks] [--tasks lm,sst-2,boolq,mrpc] [--methods ...] [--plan]
    lab/bench/finetune_curves.py --out FILE.jsonl --table [--svg FILE.svg]

--data has glue/, boolq/ and tokenizers/; --weights what lab/bench/pretrain_torch.py wrote. For every task and method five
rates are tried at one middle number of states and evaluated on the validation split (BoolQ: held-out training rows); if
the best is the first or last of them, the next one out too. With the best one every point of the curve is run with
three seeds and evaluated on the test split. A run is one process with one thread; --jobs of them run at a time. The
output has one line of JSON per run, the request as "job" and the program's output as "result"; runs that are in
the file are not repeated, so an interrupted study resumes. After --seconds no run is started. Runs are ordered so that
partial results are usable: all methods at few points before more points, two tasks before the others.

Methods with an option `scale` keep the rate, with which AdamW trains a classifier's head, and the scale is tuned; the
others (full, lora) tune the rate. "head" trains only the head, and of a language model nothing at all: the
baseline without states.
"""
import argparse
import concurrent.futures
import json
import lzma
import math
import os
import statistics
import subprocess
import time

from job_pool import key, load, run_jobs

BERT = "bert-mini:layers=4,width=128,heads=4,length={},dropout=0"  # weights for 64 places serve fewer as well
GPT2 = "gpt2:layers=4,width=128,heads=4,length=128,dropout=0"
TASKS = {
    "lm": {"model": GPT2, "weights": "gpt2-bytes.safetensors", "metric": "perplexity", "batch": 8, "targets": 4,
           "eval_batches": 64},  # 65,536 bytes, the same for all
    "sst-2": {"model": BERT.format(32), "weights": "bert.safetensors", "metric": "accuracy", "batch": 16, "targets": 8},
    "boolq": {"model": BERT.format(64), "weights": "bert.safetensors", "metric": "accuracy", "batch": 8, "targets": 8},
    "mrpc": {"model": BERT.format(64), "weights": "bert.safetensors", "metric": "accuracy", "batch": 16, "targets": 8},
}
VOCABULARY = "tokenizers/bert_base_uncased_vocab.txt"
HOLD_OUT = {"boolq": 400}
SKETCHES = ["sgc", "mesgc", "cesgc", "table"]
SKETCHES_ALL = [*SKETCHES, "cesgc-r4"]  # the last on request: a basis of rank 4 instead of 32 takes fewer bytes
METHODS = ["full", "head", "lora", "galore", "apollo", *SKETCHES_ALL]
RATE = 1e-3  # of the head, where the scale is tuned
RATES = {
    "full": [1e-4, 3e-4, 1e-3, 3e-3, 1e-2],
    "head": [1e-4, 3e-4, 1e-3, 3e-3, 1e-2],
    "lora": [3e-4, 1e-3, 3e-3, 1e-2, 3e-2],
    "galore": [0.1, 0.3, 1, 3, 10],
    "apollo": [0.1, 0.3, 1, 3, 10],
    **{m: [0.3, 1, 3, 10, 30] for m in SKETCHES_ALL},
}
MIDDLE = {"lora": 8192, "galore": 6144, "apollo": 6144, **{m: 2048 for m in SKETCHES_ALL}}
# Numbers of states, the most informative first. Rank 1 of LoRA takes 4,096 for the queries and values of both models
# (2 (128 + 128) for each of 8 matrices; 2 (128 + 384) for each of 4), rank 1 of GaLore and Apollo 2,048 and 3,072.
# 6,144 states of a sketch are as many bytes as rank 1 of LoRA, which also keeps its factors. The time of sgc to
# recover grows with the square of its entries and more: beyond 8,192 states it would take longer than all else.
WAVES = [
    {"lora": [4096], "galore": [6144], "apollo": [6144], **{m: [4096, 1024] for m in SKETCHES_ALL}},
    {"lora": [16384], "galore": [18432], "apollo": [18432], **{m: [256, 16384] for m in SKETCHES_ALL}, "sgc": [256]},
    {"lora": [8192, 32768], "galore": [3072, 36864], "apollo": [3072, 36864],
     **{m: [6144, 512, 2048] for m in SKETCHES_ALL}},
    {**{m: [8192, 32768] for m in SKETCHES_ALL}, "sgc": [8192]},
]
KAPPAS, KAPPA_S = [5, 6, 7, 8, 10, 14], 16
CHUNKS, CHUNKS_S = [1, 2, 4, 8, 16], 32


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--frugrad", default="build/release/frugrad")
    p.add_argument("--data")
    p.add_argument("--weights", default=".", help="directory")
    p.add_argument("--work", default="finetune-data", help="directory for data sets made out of others")
    p.add_argument("--out", default="finetune.jsonl")
    p.add_argument("--suite", default="curves", help="curves,kappa,chunks")
    p.add_argument("--tasks", default=",".join(TASKS))
    p.add_argument("--methods", default=",".join(METHODS[:-1]), help=f"of {','.join(METHODS)} [all but the last]")
    p.add_argument("--waves", type=int, default=len(WAVES), help="how many of the groups of points, the most telling first")
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--seeds", default="1,2,3")
    p.add_argument("--schedule", default="linear,warmup=20")
    p.add_argument("--jobs", type=int, default=os.cpu_count())
    p.add_argument("--seconds", type=float, default=math.inf, help="after which no run is started")
    p.add_argument("--run-seconds", type=float, default=40, help="for --plan, where no run has been timed yet")
    p.add_argument("--extra", default="", help="more options for every run")
    p.add_argument("--plan", action="store_true", help="say what would be run and how long it would take")
    p.add_argument("--table", action="store_true", help="print what is in --out")
    p.add_argument("--svg", help="draw what is in --out")
    a = p.parse_args()
    for name, known in (("suite", ["curves", "kappa", "chunks"]), ("tasks", TASKS), ("methods", METHODS)):
        words = getattr(a, name).split(",")
        if set(words) - set(known):
            p.error(f"--{name}: expected some of {','.join(known)}")
        setattr(a, name, words)
    a.seeds = [int(s) for s in a.seeds.split(",")]
    if not (a.table or a.svg or a.plan) and a.data is None:
        p.error("--data DIR missing")
    return a


# ---- data ----

def lines_of(path):
    packed = os.path.exists(path + ".xz")
    with lzma.open(path + ".xz") if packed else open(path, "rb") as file:
        return file.read().decode("utf-8").splitlines()


def prepare(a):
    """Make the corpus of SST-2's sentences, and for tuning data sets without a test split: validation judges then."""
    text = os.path.join(a.work, "sst-2-text")
    os.makedirs(text, exist_ok=True)
    for split, name in (("train", "train.tsv"), ("valid", "dev.tsv"), ("test", "test_labeled.tsv")):
        header, *rows = lines_of(os.path.join(a.data, "glue", "SST-2", name))
        at = header.split("\t").index("sentence")
        with open(os.path.join(text, split + ".txt"), "w", encoding="utf-8") as file:
            file.writelines(row.split("\t")[at].strip() + "\n" for row in rows)
    for task, folder, names in (("lm", text, ["train.txt", "valid.txt"]),
                                ("sst-2", os.path.join(a.data, "glue", "SST-2"), ["train.tsv", "dev.tsv"]),
                                ("mrpc", os.path.join(a.data, "glue", "MRPC"), ["train.tsv", "dev.tsv"])):
        to = os.path.join(a.work, "tune", task)
        os.makedirs(to, exist_ok=True)
        for name in names:
            for ending in ("", ".xz", ".gz"):
                source, link = os.path.abspath(os.path.join(folder, name + ending)), os.path.join(to, name + ending)
                if os.path.exists(source) and not os.path.lexists(link):
                    os.symlink(source, link)


def folder_of(a, task, tuning):
    if tuning and task not in HOLD_OUT:
        return os.path.join(a.work, "tune", task)
    return {"lm": os.path.join(a.work, "sst-2-text"), "sst-2": os.path.join(a.data, "glue", "SST-2"),
            "mrpc": os.path.join(a.data, "glue", "MRPC"), "boolq": os.path.join(a.data, "boolq")}[task]


# ---- one run ----

def command(a, job):
    task = TASKS[job["task"]]
    tuning = job["phase"] == "tune"
    words = {"model": task["model"], "weights": os.path.join(a.weights, task["weights"]),
             "data": folder_of(a, job["task"], tuning), "batch": task["batch"], "steps": job["steps"],
             "seed": job["seed"], "method": {"head": "table", "cesgc-r4": "cesgc"}.get(job["method"], job["method"]),
             "rate": job["rate"],
             "schedule": a.schedule, "targets": "qv", "threads": 1, "eval-every": 1000000000,
             "tokens": "bytes" if job["task"] == "lm" else os.path.join(a.data, VOCABULARY)}
    if job["task"] != "lm":
        words["subset"] = job["task"]
    if "eval_batches" in task:
        words["eval-batches"] = task["eval_batches"]
    if tuning and job["task"] in HOLD_OUT:
        words["hold-out"] = HOLD_OUT[job["task"]]
    words.update({k: job[k] for k in ("states", "scale", "kappa", "chunks") if job.get(k) is not None})
    if job["method"] == "cesgc-r4":
        words["rank"] = 4
    if job.get("adaptive"):
        words["optimizer-options"] = "adaptive=1"
    return [a.frugrad, "finetune", *(w for k, v in words.items() for w in ("--" + k, str(v))), "--json", "--quiet",
            *a.extra.split()]


def run(a, job):
    begin = time.time()
    done = subprocess.run(command(a, job), capture_output=True, text=True, check=False)
    row = {"job": job, "seconds": round(time.time() - begin, 2)}
    try:
        row["result"] = json.loads(done.stdout)
    except ValueError:  # a rate that makes the loss infinite is an outcome, not an error of ours
        said = done.stderr.splitlines()
        row["failed"] = ([line for line in said if line.startswith("frugrad: ")] + said + ["no output"])[0]
    return row


def field(row, name):
    """A field of the program's output; None if it failed."""
    return row.get("result", {}).get(name)


def score(row):
    """Higher is better; accuracy, and among equals the lower loss. A failed run is the worst."""
    loss, accuracy = field(row, "loss"), field(row, "accuracy")
    if loss is None or not math.isfinite(loss):
        return (-math.inf, -math.inf)
    return (-loss, 0) if TASKS[row["job"]["task"]]["metric"] == "perplexity" else (accuracy, -loss)


# ---- what to run, in which order ----

def job_of(a, suite, phase, task, method, value, seed, **more):
    scaled = method not in ("full", "lora", "head")
    job = {"suite": suite, "phase": phase, "task": task, "method": method, "rate": RATE if scaled else value,
           "scale": value if scaled else 1e-6 if method == "head" else None, "seed": seed, "steps": a.steps,
           "states": MIDDLE["table"] if method == "head" else None}
    job.update(more)
    return {k: v for k, v in job.items() if v is not None}


def tuning(a, rows, task, method):
    """(missing jobs, the best value or None while there are any, or if all have failed). The search
    extends past its ends, by at most two values."""
    values, more = list(RATES[method]), 0
    middle = {"states": MIDDLE[method]} if method in MIDDLE else {}
    if (task, method) == ("lm", "head"):
        return [], RATE  # no head, nothing to tune
    while True:
        jobs = [job_of(a, "curves", "tune", task, method, v, 100, **middle) for v in values]
        missing = [j for j in jobs if key(j) not in rows]
        if missing:
            return missing, None
        best = max(range(len(values)), key=lambda i: score(rows[key(jobs[i])]))
        if score(rows[key(jobs[best])])[0] == -math.inf:
            return [], None
        if 0 < best < len(values) - 1 or more == 2:
            return [], values[best]
        far = values[best] / 3 if best == 0 else values[best] * 3
        values = [float(f"{far:.1g}")] + values if best == 0 else values + [float(f"{far:.1g}")]
        more += 1


def points(task, method, wave):
    if method in ("full", "head"):
        return [None] if wave == 0 else []
    return WAVES[wave].get(method, [])


def curve_jobs(a, rows, task, wave):
    jobs = []
    best = {m: tuning(a, rows, task, m) for m in a.methods}
    for method in a.methods:
        jobs += best[method][0] if wave == 0 else []
    for seed in a.seeds:
        for method in a.methods:
            if best[method][1] is not None:
                more = [{} if s is None else {"states": s} for s in points(task, method, wave)]
                jobs += [job_of(a, "curves", "test", task, method, best[method][1], seed, **m) for m in more]
    return jobs


def special_jobs(a, rows, suite, task):
    """kappa: as many entries with more or fewer measurements; chunks: as many entries in more or fewer chunks."""
    missing, best = tuning(a, rows, task, "mesgc")
    targets = TASKS[task]["targets"]
    if best is None:  # missing, or all failed
        return missing
    if suite == "kappa":
        cases = [("mesgc", {"kappa": k, "states": 2 * k * KAPPA_S * targets}) for k in KAPPAS]
    else:
        states = 2 * 7 * CHUNKS_S * targets
        cases = [("sgc", {"states": states})] + [("mesgc", {"chunks": c, "states": states, "adaptive": on})
                                                for c in CHUNKS[1:] for on in (None, 1)]
    return [job_of(a, suite, "test", task, method, best, seed, **more) for seed in a.seeds for method, more in cases]


def wanted(a, rows):
    """All jobs that can be run now, the most informative first: the ends of the curves of the first two tasks,
    their special suites, the other tasks, and then points in between."""
    first, others = a.tasks[:2], a.tasks[2:]
    order = [(first, 0), (first, 1), None, (others, 0)]
    order += [(tasks, wave + (tasks is first)) for wave in range(1, len(WAVES)) for tasks in (first, others)]
    jobs = []
    for item in order:
        if item is None:
            jobs += [j for s in a.suite if s != "curves" for task in first for j in special_jobs(a, rows, s, task)]
        elif "curves" in a.suite and item[1] < min(len(WAVES), a.waves):
            jobs += [j for task in item[0] for j in curve_jobs(a, rows, task, item[1])]
    return list({key(j): j for j in jobs}.values())  # suites may want the same search


def all_runs(a):
    """Number of runs if no search extends past its ends, for --plan."""
    fake = {}
    count = 0
    while True:
        todo = [j for j in wanted(a, fake) if key(j) not in fake]
        if not todo:
            return count
        for j in todo:
            middle = RATES[j["method"]][2] in (j.get("scale"), j["rate"])
            fake[key(j)] = {"job": j, "result": {"loss": 1.0 if middle else 2.0, "accuracy": 0.9 if middle else 0.5}}
            count += 1


def plan(a, rows):
    total, timed = all_runs(a), [r["seconds"] for r in rows.values()]
    each = statistics.mean(timed) if timed else a.run_seconds
    print(f"{total} runs, {len(rows)} of them done; {each:.1f} s a run{'' if timed else ' (a guess)'}, {a.jobs} at a "
          f"time: {max(0, total - len(rows)) * each / a.jobs / 60:.1f} minutes more")
    for job in [j for j in wanted(a, rows) if key(j) not in rows][:3]:
        print("  " + " ".join(command(argparse.Namespace(**{**vars(a), "data": a.data or "DATA"}), job)))


def run_all(a, rows):
    def result(job, row):
        metric = TASKS[job["task"]]["metric"]
        return f"{metric} {field(row, metric)}"

    pool = concurrent.futures.ThreadPoolExecutor(a.jobs)
    run_jobs(a, rows, pool, wanted, lambda job: pool.submit(run, a, job), result)


# ---- reading ----

def bytes_of(row):
    """Bytes of the targets' states: those of a head, two f32 for each parameter, are the same for all methods."""
    whole, head = field(row, "optimizer_bytes"), field(row, "head_states") or 0
    return None if whole is None else whole - 4 * head


def groups(rows, suite):
    """{task: {(method, label): [rows of all seeds]}} of runs that were evaluated on the test split."""
    out = {}
    for row in rows.values():
        job = row["job"]
        if job["phase"] != "test" or job["suite"] != suite or field(row, "loss") is None:
            continue
        label = {"curves": job.get("states", 0) if job["method"] != "head" else 0, "kappa": job.get("kappa", 0),
                 "chunks": (job.get("chunks", 1), job.get("adaptive", 0))}[suite]
        out.setdefault(job["task"], {}).setdefault((job["method"], label), []).append(row)
    return out


def summary(task, rows):
    values = [field(r, TASKS[task]["metric"]) for r in rows]
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    if rows[0]["job"]["method"] == "head":
        return statistics.mean(values), spread, None, None
    return statistics.mean(values), spread, field(rows[0], "states"), bytes_of(rows[0])


def print_tables(rows):
    for suite in ("curves", "kappa", "chunks"):
        for task, cells in groups(rows, suite).items():
            metric = TASKS[task]["metric"]
            print(f"\n## {suite}: {task}, {metric}, mean and standard deviation over seeds")
            asked = "states asked for" if suite == "curves" else suite
            print(f"| method | {asked} | states | bytes | {metric} | runs |")
            print("|---|---|---|---|---|---|")
            for (method, label), found in sorted(cells.items(), key=lambda c: (METHODS.index(c[0][0]), c[0][1])):
                mean, spread, states, size = summary(task, found)
                text = f"{mean:.4f} ± {spread:.4f}"
                if metric == "accuracy":
                    text = f"{100 * mean:.2f} ± {100 * spread:.2f} %"
                if suite == "chunks":
                    label = f"{label[0]}{', adaptive' if label[1] else ''}"
                print(f"| {method} | {label or '-'} | {states if states is not None else '-'} | "
                      f"{size if size is not None else '-'} | {text} | {len(found)} |")
    tuned = {}
    for row in rows.values():
        if row["job"]["phase"] == "tune":
            name = (row["job"]["task"], row["job"]["method"])
            tuned[name] = max(tuned.get(name, row), row, key=score)
    if tuned:
        print("\n## tuned\n| task | method | rate | scale | at states |\n|---|---|---|---|---|")
        for (task, method), row in sorted(tuned.items()):
            job = row["job"]
            scale, states = ("-", "-") if method == "head" else (job.get("scale", "-"), job.get("states", "-"))
            print(f"| {task} | {method} | {job['rate']:g} | {scale} | {states} |")


# ---- drawing: medium tones, readable on light and dark, transparent background ----

COLORS = {"lora": "#d9730d", "galore": "#b8860b", "apollo": "#9467bd", "sgc": "#2f9e8f", "mesgc": "#3b82c4",
           "cesgc": "#d6457a", "cesgc-r4": "#c98aa5", "table": "#4c9a2a"}
WIDE, HIGH, LEFT, TOP = 380, 230, 62, 34


def ticks(low, high, count=5):
    step = 10 ** math.floor(math.log10((high - low) / count or 1))
    step *= min((m for m in (1, 2, 5, 10) if (high - low) / (step * m) <= count), default=10)
    return [i * step for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def short(n):
    return f"{n / 1024:g}k" if n >= 1024 else f"{n:g}"


def panel(task, cells, axis, x0, y0):
    """One drawing: a curve for each method, level lines for full and head."""
    metric = TASKS[task]["metric"]
    at = {c: summary(task, found) for c, found in cells.items()}
    place = 2 if axis == "states" else 3
    curves = {m: sorted((v[place], v[0], v[1]) for (n, _), v in at.items() if n == m and v[place])
              for m in METHODS[2:]}
    xs = [x for c in curves.values() for x, _, _ in c]
    ys = [y + d * s for y, s in ((v[0], v[1]) for v in at.values()) for d in (-1, 1)]
    if not xs:
        return []
    lowx, highx, lowy, highy = math.log2(min(xs)) - 0.3, math.log2(max(xs)) + 0.3, min(ys), max(ys)
    lowy, highy = lowy - 0.04 * (highy - lowy or 1), highy + 0.04 * (highy - lowy or 1)

    def px(x):
        return x0 + LEFT + (math.log2(x) - lowx) / (highx - lowx) * WIDE

    def py(y):
        return y0 + TOP + (highy - y) / (highy - lowy) * HIGH

    out = [f'<text x="{x0 + LEFT}" y="{y0 + 18}" class="t">{task}: {metric} against {axis} of the optimizer</text>',
           f'<rect x="{x0 + LEFT}" y="{y0 + TOP}" width="{WIDE}" height="{HIGH}" class="f"/>']
    for y in ticks(lowy, highy):
        label = f"{100 * y:g} %" if metric == "accuracy" else f"{y:g}"
        out += [f'<line x1="{x0 + LEFT}" x2="{x0 + LEFT + WIDE}" y1="{py(y):.1f}" y2="{py(y):.1f}" class="g"/>',
                f'<text x="{x0 + LEFT - 6}" y="{py(y) + 4:.1f}" class="a e">{label}</text>']
    for i in range(math.ceil(lowx), math.floor(highx) + 1):
        out.append(f'<text x="{px(2 ** i):.1f}" y="{y0 + TOP + HIGH + 16}" class="a m">{short(2 ** i)}</text>')
    for name, dash in (("full", "7 3"), ("head", "2 3")):
        if (name, 0) in at:
            y = py(at[name, 0][0])
            out += [f'<line x1="{x0 + LEFT}" x2="{x0 + LEFT + WIDE}" y1="{y:.1f}" y2="{y:.1f}" stroke="#888888" '
                    f'stroke-dasharray="{dash}"/>',
                    f'<text x="{x0 + LEFT + WIDE - 4}" y="{y - 4:.1f}" class="a e">{name}</text>']
    for method, curve in curves.items():
        color = COLORS[method]
        line = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y, _ in curve)
        out.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>' if curve else "")
        for x, y, s in curve:
            out += [f'<line x1="{px(x):.1f}" x2="{px(x):.1f}" y1="{py(y - s):.1f}" y2="{py(y + s):.1f}" '
                    f'stroke="{color}"/>',
                    f'<circle cx="{px(x):.1f}" cy="{py(y):.1f}" r="3" fill="{color}">'
                    f"<title>{method}, {x} {axis}: {y:.4f} ± {s:.4f}</title></circle>"]
    return out


def draw(rows, path, tasks):
    found = {task: group for task, group in groups(rows, "curves").items() if task in tasks}
    methods = {row["job"]["method"] for row in rows.values()}
    step_x, step_y = LEFT + WIDE + 20, TOP + HIGH + 34
    out = []
    for i, task in enumerate(t for t in TASKS if t in found):
        for j, axis in enumerate(("states", "bytes")):
            out += panel(task, found[task], axis, j * step_x, 26 + i * step_y)
    for i, method in enumerate(m for m in METHODS[2:] if m in methods):
        out.append(f'<circle cx="{LEFT + 6 + 100 * i}" cy="14" r="4" fill="{COLORS[method]}"/>'
                   f'<text x="{LEFT + 15 + 100 * i}" y="18" class="a">{method}</text>')
    style = ("text{font:12px sans-serif;fill:#808080}.t{font-size:13px;font-weight:600}.e{text-anchor:end}"
             ".m{text-anchor:middle}.f{fill:none;stroke:#808080;stroke-opacity:.6}"
             ".g{stroke:#808080;stroke-opacity:.25}")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * step_x} {30 + len(found) * step_y}">\n'
                   f"<style>{style}</style>\n" + "\n".join(o for o in out if o) + "\n</svg>\n")


def main():
    a = arguments()
    rows = load(a.out)
    if a.plan:
        plan(a, rows)
    elif a.table or a.svg:
        if a.table:
            print_tables(rows)
        if a.svg:
            draw(rows, a.svg, a.tasks)
    else:
        prepare(a)
        run_all(a, rows)


if __name__ == "__main__":
    main()

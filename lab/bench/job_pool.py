"""Runs of a sweep, some at a time; each is a line in a file, so that the same command goes on where one has ended."""
import concurrent.futures
import json
import os
import sys
import time


def key(job):
    return json.dumps({k: v for k, v in job.items() if v is not None}, sort_keys=True)


def load(path):
    """Rows by job; an incomplete line is ignored, and its run is repeated."""
    rows = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                try:
                    row = json.loads(line)
                    rows[key(row["job"])] = row
                except (ValueError, KeyError):
                    continue
    return rows


def run_jobs(a, rows, pool, wanted, start, result):
    """Run what is wanted until nothing is left, or begin no more after a.seconds; rows are added to rows and to a.out.

    wanted(a, rows)   all jobs that are known by now, most urgent first
    start(job)        submits a job to the pool and returns the future of its row
    result(job, row)  what to print of a row
    """
    begin, running = time.monotonic(), {}
    with open(a.out, "a", encoding="utf-8") as out, pool:
        while True:
            busy = {key(job) for job in running.values()}
            ready = [j for j in wanted(a, rows) if key(j) not in rows and key(j) not in busy]
            if time.monotonic() - begin > a.seconds:
                ready = []
            for job in ready[: a.jobs - len(running)]:
                running[start(job)] = job
            if not running:
                break
            done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for one in done:
                job, row = running.pop(one), one.result()
                rows[key(job)] = row
                out.write(json.dumps(row) + "\n")
                out.flush()
                print(f"{time.monotonic() - begin:6.0f} s  {len(rows)} done, {len(running)} running  {key(job)}  "
                      f"{row.get('failed') or result(job, row)}", file=sys.stderr, flush=True)
    left = len([j for j in wanted(a, rows) if key(j) not in rows])
    if left:
        print(f"time is up; {left} runs and those that depend on them are left, the same command goes on",
              file=sys.stderr)

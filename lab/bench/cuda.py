#!/usr/bin/env python3
"""Compression on a GPU beside a copy, torch.topk and block-wise topk, in one run.

    FRUGRAD_LIBRARY=build/release/libfrugrad.so PYTHONPATH=python python3 lab/bench/cuda.py --json results/cuda.jsonl

Every case is timed with events of the device, cases take turns, and medians are shown. The limit is the time that a copy
on the device would need for the bytes a case has to move: the gradient and the residual read, the residual and the
frame written. What the checksum reads again (from the cache, mostly) is not counted as necessary, but it is in the time.
Times are those of a stream that has nothing else to do, which wait for the host; "queued" ones are behind other work,
as in training, where the host is ahead.
"""

import argparse
import json
import statistics

import torch

from frugrad._core import Config, Layout, Tensor
from frugrad._cuda import CudaCompressor


def timed(work, ahead=None) -> float:
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(3 if ahead else 0):
        ahead()
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3


def data(n: int, kind: str) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(1)
    x = torch.randn(n, device="cuda", generator=generator)
    if kind == "heavy":  # Student's t with three degrees of freedom
        x /= (sum(torch.randn(n, device="cuda", generator=generator) ** 2 for _ in range(3)) / 3).sqrt()
    return x


def cases(n: int, kind: str, k: float, residual: str, value: str, block: int):
    grad, stream = data(n, kind), torch.cuda.current_stream().cuda_stream
    other = torch.empty_like(grad)
    layout = Layout([Tensor("w", (n // 1024, 1024))])
    c = CudaCompressor(Config(f"frugrad,block={block},residual={residual},value={value},schedule=constant:{1 - k / 256}"),
                       layout)
    frame = torch.zeros(c.bound(0, n), dtype=torch.uint8, device="cuda")
    frames = [torch.zeros_like(frame) for _ in range(8)]
    length = [c.compress(0, 0, n, grad.data_ptr(), f.data_ptr(), f.numel(), stream) for f in frames][0]
    step = [0]

    def press():
        c.compress(step[0], 0, n, grad.data_ptr(), frame.data_ptr(), frame.numel(), stream)
        step[0] += 1

    def add_frames():
        c.decode_add(0, [f.data_ptr() for f in frames], 1 / 8, 0, n, other.data_ptr(), stream)

    def whole():
        torch.topk(grad.abs(), int(n * k / 256), sorted=False)

    def blocks():
        torch.topk(grad.view(-1, block).abs(), max(1, int(k * block / 256)), dim=1, sorted=False)

    kept = {"f32": 4, "bf16": 2, "int8": 1 + 2 / block, "int4": 0.5 + 2 / block}[residual]
    moved = n * (4 + 2 * kept) + length
    work = {"copy": lambda: other.copy_(grad), "compress": press, "add8": add_frames, "dense add": lambda: other.add_(grad)}
    if residual == "f32" and value == "f32":
        work.update({"topk": whole, "block topk": blocks})
    return work, moved, c


def measure(args, n: int, kind: str, k: float, residual: str, value: str) -> dict:
    work, moved, c = cases(n, kind, k, residual, value, args.block)
    times = {name: [] for name in work}
    times.update({name + " queued": [] for name in work})
    for round_ in range(args.rounds + 3):
        for name, run in work.items():
            if name.endswith("topk") and round_ > 8:
                continue
            t = timed(run)
            if round_ >= 3:
                times[name].append(t)
                times[name + " queued"].append(timed(run, work["copy"]))
    c.check()
    row = {name + "_us": round(statistics.median(t), 2) for name, t in times.items()}
    limit = row["copy_us"] * moved / (8 * n)
    row["of_limit_queued"] = round(row["copy queued_us"] * moved / (8 * n) / row["compress queued_us"], 3)
    row["add8_over_dense_queued"] = round(row["add8 queued_us"] / row["dense add queued_us"], 3)
    row.update(n=n, data=kind, k=k, block=args.block, residual=residual, value=value, limit_us=round(limit, 2),
               of_limit=round(limit / row["compress_us"], 3), add8_over_dense=round(row["add8_us"] / row["dense add_us"], 3))
    for name in ("topk", "block topk"):
        if name + "_us" in row:
            row[name + "_over"] = round(row[name + "_us"] / row["compress_us"], 2)
            row[name + "_over_queued"] = round(row[name + " queued_us"] / row["compress queued_us"], 2)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--sizes", type=int, nargs="+", default=[25_600_000 // 1024 * 1024, 124_439_808 // 1024 * 1024])
    parser.add_argument("--block", type=int, choices=(64, 128, 256, 1024, 4096), default=256,
                        help="k stays that of 256 elements; long blocks also send 1/1000")
    parser.add_argument("--json", help="append rows to this file")
    args = parser.parse_args()
    machine = torch.cuda.get_device_name(), torch.version.cuda, torch.__version__
    for n in args.sizes:
        for kind in ("gaussian", "heavy"):
            for k in ((0.256,) if args.block > 256 else ()) + (4, 16, 64, 128):
                for residual, value in (("f32", "f32"), ("f32", "bf16"), ("int8", "bf16"), ("int8", "int8")):
                    row = measure(args, n, kind, k, residual, value)
                    row.update(device=machine[0], cuda=machine[1], torch=machine[2])
                    print(json.dumps(row), flush=True)
                    if args.json:
                        with open(args.json, "a") as out:
                            out.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()

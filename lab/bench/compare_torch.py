#!/usr/bin/env python3
"""Measure frug_compress() side by side with the same operation in PyTorch and numpy, on one CPU thread.

All candidates run in every round, one after the other, so that a machine that slows down slows them all. Times are
medians; "times slower" is against frug_compress with select=hist, select=exact and, for the largest of the whole
tensor, segment=tensor. The last line holds segment=tensor against the faster torch.topk.

  frugrad whole       the largest 6.25 % of the whole tensor, exactly, as a frame; no residual, no accumulation
  torch, block-wise   e = 0.95 e + g; the 16 largest of every 256 by topk; gather them; scatter zeros: the same
                      operation, except that nothing is packed into bytes
  torch.topk          the same as a list of places and one of values, sorted or not
  numpy argpartition  the same by partial sorting

Needs PyTorch and numpy (Debian: python3-torch) and the built library.
"""

import argparse
import ctypes
import json
import os
import statistics
import sys
import time

# OpenBLAS and OpenMP read these once, when they are loaded.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import numpy as np
import torch

BLOCK = 256
WHOLE = "frugrad whole"
TOPK = ("torch.topk, unsorted", "torch.topk, sorted")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Options(ctypes.Structure):
    """frug_compressor_options of frugrad.h."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t),
        ("threads", ctypes.c_int),
        ("total_steps", ctypes.c_uint64),
        ("source", ctypes.c_uint32),
    ]


class Range(ctypes.Structure):
    """frug_range."""

    _fields_ = [("begin", ctypes.c_uint64), ("count", ctypes.c_uint64)]


class Library:
    """The few functions of libfrugrad that are measured."""

    def __init__(self, path):
        try:
            self.lib = ctypes.CDLL(path)
        except OSError as error:
            sys.exit(f"compare_torch: cannot load {path}: {error}; build it first or give --lib")
        u64, size, pointer = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p
        to_size, to_pointer = ctypes.POINTER(size), ctypes.POINTER(pointer)
        declare = {
            "frug_config_create": [ctypes.c_char_p, to_pointer],
            "frug_layout_flat": [u64, to_pointer],
            "frug_compressor_create": [pointer, pointer, ctypes.POINTER(Options), to_pointer],
            "frug_compressor_bound": [pointer, Range, to_size],
            "frug_compress": [pointer, u64, Range, pointer, pointer, size, to_size],
            "frug_decode_add": [pointer, Range, to_pointer, to_size, size, ctypes.c_double, pointer],
        }
        for name, arguments in declare.items():
            getattr(self.lib, name).argtypes = arguments
        self.lib.frug_compressor_decoder.argtypes, self.lib.frug_compressor_decoder.restype = [pointer], pointer
        self.lib.frug_last_error.restype = ctypes.c_char_p
        self.lib.frug_version.restype = ctypes.c_char_p
        self.lib.frug_isa.restype = ctypes.c_char_p

    def call(self, name, *arguments):
        if getattr(self.lib, name)(*arguments) != 0:
            sys.exit(f"compare_torch: {name}: {self.lib.frug_last_error().decode()}")


class Frugrad:
    def __init__(self, library, config, n):
        self.library, self.n, self.step = library, n, 0
        parsed, layout, self.compressor = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        capacity, self.length = ctypes.c_size_t(), ctypes.c_size_t()
        options = Options(ctypes.sizeof(Options), 1, 0, 0)
        library.call("frug_config_create", config.encode(), parsed)
        library.call("frug_layout_flat", n, layout)
        library.call("frug_compressor_create", parsed, layout, options, self.compressor)
        library.call("frug_compressor_bound", self.compressor, Range(0, n), capacity)
        self.frame = np.zeros(capacity.value, np.uint8)

    def __call__(self, grad):
        self.library.call("frug_compress", self.compressor, self.step, Range(0, self.n), grad.data_ptr(),
                          self.frame.ctypes.data, self.frame.size, self.length)
        self.step += 1

    def decoder(self):
        return self.library.lib.frug_compressor_decoder(self.compressor)


class TorchBlocks:
    def __init__(self, n, k):
        self.k = k
        self.residual = torch.zeros(n // BLOCK, BLOCK)

    def __call__(self, grad):
        e = self.residual
        e.mul_(0.95).add_(grad.view(-1, BLOCK))
        places = e.abs().topk(self.k, dim=1, sorted=False).indices
        values = e.gather(1, places)
        e.scatter_(1, places, 0.0)
        return places, values


def torch_topk(density, in_order):
    def run(grad):
        places = grad.abs().topk(int(grad.numel() * density), sorted=in_order).indices
        return places, grad[places]

    return run


def numpy_partition(density):
    def run(grad):
        array = grad.numpy()
        places = np.argpartition(np.abs(array), array.size - int(array.size * density))[-int(array.size * density) :]
        return places, array[places]

    return run


def measure(candidates, grads, rounds):
    """Seconds of each candidate in each round, after one warm-up round."""
    times = {name: [] for name in candidates}
    for turn in range(rounds + 1):
        grad = grads[turn % len(grads)]
        for name, run in candidates.items():
            start = time.perf_counter()
            run(grad)
            elapsed = time.perf_counter() - start
            if turn > 0:
                times[name].append(elapsed)
        if sys.stderr.isatty():
            print(f"\rround {turn} of {rounds}", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return {name: statistics.median(series) for name, series in times.items()}


def check_same(frugrad, blocks):
    """After the same gradients the residuals must have the same norm: both sent the K largest."""
    state = ctypes.c_void_p
    residual = np.zeros(frugrad.n, np.float32)
    frugrad.library.lib.frug_compressor_get_residual.argtypes = [state, Range, state]
    frugrad.library.call("frug_compressor_get_residual", frugrad.compressor, Range(0, frugrad.n), residual.ctypes.data)
    ours, theirs = float(np.square(residual, dtype=np.float64).sum()), float(blocks.residual.double().square().sum())
    if abs(ours - theirs) > 1e-2 * theirs:
        sys.exit(f"compare_torch: the residuals differ: energy {ours} against {theirs} in PyTorch")


def check_whole(frugrad, topk, grad):
    """The decoded frame must have the entries that torch.topk selects, bit for bit; among equal ones they may differ."""
    frugrad(grad)
    ours, theirs = torch.zeros(frugrad.n), torch.zeros(frugrad.n)
    frames = (ctypes.c_void_p * 1)(frugrad.frame.ctypes.data)
    lens = (ctypes.c_size_t * 1)(frugrad.length.value)
    frugrad.library.call("frug_decode_add", frugrad.decoder(), Range(0, frugrad.n), frames, lens, 1, 1.0, ours.data_ptr())
    places, values = topk(grad)
    theirs[places] = values
    if not torch.equal(ours.abs().sort().values, theirs.abs().sort().values):
        sys.exit("compare_torch: segment=tensor and torch.topk pick different elements")


def report(medians, args, library):
    hist, exact, whole = medians["frugrad hist"], medians["frugrad exact"], medians[WHOLE]
    best = min(medians[name] for name in TOPK)
    head = {
        "n": args.n, "k": args.k, "threads": torch.get_num_threads(), "rounds": args.rounds,
        "torch": torch.__version__, "numpy": np.__version__, "frugrad": library.lib.frug_version().decode(),
        "isa": (library.lib.frug_isa() or b"?").decode(),
    }
    if args.json:
        for name, seconds in medians.items():
            print(json.dumps({"case": name, **head, "ms_median": round(1e3 * seconds, 3),
                              "times_hist": round(seconds / hist, 3), "times_exact": round(seconds / exact, 3),
                              "times_whole": round(seconds / whole, 3)}))
        return
    print(", ".join(f"{key} {value}" for key, value in head.items()) + "\n")
    print(f"{'':34} {'ms':>9} {'x hist':>9} {'x exact':>9} {'x whole':>9}")
    for name, seconds in medians.items():
        print(f"{name:34} {1e3 * seconds:9.1f} {seconds / hist:9.2f} {seconds / exact:9.2f} {seconds / whole:9.2f}")
    print(f"\nthe largest of the whole tensor: {best / whole:.2f} times faster than torch.topk")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--lib", default=os.path.join(ROOT, "build", "release", "libfrugrad.so"))
    parser.add_argument("--n", type=int, default=25_600_000, help="elements, rounded down to whole blocks")
    parser.add_argument("--k", type=int, default=16, help="entries of every 256 (default 16)")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    args = parser.parse_args()
    if args.n < 65536 or not 1 <= args.k <= BLOCK or args.rounds < 1:
        parser.error("--n must be at least 65536, --k from 1 to 256, --rounds at least 1")
    args.n -= args.n % BLOCK
    torch.set_num_threads(1)
    torch.manual_seed(1)
    density = args.k / BLOCK
    library = Library(args.lib)
    config = f"residual=f32,density={density!r},beta=0.95"
    exact, blocks = Frugrad(library, config + ",select=exact", args.n), TorchBlocks(args.n, args.k)
    whole = Frugrad(library, f"density={density!r},segment=tensor,feedback=none,value=f32,index=coo", args.n)
    candidates = {
        "frugrad hist": Frugrad(library, config + ",select=hist", args.n),
        "frugrad exact": exact,
        "torch, block-wise": blocks,
        WHOLE: whole,
        TOPK[0]: torch_topk(density, False),
        TOPK[1]: torch_topk(density, True),
        "numpy argpartition": numpy_partition(density),
    }
    grads = [1e-3 * torch.randn(args.n) for _ in range(4)]
    with torch.no_grad():
        medians = measure(candidates, grads, args.rounds)
        check_whole(whole, torch_topk(density, False), grads[0])
    check_same(exact, blocks)
    report(medians, args, library)


if __name__ == "__main__":
    main()

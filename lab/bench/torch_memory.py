"""Memory of training in PyTorch: torch's optimizers, which need whole gradients, against StreamingOptimizer.

Each runs in a process of its own: a stack of linear layers, a few steps on a batch of 8 so that activations hardly
count, one worker. What is printed is the most memory that was in use beyond what was there before the model was made,
by the kernel's count (VmHWM), and the same divided by the number of parameters: weights are 4 bytes of it. Usage:

    PYTHONPATH=python FRUGRAD_LIBRARY=... python3 lab/bench/torch_memory.py [--width 1024] [--layers 24] [--steps 4]
"""

import argparse
import json
import os
import subprocess
import sys

CASES = ("sgd", "streaming merged", "adamw", "streaming adam-merged")


def resident(which: str) -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(1024 * int(line.split()[1]) for line in file if line.startswith(which + ":"))


def train(case: str, width: int, layers: int, steps: int) -> int:
    import torch
    from frugrad.torch import StreamingOptimizer

    net = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers)))
    if case == "sgd":
        opt = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9, foreach=False)
    elif case == "adamw":
        opt = torch.optim.AdamW(net.parameters(), lr=1e-4, foreach=False)
    else:
        opt = StreamingOptimizer(net.named_parameters(), lr=1e-4, optimizer=case.split()[1], threads=1)
    for _ in range(steps):
        opt.zero_grad(set_to_none=True)
        net(torch.randn(8, width)).pow(2).mean().backward()
        opt.step()
    return sum(p.numel() for p in net.parameters())


def run(case: str, width: int, layers: int, steps: int) -> None:
    import torch

    torch.set_num_threads(1)
    train(case, 8, 2, 2)  # what torch loads late
    before = resident("VmRSS")
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # the most from here on
    count = train(case, width, layers, steps)
    print(json.dumps({"case": case, "params": count, "peak": resident("VmHWM") - before, "torch": torch.__version__}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--case", choices=CASES)
    args = parser.parse_args()
    if args.case:
        return run(args.case, args.width, args.layers, args.steps)
    rows = []
    for case in CASES:
        command = [sys.executable, __file__, "--case", case, "--width", str(args.width), "--layers", str(args.layers),
                   "--steps", str(args.steps)]
        # One arena, and memory that is freed goes back: the kernel's count is then close to what is in use.
        env = dict(os.environ, MALLOC_ARENA_MAX="1", MALLOC_TRIM_THRESHOLD_="65536", MALLOC_MMAP_THRESHOLD_="65536")
        out = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout
        rows.append(json.loads(out.splitlines()[-1]))
    print(f"torch {rows[0]['torch']}, {rows[0]['params'] / 1e6:.1f} M parameters")
    for dense, streamed in (rows[:2], rows[2:]):
        for row in (dense, streamed):
            each = row["peak"] / row["params"]
            print(f"{row['case']:<22} {row['peak'] / 1e6:8.1f} MB  {each:6.2f} bytes a parameter"
                  f"  {row['peak'] / dense['peak']:.2f} of {dense['case']}")


if __name__ == "__main__":
    main()

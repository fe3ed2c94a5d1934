#!/usr/bin/env python3
"""Train a model of frugrad.torch.train with DistributedDataParallel and the hook, as many processes as torchrun starts.

    export FRUGRAD_LIBRARY=build/release/libfrugrad.so PYTHONPATH=python
    torchrun --nproc_per_node 2 lab/bench/ddp_gpu.py --model gpt2-small:length=512,dropout=0 --data DATA/wikitext-2 \\
        --method frugrad,feedback=none --steps 60 --batch 8 --rate 6e-4 --out results/ddp-gpu.jsonl

Over gloo, so that several processes can share one GPU; without a GPU they share the host. --method dense is DDP without
the hook. The first process appends a line to --out. It shows that the hook trains, and what it sends; step times of
processes that share a GPU say nothing.
"""

import argparse
import json
import math
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "python"))

from frugrad.torch import DDPState, hook, optimizer  # noqa: E402
from frugrad.torch.trainer.loop import autocast  # noqa: E402
from frugrad.torch.trainer.models import parse_model  # noqa: E402
from frugrad.torch.trainer.learning_rate import parse_schedule  # noqa: E402
from frugrad.torch.trainer.tasks import open_task  # noqa: E402
from frugrad.torch.trainer.workers import read_config  # noqa: E402


def optimizer_of(task: str, model: torch.nn.Module) -> torch.optim.Optimizer:
    """The optimizer of a task, for dense and for compressed gradients."""
    if task == "images":
        return optimizer(model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4))
    return optimizer(model, torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--tokens")
    parser.add_argument("--method", default="frugrad,feedback=none")
    parser.add_argument("--rate", type=float, required=True)
    parser.add_argument("--schedule", default="cosine,warmup=5")
    parser.add_argument("--batch", type=int, required=True, help="of each process")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    args.hold_out, args.no_augment = 0, False
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    named, config, schedule = parse_model(args.model), read_config(args.method), parse_schedule(args.schedule)
    task = open_task(named, args, device)
    torch.manual_seed(args.seed)
    model = named.build(task.vocab).to(device)
    ddp = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    stepper = optimizer_of(named.task, model)
    dense = config.option("reduce") == "dense"
    state = None if dense else DDPState(model, args.method, stepper, total_steps=args.steps)
    if state is not None:
        ddp.register_comm_hook(state, hook)
    losses, begun = torch.zeros(args.steps, device=device), time.perf_counter()
    for step in range(args.steps):
        for group in stepper.param_groups:
            group["lr"] = args.rate * schedule.at(step, args.steps)
        stepper.zero_grad(set_to_none=True)
        with autocast(device):
            loss = task.loss(ddp, task.batch(step, rank, size, args.batch))
        loss.backward()
        stepper.step()
        losses[step] = loss.detach()
    losses = losses.cpu() / size
    dist.all_reduce(losses)
    seconds = time.perf_counter() - begun
    with autocast(device):
        score = task.judge(model, "test" if task.has("test") else "valid", 0)
    if rank == 0:
        stats = state.stats() if state else {}
        row = dict(model=args.model, method=args.method, seed=args.seed, rate=args.rate, workers=size,
                   batch=args.batch, steps=args.steps, loss=score.loss, accuracy=score.accuracy,
                   losses=[round(x, 4) for x in losses.tolist()], seconds=round(seconds, 1),
                   device_of_hook=stats.get("device"), bytes_sent=stats.get("bytes_sent"), hook_seconds=stats.get(
                       "seconds"), torch=torch.__version__, commit=os.environ.get("FRUGRAD_COMMIT"),
                   machine=torch.cuda.get_device_name() if device.type == "cuda" else "cpu")
        print(json.dumps(row), flush=True)
        if not math.isfinite(score.loss):
            sys.exit("the loss is not finite")
        if args.out:
            with open(args.out, "a", encoding="utf-8") as out:
                out.write(json.dumps(row) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""A small GPT on the bytes of a text, under DistributedDataParallel, its gradients sent by FruGrad.

    torchrun --nproc_per_node 2 examples/torch_lm.py --text book.txt
    torchrun --nproc_per_node 2 examples/torch_lm.py --text book.txt --dense        the same without FruGrad, to compare

Without --text, sentences are made up. The last tenth of the text is held out.
"""
import argparse
import math
import os
import random

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import frugrad.torch


class GPT(nn.Module):
    def __init__(self, width, layers, length):
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, max(1, width // 32), 4 * width, 0.0, batch_first=True, norm_first=True)
            for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256, bias=False)
        self.register_buffer("mask", torch.full((length, length), float("-inf")).triu(1))

    def forward(self, ids):
        x = self.bytes(ids) + self.places.weight
        for layer in self.layers:
            x = layer(x, self.mask)
        return self.head(self.norm(x))


def read(path):
    if path:
        with open(path, "rb") as file:
            return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
    r, words = random.Random(1), "gull sees rain, boat likes moon, sea fears ice, wind takes sail".split(", ")
    return torch.tensor(list(" ".join(f"the {r.choice(words)}." for _ in range(8000)).encode()))


def loss_of(model, text, starts, length, device):
    ids = torch.stack([text[s:s + length + 1] for s in starts.tolist()]).to(device)
    return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--text", default="", help="a file to learn")
    p.add_argument("--steps", type=int, default=500)
    p.add_argument("--batch", type=int, default=16, help="pieces of text of each process in a step")
    p.add_argument("--length", type=int, default=64, help="bytes of a piece")
    p.add_argument("--width", type=int, default=128)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--rate", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--config", default="frugrad", help="what FruGrad sends")
    p.add_argument("--dense", action="store_true", help="without FruGrad")
    a = p.parse_args()
    cuda = torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])  # a GPU for each process
    dist.init_process_group("nccl" if cuda else "gloo")
    rank = dist.get_rank()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    text = read(a.text)
    if len(text) < 20 * (a.length + 1):
        raise SystemExit(f"{a.text} has {len(text)} bytes, which is too short")
    train, held = text.split([len(text) - len(text) // 10, len(text) // 10])
    torch.manual_seed(a.seed)
    model = GPT(a.width, a.layers, a.length).to(device)
    ddp = DistributedDataParallel(model, device_ids=[device.index] if cuda else None)
    optimizer = frugrad.torch.optimizer(model, torch.optim.AdamW(ddp.parameters(), lr=a.rate))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 0.5 + 0.5 * math.cos(math.pi * s / a.steps))
    state = frugrad.torch.DDPState(model, "dense" if a.dense else a.config, optimizer, total_steps=a.steps)
    if not a.dense:
        ddp.register_comm_hook(state, frugrad.torch.hook)
    torch.manual_seed(1000 * a.seed + rank)  # each process reads other pieces
    for step in range(a.steps):
        loss = loss_of(ddp, train, torch.randint(len(train) - a.length, (a.batch,)), a.length, device)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if rank == 0 and (step % 50 == 49 or step == a.steps - 1):
            with torch.no_grad():
                test = loss_of(model, held, torch.arange(0, len(held) - a.length, a.length)[:64], a.length, device)
            s = state.stats()
            sent = "all" if a.dense else f"{s['bytes_sent'] / 1e6:.2f} MB of {s['bytes_dense'] / 1e6:.2f}"
            print(f"step {step + 1}, loss {loss:.4f}, on held-out text {test:.4f}, sent {sent}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

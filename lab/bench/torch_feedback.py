"""Which feedback suits which optimizer of PyTorch: a small network on Fashion-MNIST, simulated workers.

    python3 lab/bench/torch_feedback.py sgd|adam [--steps 300] [--workers 2] [--images FOLDER]

Prints test accuracy and loss of each feedback at densities 1/16 and 0.01, for three seeds. Each worker has its own
compressor and its own images, and the optimizer gets the mean of what they send: what frugrad.torch.hook does.
"""

import argparse
import ctypes
import gzip
from statistics import mean

import torch
import torch.nn as nn
import torch.nn.functional as F

from frugrad._core import Compressor, Config, Layout, Tensor

# name, config (None: dense), the optimizer's momentum or beta1
CASES = [("dense", None, 0.9), ("plain", "feedback=plain", 0.9), ("none", "feedback=none", 0.9),
         ("merged, beta 0.5", "feedback=merged,beta=0.5", 0.9), ("merged, no momentum", "feedback=merged", 0.0)]


def load(folder, kind):
    images = bytearray(gzip.open(f"{folder}/{kind}-images-idx3-ubyte.gz").read()[16:])
    labels = bytearray(gzip.open(f"{folder}/{kind}-labels-idx1-ubyte.gz").read()[8:])
    pixels = torch.frombuffer(images, dtype=torch.uint8).view(-1, 1, 28, 28)
    return pixels.float().sub_(73).div_(90), torch.frombuffer(labels, dtype=torch.uint8).long()


def network():
    return nn.Sequential(nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, stride=2, padding=1),
                         nn.ReLU(), nn.Flatten(), nn.Linear(1568, 128), nn.ReLU(), nn.Linear(128, 10))


class Workers:
    """Compressors of all workers, and the mean of what they send."""

    def __init__(self, count, config, params, steps):
        self.n = sum(p.numel() for p in params)
        layout = Layout([Tensor(str(i), tuple(p.shape)) for i, p in enumerate(params)])
        self.compressors = [Compressor(Config(config), layout, steps, source=r) for r in range(count)]
        self.frames = [ctypes.create_string_buffer(c.bound(0, self.n)) for c in self.compressors]

    def mean(self, step, gradients):
        lengths = [c.compress(step, 0, self.n, g.data_ptr(), ctypes.addressof(f), len(f))
                   for c, g, f in zip(self.compressors, gradients, self.frames)]
        out = torch.zeros(self.n)
        self.compressors[0].decode_add([ctypes.addressof(f) for f in self.frames], lengths, 1 / len(lengths), 0,
                                           self.n, out.data_ptr())
        return out


def run(options, data, test, config, momentum, seed):
    torch.manual_seed(seed)
    model = network()
    params = list(model.parameters())
    if options.optimizer == "sgd":  # merged counts each gradient once: 1 / (1 - 0.9) makes up for the momentum
        optimizer = torch.optim.SGD(params, lr=0.05 if momentum else 0.5, momentum=momentum)
    else:
        optimizer = torch.optim.AdamW(params, lr=0.002, betas=(momentum, 0.999))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, (s + 1) / 50) * (1 - s / options.steps))
    workers = Workers(options.workers, config, params, options.steps) if config else None
    draw = torch.Generator().manual_seed(seed + 100)
    for step in range(options.steps):
        gradients = []
        for _ in range(options.workers):
            pick = torch.randint(0, len(data[1]), (32,), generator=draw)
            model.zero_grad()
            F.cross_entropy(model(data[0][pick]), data[1][pick]).backward()
            gradients.append(torch.cat([p.grad.flatten() for p in params]))
        total = workers.mean(step, gradients) if workers else sum(gradients) / options.workers
        for p, piece in zip(params, total.split([p.numel() for p in params])):
            p.grad = piece.view_as(p).clone()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        out = model(test[0])
    return 100 * (out.argmax(1) == test[1]).float().mean().item(), F.cross_entropy(out, test[1]).item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("optimizer", choices=["sgd", "adam"])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--images", default="/usr/share/datasets/fashion-mnist")
    options = parser.parse_args()
    data, test = load(options.images, "train"), load(options.images, "t10k")
    for density in (0.0625, 0.01):
        for name, config, momentum in CASES:
            if config is None and density != 0.0625:
                continue
            results = [run(options, data, test, config and f"{config},density={density}", momentum, seed)
                       for seed in (1, 2, 3)]
            accuracies = " ".join(f"{accuracy:.2f}" for accuracy, _ in results)
            print(f"{options.optimizer} density {density} {name}: accuracy {mean(a for a, _ in results):.2f}"
                  f" ({accuracies}), loss {mean(loss for _, loss in results):.4f}", flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Record mini-batch gradients of real training runs, for `frugrad bench --grad` and `bench recover --gradients`.

Selection that is tuned on gaussian noise fails on real gradients, whose scale differs from layer to layer and from
row to row. This script trains a small model for some warm-up steps and then writes the gradients of the following
consecutive steps into one safetensors file: tensors step_0000, step_0001, ... of shape [rows, 256], float32. Only
parameters that the library compresses by default are kept: two dimensions or more and at least 4096 elements. Each
one's piece is padded with zeros to a multiple of 256 elements, so that no row mixes two parameters; the metadata
entry "layout" lists them with their shapes and first rows.

  record_gradients.py gpt      gpt.safetensors         3.3 M parameters, bytes of English text, AdamW
  record_gradients.py resnet20 resnet20.safetensors    0.27 M parameters, images, SGD with momentum

With --tensors PATTERN the matrices of those names are recorded one by one instead, as <step>/<name> in bf16, which is
what `frugrad bench recover --gradients` reads; queries, keys and values become matrices of their own (q, k, v):

  record_gradients.py gpt v.safetensors --width 64 --layers 2 --tensors 'layers.1.attention.v.weight' --steps 40

Needs PyTorch (Debian: python3-torch) and, for resnet20, images: Debian's dataset-fashion-mnist, or --data DIR with
the CIFAR-10 binary files (data_batch_1.bin, also xz-compressed).
"""

import argparse
import fnmatch
import glob
import gzip
import json
import lzma
import math
import os
import struct
import sys
import tempfile

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

ROW = 256
TEXT_GLOBS = ["/usr/share/common-licenses/*", "/usr/share/perl/5*/pod/*.pod", "/usr/share/doc/*/README*"]
FASHION_DIRS = ["/usr/share/datasets/fashion-mnist", "/usr/share/dataset-fashion-mnist"]


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, time, width = x.shape
        q, k, v = self.qkv(x).view(batch, time, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(width // self.heads)
        future = torch.ones(time, time, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(future, float("-inf")).softmax(-1)
        return self.out((scores @ v).transpose(1, 2).reshape(batch, time, width))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    """A byte-level GPT; the output shares the embedding's weights."""

    def __init__(self, width=256, layers=4, heads=4, context=128):
        super().__init__()
        self.token = nn.Embedding(256, width)
        self.position = nn.Embedding(context, width)
        self.layers = nn.Sequential(*[Layer(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        for weight in (self.token.weight, self.position.weight):
            nn.init.normal_(weight, std=0.02)

    def forward(self, ids):
        x = self.token(ids) + self.position.weight[: ids.shape[1]]
        return self.norm(self.layers(x)) @ self.token.weight.t()


class Residual(nn.Module):
    """Two 3x3 convolutions beside a shortcut that subsamples and pads channels with zeros."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.stride, self.extra = stride, outputs - inputs

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        shortcut = x[:, :, :: self.stride, :: self.stride]
        return F.relu(y + F.pad(shortcut, (0, 0, 0, 0, self.extra // 2, self.extra - self.extra // 2)))


class ResNet20(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, 16, 3, 1, 1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        blocks = []
        for inputs, outputs, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2)):
            blocks += [Residual(inputs, outputs, stride), Residual(outputs, outputs, 1), Residual(outputs, outputs, 1)]
        self.blocks = nn.Sequential(*blocks)
        self.linear = nn.Linear(64, 10)

    def forward(self, x):
        return self.linear(self.blocks(F.relu(self.norm(self.conv(x)))).mean((2, 3)))


def load_text(data):
    """All text of the first source that has enough, as one tensor of bytes."""
    patterns = [data if os.path.isfile(data) else os.path.join(data, "*")] if data else TEXT_GLOBS
    text = b""
    for pattern in patterns:
        for path in sorted({os.path.realpath(p) for p in glob.glob(pattern)}):
            if os.path.isfile(path) and not path.endswith(".gz"):
                with (lzma.open(path) if path.endswith(".xz") else open(path, "rb")) as file:
                    text += file.read()
        if len(text) >= 200_000:
            break
    if len(text) < 10_000:
        sys.exit(f"record_gradients: no text found in {', '.join(patterns)}; give --data DIR with plain text files")
    return torch.from_numpy(np.frombuffer(text, np.uint8).astype(np.int64))


def load_cifar(data):
    paths = sorted(glob.glob(os.path.join(data, "data_batch_*.bin*")))[:2]
    if not paths:
        sys.exit(f"record_gradients: no data_batch_*.bin in {data}")
    raw = b""
    for path in paths:
        with (lzma.open(path) if path.endswith(".xz") else open(path, "rb")) as file:
            raw += file.read()
    records = np.frombuffer(raw, np.uint8).reshape(-1, 3073)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64)


def load_images(data):
    """Images and labels of CIFAR-10 (in data) or Fashion-MNIST (as Debian installs it)."""
    if data:
        return load_cifar(data)
    for folder in FASHION_DIRS:
        images = os.path.join(folder, "train-images-idx3-ubyte.gz")
        if os.path.exists(images):
            with gzip.open(images) as file:
                pixels = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
            with gzip.open(os.path.join(folder, "train-labels-idx1-ubyte.gz")) as file:
                return pixels, np.frombuffer(file.read(), np.uint8, offset=8).astype(np.int64)
    sys.exit("record_gradients: no images; install dataset-fashion-mnist or give --data DIR with CIFAR-10 binaries")


def gpt_task(data, batch, width, layers):
    text, context = load_text(data), 128
    model = Gpt(width, layers, context=context)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def loss():
        starts = torch.randint(len(text) - context - 1, (batch,))
        ids = torch.stack([text[s : s + context + 1] for s in starts])
        return F.cross_entropy(model(ids[:, :-1]).reshape(-1, 256), ids[:, 1:].reshape(-1))

    return model, optimizer, loss


def resnet_task(data, batch):
    pixels, labels = load_images(data)
    model = ResNet20(pixels.shape[1])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)

    def loss():
        rows = torch.randint(len(labels), (batch,)).numpy()
        images = (torch.from_numpy(pixels[rows].astype(np.float32)) / 255 - 0.45) / 0.25
        return F.cross_entropy(model(images), torch.from_numpy(labels[rows]))

    return model, optimizer, loss


def compressed(model):
    """The parameters that are not sent dense."""
    return [(n, p) for n, p in model.named_parameters() if p.dim() >= 2 and p.numel() >= 4096]


def flat_layout(model):
    """Name, shape and first row of every kept parameter, and the number of rows in all."""
    layout, row = [], 0
    for name, parameter in compressed(model):
        layout.append({"name": name, "shape": list(parameter.shape), "row": row})
        row += -(-parameter.numel() // ROW)
    return layout, row


def flat_gradient(model, layout, rows):
    flat = np.zeros(rows * ROW, np.float32)
    for piece, (_, parameter) in zip(layout, compressed(model)):
        start = piece["row"] * ROW
        flat[start : start + parameter.numel()] = parameter.grad.reshape(-1).numpy()
    return flat


def matrices(model, pattern):
    """Names and gradients of the matrices that the pattern names, q, k and v each on their own."""
    for name, parameter in model.named_parameters():
        pieces = [(name, parameter.grad)]
        if name.endswith("qkv.weight"):
            pieces = zip((name.replace("qkv", part) for part in "qkv"), parameter.grad.chunk(3))
        for piece, gradient in pieces:
            if gradient.dim() >= 2 and fnmatch.fnmatchcase(piece, pattern):
                yield piece, gradient


def train(task, warmup, steps, keep):
    """Take warm-up steps, then call keep(step, model) for every one of `steps`, before the weights are updated."""
    model, optimizer, loss_of = task
    for step in range(warmup + steps):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        if step >= warmup:
            keep(step - warmup, model)
        optimizer.step()
        if step % 10 == 0 or step == warmup + steps - 1:
            print(f"step {step:4d}  loss {loss.item():.3f}", file=sys.stderr, flush=True)


def record_flat(task, warmup, steps):
    """Tensors step_0000, ... of all compressed parameters, and their metadata."""
    layout, rows = flat_layout(task[0])
    tensors = {}

    def keep(step, model):
        tensors[f"step_{step:04d}"] = flat_gradient(model, layout, rows).reshape(rows, ROW)

    train(task, warmup, steps, keep)
    return tensors, {
        "padding": f"each parameter's piece is padded with zeros to a multiple of {ROW} elements",
        "layout": json.dumps(layout, separators=(",", ":")),
    }


def record_matrices(task, warmup, steps, pattern):
    """Tensors <step>/<name>, rounded to bf16 and held as its 16 bits, and their metadata."""
    tensors = {}

    def keep(step, model):
        for name, gradient in matrices(model, pattern):
            tensors[f"{step}/{name}"] = gradient.bfloat16().contiguous().view(torch.int16).numpy().copy()

    train(task, warmup, steps, keep)
    if not tensors:
        sys.exit(f"record_gradients: no matrix is named like {pattern}")
    return tensors, {"rounding": "gradients were rounded to bf16"}


def write_safetensors(path, tensors, metadata):
    """tensors: name -> C-contiguous array, float32 or int16 for the bits of bf16. Written beside path and renamed, so path is complete or absent."""
    header, offset = {"__metadata__": metadata}, 0
    for name, array in tensors.items():
        dtype = "BF16" if array.dtype == np.int16 else "F32"
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    folder = os.path.dirname(os.path.abspath(path))
    handle, part = tempfile.mkstemp(dir=folder, prefix=".record-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for array in tensors.values():
                file.write(array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes())
        os.chmod(part, 0o644)
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("model", choices=["gpt", "resnet20"])
    parser.add_argument("output", help="the safetensors file to write")
    parser.add_argument("--data", help="text, a file or a folder of files (gpt), or a folder of CIFAR-10 binaries (resnet20)")
    parser.add_argument("--tensors", metavar="PATTERN", help="record these matrices one by one, for bench recover")
    parser.add_argument("--width", type=int, default=256, help="of gpt (default 256)")
    parser.add_argument("--layers", type=int, default=4, help="of gpt (default 4)")
    parser.add_argument("--warmup", type=int, default=50, help="steps before the first recorded one (default 50)")
    parser.add_argument("--steps", type=int, default=12, help="steps to record (default 12)")
    parser.add_argument("--batch", type=int, default=0, help="sequences or images a step (default 8 or 64)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if min(args.steps, args.threads, args.layers) < 1 or args.warmup < 0 or args.batch < 0:
        parser.error("--steps, --threads and --layers must be at least 1, --warmup and --batch at least 0")
    if args.width < 4 or args.width % 4:
        parser.error("--width must be a multiple of 4")
    # Debian's oneDNN has no fast kernels on aarch64: training is 2-3 times faster without it.
    torch.backends.mkldnn.enabled = False
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    if args.model == "gpt":
        task = gpt_task(args.data, args.batch or 8, args.width, args.layers)
    else:
        task = resnet_task(args.data, args.batch or 64)
    if args.tensors:
        tensors, about = record_matrices(task, args.warmup, args.steps, args.tensors)
    else:
        tensors, about = record_flat(task, args.warmup, args.steps)
    metadata = {"model": args.model, "warmup_steps": str(args.warmup), "torch": torch.__version__, **about}
    metadata.update(seed=str(args.seed), batch=str(args.batch or {"gpt": 8, "resnet20": 64}[args.model]))
    if args.data:
        metadata["data"] = os.path.basename(os.path.normpath(args.data))
    if args.model == "gpt":
        metadata.update(width=str(args.width), layers=str(args.layers))
    try:
        write_safetensors(args.output, tensors, metadata)
    except OSError as error:
        sys.exit(f"record_gradients: cannot write {args.output}: {error.strerror}")
    shape = " x ".join(str(n) for n in next(iter(tensors.values())).shape)
    print(f"{args.output}: {len(tensors)} tensors, the first of {shape} elements", file=sys.stderr)


if __name__ == "__main__":
    main()

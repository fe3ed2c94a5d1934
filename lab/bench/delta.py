#!/usr/bin/env python3
"""Weight deltas of a training run and of random changes: bytes, and times beside the limit of memory and other ways.

    lab/bench/delta.py train OUT --text train.u16 [--rates 1e-6,3e-6,1e-5,3e-5] [--layers 14] [--width 768]
    lab/bench/delta.py measure [OUT...] [--elements 100e6] [--densities 0.01] [--threads 2] [--record FILE]

train writes consecutive bf16 checkpoints of a GPT-2 in plain PyTorch, as OUT/RATE-0.safetensors and RATE-1: AdamW on
f32 weights, of which bf16 copies are used; first some hundred steps at 3e-4, then a few at each rate, the last two of
which are kept. It needs a GPU. measure takes such folders, or makes up weights of which a share changes, mostly by one
unit in the last place. It compares:

    delta      frugrad.delta.make() and apply(), in place
    zstd       xor with the base, then zstd -1 by so many threads; back: decompress, xor
    torch      int32 indices and values of what differs (torch.nonzero), one tensor at a time; back: index_put
    numpy      the same by np.flatnonzero
    limit      reading both versions (memcmp of equal arrays) and copying (memcpy), by so many threads

Run measure by `taskset -c A,B` with as many CPUs as threads. Times are the least of --repeat, taken in turn.
"""
import argparse
import ctypes
import ctypes.util
import json
import os
import platform
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(HERE, "python"))


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("command", choices=("train", "measure"))
    p.add_argument("folders", nargs="*")
    p.add_argument("--text", help="tokens, two bytes each")
    p.add_argument("--rates", default="1e-6,3e-6,1e-5,3e-5")
    p.add_argument("--layers", type=int, default=14)
    p.add_argument("--width", type=int, default=768)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--length", type=int, default=512)
    p.add_argument("--warm", type=int, default=300)
    p.add_argument("--steps", type=int, default=8, help="at each rate")
    p.add_argument("--elements", type=float, default=100e6)
    p.add_argument("--densities", default="0.01")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--repeat", type=int, default=7)
    p.add_argument("--record", help="append the records to this file")
    return p.parse_args()


# ---- files ----------------------------------------------------------------


def write_safetensors(path, tensors):
    """bf16 tensors."""
    import torch

    header, at = {}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [at, at + 2 * tensor.numel()]}
        at += 2 * tensor.numel()
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(tensor.contiguous().cpu().view(torch.int16).numpy().tobytes())


def read_safetensors(path):
    """bf16 tensors, as arrays of uint16."""
    import numpy as np

    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = np.frombuffer(file.read(), np.uint16)
    return {name: data[entry["data_offsets"][0] // 2:entry["data_offsets"][1] // 2].reshape(entry["shape"]).copy()
            for name, entry in header.items()}


# ---- a training run -------------------------------------------------------


def make_model(torch, a, vocabulary):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(a.width), nn.LayerNorm(a.width)
            self.qkv, self.out = nn.Linear(a.width, 3 * a.width), nn.Linear(a.width, a.width)
            self.up, self.down = nn.Linear(a.width, 4 * a.width), nn.Linear(4 * a.width, a.width)

        def forward(self, x):
            n, t, c = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, c // 64, 64).permute(2, 0, 3, 1, 4)
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(n, t, c))
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.positions = nn.Embedding(vocabulary, a.width), nn.Embedding(a.length, a.width)
            self.blocks, self.norm = nn.ModuleList(Block() for _ in range(a.layers)), nn.LayerNorm(a.width)
            self.apply(self.begin)

        @staticmethod
        def begin(module):
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)

        def forward(self, x):
            y = self.tokens(x) + self.positions.weight[:x.shape[1]]
            for block in self.blocks:
                y = block(y)
            return self.norm(y) @ self.tokens.weight.t()

    return Model()


def train(a):
    import numpy as np
    import torch

    torch.manual_seed(1)
    tokens = torch.from_numpy(np.fromfile(a.text, np.uint16).astype(np.int32)).cuda().long()
    model = make_model(torch, a, int(tokens.max()) + 1).cuda().to(torch.bfloat16)
    names = [name for name, _ in model.named_parameters()]
    short = list(model.parameters())
    master = [p.detach().float().requires_grad_() for p in short]
    optimizer = torch.optim.AdamW(master, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
    print(f"{sum(p.numel() for p in short) / 1e6:.1f} million parameters", flush=True)

    def step():
        first = torch.randint(len(tokens) - a.length - 1, (a.batch,), device="cuda")
        x = tokens[first[:, None] + torch.arange(a.length + 1, device="cuda")]
        loss = torch.nn.functional.cross_entropy(model(x[:, :-1]).flatten(0, 1).float(), x[:, 1:].flatten())
        loss.backward()
        for p, m in zip(short, master):
            m.grad, p.grad = p.grad.float(), None
        torch.nn.utils.clip_grad_norm_(master, 1.0)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_copy_(short, master)
        return loss

    def run(steps, rate):
        for group in optimizer.param_groups:
            group["lr"] = rate
        for _ in range(steps):
            loss = step()
        return loss.item()

    os.makedirs(a.folders[0], exist_ok=True)
    print(f"loss {run(a.warm, 3e-4):.3f} after {a.warm} steps", flush=True)
    for rate in a.rates.split(","):
        run(a.steps - 1, float(rate))
        for which in (0, 1):
            if which:
                run(1, float(rate))
            write_safetensors(os.path.join(a.folders[0], f"{rate}-{which}.safetensors"), dict(zip(names, short)))
        print(f"rate {rate} written", flush=True)


# ---- measurement ----------------------------------------------------------


def synthetic(elements, density):
    import numpy as np

    rng = np.random.default_rng(7)
    base = rng.standard_normal(elements, np.float32)
    base = (base.view(np.uint32) >> 16).astype(np.uint16)
    where = np.flatnonzero(rng.random(elements, np.float32) < density)
    step = rng.choice(np.array([1, 65535], np.uint16), len(where))
    far = rng.random(len(where)) < 0.1
    step[far] *= rng.integers(2, 30, int(far.sum())).astype(np.uint16)
    result = base.copy()
    result[where] += step
    return {"weight": base}, {"weight": result}


class Zstd:
    """libzstd by ctypes, at level 1."""

    def __init__(self, threads):
        self.lib = ctypes.CDLL(ctypes.util.find_library("zstd") or "libzstd.so.1")
        for name in ("ZSTD_compressBound", "ZSTD_compress2", "ZSTD_decompress", "ZSTD_CCtx_setParameter"):
            getattr(self.lib, name).restype = ctypes.c_size_t
        self.lib.ZSTD_createCCtx.restype = ctypes.c_void_p
        self.context = ctypes.c_void_p(self.lib.ZSTD_createCCtx())
        self.lib.ZSTD_CCtx_setParameter(self.context, 100, 1)  # compressionLevel
        self.lib.ZSTD_CCtx_setParameter(self.context, 400, threads if threads > 1 else 0)  # nbWorkers

    def compress(self, src, dst):
        length = self.lib.ZSTD_compress2(self.context, ctypes.c_void_p(dst.ctypes.data), ctypes.c_size_t(dst.nbytes),
                                         ctypes.c_void_p(src.ctypes.data), ctypes.c_size_t(src.nbytes))
        assert length <= dst.nbytes
        return length

    def decompress(self, src, length, dst):
        made = self.lib.ZSTD_decompress(ctypes.c_void_p(dst.ctypes.data), ctypes.c_size_t(dst.nbytes),
                                        ctypes.c_void_p(src.ctypes.data), ctypes.c_size_t(length))
        assert made == dst.nbytes


def in_threads(threads, bytes, work):
    """Call work(offset, length) for parts of an array."""
    part = bytes // threads // 64 * 64
    parts = [(i * part, part if i < threads - 1 else bytes - i * part) for i in range(threads)]
    running = [threading.Thread(target=work, args=p) for p in parts[1:]]
    for thread in running:
        thread.start()
    work(*parts[0])
    for thread in running:
        thread.join()


class Ways:
    """Every way to make and to apply the difference between two versions, and the limits."""

    def __init__(self, base, result, threads):
        import numpy as np
        import torch

        from frugrad import delta

        torch.set_num_threads(threads)
        self.np, self.torch, self.delta, self.threads = np, torch, delta, threads
        self.base, self.result = base, result
        self.work = {name: array.copy() for name, array in base.items()}
        largest = max(array.size for array in base.values())
        self.xor, self.sizes = np.empty(largest, np.uint16), {}
        self.zstd = Zstd(threads)
        bound = self.zstd.lib.ZSTD_compressBound(ctypes.c_size_t(2 * largest))
        self.packed, self.out = np.ones(bound, np.uint8), {}
        self.libc = ctypes.CDLL(None)
        self.flat = np.concatenate([array.reshape(-1) for array in base.values()])
        self.copy = self.flat.copy()

    def address(self, array, offset=0):
        return ctypes.c_void_p(array.ctypes.data + offset)

    def limit_make(self):
        in_threads(self.threads, self.flat.nbytes, lambda at, n: self.libc.memcmp(
            self.address(self.flat, at), self.address(self.copy, at), ctypes.c_size_t(n)))

    def limit_apply(self):
        in_threads(self.threads, self.flat.nbytes, lambda at, n: self.libc.memcpy(
            self.address(self.copy, at), self.address(self.flat, at), ctypes.c_size_t(n)))

    def delta_make(self):
        self.patch = self.delta.make(self.base, self.result, threads=self.threads)
        self.sizes["delta"] = len(self.patch)

    def delta_apply(self):
        self.delta.apply(self.work, self.patch, threads=self.threads)

    def zstd_make(self):
        self.out, total = {}, 0
        for name, base in self.base.items():
            xor = self.xor[:base.size]
            self.torch.bitwise_xor(self.int16(base), self.int16(self.result[name]), out=self.int16(xor))
            length = self.zstd.compress(xor, self.packed)
            self.out[name] = (self.packed[:length].copy(), length)
            total += length
        self.sizes["zstd"] = total

    def zstd_apply(self):
        for name, (packed, length) in self.out.items():
            work = self.work[name]
            xor = self.xor[:work.size]
            self.zstd.decompress(packed, length, xor)
            self.int16(work).bitwise_xor_(self.int16(xor))

    def int16(self, array):
        return self.torch.from_numpy(array.reshape(-1).view(self.np.int16))

    def torch_make(self):
        self.sparse = []
        for name, base in self.base.items():
            a, b = self.int16(base), self.int16(self.result[name])
            index = (a != b).nonzero().view(-1)
            self.sparse.append((name, index.to(self.torch.int32), b[index]))
        self.sizes["torch"] = sum(6 * len(index) for _, index, _ in self.sparse)

    def torch_apply(self):
        for name, index, values in self.sparse:
            self.int16(self.work[name])[index.long()] = values

    def numpy_make(self):
        self.listed = []
        for name, base in self.base.items():
            a, b = base.reshape(-1), self.result[name].reshape(-1)
            index = self.np.flatnonzero(a != b).astype(self.np.int32)
            self.listed.append((name, index, b[index]))
        self.sizes["numpy"] = sum(6 * len(index) for _, index, _ in self.listed)

    def numpy_apply(self):
        for name, index, values in self.listed:
            self.work[name].reshape(-1)[index] = values

    def restore(self):
        for name, array in self.base.items():
            self.work[name][...] = array

    def check(self, way):
        same = all((self.work[name] == array).all() for name, array in self.result.items())
        assert same, f"{way} does not make the result"


def measure_pair(a, base, result):
    ways = Ways(base, result, a.threads)
    least = {}
    for turn in range(a.repeat):
        for way in ("limit", "delta", "zstd", "torch", "numpy"):
            for action in ("make", "apply"):
                begin = time.perf_counter()
                getattr(ways, f"{way}_{action}")()
                took = time.perf_counter() - begin
                least[way, action] = min(least.get((way, action), took), took)
            if way != "limit":
                if turn == 0:
                    ways.check(way)
                ways.restore()
    elements = sum(array.size for array in base.values())
    entries = ways.delta.describe(ways.patch).entries
    return {"elements": elements, "density": entries / elements,
            "bits": {way: 8 * size / elements for way, size in ways.sizes.items()},
            "make_s": {way: round(t, 6) for (way, action), t in least.items() if action == "make"},
            "apply_s": {way: round(t, 6) for (way, action), t in least.items() if action == "apply"}}


def machine():
    for line in open("/proc/cpuinfo", encoding="utf-8"):
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.machine()


def commit():
    done = subprocess.run(["git", "-C", HERE, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or os.environ.get("COMMIT", "")


def show(record):
    make, apply, bits = record["make_s"], record["apply_s"], record["bits"]
    print(f"{record['data']}: {record['elements'] / 1e6:.1f} M elements, {100 * record['density']:.3f} % changed")
    for way in ("delta", "zstd", "torch", "numpy"):
        print(f"  {way:6} {bits[way]:7.4f} bit  make {1e3 * make[way]:8.2f} ms  {make['limit'] / make[way]:5.2f} of limit"
              f"  apply {1e3 * apply[way]:8.2f} ms  {apply['limit'] / apply[way]:5.2f}  slower than delta"
              f" {make[way] / make['delta']:6.1f} {apply[way] / apply['delta']:6.1f}", flush=True)


def measure(a):
    pairs = []
    for density in filter(None, a.densities.split(",")):
        pairs.append((f"synthetic {density}", lambda d=float(density): synthetic(int(a.elements), d)))
    for folder in a.folders:
        for name in sorted(os.listdir(folder), key=lambda n: float(n.rpartition("-")[0])):
            if name.endswith("-0.safetensors"):
                paths = [os.path.join(folder, name[:-len("0.safetensors")] + f"{i}.safetensors") for i in (0, 1)]
                rate = name.rpartition("-")[0]
                pairs.append((f"rate {rate}", lambda p=paths: [read_safetensors(path) for path in p]))
    for data, load in pairs:
        base, result = load()
        record = {"kind": "delta", "data": data, "threads": a.threads, "cpu": machine(), "commit": commit(),
                  **measure_pair(a, base, result)}
        show(record)
        if a.record:
            with open(a.record, "a", encoding="utf-8") as file:
                file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    a = arguments()
    train(a) if a.command == "train" else measure(a)

#!/usr/bin/env python3
"""Pretrain the two small models that the fine-tuning benchmark starts from, with PyTorch, in a given time each.

    lab/bench/pretrain_torch.py --data DIR [--out DIR] [--seconds 100] [--only gpt2|bert] [--layers 4] [--width 128] ...

DIR has wikitext-2/{train,valid}.txt and, for BERT, tokenizers/bert_base_uncased_vocab.txt; all may be .xz. Written are
gpt2-bytes.safetensors (a language model of bytes) and bert.safetensors (an encoder and its masked-word head), which
`frugrad finetune --weights` and `frugrad eval --weights` take: names, shapes and arithmetic are those of trainer/model.
At the end a line of JSON for each says the loss on the validation text as `frugrad eval --split valid` computes it,
which masks included, so that the two can be compared digit by digit; and the command to do so.

Runs on an NVIDIA GPU (bf16 autocast) or, for trying it out, on a processor. Needs PyTorch 1.13 or later, nothing else.
"""
import argparse
import array
import json
import lzma
import math
import os
import struct
import sys
import time
import unicodedata

import torch
import torch.nn.functional as F

SPLITS = ("train", "valid")
LENGTHS = {"gpt2": 128, "bert": 64}
FILES = {"gpt2": "gpt2-bytes.safetensors", "bert": "bert.safetensors"}
MODELS = {"gpt2": "gpt2", "bert": "bert-mlm-mini"}
TEXTS = {"train": "wikitext-2/train.txt", "valid": "wikitext-2/valid.txt",
         "vocab": "tokenizers/bert_base_uncased_vocab.txt"}


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", required=True)
    p.add_argument("--out", default=".")
    p.add_argument("--seconds", type=float, default=100, help="of training, each model")
    p.add_argument("--only", choices=["gpt2", "bert"])
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--width", type=int, default=128)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--length", type=int, help="[128 for gpt2, 64 for bert]")
    p.add_argument("--batch", type=int, default=512)
    p.add_argument("--rate", type=float, default=1.5e-3)
    p.add_argument("--decay", type=float, default=0.05)
    p.add_argument("--dropout", type=float, default=0.0)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--check-batches", type=int, default=40, help="windows of 64 samples evaluated while training")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    return p.parse_args()


def read(data, what):
    path = os.path.join(data, TEXTS[what])
    if os.path.exists(path):
        with open(path, "rb") as file:
            return file.read()
    with lzma.open(path + ".xz") as file:
        return file.read()


# ---- WordPiece, as trainer/data/wordpiece.c has it ----

def is_punctuation(c):
    o = ord(c)
    return 33 <= o <= 47 or 58 <= o <= 64 or 91 <= o <= 96 or 123 <= o <= 126 or unicodedata.category(c)[0] == "P"


def is_chinese(c):
    o = ord(c)
    return any(a <= o <= b for a, b in ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B81D),
                                        (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)))


class WordPiece:
    def __init__(self, text):
        self.ids = {word: i for i, word in enumerate(text.decode("utf-8").splitlines())}
        self.first, self.separator, self.mask = (self.ids[w] for w in ("[CLS]", "[SEP]", "[MASK]"))
        self.seen = {}

    def pieces(self, word):
        """Ids of a word without blanks or signs: the longest piece first."""
        at, out = 0, []
        while at < len(word):
            end = len(word)
            while end > at and ("##" if at else "") + word[at:end] not in self.ids:
                end -= 1
            if end == at or len(word) > 100:
                return [self.ids["[UNK]"]]
            out.append(self.ids[("##" if at else "") + word[at:end]])
            at = end
        return out

    def chunk(self, text):
        """Ids of a text without blanks."""
        words, word = [], ""
        for c in text:
            if unicodedata.category(c) in ("Cc", "Cf", "Co", "Cn", "Cs") or c == "\ufffd":
                continue
            if is_punctuation(c) or is_chinese(c):
                words += [word, c]
                word = ""
            else:
                word += "".join(d for d in unicodedata.normalize("NFD", c.lower()) if unicodedata.category(d) != "Mn")
        return [i for w in words + [word] if w for i in self.pieces(w)]

    def encode(self, text):
        out = array.array("i")
        for chunk in text.decode("utf-8", "ignore").split():
            if chunk not in self.seen:
                self.seen[chunk] = self.chunk(chunk)
            out.extend(self.seen[chunk])
        return out


# ---- models: a dictionary of tensors by the names of Hugging Face, and a function of them ----

def gpt2_shapes(a, vocab, length):
    w, residual = a.width, 0.02 / math.sqrt(2 * a.layers)
    shapes = {"wte.weight": ((vocab, w), 0.02), "wpe.weight": ((length, w), 0.02)}
    for i in range(a.layers):
        for norm in ("ln_1", "ln_2"):
            shapes[f"h.{i}.{norm}.weight"], shapes[f"h.{i}.{norm}.bias"] = ((w,), 1), ((w,), 0)
        for name, ins, outs, spread in (("attn.c_attn", w, 3 * w, 0.02), ("attn.c_proj", w, w, residual),
                                        ("mlp.c_fc", w, 4 * w, 0.02), ("mlp.c_proj", 4 * w, w, residual)):
            shapes[f"h.{i}.{name}.weight"], shapes[f"h.{i}.{name}.bias"] = ((ins, outs), spread), ((outs,), 0)
    shapes["ln_f.weight"], shapes["ln_f.bias"] = ((w,), 1), ((w,), 0)
    return shapes


def bert_shapes(a, vocab, length):
    w, e = a.width, "bert.embeddings."
    shapes = {e + "word_embeddings.weight": ((vocab, w), 0.02), e + "position_embeddings.weight": ((length, w), 0.02),
              e + "token_type_embeddings.weight": ((2, w), 0.02)}
    norms, linears = [e + "LayerNorm"], []
    for i in range(a.layers):
        b = f"bert.encoder.layer.{i}."
        linears += [(b + "attention.self." + n, w, w) for n in ("query", "key", "value")]
        linears += [(b + "attention.output.dense", w, w), (b + "intermediate.dense", w, 4 * w),
                    (b + "output.dense", 4 * w, w)]
        norms += [b + "attention.output.LayerNorm", b + "output.LayerNorm"]
    linears.append(("cls.predictions.transform.dense", w, w))
    norms.append("cls.predictions.transform.LayerNorm")
    for name, ins, outs in linears:
        shapes[name + ".weight"], shapes[name + ".bias"] = ((outs, ins), 0.02), ((outs,), 0)
    for name in norms:
        shapes[name + ".weight"], shapes[name + ".bias"] = ((w,), 1), ((w,), 0)
    shapes["cls.predictions.bias"] = ((vocab,), 0)
    return shapes


def create(shapes, device):
    p = {}
    for name, (shape, spread) in shapes.items():
        t = torch.full(shape, float(spread)) if len(shape) == 1 else torch.randn(shape) * spread
        p[name] = t.to(device).requires_grad_()
    return p


def attention(q, k, v, heads, causal):
    n, t, d = q.shape
    q, k, v = (z.reshape(n, t, heads, d // heads).transpose(1, 2) for z in (q, k, v))
    if hasattr(F, "scaled_dot_product_attention"):
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    else:
        s = q @ k.transpose(2, 3) * (d // heads) ** -0.5
        if causal:
            s = s.masked_fill(torch.ones(t, t, dtype=torch.bool, device=s.device).triu(1), float("-inf"))
        y = s.softmax(3) @ v
    return y.transpose(1, 2).reshape(n, t, d)


def gpt2(a, p, x, drop):
    def norm(name, y):
        return F.layer_norm(y, (a.width,), p[name + ".weight"], p[name + ".bias"], 1e-5)

    def linear(name, y):
        return y @ p[name + ".weight"] + p[name + ".bias"].to(y.dtype)

    y = F.dropout(p["wte.weight"][x] + p["wpe.weight"][: x.shape[1]], drop, drop > 0)
    for i in range(a.layers):
        h = f"h.{i}."
        z = attention(*linear(h + "attn.c_attn", norm(h + "ln_1", y)).split(a.width, 2), a.heads, True)
        y = y + F.dropout(linear(h + "attn.c_proj", z), drop, drop > 0)
        z = F.gelu(linear(h + "mlp.c_fc", norm(h + "ln_2", y)), approximate="tanh")
        y = y + F.dropout(linear(h + "mlp.c_proj", z), drop, drop > 0)
    return norm("ln_f", y) @ p["wte.weight"].t()


def bert(a, p, x, drop, asked):
    """Logits at the requested positions (a mask, or indices for every sample)."""
    def norm(name, y):
        return F.layer_norm(y, (a.width,), p[name + ".weight"], p[name + ".bias"], 1e-12)

    def linear(name, y):
        return F.linear(y, p[name + ".weight"], p[name + ".bias"])

    e = "bert.embeddings."
    y = p[e + "word_embeddings.weight"][x] + p[e + "position_embeddings.weight"][: x.shape[1]]
    y = F.dropout(norm(e + "LayerNorm", y + p[e + "token_type_embeddings.weight"][0]), drop, drop > 0)
    for i in range(a.layers):
        b = f"bert.encoder.layer.{i}."
        q, k, v = (linear(b + "attention.self." + n, y) for n in ("query", "key", "value"))
        z = F.dropout(linear(b + "attention.output.dense", attention(q, k, v, a.heads, False)), drop, drop > 0)
        y = norm(b + "attention.output.LayerNorm", y + z)
        z = linear(b + "output.dense", F.gelu(linear(b + "intermediate.dense", y)))
        y = norm(b + "output.LayerNorm", y + F.dropout(z, drop, drop > 0))
    y = y[asked] if asked.dtype == torch.bool else y.gather(1, asked[:, :, None].expand(-1, -1, a.width)).flatten(0, 1)
    y = norm("cls.predictions.transform.LayerNorm", F.gelu(linear("cls.predictions.transform.dense", y)))
    return F.linear(y, p[e + "word_embeddings.weight"], p["cls.predictions.bias"])


# ---- tasks: ids of both texts, the loss of a random batch, the loss on the validation text ----

class Bytes:
    def __init__(self, a, texts):
        self.a, self.vocab, self.length = a, 256, a.length or LENGTHS["gpt2"]
        self.ids = {s: torch.frombuffer(bytearray(texts[s]), dtype=torch.uint8).to(a.device) for s in SPLITS}
        self.shapes = gpt2_shapes(a, self.vocab, self.length)

    def loss(self, p):
        ids, T = self.ids["train"], self.length
        at = torch.randint(len(ids) - T, (self.a.batch, 1), device=ids.device) + torch.arange(T + 1, device=ids.device)
        x = ids[at].long()
        return F.cross_entropy(gpt2(self.a, p, x[:, :-1], self.a.dropout).flatten(0, 1).float(), x[:, 1:].flatten())

    def evaluate(self, p, most):
        """Mean loss of a byte: windows that do not overlap, the last one cut; of `most` batches, None: of all."""
        ids, T = self.ids["valid"].long(), self.length
        whole = (len(ids) - 1) // T
        windows = [(ids[: whole * T].view(-1, T)[i:i + 64], ids[1: whole * T + 1].view(-1, T)[i:i + 64])
                   for i in range(0, whole, 64)]
        if whole * T < len(ids) - 1:
            windows.append((ids[None, whole * T:-1], ids[None, whole * T + 1:]))
        total, count = 0.0, 0
        for x, y in windows[:most]:
            scores = gpt2(self.a, p, x, 0).flatten(0, 1).float()
            total += F.cross_entropy(scores, y.flatten(), reduction="sum").item()
            count += y.numel()
        return total / count


def mix(x):
    m = (1 << 64) - 1
    x = (x + 0x9E3779B97F4A7C15) & m
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & m
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & m
    return x ^ (x >> 31)


def mask(window, index, mark, vocab, seed=1):
    """What fgt_mask() of trainer/data/text_source.c makes of a window of the validation split, and the masked positions."""
    key = mix(mix(mix(seed) ^ (5 | 1 << 8)) ^ index)
    asked = [t for t in range(1, len(window) + 1) if (mix(key + 1 + t) >> 40) * 2.0 ** -24 < 0.15000000596046448]
    asked = asked or [1 + mix(key) % len(window)]
    out = list(window)
    for t in asked:
        bits = mix(key + 1 + t)
        what = (mix(bits) >> 40) * 2.0 ** -24
        if what < 0.800000011920929:
            out[t - 1] = mark
        elif what < 0.8999999761581421:
            out[t - 1] = mix(bits + 1) % vocab
    return out, asked


class Masked:
    def __init__(self, a, texts):
        self.a, self.length, self.pieces = a, a.length or LENGTHS["bert"], WordPiece(texts["vocab"])
        self.vocab = len(self.pieces.ids)
        ids = {s: self.pieces.encode(texts[s]) for s in SPLITS}
        self.ids = {s: torch.frombuffer(ids[s], dtype=torch.int32).to(a.device) for s in SPLITS}
        self.shapes = bert_shapes(a, self.vocab, self.length)
        self.batches = self.windows()

    def windows(self):
        """Batches of the validation text with frugrad's masks: tokens, original tokens, masked positions."""
        ids, W, rows = self.ids["valid"].tolist(), self.length - 2, []
        for i in range(0, len(ids), W):
            window = ids[i:i + W]
            hidden, asked = mask(window, i // W, self.pieces.mask, self.vocab)
            marks = [t in asked for t in range(len(window) + 2)]
            rows.append([[self.pieces.first, *x, self.pieces.separator] for x in (hidden, window)] + [marks])
        whole = len(ids) // W
        groups = [rows[i:min(i + 64, whole)] for i in range(0, whole, 64)]
        groups += [rows[whole:]] if whole < len(rows) else []
        return [tuple(torch.tensor([r[k] for r in g], device=self.a.device) for k in range(3)) for g in groups]

    def loss(self, p):
        a, ids, W = self.a, self.ids["train"], self.length - 2
        at = torch.randint(len(ids) - W, (a.batch, 1), device=ids.device) + torch.arange(W, device=ids.device)
        x = F.pad(ids[at].long(), (1, 1))
        x[:, 0], x[:, -1] = self.pieces.first, self.pieces.separator
        places = torch.rand(a.batch, W, device=ids.device).topk(max(1, round(0.15 * W)), dim=1).indices + 1
        y = x.gather(1, places)
        what = torch.rand(places.shape, device=ids.device)
        new = torch.where(what < 0.9, torch.randint_like(y, self.vocab), y)
        new = torch.where(what < 0.8, torch.full_like(y, self.pieces.mask), new)
        return F.cross_entropy(bert(a, p, x.scatter(1, places, new), a.dropout, places).float(), y.flatten())

    def evaluate(self, p, most):
        total, count = 0.0, 0
        for x, y, marks in self.batches[:most]:
            total += F.cross_entropy(bert(self.a, p, x, 0, marks).float(), y[marks], reduction="sum").item()
            count += int(marks.sum())
        return total / count


# ---- training ----

def optimizer(a, p):
    groups = [{"params": [t for t in p.values() if t.dim() > 1], "weight_decay": a.decay},
              {"params": [t for t in p.values() if t.dim() == 1], "weight_decay": 0.0}]
    fused = {"fused": True} if a.device == "cuda" else {}
    return torch.optim.AdamW(groups, lr=a.rate, betas=(0.9, 0.98), eps=1e-8, **fused)


def train(a, task):
    """Train for a.seconds; the rate is a function of the time gone by. Returns the best weights seen and a summary."""
    p = create(task.shapes, a.device)
    opt, best, kept = optimizer(a, p), math.inf, None
    begin, shown, step, done = time.perf_counter(), 0.0, 0, 0.0
    while done < 1:
        rate = a.rate * min(1, done / 0.03 + 0.01) * max(0.02, 0.5 + 0.5 * math.cos(math.pi * done))
        for group in opt.param_groups:
            group["lr"] = rate
        with torch.autocast(a.device, dtype=torch.bfloat16, enabled=a.device == "cuda"):
            loss = task.loss(p)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(p.values()), 1.0)
        opt.step()
        step += 1
        if step % 20 == 0 or a.device == "cpu":
            loss = loss.item()  # waits for the device, so that the time is that of work done
            done = (time.perf_counter() - begin) / a.seconds
            if done >= shown or done >= 1:
                with torch.no_grad():
                    valid = task.evaluate(p, a.check_batches)
                print(f"  {100 * done:5.1f} %  step {step}  loss {loss:.4f}  valid {valid:.4f}", file=sys.stderr)
                shown += 0.1
                if valid < best:
                    best, kept = valid, {name: t.detach().clone() for name, t in p.items()}
    return kept, {"steps": step, "seconds": round(time.perf_counter() - begin, 1)}


def save(path, tensors):
    head, at = {"__metadata__": {"format": "pt"}}, 0
    for name, t in tensors.items():
        head[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [at, at + 4 * t.numel()]}
        at += 4 * t.numel()
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for t in tensors.values():
            values = array.array("f", t.float().cpu().flatten().tolist())
            if sys.byteorder == "big":
                values.byteswap()
            file.write(values.tobytes())


def main():
    a = arguments()
    a.device = a.device.split(":")[0]
    torch.manual_seed(a.seed)
    torch.backends.cuda.matmul.allow_tf32 = False  # evaluate in float32, as frugrad does
    os.makedirs(a.out, exist_ok=True)
    for name, kind in (("gpt2", Bytes), ("bert", Masked)):
        if a.only not in (None, name):
            continue
        task = kind(a, {what: read(a.data, what) for what in TEXTS if what != "vocab" or name == "bert"})
        weights, row = train(a, task)
        path = os.path.join(a.out, FILES[name])
        save(path, weights)
        with torch.no_grad():
            loss = task.evaluate(weights, None)
        model = f"{MODELS[name]}:layers={a.layers},width={a.width},heads={a.heads},length={task.length}"
        tokens = "bytes" if name == "gpt2" else os.path.join(a.data, TEXTS["vocab"])
        row = {"model": model, "file": path, "params": sum(t.numel() for t in weights.values()),
               "valid_loss": round(loss, 6), "torch": torch.__version__,
               "device": torch.cuda.get_device_name() if a.device == "cuda" else "cpu",
               "batch": a.batch, "rate": a.rate, "decay": a.decay, "dropout": a.dropout, "seed": a.seed, **row}
        print(json.dumps(row), flush=True)
        print(f"  frugrad eval --model {model} --weights {path} --data {os.path.join(a.data, 'wikitext-2')} "
              f"--tokens {tokens} --split valid", file=sys.stderr)


if __name__ == "__main__":
    main()

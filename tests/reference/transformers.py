#!/usr/bin/env python3
"""Writes tests/trainer/golden_transformers.inc: one training step of small GPT-2s and BERTs, computed by PyTorch in double
precision. test_nn_transformers.c builds the same models, with weights and tokens by the same formula, and compares.

    python3 tests/reference/transformers.py > tests/trainer/golden_transformers.inc
"""
import math

import numpy as np
import torch
import torch.nn.functional as F

RATE = 0.1  # of the one step of SGD


def uniform(stream, count):
    """count numbers in [0, 1): the function uniform() of the test."""
    mask = np.uint64(0xFFFFFFFF)
    h = (np.arange(1, count + 1, dtype=np.uint64) * np.uint64(2654435761) + np.uint64((stream + 1) * 2246822519)) & mask
    for _ in range(2):
        h ^= h >> np.uint64(15)
        h = (h * np.uint64(2246822519)) & mask
        h ^= h >> np.uint64(13)
    return (h >> np.uint64(8)).astype(np.float64) / 2**24


def weight(k, name, shape):
    w = np.float32(0.3) * (2 * uniform(k, math.prod(shape)) - 1).astype(np.float32)
    norm = name.endswith(".weight") and ("ln_" in name or "LayerNorm" in name)
    w = w + np.float32(1) if norm else w
    return torch.tensor(w.astype(np.float64).reshape(shape), requires_grad=True)


class Case:
    """A model's sizes, and the shapes of its weights by name, in the order of the flat buffer."""

    def __init__(self, label, kind, layers, width, heads, positions, vocab, samples, length, classes=0):
        self.label, self.kind, self.layers, self.width, self.heads = label, kind, layers, width, heads
        self.positions, self.vocab, self.samples, self.length, self.classes = positions, vocab, samples, length, classes
        self.shapes = {}
        (self.gpt2_shapes if kind == "language" else self.bert_shapes)()
        self.w = {name: weight(k, name, shape) for k, (name, shape) in enumerate(self.shapes.items())}
        rows = samples * length
        self.tokens = (uniform(1000, rows) * vocab).astype(np.int64).reshape(samples, length)
        self.targets = (uniform(1001, rows) * vocab).astype(np.int64).reshape(samples, length)
        self.segments = (uniform(1002, rows) * 2).astype(np.int64).reshape(samples, length)
        self.lengths = 1 + (uniform(1003, samples) * length).astype(np.int64)
        self.asked = uniform(1004, rows).reshape(samples, length) < 0.3
        self.labels = (uniform(1005, samples) * max(classes, 1)).astype(np.int64)
        self.numbers = torch.tensor(5 * uniform(1006, samples))

    def norm_shapes(self, name):
        self.shapes[name + ".weight"] = self.shapes[name + ".bias"] = (self.width,)

    def linear_shapes(self, name, out, inp, input_first=False):
        self.shapes[name + ".weight"] = (inp, out) if input_first else (out, inp)
        self.shapes[name + ".bias"] = (out,)

    def gpt2_shapes(self):
        d = self.width
        self.shapes["wte.weight"] = (self.vocab, d)
        self.shapes["wpe.weight"] = (self.positions, d)
        for i in range(self.layers):
            self.norm_shapes(f"h.{i}.ln_1")
            self.linear_shapes(f"h.{i}.attn.c_attn", 3 * d, d, True)
            self.linear_shapes(f"h.{i}.attn.c_proj", d, d, True)
            self.norm_shapes(f"h.{i}.ln_2")
            self.linear_shapes(f"h.{i}.mlp.c_fc", 4 * d, d, True)
            self.linear_shapes(f"h.{i}.mlp.c_proj", d, 4 * d, True)
        self.norm_shapes("ln_f")

    def bert_shapes(self):
        d = self.width
        self.shapes["bert.embeddings.word_embeddings.weight"] = (self.vocab, d)
        self.shapes["bert.embeddings.position_embeddings.weight"] = (self.positions, d)
        self.shapes["bert.embeddings.token_type_embeddings.weight"] = (2, d)
        self.norm_shapes("bert.embeddings.LayerNorm")
        for i in range(self.layers):
            p = f"bert.encoder.layer.{i}."
            for part in ("query", "key", "value"):
                self.linear_shapes(p + "attention.self." + part, d, d)
            self.linear_shapes(p + "attention.output.dense", d, d)
            self.norm_shapes(p + "attention.output.LayerNorm")
            self.linear_shapes(p + "intermediate.dense", 4 * d, d)
            self.linear_shapes(p + "output.dense", d, 4 * d)
            self.norm_shapes(p + "output.LayerNorm")
        if self.kind == "sentences":
            self.linear_shapes("bert.pooler.dense", d, d)
            self.linear_shapes("classifier", self.classes, d)
        else:
            self.linear_shapes("cls.predictions.transform.dense", d, d)
            self.norm_shapes("cls.predictions.transform.LayerNorm")
            self.shapes["cls.predictions.bias"] = (self.vocab,)

    # ---- the models ----

    def norm(self, name, x, epsilon):
        return F.layer_norm(x, (self.width,), self.w[name + ".weight"], self.w[name + ".bias"], epsilon)

    def linear(self, name, x):
        return F.linear(x, self.w[name + ".weight"], self.w[name + ".bias"])

    def conv1d(self, name, x):
        return x @ self.w[name + ".weight"] + self.w[name + ".bias"]

    def attention(self, q, k, v, seen):
        """seen: samples or 1 x 1 x T or 1 x T, true where a key may be looked at."""
        shape = (self.samples, self.length, self.heads, self.width // self.heads)
        q, k, v = (t.reshape(shape).transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(-2, -1) / math.sqrt(shape[3])
        shares = scores.masked_fill(~seen, -math.inf).softmax(-1)
        return (shares @ v).transpose(1, 2).reshape(self.samples, self.length, self.width)

    def gpt2(self):
        w, T = self.w, self.length
        x = w["wte.weight"][torch.tensor(self.tokens)] + w["wpe.weight"][:T]
        seen = torch.ones(T, T, dtype=torch.bool).tril()
        for i in range(self.layers):
            p = f"h.{i}."
            y = self.conv1d(p + "attn.c_attn", self.norm(p + "ln_1", x, 1e-5))
            x = x + self.conv1d(p + "attn.c_proj", self.attention(*y.split(self.width, 2), seen))
            y = self.conv1d(p + "mlp.c_fc", self.norm(p + "ln_2", x, 1e-5))
            y = 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
            x = x + self.conv1d(p + "mlp.c_proj", y)
        scores = self.norm("ln_f", x, 1e-5) @ w["wte.weight"].T
        return F.cross_entropy(scores.reshape(-1, self.vocab), torch.tensor(self.targets).reshape(-1))

    def bert(self):
        w, T, e = self.w, self.length, "bert.embeddings."
        there = torch.arange(T)[None, :] < torch.tensor(self.lengths)[:, None]
        tokens = torch.tensor(self.tokens) * there
        x = w[e + "word_embeddings.weight"][tokens] + w[e + "position_embeddings.weight"][:T]
        x = x + w[e + "token_type_embeddings.weight"][torch.tensor(self.segments)]
        x = self.norm(e + "LayerNorm", x, 1e-12)
        for i in range(self.layers):
            p = f"bert.encoder.layer.{i}."
            qkv = [self.linear(p + "attention.self." + part, x) for part in ("query", "key", "value")]
            y = self.linear(p + "attention.output.dense", self.attention(*qkv, there[:, None, None, :]))
            x = self.norm(p + "attention.output.LayerNorm", x + y, 1e-12)
            y = self.linear(p + "output.dense", F.gelu(self.linear(p + "intermediate.dense", x)))
            x = self.norm(p + "output.LayerNorm", x + y, 1e-12)
        return self.sentences(x) if self.kind == "sentences" else self.masked(x, there)

    def sentences(self, x):
        scores = self.linear("classifier", torch.tanh(self.linear("bert.pooler.dense", x[:, 0])))
        if self.classes == 1:
            return F.mse_loss(scores[:, 0], self.numbers)
        return F.cross_entropy(scores, torch.tensor(self.labels))

    def masked(self, x, there):
        p = "cls.predictions.transform."
        x = self.norm(p + "LayerNorm", F.gelu(self.linear(p + "dense", x)), 1e-12)
        scores = x @ self.w["bert.embeddings.word_embeddings.weight"].T + self.w["cls.predictions.bias"]
        targets = torch.where(torch.tensor(self.asked) & there, torch.tensor(self.targets), torch.tensor(-1))
        return F.cross_entropy(scores.reshape(-1, self.vocab), targets.reshape(-1), ignore_index=-1)

    # ---- the record ----

    def write(self):
        loss = self.gpt2() if self.kind == "language" else self.bert()
        loss.backward()
        print(f"static const tensor_record {self.label}_tensors[] = {{")
        for k, (name, w) in enumerate(self.w.items()):
            g = w.grad.reshape(-1)
            pattern = torch.tensor(2 * uniform(5000 + k, g.numel()) - 1)
            after = (w.detach().reshape(-1) - RATE * g) @ pattern
            print(f'    {{"{name}", {g.sum():.9g}, {g.norm():.9g}, {g @ pattern:.9g}, {after:.9g}}},')
        print("};")
        return loss.item()


CASES = [
    Case("gpt2_tiny", "language", 2, 16, 2, 12, 23, 3, 10),
    Case("gpt2_middle", "language", 3, 64, 4, 80, 300, 4, 80),
    Case("bert_classes", "sentences", 2, 16, 4, 12, 21, 3, 9, 3),
    Case("bert_number", "sentences", 1, 12, 2, 9, 21, 4, 9, 1),
    Case("bert_masked", "masked", 2, 16, 4, 12, 21, 3, 9),
    Case("bert_masked_middle", "masked", 2, 48, 3, 70, 200, 3, 70),
]

if __name__ == "__main__":
    print("/* Written by tests/reference/transformers.py. */")
    print("/* name; the gradient's sum, norm and product with a pattern; the new weights' product with it */")
    losses = [c.write() for c in CASES]
    print("static const model_record model_records[] = {")
    for c, loss in zip(CASES, losses):
        task = {"language": "FGT_TASK_LANGUAGE", "sentences": "FGT_TASK_SENTENCES", "masked": "FGT_TASK_MASKED"}
        sizes = f"{c.layers}, {c.width}, {c.heads}, {c.positions}, {c.vocab}, {c.samples}, {c.length}, {c.classes}"
        print(f'    {{"{c.label}", {task[c.kind]}, {sizes}, {loss:.9g}, {c.label}_tensors, {len(c.w)}}},')
    print("};")

"""Models by name: residual networks and a vision transformer for small images, GPT-2, and BERTs that classify sentences.

A name may have options behind a colon, as ``gpt2-small:layers=2,width=64``. Modules and attributes have names that
``frugrad.torch.roles`` knows, so that attention heads are found.
"""

import functools
import math
from typing import Callable, Dict, List, NamedTuple, Optional, Tuple

import torch
import torch.nn as nn
import torch.nn.functional as F

from . import UsageError


class Model(NamedTuple):
    """A model that can be built."""

    name: str
    task: str  # images, language or sentences
    options: Dict[str, float]
    make: Callable[..., nn.Module]

    def build(self, vocab: int) -> nn.Module:
        return self.make(vocab, **self.options)


# ---- images

class PaddedShortcut(nn.Module):
    """Every stride-th pixel, and channels of zeros: the short cut without weights of He et al. for CIFAR-10."""

    def __init__(self, channels: int, stride: int):
        super().__init__()
        self.channels, self.stride = channels, stride

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = self.channels // 2
        return F.pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, before, self.channels - before))


class Residual(nn.Module):
    """Two convolutions of 3 x 3, or, where ``wide`` is 4, one of them between two of 1 x 1."""

    def __init__(self, inside: int, width: int, stride: int, wide: int, pads: bool):
        super().__init__()
        outside = wide * width
        if wide == 1:
            shape = [(inside, width, 3, stride), (width, outside, 3, 1)]
        else:
            shape = [(inside, width, 1, 1), (width, width, 3, stride), (width, outside, 1, 1)]
        layers: List[nn.Module] = []
        for a, b, kernel, step in shape:
            last = nn.BatchNorm2d(b)
            layers += [nn.Conv2d(a, b, kernel, step, kernel // 2, bias=False), last, nn.ReLU(inplace=True)]
        self.body = nn.Sequential(*layers[:-1])
        self.short: nn.Module = nn.Identity()
        if pads and stride != 1:
            self.short = PaddedShortcut(outside - inside, stride)
        elif stride != 1 or inside != outside:
            self.short = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))
        nn.init.zeros_(last.weight)  # a block begins as its short cut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.short(x), inplace=True)


def _resnet(depth: List[int], wide: int, pads: bool = False) -> Callable[..., nn.Module]:
    def make(_: int, width: int) -> nn.Module:
        """With the stem for small images: 3 x 3, stride 1, no pooling; ten classes."""
        layers: List[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width),
                                   nn.ReLU(inplace=True)]
        inside = width
        for stage, blocks in enumerate(depth):
            for i in range(blocks):
                layers.append(Residual(inside, width << stage, 2 if stage and i == 0 else 1, wide, pads))
                inside = wide * (width << stage)
        model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 10))
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        return model
    return make


# ---- transformers

def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, seen: Optional[torch.Tensor], dropout: float,
           causal: bool) -> torch.Tensor:
    """Attention; ``seen``: the mask of keys; None: all, or with ``causal`` those up to the query."""
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, seen, dropout, causal)
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if causal:
        seen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril()
    if seen is not None:
        scores = scores.masked_fill(~seen, -math.inf)
    return F.dropout(scores.softmax(-1), dropout) @ v


def _heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    return x.view(x.shape[0], x.shape[1], heads, -1).transpose(1, 2)


def _linear(a: int, b: int, std: float) -> nn.Linear:
    linear = nn.Linear(a, b)
    nn.init.normal_(linear.weight, std=std)
    nn.init.zeros_(linear.bias)
    return linear


def _table(rows: int, width: int, std: float = 0.02) -> nn.Embedding:
    table = nn.Embedding(rows, width)
    nn.init.normal_(table.weight, std=std)
    return table


class CausalAttention(nn.Module):
    def __init__(self, width: int, heads: int, layers: int, dropout: float):
        super().__init__()
        self.num_heads, self.dropout = heads, dropout
        self.qkv, self.o = _linear(width, 3 * width, 0.02), _linear(width, width, 0.02 / math.sqrt(2 * layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (_heads(y, self.num_heads) for y in self.qkv(x).split(x.shape[2], 2))
        y = attend(q, k, v, None, self.dropout if self.training else 0.0, True)
        return self.o(y.transpose(1, 2).reshape(x.shape))


class GPT2Block(nn.Module):
    def __init__(self, width: int, heads: int, layers: int, dropout: float):
        super().__init__()
        self.ln1, self.ln2, self.drop = nn.LayerNorm(width), nn.LayerNorm(width), nn.Dropout(dropout)
        self.attention = CausalAttention(width, heads, layers, dropout)
        self.up, self.down = _linear(width, 4 * width, 0.02), _linear(4 * width, width, 0.02 / math.sqrt(2 * layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.drop(self.attention(self.ln1(x)))
        return x + self.drop(self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh")))


class GPT2(nn.Module):
    """As published, 124 M parameters with its vocabulary; embeddings tied. Gives scores of the next token."""

    def __init__(self, vocab: int, layers: int, width: int, heads: int, length: int, dropout: float):
        super().__init__()
        self.wte, self.wpe = _table(vocab, width), _table(length, width, 0.01)
        self.blocks = nn.ModuleList(GPT2Block(width, heads, layers, dropout) for _ in range(layers))
        self.ln, self.drop = nn.LayerNorm(width), nn.Dropout(dropout)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.drop(self.wte(ids) + self.wpe.weight[:ids.shape[1]])
        for block in self.blocks:
            x = block(x)
        return F.linear(self.ln(x), self.wte.weight)


class BertAttention(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.num_heads, self.dropout = heads, dropout
        self.query, self.key, self.value, self.o_proj = (_linear(width, width, 0.02) for _ in range(4))

    def forward(self, x: torch.Tensor, seen: Optional[torch.Tensor]) -> torch.Tensor:
        q, k, v = (_heads(part(x), self.num_heads) for part in (self.query, self.key, self.value))
        y = attend(q, k, v, seen, self.dropout if self.training else 0.0, False)
        return self.o_proj(y.transpose(1, 2).reshape(x.shape))


class BertLayer(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.attention, self.drop = BertAttention(width, heads, dropout), nn.Dropout(dropout)
        self.ln1, self.ln2 = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)
        self.up, self.down = _linear(width, 4 * width, 0.02), _linear(4 * width, width, 0.02)

    def forward(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        x = self.ln1(x + self.drop(self.attention(x, seen)))
        return self.ln2(x + self.drop(self.down(F.gelu(self.up(x)))))


class Bert(nn.Module):
    """BERT with a pooled first token and two classes, of tokens and their segments; token 0 is padding."""

    def __init__(self, vocab: int, layers: int, width: int, heads: int, length: int, dropout: float,
                 segments: bool = False):
        super().__init__()
        self.tokens, self.positions = _table(vocab, width), _table(length, width)
        self.segments = _table(2, width) if segments else None
        self.ln, self.drop = nn.LayerNorm(width, eps=1e-12), nn.Dropout(dropout)
        self.layers = nn.ModuleList(BertLayer(width, heads, dropout) for _ in range(layers))
        self.pooler, self.classifier = _linear(width, width, 0.02), _linear(width, 2, 0.02)

    def forward(self, sample: torch.Tensor) -> torch.Tensor:
        ids = sample[:, 0]
        seen = (ids != 0)[:, None, None, :]
        x = self.tokens(ids) + self.positions.weight[:ids.shape[1]]
        if self.segments is not None:
            x = x + self.segments(sample[:, 1])
        x = self.drop(self.ln(x))
        for layer in self.layers:
            x = layer(x, seen)
        return self.classifier(self.drop(torch.tanh(self.pooler(x[:, 0]))))


class ViTBlock(nn.Module):
    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.ln1, self.ln2, self.drop = nn.LayerNorm(width), nn.LayerNorm(width), nn.Dropout(dropout)
        self.attention = BertAttention(width, heads, dropout)
        self.up, self.down = _linear(width, 4 * width, 0.02), _linear(4 * width, width, 0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.drop(self.attention(self.ln1(x), None))
        return x + self.drop(self.down(F.gelu(self.up(self.ln2(x)))))


class ViT(nn.Module):
    """A vision transformer for images of 32 x 32 and ten classes, which a first token stands for."""

    def __init__(self, _: int, patch: int, layers: int, width: int, heads: int, dropout: float):
        super().__init__()
        if 32 % patch:
            raise UsageError(f"--model: patch={patch} does not divide the 32 pixels of an image's side")
        self.patches, self.drop = nn.Conv2d(3, width, patch, patch), nn.Dropout(dropout)
        self.first, self.positions = _table(1, width), _table((32 // patch) ** 2 + 1, width)
        self.blocks = nn.ModuleList(ViTBlock(width, heads, dropout) for _ in range(layers))
        self.ln, self.classifier = nn.LayerNorm(width), _linear(width, 10, 0.02)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        patches = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.weight.expand(len(x), 1, -1).to(patches.dtype), patches], 1)
        x = self.drop(x + self.positions.weight)
        for block in self.blocks:
            x = block(x)
        return self.classifier(self.ln(x[:, 0]))


# ---- names

_TABLE: Dict[str, Tuple[str, Callable[..., nn.Module], Dict[str, float]]] = {
    "resnet20": ("images", _resnet([3, 3, 3], 1, True), {"width": 16}),
    "resnet32": ("images", _resnet([5, 5, 5], 1, True), {"width": 16}),
    "resnet18": ("images", _resnet([2, 2, 2, 2], 1), {"width": 64}),
    "resnet50": ("images", _resnet([3, 4, 6, 3], 4), {"width": 64}),
    "vit": ("images", ViT, {"patch": 4, "layers": 6, "width": 192, "heads": 6, "dropout": 0.0}),
    "gpt2-small": ("language", GPT2, {"layers": 12, "width": 768, "heads": 12, "length": 1024, "dropout": 0.1}),
    "bert-base": ("sentences", Bert, {"layers": 12, "width": 768, "heads": 12, "length": 512, "dropout": 0.1}),
    "minilm": ("sentences", functools.partial(Bert, segments=True),
               {"layers": 6, "width": 384, "heads": 12, "length": 128, "dropout": 0.1}),
    "bert-small": ("sentences", Bert, {"layers": 4, "width": 512, "heads": 8, "length": 128, "dropout": 0.1}),
}


def parse_model(text: str) -> Model:
    """A model by its name and options; UsageError if there is none."""
    name, _, rest = text.partition(":")
    if name not in _TABLE:
        raise UsageError(f"--model: there is no '{name}'; there are {', '.join(_TABLE)}")
    task, make, usual = _TABLE[name]
    options = dict(usual)
    for part in rest.split(",") if rest else ():
        key, _, value = part.partition("=")
        if key not in options:
            raise UsageError(f"--model: {name} has no option '{key}'; it has {', '.join(options) or 'none'}")
        try:
            options[key] = float(value) if key == "dropout" else int(value)
        except ValueError:
            raise UsageError(f"--model: {key}: '{value}' is not a number") from None
        if not (0 <= options[key] < 1 if key == "dropout" else 1 <= options[key] <= 1 << 20):
            raise UsageError(f"--model: {key}={value} is out of range")
    if "heads" in options and options["width"] % options["heads"]:
        raise UsageError(f"--model: a width of {options['width']} is no whole number of {options['heads']} heads")
    return Model(name, task, options, make)

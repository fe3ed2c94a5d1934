"""Weights of a pretrained BERT from a safetensors file, with the names that Hugging Face's models have."""

import json
import math
from pathlib import Path
from typing import Dict

import torch

from . import RunError
from .data_files import read

_TYPES = {"F32": (torch.float32, 4), "F16": (torch.float16, 2), "BF16": (torch.bfloat16, 2)}
_NAMES = {  # ours, theirs; of a layer behind layers.N and encoder.layer.N
    "tokens": "embeddings.word_embeddings", "positions": "embeddings.position_embeddings",
    "segments": "embeddings.token_type_embeddings", "ln": "embeddings.LayerNorm", "pooler": "pooler.dense",
    "attention.query": "attention.self.query", "attention.key": "attention.self.key",
    "attention.value": "attention.self.value", "attention.o_proj": "attention.output.dense",
    "ln1": "attention.output.LayerNorm", "up": "intermediate.dense", "down": "output.dense", "ln2": "output.LayerNorm",
}
_NEW = ("classifier.",)  # of a task, initialized at random


def read_safetensors(path: Path) -> Dict[str, torch.Tensor]:
    """The tensors of a file that have a floating-point type; others are left out."""
    raw = read(path.parent, path.name)
    length = int.from_bytes(raw[:8], "little")
    if len(raw) < 8 or length > len(raw) - 8:
        raise RunError(f"{path}: not a safetensors file: its header does not end")
    try:
        header = json.loads(raw[8:8 + length])
        return {name: _tensor(raw, 8 + length, entry) for name, entry in header.items()
                if name != "__metadata__" and entry["dtype"] in _TYPES}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(f"{path}: not a safetensors file: {error!r}") from None


def _tensor(raw: bytearray, begin: int, entry: dict) -> torch.Tensor:
    dtype, width = _TYPES[entry["dtype"]]
    (first, last), shape = entry["data_offsets"], [int(n) for n in entry["shape"]]
    if not 0 <= first <= last <= len(raw) - begin or min(shape, default=0) < 0 or math.prod(shape) * width != last - first:
        raise ValueError(f"a tensor of shape {shape} at {first} to {last} of {len(raw) - begin} bytes")
    if first == last:
        return torch.empty(shape)
    return torch.frombuffer(raw, dtype=dtype, count=math.prod(shape), offset=begin + first).view(shape).float()


def _theirs(name: str) -> str:
    module, _, kind = name.rpartition(".")
    if not module.startswith("layers."):
        return f"{_NAMES[module]}.{kind}"
    _, number, inside = module.split(".", 2)
    return f"encoder.layer.{number}.{_NAMES[inside]}.{kind}"


@torch.no_grad()
def load_bert(model: torch.nn.Module, path: Path) -> None:
    """Set all weights of a model but those of its classifier. Only the first positions are used where there are more."""
    tensors = read_safetensors(path)
    tensors = {name[5:] if name.startswith("bert.") else name: tensor for name, tensor in tensors.items()}
    for name, weight in model.named_parameters():
        if name.startswith(_NEW):
            continue
        found = tensors.get(_theirs(name))
        if found is None:
            raise RunError(f"{path}: has no tensor '{_theirs(name)}'")
        if name == "positions.weight":
            found = found[:len(weight)]
        if found.shape != weight.shape:
            raise RunError(f"{path}: '{_theirs(name)}' is {list(found.shape)}; the model has {list(weight.shape)}")
        weight.copy_(found)

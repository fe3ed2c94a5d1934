"""Pretrained weights from safetensors files, BERTs' with the names of Hugging Face, and weights to such files."""

import json
import math
from pathlib import Path
from typing import Dict

import torch

from .._floats import tensor_bytes
from . import RunError
from .data_files import read
from .models import PaddedShortcut, Residual

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


def write_safetensors(path: Path, tensors: Dict[str, torch.Tensor]) -> None:
    """Write tensors as F32, in the order that they are given in."""
    header, at = {}, 0
    for name, tensor in tensors.items():
        end = at + 4 * tensor.numel()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    try:
        with open(path, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for tensor in tensors.values():
                file.write(tensor_bytes(tensor.detach().float().flatten().view(torch.uint8)))
    except OSError as error:
        raise RunError(f"{path}: cannot write: {error}") from None


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


# ---- images

_INSIDE = {"body.0": "conv1", "body.1": "bn1", "body.3": "conv2", "body.4": "bn2"}


def _cifar_name(name: str, blocks: int) -> str:
    """The usual name of a tensor of a ResNet for CIFAR-10, which has ``blocks`` in each of three stages."""
    number, _, rest = name.partition(".")
    at = int(number) - 3  # behind the first convolution, its norm and ReLU
    if at < 0:
        return ("conv1.", "bn1.")[int(number)] + rest
    if at >= 3 * blocks:
        return "linear." + rest
    inside, _, kind = rest.rpartition(".")
    return f"layer{at // blocks + 1}.{at % blocks}.{_INSIDE[inside]}.{kind}"


def floats_of(model: torch.nn.Module) -> Dict[str, torch.Tensor]:
    """The weights and running statistics of a model; of ResNet-20 and -32 by the names of `frugrad train`."""
    found = {name: tensor for name, tensor in model.state_dict().items() if tensor.is_floating_point()}
    if not any(isinstance(module, PaddedShortcut) for module in model.modules()):
        return found
    blocks = sum(isinstance(module, Residual) for module in model.modules()) // 3
    return {_cifar_name(name, blocks): tensor for name, tensor in found.items()}


@torch.no_grad()
def load_images(model: torch.nn.Module, path: Path) -> None:
    """Set all weights and running statistics of a model for images."""
    tensors = read_safetensors(path)
    for name, weight in floats_of(model).items():
        found = tensors.get(name)
        if found is None or found.shape != weight.shape:
            raise RunError(f"{path}: has no tensor '{name}' of shape {list(weight.shape)}")
        weight.copy_(found)

"""What each parameter of a model is for, found from its modules: names, roles and attention heads.

Types of ``torch.nn`` decide first. Attention that is built of linear layers is known by the names that transformers
models use (q_proj, query, c_attn, ...). What is not known is "other" and is treated like any matrix.
"""

from typing import Dict, Iterable, Optional, Tuple

import torch.nn as nn

from .._core import Tensor

_CONV = (nn.modules.conv._ConvNd,)
_NORM = (nn.LayerNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase)
NAMES = {
    "attn_q": ("q_proj", "query", "q_lin", "q", "wq"),
    "attn_k": ("k_proj", "key", "k_lin", "k", "wk"),
    "attn_v": ("v_proj", "value", "v_lin", "v", "wv"),
    "attn_o": ("o_proj", "out_proj", "out_lin", "o", "wo"),
    "attn_qkv": ("c_attn", "qkv", "qkv_proj", "in_proj", "query_key_value"),
}
_ROLE_OF = {name: role for role, names in NAMES.items() for name in names}
_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "nhead")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads")


def is_conv1d(module: nn.Module) -> bool:
    """Whether this is the linear layer of transformers that has this name; others have convolutions of this name."""
    weight = module._parameters.get("weight")
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf") and weight is not None and weight.dim() == 2


def uncompiled(model: nn.Module) -> nn.Module:
    """The model in what torch.compile() returned: names of parameters do not depend on it."""
    return getattr(model, "_orig_mod", model)


def bare_model(model: nn.Module) -> nn.Module:
    """The model without DistributedDataParallel and torch.compile()."""
    model = uncompiled(model)
    return uncompiled(model.module) if isinstance(model, nn.parallel.DistributedDataParallel) else model


def describe(model: nn.Module) -> Dict[int, Tensor]:
    """Each parameter's description, by ``id(parameter)``; a shared one counts where it is seen first."""
    modules = dict(model.named_modules())
    numbers: Dict[str, int] = {}  # attention modules, from 1 on
    found: Dict[int, Tensor] = {}
    for path, module in modules.items():
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) in found:
                continue
            full = f"{path}.{name}" if path else name
            found[id(parameter)] = _tensor(full, parameter, path, module, modules, numbers)
    return found


def _tensor(full: str, parameter: nn.Parameter, path: str, module: nn.Module, modules: Dict[str, nn.Module],
            numbers: Dict[str, int]) -> Tensor:
    role, owner = _role(full.rpartition(".")[2], path, module, modules)
    heads = kv_heads = number = 0
    if role.startswith("attn"):
        heads, kv_heads = attention_heads(modules[owner]), _number(modules[owner], _KV_HEADS)
        if heads:
            number = numbers.setdefault(owner, len(numbers) + 1)
    return Tensor(full, tuple(parameter.shape), role, heads=heads, kv_heads=kv_heads, module=number,
                  input_first=type(module).__name__ == "Conv1D" and parameter.dim() == 2)


def _role(name: str, path: str, module: nn.Module, modules: Dict[str, nn.Module]) -> Tuple[str, str]:
    """The role of a parameter, and the path of the attention module that it belongs to."""
    parent, _, own = path.rpartition(".")
    if name.endswith("bias"):
        return "bias", ""
    if isinstance(module, nn.MultiheadAttention):
        return {"in_proj_weight": "attn_qkv", "q_proj_weight": "attn_q", "k_proj_weight": "attn_k",
                "v_proj_weight": "attn_v"}.get(name, "other"), path
    if isinstance(modules.get(parent), nn.MultiheadAttention):
        return "attn_o", parent
    if isinstance(module, _NORM) or type(module).__name__.endswith("RMSNorm"):
        return "norm", ""
    if isinstance(module, nn.Embedding):
        return "embedding", ""
    if isinstance(module, _CONV):
        return "conv", ""
    if isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D":
        return _ROLE_OF.get(own, "linear"), parent
    return "other", ""


def attention_heads(module: nn.Module) -> int:
    """The number of heads of an attention module; 0: it is not known."""
    return _number(module, _HEADS)


def _number(module: Optional[nn.Module], names: Iterable[str]) -> int:
    for source in (module, getattr(module, "config", None)):
        for name in names:
            value = getattr(source, name, None)
            if isinstance(value, int) and value > 0:
                return value
    return 0

"""Refusals of arguments that cannot work, each a sentence that says what was given and what to write."""

from typing import Any, Iterable, List, Sequence

import torch

_FULLY_SHARDED = ("FSDPModule", "FullyShardedDataParallel")


def require_model(value: Any, where: str) -> torch.nn.Module:
    """Refuse what is no module, and modules whose gradients DistributedDataParallel does not have."""
    if isinstance(value, str):
        raise TypeError(f"{where}: the first argument is the model, not the config")
    if isinstance(value, torch.optim.Optimizer):
        raise TypeError(f"{where}: the first argument is the model, and the optimizer comes after it")
    if not isinstance(value, torch.nn.Module):
        raise TypeError(f"{where}: the first argument is the model itself, not a {type(value).__name__}"
                        " (model.parameters() has no names)")
    return value


def refuse_sharded(model: torch.nn.Module, where: str) -> None:
    """Refuse models whose gradients are exchanged by something else than DistributedDataParallel."""
    refuse_deepspeed(model)
    for module in model.modules():
        names = [base.__name__ for base in type(module).__mro__]
        if any(name in names for name in _FULLY_SHARDED):
            raise TypeError(f"{where}: the model is sharded by FSDP, which has no DistributedDataParallel and other"
                            " hooks: use frugrad.torch.fsdp(), with fully_shard()")
    for name, parameter in model.named_parameters():
        if type(parameter).__name__ == "DTensor" or type(parameter.data).__name__ == "DTensor":
            raise TypeError(f"{where}: {name} is a DTensor, a piece of a parameter; the hook takes whole ones, as"
                            " DistributedDataParallel has them (sharded by fully_shard(): use frugrad.torch.fsdp())")


def refuse_deepspeed(model: torch.nn.Module) -> None:
    """Refuse an engine of DeepSpeed."""
    if type(model).__module__.startswith("deepspeed."):
        raise TypeError("this model is DeepSpeed's, which exchanges gradients itself and has no place for a hook: use"
                        " fully_shard (FSDP2) and frugrad.torch.fsdp, or DistributedDataParallel and its hook")


def require_optimizer(value: Any, where: str) -> torch.optim.Optimizer:
    """Refuse what is no optimizer."""
    if isinstance(value, torch.optim.Optimizer):
        return value
    if isinstance(getattr(value, "optimizer", None), torch.optim.Optimizer):
        raise TypeError(f"{where}: this is a {type(value).__name__}, which has an optimizer; give the optimizer itself")
    raise TypeError(f"{where}: an optimizer is wanted (torch.optim.SGD, AdamW, ...), not a {type(value).__name__}")


def refuse_other_parameters(optimizers: Sequence[torch.optim.Optimizer], parameters: Iterable[torch.Tensor],
                            what_to_do: str) -> None:
    """Refuse optimizers that have no parameter of the model, or a parameter twice."""
    held = [id(p) for each in optimizers for group in each.param_groups for p in group["params"]]
    if optimizers and not set(held).intersection(map(id, parameters)):
        raise ValueError(f"the optimizer has no parameter of this model: {what_to_do}")
    if len(set(held)) < len(held):
        raise ValueError("a parameter is in more than one optimizer, or twice in one: it would step twice")


def refuse_scheduled(optimizer: torch.optim.Optimizer, where: str) -> None:
    """Refuse an optimizer that a scheduler already follows: it would go on changing that one."""
    if hasattr(optimizer.step, "_wrapped_by_lr_sched") or hasattr(optimizer.step, "_with_counter"):
        raise ValueError(f"{where}: a scheduler was made for this optimizer already; make it afterwards, for the"
                         " optimizer that is returned")


def unknown_optimizer(optimizer: torch.optim.Optimizer) -> str:
    """Why an optimizer cannot be converted."""
    name, known = type(optimizer).__name__, known_classes()
    return (f"{name} is not one of torch.optim.{', '.join(each.__name__ for each in known)}, of which it is known how they"
            f" go with a momentum in the residual (classes derived from them are not). Keep {name} and write"
            " 'frugrad,feedback=none', which drops the entries that are not sent, or use one of these")


def known_classes() -> List[type]:
    """The optimizers of PyTorch that can be converted."""
    found = [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW]
    return found + ([torch.optim.Muon] if hasattr(torch.optim, "Muon") else [])


def check_scaler(scaler: Any, feedback: str, where: str) -> None:
    """Refuse what is no GradScaler, and one whose changes of the scale would clear the momentum of feedback=dgc."""
    if scaler is None:
        return
    if not hasattr(scaler, "get_scale"):
        raise TypeError(f"{where}, scaler=: a GradScaler is wanted, not a {type(scaler).__name__}")
    if feedback == "dgc" and getattr(scaler, "is_enabled", lambda: True)():
        raise ValueError(f"{where}, scaler=: feedback=dgc loses its momentum whenever the scale changes; use bfloat16"
                         " without a GradScaler, or another feedback")

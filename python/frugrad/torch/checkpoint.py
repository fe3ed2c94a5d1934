"""The format of a hook's state in a checkpoint, and how it is restored, also by another number of ranks.

A checkpoint has the residuals of each rank, in the compressor's own format (about a byte a parameter with the default
residual=int8), with the names and shapes of the parameters.
"""

import ctypes
import warnings
from typing import Any, Iterable, List, Sequence, Union

import torch

from .._core import Config, Tensor
from .engine import Engine

_VERSION = 1


def pack(config: str, step: int, total_steps: int, tensors: Sequence[Tensor], ranks: dict, world: int,
         scale: float) -> dict:
    """A state; ``scale`` is that of the residuals, by a GradScaler, and 0 without one."""
    return {"frugrad": _VERSION, "config": config, "step": step, "total_steps": total_steps, "world": world,
            "scale": scale, "tensors": [tuple(tensor) for tensor in tensors], "ranks": ranks}


def _is_state(given: Any) -> bool:
    return isinstance(given, dict) and given.get("frugrad") == _VERSION and given.get("step", -1) >= 0


def merge(states: Union[dict, Sequence[dict]]) -> dict:
    """One state of the states that the ranks have saved."""
    states = [states] if isinstance(states, dict) else list(states or [])
    if not states or not all(map(_is_state, states)):
        raise ValueError("this is no state of a frugrad.torch.DDPState, or one of another version")
    whole = dict(states[0], ranks={})
    for state in states:
        for key in ("config", "step", "world", "tensors"):
            if state[key] != whole[key]:
                raise ValueError(f"the states of different ranks do not belong together: they differ in '{key}'")
        whole["ranks"].update(state["ranks"])
    return whole


def state_tensor(engine: Engine) -> torch.Tensor:
    """A compressor's state as a tensor of bytes."""
    return torch.frombuffer(bytearray(engine.save()), dtype=torch.uint8)


def _bytes(tensor: torch.Tensor) -> bytes:
    tensor = tensor.cpu().contiguous()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel())


def tensors_of(state: dict) -> List[Tensor]:
    return [Tensor(*row) for row in state["tensors"]]


def require_same_model(state: dict, model: Iterable[Tensor]) -> None:
    """Refuse the state of another model: parameters of other shapes, or none in common. Some may be new or gone."""
    shapes, saved = {tensor.name: tensor.shape for tensor in model}, tensors_of(state)
    for tensor in saved:
        if shapes.get(tensor.name, tensor.shape) != tensor.shape:
            raise ValueError(f"this is the state of another model: {tensor.name} has the shape {tensor.shape} in it,"
                             f" and {shapes[tensor.name]} here")
    if saved and not any(tensor.name in shapes for tensor in saved):
        raise ValueError(f"this is the state of another model: it has {saved[0].name} and others, and none is here")


def restore_rank(engine: Engine, state: dict, rank: int, world: int) -> None:
    """Restore the residuals of this rank from a state."""
    ranks = state["ranks"]
    if not ranks:
        return
    same = world == state["world"]
    if same and rank not in ranks:
        raise ValueError(f"the state holds ranks {sorted(ranks)}, but not {rank}: load what this rank has saved, all of"
                         " them as a list, or one made by state_dict(all_ranks=True)")
    if not same and len(ranks) != state["world"]:
        raise ValueError(f"{state['world']} ranks saved this state, and {world} load it: that takes the states of all"
                         f" of them, as a list or from state_dict(all_ranks=True); here are {sorted(ranks)}")
    old = Engine(Config(state["config"]), tensors_of(state), state["total_steps"], 1, rank)
    if same and old.layout.hash == engine.layout.hash and old.config.text == engine.config.text:
        engine.restore(_bytes(ranks[rank]))
        return
    if engine.config.option("feedback") == "none":
        if old.config.option("feedback") != "none":
            warnings.warn("the residuals of the loaded state are dropped: it was saved with"
                          f" feedback={old.config.option('feedback')}, and this config has feedback=none")
        return
    missing: List[str] = []
    for member in [rank] if same else sorted(ranks):
        old.restore(_bytes(ranks[member]))
        missing = engine.add_residuals(old, 1.0 if same else 1.0 / len(ranks))
    if missing:
        warnings.warn("the residuals of these parameters are dropped, because the model has none of that name:"
                      f" {', '.join(missing)}")

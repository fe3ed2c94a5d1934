"""Masks that prune whole units: inner channels, neurons between two linear layers, attention heads.

A unit is a slice of several tensors: those that make its output and the one that reads it. A pruned unit has no bit in
any mask, so that the model computes the same without it. Which units are left is read from the masks themselves, so
that a resumed run needs nothing else. Counts and importance are those of ``frugrad train --sparse``.
"""

import math
from collections import Counter
from typing import Dict, Iterable, List, Mapping, NamedTuple, Sequence, Tuple, Union

import torch
import torch.nn as nn

from .roles import is_conv1d
from .sparse_masks import select_largest

Named = Union[str, nn.Module]
_NORMS = (nn.modules.batchnorm._BatchNorm,)
_TRANSPOSED = (nn.modules.conv._ConvTransposeNd,)


class UnitSlice(NamedTuple):
    """The slices of one parameter, or of running statistics: its axis has parts x units x length indices."""

    name: str
    axis: int
    parts: int = 1
    length: int = 1
    scored: bool = False  # the norm of the last part is a factor of the importance
    reads: bool = False  # the weights that read the unit


class UnitLayer(NamedTuple):
    """Units that can be removed without a change of other layers."""

    units: int
    slices: Tuple[UnitSlice, ...]
    fixed: bool = False  # the model's code has their number, so that they cannot be removed: heads, view(-1, 400)


# ---- layers of modules

def input_first(module: nn.Module) -> bool:
    """Whether the first axis of the weights is that of the inputs."""
    return is_conv1d(module) or isinstance(module, _TRANSPOSED)


def outputs(module: nn.Module) -> int:
    """How many outputs a module has, or how many channels a norm."""
    return int(module.num_features if isinstance(module, _NORMS) else module.weight.shape[int(input_first(module))])


def inputs(module: nn.Module) -> int:
    """How many inputs a convolution or linear layer has."""
    return int(module.weight.shape[1 - int(input_first(module))])


def _slice(name: str, size: int, units: int, axis: int, length: int = 0, scored: bool = False,
           reads: bool = False) -> UnitSlice:
    length = length or size // units
    parts = size // max(1, units * length)
    if parts == 0 or parts * units * length != size:
        raise ValueError(f"Sparsify: {name} does not have {units} units: {size} is not a multiple of it")
    return UnitSlice(name, axis, parts, length, scored, reads)


def make_layer(modules: Mapping[str, nn.Module], makers: Sequence[str], reader: str, heads: int = 0,
               fixed: bool = False) -> UnitLayer:
    """The layer of modules that make the units, with their norms, and the one that reads them.

    heads   their number, if the units are heads: the last of the modules makes the values, or all three
    """
    units, last = heads or outputs(modules[makers[0]]), modules[reader]
    reads = _slice(f"{reader}.weight", inputs(last), units, 1 - int(input_first(last)), scored=True, reads=True)
    norms = [m for m in makers if isinstance(modules[m], _NORMS) and modules[m].weight is not None]
    scored = norms[-1:] if norms else makers[-1:] if heads else [m for m in makers if not isinstance(modules[m], _NORMS)]
    slices: List[UnitSlice] = []
    for name in makers:
        module = modules[name]
        for own in ("weight", "bias", "running_mean", "running_var"):
            tensor = getattr(module, own, None)
            if tensor is not None:
                axis = int(input_first(module) and own == "weight")
                slices.append(_slice(f"{name}.{own}", tensor.shape[axis], units, axis, reads.length if heads else 0,
                                     own == "weight" and name in scored))
    return UnitLayer(units, (*slices, reads), fixed or heads > 0)


def _check(model: nn.Module, layer: UnitLayer) -> UnitLayer:
    tensors = {**dict(model.named_buffers()), **{name: p for name, p in model.named_parameters() if p.requires_grad}}
    for s in layer.slices:
        if s.name not in tensors:
            raise ValueError(f"Sparsify, units=: the model has no trainable parameter {s.name!r}")
        shape = tensors[s.name].shape
        if not 0 <= s.axis < len(shape) or min(layer.units, s.parts, s.length) < 1 or (
                s.parts * layer.units * s.length != shape[s.axis]):
            raise ValueError(f"Sparsify, units=: {s.name} of shape {tuple(shape)} does not have {layer.units} units: {s}")
    if [isinstance(tensors[s.name], nn.Parameter) for s in layer.slices if s.reads] != [True]:
        raise ValueError("Sparsify, units=: exactly one slice of a UnitLayer must have reads=True, and it must be of a"
                         " parameter")
    return layer


def layer_of(model: nn.Module, given: Union[UnitLayer, Sequence[Union[Named, int]]]) -> UnitLayer:
    """A layer that was given as modules or their names: the last one reads the units of the others. A number behind
    them is that of heads."""
    if isinstance(given, UnitLayer):
        return _check(model, given)
    modules = dict(model.named_modules())
    paths = {id(module): path for path, module in modules.items()}
    names = [x if isinstance(x, str) else paths.get(id(x), repr(x)) for x in given if not isinstance(x, int)]
    heads = [x for x in given if isinstance(x, int)]
    if isinstance(given, str) or len(names) < 2 or list(given[len(names):]) != [n for n in heads[:1] if n > 0]:
        raise ValueError(f"Sparsify, units=: {given!r}: expected modules or their names, of which the last one reads the"
                         " units of the others, and for attention the number of heads")
    for name in names:
        module = modules.get(name)
        if module is None:
            raise ValueError(f"Sparsify, units=: the model has no module {name!r}")
        weight, groups = module._parameters.get("weight"), getattr(module, "groups", 1)
        between = isinstance(module, _NORMS) and name not in (names[0], names[-1])
        if not between and (weight is None or weight.dim() < 2 or groups != 1):
            raise ValueError(f"Sparsify, units=: {name!r} is a {type(module).__name__}; expected linear layers and"
                             " convolutions without groups, with batch norms between them")
    return _check(model, make_layer(modules, names[:-1], names[-1], sum(heads)))


def refuse_overlap(layers: Sequence[UnitLayer]) -> None:
    """Refuse layers that have the same outputs or inputs of a module as their units: those could not be removed."""
    counts = Counter((s.name, s.axis) for layer in layers for s in layer.slices)
    for (name, _), count in counts.items():
        if count > 1:
            raise ValueError(f"Sparsify: {name} has the units of {count} layers. Give the layers as units=, each tensor"
                             " once as what makes units and once as what reads them, or leave it out by skip=")


# ---- masks

def _by_unit(tensor: torch.Tensor, s: UnitSlice, units: int) -> torch.Tensor:
    """A tensor as outer x parts x units x length x inner."""
    return tensor.reshape(math.prod(tensor.shape[:s.axis]), s.parts, units, s.length, -1)


def _axis_mask(s: UnitSlice, kept: torch.Tensor) -> torch.Tensor:
    return kept[None, :, None].expand(s.parts, len(kept), s.length).reshape(-1)


def _importance(layer: UnitLayer, tensors: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The norm of what makes the output of each unit times the norm of the weights that read it."""
    product = torch.ones(layer.units, dtype=torch.float64)
    for s in layer.slices:
        if s.scored:
            last = _by_unit(tensors[s.name].detach().cpu().double(), s, layer.units)[:, -1]
            product *= last.square().sum((0, 2, 3)).sqrt()
    return product.float()


def unpruned(layer: UnitLayer, tensors: Mapping[str, torch.Tensor], masks: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The units of which the mask of the weights that read them has a bit."""
    reads = next(s for s in layer.slices if s.reads)
    return _by_unit(masks[reads.name].view(tensors[reads.name].shape), reads, layer.units).flatten(3).any(3).any(1).any(0)


def prune(layers: Sequence[UnitLayer], tensors: Mapping[str, torch.Tensor], masks: Mapping[str, torch.Tensor],
          share: float) -> Dict[str, torch.Tensor]:
    """Masks without the least important units of every layer, so that the share of them stays, at least one."""
    changed = {name: mask.view(tensors[name].shape) for name, mask in masks.items()}
    for layer in layers:
        among = unpruned(layer, tensors, masks).cpu()
        kept = select_largest(_importance(layer, tensors), among, max(1, int(share * layer.units + 0.5)))
        for s in layer.slices:
            if s.name in changed:  # running statistics have no mask
                whole = changed[s.name]
                shape = [-1 if axis == s.axis else 1 for axis in range(whole.dim())]
                changed[s.name] = whole & _axis_mask(s, kept).to(whole.device).view(shape)
    return {name: mask.flatten() for name, mask in changed.items()}


# ---- removal

def _set_sizes(module: nn.Module) -> None:
    """The numbers of inputs and outputs that a module has beside its weights."""
    if isinstance(module, _NORMS):
        module.num_features = len(module.weight if module.weight is not None else module.running_mean)
        return
    weight = getattr(module, "weight", torch.empty(0, 0))
    sizes = weight.shape[:2] if input_first(module) else weight.shape[1::-1]
    for names, size in zip((("in_features", "in_channels", "nx"), ("out_features", "out_channels", "nf")), sizes):
        for name in names:
            if hasattr(module, name):
                setattr(module, name, int(size))


def _replace(tensor: torch.Tensor, smaller: torch.Tensor) -> None:
    """Change the data of a tensor, which stays the same object. PyTorch stores the shape of its gradient as long as
    there is a loss that was computed from it, and forgets that shape only with a change of type."""
    tensor.grad = None
    other = torch.float32 if tensor.dtype == torch.float16 else torch.float16
    tensor.data = torch.empty(0, dtype=other, device=tensor.device)
    tensor.data = smaller


def _refuse_other_states(optimizer: torch.optim.Optimizer, tensors: Iterable[torch.Tensor]) -> None:
    for tensor in tensors:
        for key, value in optimizer.state.get(tensor, {}).items():
            if isinstance(value, torch.Tensor) and value.numel() > 1 and value.shape != tensor.shape:
                raise ValueError(f"Sparsify: remove_units(): {key} of {type(optimizer).__name__} has shape"
                                 f" {tuple(value.shape)} for a parameter of shape {tuple(tensor.shape)}. Remove units"
                                 " after training, with optimizer.state.clear()")


def remove(model: nn.Module, optimizer: torch.optim.Optimizer, layers: Sequence[UnitLayer],
           masks: Dict[str, torch.Tensor]) -> List[UnitLayer]:
    """Remove pruned units from a model, from the states of its optimizer and from the masks. Returns the layers as they
    are then. Call it under no_grad."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    _refuse_other_states(optimizer, (tensors[s.name] for layer in layers for s in layer.slices))
    left = []
    for layer in layers:
        kept = unpruned(layer, tensors, masks)
        if layer.fixed or bool(kept.all()):
            left.append(layer)
            continue
        for s in layer.slices:
            tensor, index = tensors[s.name], _axis_mask(s, kept).nonzero().flatten()
            if s.name in masks:
                masks[s.name] = masks[s.name].view(tensor.shape).index_select(s.axis, index).flatten()
            states = optimizer.state.get(tensor, {})
            for key, value in states.items():
                if isinstance(value, torch.Tensor) and value.shape == tensor.shape:
                    states[key] = value.index_select(s.axis, index)
            _replace(tensor, tensor.detach().index_select(s.axis, index))
            _set_sizes(model.get_submodule(s.name.rpartition(".")[0]))
        left.append(layer._replace(units=int(kept.sum())))
    return left

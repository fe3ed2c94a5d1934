"""Which parameters the modules of ``fully_shard`` (FSDP2) hold, and how they are divided into chunks.

FSDP2 divides a parameter into as many chunks as its mesh has ranks, along one dimension, dimension 0 unless told
otherwise; all chunks are as long as the first, the last ones with padding or all padding. A module's gradients are
reduced together: the input of its reduce-scatter has the chunks of rank 0, parameter by parameter, then those of rank 1
and so on, and its output has this rank's.
"""

from time import perf_counter
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
import torch.nn as nn

from .._core import Tensor
from .fsdp_nonfinite import ModuleWatch
from .pipeline import Times
from .roles import describe


class Parameter(NamedTuple):
    """One parameter, whole."""

    name: str
    shape: Tuple[int, ...]
    dim: int  # that is divided
    role: str = "other"
    input_first: bool = False


class Chunk(NamedTuple):
    """What one rank of the mesh holds of a parameter."""

    parameter: Parameter
    rank: int
    ranks: int

    @property
    def name(self) -> str:
        return f"{self.parameter.name}[{self.rank}]"

    @property
    def padded(self) -> Tuple[int, ...]:
        shape, dim = self.parameter.shape, self.parameter.dim
        return shape[:dim] + (-(-shape[dim] // self.ranks),) + shape[dim + 1:]

    @property
    def begin(self) -> int:
        """The first index along the divided dimension."""
        dim = self.parameter.dim
        return min(self.rank * self.padded[dim], self.parameter.shape[dim])

    @property
    def length(self) -> int:
        """How many indices there are, without padding."""
        dim = self.parameter.dim
        return min(self.padded[dim], self.parameter.shape[dim] - self.begin)

    def tensor(self) -> Tensor:
        """For the layout: with the padding, which is zero, as in the buffers of FSDP."""
        shape = self.padded if len(self.padded) <= 8 else (self.padded[0], self.elements // self.padded[0])
        return Tensor(self.name, shape, self.parameter.role, input_first=self.parameter.input_first)

    @property
    def elements(self) -> int:
        return torch.Size(self.padded).numel()


class Unit:
    """One FSDPModule: what is exchanged together."""

    def __init__(self, name: str, module: nn.Module, parameters: Dict[int, Parameter]):
        self.name, self.module = name, module
        self._parameters = {id(p): parameters[id(p.sharded_param)] for p in self._sharded()}
        self.step, self.times, self._elapsed = 0, Times(), 0.0
        self.exchange: Any = None
        self.watch: ModuleWatch  # set when there is an engine
        self.entries = 0  # that are exchanged, with padding
        self.stage: Optional[torch.Tensor] = None  # a float32 copy of gradients in other types or on a GPU

    def _sharded(self) -> list:
        """FSDP's objects for the parameters, in the order of the reduce-scatter."""
        found = []
        for group in _groups(self.module):
            order = getattr(group, "_reduce_scatter_param_indices", None) or range(len(group.fsdp_params))
            found += [group.fsdp_params[i] for i in order]
        return found

    def trained(self) -> List[Parameter]:
        """The parameters that get gradients, in the order of the reduce-scatter."""
        return [self._parameters[id(p)] for p in self._sharded()
                if p.sharded_param.requires_grad and p.sharded_param.numel()]

    def parameters(self) -> List[Tuple[str, torch.Tensor]]:
        """All parameters by name, as the model and its optimizer have them."""
        return [(self._parameters[id(p)].name, p.sharded_param) for p in self._sharded()]

    def weights(self) -> List[Tuple[str, torch.Tensor]]:
        """This rank's shards of all parameters."""
        return [(name, p.detach().to_local().contiguous()) for name, p in self.parameters()]

    def floats(self, values: torch.Tensor, device: torch.device) -> torch.Tensor:
        """Values as float32 on the host or a GPU: themselves, or a copy that is made again at every step."""
        if values.dtype == torch.float32 and values.device == device:
            return values
        if self.stage is None or self.stage.numel() != values.numel():
            self.stage = torch.empty(values.numel(), dtype=torch.float32, device=device,
                                     pin_memory=values.is_cuda and device.type == "cpu")
        return self.stage.copy_(values)

    def count(self, entries: int, begun: float) -> None:
        """After an exchange that began at this time and gave this rank so many entries."""
        self.step += 1
        times = self.times
        times.calls += 1
        times.bytes_dense += 4 * entries
        self._elapsed += perf_counter() - begun
        times.python = self._elapsed - times.compress - times.wait - times.decode


def _groups(module: nn.Module) -> list:
    """FSDP's groups of parameters of a module: at most one before PyTorch 2.11."""
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    return list(groups) if groups is not None else [g for g in [state._fsdp_param_group] if g is not None]


def find_units(model: nn.Module) -> List[Unit]:
    """The FSDPModules of a model that have parameters of their own."""
    from torch.distributed.fsdp import FSDPModule

    modules = [(name, module) for name, module in model.named_modules() if isinstance(module, FSDPModule)]
    for _, module in modules:
        module.reshard()
    tensors = describe(model)
    parameters = {id(p): _parameter(tensors[id(p)], p) for p in model.parameters()}
    units = [Unit(name or type(module).__name__, module, parameters) for name, module in modules]
    return [unit for unit in units if unit.trained()]


def _parameter(tensor: Tensor, p: torch.Tensor) -> Parameter:
    dim = next((x.dim for x in getattr(p, "placements", ()) if x.is_shard()), 0)
    return Parameter(tensor.name, tuple(p.shape), dim, tensor.role, tensor.input_first)


def find_mesh(model: nn.Module) -> Any:
    """The one mesh over which a model is sharded; refuses what cannot be exchanged."""
    found = None
    for name, p in model.named_parameters():
        if p.is_meta:
            raise ValueError(f"'{name}' is on the meta device: call to_empty() and initialize or load the weights, and"
                             " make the optimizer, before frugrad.torch.fsdp()")
        mesh = getattr(p, "device_mesh", None)
        if mesh is None:
            if p.requires_grad:
                raise ValueError(f"'{name}' is not sharded, so its gradient would not be exchanged: call fully_shard()"
                                 " on the whole model too, or freeze it")
            continue
        if any(x.is_replicate() for x in p.placements):
            raise ValueError(f"'{name}' is on a mesh with replicas, over which FSDP has summed the gradient already"
                             " when the hook is called: shard over one dimension, fully_shard(...,"
                             " mesh=mesh[\"shard\"]), and give the other one as replicate_group=mesh[\"replicate\"]")
        if mesh.ndim != 1:
            raise ValueError(f"'{name}' is sharded over {mesh.ndim} dimensions of a mesh (tensor parallelism);"
                             " frugrad.torch.fsdp takes fully_shard over one dimension")
        if found is not None and (mesh.size(), mesh.get_local_rank()) != (found.size(), found.get_local_rank()):
            raise ValueError(f"'{name}' is sharded over {mesh.size()} ranks and other parameters over {found.size()};"
                             " frugrad.torch.fsdp takes one mesh for all")
        found = mesh
    if found is None:
        raise ValueError("the model has no parameter that fully_shard() has sharded")
    return found

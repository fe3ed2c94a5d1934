"""Runs with sparse weights (``--sparse``): gradients are exchanged, and states stored, without pruned weights.

The exchange and the optimizer work on a packed buffer, which has the weights that stay. When masks change, both are
made again for the new buffer, and residuals and states of weights that stay move along.
"""

from typing import Any, Callable, List, Sequence, Tuple

import torch

from ..._core import Compressor, Config, Layout, Tensor
from .. import sparse_masks, sparse_units
from ..find_units import find_layers
from ..sparse_masks import Growth, Masked
from ..sparse_options import UNIT_KINDS, SparseOptions, parse
from . import RunError, UsageError
from .flat import Flat, Group
from .loop import Run
from .optimizers import FlatOptimizer
from .workers import DeviceFrames, Exchange, Frames

Exchanged = Tuple[Compressor, Exchange, FlatOptimizer]

# Where all tensors are compressed alike, and no density or selection depends on where one ends, a frame has one section.
_JOINED = {"segment": "block", "vectors": "sparse", "min_size": "0", "layers": "even", "strict": "off", "frequency": "off"}


def read_sparse(text: str, random_weights: bool) -> SparseOptions:
    """The options of --sparse; UsageError for mistakes."""
    try:
        options = parse(text)
    except ValueError as error:
        raise UsageError(f"--sparse: {str(error).partition(': ')[2]}") from None
    if options.kind == "zeros" and random_weights:
        raise UsageError("--sparse zeros needs --weights with a pruned model: random weights have no zeros")
    return options


def check_sparse(config: Config, optimizer: str, power_sgd: bool) -> None:
    """Refuse methods whose states belong to whole tensors."""
    own = config.option("local") != "0" or config.option("reduce") == "gossip"
    whole = config.option("unit") != "element" or config.option("transform") != "off"
    if own or whole or power_sgd or config.option("feedback") == "dgc":
        raise UsageError("--sparse: not with local steps, gossip, powersgd, dgc, units other than elements or a"
                         " transform: their states belong to whole tensors")
    if optimizer.split(":")[0] not in ("sgd", "adamw", "merged", "adam-merged", "sign"):
        raise UsageError("--sparse: the optimizer is sgd, adamw, merged, adam-merged or sign")


def sparse_method(method: str) -> str:
    """The method with min_size=0, unless it has one: few weights of a matrix may be left."""
    return method if "min_size=" in method or method.split(",")[0] == "dense" else f"{method},min_size=0"


def find_unit_layers(model: torch.nn.Module, kind: str) -> List[sparse_units.UnitLayer]:
    """The layers of a model of ``frugrad train``, which does not count the pooler of BERT; none for other kinds."""
    layers = find_layers(model, kind, ["pooler."]) if kind in UNIT_KINDS else []
    if kind in UNIT_KINDS and not layers:
        what = {"channels": "channels that can be pruned", "heads": "attention heads"}
        raise RunError(f"--sparse: the model has no {what.get(kind, 'channels or heads that can be pruned')}")
    return layers


class PackedFlat(Flat):
    """The weights of a ``Flat`` that stay, in its order; ``index`` has their positions there."""

    def __init__(self, full: Flat, config: Config, masks: Sequence[torch.Tensor]):
        least, dense = int(config.option("min_size")), config.option("vectors") == "dense"
        self.sizes = [int(mask.sum()) for mask in masks]
        self.index = torch.cat(list(masks)).nonzero().flatten()
        self.n, self.names = len(self.index), full.names
        self.weights, self.grad = (torch.zeros(self.n, device=full.grad.device) for _ in range(2))
        self.groups: List[Group] = []
        tensors, at = [], 0
        for tensor, size in zip(full.layout, self.sizes):
            vector = len(tensor.shape) < 2
            tensors.append(tensor._replace(offset=None) if size == tensor.elements else tensor._replace(
                offset=None, shape=(size,) if vector else (1, size), heads=0, kv_heads=0, module=0, input_first=False))
            whole, end = size < least or (vector and dense), at + size
            self._add_group(Group(at, end, not whole, not vector))
            at = end
        self.layout = self.frame_layout = Layout(tensors)
        if all(config.option(name) == value for name, value in _JOINED.items()):
            self.frame_layout = Layout([Tensor(f"{self.names[0]}...{self.names[-1]}", (1, self.n), "linear")])

    def spread(self, values: torch.Tensor, n: int) -> torch.Tensor:
        """Packed values at their positions, zero elsewhere."""
        return torch.zeros(n, device=values.device).index_copy_(0, self.index, values)


def _move_optimizer(old: FlatOptimizer, new: FlatOptimizer, old_flat: PackedFlat, new_flat: PackedFlat, n: int) -> None:
    for name in ("first", "second"):
        state = torch.zeros(n, device=old_flat.grad.device)
        for part, group in zip(old.parts, old_flat.groups):
            if len(getattr(part, name)):
                state[old_flat.index[group.begin:group.end]] = getattr(part, name)
        for part, group in zip(new.parts, new_flat.groups):
            if len(getattr(part, name)):
                setattr(part, name, state[new_flat.index[group.begin:group.end]])
    new.t, new.inertia, new.squares = old.t, old.inertia, old.squares


def _move_residual(old: Compressor, new: Compressor, old_flat: PackedFlat, new_flat: PackedFlat, n: int) -> None:
    values = torch.empty(old_flat.n)
    old.get_residual(0, old_flat.n, values.data_ptr())
    moved = torch.zeros(n).index_copy_(0, old_flat.index.cpu(), values)[new_flat.index.cpu()].contiguous()
    new.set_residual(0, new_flat.n, moved.data_ptr())


def _move_exchange(old: Exchange, new: Exchange, old_flat: PackedFlat, new_flat: PackedFlat, n: int) -> None:
    if not isinstance(old, Frames) or not isinstance(new, Frames) or old.planner.config.option("feedback") == "none":
        return
    for a, b in zip(old.each, new.each):
        if isinstance(old, DeviceFrames):
            before = Compressor(old.planner.config, old_flat.frame_layout)
            after = Compressor(new.planner.config, new_flat.frame_layout)
            a.to_host(before)
            _move_residual(before, after, old_flat, new_flat, n)
            b.from_host(after)
        else:
            _move_residual(a, b, old_flat, new_flat, n)


class SparseRun(Run):
    """A run with masks.

    make            makes planner, exchange and optimizer for a packed buffer
    random_weights  an update at step 0 multiplies the weights that stay, so that the norms of tensors stay
    """

    def __init__(self, *arguments: Any, options: SparseOptions, config: Config, make: Callable[[Flat], Exchanged],
                 random_weights: bool):
        super().__init__(*arguments)
        self.options, self.config, self.make = options, config, make
        self.dense_bytes = self.exchange.dense_bytes
        self.layers = find_unit_layers(self.model, options.kind)
        self.keeps_norms = random_weights and not self.layers
        if self.layers:
            sliced = {s.name for layer in self.layers for s in layer.slices}
            self.masked = [name in sliced for name in self.full.names]
            self.log.print(f"units that can be pruned: {sum(layer.units for layer in self.layers)} in {len(self.layers)} layers")
        else:
            self.masked = [len(t.shape) >= 2 and t.role != "embedding" for t in self.full.layout]
        self.masks = [torch.ones(size, dtype=torch.bool, device=self.device) for size in self.full.sizes]
        self.growth = [torch.zeros_like(self.full.grad) for _ in range(self.plan.workers)] if options.kind == "rigl" else []
        self._use(self._packed(self.full.weights))

    def _packed(self, weights: torch.Tensor) -> PackedFlat:
        packed = PackedFlat(self.full, self.config, self.masks)
        torch.index_select(weights, 0, packed.index, out=packed.weights)
        return packed

    def _use(self, packed: PackedFlat) -> None:
        self.flat = self.packed = self.clip.flat = packed
        self.planner, self.exchange, self.optimizer = self.make(packed)
        self.exchange.dense_bytes = self.dense_bytes

    def _step(self, step: int) -> None:
        steps = self.plan.steps
        if self.options.is_due(step, steps):
            self._update(step)
        through = self.options.is_straight_through(step, steps)
        self.optimizer.squares.frozen = through
        if through and step == self.options.first_step(steps):
            self._project(0.0, True)
        super()._step(step)
        self._project(self.plan.rate * self.plan.schedule.at(step, steps), through)

    def _pass(self, step: int, worker: int) -> None:
        super()._pass(step, worker)
        torch.index_select(self.full.grad, 0, self.packed.index, out=self.packed.grad)
        if self.growth:
            self.growth[worker] += self.full.grad

    # ---- masks

    def _tensors(self, flat: torch.Tensor) -> List[Masked]:
        """The tensors that have masks, as parts of a buffer of the length of ``full``."""
        parts = zip(self.full.layout, flat.split(self.full.sizes), self.masked)
        return [Masked(t.shape, part, t.input_first) for t, part, masked in parts if masked]

    def _project(self, rate: float, through: bool) -> None:
        """The model's weights from those that the optimizer updates; with ``through`` the n largest of every m.

        The others decay, as in SR-STE (arXiv:2102.04010).
        """
        self.full.weights.index_copy_(0, self.packed.index, self.packed.weights)
        if not through:
            return
        for model, master in zip(self._tensors(self.full.weights), self._tensors(self.packed.weights)):
            selected = sparse_masks.select_n_of_m(master, self.options.n, self.options.m)
            model.weights.mul_(selected)
            master.weights.mul_(torch.where(selected, 1.0, 1 - rate * self.options.refine))

    def _update(self, step: int) -> None:
        master, old = self.packed.spread(self.packed.weights, self.full.n), (self.packed, self.exchange, self.optimizer)
        tensors, before = self._tensors(master), [m for m, masked in zip(self.masks, self.masked) if masked]
        if self.layers:
            changed = iter(self._prune_units(tensors, before, self.options.density_at(step, self.plan.steps)))
        else:
            changed = iter(sparse_masks.update(self.options, tensors, before, step, self.plan.steps, self._growth))
        self.masks = [next(changed) if masked else mask for mask, masked in zip(self.masks, self.masked)]
        for sums in self.growth:
            sums.zero_()
        if step == 0 and self.keeps_norms:
            self._restore_norms(master)
        self._use(self._packed(master))
        _move_exchange(old[1], self.exchange, old[0], self.packed, self.full.n)
        _move_optimizer(old[2], self.optimizer, old[0], self.packed, self.full.n)
        self.full.weights.zero_()
        self._project(0.0, False)

    def _prune_units(self, tensors: List[Masked], masks: Sequence[torch.Tensor], share: float) -> List[torch.Tensor]:
        names = [name for name, masked in zip(self.full.names, self.masked) if masked]
        weights = {name: t.weights.view(tuple(t.shape)) for name, t in zip(names, tensors)}
        return list(sparse_units.prune(self.layers, weights, dict(zip(names, masks)), share).values())

    def _growth(self, counts: Sequence[int]) -> List[List[Growth]]:
        masks = [m for m, masked in zip(self.masks, self.masked) if masked]
        return [sparse_masks.list_growth([t.weights for t in self._tensors(sums)], masks, counts) for sums in self.growth]

    def _restore_norms(self, master: torch.Tensor) -> None:
        """The norm of random weights preserves the scale of activations; without it a sparse model hardly learns."""
        for tensor, mask in zip(self._tensors(master), [m for m, masked in zip(self.masks, self.masked) if masked]):
            tensor.weights.mul_(tensor.weights.norm() / (tensor.weights * mask).norm().clamp(min=1e-30))

"""Sparse weights while training: gradual pruning of weights or of whole units, n of every m, or masks that move (RigL).

    sparsify = frugrad.torch.Sparsify(model, optimizer, "magnitude:density=0.1", total_steps=10000)
    state = frugrad.torch.DDPState(model, "frugrad", optimizer, sparsify=sparsify)
    ...
    optimizer.step()
    sparsify.step()
"""

from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, Union

import torch

from .._core import Config, Tensor
from . import sparse_masks, sparse_units
from ._group import Group
from .checks import refuse_other_parameters, refuse_sharded, require_model, require_optimizer
from .convert import ConvertedOptimizer, bare
from .find_units import find_layers
from .roles import bare_model, describe
from .sparse_masks import Growth, Masked
from .sparse_options import UNIT_KINDS, parse
from .sparse_units import Named, UnitLayer, layer_of

_VERSION = 1
_SAVED = ("master", "selected", "squares")  # of the straight-through phase


def _finite(gradient: torch.Tensor) -> torch.Tensor:
    """Zeros for NaN and infinity: with them a rank would select, and send, another number of sums than its peers."""
    return torch.nan_to_num(gradient, 0.0, 0.0, 0.0)


class Sparsify:
    """Prunes the weights of a model while it is trained: ``step()`` after each step of the optimizer.

    model          the model, or the DDP around it. Matrices and kernels get masks; embeddings, biases and norms do not,
                   but for whole units
    optimizer      the one that updates its weights, converted by ``frugrad.torch.optimizer()`` or not
    text           how, as ``frugrad train --sparse`` has it (docs/sparse-weights.md): ``magnitude``, ``rigl`` or ``nm``,
                   with options behind a colon, as "rigl:density=0.2,layers=global"; ``zeros`` keeps what is zero;
                   ``channels``, ``heads`` or ``units`` prunes whole channels and neurons, attention heads, or both
    total_steps    the length of training in optimizer steps: times in the text are shares of it
    process_group  that of the DDP; None: the default group
    skip           parts of names of parameters that stay dense; layers of units with such a parameter stay whole
    pretrained     the weights have been trained. Otherwise, where the first mask is that of random weights, those that
                   stay are multiplied so that the norm of each tensor stays, but for units
    units          the layers of units, where they are not to be found in the model: a list of tuples of modules or
                   their names, of which the last one reads the outputs of the others, as ("conv1", "bn1", "conv2");
                   of attention with the number of heads, as ("q", "k", "v", "out", 8); or of ``UnitLayer``

    ``unit_layers`` has what was found or given. A pruned unit has no weight left: neither those that make its output,
    with biases and batch norm, nor those that read it. ``remove_units()`` then makes the model smaller.

    Pruned weights are zero. Weights at the beginning and masks are those of the first rank, on all ranks: all ranks make
    the object. Give it to ``DDPState`` as ``sparsify=``: then frames have nothing of pruned weights, and no residual is
    stored for them. An update of masks sends a bit per weight, which ``stats()`` does not count. In the straight-through
    phase of ``nm`` all weights are sent, and Sparsify has a copy of them (4 bytes per weight); ``rigl`` has as much for
    sums of gradients. The states of PyTorch's optimizers keep the shape of the parameter, with zeros for pruned weights:
    they do not shrink, but a converted SGD has none.

    Adam's mean squares do not count gradients of the straight-through phase, which the mask has changed; a step's own
    gradient counts in that step.

    >>> import torch, frugrad.torch
    >>> model = torch.nn.Linear(100, 10)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> sparsify = frugrad.torch.Sparsify(model, optimizer, "magnitude:density=0.2,from=0,until=0.5", total_steps=4)
    >>> for _ in range(4):
    ...     optimizer.zero_grad()
    ...     model(torch.ones(1, 100)).sum().backward()
    ...     _ = optimizer.step()
    ...     sparsify.step()
    >>> sparsify.density, int((model.weight != 0).sum())
    (0.2, 200)

    Whole neurons, before the first step:

    >>> model = torch.nn.Sequential(torch.nn.Linear(100, 60), torch.nn.ReLU(), torch.nn.Linear(60, 10))
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> sparsify = frugrad.torch.Sparsify(model, optimizer, "units:density=0.5,from=0,until=0", total_steps=4)
    >>> [(layer.units, [s.name for s in layer.slices]) for layer in sparsify.unit_layers]
    [(60, ['0.weight', '0.bias', '2.weight'])]
    >>> sparsify.remove_units(), model[0]
    (30, Linear(in_features=100, out_features=30, bias=True))
    """

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer, text: str = "magnitude", *,
                 total_steps: int, process_group: Any = None, skip: Sequence[str] = (), pretrained: bool = False,
                 units: Optional[Sequence[Union[UnitLayer, Sequence[Union[Named, int]]]]] = None):
        model = require_model(model, "Sparsify")
        refuse_sharded(model, "Sparsify")
        model = bare_model(model)
        if any(map(torch.nn.parameter.is_lazy, model.parameters())):
            raise ValueError("Sparsify: a parameter of the model has no shape yet (LazyLinear): call the model once before")
        if total_steps < 1:
            raise ValueError(f"Sparsify: total_steps is {total_steps}; it must be the number of optimizer steps")
        self.text, self.options, self.total_steps = text, parse(text), total_steps
        self.step_count = 0
        self._optimizer = bare(require_optimizer(optimizer, "Sparsify"))
        refuse_other_parameters([self._optimizer], model.parameters(), "give Sparsify the one that updates it")
        self._group = process_group
        self._model, self.unit_layers = model, self._find_units(model, units, skip)
        self._masked: List[Tuple[Tensor, torch.nn.Parameter]] = self._list_masked(skip)
        if not self._masked:
            raise ValueError("Sparsify: the model has no matrix or kernel to prune")
        self.masks: Dict[str, torch.Tensor] = {
            t.name: torch.ones(t.elements, dtype=torch.bool, device=p.device) for t, p in self._masked}
        self._names = {id(p): t.name for t, p in self._masked}
        self._hook: Optional[Callable[[Dict[str, torch.Tensor]], None]] = None
        self._growth = {t.name: torch.zeros(t.elements, device=p.device)
                        for t, p in self._masked} if self.options.kind == "rigl" else {}
        self._master: Dict[str, torch.Tensor] = {}  # in the straight-through phase: the dense weights
        self._selected: Dict[str, torch.Tensor] = {}  # which of them the model has
        self._squares: Dict[str, torch.Tensor] = {}  # Adam's mean squares from before it
        self._updates: Dict[str, int] = {}  # and how many updates they had
        with torch.no_grad():  # DDP does so, but perhaps after the first masks and dense copies are taken
            Group(process_group).broadcast(model.parameters())
        self._begin(pretrained)

    def _find_units(self, model: torch.nn.Module, given: Optional[Sequence[Any]], skip: Sequence[str]) -> List[UnitLayer]:
        kind = self.options.kind
        if kind not in UNIT_KINDS:
            if given is not None:
                raise ValueError(f"Sparsify: units= is for {', '.join(UNIT_KINDS)}, not for {kind}")
            return []
        layers = find_layers(model, kind, skip) if given is None else [layer_of(model, layer) for layer in given]
        if not layers:
            outputs = "convolution or linear layer whose outputs one other layer alone reads, in a part that torch.fx can trace"
            attention = "attention with as many heads of keys and values as of queries, and a known name"
            wanted = {"channels": outputs, "heads": attention}.get(kind, f"{outputs}, or {attention}")
            raise ValueError(f"Sparsify: {kind}: the model has no {wanted}. Give the layers as units=, such as"
                             ' units=[("fc1", "fc2")]; docs/sparse-weights.md')
        sparse_units.refuse_overlap(layers)
        return layers

    def _list_masked(self, skip: Sequence[str]) -> List[Tuple[Tensor, torch.nn.Parameter]]:
        """The parameters that get masks: those of the units, or matrices and kernels."""
        known = describe(self._model)
        named = [(known[id(p)], p) for p in self._model.parameters() if p.requires_grad]
        if self.unit_layers:
            sliced = {s.name for layer in self.unit_layers for s in layer.slices}
            return [(t, p) for t, p in named if t.name in sliced]
        return [(t, p) for t, p in named
                if len(t.shape) >= 2 and t.role != "embedding" and not any(s in t.name for s in skip)]

    @torch.no_grad()
    def _begin(self, pretrained: bool) -> None:
        norms = [p.norm() for _, p in self._masked]
        self._change_masks()
        if self.options.is_due(0, self.total_steps) and not pretrained and not self.unit_layers:
            for (_, p), norm in zip(self._masked, norms):
                p.mul_(norm / p.norm().clamp(min=1e-30))

    @property
    def density(self) -> float:
        """The share of the weights of tensors with masks that stay."""
        return sum(int(mask.sum()) for mask in self.masks.values()) / sum(map(len, self.masks.values()))

    @torch.no_grad()
    def step(self) -> None:
        """After each step of the optimizer: keep pruned weights at zero, and change masks where that is due.

        Collective at steps at which masks change: all ranks call it equally often.
        """
        if self._growth and self._hook is None:
            for t, p in self._masked:
                if p.grad is not None:
                    self._growth[t.name] += _finite(p.grad.flatten())
        if self._master:
            self._step_master()
        else:
            self._apply()
        self.step_count += 1
        self._change_masks()

    def _apply(self) -> None:
        for t, p in self._masked:
            p.mul_(self.masks[t.name].view(p.shape))

    @torch.no_grad()
    def remove_units(self) -> int:
        """Remove pruned units from the model, which computes the same with smaller tensors. Returns how many were removed.

        After the last update of masks; where training continues, make DDP and ``DDPState`` again. Units of layers that
        are ``fixed`` stay, as zeros: the model's code has their number, as of attention heads and in ``view(-1, 400)``;
        write ``flatten(1)`` there.
        """
        last = self.options.last_step(self.total_steps)
        if not self.unit_layers or self.step_count < last:
            raise ValueError(f"Sparsify: remove_units() is for {', '.join(UNIT_KINDS)}, after the last update of masks at"
                             f" step {last}; this is {self.options.kind} at step {self.step_count}")
        before = sum(layer.units for layer in self.unit_layers)
        self.unit_layers = sparse_units.remove(self._model, self._optimizer, self.unit_layers, self.masks)
        self._masked, self._hook = self._list_masked(()), None
        return before - sum(layer.units for layer in self.unit_layers)

    # ---- masks

    def _tensors(self) -> List[Masked]:
        return [Masked(t.shape, self._master.get(t.name, p.detach().flatten().float()), t.input_first)
                for t, p in self._masked]

    def _change_masks(self) -> None:
        """Update masks where that is due before the next step, and begin or end the straight-through phase."""
        through = self.options.is_straight_through(self.step_count, self.total_steps)
        if self.options.is_due(self.step_count, self.total_steps):
            self._update()
        if through and not self._master:
            self._begin_straight_through()
        elif not through:
            self._master, self._selected, self._squares, self._updates = {}, {}, {}, {}

    def _update(self) -> None:
        before, tensors = self.masks, self._tensors()
        if self.unit_layers:
            share = self.options.density_at(self.step_count, self.total_steps)
            weights = {t.name: p for t, p in self._masked}
            changed = list(sparse_units.prune(self.unit_layers, weights, before, share).values())
        else:
            changed = sparse_masks.update(self.options, tensors, list(before.values()), self.step_count, self.total_steps,
                                          self._exchange_growth)
        packed = [sparse_masks.pack_bits(mask) for mask in changed]
        Group(self._group).broadcast(packed)
        self.masks = {name: sparse_masks.unpack_bits(bits, len(mask)) for (name, mask), bits in zip(before.items(), packed)}
        for (t, p), tensor in zip(self._masked, tensors):
            mask = self.masks[t.name]
            p.copy_((tensor.weights * mask).view(p.shape))
            self._clear_states(p, (mask & before[t.name]).view(p.shape))
        for sums in self._growth.values():
            sums.zero_()
        if self._hook is not None:
            self._hook(before)

    def _clear_states(self, p: torch.Tensor, stays: torch.Tensor) -> None:
        """States of the optimizer begin at zero for a weight that was pruned."""
        for value in self._optimizer.state.get(p, {}).values():
            if isinstance(value, torch.Tensor) and value.shape == p.shape:
                value.mul_(stays)

    # ---- growth

    def see_gradients(self, params: Sequence[torch.Tensor], buffer: torch.Tensor) -> None:
        """Add this rank's gradients, of a bucket, to the sums by which pruned weights grow."""
        if not self._growth:
            return
        for p, part in zip(params, buffer.split([p.numel() for p in params])):
            if id(p) in self._names:
                self._growth[self._names[id(p)]] += _finite(part)

    def _exchange_growth(self, counts: Sequence[int]) -> List[List[Growth]]:
        """The largest sums of every rank: 12 bytes for each weight that grows."""
        device = next(iter(self.masks.values())).device
        mine = sparse_masks.list_growth(list(self._growth.values()), list(self.masks.values()), counts)
        group = Group(self._group)
        if group.exchange is None or group.size == 1:
            return [mine]
        indices = torch.cat([g.indices for g in mine]).cpu()
        sums = torch.cat([g.sums for g in mine]).cpu()
        all_indices, all_sums = (torch.empty(group.size * len(x), dtype=x.dtype) for x in (indices, sums))
        group.exchange.gather(indices, all_indices).wait()
        group.exchange.gather(sums, all_sums).wait()
        rows = zip(all_indices.to(device).view(group.size, -1), all_sums.to(device).view(group.size, -1))
        return [list(map(Growth, i.split(list(counts)), s.split(list(counts)))) for i, s in rows]

    # ---- the straight-through phase

    def _begin_straight_through(self) -> None:
        self._master = {t.name: p.detach().flatten().float().clone() for t, p in self._masked}
        self._squares = {name: square.clone() for name, square, _ in self._mean_squares()}
        self._updates = {name: updates + 1 for name, _, (updates, _) in self._mean_squares()}
        self._project()

    def _step_master(self) -> None:
        """Take over what the optimizer has changed: of weights that the model has, the value; of others, which were
        zero in the model, the difference."""
        for t, p in self._masked:
            new = p.detach().flatten().float()
            self._master[t.name] = torch.where(self._selected[t.name], new, self._master[t.name] + new)
        for name, square, (updates, beta2) in self._mean_squares():
            if name in self._squares:  # with a bias correction as if there were no updates since
                ratio = (1 - beta2 ** updates) / (1 - beta2 ** self._updates[name])
                square.copy_(self._squares[name] * ratio)
        self._project()

    def _project(self) -> None:
        """The model has the n largest of every m; the others decay by the rate (SR-STE, arXiv:2102.04010)."""
        rates = {id(p): float(group["lr"]) for group in self._optimizer.param_groups for p in group["params"]}
        for t, p in self._masked:
            master = self._master[t.name]
            selected = sparse_masks.select_n_of_m(Masked(t.shape, master, t.input_first), self.options.n, self.options.m)
            p.copy_((master * selected).view(p.shape))
            master.mul_(torch.where(selected, 1.0, 1 - rates.get(id(p), 0.0) * self.options.refine))
            self._selected[t.name] = selected

    def _mean_squares(self) -> Iterator[Tuple[str, torch.Tensor, Tuple[int, float]]]:
        """Adam's mean squares of parameters with masks, the number of their updates, and beta2."""
        inner = self._optimizer
        groups = inner.step_groups() if isinstance(inner, ConvertedOptimizer) else inner.param_groups
        for group in groups:
            for p in group["params"]:
                name, state = self._names.get(id(p)), inner.state.get(p, {})
                if name is not None and "exp_avg_sq" in state and "betas" in group:
                    yield name, state["exp_avg_sq"], (int(state["step"]), float(group["betas"][1]))

    # ---- for DDPState

    def bind(self, masks_changed: Callable[[Dict[str, torch.Tensor]], None]) -> None:
        """Call this with the masks from before, by all ranks, whenever they have changed."""
        self._hook = masks_changed

    def packed(self, tensor: Tensor) -> Tensor:
        """A parameter as it is exchanged: where weights are pruned, a row of those that stay."""
        mask = self.masks.get(tensor.name)
        kept = tensor.elements if mask is None else int(mask.sum())
        shape = (1, kept) if len(tensor.shape) > 1 else (kept,)
        return tensor if kept == tensor.elements else Tensor(tensor.name, shape, tensor.role)

    def kept_index(self, params: Sequence[torch.Tensor]) -> Optional[torch.Tensor]:
        """The positions of weights that stay in a bucket of these parameters; None: all stay."""
        masks = [self.masks.get(self._names.get(id(p), "")) for p in params]
        if all(mask is None or bool(mask.all()) for mask in masks):
            return None
        return torch.cat([torch.ones(p.numel(), dtype=torch.bool, device=p.device) if mask is None else mask
                          for p, mask in zip(params, masks)]).nonzero().flatten()

    # ---- checkpoints

    def state_dict(self, all_ranks: bool = False) -> Dict[str, Any]:
        """Masks and what belongs to them, for a checkpoint. It is the same on all ranks, but for the sums of ``rigl``:
        with ``all_ranks=True`` (collective) it has those of every rank. Load it before the state of ``DDPState``."""
        group, sums = Group(self._group), torch.cat([torch.zeros(0), *(s.cpu() for s in self._growth.values())])
        growth = {group.rank: sums}
        if all_ranks and group.exchange is not None and self._growth:
            rows = torch.empty(group.size * len(sums))
            group.exchange.gather(sums, rows).wait()
            growth = dict(enumerate(rows.view(group.size, -1).clone()))
        return {"frugrad_sparse": _VERSION, "text": self.text, "total_steps": self.total_steps, "step": self.step_count,
                "masks": {name: mask.cpu() for name, mask in self.masks.items()}, "growth": growth,
                "world": group.size, "updates": dict(self._updates),
                **{key: {name: value.cpu().clone() for name, value in getattr(self, f"_{key}").items()} for key in _SAVED}}

    @torch.no_grad()
    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Restore what ``state_dict()`` returned. With another number of ranks the sums of ``rigl`` begin at zero."""
        if not isinstance(state, dict) or state.get("frugrad_sparse") != _VERSION:
            raise ValueError("this is no state of a frugrad.torch.Sparsify, or one of another version")
        for key, mine in (("text", self.text), ("total_steps", self.total_steps)):
            if state[key] != mine:
                raise ValueError(f"the state was saved with {key} {state[key]!r}, and this Sparsify has {mine!r}")
        if {name: len(mask) for name, mask in state["masks"].items()} != {n: len(m) for n, m in self.masks.items()}:
            raise ValueError("this is the state of another model: its masks have other names or sizes")
        before, device = self.masks, {t.name: p.device for t, p in self._masked}
        self.step_count, self._updates = state["step"], dict(state["updates"])
        self.masks = {name: state["masks"][name].to(device[name]) for name in before}
        for key in _SAVED:
            setattr(self, f"_{key}", {name: value.to(device[name], copy=True) for name, value in state[key].items()})
        group, sums = Group(self._group), torch.zeros(sum(map(len, self._growth.values())))
        if state["world"] == group.size:
            sums = state["growth"].get(group.rank, sums)
        for total, loaded in zip(self._growth.values(), sums.split([len(s) for s in self._growth.values()])):
            total.copy_(loaded)
        if not self._master:
            self._apply()
        if self._hook is not None:
            self._hook(before)


def require_sparsify(given: Any, model: Optional[torch.nn.Module]) -> Optional[Sparsify]:
    """What was given to DDPState as sparsify=."""
    if given is None:
        return None
    if not isinstance(given, Sparsify):
        raise TypeError(f"DDPState, sparsify=: a frugrad.torch.Sparsify is wanted, not a {type(given).__name__}")
    if model is None:
        raise ValueError("DDPState: with sparsify= give the model too: DDPState(model, config, optimizer, sparsify=sparsify)")
    return given


def check_sparse(config: Config) -> None:
    """Refuse configs whose states belong to whole tensors."""
    if config.option("unit") != "element" or config.option("feedback") == "dgc":
        raise ValueError("DDPState: with sparsify= units are elements and feedback is not dgc: masks change single weights")

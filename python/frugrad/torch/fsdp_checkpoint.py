"""The state of ``frugrad.torch.fsdp`` in a checkpoint, and how it is restored on another mesh.

Every rank saves its compressor's state, about a byte for each entry that it compresses with the default residual=int8,
as a tensor of bytes with a name of its own; and all of them the same description, as text. On the same mesh and with
the same config the bytes are restored as they are. Otherwise residuals are read from them parameter by parameter.
"""

import json
import warnings
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

import torch

from .._core import Config
from ._floats import tensor_bytes
from .engine import Engine
from .fsdp_units import Chunk, Parameter

_VERSION = 1


class Plan(NamedTuple):
    """What is compressed, and on which mesh."""

    config: str
    total_steps: int
    between: bool  # replicas; otherwise in a reduce-scatter
    peers: int  # ranks that exchange with each other: each has a residual of its own of the same entries
    shards: int
    units: Tuple[Tuple[Parameter, ...], ...]

    @property
    def pieces(self) -> int:
        """The number of ranks whose residuals together are of the whole gradient."""
        return self.shards if self.between else 1

    def chunks(self, piece: int) -> List[Chunk]:
        """What a rank has residuals of, in the order of its layout: its own chunks, or the chunks of all ranks."""
        indices = [piece] if self.between else range(self.shards)
        return [Chunk(p, index, self.shards) for unit in self.units for index in indices for p in unit]

    def parameters(self) -> Dict[str, Parameter]:
        return {p.name: p for unit in self.units for p in unit}

    def mesh(self) -> str:
        return f"{self.peers if self.between else 'one'} replica{'s' if self.between else ''} of {self.shards} shards"

    def text(self, step: int, scale: float) -> str:
        return json.dumps({"frugrad_fsdp": _VERSION, "step": step, "scale": scale, **self._asdict()})


def read_plan(text: Any) -> Tuple[Plan, int, float]:
    """A saved plan, its step, and the scale of its residuals."""
    try:
        fields = json.loads(text)
        if fields.pop("frugrad_fsdp") != _VERSION:
            raise ValueError
        step, scale, units = int(fields.pop("step")), float(fields.pop("scale", 0.0)), fields.pop("units")
        return Plan(units=tuple(tuple(_parameter(*row) for row in unit) for unit in units), **fields), step, scale
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError("this is no state of frugrad.torch.fsdp, or one of another version") from None


def _parameter(name: str, shape: List[int], *rest: Any) -> Parameter:
    return Parameter(name, tuple(shape), *rest)


def residual_key(peer: int, piece: int) -> str:
    return f"residual-{peer}-{piece}"


Source = Callable[[int, int], torch.Tensor]  # the bytes that a rank has saved, by peer and piece


def restore(engine: Engine, plan: Plan, peer: int, piece: int, saved: Plan, source: Source) -> None:
    """Restore what this rank has residuals of from a saved state.

    With another number of ranks that exchange, each gets the mean of all residuals: the mean over ranks, which is what
    changes the weights, stays the same.
    """
    if saved.between != plan.between:
        raise ValueError(f"the state was saved by {saved.mesh()}, and this is {plan.mesh()}: residuals of an exchange"
                         " between replicas and of a reduce-scatter are not the same")
    _check_parameters(plan, saved)
    if saved == plan:
        engine.restore(tensor_bytes(source(peer, piece)))
        return
    residuals = {chunk.name: torch.zeros(chunk.padded) for chunk in plan.chunks(piece)}
    peers = [peer] if saved.peers == plan.peers else range(saved.peers)
    for old_piece in range(saved.pieces):
        parts = _overlaps(saved.chunks(old_piece), plan.chunks(piece))
        if not parts:
            continue
        old = Engine(Config(saved.config), [c.tensor() for c in saved.chunks(old_piece)], saved.total_steps, 1, 0)
        for member in peers:
            old.restore(tensor_bytes(source(member, old_piece)))
            values = old.residuals()
            for theirs, mine in parts:
                _add_overlap(values[theirs.name], theirs, residuals[mine.name], mine, 1 / len(peers))
    _write(engine, residuals)


def _check_parameters(plan: Plan, saved: Plan) -> None:
    mine, theirs = plan.parameters(), saved.parameters()
    common = [name for name in theirs if name in mine]
    if theirs and not common:
        raise ValueError(f"the state is of another model: none of its {len(theirs)} parameters, as"
                         f" '{next(iter(theirs))}', is in this one")
    for name in common:
        if theirs[name][:3] != mine[name][:3]:
            raise ValueError(f"the state is of another model: '{name}' has shape {theirs[name].shape} there and"
                             f" {mine[name].shape} here, divided along dimension {theirs[name].dim} and"
                             f" {mine[name].dim}")
    missing = sorted(set(theirs) - set(mine))
    if missing:
        warnings.warn("the residuals of these parameters are dropped, because this model does not train them: "
                      + _list(missing))


def _list(names: List[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _overlaps(old: List[Chunk], new: List[Chunk]) -> List[Tuple[Chunk, Chunk]]:
    """Pairs of chunks that have entries in common."""
    by_name: Dict[str, List[Chunk]] = {}
    for chunk in new:
        by_name.setdefault(chunk.parameter.name, []).append(chunk)
    return [(a, b) for a in old for b in by_name.get(a.parameter.name, [])
            if max(a.begin, b.begin) < min(a.begin + a.length, b.begin + b.length)]


def _add_overlap(source: torch.Tensor, old: Chunk, target: torch.Tensor, new: Chunk, share: float) -> None:
    source = source.view(old.padded)
    low, high = max(old.begin, new.begin), min(old.begin + old.length, new.begin + new.length)
    dim = new.parameter.dim
    target.narrow(dim, low - new.begin, high - low).add_(source.narrow(dim, low - old.begin, high - low), alpha=share)


def _write(engine: Engine, residuals: Dict[str, torch.Tensor]) -> None:
    with engine.edit_residuals() as compressor:
        for name, values in residuals.items():
            r = engine.tensor_ranges[name]
            compressor.set_residual(r.begin, r.count, values.data_ptr())
    stored = engine.residuals()
    dropped = [name for name, values in residuals.items() if values.any() and not stored[name].any()]
    if dropped:
        warnings.warn("the residuals of these shards are dropped, because they are sent whole or this config has no"
                      f" residual: {_list(dropped)}")


class CheckpointReader:
    """One state in a checkpoint of torch.distributed.checkpoint. Each rank reads what it needs, by itself."""

    def __init__(self, checkpoint_id: Any, storage_reader: Any, key: str):
        self._id, self._storage, self._key = checkpoint_id, storage_reader, key
        self._sizes: Dict[str, Any] = {}

    def text(self) -> str:
        """The saved plan."""
        from torch.distributed.checkpoint import FileSystemReader

        self._storage = self._storage if self._storage is not None else FileSystemReader(self._id)
        self._sizes = self._storage.read_metadata().state_dict_metadata
        return self._read("plan", "")

    def tensor(self, name: str) -> torch.Tensor:
        return self._read(name, torch.empty(self._entry(name).size, dtype=torch.uint8))

    def _entry(self, name: str) -> Any:
        found = self._sizes.get(f"{self._key}.{name}")
        if found is None:
            raise ValueError(f"the checkpoint {self._id or ''} has no '{self._key}.{name}': was it saved with"
                             f" {{'{self._key}': state.state_dict()}}?")
        return found

    def _read(self, name: str, target: Any) -> Any:
        import torch.distributed.checkpoint as dcp

        self._entry(name)
        read = {self._key: {name: target}}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")  # no_dist is meant
            dcp.load(read, storage_reader=self._storage, checkpoint_id=self._id, no_dist=True)
        return read[self._key][name]

"""The compressor of one rank behind a hook, and the parameters that it knows.

Parameters have fixed ranges in one layout, whatever DDP's buckets are: a bucket is one or more ranges of it. So a
bucket rebuild moves nothing. Only a new parameter makes a new layout, and residuals are copied to it.
"""

import contextlib
import copy
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, TypeVar

import torch

from .._core import Compressor, Config, Layout, Tensor
from .pipeline import Times
from .transport import Comm, Reducer


_Engine = TypeVar("_Engine", bound="Engine")
_Key = TypeVar("_Key")


class Range(NamedTuple):
    """A range of the layout that is also one of a bucket."""

    begin: int  # in the layout
    count: int  # type: ignore[assignment]  # tuples have a method of this name
    offset: int  # in the bucket


# Appended to a config: the same without a residual, and with the defaults of what is for a residual only.
NO_FEEDBACK = ",feedback=none,beta=auto,hold=off,momentum=0.9,theta=0.1,mask=auto"


def by_blocks(config: Config) -> bool:
    """Whether tensors may be cut at blocks, and frames of a range are equally long on all workers."""
    return (config.option("rule") == "topk" and config.option("segment") == "block"
            and config.option("unit") == "element" and config.option("index") in ("fixed", "local", "bitmap")
            and config.option("value") in ("f32", "bf16", "f16", "int8") and config.option("layers") != "budget"
            and config.option("norm") == "off")


def compressed_parameters(known: Dict[_Key, Tensor], config: Config, total_steps: int) -> Set[_Key]:
    """Which of the parameters, given by id or name, a config compresses; all others are sent whole."""
    kept = [(key, tensor) for key, tensor in known.items() if tensor.elements]
    planner = Compressor(Config(config.text + NO_FEEDBACK + ",warmup=0,dense_every=0"), Layout(t for _, t in kept),
                         total_steps)
    return {key for i, (key, _) in enumerate(kept) if not planner.plan(0, i)["dense"]}


class Engine:
    """A compressor of one rank and the parameters that it knows."""

    compressor: Compressor

    def __init__(self, config: Config, tensors: Sequence[Tensor], total_steps: int, threads: int, rank: int):
        self.config, self.total_steps, self.threads, self.rank = config, total_steps, threads, rank
        self._know(tensors)

    def _know(self, tensors: Sequence[Tensor]) -> None:
        self.tensors = list(tensors)
        self.layout = Layout(self.tensors)
        self.tensor_ranges = {tensor.name: Range(tensor.begin, tensor.elements, 0) for tensor in self.layout}
        self._make()

    def _make(self) -> None:
        self.compressor = self._twin()

    def _twin(self) -> Compressor:
        return Compressor(self.config, self.layout, self.total_steps, self.threads, self.rank)

    def host_compressor(self) -> Compressor:
        """A compressor on the host with the residuals, to read."""
        return self.compressor

    @contextlib.contextmanager
    def edit_residuals(self) -> Iterator[Compressor]:
        """The same, to change them."""
        yield self.compressor

    def stats(self) -> dict:
        return self.compressor.stats()

    def extended(self: _Engine, tensors: Sequence[Tensor]) -> _Engine:
        """An engine that knows more parameters, with the residuals of this one."""
        grown = self._like(self.tensors + list(tensors))
        grown.add_residuals(self, 1.0)
        return grown

    def renewed(self: _Engine) -> _Engine:
        """The same without residuals, and without the error of an exchange."""
        return self._like(self.tensors)

    def remapped(self: _Engine, tensors: Sequence[Tensor], sources: Dict[str, torch.Tensor]) -> _Engine:
        """An engine for parameters of other sizes, with the residuals of this one.

        sources   for each element of a parameter the one of the residual it gets, below 0: zero; of others as it is
        """
        made, old = self._like(tensors), self.host_compressor()
        if self.config.option("feedback") == "none":
            return made
        with made.edit_residuals() as compressor:
            for name, r in made.tensor_ranges.items():
                values = self._residual(old, name)
                if name in sources:
                    source = sources[name].cpu()
                    values = torch.where(source < 0, torch.zeros(()), values[source.clamp(min=0)])
                compressor.set_residual(r.begin, r.count, values.data_ptr())
        return made

    def _like(self: _Engine, tensors: Sequence[Tensor]) -> _Engine:
        made = copy.copy(self)
        made._know(tensors)
        return made

    def ranges(self, names: Sequence[str]) -> List[Range]:
        """The ranges of the parameters of a bucket: neighbors in both are one range."""
        found: List[Range] = []
        offset = 0
        for name in names:
            r = self.tensor_ranges[name]
            if found and found[-1].begin + found[-1].count == r.begin:
                found[-1] = found[-1]._replace(count=found[-1].count + r.count)
            else:
                found.append(Range(r.begin, r.count, offset))
            offset += r.count
        return found

    def residuals(self) -> Dict[str, torch.Tensor]:
        """The residual of each parameter."""
        compressor = self.host_compressor()
        return {t.name: self._residual(compressor, t.name).view(t.shape) for t in self.tensors}

    def _residual(self, compressor: Compressor, name: str) -> torch.Tensor:
        r = self.tensor_ranges[name]
        values = torch.zeros(r.count)
        if r.count:
            compressor.get_residual(r.begin, r.count, values.data_ptr())
        return values

    def add_residuals(self, other: "Engine", share: float) -> List[str]:
        """Add a share of another engine's residuals; returns names that are missing here or differ in size."""
        missing, source = [], other.host_compressor()
        mine = {tensor.name: tensor for tensor in self.tensors}
        with self.edit_residuals() as compressor:
            for tensor in other.tensors:
                if tensor.name not in mine or mine[tensor.name].elements != tensor.elements:
                    missing.append(tensor.name)
                elif tensor.elements:
                    values = other._residual(source, tensor.name).mul_(share)
                    _add(compressor, self.tensor_ranges[tensor.name].begin, values)
        return missing

    def scale_residuals(self, factor: float) -> None:
        """Multiply all residuals by a factor."""
        if self.config.option("feedback") == "none":
            return
        with self.edit_residuals() as compressor:
            for tensor in self.tensors:
                values, r = self._residual(compressor, tensor.name), self.tensor_ranges[tensor.name]
                compressor.set_residual(r.begin, r.count, values.mul_(factor).data_ptr())

    def save(self) -> bytes:
        return self.host_compressor().save()

    def restore(self, state: bytes) -> None:
        with self.edit_residuals() as compressor:
            compressor.restore(state)


class ReducerEngine(Engine):
    """An engine whose compressor is that of a reducer: exchanges happen in the library."""

    def __init__(self, comm: Comm, *arguments: Any):
        self.comm = comm
        super().__init__(*arguments)

    def _make(self) -> None:
        self.reducer = Reducer(self.config, self.layout, self.total_steps, self.threads, self.comm)
        self.compressor = self.reducer.compressor()

    @property
    def error(self) -> Optional[BaseException]:
        """The error that every exchange raises since one has failed."""
        return self.reducer.error


class ReducerBucket:
    """One bucket's exchange by a reducer."""

    def __init__(self, engine: ReducerEngine, ranges: Sequence[Range]):
        self.engine, self.reducer = engine, engine.reducer
        self.ranges, self.size = list(ranges), engine.comm.size

    def run(self, step: int, values: torch.Tensor, times: Times) -> None:
        """Make values the mean over all ranks. Blocks."""
        for r in self.ranges:
            stats = self.reducer.sum(step, r.begin, r.count, values.data_ptr() + 4 * r.offset, 1.0 / self.size)
            times.bytes_sent += stats.bytes_sent // max(self.size - 1, 1)
            times.compress += stats.seconds_compress
            times.wait += stats.seconds_wait + stats.seconds_wire
            times.decode += stats.seconds_decode

    def fail(self, step: int, error: BaseException) -> None:
        """Send the other ranks an error that came before the exchange, and raise it."""
        if self.ranges:
            self.reducer.fail(step, self.ranges[0].begin, self.ranges[0].count, error)
        raise error


def _add(compressor: Compressor, begin: int, values: torch.Tensor) -> None:
    residual = torch.zeros_like(values)
    compressor.get_residual(begin, values.numel(), residual.data_ptr())
    residual += values
    compressor.set_residual(begin, values.numel(), residual.data_ptr())

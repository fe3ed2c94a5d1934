"""The compressor of one worker behind a hook: which parameters it knows, and what it has not sent yet.

Parameters have a fixed place in one layout, whatever DDP's buckets are: a bucket is one or more ranges of it. So a
bucket rebuild moves nothing. Only a parameter never seen before makes a new layout, and what was left behind is
carried over.
"""

import contextlib
from typing import Dict, Iterator, List, NamedTuple, Sequence

import torch

from .._core import Compressor, Config, Layout, Tensor
from .pipeline import Times
from .transport import Comm, Reducer


class Range(NamedTuple):
    """A piece of a bucket that is also a piece of the layout."""

    begin: int  # in the layout
    count: int
    offset: int  # in the bucket


FORGETFUL = ",feedback=none,hold=off"  # behind a config: the same, but nothing stays behind


def by_blocks(config: Config) -> bool:
    """Whether tensors may be cut at blocks, and frames of a range are equally long on all workers."""
    return (config.option("rule") == "topk" and config.option("segment") == "block"
            and config.option("unit") == "element" and config.option("index") in ("fixed", "local", "bitmap")
            and config.option("value") in ("f32", "bf16", "f16", "int8") and config.option("layers") != "budget"
            and config.option("norm") == "off")


class Engine:
    """A compressor of one rank and the parameters that it knows."""

    def __init__(self, config: Config, tensors: Sequence[Tensor], total_steps: int, threads: int, rank: int):
        self.config, self.tensors = config, list(tensors)
        self.total_steps, self.threads, self.rank = total_steps, threads, rank
        self.layout = Layout(self.tensors)
        self.places: Dict[str, Range] = {}
        for i, tensor in enumerate(self.tensors):
            self.places[tensor.name] = Range(self.layout[i].offset, tensor.elements, 0)
        self._make()

    def _make(self) -> None:
        self.compressor = self._twin()

    def _twin(self) -> Compressor:
        return Compressor(self.config, self.layout, self.total_steps, self.threads, self.rank)

    def seen(self) -> Compressor:
        """A compressor on the host with what was left behind, to look at."""
        return self.compressor

    @contextlib.contextmanager
    def edited(self) -> Iterator[Compressor]:
        """The same to be changed."""
        yield self.compressor

    def stats(self) -> dict:
        return self.compressor.stats()

    def extended(self, tensors: Sequence[Tensor]) -> "Engine":
        """An engine that knows more parameters, with all that this one has left behind."""
        grown = self._like(self.tensors + list(tensors))
        grown.take(self, 1.0)
        return grown

    def _like(self, tensors: Sequence[Tensor]) -> "Engine":
        return Engine(self.config, tensors, self.total_steps, self.threads, self.rank)

    def ranges(self, names: Sequence[str]) -> List[Range]:
        """Where the parameters of a bucket are: neighbors in both are one range."""
        found: List[Range] = []
        offset = 0
        for name in names:
            place = self.places[name]
            if found and found[-1].begin + found[-1].count == place.begin:
                found[-1] = found[-1]._replace(count=found[-1].count + place.count)
            else:
                found.append(Range(place.begin, place.count, offset))
            offset += place.count
        return found

    def residuals(self) -> Dict[str, torch.Tensor]:
        """What each parameter has left behind."""
        compressor = self.seen()
        return {t.name: self._residual(compressor, t.name).view(t.shape) for t in self.tensors}

    def _residual(self, compressor: Compressor, name: str) -> torch.Tensor:
        place = self.places[name]
        values = torch.zeros(place.count)
        if place.count:
            compressor.residual(place.begin, place.count, values.data_ptr())
        return values

    def add_residual(self, begin: int, values: torch.Tensor) -> None:
        """Add to what a range has left behind."""
        with self.edited() as compressor:
            _add(compressor, begin, values)

    def take(self, other: "Engine", share: float) -> List[str]:
        """Add a share of what another engine has left behind; returns names that are not here in the same shape."""
        missing, source = [], other.seen()
        mine = {tensor.name: tensor for tensor in self.tensors}
        with self.edited() as compressor:
            for tensor in other.tensors:
                if tensor.name not in mine or mine[tensor.name].elements != tensor.elements:
                    missing.append(tensor.name)
                elif tensor.elements:
                    _add(compressor, self.places[tensor.name].begin, other._residual(source, tensor.name).mul_(share))
        return missing

    def save(self) -> bytes:
        return self.seen().save()

    def restore(self, state: bytes) -> None:
        with self.edited() as compressor:
            compressor.restore(state)


class ReducerEngine(Engine):
    """An engine whose compressor is that of a reducer: exchanges happen in the library."""

    def __init__(self, comm: Comm, *arguments):
        self.comm = comm
        super().__init__(*arguments)

    def _make(self) -> None:
        self.reducer = Reducer(self.config, self.layout, self.total_steps, self.threads, self.comm)
        self.compressor = self.reducer.compressor()

    def _like(self, tensors: Sequence[Tensor]) -> "ReducerEngine":
        return ReducerEngine(self.comm, self.config, tensors, self.total_steps, self.threads, self.rank)


class ReducerBucket:
    """One bucket's exchange by a reducer."""

    def __init__(self, engine: ReducerEngine, ranges: Sequence[Range]):
        self.reducer, self.ranges, self.size = engine.reducer, list(ranges), engine.comm.size

    def run(self, step: int, values: torch.Tensor, times: Times) -> None:
        """Make values the mean over all ranks. Blocks."""
        for r in self.ranges:
            stats = self.reducer.sum(step, r.begin, r.count, values.data_ptr() + 4 * r.offset, 1.0 / self.size)
            times.bytes_sent += stats.bytes_sent // max(self.size - 1, 1)
            times.compress += stats.seconds_compress
            times.wait += stats.seconds_wait + stats.seconds_wire
            times.decode += stats.seconds_decode

    def fail(self, step: int, error: BaseException) -> None:
        """Tell the other ranks of an error that came before the exchange, and raise it."""
        if self.ranges:
            self.reducer.fail(step, self.ranges[0].begin, self.ranges[0].count, error)
        raise error


def _add(compressor: Compressor, begin: int, values: torch.Tensor) -> None:
    held = torch.zeros_like(values)
    compressor.residual(begin, values.numel(), held.data_ptr())
    held += values
    compressor.put_residual(begin, values.numel(), held.data_ptr())

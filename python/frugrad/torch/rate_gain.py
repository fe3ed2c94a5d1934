"""The factor by which one of the library's optimizers multiplies a learning rate (docs/optimizers.md), without its states."""

from math import inf, prod, sqrt
from typing import Dict, Iterable, Sequence

from .._core import Compressor, Config, Layout, Optimizer, Tensor

_SIDE = 64


def mean_width(shapes: Iterable[Sequence[int]]) -> float:
    """The smaller side of matrices (first dimension, product of the others), weighted by size; 0 without any.

    A single row may be a sparse matrix: it counts as one that is four times as long as wide, half the root of its size.
    """
    sizes = [(prod(shape), shape[0]) for shape in shapes if len(shape) > 1 and prod(shape) > 0]
    sides = [(n, min(rows, n // rows)) for n, rows in sizes]
    total = sum(n * (side if side > 1 else sqrt(n) / 2) for n, side in sides)
    return total / sum(n for n, _ in sides) if sides else 0.0


class RateGain:
    """An optimizer of the library over one small tensor, to ask it for its options and its gain.

    width   mean_width() of the model; the gain depends on the rate times the width, so that of the tensor may differ
    """

    def __init__(self, text: str, config: Config, total_steps: int, width: float):
        self._scale = width / _SIDE if width else inf
        layout = Layout([Tensor("any", (_SIDE, _SIDE))])
        self._made = Optimizer(text, layout, Compressor(config, layout, total_steps))
        self.options: Dict[str, str] = dict(part.split("=", 1) for part in
                                            self._made.text.partition(":")[2].split(","))

    def at(self, rate: float) -> float:
        """The gain at this rate."""
        return self._made.gain(rate * self._scale if rate else 0.0)

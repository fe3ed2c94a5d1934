"""Texts that say how weights become sparse, and when: those of ``frugrad train --sparse`` (docs/sparse-weights.md).

Times are shares of all steps, and updates are a number, so that a text fits runs of any length. Gradual pruning has the
cubic schedule of Zhu and Gupta (arXiv:1710.01878): sparsity s (1 - (1 - x)^3) at the share x of the updates.
"""

import math
from typing import Dict, NamedTuple, Tuple

LAYERS = ("erk", "uniform", "global")
UNIT_KINDS = ("channels", "heads", "units")
_KINDS: Dict[str, Dict[str, object]] = {
    "magnitude": {"density": 0.1, "layers": "erk", "from": 0.1, "until": 0.6, "updates": 50},
    "rigl": {"density": 0.1, "layers": "erk", "until": 0.75, "updates": 25, "swap": 0.3},
    "zeros": {},
    "nm": {"n": 2, "m": 4, "from": 0.1, "until": 0.5, "refine": 0.002},
    **{kind: {"density": 0.5, "from": 0.1, "until": 0.6, "updates": 50} for kind in UNIT_KINDS},
}
_LIMITS: Dict[str, Tuple[float, float]] = {"density": (1e-6, 1), "from": (0, 1), "until": (0, 1), "swap": (0, 1),
                                           "refine": (0, 10), "updates": (1, 1e6), "n": (1, 15), "m": (2, 16)}


class SparseOptions(NamedTuple):
    """A parsed text; what a kind does not have is at its default."""

    kind: str  # magnitude, rigl, nm or zeros, or one of UNIT_KINDS
    density: float = 1.0
    layers: str = "erk"
    begin: float = 0.0
    end: float = 0.0
    updates: int = 1
    swap: float = 0.0
    refine: float = 0.0
    n: int = 0
    m: int = 0

    def first_step(self, steps: int) -> int:
        """The step at which updates, or the straight-through phase, begin."""
        return int(self.begin * steps + 0.5)

    def last_step(self, steps: int) -> int:
        """The step of the last update."""
        return int(self.end * steps + 0.5)

    def _updates_done(self, step: int, steps: int) -> int:
        begin, end = self.first_step(steps), self.last_step(steps)
        return self.updates if step >= end else 0 if step <= begin else (step - begin) * self.updates // (end - begin)

    def progress(self, step: int, steps: int) -> float:
        """The share of the updates that are done at a step."""
        return self._updates_done(step, steps) / self.updates

    def is_due(self, step: int, steps: int) -> bool:
        """Whether masks change before a step, counted from 0."""
        if step == 0:
            return self.kind == "rigl" or self._updates_done(0, steps) > 0
        return self._updates_done(step, steps) != self._updates_done(step - 1, steps)

    def density_at(self, step: int, steps: int) -> float:
        """The share of the weights that an update leaves."""
        if self.kind == "rigl":
            return self.density
        return 1 - (1 - self.density) * (1 - (1 - self.progress(step, steps)) ** 3)

    def swap_share(self, step: int, steps: int) -> float:
        """The share of the weights that an update of rigl exchanges: the cosine of the paper within 0.01."""
        x = self.progress(step, steps)
        return self.swap * (1 - x * x * (3 - 2 * x))

    def is_straight_through(self, step: int, steps: int) -> bool:
        """Whether the optimizer updates dense weights, of which the model has n of every m."""
        return self.kind == "nm" and self.first_step(steps) <= step < self.last_step(steps)


def _value(name: str, text: str, usual: object) -> object:
    if name == "layers":
        if text not in LAYERS:
            raise ValueError(f"sparse weights: layers={text}: expected {', '.join(LAYERS)}")
        return text
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    low, high = _LIMITS[name]
    if not low <= number <= high or (isinstance(usual, int) and number != math.floor(number)):
        whole = "whole " if isinstance(usual, int) else ""
        raise ValueError(f"sparse weights: {name}={text}: expected a {whole}number from {low:g} to {high:g}")
    return type(usual)(number)  # type: ignore[call-arg]


def parse(text: str) -> SparseOptions:
    """The options of a text such as ``magnitude:density=0.1,layers=global``; ValueError if there is a mistake in it."""
    kind, _, rest = text.partition(":")
    if kind not in _KINDS:
        raise ValueError(f"sparse weights: unknown kind '{kind}'; accepted: {', '.join(_KINDS)}")
    values = dict(_KINDS[kind])
    for part in rest.split(",") if rest else ():
        name, equal, value = part.partition("=")
        if not equal or name not in values:
            raise ValueError(f"sparse weights: {kind} has no option '{name}'; it has {', '.join(values) or 'none'}")
        values[name] = _value(name, value, values[name])
    begin, end = values.pop("from", 0.0), values.pop("until", 0.0)
    options = SparseOptions(kind, begin=begin, end=end, **values)  # type: ignore[arg-type]
    if options.begin > options.end:
        raise ValueError(f"sparse weights: from={options.begin:g} is after until={options.end:g}")
    if kind == "nm" and options.n >= options.m:
        raise ValueError(f"sparse weights: n={options.n} of every m={options.m} weights: n must be below m")
    return options

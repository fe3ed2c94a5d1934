"""Optimizers over flat buffers, by the library's formulas (docs/optimizers.md), on any device.

The library parses the text, so options mean the same as there, and gives the gain. Moments are float32 here,
whatever ``state`` adam-merged was to have: shorter ones are formats of the library's own optimizer.
"""

import re
from typing import Dict, List, Optional, Tuple

import torch

from ..._core import Compressor, Config, Optimizer
from ..._lib import ConfigError
from ..rate_gain import RateGain, mean_width
from . import UsageError
from .flat import Flat, Group
from .muon import MuonPart

_USUAL = {  # dense, merged, sign, muon: as `frugrad train` has them
    "images": ("sgd:momentum=0.9,decay=5e-3", "merged:momentum=0.9,decay=5e-3", "sign:decay=0.1",
               "muon-merged:decay=0.1"),
    "language": ("adamw:beta2=0.99,decay=0.1", "adam-merged:decay=0.1", "sign:decay=0.1", "muon-merged:decay=0.1"),
    "sentences": ("adamw:decay=0.01", "adam-merged:decay=0.01", "sign:decay=0.01", "muon-merged:decay=0.01"),
}
_KINDS = ("sgd", "adamw", "merged", "adam-merged", "sign", "muon", "muon-merged")
_NO_MATRIX = {"muon": "adamw", "muon-merged": "adam-merged"}  # Muon's kinds, and what other tensors have
_LIMIT = 0.5  # inertia=auto: no velocity below this value


def merged_optimizer(task: str) -> str:
    """The optimizer for FruGrad."""
    return _USUAL[task][1]


def default_optimizer(task: str, method: str, config: Config, pretrained: bool) -> str:
    """The optimizer a method was published with: where workers keep the momentum, the receiver must have none."""
    dense, merged, sign, muon = _USUAL[task]
    if not _workers_keep_momentum(config):
        return dense
    if pretrained and merged.startswith("adam-merged"):
        merged += ",gain=finetune"
    return {"demo": sign, "frugrad-muon": muon}.get(method.split(",")[0].strip(), merged)


def _workers_keep_momentum(config: Config) -> bool:
    return (config.option("feedback") in ("merged", "dgc") and config.option("reduce") != "dense"
            and config.option("local") == "0")


def momentum_hint(asked: str, text: str, usual: str, config: Config) -> Optional[str]:
    """Where both workers and the optimizer have momentum, or none has; as `frugrad train`. ``text`` has all options."""
    kind, options = text.split(":")[0], _options_of(text)
    receiver = {"sgd": "momentum", "adamw": "beta1"}.get(kind, "")
    leaves = kind in ("merged", "adam-merged") or (kind == "muon-merged" and float(options["momentum"]) == 0)
    if _workers_keep_momentum(config) and receiver and float(options[receiver]) > 0:
        return (f"momentum is applied twice: by the workers' feedback buffer and by --optimizer {asked}; the default here"
                f" is {usual}")
    if not _workers_keep_momentum(config) and leaves:
        return (f"no momentum: --optimizer {asked} leaves it to feedback=merged, which this method does not have; the"
                f" default here is {usual}")
    return None


def _options_of(text: str) -> Dict[str, str]:
    return dict(part.split("=", 1) for part in text.partition(":")[2].split(","))


def has_own_length(optimizer: str) -> bool:
    """Whether the length of an optimizer's steps does not depend on that of gradients."""
    return optimizer.split(":")[0] not in ("sgd", "merged")


def _number(text: str) -> float:
    return {"off": 0.0, "auto": -1.0}[text] if text in ("off", "auto") else float(text)


class _Part:
    """The moments of a group, and its update."""

    def __init__(self, flat: Flat, group: Group, kind: str, options: Dict[str, str], velocity: bool):
        self.w, self.g = flat.weights[group.begin:group.end], flat.grad[group.begin:group.end]
        self.decay = _number(options["decay"]) if group.decays else 0.0
        if not group.compressed:  # no residual has its momentum
            kind = {"merged": "sgd", "adam-merged": "adamw", "sign": "adamw"}.get(kind, kind)
        self.kind, self.inertial = kind, velocity and group.compressed
        self.mu, self.beta1 = float(options.get("momentum", 0.9)), float(options.get("beta1", 0.9))
        self.beta2, self.eps = float(options.get("beta2", 0.95)), float(options.get("eps", 1e-8))
        first = (kind == "sgd" and self.mu > 0) or kind == "adamw" or self.inertial
        second = kind in ("adamw", "adam-merged")
        self.first, self.second = (torch.zeros_like(self.g if used else self.g[:0]) for used in (first, second))
        self.most = 4 * (len(self.first) + len(self.second))

    def step(self, t: int, squares: "Squares", rate: float, gain: float, inertia: float, left: float) -> None:
        """t from 1 on; ``left`` is the product of all inertia so far."""
        if self.decay:
            self.w.mul_(1 - rate * self.decay)
        if self.inertial and inertia == 0 and left == 0:
            self.first, self.inertial = self.g[:0], False
        if self.kind == "sign":
            self.w.add_(self.g.sign(), alpha=-rate)
        elif self.kind == "sgd":
            self.w.add_(self.first.mul_(self.mu).add_(self.g) if len(self.first) else self.g, alpha=-rate)
        elif self.kind == "merged" and not self.inertial:
            self.w.add_(self.g, alpha=-rate * gain)
        elif self.kind == "merged":
            self.w.add_(self.first.mul_(inertia).add_(self.g), alpha=-rate * gain * (1 - inertia))
        else:
            self._adam(t, squares, rate, gain, inertia, left)

    def _adam(self, t: int, squares: "Squares", rate: float, gain: float, inertia: float, left: float) -> None:
        second = self.second.clone() if squares.frozen else self.second
        second.mul_(self.beta2).addcmul_(self.g, self.g, value=1 - self.beta2)
        root = second.sqrt().div_((1 - self.beta2 ** squares.counted) ** 0.5).add_(self.eps)
        if self.kind == "adamw":
            mean = self.first.mul_(self.beta1).add_(self.g, alpha=1 - self.beta1)
            unbias, gain = 1 - self.beta1 ** t, 1.0
        elif self.inertial:
            mean, unbias = self.first.mul_(inertia).add_(self.g, alpha=1 - inertia), 1 - left
        else:
            mean, unbias = self.g, 1.0
        self.w.addcdiv_(mean, root, value=-rate * gain / unbias)


class Squares:
    """Updates of Adam's mean squares. While ``frozen`` a step's own gradient counts in that step only."""

    def __init__(self) -> None:
        self.updates, self.frozen = 0, False

    @property
    def counted(self) -> int:
        """The updates in the squares that a step divides by."""
        return self.updates + self.frozen


class FlatOptimizer:
    """Updates the weights of a model by the mean in ``flat.grad``."""

    def __init__(self, text: str, flat: Flat, planner: Compressor, steps: int):
        kind = text.split(":")[0]
        if kind not in _KINDS:
            raise UsageError(f"--optimizer: '{kind}' is not supported by this trainer, which has {', '.join(_KINDS)}")
        try:
            asked = Optimizer(text, flat.layout, planner)
        except ConfigError as error:
            raise UsageError(f"--optimizer: {error}") from None
        self.text = re.sub(r"state=\w+", "state=f32", asked.text)
        self._gain = RateGain(text, planner.config, steps, mean_width(t.shape for t in flat.layout))
        options = _options_of(self.text)
        for name in ("nesterov", "coupled", "decay_all"):
            if _number(options.get(name, "0")):
                raise UsageError(f"--optimizer: {name}=1 is not supported by this trainer")
        self.inertia = _Inertia(kind, options, planner, flat, steps)
        groups, self.muon = flat.groups, None
        if kind in _NO_MATRIX:
            body = [i for i in range(len(flat.sizes)) if not asked.can_split(i)]
            self.muon = MuonPart(flat, body, float(options["momentum"]), _number(options["decay"]))
            groups, kind = flat.groups_without(body), _NO_MATRIX[kind]
        self.parts = [_Part(flat, group, kind, options, self.inertia.used) for group in groups]
        self.t, self.squares = 0, Squares()

    def step(self, rate: float) -> None:
        inertia, left = self.inertia.next(self.t)
        self.t += 1
        self.squares.updates += not self.squares.frozen
        gain = self.gain(rate)
        if self.muon is not None:  # the gain is that of all tensors
            rate, gain = rate * gain, 1.0
            self.muon.step(rate)
        for part in self.parts:
            part.step(self.t, self.squares, rate, gain, inertia, left)

    def gain(self, rate: float) -> float:
        """The factor by which it multiplies this rate."""
        return self._gain.at(rate)

    @property
    def bytes(self) -> int:
        """The largest size of its states."""
        return sum(part.most for part in self.parts) + (self.muon.most if self.muon is not None else 0)


class _Inertia:
    """The momentum at the receiver, of each step."""

    def __init__(self, kind: str, options: Dict[str, str], planner: Compressor, flat: Flat, steps: int):
        asked = _number(options.get("inertia", "off"))
        self.fixed: Optional[float] = asked if asked >= 0 else None
        self.wanted: List[float] = []
        self.product, self.end = 1.0, steps
        if self.fixed is None:
            mu = float(options["momentum" if kind == "merged" else "beta1"])
            self._plan(mu, planner, flat, steps)
        self.used = self.fixed > 0 if self.fixed is not None else self.end > 0

    def _plan(self, mu: float, planner: Compressor, flat: Flat, steps: int) -> None:
        some = next((i for i in range(len(flat.names)) if not planner.plan(0, i)["dense"]), None)
        density = [planner.plan(step, some)["density"] if some is not None else 1.0 for step in range(steps)]
        beta = planner.config.option("beta")
        stays = (0.99 if density[-1] <= 0.02 else 0.95) if beta == "auto" else float(beta)
        for d in density:
            wait = stays * (1 - d)
            missing = mu / (1 - mu) - wait / (1 - wait) if wait < 1 else 0.0
            self.wanted.append(mu if wait == 0 else max(0.0, missing / (1 + missing)))
        self.end = max((i + 1 for i, x in enumerate(self.wanted) if x > _LIMIT), default=0)

    def next(self, step: int) -> Tuple[float, float]:
        if not self.used or step >= self.end:
            return 0.0, 0.0
        now = self.fixed if self.fixed is not None else self.wanted[step]
        self.product *= now
        return now, self.product

"""Workers with weights and optimizers of their own: local steps (option ``local``), and gossip (``reduce=gossip``)."""

from typing import Any, List

import torch

from ..._core import Config
from ..local_steps import OuterStep
from . import UsageError
from .loop import Run
from .optimizers import FlatOptimizer
from .simulated_frames import SimulatedFrames


def has_own_weights(config: Config) -> bool:
    """Whether workers of a method step by themselves."""
    return config.option("local") != "0" or config.option("reduce") == "gossip"


def check_own_optimizer(text: str, config: Config) -> None:
    """Refuse an optimizer whose momentum would be in the residual of gradients, which are not sent."""
    kind = text.split(":")[0]
    if has_own_weights(config) and "merged" in kind:
        raise UsageError(f"--optimizer: {kind} leaves the momentum to the residual of gradients, but with local steps"
                         " and gossip gradients are not sent; use sgd, adamw or another one with its own momentum")


class OwnWeights(Run):
    """A run whose workers each have their own weights and optimizer; ``shared`` is evaluated."""

    def __init__(self, *arguments: Any, optimizers: List[FlatOptimizer]):
        super().__init__(*arguments)
        self.optimizers = optimizers
        self.clip.whole = False  # each worker's own gradient is limited
        self.shared = self.flat.weights.clone()
        self.weights = [self.shared.clone() for _ in optimizers]

    def _step(self, step: int) -> None:
        plan, clock = self.plan, self.clock
        rate = plan.rate * plan.schedule.at(step, plan.steps)
        for worker, (optimizer, weights) in enumerate(zip(self.optimizers, self.weights)):
            self.flat.weights.copy_(weights)
            self._pass(step, worker)
            with clock("optimizer"):
                self.clip.before()
                optimizer.step(rate)
                weights.copy_(self.flat.weights)
        self.clip.after(plan.workers)
        sent = self._exchange(step)
        self.flat.weights.copy_(self.shared)
        clock.step()
        self.densities.append(self.exchange.density if sent else 0.0)
        self.sent.append(sent)

    def _exchange(self, step: int) -> int:
        """Change ``weights`` and ``shared`` after a step of all workers. Returns the bytes that a worker sends."""
        raise NotImplementedError


class LocalRun(OwnWeights):
    """A run in which each worker's optimizer takes ``every`` steps between two exchanges.

    What a worker's steps have subtracted from the shared weights is compressed like a gradient; the shared weights then
    step by the mean of what workers send.
    """

    def __init__(self, *arguments: Any, config: Config, optimizers: List[FlatOptimizer]):
        super().__init__(*arguments, optimizers=optimizers)
        self.every, self.outer = int(config.option("local")), OuterStep(config, self.shared)
        self.copies = 2 if self.outer.momentum is None else 3

    def _exchange(self, step: int) -> int:
        if (step + 1) % self.every and step + 1 < self.plan.steps:
            return 0
        number = step // self.every
        with self.clock("compress"):
            for worker, weights in enumerate(self.weights):
                torch.sub(self.shared, weights, out=self.flat.grad)
                self.exchange.add_gradient(worker, number)
        with self.clock("decode"):
            self.exchange.mean(number)
            self.outer.step(self.flat.grad)
            for weights in self.weights:
                weights.copy_(self.shared)
        return self.exchange.sent


class GossipRun(OwnWeights):
    """CHOCO-SGD in a ring: after its own step each worker sends what its neighbors do not know of its weights yet, and
    moves by ``gamma`` towards the mean of what is known of its neighbors and itself. The mean of all is evaluated."""

    copies = 3  # of a worker: weights, what others know of them, and the mean of what is known

    def __init__(self, *arguments: Any, config: Config, optimizers: List[FlatOptimizer]):
        super().__init__(*arguments, optimizers=optimizers)
        self.gamma, count = float(config.option("gamma")), len(optimizers)
        self.known = torch.stack(self.weights)
        self.neighbors = [sorted({(i - 1) % count, (i + 1) % count} - {i}) for i in range(count)]

    def _exchange(self, step: int) -> int:
        frames = self.exchange
        assert isinstance(frames, SimulatedFrames)
        with self.clock("compress"):
            for worker, weights in enumerate(self.weights):
                torch.sub(weights, self.known[worker], out=self.flat.grad)
                frames.encode(worker, step)
                self.known[worker] += self.flat.grad
        with self.clock("decode"):
            self.shared.zero_()
            for weights, known, near in zip(self.weights, self.known, self.neighbors):
                for other in near:
                    weights.add_(self.known[other] - known, alpha=self.gamma / (1 + len(near)))
                self.shared.add_(weights, alpha=1 / len(self.weights))
        return frames.length * len(self.neighbors[0])

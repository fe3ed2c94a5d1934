"""Local steps (option ``local``): workers with weights and optimizers of their own, which exchange differences."""

from typing import List

import torch

from ..._core import Config
from ..local_steps import OuterStep
from . import UsageError
from .loop import Run
from .optimizers import FlatOptimizer


def check_local_optimizer(text: str, every: int) -> None:
    """Refuse an optimizer whose momentum would be in the residual of gradients, which are not sent."""
    kind = text.split(":")[0]
    if every and "merged" in kind:
        raise UsageError(f"--optimizer: {kind} leaves the momentum to the residual of gradients, but with local steps"
                         " gradients are not sent; use sgd, adamw or another one with its own momentum")


class LocalRun(Run):
    """A run in which each worker's optimizer takes ``every`` steps between two exchanges.

    What a worker's steps have subtracted from the shared weights is compressed like a gradient; the shared weights then
    step by the mean of what workers send. Evaluated are the shared weights.
    """

    def __init__(self, *arguments, config: Config, optimizers: List[FlatOptimizer]):
        super().__init__(*arguments)
        self.every, self.optimizers = int(config.option("local")), optimizers
        self.clip.whole = False  # each worker's own gradient is limited
        self.shared = self.flat.weights.clone()
        self.outer = OuterStep(config, self.shared)
        self.copies = 2 if self.outer.momentum is None else 3
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
        due = (step + 1) % self.every == 0 or step + 1 == plan.steps
        if due:
            self._share(step // self.every)
        self.flat.weights.copy_(self.shared)
        clock.step()
        self.densities.append(self.exchange.density if due else 0.0)
        self.sent.append(self.exchange.sent if due else 0)

    def _share(self, number: int) -> None:
        """Exchange the differences."""
        with self.clock("compress"):
            for worker, weights in enumerate(self.weights):
                torch.sub(self.shared, weights, out=self.flat.grad)
                self.exchange.add_gradient(worker, number)
        with self.clock("decode"):
            self.exchange.mean(number)
            self.outer.step(self.flat.grad)
            for weights in self.weights:
                weights.copy_(self.shared)

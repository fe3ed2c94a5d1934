"""The training loop: forward and backward for each worker in turn, the mean of what they send, an optimizer step."""

import math
from typing import List, NamedTuple, Optional

import torch

from ..._core import Compressor
from . import RunError
from .flat import Flat
from .optimizers import FlatOptimizer
from .learning_rate import Schedule
from .passes import Passes, autocast
from .tasks import Score, Task
from .progress import Clock, Log
from .workers import Exchange, shares

_SMOOTH = 0.9  # decay of the running mean of norms for --clip, as in `frugrad train`
_RATIO, _SLOW = 2.0, 0.98  # --clip auto: the limit relative to the running mean of norms, and the decay of that mean
_CHECK_EVERY = 25  # on a GPU the host checks losses every this many steps


class Clip:
    """Limits the norm of gradients, on the device.

    Dense gradients are limited by the norm of their mean. Compressed ones are scaled before they are compressed, by
    the running mean of the workers' norms, at the first step by each worker's own. Without a number the limit is
    twice the running mean of norms after limiting, for every worker's gradient.
    """

    def __init__(self, limit: Optional[float], flat: Flat, whole: bool):
        self.limit, self.flat, self.whole = limit or 0.0, flat, whole
        self.auto, self.limited = limit is None, torch.zeros((), device=flat.grad.device)
        self.norm, self.weight = torch.zeros((), device=flat.grad.device), 0.0
        self.squares = torch.zeros((), device=flat.grad.device)

    def _scale(self, norm: torch.Tensor) -> None:
        self.flat.grad.mul_((self.limit / norm.clamp(min=1e-30)).clamp(max=1.0))

    def _limit_to_mean(self) -> None:
        """Limit the gradient to twice the running mean."""
        norm = self.flat.grad.norm()
        least = torch.minimum(norm, _RATIO * self.norm) if self.weight else norm
        self.flat.grad.mul_(torch.where(norm > least, least / norm.clamp(min=1e-30), torch.ones_like(norm)))
        self.limited += least

    def _update_mean(self, workers: int) -> None:
        self.weight = _SLOW * self.weight + (1 - _SLOW)
        now = self.limited / workers
        self.norm += torch.where(now.isfinite(), (now - self.norm) * ((1 - _SLOW) / self.weight), 0.0 * self.norm)
        self.limited.zero_()

    def before(self) -> None:
        """Before a worker's gradient is compressed."""
        if self.auto:
            return None if self.whole else self._limit_to_mean()
        if self.limit > 0 and not self.whole:
            norm = self.flat.grad.norm()
            self.squares += norm * norm
            self._scale(self.norm if self.weight else norm)

    def after(self, workers: int) -> None:
        """After the mean has been computed."""
        if self.auto:
            if self.whole:
                self._limit_to_mean()
            return self._update_mean(1 if self.whole else workers)
        if self.limit <= 0:
            return
        if self.whole:
            return self._scale(self.flat.grad.norm())
        self.weight = _SMOOTH * self.weight + (1 - _SMOOTH)
        now = (self.squares / workers).sqrt()
        self.norm += torch.where(now.isfinite(), (now - self.norm) * ((1 - _SMOOTH) / self.weight), 0.0 * self.norm)
        self.squares.zero_()


class Plan(NamedTuple):
    """The options of a run."""

    steps: int
    workers: int
    batch: int
    rate: float
    schedule: Schedule
    eval_every: int  # 0: every epoch
    eval_batches: int  # of each worker; 0: all
    judge: str  # "", valid or test
    layers: bool


class Result(NamedTuple):
    """The result of a run."""

    score: Score
    split: str
    train_loss: float
    sent: int
    dense: int
    density: float


class Run:
    """One run: ``train()``."""

    copies = 1  # of the weights that a worker has

    def __init__(self, plan: Plan, model: torch.nn.Module, task: Task, flat: Flat, passes: Passes,
                 exchange: Exchange, optimizer: FlatOptimizer, clip: Optional[float], planner: Compressor, log: Log,
                 language: bool):
        self.passes = passes
        self.plan, self.model, self.task, self.flat, self.exchange = plan, model, task, flat, exchange
        self.full = flat  # of the whole model; ``flat`` is what is exchanged
        self.optimizer, self.log, self.language, self.planner = optimizer, log, language, planner
        self.device = flat.grad.device
        self.clock = Clock(self.device.type == "cuda")
        self.clip = Clip(clip, flat, type(exchange) is Exchange)
        self.losses = torch.zeros(plan.steps, device=self.device)
        self.logged, self.checked, self.every = 0, 0, 1
        self.densities: List[float] = []
        self.sent: List[int] = []

    def split(self, end: bool) -> str:
        """The split of evaluations during a run: with hold_out or judge=valid never the test split."""
        if self.task.hold_out or self.plan.judge == "valid":
            return "valid"
        order = ("test", "valid", "train") if end else ("valid", "test", "train")
        return next(name for name in order if self.task.has(name))

    def train(self) -> Result:
        plan, every = self.plan, self.plan.eval_every or self.task.per_epoch(self.plan.workers * self.plan.batch)
        self.task.batch(0, 0, plan.workers, plan.batch)  # reads the data
        self.clock.begin()
        for step in range(plan.steps):
            self._step(step)
            done = step + 1
            if self.device.type != "cuda" or done % _CHECK_EVERY == 0:
                self._check_losses(done)
            if done % every == 0 and done < plan.steps:
                self._evaluate(done)
        self._check_losses(plan.steps)
        score = self._evaluate(plan.steps)
        tail = plan.steps - max(1, plan.steps // 10)
        return Result(score, self.split(True), self.losses[tail:].mean().item(), sum(self.sent),
                      plan.steps * self.exchange.dense_bytes, sum(self.densities) / plan.steps)

    def _step(self, step: int) -> None:
        plan, clock = self.plan, self.clock
        for worker in range(plan.workers):
            self._pass(step, worker)
            with clock("compress"):
                self.clip.before()
                self.exchange.add_gradient(worker, step)
        with clock("decode"):
            self.exchange.mean(step)
            self.clip.after(plan.workers)
        with clock("optimizer"):
            self.optimizer.step(plan.rate * plan.schedule.at(step, plan.steps))
        clock.step()
        self.densities.append(self.exchange.density)
        self.sent.append(self.exchange.sent)

    def _pass(self, step: int, worker: int) -> None:
        """Forward and backward of a worker."""
        plan, clock = self.plan, self.clock
        with clock("data"):
            batch = self.task.batch(step, worker, plan.workers, plan.batch)
        with clock("forward"):
            loss = self.passes.forward(batch)
        with clock("backward"):
            self.passes.backward()
        self.losses[step].add_(loss, alpha=1 / plan.workers)

    def _check_losses(self, done: int) -> None:
        """Raise if a loss is not finite."""
        bad = (~self.losses[self.checked:done].isfinite()).nonzero()
        if len(bad):
            step = self.checked + int(bad[0]) + 1
            raise RunError(f"the loss is not finite after step {step}; a lower --rate may help")
        self.checked = done
        self.clock.collect()
        if self.log.due:
            self._print_step(done)

    def _evaluate(self, done: int) -> Score:
        """Log the steps so far, and evaluate the model."""
        split = self.split(done == self.plan.steps)
        self._check_losses(done)
        self._log_steps(done)
        self.exchange.check()
        with autocast(self.device):
            score = self.task.evaluate(self.model, split, self.plan.eval_batches * self.plan.workers * self.plan.batch)
        if not math.isfinite(score.loss):
            raise RunError(f"the loss of the evaluation is not finite after step {done}; a lower --rate may help")
        self.log.score(split, done, score, self.language)
        self.clock.begin()
        return score

    def _log_steps(self, done: int) -> None:
        plan, losses = self.plan, self.losses[self.logged:done].tolist()
        samples, sent = plan.workers * plan.batch, sum(self.sent[:self.logged])
        per_epoch = self.task.per_epoch(samples)
        for step, loss in enumerate(losses, self.logged + 1):
            seconds = self.clock.steps[step - 1] / 1e3
            sent += self.sent[step - 1]
            rate = plan.rate * plan.schedule.at(step - 1, plan.steps)
            self.log.write("step", step, epoch=step / per_epoch, loss=loss, rate=rate, gain=self.optimizer.gain(rate),
                         density=self.densities[step - 1], bytes_sent=sent,
                         bytes_dense=step * self.exchange.dense_bytes, seconds=seconds,
                         samples_per_second=samples / seconds)
            if plan.layers and self._layers_due(step):
                self.log.write("layers", step, names=self.flat.names,
                             density=shares(self.planner, (step - 1) // self.every, len(self.flat.names)))
        if losses:
            self._print_step(done)
        self.logged = done

    def _print_step(self, done: int) -> None:
        """Print the loss of a step and the time that the others will take, without evaluations."""
        steps, step_ms = self.plan.steps, self.clock.median
        left = round((steps - done) * step_ms / 1e3)
        self.log.print(f"step {done} of {steps}  loss {self.losses[done - 1].item():.4f}  {step_ms:.1f} ms a step"
                       + (f"  {left // 60}:{left % 60:02d} left" if left else ""))

    def _layers_due(self, step: int) -> bool:
        return step in (1, self.plan.steps) or step % max(1, self.plan.steps // 16) == 0

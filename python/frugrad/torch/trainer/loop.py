"""The loop: batches of all workers through the model one after the other, the mean of what they send, a step."""

import contextlib
import math
from typing import ContextManager, List, NamedTuple, Optional

import torch

from . import Failed
from .flat import Flat
from .optimizers import FlatOptimizer
from .learning_rate import Schedule
from .tasks import Score, Task
from .progress import Clock, Log
from .workers import Exchange, shares

_SMOOTH = 0.9  # of the norm that --clip goes by, as `frugrad train` has it
_RATIO, _SLOW = 2.0, 0.98  # --clip auto: the limit over the running mean of norms, and how slowly that moves
_LOOK = 25  # on a GPU the host looks at losses every so many steps


def autocast(device: torch.device) -> ContextManager:
    """bf16 on a GPU; float32 elsewhere."""
    return torch.autocast("cuda", dtype=torch.bfloat16) if device.type == "cuda" else contextlib.nullcontext()


class Clip:
    """Limits the norm of gradients, on the device.

    Of whole gradients it is the norm of the mean. What is compressed has to be scaled before, so there it goes by a
    running mean of the workers' norms, and at the first step by each worker's own. Without a number the limit is
    twice the running mean of norms after limiting; every worker's gradient is limited by it.
    """

    def __init__(self, limit: Optional[float], flat: Flat, whole: bool):
        self.limit, self.flat, self.whole = limit, flat, whole
        self.auto, self.limited = limit is None, torch.zeros((), device=flat.grad.device)
        self.norm, self.weight = torch.zeros((), device=flat.grad.device), 0.0
        self.squares = torch.zeros((), device=flat.grad.device)

    def _scale(self, norm: torch.Tensor) -> None:
        self.flat.grad.mul_((self.limit / norm.clamp(min=1e-30)).clamp(max=1.0))

    def _follow(self) -> None:
        """Limit the gradient to twice the running mean."""
        norm = self.flat.grad.norm()
        least = torch.minimum(norm, _RATIO * self.norm) if self.weight else norm
        self.flat.grad.mul_(torch.where(norm > least, least / norm.clamp(min=1e-30), torch.ones_like(norm)))
        self.limited += least

    def _learn(self, workers: int) -> None:
        self.weight = _SLOW * self.weight + (1 - _SLOW)
        now = self.limited / workers
        self.norm += torch.where(now.isfinite(), (now - self.norm) * ((1 - _SLOW) / self.weight), 0.0 * self.norm)
        self.limited.zero_()

    def before(self) -> None:
        """A worker's gradient is about to be taken."""
        if self.auto:
            return None if self.whole else self._follow()
        if self.limit > 0 and not self.whole:
            norm = self.flat.grad.norm()
            self.squares += norm * norm
            self._scale(self.norm if self.weight else norm)

    def after(self, workers: int) -> None:
        """The mean is there."""
        if self.auto:
            if self.whole:
                self._follow()
            return self._learn(1 if self.whole else workers)
        if self.limit <= 0:
            return
        if self.whole:
            return self._scale(self.flat.grad.norm())
        self.weight = _SMOOTH * self.weight + (1 - _SMOOTH)
        now = (self.squares / workers).sqrt()
        self.norm += torch.where(now.isfinite(), (now - self.norm) * ((1 - _SMOOTH) / self.weight), 0.0 * self.norm)
        self.squares.zero_()


class Plan(NamedTuple):
    """How long and how a run goes."""

    steps: int
    workers: int
    batch: int
    rate: float
    schedule: Schedule
    eval_every: int  # 0: every epoch
    eval_batches: int  # of each worker; 0: all
    judge: str  # "", valid or test
    layers: bool


class Course(NamedTuple):
    """What came out."""

    score: Score
    split: str
    train_loss: float
    sent: int
    dense: int
    density: float


class Run:
    """One run. All but ``go`` is its inside."""

    def __init__(self, plan: Plan, model: torch.nn.Module, task: Task, flat: Flat, exchange: Exchange,
                 optimizer: FlatOptimizer,
                 clip: Optional[float], planner, log: Log, language: bool):
        self.plan, self.model, self.task, self.flat, self.exchange = plan, model, task, flat, exchange
        self.optimizer, self.log, self.language, self.planner = optimizer, log, language, planner
        self.device = flat.grad.device
        self.clock = Clock(self.device.type == "cuda")
        self.clip = Clip(clip, flat, type(exchange) is Exchange)
        self.losses = torch.zeros(plan.steps, device=self.device)
        self.logged, self.looked = 0, 0
        self.densities: List[float] = []
        self.sent: List[int] = []

    def split(self, end: bool) -> str:
        """The split of evaluations during a run: with hold_out or judge=valid never the test split."""
        if self.task.hold_out or self.plan.judge == "valid":
            return "valid"
        order = ("test", "valid", "train") if end else ("valid", "test", "train")
        return next(name for name in order if self.task.has(name))

    def go(self) -> Course:
        plan, every = self.plan, self.plan.eval_every or self.task.per_epoch(self.plan.workers * self.plan.batch)
        self.task.batch(0, 0, plan.workers, plan.batch)  # reads what there is to read
        self.clock.begin()
        for step in range(plan.steps):
            self._step(step)
            done = step + 1
            if self.device.type != "cuda" or done % _LOOK == 0:
                self._look(done)
            if done % every == 0 and done < plan.steps:
                self._judge(done)
        self._look(plan.steps)
        score = self._judge(plan.steps)
        tail = plan.steps - max(1, plan.steps // 10)
        return Course(score, self.split(True), self.losses[tail:].mean().item(), sum(self.sent),
                      plan.steps * self.exchange.dense_bytes, sum(self.densities) / plan.steps)

    def _step(self, step: int) -> None:
        plan, clock = self.plan, self.clock
        for worker in range(plan.workers):
            with clock("data"):
                batch = self.task.batch(step, worker, plan.workers, plan.batch)
            with clock("forward"), autocast(self.device):
                loss = self.task.loss(self.model, batch)
            with clock("backward"):
                self.flat.grad.zero_()
                loss.backward()
            self.losses[step].add_(loss.detach().float(), alpha=1 / plan.workers)
            with clock("compress"):
                self.clip.before()
                self.exchange.take(worker, step)
        with clock("decode"):
            self.exchange.mean(step)
            self.clip.after(plan.workers)
        with clock("optimizer"):
            self.optimizer.step(plan.rate * plan.schedule.at(step, plan.steps))
        clock.step()
        self.densities.append(self.exchange.density)
        self.sent.append(self.exchange.sent)

    def _look(self, done: int) -> None:
        """Stop where a loss is no number."""
        bad = (~self.losses[self.looked:done].isfinite()).nonzero()
        if len(bad):
            raise Failed(f"the loss is not finite after step {self.looked + int(bad[0]) + 1}; a lower --rate may help")
        self.looked = done
        self.clock.settle()

    def _judge(self, done: int) -> Score:
        """Write down the steps so far, and look how good the model is."""
        split = self.split(done == self.plan.steps)
        self._look(done)
        self._tell(done)
        self.exchange.check()
        with autocast(self.device):
            score = self.task.judge(self.model, split, self.plan.eval_batches * self.plan.workers * self.plan.batch)
        if not math.isfinite(score.loss):
            raise Failed(f"the loss of the evaluation is not finite after step {done}; a lower --rate may help")
        self.log.score(split, done, score, self.language)
        self.clock.begin()
        return score

    def _tell(self, done: int) -> None:
        plan, losses = self.plan, self.losses[self.logged:done].tolist()
        samples, sent = plan.workers * plan.batch, sum(self.sent[:self.logged])
        per_epoch = self.task.per_epoch(samples)
        for step, loss in enumerate(losses, self.logged + 1):
            seconds = self.clock.steps[step - 1] / 1e3
            sent += self.sent[step - 1]
            self.log.put("step", step, epoch=step / per_epoch, loss=loss,
                         rate=plan.rate * plan.schedule.at(step - 1, plan.steps), gain=self.optimizer.gain,
                         density=self.densities[step - 1], bytes_sent=sent,
                         bytes_dense=step * self.exchange.dense_bytes, seconds=seconds,
                         samples_per_second=samples / seconds)
            if plan.layers and self._layers_due(step):
                self.log.put("layers", step, names=self.flat.names,
                             density=shares(self.planner, step - 1, len(self.flat.names)))
        if losses:
            self.log.print(f"step {done} of {plan.steps}  loss {losses[-1]:.4f}  {self.clock.median:.1f} ms a step")
        self.logged = done

    def _layers_due(self, step: int) -> bool:
        return step in (1, self.plan.steps) or step % max(1, self.plan.steps // 16) == 0

"""Progress of a run: times of its parts, lines of metrics, and lines on stderr."""

import contextlib
import json
import math
import statistics
import sys
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch

from . import RunError
from .tasks import Score

_PROGRESS_EVERY = 15.0  # seconds between lines on stderr, if nothing else is printed
PARTS = ("data", "forward", "backward", "blocked", "compress", "wait", "wire", "decode", "optimizer")


class Clock:
    """Milliseconds of steps and of their parts. On a GPU by events; only ``collect`` waits for them."""

    def __init__(self, gpu: bool):
        self.gpu = gpu
        self.parts: Dict[str, float] = dict.fromkeys(PARTS, 0.0)
        self.steps: List[float] = []
        self._marks: List[Tuple[str, object, object]] = []
        self._begun = self._now()

    def _now(self) -> Any:
        if not self.gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _between(self, a: Any, b: Any) -> float:
        return a.elapsed_time(b) if self.gpu else 1e3 * (b - a)

    @contextlib.contextmanager
    def __call__(self, part: str) -> Iterator[None]:
        begun = self._now()
        yield
        self._marks.append((part, begun, self._now()))

    def begin(self) -> None:
        """Do not count the time since the last step, such as that of an evaluation."""
        self._begun = self._now()

    def step(self) -> None:
        end = self._now()
        self._marks.append(("", self._begun, end))
        self._begun = end

    def collect(self) -> None:
        """Wait for the device and read the times of completed steps."""
        if self.gpu:
            torch.cuda.synchronize()
        for part, a, b in self._marks:
            if part:
                self.parts[part] += self._between(a, b)
            else:
                self.steps.append(max(self._between(a, b), 1e-6))
        self._marks.clear()

    def means(self) -> Dict[str, float]:
        return {part: total / max(1, len(self.steps)) for part, total in self.parts.items()}

    @property
    def median(self) -> float:
        return statistics.median(self.steps) if self.steps else 0.0


class Log:
    """Metrics, a line for each step and each evaluation, as `frugrad train` writes them; and, unless quiet, stderr."""

    def __init__(self, path: Optional[str], quiet: bool):
        self.quiet, self.path, self.file, self._printed = quiet, path, None, time.monotonic()
        if path is not None:
            try:
                self.file = open(path, "w", encoding="utf-8")
            except OSError as error:
                raise RunError(f"{path}: cannot write: {error.strerror}") from None

    def write(self, kind: str, step: int, **numbers: object) -> None:
        """Write a line; numbers that are not finite are omitted."""
        if self.file is None:
            return
        kept = {name: x for name, x in numbers.items() if not isinstance(x, float) or math.isfinite(x)}
        try:
            self.file.write(json.dumps(dict(kind=kind, step=step, **kept)) + "\n")
        except OSError as error:
            raise RunError(f"{self.path}: cannot write: {error.strerror}") from None

    def score(self, split: str, step: int, score: Score, language: bool) -> None:
        perplexity = perplexity_of(score.loss) if language else math.nan
        self.write(split, step, loss=score.loss, accuracy=score.accuracy, perplexity=perplexity,
                   correlation=score.matthews, f1=score.f1, matthews=score.matthews)
        self.flush()
        what = f"perplexity {perplexity:.2f}" if language else f"accuracy {100 * score.accuracy:.2f} %"
        self.print(f"after step {step}: {what}, loss {score.loss:.4f} on the {split} split")

    def print(self, line: str) -> None:
        if not self.quiet:
            print(line, file=sys.stderr, flush=True)
        self._printed = time.monotonic()

    @property
    def due(self) -> bool:
        """Whether a line about progress is to be printed: the last line was printed a while ago."""
        return not self.quiet and time.monotonic() - self._printed >= _PROGRESS_EVERY

    def flush(self) -> None:
        if self.file is not None:
            try:
                self.file.flush()
            except OSError as error:
                raise RunError(f"{self.path}: cannot write: {error.strerror}") from None

    def close(self) -> None:
        if self.file is not None:
            self.flush()
            self.file.close()
            self.file = None


def perplexity_of(loss: float) -> float:
    return math.exp(loss) if loss < 700 else math.inf

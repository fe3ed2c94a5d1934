"""Learning-rate schedules, as `frugrad train` has them."""

import math
import re
from typing import NamedTuple

from . import Refused


class Schedule(NamedTuple):
    """constant, cosine or linear, after a warm-up of some steps."""

    kind: str
    warmup: int

    def at(self, step: int, steps: int) -> float:
        """The factor of the rate at a step, from 0 on."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        over = (step - self.warmup) / (steps - self.warmup) if steps > self.warmup else 0.0
        if self.kind == "cosine":
            return 0.5 + 0.5 * math.cos(math.pi * over)
        return 1 - over if self.kind == "linear" else 1.0


def parse_schedule(text: str) -> Schedule:
    found = re.fullmatch(r"(constant|cosine|linear)(?:,warmup=(\d{1,15}))?", text)
    if not found:
        raise Refused(f"--schedule: '{text}' is none; there are constant, cosine and linear, with ,warmup=STEPS")
    return Schedule(found.group(1), int(found.group(2) or 0))

"""Learning-rate schedules, as `frugrad train` has them."""

import math
import re
from typing import NamedTuple

from . import UsageError


class Schedule(NamedTuple):
    """constant, cosine or linear, after a warm-up of some steps, or of a share of all."""

    kind: str
    warmup: int
    share: float = 0.0

    def at(self, step: int, steps: int) -> float:
        """The factor of the rate at a step, from 0 on."""
        warmup = int(self.share * steps + 0.5) if self.share else self.warmup
        if step < warmup:
            return (step + 1) / warmup
        over = (step - warmup) / (steps - warmup) if steps > warmup else 0.0
        if self.kind == "cosine":
            return 0.5 + 0.5 * math.cos(math.pi * over)
        return 1 - over if self.kind == "linear" else 1.0


def parse_schedule(text: str) -> Schedule:
    found = re.fullmatch(r"(constant|cosine|linear)(?:,warmup=(?:(\d{1,15})|(\d{1,3}(?:\.\d{1,9})?)%))?", text)
    if not found or float(found.group(3) or 0) > 100:
        raise UsageError(f"--schedule: '{text}' is not a schedule; there are constant, cosine and linear, with"
                      " ,warmup=STEPS or ,warmup=PERCENT%")
    return Schedule(found.group(1), int(found.group(2) or 0), float(found.group(3) or 0) / 100)

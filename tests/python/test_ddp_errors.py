"""A rank that fails, or has other options, is an error on all ranks, and no rank waits forever."""

import os
import time
import unittest

import support
from ddp_helpers import RANK, begin, dist, mlp, nn, state_for, train, wrap

CONFIGS = ("frugrad", "threshold", "reduce=split", "threshold,reduce=split", "reduce=tree", "reduce=shared,value=f32",
           "reduce=auto")


class _NoGradient:
    """A tensor whose address the library refuses."""

    @staticmethod
    def data_ptr():
        return 0


def one_fails(where):
    """Rank 1 fails in the second bucket of the third step, before or in the library. What does each rank raise, and can
    they continue?"""
    begin()
    errors = []
    for config in CONFIGS:
        model = mlp()
        state = state_for(model, config, start_iter=1)
        ddp = wrap(model, state)
        train(ddp, range(2))
        if RANK == 1:
            def fail(*_):
                raise MemoryError("no room on purpose")
            if where == "before":
                state._plans[1].floats = fail
            else:
                bucket = state._plans[1].exchange
                bucket.ranges = [bucket.ranges[0]._replace(offset=0)]
                bucket.run, run = (lambda step, values, times: run(step, _NoGradient, times)), bucket.run
        try:
            train(ddp, range(2, 3))
            errors.append("nothing")
        except Exception as error:
            errors.append(str(error).split("\n")[0])
        dist.barrier()  # no message is left over
        try:
            train(wrap(model, state), range(3, 4))  # DDP itself needs a new wrapper after an error
            errors.append("nothing")
        except Exception as error:
            errors.append(str(error).split("\n")[0])
        state.load_state_dict(state_for(model, config, start_iter=1).state_dict())
        train(wrap(model, state), range(3, 5))
    return errors


def one_raises_in_forward():
    """A rank exits between two steps. The others' backward must end with an error."""
    begin(seconds=5)
    model = mlp()
    ddp = wrap(model, state_for(model, start_iter=1))
    train(ddp, range(2))
    if RANK == 1:
        os._exit(0)
    start = time.monotonic()
    try:
        train(ddp, range(2, 4))
    except Exception as error:
        return [type(error).__name__, time.monotonic() - start]
    return ["nothing", 0]


def different(what):
    """Ranks with different options."""
    begin()
    model = mlp()
    state = state_for(None if what == "model" and RANK else model,
                     "value=f32" if what == "config" and RANK else "frugrad",
                     total_steps=RANK if what == "total_steps" else 9, start_iter=0)
    if what == "names" and RANK:
        model = nn.Sequential(*model, nn.Identity())
        renamed = nn.Module()
        renamed.inner = model
        state = state_for(renamed, total_steps=9, start_iter=0)
    try:
        train(wrap(model, state), range(1))
    except RuntimeError as error:
        return str(error).split("\n")[0]
    return "nothing"


class Trouble(unittest.TestCase):
    def test_all_ranks_raise_the_error_of_one(self):
        for where, why in (("before", "no room on purpose"), ("inside", "no gradient")):
            for rank, errors in enumerate(support.values(support.torchrun(3, one_fails, args=[where]))):
                self.assertEqual(len(errors), 2 * len(CONFIGS))
                for text in errors:
                    self.assertIn(why, text)
                    self.assertEqual("rank 1 failed" in text, rank != 1)

    def test_a_rank_that_exits_is_an_error_on_the_others(self):
        workers = support.torchrun(2, one_raises_in_forward, timeout=40)
        kind, seconds = workers[0].value
        self.assertNotEqual(kind, "nothing")
        self.assertLess(seconds, 15)

    def test_different_options_are_an_error(self):
        for what in ("config", "total_steps", "model", "names"):
            for errors in support.values(support.torchrun(2, different, args=[what])):
                self.assertRegex(errors, f"ranks differ in .*{what}")


if __name__ == "__main__":
    unittest.main()

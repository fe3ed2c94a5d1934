"""A rank that fails, or has other options, is an error on all ranks, and no rank waits forever."""

import os
import time
import unittest
import warnings

import support
from ddp_helpers import RANK, Scaler, batch, begin, dist, flat, mlp, nn, state_for, torch, train, wrap

import frugrad.torch
from frugrad.torch import exchange

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
        return [str(error).split("\n")[0], time.monotonic() - start]
    return ["nothing", 0]


def one_has_no_hook():
    """Rank 2 has registered no hook: warnings and the error of each rank, and how long it took."""
    begin(seconds=4)
    exchange._PATIENCE = 1.0
    model = mlp()
    ddp = wrap(model, None if RANK == 2 else state_for(model))
    start = time.monotonic()
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        try:
            train(ddp, range(1))
        except Exception as error:
            return [str(error).split("\n")[0], [str(w.message) for w in shown], time.monotonic() - start]
    return ["nothing", [], 0]


def saved_by_one():
    """Rank 0 alone asks for the states of all ranks."""
    begin(seconds=3)
    model = mlp()
    state = state_for(model)
    train(wrap(model, state), range(3))
    if RANK:
        time.sleep(6)
        return ""
    try:
        state.state_dict(all_ranks=True)
    except RuntimeError as error:
        return str(error)
    return "nothing"


def different(what):
    """Ranks with different options."""
    begin()
    model = mlp()
    state = state_for(None if what == "model" and RANK else model,
                      "value=f32" if what == "value" and RANK else "frugrad",
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


def loading(what):
    """Rank 1 loads a state that does not fit, at once or when the first bucket restores it. What does each rank raise?"""
    begin()
    model = mlp()
    state = state_for(model, "feedback=plain", start_iter=0)
    train(wrap(model, state), range(2))
    saved = state.state_dict(all_ranks=True)
    if RANK == 1 and what == "other":
        saved = {"step": 3}
    elif RANK == 1 and what == "shape":
        saved = dict(saved, tensors=[(name, (8,), *more) for name, _, *more in saved["tensors"]])
    elif RANK == 1 and what == "names":
        saved = dict(saved, tensors=[("encoder." + name, *more) for name, *more in saved["tensors"]])
    elif RANK == 1:
        saved = dict(saved, ranks={rank: row[:-1] for rank, row in saved["ranks"].items()})
    again = state_for(model, "feedback=plain", start_iter=0)
    start = time.monotonic()
    try:
        again.load_state_dict(saved)
        train(wrap(model, again), range(2, 3))
    except Exception as error:
        return [str(error).split("\n")[0], time.monotonic() - start]
    return ["nothing", 0]


def spoiled(choice):
    """Gradients with an infinity on rank 1 at the third step: which parameters are finite on each rank, and warnings."""
    begin()
    model = mlp()
    state = state_for(model, "feedback=plain", start_iter=1, nonfinite=choice)
    ddp = wrap(model, state)
    finite = []
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        for step in range(5):
            x, y = batch(step)
            model.zero_grad()
            loss = nn.functional.cross_entropy(ddp(x), y)
            (loss * (float("inf") if RANK and step == 2 else 1.0)).backward()
            finite.append(all(bool(torch.isfinite(p.grad).all()) for p in model.parameters()))
    return finite, [str(w.message) for w in shown if "NaN" in str(w.message)]


def scaled():
    """Steps with a constant scale, and with one that changes: gradients divided by it are the same?"""
    begin()
    runs = []
    for factor in (1.0, 0.25):
        model, scaler, grads = mlp(), Scaler(), []
        state = state_for(model, "feedback=plain,residual=f32,value=f32", start_iter=1, scaler=scaler)
        ddp = wrap(model, state)
        for step in range(6):
            scaler.scale = 1024.0 * (factor if step >= 3 else 1.0)
            x, y = batch(step)
            model.zero_grad()
            (nn.functional.cross_entropy(ddp(x), y) * scaler.get_scale()).backward()
            grads.append(torch.cat([p.grad.flatten() for p in model.parameters()]) / scaler.scale)
        runs.append(grads)
    return [torch.equal(a, b) for a, b in zip(*runs)]


def rolled_back(fails):
    """A step that is not to count, in which a rank may have failed, then the same again: the bits of a run without it?"""
    begin()
    weights = []
    for again in (False, True):
        model = mlp()
        optimizer = frugrad.torch.optimizer(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
        state = frugrad.torch.DDPState(model, "frugrad", optimizer, start_iter=1)
        ddp = wrap(model, state)
        train(ddp, range(3), optimizer=optimizer)
        if again:
            saved, error, plan = state.snapshot(), "", state._plans[1]
            floats = plan.floats
            if fails == "fails" and RANK == 1:
                plan.floats = lambda *_: 1 / 0
            try:
                x, y = batch(99)
                nn.functional.cross_entropy(ddp(x), y).backward()
            except Exception as raised:
                error = str(raised)
            plan.floats = floats
            state.rollback(saved)
            ddp = wrap(model, state) if fails == "fails" else ddp
        train(ddp, range(3, 6), optimizer=optimizer)
        weights.append(flat(model))
    return [torch.equal(*weights), "division" in error, state.step]


def without_state():
    """Steps of a converted optimizer that no state follows: the warnings."""
    begin()
    model = mlp()
    optimizer = frugrad.torch.optimizer(model, torch.optim.SGD(model.parameters(), lr=0.1))
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        train(wrap(model), range(4), optimizer=optimizer)
    return [str(w.message) for w in shown if "nothing is compressed" in str(w.message)]


class Trouble(unittest.TestCase):
    def test_an_optimizer_without_a_state_is_warned_of(self):
        for shown in support.values(support.torchrun(2, without_state)):
            self.assertEqual(len(shown), 1, shown)
            self.assertIn("given to DDPState", shown[0])

    def test_a_model_with_nothing_to_compress_is_warned_of(self):
        model = nn.Linear(20, 1)
        optimizer = frugrad.torch.optimizer(model, torch.optim.SGD(model.parameters(), lr=0.1))
        with self.assertWarnsRegex(UserWarning, "nothing is compressed: .* 4096 elements"):
            frugrad.torch.DDPState(model, "frugrad", optimizer)

    def test_all_ranks_raise_the_error_of_one(self):
        for where, why in (("before", "no room on purpose"), ("inside", "no gradient")):
            for rank, errors in enumerate(support.values(support.torchrun(3, one_fails, args=[where]))):
                self.assertEqual(len(errors), 2 * len(CONFIGS))
                for text in errors:
                    self.assertIn(why, text)
                    self.assertEqual("rank 1 failed" in text, rank != 1)

    def test_a_rank_that_exits_is_an_error_on_the_others(self):
        workers = support.torchrun(2, one_raises_in_forward, timeout=40)
        text, seconds = workers[0].value
        self.assertRegex(text, "comm: rank 1 does not answer, because it has ended or is late: [^/]*$")
        self.assertLess(seconds, 15)

    def test_a_rank_without_the_hook_is_named(self):
        sentence = "rank 2 did not answer .*: is frugrad.torch.hook registered on every rank"
        for worker in support.torchrun(3, one_has_no_hook, timeout=40)[:2]:
            text, shown, seconds = worker.value
            self.assertRegex(text, sentence)
            self.assertEqual(len([w for w in shown if "Still waiting" in w]), 1, shown)
            self.assertLess(seconds, 15)

    def test_states_that_one_rank_asks_for(self):
        text = support.torchrun(2, saved_by_one, timeout=40)[0].value
        self.assertRegex(text, r"state_dict\(all_ranks=True\): not every rank answered. All ranks must call it")

    def test_a_preset_for_another_optimizer_is_warned_of(self):
        model = mlp()
        adam = frugrad.torch.optimizer(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
        with self.assertWarnsRegex(UserWarning, "'frugrad-sgd' is for SGD, and the optimizer is Adam: write 'frugrad'"):
            frugrad.torch.DDPState(model, "frugrad-sgd,schedule=constant:0.99", adam)
        for config in "frugrad", "frugrad-adam", "frugrad-paper":
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                frugrad.torch.DDPState(model, config, adam, total_steps=100)

    def test_a_schedule_without_a_length_is_warned_of(self):
        model = mlp()
        optimizer = frugrad.torch.optimizer(model, torch.optim.SGD(model.parameters(), lr=0.1))
        with self.assertWarnsRegex(UserWarning, "schedule=frugrad:0.5:0.94:0.5 needs total_steps="):
            frugrad.torch.DDPState(model, "frugrad-paper", optimizer)

    def test_different_options_are_an_error(self):
        for what, has in (("value", "rank 0 has bf16, rank 1 has f32"), ("total_steps", "rank 0 has 0, rank 1 has 1"),
                          ("model", "rank 0 has True, rank 1 has False"), ("names", r"0.weight \(256, 64\), rank 1 has inner")):
            for errors in support.values(support.torchrun(2, different, args=[what])):
                self.assertRegex(errors, f"ranks differ in .*{what}.*: .*{has}")

    def test_a_state_that_one_rank_cannot_load_is_an_error_on_all(self):
        for what, why in (("other", "no state of"), ("cut", "restore|state"),
                          ("shape", r"another model: .* has the shape \(8,\) in it"),
                          ("names", "another model: it has encoder")):
            (first, waited), (second, _) = support.values(support.torchrun(2, loading, args=[what]))
            self.assertRegex(first, f"rank 1 failed: .*({why})")
            self.assertRegex(second, why)
            self.assertLess(waited, 10)

    def test_infinities_are_warned_of_or_seen_by_all(self):
        for rank, (finite, shown) in enumerate(support.values(support.torchrun(2, spoiled, args=["skip"]))):
            self.assertEqual(finite, [True] * 5)
            self.assertEqual(len(shown), rank)
        self.assertRegex(shown[0], "rank 1, step 2: .* blocks were NaN or infinite")
        for finite, shown in support.values(support.torchrun(2, spoiled, args=["propagate"])):
            self.assertEqual((finite, shown), ([True, True, False, True, True], []))

    def test_residuals_follow_the_scale_of_a_grad_scaler(self):
        self.assertEqual(support.values(support.torchrun(2, scaled)), [[True] * 6] * 2)

    def test_a_step_can_be_rolled_back(self):
        for fails in ("no", "fails"):
            self.assertEqual(support.values(support.torchrun(2, rolled_back, args=[fails])),
                             [[True, fails == "fails", 6]] * 2)


if __name__ == "__main__":
    unittest.main()

"""Checkpoints of the hook's state, bucket rebuilds, and changed numbers of ranks: residuals are kept."""

import copy
import os
import pickle
import tempfile
import unittest
import warnings

import support
from ddp_helpers import RANK, WORLD, Scaler, batch, begin, dist, flat, frugrad, mlp, nn, state_for, torch, train, wrap


def resume():
    """Eight steps at once, and in two parts with new objects between them, also where the dense steps end: the same
    bits?"""
    begin()
    results = []
    for config, at in (("frugrad", 4), ("feedback=plain,residual=int8", 4),
                       ("feedback=plain,residual=f32,reduce=split", 4), ("dgc", 4), ("threshold,feedback=plain", 4),
                       ("learned,feedback=plain,unit=run:16,rule=learned:3:9:0.1", 4),
                       ("feedback=plain", 2), ("feedback=plain,reduce=split", 2)):
        whole = mlp()
        train(wrap(whole, state_for(whole, config, total_steps=8)), range(8))
        first = mlp()
        state = state_for(first, config, total_steps=8)
        _, optimizer = train(wrap(first, state), range(at))
        saved = {"model": first.state_dict(), "optimizer": optimizer.state_dict(), "hook": state.state_dict()}
        with tempfile.TemporaryFile() as file:
            torch.save(saved, file)
            file.seek(0)
            saved = torch.load(file)
        second = mlp(1)
        second.load_state_dict(saved["model"])
        state = state_for(second, config, total_steps=8)
        state.load_state_dict(saved["hook"])
        ddp = wrap(second, state, bucket_cap_mb=0.3)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
        optimizer.load_state_dict(saved["optimizer"])
        train(ddp, range(at, 8), optimizer=optimizer)
        results.append([config, state.step, torch.equal(flat(whole), flat(second))])
    return results


def without_model():
    """Without a model parameters have numbers; a state is restored after the dense iterations."""
    begin()
    model = mlp()
    state = state_for(config="feedback=plain,residual=f32")
    train(wrap(model, state), range(5))
    before = state.residuals()
    again = state_for(config="feedback=plain,residual=f32")
    again.load_state_dict(state.state_dict())
    ddp = wrap(model, again)
    train(ddp, range(5, 7), lr=0.0)  # dense
    step, kept = again.step, again.state_dict()["ranks"][RANK]
    same = torch.equal(kept, state.state_dict()["ranks"][RANK])
    train(ddp, range(7, 8), lr=0.0)
    return [step, same, sorted(before), sorted(again.residuals())]


def saved_again():
    """Each rank loads its own state; saved before anything was restored, all of them are in one."""
    begin()
    model = mlp()
    state = state_for(model, "feedback=plain", start_iter=0)
    train(wrap(model, state), range(2))
    whole, again = state.state_dict(all_ranks=True), state_for(model, "feedback=plain")
    again.load_state_dict(state.state_dict())
    ranks = again.state_dict(all_ranks=True)["ranks"]
    return [sorted(ranks), all(torch.equal(ranks[r], whole["ranks"][r]) for r in ranks), state.stats()["feedback"]]


def without_feedback():
    """A state with residuals, loaded by a config without: the warnings."""
    begin()
    model = mlp()
    state = state_for(model, "feedback=plain", start_iter=0)
    train(wrap(model, state), range(2))
    again = state_for(model, "feedback=none")
    again.load_state_dict(state.state_dict())
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        train(wrap(model, again), range(1))
    return [str(w.message) for w in shown if "residuals" in str(w.message)]


def moved_buckets():
    """Wrapped again with other buckets, then with a layer that was frozen before: residuals by name."""
    begin()
    results = []
    for config, room in (("feedback=plain,residual=f32", 0.0), ("feedback=plain,residual=int8", 0.02)):
        model = mlp()
        model[4].weight.requires_grad_(False)
        state = state_for(model, config, start_iter=0)
        train(wrap(model, state), range(3))
        before = state.residuals()
        ddp = wrap(model, state, bucket_cap_mb=25)
        train(ddp, range(3, 4))
        plain = state.residuals()
        model[4].weight.requires_grad_(True)
        ddp = wrap(model, state, bucket_cap_mb=25)
        state._exchange_of(_plan(state, model))  # what the first bucket does before it is compressed
        after = state.residuals()
        moved = max((plain[name] - after[name]).abs().max().item() for name in plain)
        largest = max(r.abs().max().item() for r in plain.values())
        train(ddp, range(4, 6))
        results.append([len(before), len(after), moved <= room * largest, largest > 0])
    return results


def _plan(state, model):
    class Plan:
        device = torch.device("cpu")
        params = list(model.parameters())[::-1]
    state._plans.clear()
    return Plan


def save(folder):
    """Train two or more ranks; save each rank's state, and all in one; return the mean of the residuals."""
    begin()
    model = mlp()
    state = state_for(model, "feedback=plain,residual=f32", start_iter=1)
    train(wrap(model, state), range(4))
    torch.save(state.state_dict(), os.path.join(folder, f"{RANK}.pt"))
    whole = state.state_dict(all_ranks=True)
    if RANK == 0:
        torch.save(whole, os.path.join(folder, "all.pt"))
        torch.save(model.state_dict(), os.path.join(folder, "model.pt"))
    return _mean_residual(state)


def load(folder, ranks, how):
    """Restore the states of this many ranks in this group; with which residuals? Then continue, and save all in one."""
    begin()
    model = mlp()
    model.load_state_dict(torch.load(os.path.join(folder, "model.pt")))
    state = state_for(model, "feedback=plain,residual=f32", start_iter=1)
    if how == "each":
        state.load_state_dict([torch.load(os.path.join(folder, f"{r}.pt")) for r in range(int(ranks))])
    else:
        state.load_state_dict(torch.load(os.path.join(folder, "all.pt")))
    ddp = wrap(model, state)
    state._check_ranks()
    state._learn([state._describe(p) for p in model.parameters()])
    residual = _mean_residual(state)
    train(ddp, range(4, 6))
    whole = state.state_dict(all_ranks=True)
    if RANK == 0:
        torch.save(whole, os.path.join(folder, "all.pt"))
        torch.save(model.state_dict(), os.path.join(folder, "model.pt"))
    return [residual, _mean_residual(state), state.step]


def _mean_residual(state):
    """The mean over ranks of the residuals, as a few sums: by parameter, plain and with alternating signs."""
    sums = []
    for name, values in sorted(state.residuals().items()):
        signs = torch.ones(values.numel(), dtype=torch.float64)
        signs[::2] = -1
        sums += [values.double().sum().item(), (values.flatten().double() * signs).sum().item()]
    total = torch.tensor(sums, dtype=torch.float64)
    dist.all_reduce(total)
    return (total / WORLD).tolist()


def interrupted(what):
    """Four steps and two, as they are, or with a new state or a rollback between: the same residuals?

    The loss scale changes after the four.
    """
    begin()
    residuals = []
    for between in ("nothing", what):
        scaler = Scaler()
        model = mlp()
        state = state_for(model, "feedback=plain,residual=f32,value=f32", scaler=scaler)
        ddp = wrap(model, state)
        backward(ddp, scaler, range(4))
        scaler.scale *= 2
        if between in ("loaded", "loaded and rolled back"):
            saved = state.state_dict()
            state = state_for(model, "feedback=plain,residual=f32,value=f32", scaler=scaler)
            state.load_state_dict(saved)
            ddp = wrap(model, state)
        if between in ("rolled back", "loaded and rolled back"):
            snapshot = state.snapshot()
            backward(ddp, scaler, [99])
            state.rollback(snapshot)
        backward(ddp, scaler, range(4, 6))
        residuals.append(torch.cat([r.flatten() for r in state.residuals().values()]))
    return [bool(residuals[0].any()), torch.equal(*residuals), state.step]


def backward(ddp, scaler, steps):
    for step in steps:
        x, y = batch(step)
        ddp.zero_grad()
        (nn.functional.cross_entropy(ddp(x), y) * scaler.get_scale()).backward()


def unscaled():
    """Residuals of scaled gradients in a state without a scaler are those of gradients as they are."""
    begin()
    model, scaler = mlp(), Scaler()
    states = [state_for(model, "feedback=plain,residual=f32,value=f32", scaler=s) for s in (scaler, None)]
    backward(wrap(model, states[0]), scaler, range(4))
    states[1].load_state_dict(states[0].state_dict())
    ddp = wrap(model, states[1])
    scaler.scale = 0.0  # the gradient is zero, so that the residuals only lose what they send
    backward(ddp, scaler, [4])
    return [states[i].residuals()["0.weight"].abs().max().item() for i in (0, 1)]


def early():
    """A state saved in the dense iterations: how many are left, and whether momentum is the optimizer's again."""
    begin()
    model = mlp()
    optimizer = frugrad.torch.optimizer(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    state = frugrad.torch.DDPState(model, "frugrad", optimizer, start_iter=3)
    ddp = wrap(model, state)
    train(ddp, range(2), optimizer=optimizer)
    saved = [model.state_dict(), optimizer.state_dict(), state.state_dict()]
    saved = copy.deepcopy(saved)
    train(ddp, range(2, 6), optimizer=optimizer)
    expected, compressed = flat(model), state.compressing
    model.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    state.load_state_dict(saved[2])
    train(ddp, range(2, 6), optimizer=optimizer)
    return [compressed, torch.equal(expected, flat(model))]


class States(unittest.TestCase):
    def near(self, a, b):
        self.assertGreater(max(map(abs, a)), 1e-3)
        self.assertEqual(len(a), len(b))
        for x, y in zip(a, b):
            self.assertLess(abs(x - y), 1e-6 * max(map(abs, a)) + 1e-7)

    def test_resuming_is_bit_exact(self):
        for rank in support.values(support.torchrun(2, resume)):
            for config, step, same in rank:
                self.assertEqual((config, step, same), (config, 8, True))

    def test_numbered_parameters_are_restored_too(self):
        for step, same, before, after in support.values(support.torchrun(2, without_model)):
            self.assertEqual((step, same), (7, True))
            self.assertEqual(before, after)

    def test_a_state_just_loaded_is_saved_whole(self):
        self.assertEqual(support.values(support.torchrun(2, saved_again)), [[[0, 1], True, "plain"]] * 2)

    def test_residuals_that_a_config_has_no_place_for_are_warned_of(self):
        for shown in support.values(support.torchrun(2, without_feedback)):
            self.assertEqual(len(shown), 1)
            self.assertIn("saved with feedback=plain, and this config has feedback=none", shown[0])

    def test_buckets_may_change(self):
        for rank in support.values(support.torchrun(2, moved_buckets)):
            self.assertEqual(rank, [[5, 6, True, True]] * 2)

    def test_residuals_keep_their_scale(self):
        for what in ("loaded", "rolled back", "loaded and rolled back"):
            self.assertEqual(support.values(support.torchrun(2, interrupted, args=[what])), [[True, True, 6]] * 2, what)
        for scaled, plain in support.values(support.torchrun(2, unscaled)):
            self.assertTrue(0 < plain <= scaled / 1024, (scaled, plain))

    def test_going_back_to_the_dense_iterations(self):
        self.assertEqual(support.values(support.torchrun(2, early)), [[True, True]] * 2)

    def test_a_copied_module_shares_the_state(self):
        module = mlp()
        module.state = state_for(module)
        copied = copy.deepcopy(module)
        self.assertIs(copied.state, module.state)
        self.assertEqual(copy.deepcopy(module.state.config).text, pickle.loads(pickle.dumps(module.state.config)).text)
        with self.assertRaisesRegex(TypeError, "a Layout cannot be copied or pickled"):
            copy.deepcopy(frugrad.Layout([frugrad.Tensor("a", (3,))]))

    def test_two_ranks_to_three_to_one_have_the_same_mean_residual(self):
        with tempfile.TemporaryDirectory() as folder:
            residual = support.values(support.torchrun(2, save, args=[folder]))[0]
            three, owed_then, step = support.values(support.torchrun(3, load, args=[folder, 2, "each"]))[0]
            self.near(residual, three)
            self.assertEqual(step, 6)
            one, _, _ = support.values(support.torchrun(1, load, args=[folder, 3, "all"]))[0]
            self.near(owed_then, one)

    def test_a_state_that_does_not_fit_is_refused(self):
        with self.assertRaisesRegex(ValueError, "no state"):
            state_for().load_state_dict({"step": 3})


if __name__ == "__main__":
    unittest.main()

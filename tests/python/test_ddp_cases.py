"""What models and scripts do to a hook: unused and frozen parameters, accumulation, dtypes, tiny buckets, NaNs."""

import unittest
import warnings

import support
from ddp_helpers import RANK, WORLD, batch, begin, dist, flat, mlp, nn, state_for, torch, train, wrap

EXACT = "density=1,value=f32,feedback=none"


def same_weights(model):
    """Whether all ranks have the same weights."""
    every = [torch.zeros_like(flat(model)) for _ in range(WORLD)]
    dist.all_gather(every, flat(model))
    return all(torch.equal(w, every[0]) for w in every) and bool(torch.isfinite(every[0]).all())


class Branches(nn.Module):
    """Each branch is used at some steps only, and one never."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.left, self.right, self.never = (nn.Linear(64, 64) for _ in range(4))
        self.last = nn.Linear(64, 10)

    def forward(self, x):
        self.calls = getattr(self, "calls", 0) + 1
        branch = self.left if (self.calls + RANK) % 3 else self.right
        return self.last(torch.relu(branch(torch.relu(self.first(x)))))


def unused():
    begin()
    results = []
    for config in (EXACT, "min_size=0"):
        dense, hooked = Branches(), Branches()
        train(wrap(dense, find_unused_parameters=True), range(5))
        train(wrap(hooked, state_for(hooked, config), find_unused_parameters=True), range(5))
        results += [same_weights(hooked), config != EXACT or torch.equal(flat(dense), flat(hooked))]
    static = Branches()
    static.left = static.right
    train(wrap(static, state_for(static), static_graph=True), range(5))
    return results + [same_weights(static)]


class Tied(nn.Module):
    """The first and the last matrix but one are the same parameter."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.middle, self.again = (nn.Linear(64, 64, bias=False) for _ in range(3))
        self.again.weight, self.last = self.first.weight, nn.Linear(64, 10)

    def forward(self, x):
        return self.last(self.again(torch.relu(self.middle(self.first(x)))))


def options_of_ddp():
    begin()
    results = []
    for options in ({"gradient_as_bucket_view": True}, {"gradient_as_bucket_view": True, "static_graph": True}):
        dense = Tied()
        train(wrap(dense, **options), range(4))
        for config in (EXACT, EXACT + ",reduce=split", "frugrad"):
            hooked = Tied()
            state = state_for(hooked, config)
            train(wrap(hooked, state, **options), range(4))
            results += [same_weights(hooked), config == "frugrad" or torch.equal(flat(dense), flat(hooked)),
                        sorted(state.residuals()) == sorted(name for name, _ in hooked.named_parameters())]
    return results


def warnings_shown():
    """A script's own warning, at one place in every step: Python shows it once, also with the hook."""
    begin()
    model = mlp()
    ddp = wrap(model, state_for(model, start_iter=0))
    train(ddp, range(1))
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        for step in range(3):
            train(ddp, [step])
            warnings.warn("mine")
    return [[str(w.message) for w in shown].count("mine") == 1]


def accumulated():
    begin()
    weights = []
    for state in (None, EXACT):
        model = mlp()
        state = state and state_for(model, state)
        ddp = wrap(model, state)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for step in range(0, 8, 2):
            x, y = batch(step)
            with ddp.no_sync():
                nn.functional.cross_entropy(ddp(x), y).backward()
            train(ddp, [step + 1], optimizer=_keeping(optimizer))
            optimizer.zero_grad()
        weights.append(flat(model))
    return [torch.equal(*weights), state.step, same_weights(model)]


class _keeping:
    """An optimizer whose gradients are not cleared: they have been accumulated."""

    def __init__(self, optimizer):
        self.step, self.zero_grad = optimizer.step, lambda: None


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b, self.c = nn.Linear(64, 128), nn.Linear(128, 128).half(), nn.Linear(128, 10).double()
        self.d = nn.Parameter(torch.ones(128, dtype=torch.float16))

    def forward(self, x):
        x = self.a(x)  # halves are multiplied as floats, which old CPUs' PyTorch cannot do otherwise
        x = torch.relu(nn.functional.linear(x, self.b.weight.float(), self.b.bias.float()))
        return self.c((x * self.d.float()).double())


def dtypes():
    begin()
    dense, hooked, sparse = Mixed(), Mixed(), Mixed()
    train(wrap(dense), range(4), lr=0.01)
    train(wrap(hooked, state_for(hooked, EXACT)), range(4), lr=0.01)
    state = state_for(sparse, "min_size=0")
    train(wrap(sparse, state), range(4), lr=0.01)
    kinds = [str(p.grad.dtype) == str(p.dtype) for p in sparse.parameters()]
    near = max((p.double() - q.double()).abs().max().item() for p, q in zip(dense.parameters(), hooked.parameters()))
    return [all(kinds), near, same_weights(sparse), len(state.stats()["buckets"]) >= 3]


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.none, self.one = nn.Parameter(torch.zeros(0)), nn.Parameter(torch.ones(()))
        self.frozen = nn.Linear(64, 64)
        self.frozen.requires_grad_(False)
        self.last = nn.Linear(64, 10)

    def forward(self, x):
        return self.last(self.frozen(x)) * self.one + self.none.sum()


def tiny():
    begin()
    results = []
    for config in (EXACT, "vectors=sparse,min_size=0", "reduce=split,min_size=0", "topk,reduce=split,min_size=0"):
        model = Small()
        before = model.frozen.weight.clone()
        state = state_for(model, config, start_iter=1)
        train(wrap(model, state, bucket_cap_mb=1e-5), range(4))
        results.append(same_weights(model) and torch.equal(before, model.frozen.weight)
                       and set(state.residuals()) == {"one", "last.weight", "last.bias"})
    return results


def not_a_number():
    """A NaN in one rank's gradient: its block is skipped, and its frames are as long as the others'."""
    begin()
    results = []
    for config in ("frugrad", "threshold", "reduce=split"):
        model = mlp()
        state = state_for(model, config, start_iter=0)
        ddp = wrap(model, state)
        if RANK == 1:
            model[2].weight.register_hook(lambda grad: grad.index_fill(0, torch.tensor([3]), float("nan")))
        train(ddp, range(1, 4), lr=0.0)
        grad = model[2].weight.grad
        results.append(bool(torch.isfinite(grad).all()) and (state.stats()["blocks_skipped"] > 0) == (RANK == 1))
    return results


def statistics():
    begin()
    model = mlp()
    state = state_for(model, "stats=full", start_iter=1)
    train(wrap(model, state), range(5))
    stats = state.stats()
    dense = 5 * 4 * flat(model).numel()
    return [stats["step"], stats["bytes_dense"] == dense, sum(b["calls"] for b in stats["buckets"]),
            0 < stats["density"] < 0.2, 0.1 < stats["energy"] <= 1, min(stats["seconds"].values()) > 0,
            stats["bytes_sent"] < 0.4 * dense]


class Cases(unittest.TestCase):
    def all_true(self, function, ranks=2):
        for result in support.values(support.torchrun(ranks, function)):
            self.assertTrue(all(result), result)

    def test_parameters_may_be_unused(self):
        self.all_true(unused)

    def test_gradients_may_be_views_graphs_static_and_weights_tied(self):
        self.all_true(options_of_ddp)

    def test_warnings_of_scripts_are_shown_as_without_the_hook(self):
        self.all_true(warnings_shown)

    def test_gradients_may_be_accumulated(self):
        self.assertEqual(support.values(support.torchrun(2, accumulated)), [[True, 4, True]] * 2)

    def test_dtypes_may_be_mixed(self):
        for kinds, near, same, buckets in support.values(support.torchrun(2, dtypes)):
            self.assertTrue(kinds and same and buckets)
            self.assertLess(near, 2e-3)  # halves are averaged as floats here, as halves by gloo

    def test_buckets_may_be_tiny_or_empty_and_parameters_frozen(self):
        self.all_true(tiny, 3)

    def test_a_nan_is_not_sent(self):
        self.all_true(not_a_number)

    def test_statistics_add_up(self):
        for step, bytes_dense, calls, *rest in support.values(support.torchrun(2, statistics)):
            self.assertEqual((step, bytes_dense), (5, True))
            self.assertGreaterEqual(calls, 9)  # one bucket or more before the rebuild, two or more then
            self.assertTrue(all(rest), rest)


if __name__ == "__main__":
    unittest.main()

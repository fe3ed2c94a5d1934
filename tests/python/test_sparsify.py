"""frugrad.torch.Sparsify: pruned weights are zero, the same on all ranks, and neither sent nor stored."""

import tempfile
import unittest
from pathlib import Path

import support
from ddp_helpers import WORLD, batch, begin, dist, flat, mlp, nn, torch, wrap

import frugrad.torch
from frugrad.torch import DDPState, Sparsify
from frugrad.torch.sparse_masks import Masked, select_n_of_m

TEXTS = ("magnitude:density=0.1,from=0.2,until=0.6,updates=3", "rigl:density=0.1,updates=3", "nm:from=0.2,until=0.6")
UNITS = "channels:density=0.25,from=0.2,until=0.6,updates=3"


def make(kind, model):
    optimizer = {"sgd": lambda: torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
                 "adam": lambda: torch.optim.AdamW(model.parameters(), lr=2e-3)}[kind]()
    return frugrad.torch.optimizer(model, optimizer)


def run(ddp, optimizer, sparsify, steps):
    for step in steps:
        x, y = batch(step)
        optimizer.zero_grad()
        nn.functional.cross_entropy(ddp(x), y).backward()
        optimizer.step()
        sparsify.step()


def prepare(text, kind="sgd", steps=20, config="frugrad", seed=0):
    model = mlp(seed)
    optimizer = make(kind, model)
    sparsify = Sparsify(model, optimizer, text, total_steps=steps)
    state = DDPState(model, config, optimizer, start_iter=1, sparsify=sparsify)
    return model, optimizer, sparsify, state


def gather_equal(values):
    every = [torch.zeros_like(values) for _ in range(WORLD)]
    dist.all_gather(every, values)
    return all(torch.equal(x, every[0]) for x in every)


def train_on_ranks(text, kind, config):
    """What prepare() returns after 20 steps, and the bytes of each of the last four."""
    model, optimizer, sparsify, state = prepare(text, kind, config=config, seed=dist.get_rank())
    ddp = wrap(model, state)
    run(ddp, optimizer, sparsify, range(16))
    before = state.stats()["bytes_sent"]
    run(ddp, optimizer, sparsify, range(16, 20))
    return model, optimizer, sparsify, state, (state.stats()["bytes_sent"] - before) / 4


def ranks_agree():
    """For each kind and optimizer: equal weights, density, zeros where pruned, residual sizes, bytes of the last steps."""
    begin()
    results = []
    for text in TEXTS:
        for kind, config in (("sgd", "frugrad"), ("adam", "frugrad"), ("adam", "dense")):
            model, optimizer, sparsify, state, sent = train_on_ranks(text, kind, config)
            pruned = [p.flatten()[~sparsify.masks[name]] for name, p in model.named_parameters() if name in sparsify.masks]
            states = [value for p in model.parameters() for value in optimizer.state[p].values()
                      if isinstance(value, torch.Tensor) and value.shape == p.shape and p.dim() == 2]
            masks = [sparsify.masks[name] for name, p in model.named_parameters() if p.dim() == 2]
            per = len(states) // len(masks)
            dirty = sum(int(s.flatten()[~masks[i // per]].count_nonzero()) for i, s in enumerate(states)) if per else 0
            results.append([gather_equal(flat(model)), sparsify.density, sum(int(x.count_nonzero()) for x in pruned), dirty,
                            sum(r.numel() for r in state.residuals().values()), sent, flat(model).isfinite().all().item()])
    return results


def units_on_ranks():
    """Equal weights, weights and units that are not zero, residual sizes, and bytes of the last steps."""
    begin()
    results = []
    for kind, config in (("sgd", "frugrad"), ("adam", "frugrad,vectors=sparse"), ("adam", "dense")):
        model, _, _, state, sent = train_on_ranks(UNITS, kind, config)
        units = [int((p != 0).sum()) for p in model.parameters() if p.dim() == 1]
        vectors = [list(r.shape) for name, r in sorted(state.residuals().items()) if name.endswith("bias")]
        results.append([gather_equal(flat(model)), int((flat(model) != 0).sum()), units, vectors,
                        sum(r.numel() for r in state.residuals().values()), sent])
    return results


class Compiled(nn.Module):
    """What torch.compile() returns, in versions without it."""

    def __init__(self, model):
        super().__init__()
        self._orig_mod = model

    def forward(self, x):
        return self._orig_mod(x)


def compiled_in_ddp():
    """The names of masks: DDPState has the same."""
    begin()
    ddp = nn.parallel.DistributedDataParallel(Compiled(mlp()))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
    return [sorted(Sparsify(model, optimizer, text, total_steps=8).masks)
            for model in (ddp, Compiled(ddp)) for text in ("magnitude", "units")]


def one_rank_differs():
    """Weights of a straight-through phase at step 0, of ranks that began with others; then a NaN on one rank only."""
    begin()
    model, optimizer, sparsify, state = prepare("nm:from=0,until=0.5", steps=8, seed=dist.get_rank())
    run(wrap(model, state), optimizer, sparsify, range(8))
    results = [gather_equal(flat(model))]
    for text in ("rigl:density=0.1,updates=3", "rigl:density=0.1,updates=3,layers=global"):
        model, optimizer, sparsify, state = prepare(text, steps=8)
        ddp = wrap(model, state)
        run(ddp, optimizer, sparsify, range(2))
        x, y = batch(2)
        optimizer.zero_grad()
        (nn.functional.cross_entropy(ddp(x), y) * (float("nan") if dist.get_rank() else 1)).backward()
        optimizer.step()
        sparsify.step()
        run(ddp, optimizer, sparsify, range(3, 8))
        results.append(gather_equal(flat(model)) and bool(flat(model).isfinite().all()))
    return results


def resumed():
    """Twelve steps, and twelve with a checkpoint after seven: the same bits?"""
    begin()
    results = []
    for text in (*TEXTS, UNITS):
        for kind in ("sgd", "adam"):
            model, optimizer, sparsify, state = prepare(text, kind, 12)
            run(wrap(model, state), optimizer, sparsify, range(12))
            first = prepare(text, kind, 12)
            run(wrap(first[0], first[3]), *first[1:3], range(7))
            saved = [first[0].state_dict(), first[1].state_dict(), first[2].state_dict(all_ranks=True),
                     first[3].state_dict(all_ranks=True)]
            again = prepare(text, kind, 12)
            for part, values in zip(again, saved):
                part.load_state_dict(values)
            run(wrap(again[0], again[3]), *again[1:3], range(7, 12))
            results.append(torch.equal(flat(model), flat(again[0])))
    return results


class Ranks(unittest.TestCase):
    def test_nothing_is_sent_or_stored_of_pruned_weights(self):
        vectors, matrices = 256 + 256 + 10, 64 * 256 + 256 * 256 + 2560
        results = support.values(support.torchrun(2, ranks_agree, timeout=120))
        self.assertEqual(results[0], results[1])
        for number, (alike, density, alive, dirty, residuals, sent, finite) in enumerate(results[0]):
            text, dense = TEXTS[number // 3], number % 3 == 2
            wanted = 0.5 if text.startswith("nm") else 0.1
            self.assertTrue(alike and finite, text)
            self.assertAlmostEqual(density, wanted, places=2)
            self.assertEqual((alive, dirty), (0, 0), text)
            kept = vectors + round(density * matrices)
            if not dense:
                self.assertEqual(residuals, kept)
            self.assertLess(sent, 1.02 * 4 * kept if dense else 4 * vectors + 0.25 * density * matrices + 600)

    def test_nothing_is_sent_or_stored_of_pruned_units(self):
        kept = 64 * 64 + 64 * 64 + 64 * 10 + 64 + 64 + 10  # also vectors
        results = support.values(support.torchrun(2, units_on_ranks, timeout=120))
        self.assertEqual(results[0], results[1])
        for number, (alike, weights, units, shapes, residuals, sent) in enumerate(results[0]):
            self.assertEqual((alike, weights, units), (True, kept, [64, 64, 10]))
            if number < 2:
                self.assertEqual((residuals, shapes), (kept, [[64], [64], [10]]))
            self.assertLess(sent, (4 * 138 + kept // 4 + 600, kept // 4 + 600, 1.02 * 4 * kept)[number])

    def test_names_do_not_depend_on_compilation(self):
        names = [f"{part}.{name}" for part in (0, 2, 4) for name in ("bias", "weight")]
        matrices = [name for name in names if name.endswith("weight")]
        units = [name for name in names if name != "4.bias"]
        self.assertEqual(support.values(support.torchrun(1, compiled_in_ddp, timeout=120)), [[matrices, units] * 2])

    def test_a_rank_that_differs_does_not_end_or_split_the_run(self):
        self.assertEqual(support.values(support.torchrun(2, one_rank_differs, timeout=120)), [[True] * 3] * 2)

    def test_resumed_runs_have_the_same_bits(self):
        self.assertEqual(support.values(support.torchrun(2, resumed, timeout=120)), [[True] * 8] * 2)


class OneProcess(unittest.TestCase):
    def setUp(self):
        self.model = mlp()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)

    def test_learns_with_a_tenth_of_the_weights(self):
        for text in ("magnitude:density=0.1", "rigl:density=0.1", "nm:n=4,m=8"):
            model = mlp()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
            sparsify = Sparsify(model, optimizer, text, total_steps=120)
            run(model, optimizer, sparsify, range(120))
            x, y = batch(999, n=256)
            self.assertLess(nn.functional.cross_entropy(model(x), y).item(), 1.7, text)
            kept = int(sum((p != 0).sum() for p in model.parameters() if p.dim() > 1))
            self.assertAlmostEqual(kept / sum(p.numel() for p in model.parameters() if p.dim() > 1), sparsify.density, 2)

    def test_n_of_m_is_straight_through(self):
        model = nn.Linear(8, 2, bias=False)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        before = model.weight.detach().clone()
        sparsify = Sparsify(model, optimizer, "nm:from=0,until=0.5,refine=0", total_steps=4)
        selected = select_n_of_m(Masked((2, 8), before.flatten()), 2, 4).view(2, 8)
        self.assertTrue(torch.equal(model.weight, before * selected))
        model.weight.grad = torch.full((2, 8), 0.25)
        optimizer.step()
        sparsify.step()
        dense = before - 0.25  # also of weights that the model does not have
        selected = select_n_of_m(Masked((2, 8), dense.flatten()), 2, 4).view(2, 8)
        torch.testing.assert_close(model.weight.detach(), dense * selected)

    def test_mean_squares_do_not_count_the_straight_through_phase(self):
        model = nn.Linear(8, 2, bias=False)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        sparsify = Sparsify(model, optimizer, "nm:from=0.4,until=0.8", total_steps=50)
        for step in range(42):
            model.weight.grad = torch.full((2, 8), 100.0 if 20 <= step < 40 else 1.0)
            before = optimizer.state[model.weight]["exp_avg_sq"].clone() if step == 40 else None
            optimizer.step()
            sparsify.step()
            if before is not None:  # as if every gradient had been 1
                kept = before.flatten()[sparsify.masks["weight"]] / (1 - 0.999 ** 40)
                torch.testing.assert_close(kept, torch.ones(8), rtol=0.06, atol=0)

    def test_embeddings_biases_and_skipped_ones_stay(self):
        model = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        sparsify = Sparsify(model, optimizer, "magnitude:from=0,until=0", total_steps=1, skip=["3."])
        self.assertEqual(list(sparsify.masks), ["1.weight"])

    def test_random_weights_keep_their_norm(self):
        for pretrained in (False, True):
            model = mlp()
            optimizer, norm = torch.optim.SGD(model.parameters(), lr=0.1), model[2].weight.norm().item()
            Sparsify(model, optimizer, "rigl", total_steps=10, pretrained=pretrained)
            self.assertEqual(abs(model[2].weight.norm().item() - norm) < 1e-3 * norm, not pretrained)

    def test_mistakes(self):
        norm = nn.LayerNorm(4)
        for error, arguments, options in (
                (ValueError, (self.model, self.optimizer, "half"), {"total_steps": 9}),
                (ValueError, (self.model, self.optimizer), {"total_steps": 0}),
                (ValueError, (norm, torch.optim.SGD(norm.parameters(), lr=0.1)), {"total_steps": 9}),
                (ValueError, (mlp(), self.optimizer), {"total_steps": 9}),
                (TypeError, (self.optimizer, self.optimizer), {"total_steps": 9}),
                (TypeError, (self.model, self.model), {"total_steps": 9})):
            with self.assertRaises(error):
                Sparsify(*arguments, **options)
        with self.assertRaises(TypeError):
            DDPState(self.model, "frugrad,feedback=none", sparsify=3)
        sparsify = Sparsify(self.model, self.optimizer, "rigl", total_steps=9)
        for config in ("dgc", "frugrad,feedback=none,unit=row"):
            with self.assertRaisesRegex(ValueError, "sparsify"):
                DDPState(self.model, config, make("sgd", self.model), sparsify=sparsify)
        with self.assertRaisesRegex(ValueError, "give the model"):
            DDPState(config="frugrad,feedback=none", sparsify=sparsify)
        small = nn.Linear(4, 4)
        other = Sparsify(small, torch.optim.SGD(small.parameters(), lr=0.1), "rigl", total_steps=9)
        for state in ({}, other.state_dict(), dict(sparsify.state_dict(), text="nm")):
            with self.assertRaises(ValueError):
                sparsify.load_state_dict(state)

    def test_a_pruned_model_is_saved_compact_and_runs_packed(self):
        run(self.model, self.optimizer, Sparsify(self.model, self.optimizer, total_steps=20), range(20))
        x = batch(0)[0]
        wanted = self.model(x).detach()
        with tempfile.TemporaryDirectory() as folder:
            for code, share, close in (("f32", 0.17, 1e-5), ("int8", 0.1, 0.05)):
                path = Path(folder) / f"{code}.fgc"
                size = frugrad.torch.save(path, self.model, code)
                self.assertEqual(size, path.stat().st_size)
                self.assertLess(size, share * 4 * sum(p.numel() for p in self.model.parameters()))
                packed = frugrad.torch.load(path, mlp(1))
                self.assertIsInstance(packed[2], frugrad.torch.PackedLinear)
                torch.testing.assert_close(packed(x), wanted, rtol=close, atol=close)
            with self.assertRaisesRegex(ValueError, "code"):
                frugrad.torch.save(path, self.model, "int4")


if __name__ == "__main__":
    unittest.main()

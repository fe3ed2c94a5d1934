"""Masks of weights: which stay, how many, and that runs of the trainer with masks send and store nothing else."""

import json
import os
import subprocess
import unittest

import support

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # on the host, also where there is a GPU
torch = support.need("torch")

from frugrad.torch import sparse_masks  # noqa: E402
from frugrad.torch.roles import describe  # noqa: E402
from frugrad.torch.sparse_masks import Masked  # noqa: E402
from frugrad.torch.sparse_options import SparseOptions, parse  # noqa: E402
from frugrad.torch.trainer.models import parse_model  # noqa: E402


class Options(unittest.TestCase):
    def test_mistakes_are_named(self):
        for text, part in (("magnitud", "unknown kind"), ("rigl:n=2", "has no option 'n'"), ("nm:n=4", "below m"),
                           ("magnitude:density=2", "density=2"), ("magnitude:updates=1.5", "whole number"),
                           ("magnitude:from=0.9", "is after"), ("rigl:layers=all", "layers=all"),
                           ("nm:n", "has no option 'n'; it has n, m"), ("magnitude:density=nan", "density=nan"),
                           ("channels:layers=erk", "has no option 'layers'"), ("heads:density=2", "density=2")):
            with self.assertRaisesRegex(ValueError, part):
                parse(text)

    def test_the_schedule_is_cubic(self):
        options = parse("magnitude:density=0.2,from=0.1,until=0.5,updates=4")
        due = [step for step in range(100) if options.is_due(step, 100)]
        self.assertEqual(due, [20, 30, 40, 50])
        self.assertEqual(options.density_at(19, 100), 1)
        self.assertAlmostEqual(options.density_at(30, 100), 1 - 0.8 * (1 - 0.5 ** 3))
        self.assertAlmostEqual(options.density_at(99, 100), 0.2)
        units = [parse(kind)._replace(kind="") for kind in ("channels", "heads", "units")]
        self.assertEqual(units, [SparseOptions("", 0.5, begin=0.1, end=0.6, updates=50)] * 3)
        self.assertTrue(parse("rigl").is_due(0, 100) and parse("magnitude:from=0,until=0").is_due(0, 100))


class Selection(unittest.TestCase):
    def test_masks_are_sent_as_bits(self):
        for n in (1, 8, 13):
            mask = torch.rand(n, generator=torch.Generator().manual_seed(n)) < 0.5
            packed = sparse_masks.pack_bits(mask)
            self.assertEqual((packed.dtype, len(packed)), (torch.uint8, (n + 7) // 8))
            self.assertTrue(torch.equal(sparse_masks.unpack_bits(packed, n), mask))
        self.assertEqual(sparse_masks.pack_bits(torch.arange(10) % 3 == 0).tolist(), [0b01001001, 0b10])

    def test_ties_go_to_the_lower_index(self):
        values, among = torch.tensor([1.0, -2, 2, 0, 2, 0]), torch.tensor([True, True, True, True, True, False])
        for keep, wanted in ((1, [1]), (2, [1, 2]), (4, [0, 1, 2, 4]), (5, [0, 1, 2, 3, 4]), (6, [0, 1, 2, 3, 4]), (0, [])):
            self.assertEqual(sparse_masks.select_largest(values, among, keep).nonzero().flatten().tolist(), wanted)

    def test_n_of_m_along_inputs(self):
        weights = torch.tensor([[1.0, -3, 2, 0, 9, 8], [5, 5, 5, 5, 1, 0]])
        wanted = [[False, True, True, False, True, True], [True, True, False, False, True, True]]  # the rest stays
        rows = sparse_masks.select_n_of_m(Masked((2, 6), weights.flatten()), 2, 4)
        columns = sparse_masks.select_n_of_m(Masked((6, 2), weights.t().flatten(), True), 2, 4)
        self.assertEqual(rows.view(2, 6).tolist(), wanted)
        self.assertEqual(columns.view(6, 2).t().tolist(), wanted)

    def test_global_leaves_no_tensor_empty(self):
        tensors = [Masked((1, 4), torch.tensor([9.0, 8, 7, 6])), Masked((1, 4), torch.tensor([1.0, 2, 3, 4]))]
        masks = sparse_masks.keep_largest(tensors, [torch.ones(4, dtype=torch.bool)] * 2, "global", 0.25)
        self.assertEqual([mask.tolist() for mask in masks], [[True, True, False, False], [False, False, False, True]])

    def test_zeros_stay(self):
        tensors = [Masked((1, 4), torch.tensor([0.0, 2, 0, -1])), Masked((1, 2), torch.zeros(2))]
        masks = sparse_masks.update(parse("zeros"), tensors, [], 0, 10, lambda counts: [])
        self.assertEqual([mask.tolist() for mask in masks], [[False, True, False, True], [True, False]])
        self.assertEqual([parse("zeros").is_due(step, 10) for step in range(3)], [True, False, False])

    def test_rigl_exchanges_the_smallest_for_the_largest_sums(self):
        mask = torch.tensor([True, True, True, False, False, False])
        tensors, sums = [Masked((1, 6), torch.tensor([3.0, 1, 2, 0, 0, 0]))], [[0, 0, 0, 5.0, 1, -4], [0, 0, 0, -5.0, 1, 0]]
        growth = [sparse_masks.list_growth([torch.tensor(s)], [mask], [1]) for s in sums]
        self.assertEqual([g[0].indices.tolist() for g in growth], [[3], [3]])  # an entry of each tensor, no more
        growth[1] = sparse_masks.list_growth([torch.tensor([0, 0, 0, -5.0, 9, 0])], [mask], [1])
        changed = sparse_masks.swap_weights(tensors, [mask], [1], growth)
        self.assertEqual(changed[0].tolist(), [True, False, True, False, True, False])

    def test_counts_are_those_of_the_program(self):
        program = os.environ.get("FRUGRAD")
        if not program:
            self.skipTest("no program")
        model = parse_model("resnet20").build(0)
        known = describe(model)
        tensors = [Masked(known[id(p)].shape, p.detach().flatten()) for p in model.parameters() if p.dim() > 1]
        vectors = sum(p.numel() for p in model.parameters() if p.dim() == 1)
        for layers in ("erk", "uniform"):
            ran = subprocess.run([program, "train", "--model", "resnet20", "--batch", "1", "--workers", "1", "--threads", "1",
                                  "--steps", "1", "--no-eval", "--json", "--quiet", "--sparse",
                                  f"magnitude:from=0,until=0,layers={layers}"], capture_output=True, text=True, timeout=60)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            kept = json.loads(ran.stdout)["params_kept"]
            self.assertEqual(sum(sparse_masks.layer_counts(tensors, layers, 0.1)) + vectors, kept)


if __name__ == "__main__":
    unittest.main()

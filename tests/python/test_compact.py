"""Compact files in Python: against the format's own words, and in a model that runs them packed."""

import tempfile
import unittest
from pathlib import Path

import compact_oracle as oracle
import support

torch = support.need("torch")
import frugrad
import frugrad.torch


def write(path, model, code):
    """The weights of a model, every matrix with this code."""
    tensors = [(name, code if value.ndim == 2 else oracle.F32, value.flatten().tolist(), tuple(value.shape), False)
               for name, value in model.state_dict().items()]
    Path(path).write_bytes(oracle.write(tensors))


def make_model():
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(24, 40), torch.nn.ReLU(), torch.nn.Linear(40, 7, bias=False))
    with torch.no_grad():
        for layer in (model[0], model[2]):
            layer.weight *= torch.rand_like(layer.weight) < 0.3
    return model.eval()


class Compact(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = str(Path(self.folder.name) / "model.fgc")

    def tearDown(self):
        self.folder.cleanup()

    def test_a_state_dict_is_what_the_format_says(self):
        Path(self.path).write_bytes(oracle.golden())
        state = frugrad.torch.load_state(self.path)
        expected = oracle.read(oracle.golden())
        self.assertEqual(list(state), list(expected))
        for name, (shape, values) in expected.items():
            self.assertEqual(tuple(state[name].shape), shape)
            self.assertEqual(state[name].flatten().tolist(), values)

    def test_a_model_runs_packed(self):
        for code in (oracle.SPARSE_F32, oracle.SPARSE_INT8, oracle.INT8):
            write(self.path, make_model(), code)
            packed, dense = frugrad.torch.load(self.path, make_model()), make_model()
            dense.load_state_dict(frugrad.torch.load_state(self.path))
            self.assertIsInstance(packed[0], frugrad.torch.PackedLinear)
            for shape in ((24,), (5, 24), (3, 20, 24)):  # one vector, few, many
                x = torch.randn(shape)
                torch.testing.assert_close(packed(x), dense(x).detach(), rtol=1e-3, atol=1e-4)

    def test_dense_weights_are_copied(self):
        write(self.path, make_model(), oracle.F32)
        model = frugrad.torch.load(self.path, make_model())
        self.assertIsInstance(model[0], torch.nn.Linear)

    def test_a_model_that_is_one_layer_gets_its_weights(self):
        layer = make_model()[0]
        write(self.path, layer, oracle.SPARSE_F32)
        model = frugrad.torch.load(self.path, torch.nn.Linear(24, 40))
        self.assertTrue(torch.equal(model.weight, layer.weight))

    def test_a_packed_model_is_not_saved(self):
        write(self.path, make_model(), oracle.SPARSE_F32)
        packed = frugrad.torch.load(self.path, make_model())
        with self.assertRaisesRegex(ValueError, "layer '0' is packed"):
            frugrad.torch.save(self.path, packed)
        self.assertIn("0.weight", frugrad.torch.load_state(self.path))  # nothing was written

    def test_modules_can_read_the_weights_of_their_packed_layers(self):
        torch.manual_seed(4)
        dense = torch.nn.MultiheadAttention(8, 2).eval()
        write(self.path, dense, oracle.SPARSE_F32)
        packed, x = frugrad.torch.load(self.path, torch.nn.MultiheadAttention(8, 2)), torch.randn(5, 1, 8)
        self.assertIsInstance(packed.out_proj, frugrad.torch.PackedLinear)
        self.assertTrue(torch.equal(packed.out_proj.weight, dense.out_proj.weight))
        with torch.no_grad():
            torch.testing.assert_close(packed(x, x, x)[0], dense(x, x, x)[0])

    def test_a_parameter_that_the_file_does_not_have_is_named(self):
        write(self.path, make_model()[:2], oracle.SPARSE_F32)
        with self.assertRaisesRegex(KeyError, "the file has no tensor '2.weight'"):
            frugrad.torch.load(self.path, make_model())

    def test_one_of_two_tied_parameters_is_enough(self):
        def tied():
            model = torch.nn.Sequential(torch.nn.Embedding(9, 4), torch.nn.Linear(4, 9, bias=False))
            model[1].weight = model[0].weight
            return model.eval()

        weights, x = torch.randn(9, 4), torch.arange(9)
        for name in ("0.weight", "1.weight"):
            tensor = (name, oracle.SPARSE_F32, weights.flatten().tolist(), (9, 4), False)
            Path(self.path).write_bytes(oracle.write([tensor]))
            model = frugrad.torch.load(self.path, tied())
            torch.testing.assert_close(model(x).detach(), weights @ weights.T)

    def test_what_does_not_fit_is_refused(self):
        write(self.path, make_model(), oracle.SPARSE_F32)
        with self.assertRaisesRegex(KeyError, "0.weight"):
            frugrad.torch.load(self.path, torch.nn.ReLU())
        with self.assertRaisesRegex(ValueError, "shape"):
            frugrad.torch.load(self.path, torch.nn.Sequential(torch.nn.Linear(24, 41)))
        Path(self.path).write_bytes(oracle.golden()[:-3])
        with self.assertRaises(frugrad.FrugradError):
            frugrad.torch.load_state(self.path)


if __name__ == "__main__":
    unittest.main()

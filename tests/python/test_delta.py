"""Weight deltas of arrays and tensors: against the format's own words, through files, and in vLLM's fields."""

import doctest
import json
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

import delta_oracle
import support

np = support.need("numpy")
import frugrad
from frugrad import delta

try:
    import torch
except ImportError:
    torch = None


def versions(seed=1, share=0.02):
    rng = np.random.default_rng(seed)
    base, result = {}, {}
    for name, dtype, shape in (("a", np.float32, (70, 80)), ("b", np.float16, (300, 301)), ("c", np.int8, (999,)),
                               ("d", np.int64, ()), ("e", np.uint16, (0, 4)), ("f", np.bool_, (50,))):
        width = np.dtype(dtype).itemsize
        raw = rng.integers(0, 2 if dtype is np.bool_ else 256, int(np.prod(shape)) * width, np.uint8)
        base[name] = raw.view(dtype).reshape(shape).copy()
        raw = raw.copy()
        if dtype is not np.bool_:
            raw[rng.random(raw.size) < share] += 1
        result[name] = raw.view(dtype).reshape(shape)
    return base, result


def same(a, b):
    return all(a[name].tobytes() == b[name].tobytes() for name in b)


class Arrays(unittest.TestCase):
    def test_weights_are_changed_in_place_and_back(self):
        base, result = versions()
        kept = {name: array.copy() for name, array in base.items()}
        patch = delta.make(base, result)
        delta.apply(base, patch)
        self.assertTrue(same(base, result))
        with self.assertRaisesRegex(frugrad.MismatchError, "is the result already"):
            delta.apply(base, patch)
        delta.apply(base, memoryview(patch), back=True, threads=1)
        self.assertTrue(same(base, kept))
        self.assertEqual(patch, delta.make(base, result, threads=3))

    def test_the_bytes_are_those_of_the_format(self):
        base, result = versions(4, 0.2)
        patch = delta.make(base, result)
        at = 0
        for name in base:
            array = base[name]
            dtype = {"a": "F32", "b": "F16", "c": "I8", "d": "I64", "e": "U16", "f": "BOOL"}[name]
            record = delta_oracle.change(array.tobytes(), result[name].tobytes(), array.itemsize, array.shape, dtype,
                                         name)
            self.assertEqual(patch[at:at + len(record)], record, name)
            at += len(record)
        self.assertEqual(len(patch), at + 72)

    def test_a_chain_of_versions(self):
        weights, patches = versions()[0], []
        rng = np.random.default_rng(9)
        now = {name: array.copy() for name, array in weights.items()}
        for _ in range(4):
            then = {name: array.copy() for name, array in now.items()}
            now["b"].reshape(-1)[rng.integers(0, now["b"].size, 50)] = 1
            now["a"][3] += 1
            patches.append(delta.make(then, now))
        for before, after in zip(patches, patches[1:]):
            self.assertEqual(delta.describe(before).result, delta.describe(after).base)
        with self.assertRaises(frugrad.MismatchError):
            delta.apply(weights, patches[1])
        for patch in patches:
            delta.apply(weights, patch)
        self.assertTrue(same(weights, now))

    def test_what_does_not_fit_is_refused_with_its_name(self):
        base, result = versions()
        patch = delta.make(base, result)
        kept = {name: array.copy() for name, array in base.items()}
        wrong = dict(base, b=base["b"].astype(np.float32))
        for weights, words in ((wrong, "'b' has another dtype or shape"),
                               ({k: v for k, v in base.items() if k != "c"}, "'c', which is not among the weights"),
                               (dict(base, a=base["a"].T), "'a' is not contiguous"),
                               (dict(base, a=[1, 2]), "'a' is neither a PyTorch tensor nor a NumPy array but list"),
                               (dict(base, c=base["c"] + np.int8(1)), "'c' is not the version")):
            with self.assertRaisesRegex((frugrad.MismatchError, ValueError, TypeError), words):
                delta.apply(weights, patch)
            self.assertTrue(same(base, kept))
        for bad in (b"", patch[:-1], patch[:300], patch + b"x", patch[:90] + b"!" + patch[91:]):
            with self.assertRaises(frugrad.FormatError):
                delta.apply(base, bad)
        with self.assertRaisesRegex(frugrad.MismatchError, "adds tensor 'new'"):
            delta.apply(base, delta.make(base, dict(result, new=np.ones(3))))
        with self.assertRaisesRegex(frugrad.MismatchError, "removes tensor 'a'"):
            delta.apply(base, delta.make(base, {k: v for k, v in result.items() if k != "a"}))
        self.assertTrue(same(base, kept))

    def test_names_that_share_memory_are_changed_once(self):
        base, result = np.zeros(5000, np.float16), np.ones(5000, np.float16)
        patch = delta.make({"in": base, "out": base.copy()}, {"in": result, "out": result})
        delta.apply({"in": base, "out": base}, patch)
        self.assertTrue((base == 1).all())

    @unittest.skipUnless(support.PROGRAM, "FRUGRAD does not name the program")
    def test_the_program_applies_it_to_files(self):
        base, result = versions()
        names = {"float32": "F32", "float16": "F16", "int8": "I8", "int64": "I64", "uint16": "U16", "bool": "BOOL"}
        with tempfile.TemporaryDirectory(prefix="frugrad-test-") as folder:
            for path, weights in (("old", base), ("new", result)):
                header, body = {}, b""
                for name, array in weights.items():
                    end = len(body) + array.nbytes
                    header[name] = {"dtype": names[array.dtype.name], "shape": list(array.shape),
                                    "data_offsets": [len(body), end]}
                    body += array.tobytes()
                text = json.dumps(header).encode()
                Path(folder, path).write_bytes(struct.pack("<Q", len(text)) + text + body)
            Path(folder, "patch").write_bytes(delta.make(base, result))
            subprocess.run([support.PROGRAM, "patch", "old", "patch", "-o", "made"], cwd=folder, check=True,
                           capture_output=True)
            self.assertEqual(Path(folder, "made").read_bytes(), Path(folder, "new").read_bytes())
            subprocess.run([support.PROGRAM, "diff", "old", "new", "-o", "theirs"], cwd=folder, check=True,
                           capture_output=True)
            delta.apply(base, Path(folder, "theirs").read_bytes())
            self.assertTrue(same(base, result))


@unittest.skipUnless(torch, "PyTorch is missing")
class Tensors(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)
        self.base = {"w": torch.randn(200, 300).to(torch.bfloat16), "b": torch.randn(70)}
        self.result = {name: (tensor + 2e-4 * torch.randn(tensor.shape)).to(tensor.dtype)
                       for name, tensor in self.base.items()}

    def assertSame(self, a, b):
        for name in b:
            self.assertTrue(torch.equal(a[name], b[name]), name)

    def test_parameters_of_a_model(self):
        model = torch.nn.Linear(50, 60).to(torch.bfloat16)
        base = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        with torch.no_grad():
            model.weight.mul_(1.002)
        patch = delta.make(base, model.state_dict())
        delta.apply(base, patch)
        self.assertSame(base, model.state_dict())
        self.assertEqual({t.dtype for t in delta.describe(patch).tensors}, {"BF16"})

    def test_fields_of_vllm(self):
        patch = delta.make(self.base, self.result)
        sparse = delta.to_sparse(patch, self.result)
        loaded = {name: tensor.clone() for name, tensor in self.base.items()}
        for part in sparse:
            self.assertEqual((part.indices.dtype, part.full_shape), (torch.int32, tuple(self.base[part.name].shape)))
            loaded[part.name].view(-1)[part.indices.long()] = part.values
        self.assertSame(loaded, self.result)
        again = delta.from_sparse(sparse, self.base)
        self.assertEqual(again, patch)
        with self.assertRaisesRegex(ValueError, "'w' is torch.bfloat16"):
            delta.from_sparse([sparse[0]._replace(full_shape=(1, 2))], self.base)

    def test_other_devices_and_strides_get_a_sentence(self):
        with self.assertRaisesRegex(ValueError, "'w' is on meta; deltas are made and applied in host memory"):
            delta.make(self.base, {"w": torch.empty(200, 300, dtype=torch.bfloat16, device="meta")})
        with self.assertRaisesRegex(ValueError, "'w' is not contiguous"):
            delta.apply({"w": self.base["w"].T, "b": self.base["b"]}, delta.make(self.base, self.result))
        with self.assertRaisesRegex(TypeError, "'w' is complex64"):
            delta.make({"w": torch.ones(3, dtype=torch.complex64)}, {})


def load_tests(loader, tests, pattern):
    if torch:
        tests.addTests(doctest.DocTestSuite(delta))
    return tests

"""frugrad.Compressor on NumPy arrays: shapes, dtypes, what comes back, and what is refused."""

import subprocess
import sys
import unittest

import support

np = support.need("numpy")
import frugrad


def normal(shape, seed):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class Shapes(unittest.TestCase):
    def test_nothing_is_lost_of_one_array(self):
        compressor, total, sent = frugrad.Compressor((100, 300), "feedback=plain,residual=f32"), 0, 0
        for step in range(4):
            gradient = normal((100, 300), step)
            total = total + gradient.astype(np.float64)
            sent = sent + compressor.decompress(compressor.compress(gradient, step)).astype(np.float64)
        np.testing.assert_allclose(sent + compressor.residual(), total, rtol=0, atol=1e-5)
        self.assertEqual(compressor.stats()["calls"], 4)
        self.assertAlmostEqual(compressor.stats()["density_mean"], 0.0625, places=3)

    def test_one_dimension_alone_is_compressed_and_beside_others_travels_whole(self):
        alone = frugrad.Compressor(8192)
        self.assertEqual(alone.decompress(alone.compress(normal(8192, 1), 0)).shape, (8192,))
        self.assertFalse(alone.plan(0)["gradient"]["dense"])
        both = frugrad.Compressor({"weight": (64, 128), "bias": (8192,)})
        self.assertEqual([both.plan(0)[name]["dense"] for name in ("weight", "bias")], [0, 1])

    def test_dicts_lists_layouts_and_scalars_come_back_as_they_went_in(self):
        grads = {"weight": normal((70, 80), 1), "bias": normal(80, 2), "scale": normal((), 3)}
        text = "density=1,value=f32"
        flat = np.concatenate([g.ravel() for g in grads.values()])
        by_name = frugrad.Compressor(grads, text)
        frame = by_name.compress(dict(reversed(list(grads.items()))), 7)
        back = by_name.decompress([frame])
        self.assertEqual(list(back), list(grads))
        for name, grad in grads.items():
            self.assertEqual(back[name].shape, grad.shape)
            np.testing.assert_array_equal(back[name], grad)
        by_place = frugrad.Compressor(list(grads.values()), text)
        for x, y in zip(by_place.decompress(by_place.compress(list(grads.values()), 7)), grads.values()):
            np.testing.assert_array_equal(x, y)
        by_layout = frugrad.Compressor(by_name.layout, text)
        self.assertEqual(by_layout.compress(flat, 7), frame)
        np.testing.assert_array_equal(by_layout.decompress(frame), flat)
        self.assertEqual(frugrad.Compressor(()).decompress(frugrad.Compressor(()).compress(2.5, 0)), 2.5)

    def test_the_mean_of_several_workers(self):
        workers = [frugrad.Compressor((64, 128), "residual=f32", rank=r) for r in range(3)]
        frames = [w.compress(normal((64, 128), r), 0) for r, w in enumerate(workers)]
        single = [workers[0].decompress(frame, scale=1) for frame in frames]
        out = np.full((64, 128), 9, np.float32)
        mean = workers[2].decompress(frames, out=out)
        self.assertIs(mean, out)
        np.testing.assert_array_equal(mean, np.float32(1 / 3) * ((single[0] + single[1]) + single[2]))
        self.assertEqual([frugrad.inspect(f)["source"] for f in frames], [0, 1, 2])

    def test_a_saved_state_goes_on_bit_for_bit(self):
        first, second = frugrad.Compressor((64, 128)), frugrad.Compressor((64, 128))
        for step in range(3):
            first.compress(normal((64, 128), step), step)
        second.restore(first.save())
        self.assertEqual(first.compress(normal((64, 128), 5), 3), second.compress(normal((64, 128), 5), 3))
        with self.assertRaises(frugrad.MismatchError):
            frugrad.Compressor((64, 129)).restore(first.save())

    def test_roles_reach_the_library(self):
        heads = {f"attn.{c}": frugrad.Tensor("", (64, 64), f"attn_{c}", heads=4, module=1) for c in "qkvo"}
        plan = frugrad.Compressor(heads, "heads,min_size=1").plan(0)
        self.assertEqual({(p["unit"], p["units"], p["selected"]) for p in plan.values()}, {("head", 4, 2)})


class Dtypes(unittest.TestCase):
    def test_other_dtypes_orders_and_strides_are_converted(self):
        base = normal((96, 64), 4)
        wanted = frugrad.Compressor((96, 64)).compress(base, 0)
        wide = np.zeros((96, 128), np.float32)
        wide[:, ::2] = base
        for other in (base.astype(np.float64), np.asfortranarray(base), wide[:, ::2], base.astype(">f4"),
                      base.tolist()):
            self.assertEqual(frugrad.Compressor((96, 64)).compress(other, 0), wanted)
        halves = base.astype(np.float16)
        self.assertEqual(frugrad.Compressor((96, 64)).compress(halves, 0),
                         frugrad.Compressor((96, 64)).compress(halves.astype(np.float32), 0))
        base.flags.writeable = False
        self.assertEqual(frugrad.Compressor(base).compress(base, 0), wanted)

    def test_what_cannot_be_a_float_is_held_back(self):
        gradient = np.ones((64, 128))
        gradient[0, 0], gradient[10, 0] = 1e300, np.nan
        self.assertEqual(frugrad.inspect(frugrad.Compressor((64, 128)).compress(gradient, 0))["skipped"], 2)

    def test_wrong_arrays_are_named(self):
        several = frugrad.Compressor({"weight": (64, 128), "bias": (8,)})
        good = {"weight": normal((64, 128), 1), "bias": normal(8, 2)}
        for grad, error, words in [
                (dict(good, weight=good["weight"].T), ValueError, r"'weight' has shape \(128, 64\).*\(64, 128\)"),
                (dict(good, bias=good["bias"] * 1j), TypeError, "'bias' has dtype complex"),
                ({"weight": good["weight"]}, ValueError, "'bias' is missing"),
                (dict(good, more=good["bias"]), ValueError, "'more' is not known"),
                (good["weight"], TypeError, "must be a dict")]:
            with self.assertRaisesRegex(error, words):
                several.compress(grad, 0)
        for like, error in [((-1, 5), ValueError), ((2**50, 5), ValueError), ("text", TypeError), (None, TypeError),
                            ({"x\0y": (5, 5)}, ValueError), ({1: (5,), "1": (5,)}, ValueError), ((1,) * 9, ValueError)]:
            with self.assertRaises(error, msg=repr(like)):
                frugrad.Compressor(like)
        one = frugrad.Compressor((64, 128))
        frame = one.compress(good["weight"], 0)
        for out in (np.zeros((64, 128)), np.zeros((128, 64), np.float32), [0.0]):
            with self.assertRaises((TypeError, ValueError)):
                one.decompress(frame, out=out)
        with self.assertRaises(ValueError):
            one.compress(good["weight"], -1)
        with self.assertRaises(ValueError):
            one.decompress([])
        with self.assertRaises(TypeError):
            one.decompress([5])


class Package(unittest.TestCase):
    def test_errors_have_the_librarys_words(self):
        with self.assertRaisesRegex(frugrad.ConfigError, "valu.*value"):
            frugrad.Config("frugrad,valu=int8")
        with self.assertRaises(ValueError):  # and are what Python's own code expects
            frugrad.Config("frugrad\0,value=int8")
        small, other = frugrad.Compressor((64, 128)), frugrad.Compressor((64, 129))
        with self.assertRaises(frugrad.MismatchError):
            other.decompress(small.compress(normal((64, 128), 0), 0))

    def test_tables_are_read_to_their_ends(self):
        for preset in frugrad.presets():
            frugrad.Config(preset.name)
        options = {option.name: option for option in frugrad.options()}
        config = frugrad.Config("")
        for name, option in options.items():
            self.assertTrue(option.help and option.values, name)
            if name != "density":  # another way to write a schedule
                self.assertEqual(config.option(name), option.default)
        self.assertEqual(len(options), config.text.count("=") + 1)
        self.assertIn("adamw", [kind.name for kind in frugrad.optimizers()])
        self.assertEqual(frugrad.presets()[0].name, "frugrad")

    def test_versions_agree_with_the_header(self):
        lines = (support.SOURCE / "include" / "frugrad" / "core.h").read_text().splitlines()
        numbers = [line.split()[2] for line in lines if line.startswith("#define FRUG_VERSION_")]
        self.assertEqual(frugrad.__version__, ".".join(numbers))

    def test_the_example_of_the_page_runs(self):
        page = (support.SOURCE / "docs" / "python.md").read_text(encoding="utf-8")
        code = page.split("```python\n")[1].split("```")[0]
        output = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=True).stdout
        self.assertRegex(output, r"^\d+ bytes instead of 2048000\n$")

    def test_the_package_imports_without_numpy(self):
        code = ("import sys; sys.modules['numpy'] = None; import frugrad; print(frugrad.presets()[0].name)\n"
                "try: frugrad.Compressor\nexcept ImportError as error: print(error)")
        output = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True, check=True).stdout
        self.assertIn("frugrad\n", output)
        self.assertIn("NumPy is not installed", output)

    def test_a_library_that_is_not_there_is_said_to_be_missing(self):
        code = "import os; os.environ['FRUGRAD_LIBRARY'] = '/nowhere/libfrugrad.so'; import frugrad"
        output = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True)
        self.assertNotEqual(output.returncode, 0)
        self.assertRegex(output.stderr, "ImportError: libfrugrad was not found.*/nowhere")

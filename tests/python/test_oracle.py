"""The library's bytes are those of an implementation written from the documents, frame for frame and step for step."""

import unittest

import support

np = support.need("numpy")
import frugrad
import oracle

SHAPES = {
    "one whole tensor": {"w": (20, 256)},
    "an odd size": {"w": (67, 71)},
    "barely compressed": {"w": (1, 4096), "v": (1, 4095)},
    "several, small ones between them": {"a": (50, 100), "a.bias": (100,), "norm": (7, 3), "b": (3, 20, 77),
                                         "c": (257, 33), "scale": (), "none": (0, 4), "d.bias": (300,)},
}
# Options of the library, and of the oracle.
METHODS = {
    "frugrad": {},
    "residual=f32": {"residual": "f32"},
    "residual=f32,feedback=plain,value=f32": {"residual": "f32", "beta": 1.0, "value": "f32"},
    "residual=bf16,select=exact": {"residual": "bf16", "select": "exact"},
    "residual=int4,value=int8,seed=12345678901": {"residual": "int4", "value": "int8", "seed": 12345678901},
    "value=f16,beta=0.5": {"value": "f16", "beta": 0.5},
    "schedule=constant:0.94,block=64": {"density": 1 - 0.94, "block": 64},
    "schedule=constant:0.99,block=4096,beta=0.95": {"density": 1 - 0.99, "block": 4096},
    "schedule=constant:0.999,beta=0.95,value=int8": {"density": 1 - 0.999, "value": "int8"},
    "density=0.25": {"density": 0.25},
    "density=0.125": {"density": 0.125},  # both index codes take the same bytes
    "density=1,value=f32": {"density": 1, "value": "f32"},
    "min_size=1,value=int8,density=0.3": {"min_size": 1, "value": "int8", "density": 0.3},
}


class Gradients:
    """Gradients of very different magnitudes, with ties, zeros, tiny numbers and a few NaNs."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def of(self, n, step):
        g = (self.rng.standard_normal(n) ** 3 * 10.0 ** self.rng.integers(-3, 3)).astype(np.float32)
        if step == 1:
            g = np.round(g, 1)  # ties, and zeros of both signs
        if step == 2:
            g[: n // 2] *= np.float32(1e-38)
        if step == 3:
            g[n // 3], g[n - 1] = np.nan, -np.inf
        return g


class Bytes(unittest.TestCase):
    def compare(self, shapes, text, options, steps, seed):
        tensors = oracle.lay_out(shapes)
        layout = frugrad.Layout(frugrad.Tensor(name, shape) for name, shape in shapes.items())
        ours, theirs = frugrad.Compressor(layout, text, rank=5), oracle.Compressor(tensors, rank=5, **options)
        self.assertEqual(layout.hash, oracle.layout_hash(tensors))
        gradients = Gradients(seed)
        for step in range(steps):
            gradient = gradients.of(layout.elements, step)
            frame, expected = ours.compress(gradient, step), theirs.compress(gradient, step)
            if frame != expected:
                at = next(i for i, (x, y) in enumerate(zip(frame, expected)) if x != y and not 44 <= i < 48)
                self.fail(f"step {step}: byte {at} of {len(frame)} (oracle: {len(expected)})")
            np.testing.assert_array_equal(ours.residual(), theirs.left)
            dense = ours.decompress(frame, scale=1)
            np.testing.assert_array_equal(dense, oracle.decode(expected, layout.elements))
        self.assertGreater(frugrad.inspect(frame)["entries"], 0)

    def test_every_method_on_every_layout(self):
        for i, (name, shapes) in enumerate(SHAPES.items()):
            for j, (text, options) in enumerate(METHODS.items()):
                with self.subTest(layout=name, config=text):
                    self.compare(shapes, text, options, steps=5, seed=100 * i + j)

    def test_many_steps_of_the_default(self):
        self.compare({"w": (40, 130), "w.bias": (130,)}, "frugrad", {}, steps=40, seed=1)

    def test_all_of_the_floats_range(self):
        shapes, rng = {"w": (33, 256)}, np.random.default_rng(2)
        for text in ("value=bf16", "value=bf16,residual=f32", "value=int8,residual=int4", "value=f32,residual=bf16"):
            options = dict(part.split("=") for part in text.split(","))
            ours = frugrad.Compressor(frugrad.Layout([frugrad.Tensor("w", shapes["w"])]), text)
            theirs = oracle.Compressor(oracle.lay_out(shapes), **options)
            for step in range(4):
                bits = rng.integers(0, 2**32, 33 * 256, np.uint64).astype(np.uint32)
                rows = bits.reshape(33, 256)
                rows[:16] &= np.uint32(0xbfffffff)  # rows below 2: tiny ones too
                rows[16:] = np.where(rows[16:] & np.uint32(0x7f800000) == 0x7f800000, np.uint32(0x7f7fffff), rows[16:])
                gradient = bits.view(np.float32)
                self.assertEqual(ours.compress(gradient, step), theirs.compress(gradient, step), f"{text}, step {step}")

    def test_sums_of_several_workers_in_order(self):
        shapes, gradients = {"w": (64, 100), "bias": (100,)}, Gradients(3)
        tensors = oracle.lay_out(shapes)
        layout = frugrad.Layout(frugrad.Tensor(name, shape) for name, shape in shapes.items())
        frames = [oracle.Compressor(tensors, rank=r).compress(gradients.of(6500, 0), 9) for r in range(4)]
        total = np.zeros(6500, np.float32)
        for frame in frames:
            total += oracle.decode(frame, 6500)
        mean = frugrad.Compressor(layout).decompress(frames)
        np.testing.assert_array_equal(mean, total * np.float32(0.25))


class Pieces(unittest.TestCase):
    def test_crc_of_the_standards_example(self):
        self.assertEqual(oracle.crc32c(b"123456789"), 0xe3069283)

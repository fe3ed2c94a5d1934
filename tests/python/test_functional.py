"""frugrad.torch.compress() and decompress(): frames of the library, also inside a graph of torch.compile()."""

import doctest
import os
import unittest

import support

torch = support.need("torch")
from frugrad import Compressor, FormatError, MismatchError  # noqa: E402
from frugrad._cuda import CudaCompressor  # noqa: E402
from frugrad.torch import compress, decompress, frame_length, functional  # noqa: E402

CONFIGS = ("frugrad,feedback=none", "schedule=constant:0.99,feedback=none", "topk,feedback=none",
           "threshold,feedback=none", "feedback=none,value=int8,block=64", "qsgd")
SHAPES = ((100, 77), (5000,), (8, 16, 3, 3), (3,))
EMULATED = os.environ.get("FRUGRAD_CUDA_EMULATED", "")
DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


def given(shape, device="cpu"):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).to(device)


def refused_by_kernels():
    """The errors of frames that emulated kernels would read beyond their end, and of one that is right."""
    config, x, found = "frugrad,feedback=none", given((100, 100)), []
    codec = functional._Codec((100, 100), config, torch.device("cpu"))
    codec._kept = CudaCompressor(codec.config, codec.layout)
    frame = compress(x, config)
    longer = torch.cat([frame, torch.zeros(8, dtype=torch.uint8)])
    for given_frame in (frame[:-4], frame[:40], frame.view(torch.int8), frame.view(torch.int32), longer):
        try:
            found.append(torch.equal(codec.decode([frame, given_frame], 0, 0.5), decompress(frame, x, config)))
        except FormatError as error:
            found.append(str(error))
    return found


class Functional(unittest.TestCase):
    def test_frames_are_those_of_the_library(self):
        for config in CONFIGS:
            for shape in SHAPES:
                x = given(shape)
                frame = compress(x, config, 3)
                own = Compressor(shape, config)
                expected = own.compress(x.numpy(), 3)
                length = frame_length(frame)
                payload = slice(48, None)  # the header has a hash of the tensor's name
                self.assertEqual(bytes(frame[:length].tolist())[payload], expected[payload])
                self.assertFalse(frame[length:].any())
                self.assertTrue(torch.equal(decompress(frame, x, config, 3), torch.tensor(own.decompress(expected))))
                self.assertTrue(torch.equal(frame, compress(x, config, 3)))  # nothing is remembered

    def test_everything_sent_is_the_tensor_and_several_are_the_mean(self):
        config = "density=1,value=f32,feedback=none"
        for device in DEVICES:
            x, y = given((64, 80), device), given((64, 80), device) * 2
            frames = [compress(x, config), compress(y, config)]
            self.assertEqual(frames[0].device, x.device)
            self.assertTrue(torch.equal(decompress(frames[0], x, config), x))
            self.assertTrue(torch.allclose(decompress(frames, x, config), 1.5 * x))

    def test_a_gpu_has_the_bytes_of_the_cpu(self):
        for device in DEVICES[1:]:
            for config in CONFIGS[:2]:
                x = given((300, 70))
                frame = compress(x.to(device), config, 5)
                self.assertTrue(torch.equal(frame.cpu(), compress(x, config, 5)))
                self.assertTrue(torch.equal(decompress(frame, x, config, 5).cpu(), decompress(frame.cpu(), x, config, 5)))

    def test_other_types_and_strides(self):
        x = given((60, 80)).to(torch.bfloat16).t()
        self.assertTrue(torch.equal(compress(x), compress(x.float().contiguous())))
        self.assertEqual(decompress(compress(x), x).dtype, torch.bfloat16)

    def test_what_cannot_be_is_refused(self):
        x = given((100, 100))
        with self.assertRaisesRegex(ValueError, "feedback=none"):
            compress(x, "frugrad")
        frame = compress(x)
        for damaged, error in ((frame[:40], FormatError), (frame[:-4], FormatError), (frame.float(), FormatError)):
            for device in DEVICES:
                with self.assertRaises(error):
                    decompress(damaged.to(device), x.to(device))
        with self.assertRaisesRegex(ValueError, "different devices: cpu, meta"):
            decompress([frame, frame.to("meta")], x)
        with self.assertRaises(MismatchError):
            decompress(frame, given((100, 101)))

    @unittest.skipUnless(os.path.exists(EMULATED), "FRUGRAD_CUDA_EMULATED names no library")
    def test_kernels_get_no_frame_that_is_too_short(self):
        env = {"FRUGRAD_CUDA_LIBRARY": EMULATED, "CUDA_VISIBLE_DEVICES": ""}
        (found,) = support.values(support.torchrun(1, refused_by_kernels, env=env))
        for text, what in zip(found, ("1972 elements of torch.uint8", "40 elements", "1976 elements of torch.int8", "494")):
            self.assertRegex(str(text), f"^{what}.* are no frame: .* has 1976 bytes")
        self.assertEqual(found[4:], [True])

    def test_the_example_is_right(self):
        found = doctest.testmod(functional, extraglobs=dict(torch=torch))
        self.assertEqual(found.failed, 0)
        self.assertGreater(found.attempted, 0)

    @unittest.skipUnless(hasattr(torch.library, "custom_op"), "this PyTorch has no torch.library.custom_op")
    def test_a_compiled_graph_is_whole(self):
        def both(x):
            return decompress(compress(x * 2), x) + 1

        for device in DEVICES:
            compiled = torch.compile(both, fullgraph=True, backend="aot_eager")
            for shape in ((100, 70), (30, 40)):
                x = given(shape, device)
                self.assertTrue(torch.equal(compiled(x), both(x)))

    @unittest.skipUnless(hasattr(torch.library, "opcheck"), "this PyTorch has no torch.library.opcheck")
    def test_operators_keep_the_rules_of_torch(self):
        for device in DEVICES:
            x = given((100, 70), device)
            config = "frugrad,feedback=none"
            torch.library.opcheck(torch.ops.frugrad.compress.default, (x, config, 0))
            torch.library.opcheck(torch.ops.frugrad.decompress.default, ([compress(x)], [100, 70], config, 0, 1.0))


if __name__ == "__main__":
    unittest.main()

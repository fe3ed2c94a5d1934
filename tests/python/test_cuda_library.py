"""libfrugrad_cuda has no state of its own: its errors and its memory are those of libfrugrad."""

import os
import unittest
from ctypes import byref, c_uint64

EMULATED = os.environ.get("FRUGRAD_CUDA_EMULATED", "")
if not EMULATED:
    raise unittest.SkipTest("FRUGRAD_CUDA_EMULATED does not name an emulated libfrugrad_cuda")
os.environ["FRUGRAD_CUDA_LIBRARY"] = EMULATED

from frugrad import Config, FrugradError, Layout, Tensor, _cuda, _lib  # noqa: E402


def memory() -> int:
    now = c_uint64()
    _lib.lib.frug_memory(byref(now), None)
    return now.value


class Library(unittest.TestCase):
    def setUp(self):
        self.layout = Layout([Tensor("w", (1000, 1000))])

    def test_errors_have_their_text(self):
        with self.assertRaisesRegex(FrugradError, "cuda: unsupported feedback"):
            _cuda.CudaCompressor(Config("feedback=dgc"), self.layout)

    def test_its_memory_is_counted(self):
        before = memory()
        compressor = _cuda.CudaCompressor(Config("feedback=none"), self.layout)
        self.assertGreater(memory(), before)
        del compressor
        self.assertEqual(memory(), before)


if __name__ == "__main__":
    unittest.main()

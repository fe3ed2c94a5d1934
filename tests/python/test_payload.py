"""Payload files: written here and read by the command-line program, and the other way round; and damaged ones."""

import json
import random
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

import support

np = support.need("numpy")
import frugrad

SHAPES = {"conv.weight": (20, 30, 3, 3), "conv.bias": (20,), 'fc "1".weight é': (70, 80), "empty": (0, 3), "scale": ()}


def program(*arguments):
    done = subprocess.run([support.PROGRAM, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"frugrad {' '.join(map(str, arguments))}: {done.stderr}")
    return done.stdout


def safetensors(path):
    """The arrays and the metadata of a safetensors file, read without the package under test."""
    data = Path(path).read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    head = json.loads(data[8:8 + length])
    metadata = head.pop("__metadata__", None)
    arrays = {}
    for name, entry in head.items():
        begin, end = (8 + length + at for at in entry["data_offsets"])
        arrays[name] = np.frombuffer(data[begin:end], "<f4").reshape(entry["shape"])
    return arrays, metadata


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="frugrad-test-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.rng = np.random.default_rng(3)
        self.several = frugrad.Compressor(SHAPES, "residual=f32")
        self.frame = self.several.compress({n: self.rng.standard_normal(s) for n, s in SHAPES.items()}, 11)

    def test_what_is_written_is_read(self):
        path = self.folder / "several.fgr"
        frugrad.write_payload(path, self.frame, self.several, {"format": "pt"})
        payload = frugrad.read_payload(path)
        self.assertEqual((payload.frame, payload.config), (self.frame, self.several.config.text))
        self.assertEqual((payload.source, payload.metadata), ("safetensors", {"format": "pt"}))
        wanted = self.several.decompress(self.frame)
        for name, array in payload.decompress().items():
            np.testing.assert_array_equal(array, wanted[name])
        sections = frugrad.inspect(payload)["sections"]
        self.assertEqual([s["name"] for s in sections], ["conv.weight", "conv.bias", 'fc "1".weight é', "scale"])
        again = self.folder / "again.fgr"
        frugrad.write_payload(again, payload)
        self.assertEqual(again.read_bytes(), path.read_bytes())

    @unittest.skipUnless(support.PROGRAM, "FRUGRAD does not name the program")
    def test_the_program_reads_what_is_written_here(self):
        path, out = self.folder / "several.fgr", self.folder / "several.safetensors"
        frugrad.write_payload(path, self.frame, self.several, {"format": "pt"})
        described = json.loads(program("inspect", path, "--json"))
        ours = frugrad.inspect(self.frame)
        for key in ("step", "bytes", "entries"):
            self.assertEqual(described[key], ours[key])
        program("decompress", path, "-o", out)
        arrays, metadata = safetensors(out)
        self.assertEqual(metadata, {"format": "pt"})
        wanted = self.several.decompress(self.frame)
        self.assertEqual(set(arrays), set(wanted))
        for name, array in arrays.items():
            self.assertEqual(array.shape, wanted[name].shape)
            np.testing.assert_array_equal(array, wanted[name])
        for shape in ((70, 80), (9000,), ()):
            one = frugrad.Compressor(shape)
            frame = one.compress(self.rng.standard_normal(shape), 0)
            frugrad.write_payload(self.folder / "one.fgr", frame, one)
            program("decompress", self.folder / "one.fgr", "-o", self.folder / "one.npy", "--force")
            read = np.load(self.folder / "one.npy")
            self.assertEqual(read.shape, shape)
            np.testing.assert_array_equal(read, one.decompress(frame))

    @unittest.skipUnless(support.PROGRAM, "FRUGRAD does not name the program")
    def test_what_the_program_writes_is_read_here(self):
        for shape in ((70, 80), (9000,)):
            gradient, path = self.rng.standard_normal(shape).astype(np.float32), self.folder / "gradient.npy"
            np.save(path, gradient)
            program("compress", path, "-o", self.folder / "gradient.fgr", "--config", "frugrad,value=int8")
            payload = frugrad.read_payload(self.folder / "gradient.fgr")
            one = frugrad.Compressor(shape, "frugrad,value=int8")
            self.assertEqual(payload.config, one.config.text)
            self.assertEqual(payload.frame, one.compress(gradient, 0))
            np.testing.assert_array_equal(payload.decompress(), one.decompress(payload.frame))

    def test_frames_of_other_layouts_are_not_written(self):
        with self.assertRaises(frugrad.MismatchError):
            frugrad.write_payload(self.folder / "x.fgr", self.frame, frugrad.Compressor((5, 5)))
        with self.assertRaises(frugrad.FormatError):
            frugrad.write_payload(self.folder / "x.fgr", b"none", self.several)
        gaps = frugrad.Compressor(frugrad.Layout([frugrad.Tensor("a", (5, 5)), frugrad.Tensor("b", (5,), offset=30)]))
        with self.assertRaisesRegex(ValueError, "gaps"):
            frugrad.write_payload(self.folder / "x.fgr", gaps.compress(np.zeros(35), 0), gaps)
        self.assertFalse((self.folder / "x.fgr").exists())

    def test_damaged_files_are_refused_or_sound(self):
        path, generator, refused = self.folder / "bad.fgr", random.Random(4), 0
        frugrad.write_payload(path, self.frame, self.several)
        good = path.read_bytes()
        for bad in (b"", b"12345678", good[:100], good[:-1], good + b"\0", b"\xff" * 8 + good[8:],
                    good.replace(b'\\"shape\\":[20,30', b'\\"shape\\":[' + b"9" * 5 + b"[[[" * 2000, 1)):
            path.write_bytes(bad)
            with self.assertRaises(frugrad.FormatError):
                frugrad.read_payload(path)
        for _ in range(300):
            bad = bytearray(good)
            for _ in range(generator.choice([1, 2])):
                bad[generator.randrange(8, 1400)] = generator.choice(b'"\\{}[],:0129 azU\xff\0')
            path.write_bytes(bad)
            try:
                frugrad.read_payload(path).decompress()
            except (frugrad.FormatError, frugrad.MismatchError):
                refused += 1
        self.assertGreater(refused, 150)

"""Untrusted bytes: any input raises FormatError or MismatchError, or gives a valid result."""

import random
import struct
import unittest

import support

np = support.need("numpy")
import frugrad
import oracle

CONFIGS = ["frugrad", "value=int8,index=bitmap", "segment=tensor,index=rice,value=int4", "rule=random,feedback=none",
           "density=1,value=qsgd,feedback=none", "segment=tensor,unit=row,index=csr,value=f32", "value=f16"]
SHAPES = {"weight": (70, 80), "bias": (33,), "more": (41, 130)}


def sealed(frame):
    """A frame with a valid length and checksum, so that the rest of it is checked."""
    frame = bytearray(frame)
    frame[8:16], frame[44:48] = struct.pack("<Q", len(frame)), bytes(4)
    frame[44:48] = struct.pack("<I", oracle.crc32c(bytes(frame)))
    return bytes(frame)


def damaged(generator, data):
    data = bytearray(data)
    for _ in range(generator.choice([1, 1, 2, 8])):
        header = min(generator.randrange(160), len(data) - 1)
        at = generator.randrange(len(data)) if generator.random() < 0.3 else header
        data[at] = generator.choice([0, 1, 0x7f, 0x80, 0xff, generator.randrange(256)])
    if generator.random() < 0.2:
        del data[generator.randrange(len(data)):]
    return bytes(data)


class Frames(unittest.TestCase):
    def test_damaged_frames_are_refused_or_valid(self):
        generator, refused, rng = random.Random(7), 0, np.random.default_rng(7)
        for config in CONFIGS:
            compressor = frugrad.Compressor(SHAPES, config)
            frame = compressor.compress({n: rng.standard_normal(s) for n, s in SHAPES.items()}, 3)
            self.assertEqual(sealed(frame), frame)
            for i in range(60):
                bad = damaged(generator, frame)
                if i % 2 and len(bad) >= 48:
                    bad = sealed(bad)
                refused += not self.survives(compressor, bad)
        self.assertGreater(refused, 300)  # of 420: most damage is seen

    def survives(self, compressor, frame):
        try:
            frugrad.inspect(frame)
            arrays = compressor.decompress([frame])
        except (frugrad.FormatError, frugrad.MismatchError) as error:
            self.assertTrue(str(error))
            return False
        self.assertTrue(all(np.isfinite(a).all() for a in arrays.values()))
        return True

    def test_noise_and_nothing(self):
        compressor, generator = frugrad.Compressor(SHAPES), random.Random(8)
        noise = [generator.randbytes(generator.randrange(200)) for _ in range(50)]
        for bad in [b"", b"F", b"FGR1", bytes(48), bytes(100)] + noise:
            with self.assertRaises(frugrad.FormatError):
                frugrad.inspect(bad)
            with self.assertRaises(frugrad.FormatError):
                compressor.decompress([bad])

    def test_one_bad_frame_of_several_changes_nothing(self):
        compressor = frugrad.Compressor((64, 128))
        good = compressor.compress(np.ones((64, 128)), 0)
        out = np.full((64, 128), 5, np.float32)
        with self.assertRaises(frugrad.FormatError):
            compressor.decompress([good, good[:-1]], out=out)
        self.assertTrue((out == 5).all())


class States(unittest.TestCase):
    def test_damaged_states_are_refused_and_change_nothing(self):
        compressor, generator = frugrad.Compressor((64, 128)), random.Random(9)
        compressor.compress(np.random.default_rng(9).standard_normal((64, 128)), 0)
        state = compressor.save()
        for bad in [b"", state[:-1], state + b"\0"] + [damaged(generator, state) for _ in range(50)]:
            if bad != state:
                with self.assertRaises((frugrad.FormatError, frugrad.MismatchError)):
                    compressor.restore(bad)
        self.assertEqual(compressor.save(), state)

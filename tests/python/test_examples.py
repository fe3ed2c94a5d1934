"""The examples run as documented, in two processes: they learn, send little and resume from a checkpoint."""

import gzip
import re
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import support

torch = support.need("torch")
if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
    raise unittest.SkipTest("this PyTorch has no gloo")

EXAMPLES = support.SOURCE / "examples"


def run(name, *args, fresh=False):
    """What rank 0 of an example printed; the others print nothing."""
    workers = support.torchrun(2, EXAMPLES / name, timeout=100, args=args, fresh=fresh)
    support.values(workers)
    return workers[0].output


def small_data(folder):
    """Few images in the files of Fashion-MNIST, half noise and half the pattern of their class."""
    g = torch.Generator().manual_seed(1)
    patterns = torch.randint(128, (10, 784), generator=g)
    for part, n in (("train", 1024), ("t10k", 256)):
        classes = torch.randint(10, (n,), generator=g)
        images = patterns[classes] + torch.randint(128, (n, 784), generator=g)
        for kind, header, content in (("images-idx3", struct.pack(">4i", 2051, n, 28, 28), images.flatten()),
                                      ("labels-idx1", struct.pack(">2i", 2049, n), classes)):
            with gzip.open(Path(folder, f"{part}-{kind}-ubyte.gz"), "wb", compresslevel=1) as file:
                file.write(header + bytes(content.tolist()))


def number(pattern, text):
    found = re.findall(pattern, text)
    if not found:
        raise AssertionError(f"no '{pattern}' in: {text}")
    return float(found[-1])


class Examples(unittest.TestCase):
    def images(self, *args, data="/nowhere", fresh=False):
        return run("torch_ddp.py", "--data", data, "--batch", "16", *args, fresh=fresh)

    def test_image_classification_learns_and_sends_little(self):
        with tempfile.TemporaryDirectory() as folder:
            small_data(folder)
            output = self.images("--rate", "0.02", "--epochs", "2", data=folder, fresh=True)
        self.assertGreater(number(r"accuracy ([\d.]+)", output), 0.5, output)  # chance is 0.1
        # 64 steps, 2 of them dense: 64 / (2 + 62 / 20.7) = 12.8 is the most.
        self.assertGreater(number(r"sent 1/([\d.]+)", output), 5, output)

    def test_image_classification_resumes_from_a_checkpoint(self):
        with tempfile.TemporaryDirectory() as folder:
            whole, halves = str(Path(folder, "whole.pt")), str(Path(folder, "halves.pt"))
            small_data(folder)
            self.images("--steps", "8", "--checkpoint", whole, data=folder)
            self.images("--steps", "5", "--checkpoint", halves, data=folder)
            output = self.images("--steps", "8", "--checkpoint", halves, data=folder)
            self.assertIn("step 8 of 8", output)
            a, b = torch.load(whole), torch.load(halves)
        for key, value in a["model"].items():
            other = b["model"][key]
            self.assertTrue(torch.equal(value, other), f"{key} differs by {(value - other).abs().max()}")

    def test_language_model_learns_and_sends_little(self):
        output = run("torch_lm.py", "--steps", "40", "--width", "64", "--layers", "2", "--batch", "8", "--length", "32",
                   "--rate", "0.01")
        self.assertLess(number(r"held-out text ([\d.]+)", output), 4.5, output)  # log 256 = 5.5
        sent, dense = number(r"sent ([\d.]+) MB", output), number(r"MB of ([\d.]+)", output)
        self.assertLess(sent, 0.2 * dense, output)

    def test_fine_tuning_learns_with_fewer_states(self):
        done = subprocess.run([sys.executable, str(EXAMPLES / "torch_finetune_sgc.py"), "--steps", "40"], timeout=100,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        before = number(r"loss, from ([\d.]+)", done.stdout)
        rows = {line.split()[0]: line.split() for line in done.stdout.splitlines()}
        self.assertLess(int(rows["table"][1]), int(rows["adamw"][1]) / 10, done.stdout)
        self.assertLess(float(rows["table"][-1]), before - 0.3, done.stdout)

    def test_federated_training_in_one_process(self):
        support.need("frugrad.federated")
        done = subprocess.run([sys.executable, str(EXAMPLES / "federated_torch.py"), "demo", "--data", "/nowhere",
                               "--rounds", "5"], timeout=100, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              universal_newlines=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertGreater(number(r"round 5/5 .* accuracy ([\d.]+)", done.stdout), 0.3, done.stdout)  # chance is 0.1

    def test_without_the_hook(self):
        self.assertIn("sent 1/1.0 ", self.images("--steps", "2", "--dense"))  # images are made up
        self.assertIn("sent all", run("torch_lm.py", "--steps", "2", "--width", "32", "--layers", "1", "--dense"))

    def test_help_and_length(self):
        for path in sorted(EXAMPLES.glob("*torch*.py")):
            self.assertLess(len(path.read_text().splitlines()), 120, path.name)
            worker = support.torchrun(1, path, args=["--help"])[0]
            if path.name == "torch_fsdp.py" and "PyTorch 2.7" in worker.output:  # an older one: only that sentence
                continue
            self.assertEqual(worker.code, 0, worker.output)
            self.assertIn("usage:", worker.output)


if __name__ == "__main__":
    unittest.main()

"""Groups of processes end, whatever their members do."""

import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import support


def print_rank(word):
    print("rank", os.environ["RANK"], word)
    return [int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])]


def one_fails_and_others_wait():
    if os.environ["RANK"] == "1":
        raise RuntimeError("on purpose")
    time.sleep(100)


class Groups(unittest.TestCase):
    def test_values_and_output_are_returned(self):
        workers = support.torchrun(3, print_rank, args=["hello"])
        self.assertEqual(support.values(workers), [[0, 3], [1, 3], [2, 3]])
        self.assertIn("rank 2 hello", workers[2].output)

    def test_no_process_waits_forever(self):
        start = time.monotonic()
        workers = support.torchrun(2, one_fails_and_others_wait, timeout=60, grace=0.5)
        self.assertLess(time.monotonic() - start, 30)
        self.assertEqual([workers[0].code, workers[1].code], [None, 1])
        self.assertIn("on purpose", workers[1].output)
        with self.assertRaisesRegex(AssertionError, "on purpose"):
            support.values(workers)

    def test_a_missing_module_skips(self):
        with self.assertRaisesRegex(unittest.SkipTest, "no_such_module_at_all is missing"):
            support.need("no_such_module_at_all")

    def test_a_module_that_needs_it_is_reported_as_skipped(self):
        with tempfile.TemporaryDirectory(prefix="frugrad-test-") as folder:
            Path(folder, "test_needy.py").write_text("import support\nsupport.need('no_such_module_at_all')\n")
            env = dict(os.environ, PYTHONPATH=os.pathsep.join([str(support.HERE), folder]))
            done = subprocess.run([sys.executable, "-B", str(support.HERE / "run.py"), "test_needy"], env=env,
                                  capture_output=True, text=True)
        self.assertEqual(done.returncode, 77, done.stderr)
        self.assertIn("skipped: test_needy: no_such_module_at_all is missing", done.stdout)

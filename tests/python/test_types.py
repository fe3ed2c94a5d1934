"""The type hints of the package are complete and consistent: by mypy, where it is installed. PyTorch's are not needed."""

import shutil
import subprocess
import unittest

import support

MYPY = shutil.which("mypy", path="/usr/bin") or shutil.which("mypy")


@unittest.skipUnless(MYPY, "mypy is missing")
class Types(unittest.TestCase):
    def test_hints_are_complete_and_consistent(self):
        files = sorted(str(path) for path in (support.SOURCE / "python" / "frugrad").rglob("*.py"))
        self.assertTrue((support.SOURCE / "python" / "frugrad" / "py.typed").exists())
        options = ["--python-version", "3.9", "--no-site-packages", "--ignore-missing-imports", "--follow-imports=skip",
                   "--disallow-untyped-defs", "--disallow-incomplete-defs", "--cache-dir=/dev/null"]
        done = subprocess.run([MYPY, *options, *files], capture_output=True, text=True, cwd=support.SOURCE / "python")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

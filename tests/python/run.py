"""Run one module of tests for CTest: `run.py test_name`. Exit status 77 says that all of it was skipped, and why.

`run.py --worker module function argument...` is one process of support.torchrun().
"""

import faulthandler
import importlib
import json
import os
import sys
import unittest


def run(name: str) -> int:
    try:
        suite = unittest.defaultTestLoader.loadTestsFromName(name)
    except unittest.SkipTest as reason:
        print(f"skipped: {name}: {reason}")
        return 77
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    for test, reason in result.skipped:
        print(f"skipped: {test}: {reason}")
    if not result.wasSuccessful() or result.testsRun == 0:
        return 1
    return 77 if len(result.skipped) == result.testsRun else 0


def work(module: str, function: str, *arguments: str) -> int:
    faulthandler.enable()
    value = getattr(importlib.import_module(module), function)(*arguments)
    part = os.environ["FRUGRAD_TEST_VALUE"] + ".part"
    with open(part, "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.replace(part, os.environ["FRUGRAD_TEST_VALUE"])
    return 0


if __name__ == "__main__":
    sys.exit(work(*sys.argv[2:]) if sys.argv[1] == "--worker" else run(sys.argv[1]))

"""The examples in the docstrings of the package run and give what they show; every public name has a docstring."""

import doctest
import importlib
import inspect
import unittest

import support

support.need("numpy")
import frugrad

MODULES = ["_core", "_arrays", "_frames", "_payload", "_tables"]
TORCH = ["convert", "ddp", "functional", "local_steps", "sgc", "streaming"]


class Docstrings(unittest.TestCase):
    def test_public_names_have_one(self):
        for package in packages():
            for name in package.__all__:
                if inspect.isclass(getattr(package, name)) or inspect.isfunction(getattr(package, name)):
                    self.assertTrue(inspect.getdoc(getattr(package, name)), name)


def packages():
    return [frugrad] + ([importlib.import_module("frugrad.torch")] if support.has("torch") else [])


def load_tests(loader, tests, pattern):
    modules = list(MODULES)
    if support.has("torch"):
        modules += [f"torch.{name}" for name in TORCH + ["accelerate_hook"] * support.has("accelerate")]
    for name in modules:
        tests.addTests(doctest.DocTestSuite(importlib.import_module("frugrad." + name)))
    return tests

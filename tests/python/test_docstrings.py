"""The examples in the docstrings of the package run and give what they show; every public name has one, or says where."""

import doctest
import importlib
import inspect
import unittest

import support

support.need("numpy")
import frugrad

MODULES = ["_lib", "_core", "_arrays", "_frames", "_payload", "_tables"]
TORCH = ["convert", "ddp", "functional", "local_steps", "sgc", "sparsify", "streaming"]


class Docstrings(unittest.TestCase):
    def test_public_names_have_an_example(self):
        """Or say where one is; those with "::" need a file that the program writes, and are not run."""
        for name, doc in documented():
            self.assertRegex(doc, r">>>|::\n|has an\s+example", name)


def documented():
    """Public functions and classes with their docstrings, but tuples and exceptions."""
    for package in packages():
        for name in package.__all__:
            found = getattr(package, name)
            if inspect.isfunction(found) or inspect.isclass(found) and not issubclass(found, (tuple, Exception)):
                yield name, inspect.getdoc(found) or ""


def packages():
    yield frugrad
    if support.has("torch"):
        yield importlib.import_module("frugrad.torch")
        yield importlib.import_module("frugrad.delta")


def load_tests(loader, tests, pattern):
    modules = list(MODULES)
    if support.has("torch"):
        modules += [f"torch.{name}" for name in TORCH + ["accelerate_hook"] * support.has("accelerate")]
    for name in modules:
        tests.addTests(doctest.DocTestSuite(importlib.import_module("frugrad." + name)))
    return tests

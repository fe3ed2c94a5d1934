"""The examples in the docstrings of the package run and give what they show; every public name has a docstring."""

import doctest
import importlib
import inspect
import unittest

import support

support.need("numpy")
import frugrad

MODULES = ("_core", "_arrays", "_frames", "_payload", "_tables")


class Docstrings(unittest.TestCase):
    def test_public_names_have_one(self):
        for name in frugrad.__all__:
            if inspect.isclass(getattr(frugrad, name)) or inspect.isfunction(getattr(frugrad, name)):
                self.assertTrue(inspect.getdoc(getattr(frugrad, name)), name)


def load_tests(loader, tests, pattern):
    for name in MODULES:
        tests.addTests(doctest.DocTestSuite(importlib.import_module("frugrad." + name)))
    return tests

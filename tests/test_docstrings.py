"""Every example in a docstring prints what it says."""

import doctest
import pkgutil
from importlib import import_module

import samplekit


def test_examples_run_as_printed():
    attempted = 0
    for found in pkgutil.walk_packages(samplekit.__path__, "samplekit."):
        result = doctest.testmod(import_module(found.name))
        assert result.failed == 0, found.name
        attempted += result.attempted
    assert attempted >= 6

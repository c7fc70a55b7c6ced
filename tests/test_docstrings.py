"""Every example in a docstring of the package runs and gives what it shows."""

import doctest
import importlib
import pkgutil

import pytest

import sbpjax

MODULES = ["sbpjax", *(m.name for m in pkgutil.walk_packages(sbpjax.__path__, "sbpjax."))]


def examples(name):
    return [t for t in doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name)) if t.examples]


EXAMPLES = {test.name: test for name in MODULES for test in examples(name)}


def test_there_are_examples():
    assert len(EXAMPLES) > 3


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_examples_give_what_they_show(name):
    report = []
    doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(EXAMPLES[name], out=report.append)
    assert not report, "".join(report)

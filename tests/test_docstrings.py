"""The examples in the docstrings of everything public run, and there is one for each."""

import doctest
import inspect

import pytest

import bigsvm


@pytest.mark.parametrize("name", bigsvm.__all__)
def test_the_example_of_a_public_name_runs(name, tmp_path, monkeypatch, no_own_kernels):
    monkeypatch.chdir(tmp_path)
    public = getattr(bigsvm, name)
    test = doctest.DocTestParser().get_doctest(
        inspect.getdoc(public), {"__name__": "__main__"}, name, None, None
    )
    assert test.examples, f"bigsvm.{name} has no example"
    output = []
    doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, out=output.append)
    assert output == []

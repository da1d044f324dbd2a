"""Functions without the code that Python would call are not called by Python."""

import ast
from pathlib import Path

import pytest

import bigsvm

REPOSITORY = Path(bigsvm.__file__).parents[1]
CORE = sorted((REPOSITORY / "bigsvm" / "core").glob("*.py"))
DECORATORS = {"compiled", "inner", "inlined"}


def decorator_of(node):
    """The name of the decorator by which a function is compiled; None if it is not."""
    for decorator in getattr(node, "decorator_list", ()):
        name = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(name, ast.Name) and name.id in DECORATORS:
            return name.id
    return None


def inner_functions(tree):
    return {node.name for node in ast.walk(tree) if decorator_of(node) == "inner"}


def calls(tree):
    """Names that are called by Python in a module: `name`, or `module.name`."""
    called = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    # As in `compiled(advance)`.
    passed = {
        call.args[0].id
        for call in called
        if ast.unparse(call.func) in DECORATORS and call.args and isinstance(call.args[0], ast.Name)
    }
    by_compiled = {
        call
        for node in ast.walk(tree)
        if decorator_of(node) or (isinstance(node, ast.FunctionDef) and node.name in passed)
        for part in node.body
        for call in ast.walk(part)
    }
    return {ast.unparse(call.func) for call in called if call not in by_compiled}


def test_calls_are_found():
    text = "@inner\ndef f():\n g()\ndef h():\n return [f(0), m.k()]\ndef l():\n o()\ncompiled(l)"
    tree = ast.parse(text)
    assert inner_functions(tree) == {"f"}
    assert calls(tree) == {"f", "m.k", "compiled"}


@pytest.mark.parametrize("path", CORE, ids=lambda path: path.stem)
def test_python_calls_no_inner_function(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = inner_functions(tree)
    assert not names & calls(tree)
    qualified = {f"{path.stem}.{name}" for name in names}
    for folder in ("bigsvm", "tests", "tools"):
        for other in (REPOSITORY / folder).rglob("*.py"):
            text = other.read_text(encoding="utf-8")
            if any(name in text for name in qualified):
                assert not qualified & calls(ast.parse(text)), other


def test_core_is_compiled_by_these_decorators_alone():
    assert not [path.name for path in CORE if "njit" in path.read_text(encoding="utf-8")]

"""tools/benchmarks/constants.md: the constants that it names exist, and have the values it says."""

import ast
import re
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "tools" / "benchmarks" / "constants.md").read_text(encoding="utf-8")
ROWS = re.findall(
    r"^\| `(\w+)\.(\w+)` \| ([^|]+) \| [^|]+ \| ([0-9a-f]{7}) \| ", PAGE, re.MULTILINE
)


def values_of(file, name):
    """Return the constant's values in all modules of this name."""
    paths = (REPOSITORY / "bigsvm").rglob(f"{file}.py")
    modules = [
        import_module(".".join(path.relative_to(REPOSITORY).with_suffix("").parts))
        for path in paths
    ]
    # Asked for by name, as vars() of a module that is run when it is used may still be empty.
    return [getattr(module, name) for module in modules if hasattr(module, name)]


def documented_constants(path):
    """Yield the name and the docstring of each constant of a module that has one."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    for node, after in pairwise(body):
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(after, ast.Expr):
            name = ast.unparse(node).partition("=")[0].partition(":")[0].strip()
            if isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
                yield name, after.value.value


def test_docstrings_of_constants_give_reasons_and_no_series_of_figures():
    series = [
        f"{path.relative_to(REPOSITORY)}: {name}"
        for path in (REPOSITORY / "bigsvm").rglob("*.py")
        for name, text in documented_constants(path)
        if len(re.findall(r"\d+\.\d+", text)) >= 3
    ]
    assert series == [], "their figures belong in tools/benchmarks/constants.md"


def test_every_row_of_its_tables_is_a_constant():
    heads = PAGE.count("| constant | value | what was measured | commit | date |")
    lines = [line for line in PAGE.splitlines() if line.startswith("|")]
    assert len(ROWS) == len(lines) - 2 * heads > 30


@pytest.mark.parametrize(("file", "name", "value", "commit"), ROWS)
def test_a_constant_has_the_value_that_was_measured(file, name, value, commit):
    assert eval(value) in values_of(file, name)

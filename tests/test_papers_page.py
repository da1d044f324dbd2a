"""docs/papers.md: what it names exists, and its measured tables were printed by benchmarks."""

import inspect
import re
from itertools import groupby
from pathlib import Path

import pytest

import bigsvm
from tools.benchmarks import __main__ as suites

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = (REPOSITORY / "docs" / "papers.md").read_text(encoding="utf-8")
TABLES = [
    list(lines)
    for is_table, lines in groupby(PAGE.splitlines(), lambda line: line.startswith("|"))
    if is_table
]
MEASURED = [table for table in TABLES if "paper" not in table[0].split("|")[1]]


def test_its_suites_exist():
    named = set(re.findall(r"python -m tools\.benchmarks (\w+)", PAGE))
    assert {"crammer_singer", "hmg", "sampled_balls", "uncertified"} <= named <= set(suites.names())


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"\b(?:tools|tests|bigsvm)/[\w/.]+\w", PAGE)))
)
def test_its_files_exist(path):
    assert (REPOSITORY / path).exists()


def test_its_parameters_exist():
    classes = [getattr(bigsvm, name) for name in bigsvm.__all__]
    known = {
        parameter
        for each in classes
        if isinstance(each, type) and not issubclass(each, Warning)  # theirs have no signature
        for parameter in inspect.signature(each).parameters
    }
    named = set(re.findall(r"`(\w+)=", PAGE))
    assert {"solver", "empty_samples", "rows_at_once", "order"} <= named <= known


@pytest.mark.parametrize("table", MEASURED, ids=lambda table: table[0].split("|")[1].strip())
def test_rows_of_its_measured_tables_were_printed(table):
    printed = {
        line
        for path in (REPOSITORY / "tools" / "benchmarks").glob("*.txt")
        for line in path.read_text(encoding="utf-8").splitlines()
    }
    assert {table[0], *table[2:]} <= printed


def test_it_has_measured_tables():
    assert len(MEASURED) >= 6

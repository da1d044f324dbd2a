"""docs/papers.md: what it names exists, and its measured tables were printed by benchmarks."""

import inspect
import re
from itertools import groupby
from pathlib import Path

import pytest

import bigsvm
from tools import printed
from tools.benchmarks import __main__ as suites

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = (REPOSITORY / "docs" / "papers.md").read_text(encoding="utf-8")
TABLES = [
    list(lines)
    for is_table, lines in groupby(PAGE.splitlines(), lambda line: line.startswith("|"))
    if is_table
]
MEASURED = [table for table in TABLES if "paper" not in table[0].split("|")[1]]


INDEX = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for table in TABLES
    if table[0].startswith("| paper | what |")
    for line in table[2:]
]
NUMBERED = {
    "LIBSVM": (0, 0), "Crammer and Singer": (9, 2), "Glasmachers and Igel": (7, 7),
    "Frank-Wolfe": (8, 8),
}  # fmt: skip
"""Figures and tables of each paper."""


def test_each_table_and_figure_of_the_papers_has_a_row():
    wanted = [
        (paper, f"{kind} {k}")
        for paper, counts in NUMBERED.items()
        for kind, count in zip(("figure", "table"), counts, strict=True)
        for k in range(1, count + 1)
    ]
    assert sorted((paper, what) for paper, what, *_ in INDEX if what != "none") == sorted(wanted)
    assert {paper for paper, *_ in INDEX} == set(NUMBERED)


@pytest.mark.parametrize("row", INDEX, ids=lambda row: f"{row[0]}, {row[1]}")
def test_a_row_is_reproduced_or_refuted_by_a_printed_suite_or_says_why_not(row):
    *_, status, by = row
    assert status in {"reproduced", "reproduced in part", "refuted", "not measured"}
    suite = re.search(r"python -m tools\.benchmarks (\w+)", by)
    if status == "not measured":
        assert by
        assert suite is None
    elif "the same" not in by:
        assert suite
        text = REPOSITORY / "tools" / "benchmarks" / f"{suite[1]}.txt"
        assert f"$ python -m tools.benchmarks {suite[1]}" in text.read_text(encoding="utf-8")


def test_it_says_which_version_printed_what_and_what_is_older_than_its_code():
    known = printed.record()
    for name, commands in known.items():
        texts = {command: one["text"] for command, one in commands.items()}
        assert texts == printed.blocks(name), "run python -m tools.printed"
        for one in commands.values():
            assert re.fullmatch(r"\d+\.\d+\.\d+\S*", one["version"])
            assert re.fullmatch(r"[0-9a-f]{8}", one["commit"])
    assert known.keys() == printed.MEASURES.keys()
    assert printed.page(PAGE, known) == PAGE, "run python -m tools.printed"


def test_a_table_is_older_than_its_code_once_the_code_is_another_one(monkeypatch):
    known = {"own_kernels": {"python -m tools.benchmarks own_kernels": {
        "text": "", "version": "0.1.0", "commit": "abc", "date": "2026-01-02",
        "code": printed.code_now("own_kernels"),
    }}}  # fmt: skip
    assert f"0.1.0, abc | 2026-01-02 | {printed.CURRENT} " in printed.marks(known)
    monkeypatch.setattr(printed, "code_now", lambda name: "another")
    assert f"0.1.0, abc | 2026-01-02 | {printed.OLDER} " in printed.marks(known)


def test_a_command_that_printed_the_same_again_is_of_this_code(monkeypatch):
    known = printed.record()
    name, commands = next(iter(known.items()))
    command = next(iter(commands))
    monkeypatch.setattr(printed, "code_now", lambda name: "another")
    monkeypatch.setattr(printed, "git", lambda *arguments: b"")
    assert printed.updated()[name][command] == commands[command]
    found = printed.updated([command])[name][command]
    assert (found["text"], found["code"]) == (commands[command]["text"], "another")
    with pytest.raises(ValueError, match="no text has the command 'unknown'"):
        printed.updated(["unknown"])


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

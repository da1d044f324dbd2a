"""The comparison with other libraries: contestants at a tiny size, pictures, and the page."""

import argparse
import re
from xml.etree import ElementTree

import pytest

from tools import comparison, measured
from tools.benchmarks import __main__ as command
from tools.benchmarks import contestants
from tools.benchmarks.data import made
from tools.benchmarks.results import case_of
from tools.benchmarks.suites import compare

PRINTED = """\
$ python -m tools.benchmarks compare --write
AMD EPYC, 2 cores, 2 threads, Python 3.11.7

made rows, few

scikit-learn was given up at 2000 rows after 60 s

| data     | rows | who    | seconds | peak RSS MB | test accuracy % | SVs |
|----------|------|--------|---------|-------------|-----------------|-----|
| few-1000 | 1000 | bigsvm | 0.10    | 200         | 90.00           | 10  |
| few-2000 | 2000 | bigsvm | 0.40    | 210         | 95.00           | 20  |
| few-1000 | 1000 | LIBSVM | 1.00    | 150         | 90.00           | 10  |

data sets

LIBSVM failed on w8a: std::bad_alloc

| data | rows | who    | seconds | peak RSS MB | test accuracy % | SVs |
|------|------|--------|---------|-------------|-----------------|-----|
| a9a  | 9    | bigsvm | 5.00    | 300         | 85.00           | 9   |
| a9a  | 9    | LIBSVM | > 60.00 | 300         | -               | -   |
"""
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(
    "who",
    [
        pytest.param("bigsvm sampled", marks=pytest.mark.slow),
        "bigsvm store",
        pytest.param("LIBLINEAR", marks=pytest.mark.slow),
        "Nystroem 300",
    ],
)
def test_each_kind_of_contestant_is_fitted_and_tested(who, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    n_rows = compare.WARM_ROWS if who == "bigsvm sampled" else 400
    data = made("few", n_rows)
    job = {"data": list(data), "folder": str(tmp_path), "labels": "", "layouts": ["dense"],
           "distances": False, "stores": who == "bigsvm store"}  # fmt: skip
    contestants.prepare(job)
    fitted = {"who": who, "name": data.name, "folder": str(tmp_path), "layout": "dense",
              "n_columns": 22, "positive": [1.0], "n_made": n_rows, "memory": "50MB", "tested": 500,
              "parameters": {"C": data.C, "gamma": data.gamma}}  # fmt: skip
    answer = compare.fit(fitted)
    assert answer["accuracy"] > 60
    assert (answer["n_support"] > 0) == who.startswith("bigsvm")


@pytest.mark.parametrize(("n_rows", "takes_part"), [(8999, False), (9000, True)])
def test_few_rows_are_not_sampled(n_rows, takes_part):
    case = case_of(made("few", n_rows))._replace(facts={"n_rows": n_rows})
    assert compare.takes_part("bigsvm sampled", case, argparse.Namespace()) == takes_part
    assert compare.takes_part("bigsvm", case, argparse.Namespace())


@pytest.mark.parametrize("who", ["ThunderSVM", "bigsvm"])
def test_a_library_that_fails_is_told_and_the_others_go_on(who, tmp_path):
    turns = compare.Turns(compare.SUITE, argparse.Namespace(contestants=[], threads=1), tmp_path)
    job = {"do": "tools.benchmarks.suites.compare:no_such_function", "who": who, "name": "w8a"}
    if who == "bigsvm":
        with pytest.raises(SystemExit, match="no_such_function"):
            turns._job(job)
        assert not turns.failed
    else:
        assert turns._job(job).gave_up
        assert turns.failed[0].startswith("ThunderSVM failed on w8a: AttributeError")


def test_who_is_not_installed_is_skipped_in_words(monkeypatch, capsys):
    monkeypatch.setitem(compare.LIBRARIES, "LIBSVM", "no_such_module.svm")
    monkeypatch.setattr(compare, "half", lambda suite, options: argparse.Namespace(runs=()))
    assert command.main(["compare", "--contestants", "LIBSVM", "bigsvm"]) == 0
    assert "skipped LIBSVM: it is not installed" in capsys.readouterr().out


def test_pictures_have_a_line_or_a_point_of_each_who_was_not_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(measured, "TEXTS", tmp_path)
    (tmp_path / "compare.txt").write_text(PRINTED, encoding="utf-8")
    drawn = comparison.pictures()
    assert list(drawn) == ["comparison-time", "comparison-memory", "comparison-a9a"]
    time, accuracy = (ElementTree.fromstring(drawn[f"comparison-{n}"]) for n in ("time", "a9a"))
    # A point of each measurement, and one of each name beside the picture.
    assert len(time.findall(f"{SVG}circle")) == 3 + 2
    assert len(accuracy.findall(f"{SVG}circle")) == 1 + 1
    words = [each.text for each in time.findall(f"{SVG}text")]
    assert {"bigsvm", "LIBSVM", "rows", "1,000", "seconds of training"} <= set(words)


def test_more_rows_are_to_the_right_and_more_seconds_above(tmp_path, monkeypatch):
    monkeypatch.setattr(measured, "TEXTS", tmp_path)
    (tmp_path / "compare.txt").write_text(PRINTED, encoding="utf-8")
    circles = re.findall(
        r'cx="([\d.]+)" cy="([\d.]+)" r="4"', comparison.pictures()["comparison-time"]
    )
    (x1, y1), (x2, y2), (x3, y3) = [(float(x), float(y)) for x, y in circles]
    assert x1 == x3 < x2
    assert y3 < y2 < y1


def test_each_contestant_has_a_colour_of_its_own():
    assert tuple(comparison.COLOURS) == compare.CONTESTANTS
    assert len(set(comparison.COLOURS.values())) == len(compare.CONTESTANTS)


def test_the_page_is_written_with_its_tables_and_pictures(tmp_path, monkeypatch):
    monkeypatch.setattr(measured, "TEXTS", tmp_path)
    (tmp_path / "compare.txt").write_text(PRINTED, encoding="utf-8")
    text = comparison.written(comparison.PAGE.read_text(encoding="utf-8"))
    assert comparison.written(text) == text
    for name in comparison.pictures():
        assert f"({name}.svg)" in text
    assert "| few-2000 | 2000 | bigsvm |" in text
    assert "* scikit-learn was given up at 2000 rows after 60 s" in text
    with pytest.raises(ValueError, match="no places for pictures"):
        comparison.written("# A page\n")


@pytest.mark.skipif(not compare.WRITTEN.exists(), reason="compare --write has not been run")
def test_the_page_and_its_pictures_are_what_the_script_writes():
    text = comparison.PAGE.read_text(encoding="utf-8")
    assert comparison.written(text) == text
    for name, picture in comparison.pictures().items():
        assert (comparison.PAGE.parent / f"{name}.svg").read_text(encoding="utf-8") == picture

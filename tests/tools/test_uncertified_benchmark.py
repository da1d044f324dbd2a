"""The suite of training without a certificate: its rows, its plain rule and its limits."""

from types import SimpleNamespace

import numpy as np
import pytest

from tools.benchmarks import data
from tools.benchmarks.__main__ import main
from tools.benchmarks.data import data_set, load
from tools.benchmarks.results import Results, Run, case_of
from tools.benchmarks.suites import uncertified
from tools.benchmarks.suites.uncertified import CERTIFIED, SETTLED


def results(name, **answers):
    case = case_of(data_set(name))
    runs = [Run(case, who, "dense", 0, answer, 0.1) for who, answer in answers.items()]
    return Results(tuple(runs), SimpleNamespace())


def test_two_estimates_differ_by_less_than_the_standard_error_of_their_difference(table_of):
    estimates = [
        (2000, 0.05, 0.004),
        (3500, 0.045, 0.003),
        (6125, 0.049, 0.003),
        (9000, 0.03, 0.003),
    ]
    text = uncertified.curves(results("few-20000", uncertified={"estimates": estimates}))
    lines = table_of(text, "few-20000")
    assert [line[0] for line in lines] == ["2000", "3500", "6125", "9000"]
    assert [line[-1] for line in lines] == ["-", "", "yes", ""]


@pytest.mark.parametrize(
    ("name", "share", "holds"), [("few-20000", 34.0, True), ("few-1000000", 11.0, False)]
)
def test_limits_depend_on_the_size(name, share, holds):
    answers = {
        SETTLED: {"cpu_seconds": share, "accuracy": 98.6},
        CERTIFIED: {"cpu_seconds": 100.0, "accuracy": 99.0},
    }
    cpu, points = uncertified.limits(results(name, **answers))
    assert cpu.holds == (holds,)
    assert points.holds == (True,)


def test_made_rows_are_tested_on_the_next_ones(monkeypatch):
    monkeypatch.setattr(data, "TEST_ROWS", 100)
    test_x, test_y = load(data_set("few-300"), None, test=True)
    more, _ = load(data_set("few-400"), None)
    assert len(test_y) == 100
    np.testing.assert_array_equal(test_x, more[300:])


@pytest.mark.usefixtures("in_process")
def test_fits_of_tiny_data(monkeypatch, table_of, capsys, classes):
    monkeypatch.setattr(data, "TEST_ROWS", 500)
    monkeypatch.setattr(uncertified, "NOISY_ROWS", (300, 500))
    monkeypatch.setattr(uncertified, "N_TEST", 200)
    main(["uncertified", "--part", "svc", "--data", "few-9000", "--repeats", "1"])
    printed = capsys.readouterr().out
    line = table_of(printed, "few-9000")[0]
    assert float(line[3]) > 90
    assert float(line[4]) > 90
    assert float(line[5]) == pytest.approx(float(line[4]) - float(line[3]), abs=0.02)
    estimates = [one for one in table_of(printed, "few-9000") if one[-1] in ("-", "", "yes")]
    assert [one[-1] for one in estimates][:1] == ["-"]
    assert int(estimates[0][0]) < int(line[7]) <= 9000
    main(["uncertified", "--part", "full-core"])
    printed = capsys.readouterr().out
    for n_rows in ("300", "500"):
        ((first, stop, _, *_),) = table_of(printed, n_rows)
        assert float(first) > 50
        assert stop != "-"
    classes("a9a", 80)
    main(["uncertified", "--part", "balls", "--data", "a9a"])
    ((_, _, test, eps, *_),) = table_of(capsys.readouterr().out, "a9a")
    assert test != "-"
    assert float(eps) >= 0

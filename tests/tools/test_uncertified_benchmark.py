"""The benchmark of training without a certificate: its rows, its plain rule and its limits."""

import numpy as np
import pytest

from tools.benchmarks.data import data_set
from tools.benchmarks.suites import uncertified


def test_two_estimates_differ_by_less_than_the_standard_error_of_their_difference():
    estimates = [
        (2000, 0.05, 0.004),
        (3500, 0.045, 0.003),
        (6125, 0.049, 0.003),
        (9000, 0.03, 0.003),
    ]
    fitted = uncertified.Fitted(1.0, 95.0, 10, {}, estimates)
    lines = uncertified.curve("made", fitted)
    assert [line[1] for line in lines] == [2000, 3500, 6125, 9000]
    assert [line[-1] for line in lines] == ["-", "", "yes", ""]


@pytest.mark.parametrize(
    ("name", "share", "holds"), [("few-20000", 34.0, True), ("few-1000000", 11.0, False)]
)
def test_limits_depend_on_the_size(name, share, holds):
    cpu, points = uncertified.held(data_set(name), share, 0.4)
    assert cpu.holds == (holds,)
    assert points.holds == (True,)


def test_made_rows_are_tested_on_the_next_ones(monkeypatch):
    monkeypatch.setattr(uncertified, "N_TEST", 100)
    problem = uncertified.problem_of(data_set("few-300"))
    more = uncertified.problem_of(data_set("few-400"))
    assert (len(problem.y), len(problem.test_y)) == (300, 100)
    np.testing.assert_array_equal(problem.test_x, more.x[300:])

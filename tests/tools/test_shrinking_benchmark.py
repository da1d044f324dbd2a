"""The benchmark of shrinking at tiny sizes: its cases, its table, its verdicts."""

import fit_once
import pytest
import shrinking
import synthetic
from shrinking import Case
from whole_runs import Problem


@pytest.fixture(autouse=True)
def small_gemm(monkeypatch):
    monkeypatch.setattr(fit_once, "GEMM_SIZE", 50)


def test_a_case_is_solved_twice_to_the_same_optimum(capsys):
    problem = Problem(*synthetic.make("few", 300, 10), C=100.0, gamma=1.0)
    case = shrinking.measure("toy", problem, 0.1, "hmg")
    assert case.objectives[0] == pytest.approx(case.objectives[1], rel=1e-6)
    assert min(case.steps) > 100
    assert "toy" in capsys.readouterr().err


def case(values, objectives=(1.0, 1.0)):
    return Case("mnist", 0.0112, "hmg", (9, 9), (9, 9), values, (1.0, 2.0), objectives)


@pytest.mark.parametrize(
    ("cases", "verdicts"),
    [
        ([case((2, 1))] * 3 + [case((1, 2))], [True, True]),
        ([case((2, 1))] * 2 + [case((1, 2))] * 2, [True, False]),
        ([case((2, 1), (1.0, 1.1))], [False, True]),
    ],
)
def test_kernel_values_are_held_against_the_aim(cases, verdicts):
    assert [check.holds for check in shrinking.check(cases)] == verdicts


def test_the_table_has_both():
    assert "| 2.00  |" in shrinking.report([case((2, 1))])

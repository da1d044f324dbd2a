"""FunctionsDual: what functions have in common, and what each asks for by itself."""

import functools

import naive
import numpy as np
import pytest

from bigsvm.duals.box import BoxDual
from bigsvm.duals.dual import Point
from bigsvm.duals.formulations import CSVC
from bigsvm.duals.functions import FunctionsDual
from bigsvm.duals.one_vs_rest import OneVsRest
from bigsvm.duals.picking import Wanted
from bigsvm.errors import DataError
from bigsvm.gram import KernelTiles
from bigsvm.gram.row_cache import RowBuffer
from bigsvm.kernels import RBF
from bigsvm.working_sets.subproblem import Memory, Progress, SubProblem

N, K_CLASSES, C = 80, 4, 2.0


@pytest.fixture
def problem():
    """Rows, the dual of their classes, and K."""
    rng = np.random.default_rng(0)
    label = rng.integers(K_CLASSES, size=N).astype(np.int32)
    X = (rng.normal(size=(N, 3)) + label[:, None]).astype(np.float32)
    formulation = OneVsRest(
        label=label, class_weight=((1.0, 1.0),) * K_CLASSES, make=functools.partial(CSVC, C=C)
    )
    dual = FunctionsDual(formulation, tuple(BoxDual(one) for one in formulation.functions))
    return X, dual, naive.kernel_matrix(X, X, "rbf", gamma=0.5)


def solved(dual, K, label, functions):
    """Alpha that is the optimum in some functions and 0 in the others."""
    alpha = np.zeros((N, K_CLASSES))
    for c in functions:
        sign = np.where(label == c, 1.0, -1.0)
        lower, upper = np.minimum(sign * C, 0), np.maximum(sign * C, 0)
        alpha[:, c] = naive.solve(K, sign, lower, upper, np.zeros(N), tol=1e-8)
    return alpha


def test_signs_of_a_function_are_made_of_labels(problem):
    _, dual, _ = problem
    label = dual.formulation.label
    for c, function in enumerate(dual.formulation.functions):
        np.testing.assert_array_equal(function.per_row, np.where(label == c, 1, -1))
        assert function.sign[np.array([3, 1])].dtype == np.int8
        assert not isinstance(function.sign, np.ndarray)


def test_functions_that_are_solved_ask_for_nothing(problem):
    _, dual, K = problem
    alpha = solved(dual, K, dual.formulation.label, [0, 1, 3])
    standing = dual.optimality(alpha, K @ alpha)
    assert standing.gap == standing.functions[2].gap > 1
    options = {"capacity": 20, "smallest": 10, "fill": 1.0, "tol": 1e-6}
    chosen = dual.select(
        alpha, K @ alpha, standing, Wanted(rng=np.random.default_rng(0), **options)
    )
    alone = dual.duals[2].select(
        alpha[:, 2], K @ alpha[:, 2], standing.functions[2],
        Wanted(rng=np.random.default_rng(0), **options),
    )  # fmt: skip
    np.testing.assert_array_equal(chosen, alone)


def test_more_functions_than_places_leave_room_for_the_worst(problem):
    _, dual, _ = problem
    alpha = np.zeros((N, K_CLASSES))
    standing = dual.optimality(alpha, alpha)
    for capacity in (2, 3, 5):
        wanted = Wanted(capacity, 1, 1.0, np.random.default_rng(0), tol=1e-6)
        chosen = dual.select(alpha, alpha, standing, wanted)
        assert len(chosen) == capacity


def test_outputs_that_are_not_finite_are_an_error(problem):
    _, dual, _ = problem
    outputs = np.zeros((N, K_CLASSES))
    outputs[7, 2] = np.nan
    with pytest.raises(DataError, match="of row 7 is nan"):
        dual.optimality(np.zeros((N, K_CLASSES)), outputs)


def test_functions_share_kernel_rows_and_solved_ones_take_no_steps(problem):
    X, dual, K = problem
    rows, alpha = np.arange(N), solved(dual, K, dual.formulation.label, [1])
    with KernelTiles(RBF(gamma=0.5)) as tiles:
        sub = SubProblem(
            dual, tiles, X, rows, Point(alpha, dual.gradient(alpha, K @ alpha, rows)),
            Memory(RowBuffer(4 * 1024 * N)),
        )  # fmt: skip
        progress = Progress.STEPS_SPENT
        while progress is Progress.STEPS_SPENT:
            progress = sub.advance(tol=1e-3)
    assert progress is Progress.CONVERGED
    assert sub.gap <= 1e-3
    assert sub.cache.n_misses <= N
    steps = sub.point.last[:-3].reshape(K_CLASSES, 3)[:, 2]
    assert steps[1] == 0
    assert (np.delete(steps, 1) > 0).all()
    assert sub.steps.n_done == steps.sum()
    np.testing.assert_array_equal(sub.point.alpha[:, 1], alpha[:, 1])
    found = dual.optimality(sub.point.alpha, K @ sub.point.alpha)
    assert found.gap <= 1.1e-3

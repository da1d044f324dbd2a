"""Leaps: where steps have been many, a working set of a narrow kernel is solved another way."""

import functools

import naive
import numpy as np
import pytest
import scipy.sparse as sp

from bigsvm.duals.box import BoxDual
from bigsvm.duals.dual import NO_PAIR, Point
from bigsvm.duals.formulations import (
    CSVC,
    EpsilonSVR,
    NuClassification,
    NuRegression,
    OneClass,
    SquaredHingeSVC,
)
from bigsvm.duals.functions import FunctionsDual
from bigsvm.duals.one_vs_rest import OneVsRest
from bigsvm.gram import KernelTiles
from bigsvm.gram.row_cache import RowBuffer
from bigsvm.interruption import checked_by
from bigsvm.kernels import RBF, Linear, Polynomial
from bigsvm.working_sets.long_steps import FIRST_LEAP, NEXT_LEAP
from bigsvm.working_sets.subproblem import Memory, Progress, SubProblem

TOL = 1e-3
SPARE = 1 << 25


def narrow_rows(n=400, d=4, scale=300.0, seed=0):
    rng = np.random.default_rng(seed)
    sign = np.where(rng.random(n) < 0.5, 1, -1).astype(np.int8)
    X = rng.normal(size=(n, d)) + 1.5 * (sign[:, None] > 0) * np.eye(d)[0]
    return (scale * X).astype(np.float32), sign


class Work:
    """A sub-problem of all rows, which can be laid aside and taken up again."""

    def __init__(self, dual, X, *, kernel=None, spare=SPARE, alpha=None):
        self.dual, self.X, self.spare = dual, X, spare
        self.kernel = kernel or Linear()
        self.rows = np.arange(X.shape[0])
        self.alpha = dual.formulation.zeros(len(self.rows)) if alpha is None else alpha
        dense = X.toarray() if sp.issparse(X) else X
        outputs = dense @ (dense.T.astype(float) @ dual.formulation.per_output(self.alpha))
        self.gradient = dual.gradient(self.alpha, outputs, self.rows)
        self.origin = self.alpha.copy(), self.gradient.copy()
        self.last, self.steps = NO_PAIR, 0

    def advance(self, max_steps, *, tol=TOL):
        with KernelTiles(self.kernel) as tiles:
            problem = SubProblem(
                self.dual, tiles, self.X, self.rows,
                Point(self.alpha, self.gradient, self.last, self.steps),
                Memory(RowBuffer(1 << 24), spare=self.spare), origin=self.origin,
            )  # fmt: skip
            progress = problem.advance(tol=tol, max_steps=max_steps)
            alpha, gradient, self.last, self.steps = problem.point
            self.alpha, self.gradient, self.gap = alpha.copy(), gradient.copy(), problem.gap
            self.n_evaluations = tiles.n_evaluations
        return progress


def test_leap_converges_where_steps_do_not():
    X, sign = narrow_rows()
    dual = BoxDual(CSVC(sign=sign, C=1.0))
    stepping = Work(dual, X, spare=0)
    assert stepping.advance(3 * FIRST_LEAP) is Progress.STEPS_SPENT
    assert stepping.gap > 100 * TOL
    leaping = Work(dual, X)
    assert leaping.advance(3 * FIRST_LEAP) is Progress.CONVERGED
    assert FIRST_LEAP <= leaping.steps < FIRST_LEAP + 1000
    K = X.astype(float) @ X.astype(float).T
    linear, lower, upper = dual.formulation.box(slice(None))
    assert naive.kkt_gap(K, linear, lower, upper, leaping.alpha) <= 1.01 * TOL
    np.testing.assert_allclose(leaping.gradient, linear - K @ leaping.alpha, atol=1e-3 * TOL)
    assert naive.objective(K, linear, leaping.alpha) > naive.objective(K, linear, stepping.alpha)


def target(X):
    return X[:, 0].astype(float) / 300 + np.sin(np.arange(len(X)))


FORMULATIONS = {
    "c-svc": lambda X, sign: CSVC(sign=sign, C=1.0, sample_weight=np.arange(len(sign)) % 3.0),
    "squared": lambda X, sign: SquaredHingeSVC(sign=sign, C=1.0),
    "nu-svc": lambda X, sign: NuClassification(sign=sign, nu=0.3),
    "one-class": lambda X, sign: OneClass(n_rows=len(sign), nu=0.15),
    "eps-svr": lambda X, sign: EpsilonSVR(target=target(X), C=1.0, epsilon=0.1),
    "nu-svr": lambda X, sign: NuRegression(target=target(X), C=1.0, nu=0.3),
}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", FORMULATIONS)
def test_leap_converges_for_every_formulation(kind, sparse, monkeypatch):
    monkeypatch.setattr("bigsvm.working_sets.long_steps.FIRST_LEAP", 2048)
    X, sign = narrow_rows()
    dual = BoxDual(FORMULATIONS[kind](X, sign))
    begin = dual.filled(dual.formulation.zeros(len(sign)), np.zeros(len(sign)))
    work = Work(dual, sp.csr_array(X) if sparse else X, alpha=begin)
    n_steps = 0
    while work.advance(2048) is Progress.STEPS_SPENT:
        n_steps += 2048
        assert n_steps < 10**5
    K = X.astype(float) @ X.astype(float).T
    standing = dual.optimality(work.alpha, K @ dual.formulation.per_output(work.alpha))
    assert standing.gap <= 1.01 * TOL
    assert standing.duality_gap <= 1e-2 * max(1.0, abs(standing.objective))
    sums = work.alpha.sum(), begin.sum()
    assert sums[0] == pytest.approx(sums[1], abs=1e-9)


def test_leap_converges_with_a_polynomial_kernel():
    X, sign = narrow_rows(scale=1.0)
    dual = BoxDual(CSVC(sign=sign, C=1e4))
    work = Work(dual, X, kernel=Polynomial(gamma=1.0, coef0=1.0, degree=2))
    assert work.advance(1 << 17) is Progress.CONVERGED
    assert work.steps < FIRST_LEAP + 5000


def test_every_function_leaps():
    X, _ = narrow_rows()
    noise = np.random.default_rng(1).normal(size=len(X))
    label = np.digitize(X[:, 1] / 300 + noise, [-0.5, 0.5]).astype(np.int32)
    each = OneVsRest(
        label=label, class_weight=((1.0, 1.0),) * 3, make=functools.partial(CSVC, C=1.0)
    )
    work = Work(FunctionsDual(each, tuple(BoxDual(one) for one in each.functions)), X)
    assert work.advance(20 * FIRST_LEAP) is Progress.CONVERGED
    assert FIRST_LEAP <= work.steps < FIRST_LEAP + 2000
    K = X.astype(float) @ X.astype(float).T
    assert work.dual.optimality(work.alpha, K @ work.alpha).gap <= 1.01 * TOL


@pytest.mark.parametrize("kernel", [RBF(gamma=1e-6), Linear()])
def test_no_leap_without_a_narrow_factor(kernel):
    X, sign = narrow_rows(n=60, d=80 if isinstance(kernel, Linear) else 4)
    dual = BoxDual(CSVC(sign=sign, C=1e6))
    with_room, without = Work(dual, X, kernel=kernel), Work(dual, X, kernel=kernel, spare=0)
    for work in (with_room, without):
        work.advance(2 * FIRST_LEAP, tol=1e-9)
    np.testing.assert_array_equal(with_room.alpha, without.alpha)
    assert with_room.steps == without.steps


def test_bits_of_leaps_do_not_depend_on_slices():
    """In whatever slices, and taken up again after any of them, the bits are the same."""
    X, sign = narrow_rows()
    dual = BoxDual(CSVC(sign=sign, C=1.0))
    whole = Work(dual, X)
    # With no tolerance to reach it goes on behind the first leap and the second.
    whole.advance(NEXT_LEAP * FIRST_LEAP + 4096, tol=0.0)
    for slices in ([2048] * 18, [4096] * 9, [FIRST_LEAP, 3 * FIRST_LEAP, 4096]):
        parts = Work(dual, X)
        for n in slices:
            if parts.advance(n, tol=0.0) is not Progress.STEPS_SPENT:
                break
        assert parts.steps == whole.steps
        np.testing.assert_array_equal(parts.alpha, whole.alpha)
        np.testing.assert_array_equal(parts.gradient, whole.gradient)


def test_interrupted_leap_changes_nothing():
    class Ended(Exception):
        pass

    X, sign = narrow_rows()
    work = Work(BoxDual(CSVC(sign=sign, C=1.0)), X)
    assert work.advance(FIRST_LEAP) is Progress.STEPS_SPENT
    alpha = work.alpha.copy()

    def check():
        raise Ended

    with checked_by(check), pytest.raises(Ended):
        work.advance(2048)
    np.testing.assert_array_equal(work.alpha, alpha)
    assert work.advance(2048) is Progress.CONVERGED


def test_a_leap_to_where_less_is_gained_is_not_taken(monkeypatch):
    X, sign = narrow_rows()
    K, linear = X.astype(float) @ X.astype(float).T, sign.astype(float)
    monkeypatch.setattr(
        "bigsvm.duals.pair_steps.interior_point", lambda factor, v, **_: np.zeros_like(v.alpha)
    )
    work = Work(BoxDual(CSVC(sign=sign, C=1.0)), X)
    work.advance(FIRST_LEAP)
    before = naive.objective(K, linear, work.alpha)
    work.advance(1)
    assert naive.objective(K, linear, work.alpha) >= before > 0
    # But float32 has left the gradient.
    np.testing.assert_allclose(work.gradient, linear - K @ work.alpha, atol=1e-3)


def test_kernel_evaluations_of_a_leap_are_counted():
    X, sign = narrow_rows()
    work = Work(BoxDual(CSVC(sign=sign, C=1.0)), X)
    work.advance(FIRST_LEAP)
    assert work.advance(2048) is Progress.CONVERGED
    # What has moved, with all rows; steps would have asked for rows of a few at most.
    moved = np.count_nonzero(work.alpha)
    assert work.n_evaluations >= moved * len(X)

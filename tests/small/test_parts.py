"""The parts of small problems against slow and obvious versions of them."""

import itertools
from unittest import mock

import naive
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from bigsvm.duals.box import BoxDual
from bigsvm.duals.formulations import CSVC, EpsilonSVR, NuClassification, NuRegression, OneClass
from bigsvm.kernels import RBF, Linear, Polynomial, Precomputed, Sigmoid
from bigsvm.small import solve
from bigsvm.small.certify import certify, certify_functions
from bigsvm.small.kernel import kernel_matrix
from bigsvm.small.pairs import compressed, pairs_of
from bigsvm.small.solve import alpha_of

KERNELS = [
    Linear(),
    Polynomial(gamma=0.4, coef0=0.3, degree=3),
    RBF(gamma=0.2),
    Sigmoid(gamma=0.1, coef0=-0.3),
]


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_a_matrix_has_the_values_of_the_definition(kernel, form):
    rows = np.random.default_rng(0).standard_normal((150, 7)) * (
        np.random.default_rng(1).random((150, 7)) < 0.5
    )
    parameters = {key: value for key, value in kernel.describe().items() if key != "name"}
    expected = naive.kernel_matrix(rows, rows, kernel.name, **parameters)
    centre = rows.mean(axis=0) if kernel.is_shift_invariant else None
    np.testing.assert_allclose(kernel_matrix(kernel, form(rows), centre), expected, atol=1e-12)


def test_sparse_rows_of_many_columns_stay_sparse(monkeypatch):
    monkeypatch.setattr("bigsvm.small.kernel.MOST_DENSE", 10)
    rows = sp.random_array((60, 40), density=0.2, format="csr", random_state=0)
    for kernel in KERNELS:
        dense = kernel_matrix(kernel, rows.toarray(), None)
        np.testing.assert_allclose(kernel_matrix(kernel, rows, None), dense, atol=1e-12)


def test_distances_far_from_the_origin_are_accurate():
    rows = np.random.default_rng(0).standard_normal((80, 3))
    near = kernel_matrix(RBF(gamma=0.5), rows, rows.mean(axis=0))
    far = kernel_matrix(RBF(gamma=0.5), rows + 1e6, (rows + 1e6).mean(axis=0))
    np.testing.assert_allclose(far, near, atol=1e-8)


def test_a_value_beyond_float32_is_no_small_problem():
    assert kernel_matrix(Linear(), np.full((3, 1), 1e25), None) is None
    assert kernel_matrix(Polynomial(gamma=1.0, degree=300), np.full((3, 1), 1e9), None) is None


def test_a_matrix_that_is_given_is_looked_up_by_the_numbers_of_its_rows():
    values = np.random.default_rng(0).standard_normal((5, 5))
    values += values.T
    order = np.array([3, 0, 4])
    rows = np.hstack([order[:, None] + 1.0, values[order]])
    looked_up = kernel_matrix(Precomputed(), rows, None)
    np.testing.assert_array_equal(looked_up, values[np.ix_(order, order)])


def problem_of(kind, n, rng):
    weights = rng.choice([0.5, 1.0, 2.0], n)
    sign = np.where(np.arange(n) % 2, 1, -1).astype(np.int8)
    target = rng.standard_normal(n)
    return {
        "c-svc": lambda: CSVC(C=2.0, sign=sign, class_weight=(1.0, 2.0), sample_weight=weights),
        "nu-svc": lambda: NuClassification(nu=0.3, sign=sign, sample_weight=weights),
        "one-class": lambda: OneClass(nu=0.3, n_rows=n, sample_weight=weights),
        "eps-svr": lambda: EpsilonSVR(C=2.0, epsilon=0.1, target=target, sample_weight=weights),
        "nu-svr": lambda: NuRegression(C=2.0, nu=0.3, target=target, sample_weight=weights),
    }[kind]()


class Parameters:
    def __init__(self, formulation, tol):
        self.formulation, self.tol = formulation, tol
        self.C, self.nu, self.epsilon = 2.0, 0.3, 0.1


KINDS = ["c-svc", "nu-svc", "one-class", "eps-svr", "nu-svr"]


@pytest.mark.parametrize("kind", KINDS)
@given(seed=st.integers(0, 2**20), tol=st.sampled_from([0.3, 1e-3]))
def test_gaps_are_those_of_our_own_solver(kind, seed, tol):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(6, 60))
    matrix = kernel_matrix(RBF(gamma=0.5), rng.standard_normal((n, 3)), None)
    problem = problem_of(kind, n, rng)
    answers = None if kind == "one-class" else problem.per_row
    bounds = problem.importance(slice(None))
    alpha = alpha_of(solve.solve(Parameters(kind, tol), matrix, answers, bounds), problem)
    dual = BoxDual(problem)
    before = dual.optimality(alpha, matrix @ problem.per_output(alpha))
    found = certify(problem, matrix, alpha, tol=tol)
    if found is None:  # a row with both of its variables, which scikit-learn subtracts
        assert kind == "nu-svr"
        return
    assert dual.infeasible(found.alpha) == ""
    np.testing.assert_allclose(found.outputs, matrix @ problem.per_output(found.alpha), atol=1e-9)
    expected = dual.optimality(found.alpha, found.outputs)
    for name in ("gap", "objective", "duality_gap"):
        np.testing.assert_allclose(
            getattr(found.standing, name), getattr(expected, name), rtol=1e-9, atol=1e-9
        )
    np.testing.assert_allclose(found.standing.thresholds, expected.thresholds, atol=1e-9)
    assert found.standing.n_bounded == expected.n_bounded
    assert found.standing.gap <= max(before.gap, 1e-9)
    assert found.standing.objective >= before.objective - 1e-9


@pytest.mark.parametrize("kind", ["c-svc", "nu-svc"])
@given(seed=st.integers(0, 2**20), k=st.integers(2, 5), most_free=st.sampled_from([2, 128]))
def test_pairs_together_have_the_gaps_of_each_alone(kind, seed, k, most_free):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(8 * k, 60))
    matrix = kernel_matrix(RBF(gamma=0.5), rng.standard_normal((n, 3)), None)
    codes, weights = rng.permutation(n) % k, rng.choice([0.5, 1.0, 2.0], n)
    nu, C = (0.1, 1.0) if kind == "nu-svc" else (None, 2.0)
    parameters = Parameters(kind, 1e-3)
    parameters.nu = nu
    solved = solve.solve(parameters, matrix, codes, weights)
    variables, at, n_rows = pairs_of(solved, codes, C * weights, nu)
    with mock.patch("bigsvm.small.certify.MOST_FREE", most_free):
        point = certify_functions(variables, matrix, at, tol=1e-3)
    coefficients = variables.coefficients(point.at)
    np.testing.assert_array_equal(compressed(coefficients).toarray(), coefficients)
    for pair, (first, second) in enumerate(itertools.combinations(range(k), 2)):
        rows = np.flatnonzero((codes == first) | (codes == second))
        assert len(rows) == n_rows[pair]
        assert not np.delete(coefficients[:, pair], rows).any()
        sign = np.where(codes[rows] == second, 1, -1).astype(np.int8)
        chosen = {"nu": nu} if nu else {"C": C}
        problem = (NuClassification if nu else CSVC)(
            sign=sign, sample_weight=weights[rows], **chosen
        )
        dual, alpha = BoxDual(problem), coefficients[rows, pair]
        assert dual.infeasible(alpha) == ""
        outputs = matrix[np.ix_(rows, rows)] @ alpha
        np.testing.assert_allclose(point.outputs[rows, pair], outputs, atol=1e-9)
        expected, standing = dual.optimality(alpha, outputs), point.standings[pair]
        assert standing.gap <= 1e-3
        for name in ("gap", "objective", "duality_gap", "thresholds"):
            np.testing.assert_allclose(
                getattr(standing, name), getattr(expected, name), rtol=1e-9, atol=1e-9
            )
        for name in ("n_support", "n_bounded", "n_free"):
            assert getattr(standing, name) == getattr(expected, name)


@pytest.mark.parametrize("kind", KINDS)
def test_a_point_of_another_problem_is_none(kind):
    rng = np.random.default_rng(0)
    matrix = kernel_matrix(RBF(gamma=0.5), rng.standard_normal((20, 3)), None)
    problem = problem_of(kind, 20, rng)
    outside, unbalanced = problem.zeros(20), problem.zeros(20)
    outside.reshape(20, -1)[3] = 1e3
    unbalanced.reshape(20, -1)[np.arange(20) % 2 == 1, 0] = 0.01
    for alpha in (outside, unbalanced):
        assert certify(problem, matrix, alpha, tol=1e-3) is None


def test_what_scikit_learn_refuses_has_no_answer():
    parameters = Parameters("nu-svc", 1e-3)
    parameters.nu = 0.9
    sign = np.where(np.arange(20) < 2, 1, -1)
    assert solve.solve(parameters, np.eye(20), sign, None) is None

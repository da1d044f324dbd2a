"""The ball's dual by its definitions, beside the optimum of a dense problem in float64."""

from dataclasses import replace

import naive
import numpy as np
import pytest
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import nnls

from bigsvm.duals import ball
from bigsvm.duals.ball import BallDual, L2Classification, L2OneClass
from bigsvm.errors import DataError, ParameterError

KERNELS = {
    "rbf": {"name": "rbf", "gamma": 0.5},
    "polynomial": {"name": "poly", "gamma": 0.5, "coef0": 1.0, "degree": 2},
    "linear": {"name": "linear"},
}
WEIGHTED = {
    "equal": {},
    "classes": {"class_weight": (0.5, 2.0)},
    "rows": {"sample_weight": np.random.default_rng(9).choice([0.0, 0.5, 1.0, 3.0], 40)},
    "one class": {"sample_weight": np.random.default_rng(8).choice([0.0, 0.5, 1.0, 3.0], 40)},
}


class Problem:
    """Rows (40, 3), K + 1 or K, and K̃ among the rows that have a weight, all in float64."""

    def __init__(self, kernel, weighted, C=2.0, seed=0):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(40, 3))
        sign = np.where(X[:, 0] + rng.normal(size=40) > 0, 1, -1).astype(np.int8)
        given = WEIGHTED[weighted]
        if weighted == "one class":
            sign[:] = 1
            self.formulation = L2OneClass(n_rows=40, C=C, **given)
        else:
            self.formulation = L2Classification(sign=sign, C=C, **given)
        self.y = sign.astype(np.float64)
        # C of each row, by the definition.
        bound = C * np.where(sign > 0, *reversed(given.get("class_weight", (1.0, 1.0))))
        bound = bound * given.get("sample_weight", 1.0)
        self.rows = np.flatnonzero(bound)
        self.C = bound
        self.K = naive.kernel_matrix(X, X, **KERNELS[kernel])
        self.K += 0 if weighted == "one class" else 1
        among = np.ix_(self.rows, self.rows)
        y = self.y[self.rows]
        self.tilde = self.K[among] * np.outer(y, y) + np.diag(1 / bound[self.rows])
        self.dual = BallDual(self.formulation, largest=float(np.diag(self.tilde).max()))

    def signed(self, a):
        """Alpha of all rows of weights a of those that have one."""
        alpha = np.zeros(len(self.y))
        alpha[self.rows] = a * self.y[self.rows]
        return alpha

    def at(self, a):
        alpha = self.signed(a)
        return self.dual.optimality(alpha, self.K @ alpha)

    def somewhere(self, seed=1):
        rng = np.random.default_rng(seed)
        return rng.exponential(size=len(self.rows)) * (rng.random(len(self.rows)) < 0.5)


@pytest.fixture(params=[(k, w) for k in KERNELS for w in WEIGHTED], ids="-".join)
def problem(request):
    return Problem(*request.param)


def test_the_oracle_agrees_with_scipy(problem):
    """Σ a − ½ aᵀK̃a is least squares with a >= 0, by the Cholesky factor of K̃."""
    a = naive.l2_svc(problem.tilde)
    factor = cholesky(problem.tilde, lower=True)
    peer, _ = nnls(factor.T, solve_triangular(factor, np.ones(len(a)), lower=True))
    np.testing.assert_allclose(a, peer, atol=1e-9 * a.max())


def test_objective_and_gaps_are_their_definitions(problem):
    a = problem.somewhere()
    tilde, alpha, standing = problem.tilde, problem.signed(a), problem.at(a)
    objective = a.sum() - 0.5 * a @ tilde @ a
    assert standing.objective == pytest.approx(objective, rel=1e-12)
    h = problem.K @ alpha
    slack = np.maximum(0, 1 - problem.y * h)
    primal = 0.5 * alpha @ h + 0.5 * problem.C @ slack**2
    assert standing.duality_gap == pytest.approx(primal - objective, rel=1e-10)
    assert standing.thresholds == (0.0,)
    assert standing.gap == pytest.approx(kkt_gap(problem, a), rel=1e-10, abs=1e-12)
    assert standing.n_support == np.count_nonzero(a)
    assert standing.n_bounded == 0


def kkt_gap(problem, a, some=slice(None)):
    """By the definition: no row may rise or fall by more than a variable without a row."""
    y = problem.y[problem.rows][some]
    gradient = y * (1 - problem.tilde @ a)[some]
    rises, falls = (y > 0) | (a[some] > 0), (y < 0) | (a[some] > 0)
    return gradient[rises].max(initial=0.0) - gradient[falls].min(initial=0.0)


def proof(problem, a):
    alpha = problem.signed(a)
    return problem.dual.proof(alpha, problem.K @ alpha, problem.at(a))


def test_the_farthest_gap_is_that_on_the_simplex_in_units_of_the_margin(problem):
    """R − min (K̃a)_i = R · gap, where alpha is as long as is best."""
    a = problem.somewhere()
    a /= a.sum()
    R = a @ problem.tilde @ a
    standing = problem.at(a / R)
    farthest = proof(problem, a / R)["farthest_gap"]
    assert farthest * R == pytest.approx(R - (problem.tilde @ a).min(), rel=1e-9)
    assert standing.objective == pytest.approx(0.5 / R, rel=1e-12)


@pytest.mark.parametrize("tol", [1e-6, 1e-2, 0.5])
def test_the_goal_is_when_the_larger_ball_encloses_all_points(problem, tol):
    a = problem.somewhere()
    a /= a.sum()
    R, D = a @ problem.tilde @ a, problem.dual.largest
    goal = problem.dual.goal_on_simplex(tol, R)
    # Farthest: D + R - 2 (K̃a)_i <= (1 + tol)² (D - R) is R - (K̃a)_i <= goal.
    assert 2 * goal + (D - R) == pytest.approx((1 + tol) ** 2 * (D - R), rel=1e-12)
    farthest = R - (problem.tilde @ a).min()
    eps = proof(problem, a / R)["eps"]
    assert 2 * farthest + (D - R) == pytest.approx((1 + eps) ** 2 * (D - R), rel=1e-9)
    for ball_tol in (0.99 * eps, 1.01 * eps):
        dual = replace(problem.dual, tol=ball_tol)
        alpha = problem.signed(a / R)
        found = dual.proof(alpha, problem.K @ alpha, problem.at(a / R))
        assert (found["test"] == "radius") == (ball_tol > eps)


def test_at_the_optimum_both_gaps_close(problem):
    standing = problem.at(naive.l2_svc(problem.tilde))
    assert standing.gap <= 1e-10
    assert abs(standing.duality_gap) <= 1e-9 * standing.objective
    assert proof(problem, naive.l2_svc(problem.tilde))["test"] == "radius"


def test_optimality_does_not_depend_on_the_order_of_rows(problem):
    a = problem.somewhere()
    alpha = problem.signed(a)
    outputs, whole = problem.K @ alpha, problem.at(a)
    listed = np.random.default_rng(0).permutation(len(alpha))
    standing = problem.dual.optimality(alpha[listed], outputs[listed], rows=listed)
    assert standing.gap == pytest.approx(whole.gap, rel=1e-12)
    assert standing.objective == pytest.approx(whole.objective, rel=1e-12)


def near(problem, by, seed=3):
    """Multipliers of those rows, off the optimum by a share of each."""
    a = naive.l2_svc(problem.tilde)
    return a * np.exp(by * np.random.default_rng(seed).normal(size=len(a)))


@pytest.mark.parametrize("by", [0.3, 1.0, 3.0])
def test_the_ball_round_the_centre_with_the_losses_encloses_all_points(problem, by):
    """Points and centre are made of a factor of K and one coordinate a row for its loss."""
    a, rows = near(problem, by), problem.rows
    C, y = problem.C[rows], problem.y[rows]
    values, vectors = np.linalg.eigh(problem.K[np.ix_(rows, rows)])
    factor = vectors * np.sqrt(np.maximum(values, 0.0))
    points = np.hstack([y[:, None] * factor, np.diag(1 / np.sqrt(C))])
    np.testing.assert_allclose(points @ points.T, problem.tilde, atol=1e-9)
    w = (a * y) @ factor
    losses = np.maximum(0, 1 - y * (factor @ w))
    primal = 0.5 * w @ w + 0.5 * C @ losses**2
    centre = np.append(w, np.sqrt(C) * losses) / (2 * primal)
    squared = ((points - centre) ** 2).sum(axis=1)
    assert squared.max() <= problem.dual.largest - 0.5 / primal + 1e-9
    # No ball is smaller than the radius of the dual tells.
    R = a @ problem.tilde @ a / a.sum() ** 2
    assert problem.dual.largest - 0.5 / primal >= problem.dual.largest - R - 1e-9


@pytest.mark.parametrize("by", [1e-3, 1e-2])
def test_the_gap_of_the_losses_is_its_definition(problem, by):
    a, rows = near(problem, by), problem.rows
    a *= a.sum() / (a @ problem.tilde @ a)
    y, C, alpha = problem.y[rows], problem.C[rows], problem.signed(a)
    f = (problem.K @ alpha)[rows]
    primal = 0.5 * alpha @ problem.K @ alpha + 0.5 * C @ np.maximum(0, 1 - y * f) ** 2
    R = a @ problem.tilde @ a / a.sum() ** 2
    found = proof(problem, a)
    share = R * (primal - 0.5 / R) / primal / R
    assert R - 0.5 / primal == pytest.approx(share * R, rel=1e-6)
    if share > ball.LARGEST_SHARE:
        assert found["losses_gap"] is None
    else:
        assert found["losses_gap"] == pytest.approx(ball.TIMES * share, rel=1e-6, abs=1e-12)
    assert proof(problem, 1.3 * a)["farthest_gap"] >= found["farthest_gap"]  # of the best length


@pytest.mark.parametrize("error", [1e-6, 1e-4, 1e-2])
def test_rows_that_are_not_doubtful_do_not_violate_whatever_their_error(problem, error):
    alpha, tol = problem.signed(near(problem, 1e-3)), 1e-2
    outputs, rng = problem.K @ alpha, np.random.default_rng(1)
    doubtful = problem.dual.doubtful(alpha, outputs, tol=tol, error=error)
    assert not len(doubtful) or set(np.flatnonzero(alpha)) <= set(doubtful)
    exact = np.isin(np.arange(len(alpha)), doubtful)
    gap = problem.dual.optimality(alpha, outputs).gap
    for wrong in (-error * problem.y, *rng.uniform(-error, error, (20, len(alpha)))):
        found = problem.dual.optimality(alpha, np.where(exact, outputs, outputs + wrong)).gap
        assert found == pytest.approx(gap, abs=1e-12) or max(found, gap) <= tol


def test_gap_of_some_rows_is_that_of_their_sub_problem(problem):
    a = 0.5 * naive.l2_svc(problem.tilde)
    alpha = problem.signed(a)
    outputs, some = problem.K @ alpha, problem.rows[::2]
    standing = problem.dual.optimality(alpha[some], outputs[some], rows=some)
    assert standing.gap == pytest.approx(kkt_gap(problem, a, slice(None, None, 2)), rel=1e-9)


def lacking(*given):
    return BallDual(
        L2Classification(sign=np.array([1, -1], np.int8), C=2.0), lack=lambda: np.array(given)
    )


def test_the_rank_of_a_model_is_the_first_that_is_enough():
    far = np.linspace(0.1, 0.01, 700)
    assert lacking(*far).model_rank == 700  # times C all lack more than is enough
    assert lacking(*far[:200], *np.full(100, 1e-3)).model_rank == 256
    assert lacking(*np.full(300, 1e-3)).model_rank == ball.LEAST_RANK
    assert lacking(*np.full(50, 1e-3)).model_rank == 50
    assert lacking(*np.full(300, 0.2)).model_rank == 0
    assert lacking(np.inf, np.inf).model_rank == 0
    assert BallDual(L2Classification(sign=np.array([1, -1], np.int8), C=2.0)).model_rank == 0


def test_gap_and_objective_at_zero(problem):
    standing = problem.at(np.zeros(len(problem.rows)))
    assert standing.gap == len(set(problem.y[problem.rows]))  # rows of either class rise or fall
    assert standing.objective == 0.0
    assert proof(problem, np.zeros(len(problem.rows))) is None


def test_squared_radius_is_never_negative(problem):
    dual = BallDual(problem.formulation, largest=1e-3)
    assert dual.squared_radius(1.0) == 0.0
    assert dual.goal_on_simplex(0.1, 1.0) == 0.0


def test_rounding_leaves_the_energy_that_the_ridge_has(problem):
    least = 1 / problem.C.sum()
    assert problem.dual.energy(2 * least) == 2 * least
    assert problem.dual.energy(0.5 * least - 5e-5 * problem.dual.largest) == least
    with pytest.raises(ParameterError, match="not positive semidefinite"):
        problem.dual.energy(0.5 * least - 2e-4 * problem.dual.largest)
    with pytest.raises(ParameterError, match="not positive semidefinite"):
        problem.dual.energy(0.4 * least, is_exact=True)


def test_energy_of_a_definite_kernel_is_accepted(problem):
    a = np.array(problem.C[problem.rows])  # all weight in the ridge
    a /= a.sum()
    R = a @ problem.tilde @ a
    assert problem.dual.energy(R, is_exact=True) == R


def test_weight_with_an_infinite_ridge_counts_as_zero():
    sign = np.array([1, -1, 1, 1], np.int8)
    weights = np.array([1e-39, 1.0, 0.0, 2.0])
    formulation = L2Classification(sign=sign, C=1.0, sample_weight=weights)
    [segment] = formulation.segments(slice(None))
    np.testing.assert_array_equal(segment.ridge, [0, 1, 0, 0.5])
    np.testing.assert_array_equal(segment.box.lower, [0, -np.inf, 0, 0])
    np.testing.assert_array_equal(segment.box.upper, [0, 0, 0, np.inf])
    np.testing.assert_array_equal(formulation.has_variable(slice(None)), [False, True, False, True])
    with pytest.raises(DataError, match="no row of the positive class has a positive weight"):
        L2Classification(sign=sign[:3], C=1.0, sample_weight=weights[:3])


@pytest.mark.parametrize("C", [0.0, -1.0, np.nan, np.inf])
def test_invalid_C_is_refused(C):
    with pytest.raises(ParameterError, match=r"C is .*(a number > 0|must be finite)"):
        L2Classification(sign=np.array([1, -1], np.int8), C=C)

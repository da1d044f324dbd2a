"""Polishing: the oracle's optimum to ten digits, from anywhere feasible."""

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigsvm.duals.box_problem import Box
from bigsvm.duals.polish import polish, polish_simplexes


def problem(n, seed, C=1.0, gamma=0.5, *, total=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = np.where(X[:, 0] + rng.normal(size=n) > 0, 1.0, -1.0)
    y[:2] = 1, -1
    K = naive.kernel_matrix(X, X, "rbf", gamma=gamma)
    box = Box(y, np.where(y > 0, 0.0, -C), np.where(y > 0, C, 0.0))
    alpha = np.zeros(n)
    # Some pairs at once at their bounds: boxes are hit on the way.
    positive, negative = np.flatnonzero(y > 0), np.flatnonzero(y < 0)
    for i, j in zip(positive, negative, strict=False):
        alpha[i] = C * rng.choice([0, 0.3, 1])
        alpha[j] = -alpha[i]
    alpha[positive[0]] += total if alpha[positive[0]] == 0 else 0
    return K, box, alpha


def assert_improved(K, box, before, after):
    assert (after >= box.lower).all()
    assert (after <= box.upper).all()
    assert after.sum() == pytest.approx(before.sum(), abs=1e-12)
    gain = naive.objective(K, box.linear, after) - naive.objective(K, box.linear, before)
    assert gain >= -1e-12


@given(st.integers(2, 25), st.integers(0, 10**6), st.sampled_from([0.01, 1.0, 100.0]))
@settings(max_examples=80)
def test_reaches_the_optimum_from_anywhere(n, seed, C):
    K, box, alpha = problem(n, seed, C)
    kept = alpha.copy()
    found = polish(K, box, alpha)
    np.testing.assert_array_equal(alpha, kept)
    assert_improved(K, box, alpha, found)
    assert naive.kkt_gap(K, *box, found) <= 1e-9 * max(1, C)


@pytest.mark.parametrize("seed", range(8))
def test_agrees_with_the_oracle(seed):
    K, box, alpha = problem(15, seed, C=2.0)
    oracle = naive.solve(K, *box, alpha, tol=1e-12)
    found = polish(K, box, alpha)
    most = naive.objective(K, box.linear, oracle)
    assert naive.objective(K, box.linear, found) == pytest.approx(most, rel=1e-12)
    np.testing.assert_allclose(found, oracle, atol=1e-8)
    free = (oracle > box.lower) & (oracle < box.upper)
    # A variable at its bound is there exactly.
    assert (free == ((found > box.lower) & (found < box.upper))).all()
    assert free.any()
    assert not free.all()


def test_starting_from_nearly_the_optimum_takes_it_to_the_last_digits():
    K, box, alpha = problem(20, 3, C=5.0)
    near = naive.solve(K, *box, alpha, tol=1e-3)
    assert naive.kkt_gap(K, *box, near) > 1e-5
    assert naive.kkt_gap(K, *box, polish(K, box, near)) <= 1e-10


def test_duplicates_leave_a_choice_but_not_of_the_outputs():
    K, box, alpha = problem(8, 1)
    twice = np.repeat(np.arange(8), 2)
    once = polish(K, Box(box.linear, 2 * box.lower, 2 * box.upper), alpha)
    both = polish(K[np.ix_(twice, twice)], Box(*(part[twice] for part in box)), alpha[twice] / 2)
    assert_improved(K[np.ix_(twice, twice)], Box(*(p[twice] for p in box)), alpha[twice] / 2, both)
    np.testing.assert_allclose(both.reshape(8, 2).sum(axis=1), once, atol=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_more_free_rows_than_dimensions(seed):
    """The linear kernel of a plane has rank 2: most systems have no solution."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(16, 2))
    K = X @ X.T
    _, box, alpha = problem(16, seed)
    alpha = 0.5 * alpha  # free wherever it is not 0
    found = polish(K, box, alpha)
    assert_improved(K, box, alpha, found)
    assert naive.kkt_gap(K, *box, found) <= 1e-9
    most = naive.objective(K, box.linear, naive.solve(K, *box, np.zeros(16)))
    assert naive.objective(K, box.linear, found) == pytest.approx(most, rel=1e-9)


def test_contradictory_duplicates_end_at_their_bounds():
    K = np.ones((2, 2))
    box = Box(np.array([1.0, -1.0]), np.array([0.0, -1.0]), np.array([1.0, 0.0]))
    np.testing.assert_array_equal(polish(K, box, np.zeros(2)), [1, -1])


def test_polish_without_a_free_variable_changes_nothing():
    K, box, _ = problem(6, 0)
    fixed = Box(box.linear, np.zeros(6), np.zeros(6))
    np.testing.assert_array_equal(polish(K, fixed, np.zeros(6)), 0)
    full = Box(np.ones(6), np.zeros(6), np.ones(6))
    np.testing.assert_array_equal(polish(K, full, np.ones(6)), 1)
    np.testing.assert_array_equal(polish(K, full, np.zeros(6)), 0)


def test_polish_keeps_a_sum_other_than_zero():
    K, box, alpha = problem(12, 5, total=0.25)
    found = polish(K, box, alpha)
    assert_improved(K, box, alpha, found)
    assert naive.kkt_gap(K, *box, found) <= 1e-9


def test_polish_of_an_indefinite_kernel_stays_in_the_box():
    rng = np.random.default_rng(0)
    half = rng.normal(size=(10, 10))
    _, box, alpha = problem(10, 2)
    found = polish(half + half.T, box, alpha)
    assert (found >= box.lower).all()
    assert (found <= box.upper).all()
    assert found.sum() == pytest.approx(0, abs=1e-9)


@given(
    st.integers(2, 8), st.integers(2, 4), st.integers(0, 10**6), st.sampled_from([0.1, 1.0, 50.0])
)
@settings(max_examples=40)
def test_rows_of_several_classes_reach_their_optimum_from_anywhere(n, k, seed, C):
    """Violations at the level of rounding; sums of exactly 0 where nothing is left of a row."""
    rng = np.random.default_rng(seed)
    X, label = rng.normal(size=(n, 3)), rng.integers(k, size=n)
    label[:2] = 0, 1
    K = naive.kernel_matrix(X, X, "rbf", gamma=0.5)
    bounds = C * rng.choice([0.5, 1.0], n)
    own = np.eye(k, dtype=bool)[label]
    share = rng.dirichlet(np.ones(k), n) * rng.integers(0, 2, n)[:, None]
    alpha = bounds[:, None] * share.sum(axis=1, keepdims=True) * own - bounds[:, None] * share
    after = polish_simplexes(own, bounds, K, alpha, own - K @ alpha)
    assert (after <= own * bounds[:, None]).all()
    np.testing.assert_allclose(after.sum(axis=1), 0, atol=1e-12 * C)
    assert (after.any(axis=1) == (after > 0).any(axis=1)).all()
    psi = naive.multiclass_violations(own - K @ after, label, bounds, after)
    assert psi.max() <= 1e-9 * max(C, 1)

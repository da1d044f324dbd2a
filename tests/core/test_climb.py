"""Climbs of many rows at once: against a dense solution, and what they must leave as it is."""

import naive
import numpy as np
import pytest

from bigsvm.core import climb

K_CLASSES, Q = 4, 30
ENDLESS = 10**9


def problem(*, C=5.0, gamma=0.1, seed=0):
    """A feasible alpha (k, q), its bounds and gradient, and the kernel among its rows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(Q, 3))
    gram = np.exp(-gamma * ((X[:, None] - X) ** 2).sum(axis=2)).astype(np.float32)
    label = rng.integers(K_CLASSES, size=Q)
    eta = rng.dirichlet(np.ones(K_CLASSES), size=Q) * C
    eta[rng.random((Q, K_CLASSES)) < 0.3] = 0
    eta[np.arange(Q), label] = 0
    upper = C * np.eye(K_CLASSES)[label]
    alpha = -eta
    alpha[np.arange(Q), label] = np.minimum(eta.sum(axis=1), C)
    alpha *= np.where(eta.sum(axis=1) > C, C / np.maximum(eta.sum(axis=1), C), 1.0)[:, None]
    alpha[np.arange(Q), label] = 0.0
    alpha[np.arange(Q), label] = -alpha.sum(axis=1)
    gradient = np.eye(K_CLASSES)[label] - gram.astype(np.float64) @ alpha
    alpha, upper = (np.ascontiguousarray(part.T) for part in (alpha, upper))
    # The gradient has the order that training has: in another one all is compiled once more.
    return gram, alpha, upper, np.asfortranarray(gradient.T), label


def objective(gram, alpha, label):
    bounds = np.full(Q, 5.0)
    return naive.multiclass_objectives(gram.astype(np.float64), label, K_CLASSES, bounds, alpha.T)[
        0
    ]


def go(gram, alpha, upper, gradient, *, tol=1e-9, work=ENDLESS):
    climb.climb(gram, alpha, upper, gradient, 1.0, tol, work)


@pytest.mark.parametrize("gamma", [0.001, 0.1, 3.0])
@pytest.mark.parametrize("work", [1, 20_000, ENDLESS])
def test_climb_raises_the_objective_within_the_bounds(gamma, work):
    gram, alpha, upper, gradient, label = problem(gamma=gamma)
    before, started = objective(gram, alpha, label), alpha.copy()
    assert (started <= upper).all()
    go(gram, alpha, upper, gradient, work=work)
    assert objective(gram, alpha, label) > before
    assert (alpha <= upper).all()
    np.testing.assert_allclose(alpha.sum(axis=0), 0, atol=1e-13)
    # What has no room stays where it is.
    at_bound = started == upper
    assert at_bound.any()
    np.testing.assert_array_equal(alpha[at_bound], upper[at_bound])
    exact = np.eye(K_CLASSES)[label].T - alpha @ gram.astype(np.float64)
    np.testing.assert_allclose(gradient, exact, atol=1e-9)


def test_at_the_end_of_a_climb_free_variables_of_a_row_have_equal_gradients():
    """The largest objective among those that have not met their bounds."""
    gram, alpha, upper, gradient, _ = problem()
    go(gram, alpha, upper, gradient)
    room = alpha < upper
    spread = [np.ptp(gradient[room[:, i], i]) for i in range(Q) if room[:, i].sum() > 1]
    assert len(spread) > 5
    assert max(spread) < 1e-6


def test_climb_stays_within_the_work_it_is_given():
    """One search of little work is not that of much; and none at all changes nothing."""
    gram, alpha, upper, gradient, label = problem()
    found = []
    for work in (0, 1, ENDLESS):
        moved = alpha.copy()
        go(gram, moved, upper, gradient.copy(order="F"), work=work)
        found.append(objective(gram, moved, label))
    assert found[0] == objective(gram, alpha, label)
    assert found[0] < found[1] < found[2]


def test_descent_directions_made_by_rounding_do_not_diverge():
    """Rows that are all the same: K has one eigenvalue that is not 0."""
    gram, alpha, upper, _, label = problem()
    gram[:] = 1.0
    gradient = np.asfortranarray(np.eye(K_CLASSES)[label].T - alpha @ gram.astype(np.float64))
    before = objective(gram, alpha, label)
    go(gram, alpha, upper, gradient)
    assert np.isfinite(alpha).all()
    assert (alpha <= upper).all()
    assert objective(gram, alpha, label) > before


def test_nan_in_the_gradient_ends_the_climb_without_a_step():
    gram, alpha, upper, gradient, _ = problem()
    gradient[0, 0] = np.nan
    before = alpha.copy()
    go(gram, alpha, upper, gradient)
    np.testing.assert_allclose(alpha, before, rtol=1e-14)


def test_the_gradient_follows_kernel_row_by_kernel_row():
    rng = np.random.default_rng(0)
    gradient, change = rng.normal(size=(K_CLASSES, 50)), rng.normal(size=(7, K_CLASSES))
    rows = rng.normal(size=(7, 50)).astype(np.float32)
    expected = gradient - change.T @ rows
    climb.follow(gradient, rows, change)
    np.testing.assert_allclose(gradient, expected, rtol=1e-12)

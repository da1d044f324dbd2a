"""Small problems for the tests of pair steps, and how to run them."""

import numpy as np
from numba import config

from bigsvm.core import smo

RULES = {"mvp": smo.MVP, "second_order": smo.SECOND_ORDER, "hmg": smo.HMG}
JIT = not config.DISABLE_JIT
STEPS = 1 << 15


def classifier(n, seed=0, C=1.0, gamma=0.3, d=3):
    """A C-SVC in the signed notation: K (n, n) float64 of float32 values, linear, lower, upper."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.where(X[:, 0] + 0.7 * rng.normal(size=n) > 0, 1.0, -1.0)
    y[:2] = 1, -1
    squared = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    K = np.exp(-gamma * squared).astype(np.float32).astype(np.float64)
    return K, y, np.where(y > 0, 0.0, -C), np.where(y > 0, C, 0.0)


def feasible(problem, seed):
    """A random feasible point: some variables at 0, some at C, some free; Σ α = 0."""
    _, _, lower, upper = problem
    rng = np.random.default_rng(seed)
    alpha = np.zeros(len(lower))
    for _ in range(2 * len(alpha)):
        i, j = rng.integers(0, len(alpha), 2)
        room = min(upper[i] - alpha[i], alpha[j] - lower[j])
        if i != j and room > 0:
            mu = room * rng.choice([1.0, 0.5, rng.random()])
            alpha[i], alpha[j] = alpha[i] + mu, alpha[j] - mu
            alpha[i] = upper[i] if mu == upper[i] - alpha[i] + mu else min(alpha[i], upper[i])
            alpha[j] = max(alpha[j], lower[j])
    return alpha


def start(problem, alpha=None):
    K, linear, lower, upper = problem
    alpha = np.zeros(len(K)) if alpha is None else np.asarray(alpha, float)
    return smo.make_state(alpha, linear - K @ alpha, lower, upper, np.diag(K).copy())


def all_rows(problem, state):
    """Rows, slots and stamps with every row in memory."""
    n, width = len(problem[0]), len(state.alpha)
    rows = np.zeros((n, width), np.float32)
    rows[:, :n] = problem[0]
    slots = np.full(width, -1, np.int32)
    slots[:n] = np.arange(n)
    return rows, slots, np.zeros(n, np.int64)


def run(problem, state, rule, *, tol=1e-3, max_steps=STEPS):
    return smo.run(state, *all_rows(problem, state), rule, tol, max_steps)


def assert_in_box(problem, state):
    _, _, lower, upper = problem
    alpha = state.alpha[: len(lower)]
    assert (alpha >= lower).all()
    assert (alpha <= upper).all()
    assert not state.alpha[len(lower) :].any()

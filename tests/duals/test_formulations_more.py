"""Problems beside C-SVC: their boxes, sums and thresholds, and a start that adds up."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigsvm.duals.box import BoxDual
from bigsvm.duals.formulations import (
    EpsilonSVR,
    NuClassification,
    NuRegression,
    OneClass,
    SquaredHingeSVC,
)
from tests import naive


def problem(kind, n, rng, weights=None):
    sign = np.where(np.arange(n) % 3 == 0, np.int8(1), np.int8(-1))
    target = rng.standard_normal(n)
    return {
        "nu-svc": lambda: NuClassification(sign=sign, nu=0.3, sample_weight=weights),
        "one-class": lambda: OneClass(n_rows=n, nu=0.3, sample_weight=weights),
        "eps-svr": lambda: EpsilonSVR(target=target, C=2.0, epsilon=0.2, sample_weight=weights),
        "nu-svr": lambda: NuRegression(target=target, C=2.0, nu=0.4, sample_weight=weights),
        "squared": lambda: SquaredHingeSVC(sign=sign, C=2.0, sample_weight=weights),
    }[kind]()


KINDS = ["nu-svc", "one-class", "eps-svr", "nu-svr", "squared"]


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(KINDS), st.integers(2, 60), st.booleans(), st.integers(0, 100))
def test_a_start_is_feasible_at_every_scope(kind, n, weighted, seed):
    rng = np.random.default_rng(seed)
    weights = rng.uniform(0.5, 2, n) if weighted else None
    formulation = problem(
        kind, max(n, 6), rng, None if weights is None else np.resize(weights, max(n, 6))
    )
    n = max(n, 6)
    alpha, outputs = formulation.zeros(n), rng.standard_normal(n)
    for scope in (n // 2, n):
        rows = slice(0, scope)
        alpha[rows] = BoxDual(formulation).filled(alpha[rows], outputs[rows])
        sums = formulation.sums(rows) or (0.0,) * formulation.n_groups
        totals = [0.0] * formulation.n_groups
        parts = formulation.split(alpha[rows], rows)
        for (box, _, group), part in zip(formulation.segments(rows), parts, strict=True):
            assert (part >= box.lower - 1e-12).all()
            assert (part <= box.upper + 1e-12).all()
            totals[group] += part.sum()
        np.testing.assert_allclose(totals, sums, atol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_the_duality_gap_is_that_of_the_definition(kind):
    """An upper bound of the optimum at any point: no feasible point has a larger objective."""
    rng = np.random.default_rng(0)
    n = 30
    X = rng.standard_normal((n, 3))
    K = naive.kernel_matrix(X, X, "rbf", gamma=0.5)
    formulation = problem(kind, n, rng)
    dual = BoxDual(formulation)
    rows = slice(0, n)
    points = []
    for _ in range(50):
        alpha = BoxDual(formulation).filled(formulation.zeros(n), rng.standard_normal(n))
        if formulation.sums(rows) is None and formulation.n_faces == 1:
            amount = rng.uniform(0, 1, n)
            positive = formulation.sign > 0
            amount[~positive] *= amount[positive].sum() / amount[~positive].sum()
            alpha = np.where(positive, amount, -amount)
        elif kind == "eps-svr":
            up, down = rng.uniform(0, 1, n), rng.uniform(0, 1, n)
            alpha = np.stack([up, -down * up.sum() / down.sum()], axis=1).clip(-2, 2)
            alpha[:, 1] *= alpha[:, 0].sum() / -alpha[:, 1].sum()
        points.append(alpha)
    standing = [dual.optimality(a, K @ formulation.per_output(a)) for a in points]
    best = max(point.objective for point in standing)
    for point, alpha in zip(standing, points, strict=True):
        segments = formulation.segments(rows)
        parts = formulation.split(alpha, rows)
        by_hand = -0.5 * formulation.per_output(alpha) @ K @ formulation.per_output(alpha)
        for (box, ridge, _), part in zip(segments, parts, strict=True):
            by_hand += box.linear @ part - 0.5 * (ridge * part) @ part
        assert point.objective == pytest.approx(by_hand, abs=1e-9)
        assert point.objective + point.duality_gap >= best - 1e-9

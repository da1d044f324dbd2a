"""Many small problems in one call: each against slow obvious definitions."""

from typing import NamedTuple

import naive
import numpy as np
import pytest

from bigsvm.core import small_pairs, smo


def classes(sizes, *, seed=0, d=3, spread=1.0):
    """Kernel values among rows of classes, class by class, and where each begins and ends."""
    rng = np.random.default_rng(seed)
    label = np.repeat(np.arange(len(sizes)), sizes)
    X = spread * rng.standard_normal((len(sizes), d))[label] + rng.standard_normal((len(label), d))
    edges = np.cumsum([0, *sizes])
    squares = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    return np.exp(-0.3 * squares), edges


def all_pairs(edges):
    k = len(edges) - 1
    return np.array(
        [
            [edges[a], edges[a + 1], edges[b], edges[b + 1]]
            for a in range(k)
            for b in range(a + 1, k)
        ]
    )


class Found(NamedTuple):
    alpha: np.ndarray
    found: np.ndarray
    steps: np.ndarray
    reached: np.ndarray


def solve(gram, bound, spans, **given):
    """All classes are one group."""
    return solve_between((gram, gram, gram), (bound, bound), spans, **given)


def solve_between(grams, bounds, spans, *, nu=None, tol=1e-3, max_steps=10**9):
    most = int((spans[:, 1] - spans[:, 0] + spans[:, 3] - spans[:, 2]).max())
    shapes = (3, most), (most,), (small_pairs.FOUND,)
    box, alpha, found = (np.zeros((len(spans), *shape)) for shape in shapes)
    steps, reached = np.zeros(len(spans), np.int64), np.zeros(len(spans), np.bool_)
    # Whatever memory holds must not matter.
    memory = np.full(smo.values_of(most), np.nan, np.float32)
    if nu is None:
        small_pairs.begin(bounds, spans, box)
    else:
        small_pairs.begin_nu(bounds, spans, nu, box, alpha)
    groups = 1 if nu is None else 2
    smo.run_each(grams, spans, box, groups, 0.5 * tol, max_steps, memory, alpha, steps, reached)
    gradient = np.full_like(alpha, np.nan)
    small_pairs.renew(grams, spans, box, alpha, gradient, reached)
    small_pairs.polish(grams, spans, box, groups, tol, alpha, gradient, reached)
    small_pairs.certify(spans, box, groups, tol, alpha, gradient, found, reached)
    return Found(alpha, found, steps, reached)


def problem(gram, bound, span):
    rows = np.concatenate([np.arange(*span[:2]), np.arange(*span[2:])])
    sign = np.where(np.arange(len(rows)) < span[1] - span[0], -1.0, 1.0)
    ends = sign * bound[rows]
    return gram[np.ix_(rows, rows)], sign, np.minimum(ends, 0), np.maximum(ends, 0)


@pytest.mark.parametrize("C", [0.05, 1.0, 100.0])
@pytest.mark.parametrize("seed", range(3))
def test_each_pair_has_the_optimum_of_its_dense_problem(C, seed):
    """Of classes of one row and more, with weights of rows."""
    gram, edges = classes([1, 7, 20, 12, 1], seed=seed)
    bound = C * np.random.default_rng(seed).choice([0.5, 1.0, 3.0], edges[-1])
    spans = all_pairs(edges)
    alpha, found, steps, reached = solve(gram, bound, spans)
    assert reached.all()
    assert (steps > 0).all()
    for i, span in enumerate(spans):
        K, sign, lower, upper = problem(gram, bound, span)
        own = alpha[i, : len(K)]
        assert ((lower <= own) & (own <= upper)).all()
        assert own.sum() == pytest.approx(0, abs=1e-10 * C)
        assert not alpha[i, len(K) :].any()
        oracle = naive.solve(K, sign, lower, upper, np.zeros(len(K)), tol=1e-9)
        objective, gap, duality_gap, threshold, same = found[i]
        assert threshold == same
        assert objective == pytest.approx(naive.objective(K, sign, oracle), rel=1e-7)
        assert objective == pytest.approx(naive.objective(K, sign, own), rel=1e-12)
        assert naive.kkt_gap(K, sign, lower, upper, own) <= 1e-8
        assert gap == pytest.approx(naive.kkt_gap(K, sign, lower, upper, own), abs=1e-10)
        expected = naive.duality_gap(K, sign, np.abs(lower) + upper, own, threshold)
        assert duality_gap == pytest.approx(expected, abs=1e-8 * max(1.0, C))


@pytest.mark.parametrize("nu", [1e-6, 0.01, 0.2, 0.6, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_each_pair_of_nu_svc_has_the_optimum_of_its_dense_problem(nu, seed):
    """Also where a class has no more than what it must add up to."""
    gram, edges = classes([1, 7, 20, 12, 30], seed=seed)
    weight = np.random.default_rng(seed).choice([0.5, 1.0, 3.0], edges[-1])
    spans = all_pairs(edges)
    alpha, found, _, reached = solve(gram, weight, spans, nu=nu)
    assert reached.all()
    for i, span in enumerate(spans):
        K, sign, lower, upper = problem(gram, weight, span)
        own, zeros = alpha[i, : len(K)], np.zeros(len(K))
        assert ((lower <= own) & (own <= upper)).all()
        assert not alpha[i, len(K) :].any()
        negative, positive = sign < 0, sign > 0
        each = min(0.5 * nu * (upper - lower).sum(), -lower.sum(), upper.sum())
        assert own[negative].sum() == pytest.approx(-each, rel=1e-12)
        assert own[positive].sum() == pytest.approx(each, rel=1e-12)
        begun = lower * (each / -lower.sum()) + upper * (each / upper.sum())
        oracle = naive.solve(K, zeros, lower, upper, begun, group=sign, tol=1e-8)
        objective, gap, duality_gap, first, second = found[i]
        assert objective == pytest.approx(naive.objective(K, zeros, oracle), rel=1e-6, abs=1e-9)
        assert objective == pytest.approx(naive.objective(K, zeros, own), rel=1e-12)
        g = -K @ own
        gaps = [
            max(g[side & (own < upper)].max(initial=-np.inf)
                - g[side & (own > lower)].min(initial=np.inf), 0)
            for side in (negative, positive)
        ]  # fmt: skip
        assert max(gaps) <= 1e-8
        assert gap == pytest.approx(max(gaps), abs=1e-10)
        # Chang & Lin 2001, section 2.2, with rho and b of both thresholds.
        rho, b = 0.5 * (first - second), 0.5 * (first + second)
        errors = np.maximum(rho - sign * (K @ own + b), 0)
        primal = 0.5 * own @ K @ own - 2 * each * rho + (upper - lower) @ errors
        assert duality_gap == pytest.approx(primal - objective, abs=1e-9 * max(1.0, primal))
        assert duality_gap <= 1e-6 * max(1.0, primal)


@pytest.mark.parametrize("nu", [None, 0.3])
@pytest.mark.parametrize("sizes", [[3, 1, 9, 14], [70, 1, 130, 100]])
def test_pairs_across_two_groups_have_the_bits_of_one_group(sizes, nu):
    gram, edges = classes(sizes, seed=1)
    bound = 3.0 * np.random.default_rng(0).choice([0.5, 1.0], edges[-1])
    middle = edges[2]
    parts = gram[:middle, :middle], gram[:middle, middle:], gram[middle:, middle:]
    grams = tuple(np.ascontiguousarray(part) for part in parts)
    across = np.array([[edges[a], edges[a + 1], edges[b], edges[b + 1]]
                       for a in (0, 1) for b in (2, 3)])  # fmt: skip
    expected = solve(gram, bound, across, nu=nu)
    own = across - [0, 0, middle, middle]
    found = solve_between(grams, (bound[:middle], bound[middle:]), own, nu=nu)
    for one, other in zip(found, expected, strict=True):
        assert one.tobytes() == other.tobytes()


def test_pair_with_too_many_free_rows_to_polish_meets_the_tolerance():
    gram, edges = classes([300, 280], d=20)
    spans, C = all_pairs(edges), 10.0
    alpha, found, _, reached = solve(gram, np.full(edges[-1], C), spans)
    assert reached.all()
    assert np.count_nonzero((alpha != 0) & (np.abs(alpha) < C)) > small_pairs.MOST_POLISHED
    K, sign, lower, upper = problem(gram, np.full(edges[-1], C), spans[0])
    assert 1e-8 < found[0, small_pairs.GAP] <= 1e-3
    gap = naive.kkt_gap(K, sign, lower, upper, alpha[0])
    assert gap == pytest.approx(found[0, small_pairs.GAP], rel=1e-9)


# A slope by no curvature is infinite; NumPy says so where nothing is compiled.
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_equal_rows_and_a_kernel_of_one_value_are_solved():
    gram, edges = np.ones((12, 12)), np.array([0, 5, 12])
    alpha, found, _, reached = solve(gram, np.full(12, 2.0), all_pairs(edges))
    assert reached.all()
    assert found[0, 0] == pytest.approx(20.0)  # all of the smaller class at their bound
    np.testing.assert_allclose(alpha[0, :5], -2.0)


def test_bits_of_a_pair_do_not_depend_on_other_pairs():
    gram, edges = classes([9, 15, 4, 11])
    bound, spans = np.full(edges[-1], 5.0), all_pairs(edges)
    whole = solve(gram, bound, spans)
    for i, span in enumerate(spans):
        alone = solve(gram, bound, span[None])
        m = alone[0].shape[1]
        assert alone[0][0].tobytes() == whole[0][i, :m].tobytes()
        assert alone[1][0].tobytes() == whole[1][i].tobytes()


@pytest.mark.parametrize("nu", [None, 0.3])
def test_step_limit_is_spent_on_the_first_pairs(nu):
    gram, edges = classes([9, 15, 4, 11])
    bound, spans = np.full(edges[-1], 5.0), all_pairs(edges)
    whole = solve(gram, bound, spans, nu=nu)
    for done in range(len(spans) + 1):
        limit = int(whole.steps[:done].sum())
        alpha, _, steps, reached = solve(gram, bound, spans, nu=nu, max_steps=limit)
        assert reached[:done].all()
        assert (steps[:done] > 0).all()
        assert not reached[done:].any()
        assert (steps[done:] == -1).all()
        assert steps[:done].sum() == limit
        assert alpha[:done].tobytes() == whole[0][:done].tobytes()


def test_pair_that_does_not_reach_the_tolerance_is_reported_unsolved():
    gram, edges = classes([20, 20], spread=0.1)
    # So many that float64 holds no tolerance: bounds of 1e12.
    *_, reached = solve(gram, np.full(40, 1e12), all_pairs(edges), tol=1e-14)
    assert not reached.any()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # uncompiled, NumPy says so
def test_pair_with_infinite_kernel_values_is_reported_unsolved():
    gram, edges = classes([20, 20])
    gram[3] = gram[:, 3] = np.inf
    *_, reached = solve(gram, np.full(40, 10.0), all_pairs(edges))
    assert not reached.any()

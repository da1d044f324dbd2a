"""Many small problems in one call: each against slow obvious definitions."""

import naive
import numpy as np
import pytest

from bigsvm.core import small_pairs


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


def solve(gram, bound, spans, *, tol=1e-3, max_steps=10**9):
    most = int((spans[:, 1] - spans[:, 0] + spans[:, 3] - spans[:, 2]).max())
    alpha, found = np.zeros((len(spans), most)), np.zeros((len(spans), 4))
    steps, status = np.zeros((2, len(spans)), np.int64)
    small_pairs.solve(gram, bound, spans, tol, max_steps, alpha, found, steps, status)
    return alpha, found, steps, status


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
    alpha, found, steps, status = solve(gram, bound, spans)
    assert (status == small_pairs.SOLVED).all()
    assert (steps > 0).all()
    for i, span in enumerate(spans):
        K, sign, lower, upper = problem(gram, bound, span)
        own = alpha[i, : len(K)]
        assert ((lower <= own) & (own <= upper)).all()
        assert own.sum() == pytest.approx(0, abs=1e-10 * C)
        assert not alpha[i, len(K) :].any()
        oracle = naive.solve(K, sign, lower, upper, np.zeros(len(K)), tol=1e-9)
        objective, gap, duality_gap, threshold = found[i]
        assert objective == pytest.approx(naive.objective(K, sign, oracle), rel=1e-7)
        assert objective == pytest.approx(naive.objective(K, sign, own), rel=1e-12)
        assert naive.kkt_gap(K, sign, lower, upper, own) <= 1e-8
        assert gap == pytest.approx(naive.kkt_gap(K, sign, lower, upper, own), abs=1e-10)
        expected = naive.duality_gap(K, sign, np.abs(lower) + upper, own, threshold)
        assert duality_gap == pytest.approx(expected, abs=1e-8 * max(1.0, C))


def test_equal_rows_and_a_kernel_of_one_value_are_solved():
    gram, edges = np.ones((12, 12)), np.array([0, 5, 12])
    alpha, found, _, status = solve(gram, np.full(12, 2.0), all_pairs(edges))
    assert status == [small_pairs.SOLVED]
    assert found[0, 0] == pytest.approx(20.0)  # all of the smaller class at their bound
    np.testing.assert_allclose(alpha[0, :5], -2.0)


def test_a_pair_depends_on_itself_alone():
    gram, edges = classes([9, 15, 4, 11])
    bound, spans = np.full(edges[-1], 5.0), all_pairs(edges)
    whole = solve(gram, bound, spans)
    for i, span in enumerate(spans):
        alone = solve(gram, bound, span[None])
        m = alone[0].shape[1]
        assert alone[0][0].tobytes() == whole[0][i, :m].tobytes()
        assert alone[1][0].tobytes() == whole[1][i].tobytes()


def test_of_a_limit_of_steps_the_first_pairs_take_what_they_need():
    gram, edges = classes([9, 15, 4, 11])
    bound, spans = np.full(edges[-1], 5.0), all_pairs(edges)
    whole = solve(gram, bound, spans)
    for done in range(len(spans) + 1):
        limit = int(whole[2][:done].sum())
        alpha, _, steps, status = solve(gram, bound, spans, max_steps=limit)
        assert (status[:done] == small_pairs.SOLVED).all()
        assert (status[done:] == small_pairs.NOT_BEGUN).all()
        assert steps.sum() == limit
        assert alpha[:done].tobytes() == whole[0][:done].tobytes()


def test_what_takes_too_many_steps_is_left_to_others(monkeypatch):
    gram, edges = classes([20, 20], spread=0.1)
    # So many that float64 holds no tolerance: bounds of 1e9.
    *_, status = solve(gram, np.full(40, 1e12), all_pairs(edges), tol=1e-14)
    assert status == [small_pairs.UNSOLVED]

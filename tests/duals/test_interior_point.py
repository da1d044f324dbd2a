"""The interior-point method: the oracle's optimum, and that of problems no oracle gets to."""

import naive
import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from bigsvm.duals.interior_point import BoxVariables, interior_point, needed_bytes
from bigsvm.interruption import checked_by


def problem(m, r, seed, *, segments=1, groups=1, kinds=("box",), scale=1.0):
    """Rows of a factor, and variables of which a feasible point is known."""
    rng = np.random.default_rng(seed)
    L = scale * rng.normal(size=(m, r))
    shape = (segments, m)
    kind = rng.choice(kinds, size=shape)
    lower = np.where(rng.random(shape) < 0.5, -1.0, 0.0)
    upper = lower + rng.uniform(0.5, 2.0, size=shape)
    upper[kind == "fixed"] = lower[kind == "fixed"]
    upper[kind == "open"] = np.inf
    lower[kind == "lower open"] = -np.inf
    low, high = np.maximum(lower, -3.0), np.minimum(upper, 3.0)
    alpha = low + rng.random(shape) * np.maximum(high - low, 0.0)
    ridge = np.where(np.isfinite(upper) & np.isfinite(lower), 0.0, 0.3)
    of = None if groups == 0 else np.arange(segments) % groups
    return L, BoxVariables(rng.normal(size=shape), lower, upper, ridge, alpha, of)


def flat(L, v):
    """The same as a matrix, bounds and groups; a variable without a row where sums are free."""
    K = np.tile(L @ L.T, (len(v.linear), len(v.linear))) + np.diag(v.ridge.ravel())
    linear, lower, upper, alpha = (part.ravel() for part in (v.linear, v.lower, v.upper, v.alpha))
    group = np.zeros(alpha.size) if v.groups is None else np.repeat(v.groups, v.linear.shape[1])
    if v.groups is None:
        K, linear, alpha, group = (np.pad(a, (0, 1)) for a in (K, linear, alpha, group))
        lower, upper = np.append(lower, -np.inf), np.append(upper, np.inf)
    return K, linear, lower, upper, alpha, group


def gap_of(L, v, alpha):
    K, linear, lower, upper, _, group = flat(L, v._replace(alpha=alpha))
    if v.groups is None:
        alpha = np.append(alpha, 0.0)
    alpha, gaps = alpha.ravel(), [0.0]
    g = linear - K @ alpha
    for one in np.unique(group):
        own = group == one
        rises, falls = g[own & (alpha < upper)], g[own & (alpha > lower)]
        gaps.append(rises.max(initial=-np.inf) - falls.min(initial=np.inf))
    return max(gaps)


def assert_feasible(v, found):
    assert (found >= v.lower).all()
    assert (found <= v.upper).all()
    if v.groups is not None:
        for one in np.unique(v.groups):
            own = v.groups == one
            off = abs(found[own].sum() - v.alpha[own].sum())
            assert off <= 1e-9 * np.abs(found[own]).sum()


ALL_KINDS = ("box", "fixed", "open", "lower open")


@given(st.integers(2, 14), st.integers(1, 5), st.integers(0, 10**6), st.integers(1, 2),
       st.integers(0, 2), st.sampled_from([("box",), ("box", "fixed"), ALL_KINDS]))  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_agrees_with_the_oracle(m, r, seed, segments, groups, kinds):
    L, v = problem(m, r, seed, segments=segments, groups=groups, kinds=kinds)
    found = interior_point(L, v, tol=1e-6)
    if found is None:
        assert (v.upper <= v.lower).all()
        return
    assert_feasible(v, found)
    assert gap_of(L, v, found) <= 1e-4
    K, linear, lower, upper, alpha, group = flat(L, v)
    try:
        oracle = naive.solve(K, linear, lower, upper, alpha, group=group, tol=1e-9)
    except naive.NoOptimumError:
        reject()  # the gap is right, and nothing to compare with
    own = found.ravel() if v.groups is not None else np.append(found, oracle[-1])
    most = naive.objective(K, linear, oracle)
    assert naive.objective(K, linear, own) >= most - 1e-6 * max(1.0, abs(most))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3, 1e4])
@pytest.mark.parametrize(("segments", "groups"), [(1, 1), (2, 1), (2, 2), (1, 0)])
def test_features_may_be_of_any_size(scale, segments, groups):
    """What pair steps need a hundred million steps for."""
    L, v = problem(500, 6, 0, segments=segments, groups=groups, scale=scale)
    L *= np.array([1.0, 0.1, 1.0, 3.0, 0.01, 1.0])
    found = interior_point(L, v, tol=1e-3)
    assert_feasible(v, found)
    assert gap_of(L, v, found) <= 1e-3
    # What is at a bound is exactly there.
    free = (found > v.lower) & (found < v.upper)
    assert free.sum() <= 6 + segments


def test_variables_with_equal_bounds_stay():
    L, v = problem(12, 3, 0, kinds=("fixed",))
    assert interior_point(L, v, tol=1e-3) is None
    L, v = problem(12, 3, 0, kinds=("box", "fixed"))
    found = interior_point(L, v, tol=1e-3)
    fixed = v.upper == v.lower
    assert fixed.any()
    np.testing.assert_array_equal(found[fixed], v.alpha[fixed])


@pytest.mark.parametrize("width", [0, 3])
def test_a_kernel_matrix_of_zeros(width):
    _, v = problem(20, 3, 1)
    found = interior_point(np.zeros((20, width)), v, tol=1e-3)
    assert_feasible(v, found)
    assert gap_of(np.zeros((20, 1)), v, found) <= 1e-3


@pytest.mark.parametrize("scale", [1e6, 1e12, 1e19])
@pytest.mark.parametrize("seed", range(4))
def test_extreme_scales_give_a_feasible_point_or_none(scale, seed):
    L, v = problem(30, 3, seed, kinds=ALL_KINDS)
    found = interior_point(scale * L, v, tol=1e-3)
    if found is not None:
        assert_feasible(v, found)


def test_interrupt_ends_the_interior_point_method():
    def check():
        raise KeyboardInterrupt

    L, v = problem(30, 3, 2)
    with checked_by(check), pytest.raises(KeyboardInterrupt):
        interior_point(L, v, tol=1e-3)


def test_memory_needed_grows_with_the_factor():
    assert needed_bytes(1000, 2000, 10) < needed_bytes(1000, 2000, 900)
    assert needed_bytes(10**5, 10**5, 100) < 4 * 8 * 10**5 * 100

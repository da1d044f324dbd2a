"""Which pair is chosen: against brute force."""

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inner_functions import called
from smo_problems import (
    JIT,
    STEPS,
    all_rows,
    classifier,
    feasible,
    run,
    start,
)

from bigsvm.core import row_choice, smo


def clear_winner(values, best):
    """Whether no other value comes near, so that float32 must find the same one."""
    others = sorted(values)[-2:]
    return len(others) < 2 or others[0] < best * (1 - 1e-4)


@pytest.mark.parametrize("n", [4, 15, 30])
def test_extremes_are_mvp(n):
    for seed in range(40):
        problem = classifier(n, seed)
        alpha = feasible(problem, seed)
        state = start(problem, alpha)
        g = problem[1] - problem[0] @ alpha
        pair = naive.mvp_pair(problem[0], g, alpha, *problem[2:])
        assert smo.exact_extremes(state)[:2] == pair
        assert called(smo._extremes)(state) == pair


@pytest.mark.parametrize("n", [4, 15, 30])
def test_partner_is_second_order(n):
    for seed in range(40):
        problem = classifier(n, seed)
        alpha = feasible(problem, seed)
        K, linear, lower, upper = problem
        state = start(problem, alpha)
        g = linear - K @ alpha
        i, j = naive.second_order_pair(K, g, alpha, lower, upper)
        rows, slots, _ = all_rows(problem, state)
        assert called(smo._second_order_partner)(state, rows, slots[i], i) == j
        assert run(problem, state, smo.SECOND_ORDER, tol=0.0, max_steps=1)[0] == smo.STEPS_SPENT
        assert tuple(state.number[smo.LAST_PAIR]) == (i, j)


@pytest.mark.parametrize("n", [4, 15, 30])
def test_hmg_is_maximum_gain(n):
    for seed in range(80):
        problem = classifier(n, seed)
        alpha = feasible(problem, seed)
        K, linear, lower, upper = problem
        state = start(problem, alpha)
        rng = np.random.default_rng(seed)
        last = rng.choice(n, 2, replace=False)
        state.number[smo.LAST_PAIR] = last
        g = linear - K @ alpha
        at_bound = all(alpha[b] in (lower[b], upper[b]) for b in last)
        best = naive.gain_pair(K, g, alpha, lower, upper, last)
        mvp = naive.mvp_pair(K, g, alpha, lower, upper)
        if run(problem, state, smo.HMG, tol=0.0, max_steps=1)[0] == smo.CONVERGED:
            assert g[mvp[0]] <= g[mvp[1]]
            continue
        i, j = (int(v) for v in state.number[smo.LAST_PAIR])
        if at_bound or best is None:
            assert (i, j) == mvp
        else:
            found = naive.pair_gain(K, g, alpha, lower, upper, i, j)
            most = naive.pair_gain(K, g, alpha, lower, upper, *best)
            assert {i, j} & set(last.tolist())
            assert found >= (1 - 1e-5) * most
            gains = [
                naive.pair_gain(K, g, alpha, lower, upper, *pair)
                for b in last for t in range(n) for pair in {(b, t), (t, b)}
            ]  # fmt: skip
            if clear_winner(set(gains), most):
                assert (i, j) == best


def test_hmg_takes_mvp_within_the_margin_of_a_bound_only():
    problem = classifier(10)
    _, _, lower, upper = problem
    a, b = int(np.argmax(upper)), int(np.argmin(lower))
    for distance, by_gain in ((0.0, False), (0.9e-8, False), (1.1e-8, True)):
        alpha = np.zeros(10)
        alpha[a], alpha[b] = distance, -distance
        state = start(problem, alpha)
        state.number[smo.LAST_PAIR] = a, b
        assert called(smo._chooses_by_gain)(state, smo.HMG, a) == by_gain
        assert called(smo._chooses_by_gain)(state, smo.GAIN, a)


def test_hmg_asks_for_the_last_pair_first():
    problem = classifier(10)
    state = start(problem, feasible(problem, 1))
    lower, upper = state.double[smo.LOWER], state.double[smo.UPPER]
    free = np.flatnonzero((state.alpha > lower) & (state.alpha < upper))[:2]
    state.number[smo.LAST_PAIR] = free
    rows, slots, used = all_rows(problem, state)
    slots[:] = -1
    for v in free:
        asked = smo.run(state, rows, slots, used, smo.HMG, 1e-3, STEPS)
        assert asked == (smo.NEED_ROW, v)
        slots[v] = v
    assert state.number[smo.STEPS] == 0


def test_first_of_equals_is_taken():
    K = np.eye(6)
    problem = K, np.array([1.0, 1, 1, -1, -1, -1]), np.array([0.0] * 3 + [-1] * 3), np.ones(6)
    problem[3][3:] = 0
    state = start(problem)
    assert called(smo._extremes)(state) == (0, 3)
    rows, slots, _ = all_rows(problem, state)
    assert called(smo._second_order_partner)(state, rows, slots[0], 0) == 3
    for pair, chosen in (((1, 4), (1, 3)), ((4, 1), (4, 0))):
        state.number[smo.LAST_PAIR] = pair
        assert called(smo._gain_partner)(state, rows, slots) == chosen


def test_first_of_equals_is_taken_from_the_first_block():
    n = 3 * smo.BLOCK
    y = np.where(np.arange(n) % 2, -1.0, 1.0)
    problem = np.eye(n), y, np.minimum(y, 0), np.maximum(y, 0)
    state = start(problem)
    rows, slots, _ = all_rows(problem, state)
    assert called(smo._extremes)(state) == (0, 1)
    assert called(smo._second_order_partner)(state, rows, slots[n - 2], n - 2) == 1
    state.number[smo.LAST_PAIR] = n - 2, n - 1
    assert called(smo._gain_partner)(state, rows, slots) == (n - 2, 1)


@pytest.mark.parametrize("n", [1, 7, 8])
def test_padding_is_never_selected(n):
    """Also where every gradient of the problem is on the wrong side of the padding's 0."""
    for shift in (-5.0, 5.0):
        problem = classifier(max(n, 2), 3)
        problem = problem[0], problem[1] + shift, *problem[2:]
        state = start(problem)
        i, j = called(smo._extremes)(state)
        assert 0 <= i < len(problem[0])
        assert 0 <= j < len(problem[0])
        rows, slots, _ = all_rows(problem, state)
        assert called(smo._second_order_partner)(state, rows, slots[i], i) < len(problem[0])
        state.number[smo.LAST_PAIR] = i, j
        assert called(smo._gain_partner)(state, rows, slots)[1] < len(problem[0])


@pytest.mark.parametrize("seed", range(8))
def test_selection_over_many_blocks(seed):
    """The best of all may be in any block, the prefetched ones and the last, part padding."""
    n = smo.AHEAD + 5 * smo.BLOCK + 7 if JIT else 3 * smo.BLOCK + 7
    problem = classifier(n, seed)
    K, linear, lower, upper = problem
    alpha = feasible(problem, seed)
    state = start(problem, alpha)
    g = linear - K @ alpha
    assert called(smo._extremes)(state) == naive.mvp_pair(K, g, alpha, lower, upper)
    rows, slots, _ = all_rows(problem, state)
    i, j = naive.second_order_pair(K, g, alpha, lower, upper)
    assert called(smo._second_order_partner)(state, rows, slots[i], i) == j
    last = np.random.default_rng(seed).choice(n, 2, replace=False)
    state.number[smo.LAST_PAIR] = last
    best = naive.gain_pair(K, g, alpha, lower, upper, last)
    assert set(called(smo._gain_partner)(state, rows, slots)) == set(best)


def test_selection_without_a_candidate():
    K = np.eye(3)
    full = K, np.ones(3), np.zeros(3), np.ones(3)
    assert called(smo._extremes)(start(full, np.ones(3))) == (-1, 0)
    assert called(smo._extremes)(start(full, np.zeros(3))) == (0, -1)
    assert smo.exact_extremes(start(full, np.ones(3)))[0] == -1
    assert smo.exact_extremes(start(full, np.zeros(3)))[1] == -1


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n_segments", [1, 2])
@pytest.mark.parametrize("n_groups", [1, 2])
def test_violations_are_distances_from_the_middle_of_the_extremes(n_segments, n_groups, seed):
    """A row has the largest score of its variables; it is quiet if all of them are pushed."""
    n_groups = min(n_groups, n_segments)
    rng = np.random.default_rng(seed)
    alpha = rng.choice([0.0, 0.5, 1.0], (n_segments, 150))
    gradient = rng.normal(size=(n_segments, 150)) + 1e3
    lower, upper = np.zeros_like(alpha), np.ones_like(alpha)
    lower[:, 7], upper[:, 7] = alpha[:, 7], alpha[:, 7]  # may not move at all
    state = smo.make_state(alpha, gradient, lower, upper, np.ones(150), n_groups=n_groups)
    score, quiet = np.empty(150, np.float32), np.empty(150, np.bool_)
    smo.violations(state, score, quiet)
    rises, falls = alpha < upper, alpha > lower
    middle = np.empty((n_segments, 1))
    for part in np.split(np.arange(n_segments), n_groups):
        most, least = gradient[part][rises[part]].max(), gradient[part][falls[part]].min()
        middle[part] = 0.5 * (most + least)
    worst = np.maximum(
        np.where(rises, gradient - middle, -np.inf), np.where(falls, middle - gradient, -np.inf)
    )
    expected = worst.max(axis=0)
    moves = np.isfinite(expected)
    np.testing.assert_allclose(score[moves], expected[moves], atol=1e-6)
    assert np.flatnonzero(~moves).tolist() == [7]
    assert score[7] < row_choice.NEVER
    np.testing.assert_array_equal(quiet, (worst < 0).all(axis=0))


@given(n_segments=st.integers(1, 2), n_groups=st.integers(1, 2), seed=st.integers(0, 10**6))
@settings(max_examples=60, deadline=None)
def test_shrinkable_variables_follow_the_paper(n_segments, n_groups, seed):
    """Chang & Lin 2001, section 4, in each group and by its definition, variable by variable."""
    n_groups = min(n_groups, n_segments)
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 150))
    lower, upper = np.zeros((n_segments, n)), rng.choice([0.0, 1.0], (n_segments, n), p=[0.1, 0.9])
    alpha = upper * rng.choice([0.0, 0.5, 1.0], (n_segments, n))
    gradient = rng.choice(np.linspace(-1, 1, 9), (n_segments, n))
    state = smo.make_state(alpha, gradient, lower, upper, np.ones(n), n_groups=n_groups)
    found = np.empty(n, np.bool_)
    smo.settle(state, found)
    group = np.arange(n_segments)[:, None] * (n_groups > 1) + np.zeros(n, int)
    for row in range(n):
        expected = True
        for segment in range(n_segments):
            among = group == group[segment, row]
            up = gradient[among & (alpha < upper)]
            low = gradient[among & (alpha > lower)]
            a, g = alpha[segment, row], gradient[segment, row]
            rises, falls = a < upper[segment, row], a > lower[segment, row]
            if rises and falls:
                expected = False
            elif rises:
                expected &= g <= min(low, default=np.inf)
            elif falls:
                expected &= g >= max(up, default=-np.inf)
        assert found[row] == expected

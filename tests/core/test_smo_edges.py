"""Pair steps where it is hard: Theorem 7 of HMG's paper, boxes, duplicates, indefinite kernels."""

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inner_functions import called
from smo_problems import (
    JIT,
    RULES,
    STEPS,
    all_rows,
    assert_in_box,
    classifier,
    run,
    start,
)

from bigsvm.core import smo

# -- Glasmachers & Igel 2006, Theorem 7 ------------------------------------------------------------


def theorem_7():
    """Four points on which pure maximum gain sticks; Q has the labels in it, K does not."""
    root = np.sqrt(3.0)
    Q = np.array([[2, root, 1, root], [root, 4, root, 3], [1, root, 2, root], [root, 3, root, 4]])
    y, C = np.array([-1.0, -1, 1, 1]), 0.1
    assert np.allclose(np.linalg.eigvalsh(Q), [1, 1, 1, 9])
    K = Q * np.outer(y, y)
    return K, y, np.where(y > 0, 0, -C), np.where(y > 0, C, 0)


STUCK = np.array([-0.1, 0, 0.1, 0])  # the paper's (C, 0, C, 0) times the labels


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("stuck", [False, True])
def test_theorem_7_is_solved(rule, stuck):
    problem = theorem_7()
    state = start(problem, STUCK if stuck else None)
    if stuck:
        state.number[smo.LAST_PAIR] = 0, 2
    assert run(problem, state, RULES[rule], tol=1e-6)[0] == smo.CONVERGED
    optimum = naive.solve(*problem, np.zeros(4))
    # The paper's figure 5 has (C, C, C, C), but the parabola along {2, 4} ends before the corner.
    free = (1 - np.sqrt(3) / 5) / 7
    np.testing.assert_allclose(optimum, [-0.1, -free, 0.1, free], atol=1e-9)
    np.testing.assert_allclose(state.alpha[:4], optimum, atol=1e-7)
    assert naive.kkt_gap(*problem, state.alpha[:4]) <= 1e-6


def test_theorem_7_stops_pure_maximum_gain():
    problem = theorem_7()
    K, y, lower, upper = problem
    g = y - K @ STUCK
    np.testing.assert_allclose(y * g, [0.7, 1 - np.sqrt(3) / 5, 0.7, 1 - np.sqrt(3) / 5])
    assert naive.gain_pair(K, g, STUCK, lower, upper, (0, 2)) is None
    state = start(problem, STUCK)
    state.number[smo.LAST_PAIR] = 0, 2
    assert run(problem, state, smo.GAIN, tol=1e-6)[0] == smo.STALLED
    np.testing.assert_array_equal(state.alpha[:4], STUCK)
    assert naive.kkt_gap(*problem, STUCK) > 1.0


# -- edges ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("C", [1e-8, 1e8])
def test_extreme_boxes(rule, C):
    n = 20 if JIT else 6
    problem = classifier(n, 3, C, gamma=2.0)
    state = start(problem)
    status, _ = run(problem, state, RULES[rule], tol=1e-3)
    assert status == smo.CONVERGED
    assert_in_box(problem, state)
    best = naive.solve(*problem, np.zeros(n))
    most, found = (naive.objective(*problem[:2], a) for a in (best, state.alpha[:n]))
    assert found == pytest.approx(most, rel=1e-3)
    assert most > 0


@pytest.mark.parametrize("rule", RULES)
def test_huge_gradients(rule):
    problem = classifier(10, 3)
    problem = problem[0], problem[1] * 1e30, *problem[2:]
    state = start(problem)
    with np.errstate(over="ignore", invalid="ignore"):
        assert run(problem, state, RULES[rule])[0] == smo.CONVERGED
    alpha = state.alpha[:10]
    assert_in_box(problem, state)
    assert np.isfinite(state.gradient).all()
    # Every variable of the smaller class is at its bound: nothing else can balance it.
    smaller = problem[1] > 0 if (problem[1] > 0).sum() <= 5 else problem[1] < 0
    np.testing.assert_array_equal(np.abs(alpha[smaller]), 1.0)


@pytest.mark.parametrize("rule", RULES)
def test_variables_with_equal_bounds_stay(rule):
    problem = classifier(12, 6)
    K, linear, lower, upper = problem
    fixed = np.array([1, 4, 7])
    lower[fixed] = upper[fixed] = 0
    state = start(problem)
    assert run(problem, state, RULES[rule], tol=1e-5)[0] == smo.CONVERGED
    assert not state.alpha[fixed].any()
    best = naive.solve(K, linear, lower, upper, np.zeros(12))
    most = naive.objective(K, linear, best)
    assert naive.objective(K, linear, state.alpha[:12]) == pytest.approx(most, abs=1e-4)


@pytest.mark.parametrize("rule", [*RULES.values(), smo.GAIN])
@pytest.mark.parametrize("at", ["all at the upper bound", "all at the lower bound", "no width"])
def test_no_step_where_every_variable_is_at_its_bound(rule, at):
    K, linear, lower, upper = classifier(10, 1)
    linear = linear * 10
    if at == "no width":
        alpha = lower = upper = np.zeros(10)
    else:
        alpha = upper if "upper" in at else lower
    problem = K, linear, lower, upper
    state = start(problem, alpha)
    state.number[smo.LAST_PAIR] = 0, 1
    rows, slots, used = all_rows(problem, state)
    slots[:] = -1  # not even a row is asked for
    assert smo.run(state, rows, slots, used, rule, 1e-3, STEPS) == (smo.CONVERGED, -1)
    np.testing.assert_array_equal(state.alpha[:10], alpha)


@pytest.mark.parametrize("rule", RULES.values())
def test_one_class_from_zero_has_nothing_to_move(rule):
    K, _, _, _ = classifier(10, 1)
    problem = K, np.ones(10), np.zeros(10), np.ones(10)
    state = start(problem)
    assert run(problem, state, rule) == (smo.CONVERGED, -1)
    assert not state.alpha.any()


# A slope by no curvature is infinite; NumPy says so where nothing is compiled.
@pytest.mark.filterwarnings("ignore:divide by zero")
@pytest.mark.parametrize("rule", RULES.values())
def test_duplicates_have_no_curvature(rule):
    """Rows twice, and once with the other label: η is 0 between them."""
    K, y, _, _ = classifier(8, 2)
    twice = np.concatenate([np.arange(8), np.arange(8), [0]])
    K, y = K[np.ix_(twice, twice)], np.append(y[twice[:-1]], -y[0])
    problem = K, y, np.where(y > 0, 0.0, -1.0), np.where(y > 0, 1.0, 0.0)
    state = start(problem)
    with np.errstate(divide="ignore"):  # without JIT, NumPy warns of the division by η
        assert run(problem, state, rule, tol=1e-5)[0] == smo.CONVERGED
    assert_in_box(problem, state)
    most = naive.objective(K, y, naive.solve(*problem, np.zeros(17)))
    assert naive.objective(K, y, state.alpha[:17]) == pytest.approx(most, abs=1e-3)


@pytest.mark.parametrize("rule", RULES.values())
def test_an_indefinite_kernel_ends(rule):
    rng = np.random.default_rng(0)
    half = rng.normal(size=(10, 10)).astype(np.float32)
    K = (half + half.T).astype(float)
    _, y, lower, upper = classifier(10, 2)
    problem = K, y, lower, upper
    state = start(problem)
    assert run(problem, state, rule)[0] == smo.CONVERGED
    assert_in_box(problem, state)
    assert naive.kkt_gap(*problem, state.alpha[:10]) <= 1.1e-3


def stale(problem, alpha, i, t, gap):
    """A state whose float32 copies say t is below i although it is above by `gap`."""
    state = start(problem, alpha)
    state.gradient[t] = state.gradient[i] + gap
    state.single[smo.LOW, t] = state.single[smo.UP, i] - np.float32(1e-3)
    called(smo._reduce_block)(state.single, state.keys, t // smo.BLOCK)
    return state


def near_duplicates():
    """Variables 0 and 1 are nearly one row, with 1 at its upper bound; 2 and 3 balance them."""
    K = np.eye(4)
    K[0, 1] = K[1, 0] = np.float32(1 - 1e-7)
    linear = np.array([1.0, 1, -1, -1])
    return K, linear, np.array([0.0, 0, -1, -1]), np.array([1.0, 0.5, 0, 0])


@pytest.mark.parametrize("rule", [smo.SECOND_ORDER, smo.HMG])
def test_candidates_that_the_float64_gradient_denies_do_not_leave_the_box(rule):
    """Copies drift between rebuilds: a tiny η then makes a wrong sign the best candidate."""
    problem = near_duplicates()
    alpha = np.array([0.25, 0.5, -0.5, -0.25])
    state = stale(problem, alpha, 0, 1, 1e-9)
    state.number[smo.LAST_PAIR] = 0, 3
    rows, slots, used = all_rows(problem, state)
    if rule == smo.SECOND_ORDER:
        assert called(smo._second_order_partner)(state, rows, slots[0], 0) == 1
    else:
        assert called(smo._gain_partner)(state, rows, slots) != (1, 0)
    assert not called(smo._may_step)(state.double, state.scalar[smo.JUMP], 0, 1)
    status, _ = smo.run(state, rows, slots, used, rule, 1e-3, STEPS)
    assert status == smo.CONVERGED
    assert_in_box(problem, state)


def test_stalled_where_float64_cannot_move():
    """α is so large that the step is less than its last bit."""
    K = np.eye(2) * 1e3
    problem = K, np.array([1.0, -1.0]), np.array([0.0, -1e20]), np.array([1e20, 0.0])
    alpha = np.array([1e18, -1e18])
    state = smo.make_state(alpha, np.array([1.0, -1.0]), *problem[2:], np.diag(K).copy())
    for rule in RULES.values():
        assert run(problem, state, rule)[0] == smo.STALLED
        np.testing.assert_array_equal(state.alpha[:2], alpha)


def test_tiny_problems():
    for n in (1, 2):
        problem = tuple(part[..., :n] if part.ndim == 1 else part[:n, :n] for part in classifier(3))
        for rule in RULES.values():
            state = start(problem)
            assert run(problem, state, rule)[0] == smo.CONVERGED
            assert_in_box(problem, state)
            assert state.alpha.any() == (n == 2)


@given(
    st.integers(2, 25), st.integers(0, 10_000), st.floats(1e-3, 1e3), st.sampled_from(list(RULES))
)
@settings(max_examples=60 if JIT else 5)
def test_converged_state_is_within_the_tolerance(n, seed, C, rule):
    n = n if JIT else min(n, 8)
    problem = classifier(n, seed, C, gamma=1.0)
    state = start(problem)
    assert run(problem, state, RULES[rule])[0] == smo.CONVERGED
    assert_in_box(problem, state)
    assert abs(state.alpha.sum()) < 1e-9
    assert naive.kkt_gap(*problem, state.alpha[:n]) <= 1e-3 + 1e-6 * max(C, 1)

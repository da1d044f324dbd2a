"""Variables with a kink at 0: the two variables of a row of a regression, laid out as one."""

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inner_functions import called
from smo_problems import JIT, RULES, all_rows, run

from bigsvm.core import smo
from bigsvm.duals.dual import Point
from bigsvm.duals.formulations import EpsilonSVR
from bigsvm.duals.pair_steps import PairSteps, is_last_pair

C, EPSILON = 2.0, 0.1


def regression(n, seed):
    """K (n, n), target, lower and upper of a regression with one variable a row."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    squared = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    K = np.exp(-0.5 * squared).astype(np.float32).astype(np.float64)
    target = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=n)
    return K, target - EPSILON, np.full(n, -C), np.full(n, C)


def in_two(K, linear, lower, upper):
    """The same with two variables a row."""
    zeros = np.zeros(len(K))
    return (
        np.tile(K, (2, 2)), np.concatenate([linear, linear + 2 * EPSILON]),
        np.concatenate([zeros, lower]), np.concatenate([upper, zeros]),
    )  # fmt: skip


def split(beta):
    return np.concatenate([np.maximum(beta, 0), np.minimum(beta, 0)])


def start(problem, beta):
    K, linear, lower, upper = problem
    gradient = linear - K @ beta
    return smo.make_state(beta, gradient, lower, upper, np.diag(K).copy(), jump=2 * EPSILON)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(4))
def test_reaches_the_optimum_of_two_variables_a_row(rule, seed):
    n = 20 if JIT else 8
    problem = regression(n, seed)
    beta = np.zeros(n)
    if seed % 2:  # begins at a bound and between bound and kink
        beta[:4] = C, -C, 0.5 * C, -0.5 * C
    state = start(problem, beta)
    assert run(problem, state, RULES[rule], tol=1e-5)[0] == smo.CONVERGED
    found = state.alpha[:n]
    assert abs(found.sum()) < 1e-9
    two = in_two(*problem)
    assert naive.kkt_gap(*two, split(found)) <= 2e-5
    best = naive.solve(*two, np.zeros(2 * n))
    assert naive.objective(two[0], two[1], split(found)) == pytest.approx(
        naive.objective(two[0], two[1], best), abs=1e-4
    )
    assert (found == 0).any()
    assert (found != 0).sum() > 2


def test_a_step_ends_at_the_kink_and_the_next_one_goes_on():
    K, lower, upper = np.eye(2), np.full(2, -C), np.full(2, C)
    problem = K, np.array([3.0, -3.0]), lower, upper
    state = start(problem, np.array([-0.5, 0.5]))
    rows, slots, _ = all_rows(problem, state)
    mu = called(smo._move_pair)(state, 0, 1, rows[0, 1])
    assert mu == 0.5
    assert state.alpha[:2].tolist() == [0.0, 0.0]
    called(smo._move_gradient)(state, rows, slots, 0, 1, mu, 0.0)
    # At 0 the first rises with 3.5 - 0.5, and the second falls with -3.5 + 0.5 and the jump.
    assert smo.exact_extremes(state) == (0, 1, pytest.approx(6.0 - 2 * EPSILON))
    assert called(smo._move_pair)(state, 0, 1, rows[0, 1]) == C


@given(seed=st.integers(0, 10**6))
@settings(max_examples=60 if JIT else 10, deadline=None)
def test_extremes_violations_and_settled_rows_are_those_of_two_variables(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 150))
    upper = rng.choice([0.0, 1.0], n, p=[0.1, 0.9])
    beta = upper * rng.choice([-1.0, -0.5, 0.0, 0.5, 1.0], n)
    gradient, jump = rng.choice(np.linspace(-1, 1, 9), n), 0.25
    zeros = np.zeros(n)
    one = smo.make_state(beta, gradient, -upper, upper, np.ones(n), jump=jump)
    two = smo.make_state(
        split(beta).reshape(2, n), np.stack([gradient, gradient + jump]),
        np.stack([zeros, -upper]), np.stack([upper, zeros]), np.ones(n),
    )  # fmt: skip
    assert smo.exact_extremes(one)[2] == smo.exact_extremes(two)[2]
    found = []
    for state in (one, two):
        score, quiet, settled = (
            np.empty(n, np.float32),
            np.empty(n, np.bool_),
            np.empty(n, np.bool_),
        )
        smo.violations(state, score, quiet)
        smo.settle(state, settled)
        found.append((score, quiet, settled))
    moves = found[1][0] > -smo.NOBODY
    np.testing.assert_array_equal(found[0][0][moves], found[1][0][moves])
    assert (found[0][0][~moves] < -smo.NOBODY).all()
    for own, expected in zip(found[0][1:], found[1][1:], strict=True):
        np.testing.assert_array_equal(own, expected)


def test_steps_of_a_regression_continue_from_their_point_with_the_same_bits():
    K, linear, _, _ = regression(20, 3)
    formulation, rows = EpsilonSVR(target=linear + EPSILON, C=C, epsilon=EPSILON), np.arange(20)
    both = np.zeros((20, 2))
    both[:2] = [0.5, -0.25], [0.25, -0.5]  # of both variables of a row only the sum counts
    gradient = (linear - K @ both.sum(axis=1))[:, None] + [0.0, 2 * EPSILON]
    steps = PairSteps(formulation, smo.MVP, Point(both, gradient), rows, diagonal=np.diag(K).copy())
    np.testing.assert_array_equal(steps.point.alpha[:2], [[0.25, 0.0], [0.0, -0.25]])
    kernel_rows, slots, used = all_rows((K,), steps.state)
    steps.advance(kernel_rows, slots, used, tol=1e-5, max_steps=7)
    point = steps.point
    assert not point.alpha.all(axis=1).any()
    again = PairSteps(formulation, smo.MVP, point, rows, diagonal=np.diag(K).copy())
    for row in (smo.ALPHA, smo.GRADIENT):
        np.testing.assert_array_equal(again.state.double[row], steps.state.double[row])
    for row in (smo.UP, smo.LOW):
        np.testing.assert_array_equal(again.state.single[row], steps.state.single[row])
    last = again.state.number[smo.LAST_PAIR]
    np.testing.assert_array_equal(last, steps.state.number[smo.LAST_PAIR])
    assert is_last_pair(formulation, point.last, 20)
    assert not is_last_pair(formulation, point.last + smo.BLOCK, 20)

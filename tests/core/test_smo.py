"""Pair steps: against brute force, an oracle's optimum, and the bits of an undisturbed run."""

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import config
from scipy.optimize import LinearConstraint, minimize

from bigsvm.core import smo

RULES = {"mvp": smo.MVP, "second_order": smo.SECOND_ORDER, "hmg": smo.HMG}
JIT = not config.DISABLE_JIT
STEPS = 1 << 15


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Without the compiler a block of 1024 takes 30 ms a step. Short ones are several, too."""
    if not JIT:
        monkeypatch.setattr(smo, "BLOCK", 8)
        monkeypatch.setattr(smo, "REFRESH", 32)


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


# -- selection against brute force --------------------------------------------------------------


def clear_winner(values, best):
    """Whether no other value comes near, so that float32 must find the same one."""
    others = sorted(values)[-2:]
    return len(others) < 2 or others[0] < best * (1 - 1e-4)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("n", [4, 15, 30])
def test_extremes_are_mvp(n, seed):
    problem = classifier(n, seed)
    alpha = feasible(problem, seed)
    state = start(problem, alpha)
    g = problem[1] - problem[0] @ alpha
    pair = naive.mvp_pair(problem[0], g, alpha, *problem[2:])
    assert smo.exact_extremes(state) == pair
    assert smo._extremes(state) == pair


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("n", [4, 15, 30])
def test_partner_is_second_order(n, seed):
    problem = classifier(n, seed)
    alpha = feasible(problem, seed)
    K, linear, lower, upper = problem
    state = start(problem, alpha)
    g = linear - K @ alpha
    i, j = naive.second_order_pair(K, g, alpha, lower, upper)
    rows, slots, _ = all_rows(problem, state)
    partner, _ = smo._best_partner(state, rows[slots[i]], i, smo.SECOND_ORDER)
    assert partner == j


@pytest.mark.parametrize("seed", range(80))
@pytest.mark.parametrize("n", [4, 15, 30])
def test_hmg_is_maximum_gain(n, seed):
    problem = classifier(n, seed)
    alpha = feasible(problem, seed)
    K, linear, lower, upper = problem
    state = start(problem, alpha)
    rng = np.random.default_rng(seed)
    last = rng.choice(n, 2, replace=False)
    state.pair[:] = last
    rows, slots, _ = all_rows(problem, state)
    i, j, missing = smo._select_by_gain(state, rows, slots, smo.HMG)
    assert missing == -1
    g = linear - K @ alpha
    at_bound = all(alpha[b] in (lower[b], upper[b]) for b in last)
    best = naive.gain_pair(K, g, alpha, lower, upper, last)
    if at_bound or best is None:
        assert i == -1
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
        state.pair[:] = a, b
        rows, slots, _ = all_rows(problem, state)
        assert (smo._select_by_gain(state, rows, slots, smo.HMG)[0] >= 0) == by_gain


def test_hmg_asks_for_the_last_pair_first():
    problem = classifier(10)
    state = start(problem, feasible(problem, 1))
    free = np.flatnonzero((state.alpha > state.lower) & (state.alpha < state.upper))[:2]
    state.pair[:] = free
    rows, slots, _ = all_rows(problem, state)
    slots[:] = -1
    assert smo._select_by_gain(state, rows, slots, smo.HMG)[2] == free[0]
    slots[free[0]] = 0
    assert smo._select_by_gain(state, rows, slots, smo.HMG)[2] == free[1]


def test_first_of_equals_is_taken():
    K = np.eye(6)
    problem = K, np.array([1.0, 1, 1, -1, -1, -1]), np.array([0.0] * 3 + [-1] * 3), np.ones(6)
    problem[3][3:] = 0
    state = start(problem)
    assert smo._extremes(state) == (0, 3)
    rows, _, _ = all_rows(problem, state)
    assert smo._best_partner(state, rows[0], 0, smo.SECOND_ORDER)[0] == 3


@pytest.mark.parametrize("n", [1, 7, 8])
def test_padding_is_never_selected(n):
    """Also where every gradient of the problem is on the wrong side of the padding's 0."""
    for shift in (-5.0, 5.0):
        problem = classifier(max(n, 2), 3)
        problem = problem[0], problem[1] + shift, *problem[2:]
        state = start(problem)
        i, j = smo._extremes(state)
        assert 0 <= i < len(problem[0])
        assert 0 <= j < len(problem[0])
        rows, _, _ = all_rows(problem, state)
        for rule in (smo.SECOND_ORDER, smo.HMG):
            assert smo._best_partner(state, rows[i], i, rule)[0] < len(problem[0])


def test_nobody_to_select():
    K = np.eye(3)
    full = K, np.ones(3), np.zeros(3), np.ones(3)
    assert smo._extremes(start(full, np.ones(3))) == (-1, 0)
    assert smo._extremes(start(full, np.zeros(3))) == (0, -1)
    assert smo.exact_extremes(start(full, np.ones(3)))[0] == -1
    assert smo.exact_extremes(start(full, np.zeros(3)))[1] == -1


# -- the optimum ----------------------------------------------------------------------------------


def test_the_oracle_agrees_with_scipy():
    problem = classifier(8, 5)
    K, linear, lower, upper = problem
    alpha = naive.solve(K, linear, lower, upper, np.zeros(8))
    peer = minimize(
        lambda a: -naive.objective(K, linear, a),
        np.zeros(8),
        jac=lambda a: K @ a - linear,
        method="SLSQP",
        bounds=list(zip(lower, upper, strict=True)),
        constraints=LinearConstraint(np.ones((1, 8)), 0, 0),
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert naive.objective(K, linear, alpha) == pytest.approx(-peer.fun, abs=1e-8)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("C", [0.1, 1.0, 30.0])
def test_reaches_the_optimum(rule, seed, C):
    n = 20 if JIT else 8
    problem = classifier(n, seed, C)
    K, linear, lower, upper = problem
    state = start(problem, feasible(problem, seed) if seed % 2 else None)
    total = state.alpha.sum()
    status, row = run(problem, state, RULES[rule], tol=1e-5)
    assert (status, row) == (smo.CONVERGED, -1)
    assert_in_box(problem, state)
    alpha = state.alpha[:n]
    assert alpha.sum() == pytest.approx(total, abs=1e-9)
    assert naive.kkt_gap(K, linear, lower, upper, alpha) <= 1.1e-5 + 1e-6 * C
    best = naive.solve(K, linear, lower, upper, np.zeros(n))
    most = naive.objective(K, linear, best)
    found = naive.objective(K, linear, alpha)
    assert 0 <= most - found + 1e-9 <= n * C * 2e-5 + 1e-8


@pytest.mark.parametrize("rule", RULES)
def test_each_step_stays_in_the_box_and_gains(rule, monkeypatch):
    """Steps one by one: the core stops at each where it refreshes at each."""
    if JIT:
        pytest.skip("the compiled core keeps its REFRESH; see the test of slices below")
    monkeypatch.setattr(smo, "REFRESH", 1)
    problem = classifier(10, 2, C=2.0)
    state = start(problem)
    before = 0.0
    for step in range(1, 200):
        status, _ = run(problem, state, RULES[rule], max_steps=1)
        assert_in_box(problem, state)
        assert abs(state.alpha.sum()) < 1e-9
        objective = naive.objective(problem[0], problem[1], state.alpha[:10])
        assert objective >= before
        before = objective
        if status == smo.CONVERGED:
            assert step > 3
            return
        assert status == smo.STEPS_SPENT
    raise AssertionError("no convergence")


@pytest.mark.parametrize("seed", range(20))
def test_a_step_is_the_clipped_optimum(seed):
    problem = classifier(12, seed)
    K, linear, lower, upper = problem
    alpha = feasible(problem, seed)
    state = start(problem, alpha)
    i, j = naive.mvp_pair(K, linear - K @ alpha, alpha, lower, upper)
    rows, _, _ = all_rows(problem, state)
    assert smo._step(state, i, j, rows[i], rows[j])
    gain = naive.objective(K, linear, state.alpha[:12]) - naive.objective(K, linear, alpha)
    expected = naive.pair_gain(K, linear - K @ alpha, alpha, lower, upper, i, j)
    assert gain == pytest.approx(expected, rel=1e-6)
    assert_in_box(problem, state)
    np.testing.assert_allclose(
        state.gradient[:12], linear - K @ state.alpha[:12], rtol=0, atol=1e-6
    )
    clipped = [v for v in (i, j) if state.alpha[v] in (lower[v], upper[v])]
    mu = state.alpha[i] - alpha[i]
    assert bool(clipped) == (mu >= min(upper[i] - alpha[i], alpha[j] - lower[j]))
    # What the step kept up to date is what a rebuild gives.
    kept = [state.up.copy(), state.low.copy(), state.up_best.copy(), state.low_best.copy()]
    centre = state.centre.copy()
    smo.refresh(state)
    shift = np.float32(centre[0] - state.centre[0])
    for copy, fresh in zip(kept[:2], (state.up, state.low), strict=True):
        assert ((np.abs(copy) > smo.NOBODY) == (np.abs(fresh) > smo.NOBODY)).all()
        real = np.abs(copy) < smo.NOBODY
        np.testing.assert_allclose(copy[real] + shift, fresh[real], rtol=0, atol=3e-6)


@pytest.mark.parametrize("rule", RULES)
def test_slices_gain_and_change_nothing(rule):
    n = 300 if JIT else 20
    problem = classifier(n, 1, C=100.0)
    whole, sliced = start(problem), start(problem)
    assert run(problem, whole, RULES[rule])[0] == smo.CONVERGED
    objectives = [0.0]
    refresh = smo.REFRESH
    while True:
        steps = sliced.counters[0]
        status, _ = run(problem, sliced, RULES[rule], max_steps=refresh)
        assert_in_box(problem, sliced)
        assert abs(sliced.alpha.sum()) < 1e-9
        objectives.append(naive.objective(problem[0], problem[1], sliced.alpha[:n]))
        if status == smo.CONVERGED:
            break
        assert status == smo.STEPS_SPENT
        assert sliced.counters[0] == steps + refresh
    assert len(objectives) > 2
    assert (np.diff(objectives) >= 0).all()
    np.testing.assert_array_equal(sliced.alpha, whole.alpha)
    np.testing.assert_array_equal(sliced.gradient, whole.gradient)
    assert sliced.counters[0] == whole.counters[0]


@pytest.mark.parametrize("rule", RULES)
def test_resumed_from_what_a_checkpoint_holds_it_gives_the_same_bits(rule):
    n = 300 if JIT else 20
    problem = classifier(n, 1, C=100.0)
    whole = start(problem)
    run(problem, whole, RULES[rule])
    state = start(problem)
    slices = 0
    while run(problem, state, RULES[rule], max_steps=smo.REFRESH)[0] == smo.STEPS_SPENT:
        slices += 1
        fresh = smo.make_state(
            state.alpha[:n].copy(), state.gradient[:n].copy(), *problem[2:], np.diag(problem[0])
        )
        fresh.pair[:] = state.pair
        fresh.counters[0] = state.counters[0]
        state = fresh
    assert slices > 1
    np.testing.assert_array_equal(state.alpha, whole.alpha)
    np.testing.assert_array_equal(state.gradient, whole.gradient)
    assert state.counters[0] == whole.counters[0]


# -- rows that are not in memory ------------------------------------------------------------------


def run_with_few_rows(problem, rule, n_slots, batch, *, state=None, tol=1e-4):
    """Run on a cache of `n_slots` that gives up the least recently used; list what is asked for.

    Every row asked for comes with up to `batch` − 1 others, which may displace what is left.
    """
    K = problem[0]
    n = len(K)
    state = start(problem) if state is None else state
    rows = np.full((n_slots, len(state.alpha)), np.nan, np.float32)
    rows[:, n:] = 0
    slots = np.full(len(state.alpha), -1, np.int32)
    used = np.zeros(n_slots, np.int64)
    owner = np.full(n_slots, -1)
    rng = np.random.default_rng(0)
    asked = []
    while True:
        status, row = smo.run(state, rows, slots, used, rule, tol, STEPS)
        if status != smo.NEED_ROW:
            return status, state, asked
        assert slots[row] == -1
        asked.append((int(state.counters[0]), row))
        assert len(asked) < 200 * n, "asks for rows for ever"
        wanted = [row, *rng.permutation(np.flatnonzero(slots[:n] < 0))[: batch - 1]]
        for v in dict.fromkeys(int(w) for w in wanted):
            slot = int(np.argmin(used))
            if owner[slot] >= 0:
                slots[owner[slot]] = -1
            owner[slot], slots[v], used[slot] = v, slot, state.counters[1]
            rows[slot, :n] = K[v]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("n_slots", "batch"), [
    (4, 1), (5, 1), (8, 2), (12, 3), (30, 7), (60, 15), (60, 60),
])  # fmt: skip
def test_rows_that_come_and_go_do_not_change_the_bits(rule, n_slots, batch):
    n = 60 if JIT else 12
    n_slots, batch = min(n_slots, n), min(batch, n)
    problem = classifier(n, 4, C=10.0)
    whole = start(problem)
    assert run(problem, whole, RULES[rule], tol=1e-4)[0] == smo.CONVERGED
    status, state, asked = run_with_few_rows(problem, RULES[rule], n_slots, batch)
    assert status == smo.CONVERGED
    np.testing.assert_array_equal(state.alpha, whole.alpha)
    np.testing.assert_array_equal(state.gradient, whole.gradient)
    assert state.counters[0] == whole.counters[0]
    assert asked


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("n_slots", [4, 9])
def test_resumed_with_no_row_in_memory_it_gives_the_same_bits(rule, n_slots):
    """HMG then needs both rows of the last pair before it can choose."""
    n = 150 if JIT else 20
    problem = classifier(n, 1, C=100.0)
    whole, state = start(problem), start(problem)
    run(problem, whole, RULES[rule])
    assert run(problem, state, RULES[rule], max_steps=smo.REFRESH)[0] == smo.STEPS_SPENT
    status, state, _ = run_with_few_rows(
        problem, RULES[rule], n_slots, n_slots // 4, state=state, tol=1e-3
    )
    assert status == smo.CONVERGED
    np.testing.assert_array_equal(state.alpha, whole.alpha)


@given(st.integers(0, 10_000), st.integers(4, 12), st.sampled_from(list(RULES)))
@settings(max_examples=60 if JIT else 5)
def test_no_cache_is_so_small_that_a_run_asks_for_ever(seed, n_slots, rule):
    problem = classifier(12, seed, C=5.0)
    whole = start(problem)
    run(problem, whole, RULES[rule], tol=1e-4)
    status, state, _ = run_with_few_rows(problem, RULES[rule], n_slots, max(n_slots // 4, 1))
    assert status == smo.CONVERGED
    np.testing.assert_array_equal(state.alpha, whole.alpha)


def test_hmg_misses_at_most_one_row_a_step_it_chooses():
    problem = classifier(60 if JIT else 12, 4, C=10.0)
    _, state, asked = run_with_few_rows(problem, smo.HMG, 6, 1)
    by_step = np.bincount([step for step, _ in asked])
    # Two where mvp chooses: the first step, corners of the box, and the exact end.
    assert by_step.max() <= 2
    assert by_step[0] == 2
    assert (by_step <= 1).mean() > 0.7
    assert state.counters[0] > len(by_step) / 2


def test_a_row_asked_for_stays_until_it_is_used():
    """Rows of one batch have one stamp; the second row a step needs must not evict the first."""
    problem = classifier(12, 0)
    state = start(problem)
    rows, slots, used = all_rows(problem, state)
    slots[:] = -1
    status, first = smo.run(state, rows, slots, used, smo.SECOND_ORDER, 1e-3, STEPS)
    assert status == smo.NEED_ROW
    slots[first] = first
    others = [v for v in range(12) if v != first]
    status, second = smo.run(state, rows, slots, used, smo.SECOND_ORDER, 1e-3, STEPS)
    assert status == smo.NEED_ROW
    assert second != first
    assert used[first] > used[others].max()


# -- hmg.txt, Theorem 7 ---------------------------------------------------------------------------


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
        state.pair[:] = 0, 2
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
    state.pair[:] = 0, 2
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
def test_boxes_of_no_width(rule):
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
def test_nothing_may_move(rule, at):
    K, linear, lower, upper = classifier(10, 1)
    linear = linear * 10
    if at == "no width":
        alpha = lower = upper = np.zeros(10)
    else:
        alpha = upper if "upper" in at else lower
    problem = K, linear, lower, upper
    state = start(problem, alpha)
    state.pair[:] = 0, 1
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


@pytest.mark.parametrize("rule", RULES.values())
def test_duplicates_have_no_curvature(rule):
    """Rows twice, and once with the other label: η is 0 between them."""
    K, y, _, _ = classifier(8, 2)
    twice = np.concatenate([np.arange(8), np.arange(8), [0]])
    K, y = K[np.ix_(twice, twice)], np.append(y[twice[:-1]], -y[0])
    problem = K, y, np.where(y > 0, 0.0, -1.0), np.where(y > 0, 1.0, 0.0)
    state = start(problem)
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
    state.low[t] = state.up[i] - np.float32(1e-3)
    smo._reduce_block(state, t // smo.BLOCK)
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
    state.pair[:] = 0, 3
    rows, slots, used = all_rows(problem, state)
    if rule == smo.SECOND_ORDER:
        assert smo._best_partner(state, rows[0], 0, rule)[0] == 1
    else:
        assert smo._select_by_gain(state, rows, slots, rule)[:2] != (1, 0)
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
def test_converged_is_converged(n, seed, C, rule):
    n = n if JIT else min(n, 8)
    problem = classifier(n, seed, C, gamma=1.0)
    state = start(problem)
    assert run(problem, state, RULES[rule])[0] == smo.CONVERGED
    assert_in_box(problem, state)
    assert abs(state.alpha.sum()) < 1e-9
    assert naive.kkt_gap(*problem, state.alpha[:n]) <= 1e-3 + 1e-6 * max(C, 1)

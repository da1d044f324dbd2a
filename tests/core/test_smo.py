"""Pair steps: an oracle's optimum, and the bits of an undisturbed run."""

import os
import subprocess
import sys
from pathlib import Path

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inner_functions import called
from scipy.optimize import LinearConstraint, minimize
from smo_problems import (
    JIT,
    RULES,
    STEPS,
    all_rows,
    assert_in_box,
    classifier,
    feasible,
    run,
    start,
)

from bigsvm.core import smo

SEVERAL_SLICES = {"mvp": 100.0, "second_order": 1000.0, "hmg": 100.0}
"""C of problems that take more than REFRESH steps, and fewer than STEPS."""

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
    rows, slots, _ = all_rows(problem, state)
    mu = called(smo._move_pair)(state, i, j, rows[i, j])
    assert mu > 0
    called(smo._move_gradient)(state, rows, slots, i, j, mu, 0.0)
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
    copies, centre = state.single[[smo.UP, smo.LOW]], state.scalar[smo.CENTRE]
    smo.refresh(state)
    shift = np.float32(centre - state.scalar[smo.CENTRE])
    for copy, fresh in zip(copies, state.single[[smo.UP, smo.LOW]], strict=True):
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
        steps = sliced.number[smo.STEPS]
        status, _ = run(problem, sliced, RULES[rule], max_steps=refresh)
        assert_in_box(problem, sliced)
        assert abs(sliced.alpha.sum()) < 1e-9
        objectives.append(naive.objective(problem[0], problem[1], sliced.alpha[:n]))
        if status == smo.CONVERGED:
            break
        assert status == smo.STEPS_SPENT
        assert sliced.number[smo.STEPS] == steps + refresh
    assert len(objectives) > 2
    assert (np.diff(objectives) >= 0).all()
    np.testing.assert_array_equal(sliced.alpha, whole.alpha)
    np.testing.assert_array_equal(sliced.gradient, whole.gradient)
    assert sliced.number[smo.STEPS] == whole.number[smo.STEPS]


@pytest.mark.parametrize("rule", RULES)
def test_resumed_from_what_a_checkpoint_holds_it_gives_the_same_bits(rule):
    n = 300 if JIT else 20
    problem = classifier(n, 1, C=SEVERAL_SLICES[rule])
    whole = start(problem)
    run(problem, whole, RULES[rule])
    state = start(problem)
    slices = 0
    while run(problem, state, RULES[rule], max_steps=smo.REFRESH)[0] == smo.STEPS_SPENT:
        slices += 1
        fresh = smo.make_state(
            state.alpha[:n].copy(), state.gradient[:n].copy(), *problem[2:], np.diag(problem[0])
        )
        fresh.number[smo.LAST_PAIR] = state.number[smo.LAST_PAIR]
        fresh.number[smo.STEPS] = state.number[smo.STEPS]
        state = fresh
    assert slices > 1
    np.testing.assert_array_equal(state.alpha, whole.alpha)
    np.testing.assert_array_equal(state.gradient, whole.gradient)
    assert state.number[smo.STEPS] == whole.number[smo.STEPS]


BITS = """
import hashlib
from smo_problems import RULES, classifier, run, start
problem = classifier(1500, 1, C=100.0)
for rule in RULES.values():
    state = start(problem)
    run(problem, state, rule)
    print(hashlib.sha256(state.alpha.tobytes() + state.gradient.tobytes()).hexdigest())
"""


@pytest.mark.slow
@pytest.mark.skipif(not JIT, reason="the interpreter has no vectors")
def test_bits_do_not_depend_on_the_instructions_of_the_processor(tmp_path):
    """Whole runs for this processor, and for the least of its family: no AVX, no FMA."""
    path = os.pathsep.join(p for p in [str(Path(__file__).parent), *sys.path] if p)
    environment = {**os.environ, "PYTHONPATH": path}
    least = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "NUMBA_CACHE_DIR": tmp_path}
    printed = [
        subprocess.run(
            [sys.executable, "-c", BITS], env=given, capture_output=True, text=True, check=True
        ).stdout
        for given in (environment, {**environment, **least})
    ]
    assert len(printed[0].split()) == len(RULES)
    assert printed[0] == printed[1]


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
        asked.append((int(state.number[smo.STEPS]), row))
        assert len(asked) < 200 * n, "asks for rows for ever"
        wanted = [row, *rng.permutation(np.flatnonzero(slots[:n] < 0))[: batch - 1]]
        for v in dict.fromkeys(int(w) for w in wanted):
            slot = int(np.argmin(used))
            if owner[slot] >= 0:
                slots[owner[slot]] = -1
            owner[slot], slots[v], used[slot] = v, slot, state.number[smo.STAMP]
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
    assert state.number[smo.STEPS] == whole.number[smo.STEPS]
    assert asked


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("n_slots", [4, 9])
def test_resumed_with_no_row_in_memory_it_gives_the_same_bits(rule, n_slots):
    """HMG then needs both rows of the last pair before it can choose."""
    n = 150 if JIT else 20
    problem = classifier(n, 1, C=SEVERAL_SLICES[rule])
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
    assert state.number[smo.STEPS] > len(by_step) / 2


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


# -- conjugate steps ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_a_step_along_the_last_direction_is_the_clipped_optimum_along_it(seed):
    n = 12
    K, _, lower, upper = problem = classifier(n, seed, C=6.0)
    rng, ridge, alpha = np.random.default_rng(seed), 0.1 * (seed % 2), 0.5 * (lower + upper)
    K = K + ridge * np.eye(n)
    linear = K @ alpha + rng.normal(size=n)  # the optimum is near, and some variables meet a bound
    state = smo.make_state(
        alpha, linear - K @ alpha, lower, upper, np.diag(problem[0]).copy(), ridge=ridge
    )
    rows, slots, _ = all_rows(problem, state)
    n_along = 0
    for _ in range(12):
        before, g = state.alpha[:n].copy(), linear - K @ state.alpha[:n]
        i, j = rng.permutation(n)[:2]
        if not called(smo._may_step)(state.double, state.scalar[smo.JUMP], i, j):
            continue
        last = np.zeros(n)
        for k in range(1, 1 + state.number[smo.MOVING]):
            last[state.number[smo.MOVING + k]] = state.scalar[smo.WEIGHTS + k]
        mu, turn = called(smo._move_along)(state, i, j, rows[i, j])
        pair = np.eye(n)[i] - np.eye(n)[j]
        if mu == 0.0:
            np.testing.assert_array_equal(state.alpha[:n], before)
            mu, turn = called(smo._move_pair)(state, i, j, rows[i, j]), 0.0
            way = pair
        else:
            n_along += 1
            way = pair + turn * last
            assert way @ K @ last == pytest.approx(0, abs=1e-5 * (last @ K @ last))
            gain = naive.objective(K, linear, state.alpha[:n]) - naive.objective(K, linear, before)
            assert gain >= naive.pair_gain(K, g, before, lower, upper, i, j) - 1e-6
        np.testing.assert_allclose(state.alpha[:n], before + mu * way, rtol=0, atol=1e-9)
        best = (g @ way) / (way @ K @ way)
        rounding = 1e-4 * (1 + abs(best))
        assert mu <= best + rounding
        if mu < best - rounding:
            assert np.isin(state.alpha[:n], [lower, upper]).any()
        called(smo._move_gradient)(state, rows, slots, i, j, mu, turn)
        assert_in_box(problem, state)
        np.testing.assert_allclose(
            state.gradient[:n], linear - K @ state.alpha[:n], rtol=0, atol=1e-4
        )
        rises, falls = state.alpha[:n] < upper, state.alpha[:n] > lower
        np.testing.assert_array_equal(state.single[smo.UP, :n] > -smo.NOBODY, rises)
        np.testing.assert_array_equal(state.single[smo.LOW, :n] < smo.NOBODY, falls)
        moving = state.number[smo.MOVING + 1 :][: state.number[smo.MOVING]]
        assert (rises & falls)[moving].all()
    assert n_along

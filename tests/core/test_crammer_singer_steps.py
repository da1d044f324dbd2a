"""Row steps: against definitions, in every way that a run can be divided."""

import math

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inner_functions import called

from bigsvm.core import crammer_singer, smo

METHODS = {"exact": crammer_singer.EXACT, "fixed_point": crammer_singer.FIXED_POINT}
ORDERS = {
    "auto": (crammer_singer.AUTO, crammer_singer.NO_COOLING),
    "worst": (crammer_singer.WORST, crammer_singer.NO_COOLING),
    "active": (crammer_singer.ACTIVE, crammer_singer.NO_COOLING),
    "cooled": (crammer_singer.ACTIVE, crammer_singer.LOG),
    "sequential": (crammer_singer.SEQUENTIAL, crammer_singer.NO_COOLING),
    "random": (crammer_singer.RANDOM, crammer_singer.NO_COOLING),
}


@pytest.fixture(params=METHODS)
def method(request):
    return METHODS[request.param]


def test_statuses_are_those_of_pair_steps():
    for name in ("CONVERGED", "STEPS_SPENT", "NEED_ROW", "STALLED", "PADDING"):
        assert getattr(crammer_singer, name) == getattr(smo, name)


# -- the sub-problem of one row ------------------------------------------------------------------

values = st.floats(-1e3, 1e3).map(lambda x: 0.0 if abs(x) < 1e-6 else x)


def theta_of(d, bound, method):
    return crammer_singer.threshold(np.array(d), np.empty(len(d)), bound, METHODS[method])


@given(st.lists(values, min_size=2, max_size=40), st.floats(1e-3, 1e3), values)
@settings(max_examples=150, deadline=None)
def test_both_find_theta_where_the_sums_agree(d, bound, shift):
    """θ itself may be near 0, or all D may be far from it."""
    d = [x + shift for x in d]
    exact, contracted = (theta_of(d, bound, method) for method in METHODS)
    scale = max(bound, *map(abs, d))
    assert contracted == pytest.approx(exact, abs=1e-10 * scale)
    for theta in (exact, contracted):
        left = math.fsum(min(theta, x) for x in d)
        assert left == pytest.approx(math.fsum(d) - bound, abs=1e-10 * scale * len(d))


@pytest.mark.parametrize("name", METHODS)
def test_theta_near_zero_and_equal_values(name):
    assert theta_of([1.0, -3.0, -5.0], 1.0, name) == pytest.approx(0.0, abs=1e-12)
    assert theta_of([2.0] * 7, 7.0, name) == pytest.approx(1.0, abs=1e-12)
    assert theta_of([4.0, 4.0], 0.0, name) == pytest.approx(4.0, abs=1e-12)
    assert math.isnan(theta_of([4.0, math.nan], 1.0, name))


def one_row(k, seed, *, bound=2.0, diagonal=0.7):
    """A row of gradients and a feasible alpha, and its state."""
    rng = np.random.default_rng(seed)
    label = int(rng.integers(k))
    eta = rng.dirichlet(np.full(k, 0.3)) * bound
    eta[eta < 0.05] = 0
    eta *= bound / eta.sum()
    alpha = bound * np.eye(k)[label] - eta
    alpha[eta == 0] = bound * np.eye(k)[label][eta == 0]
    gradient = rng.normal(size=k) * 10 ** rng.uniform(-2, 2)
    state = crammer_singer.make_state(
        alpha[None], gradient[None], np.array([bound]), np.array([label]), np.array([diagonal])
    )
    return alpha, gradient, label, state


def run(
    state, K, *, slots=None, method=crammer_singer.EXACT, order="auto", tol=1e-9, steps=10**6
):  # fmt: skip
    m = K.shape[1]
    rows = np.zeros((len(K), smo.row_width(m)), np.float32)
    rows[:, :m] = K
    slots = np.arange(m, dtype=np.int32) if slots is None else slots
    used = np.zeros(len(K), np.int64)
    return crammer_singer.run(
        state,
        rows,
        slots,
        used,
        method=method,
        tol=tol,
        max_steps=steps,
        order=ORDERS[order][0],
        cooling=ORDERS[order][1],
    )


@given(st.integers(2, 30), st.integers(0, 10**6))
@settings(max_examples=100, deadline=None)
def test_both_solve_a_row_to_the_same_feasible_optimum(k, seed):
    found = []
    for method in METHODS.values():
        alpha, gradient, label, state = one_row(k, seed)
        run(state, np.array([[0.7]]), method=method, steps=1)
        after = state.alpha[:, 0].copy()
        upper = 2.0 * np.eye(k)[label]
        assert (after <= upper).all()
        assert after.sum() == pytest.approx(0, abs=1e-13)
        # The gradient moves with alpha, and nobody with room is above the lowest.
        moved = gradient - np.float64(np.float32(0.7)) * (after - alpha)
        np.testing.assert_allclose(state.gradient[:, 0], moved, atol=1e-12)
        psi = naive.multiclass_violations(moved[None], [label], [2.0], after[None])[0]
        # float32's 0.7 is not the diagonal's.
        assert psi <= 1e-6 * max(1, np.abs(after - alpha).max())
        found.append(after)
    np.testing.assert_allclose(*found, atol=1e-10 * 2.0)
    np.testing.assert_array_equal(found[0] == 0, found[1] == 0)


def test_a_row_at_a_corner_is_there_exactly(method):
    """All of the row's loss in one class, or none of it: its variables are ±C or 0."""
    for gradient, expected in [
        ([1.0, 0.9, 5.0, 0.0], [0, 3, 0, -3]),
        ([0.1, 9.0, 9.0, 9.0], [-3, 3, 0, 0]),
        ([0.4, 0.0, 0.3, 0.2], [0, 0, 0, 0]),
    ]:
        alpha = np.array([[-1.0, 1.4, -0.3, -0.1]])
        state = crammer_singer.make_state(
            alpha, np.array([gradient]) - 0.1 * alpha, np.array([3.0]), np.array([1]),
            np.array([0.1]),
        )  # fmt: skip
        run(state, np.array([[0.1]]), method=method, tol=1e-12, steps=1)
        assert state.alpha[:, 0].tolist() == expected
        assert bool(state.active[0]) == any(expected)


def test_a_row_without_curvature_takes_up_all_it_can(method):
    """A zero vector of a linear kernel is wrong whatever the functions are."""
    state = crammer_singer.make_state(
        np.zeros((1, 4)), np.eye(4)[:1], np.array([2.0]), np.array([0]), np.zeros(1)
    )
    status, _ = run(state, np.array([[0.0]]), method=method)
    assert status == crammer_singer.CONVERGED
    assert state.alpha[0, 0] == 2.0
    np.testing.assert_allclose(state.alpha[1:, 0], -2 / 3, rtol=1e-3)


# -- a working set -------------------------------------------------------------------------------


def problem(n=30, k=4, seed=0, C=3.0):
    """K (n, n) float32 values, labels, C_i, and a gradient of alpha = 0."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(k, 3))
    label = rng.integers(k, size=n)
    X = centres[label] + 0.8 * rng.normal(size=(n, 3))
    K = np.exp(-0.5 * ((X[:, None] - X[None]) ** 2).sum(axis=2)).astype(np.float32)
    bounds = C * rng.choice([0.5, 1.0, 2.0], n)
    bounds[3] = 0.0
    return K.astype(np.float64), label, bounds, np.eye(k)[label]


def begin(K, label, bounds, gradient, alpha=None, *, order="auto"):
    alpha = np.zeros_like(gradient) if alpha is None else alpha
    return crammer_singer.make_state(
        alpha, gradient, bounds, label, np.diag(K).copy(), order=ORDERS[order][0]
    )


@pytest.mark.parametrize("order", ORDERS)
def test_reaches_the_optimum_of_the_definition(method, order):
    K, label, bounds, gradient = problem()
    state = begin(K, label, bounds, gradient, order=order)
    status, row = run(state, K, method=method, order=order, tol=1e-7)
    assert (status, row) == (crammer_singer.CONVERGED, -1)
    alpha = state.alpha[:, :30].T
    np.testing.assert_allclose(state.gradient[:, :30].T, gradient - K @ alpha, atol=1e-10)
    psi = naive.multiclass_violations(gradient - K @ alpha, label, bounds, alpha)
    assert psi.max() <= 1.001e-7
    np.testing.assert_allclose(state.violation[:30], psi, atol=1e-9)
    assert not state.violation[30:].any()
    assert not alpha[3].any()
    np.testing.assert_array_equal(state.active[:30], alpha.any(axis=1))
    oracle = naive.crammer_singer(K, label, 4, bounds)
    expected, _ = naive.multiclass_objectives(K, label, 4, bounds, oracle)
    found, _ = naive.multiclass_objectives(K, label, 4, bounds, alpha)
    assert found == pytest.approx(expected, rel=1e-7)


def test_each_step_raises_the_objective(method):
    K, label, bounds, gradient = problem()
    state, before = begin(K, label, bounds, gradient), 0.0
    for _ in range(60):
        run(state, K, method=method, steps=1)
        after, _ = naive.multiclass_objectives(K, label, 4, bounds, state.alpha[:, :30].T)
        assert after > before - 1e-12
        before = after
    assert state.counters[0] == 60


def steps_by_definition(K, label, bounds, order, *, tol, steps):
    """Rows solved for, one after the other, and alpha after them: sections 4 to 6 of the paper.

    Rows in turn that are passed over, as their ψ is 0, are listed too.
    """
    n, k = len(label), label.max() + 1
    alpha, chosen, halvings = np.zeros((n, k)), [], 0
    while len(chosen) < steps:
        gradient = np.eye(k)[label] - K @ alpha
        psi = naive.multiclass_violations(gradient, label, bounds, alpha)
        if order == "sequential":
            p = len(chosen) % n
        else:
            level = tol
            if order == "cooled":
                level = max(tol, 0.999 * 0.5**halvings / math.log10(len(chosen) + 10))
            has = alpha.any(axis=1)
            if order == "worst":
                kind = psi
            elif (psi[has] > level).any():
                kind = np.where(has, psi, -1)
            else:
                kind = np.where(has, -1, psi)
            p = int(kind.argmax())
            if kind[p] <= level:
                if level == tol:
                    break
                halvings += 1
                continue
        chosen.append(p)
        if psi[p] > 0:
            upper = bounds[p] * np.eye(k)[label[p]]
            d = upper - alpha[p] - gradient[p] / K[p, p]
            theta = crammer_singer.threshold(d, np.empty(k), bounds[p], crammer_singer.EXACT)
            alpha[p] = upper + np.minimum(theta, d) - d
            alpha[p, np.abs(alpha[p]) < 1e-12] = 0.0
    return chosen, alpha


@pytest.mark.parametrize("order", ["worst", "active", "cooled", "sequential"])
def test_rows_are_solved_for_in_the_order_of_the_paper(order):
    """The same rows, each of which moves alpha, and the same alpha."""
    K, label, bounds, gradient = problem()
    expected, alpha = steps_by_definition(K, label, bounds, order, tol=1e-3, steps=150)
    state, chosen = begin(K, label, bounds, gradient, order=order), []
    for _ in expected:
        before = state.alpha.copy()
        assert run(state, K, order=order, tol=1e-3, steps=1)[0] == crammer_singer.STEPS_SPENT
        moved = np.flatnonzero((state.alpha != before).any(axis=0))
        chosen.append(int(moved[0]) if len(moved) else -1)
    visited = [(c, e) for c, e in zip(chosen, expected, strict=True) if c >= 0]
    assert all(c == e for c, e in visited)
    assert len(visited) == len(expected) or order == "sequential"
    assert len(visited) > 60
    np.testing.assert_allclose(state.alpha[:, :30].T, alpha, atol=1e-9)


def test_rows_without_a_coefficient_get_their_share_of_steps():
    """In the package's own order; the worst of them."""
    K, label, bounds, gradient = problem()
    state = begin(K, label, bounds, gradient)
    others = 0
    for _ in range(80):
        active, psi, before = state.active.copy(), state.violation.copy(), state.alpha.copy()
        run(state, K, steps=1)
        [p] = np.flatnonzero((state.alpha != before).any(axis=0))
        kind = active if active[p] else ~active
        assert psi[p] == psi[kind].max()
        if not active[p]:
            others += 1
            assert not (psi[active] > crammer_singer.SHARE * psi[p]).any()
    assert 10 < others < 40


def test_rows_that_wait_for_all_others_take_far_more_steps_unless_the_level_is_cooled():
    """All with a coefficient are solved to the tolerance for each row that gets one."""
    K, label, bounds, gradient = problem(40)
    steps = {}
    for order in ("auto", "worst", "active", "cooled"):
        state = begin(K, label, bounds, gradient, order=order)
        run(state, K, order=order, tol=1e-3)
        steps[order] = state.counters[0]
    assert steps["cooled"] < 2 * min(steps["auto"], steps["worst"])
    assert steps["active"] > 4 * steps["cooled"]


def test_the_level_falls_by_its_formula_and_is_halved():
    state = begin(*problem())
    for t in (0, 1, 5, 90):
        for halved in (0, 1, 4):
            state.counters[0], state.counters[2] = t, halved
            expected = max(1e-9, 0.999 * 0.5**halved / math.log10(t + 10))
            assert crammer_singer.level(state, crammer_singer.LOG, 1e-9) == pytest.approx(expected)
            assert crammer_singer.level(state, crammer_singer.NO_COOLING, 1e-9) == 1e-9


def test_sequential_order_is_stalled_after_a_pass_without_a_step():
    gradient = np.array([[1.0, 0.0], [1e-9, 0.0]])
    alpha = np.array([[0.0, 0.0], [-1e12, 1e12]])
    state = crammer_singer.make_state(
        alpha, gradient, np.array([1.0, 1e13]), np.array([0, 1]), np.ones(2),
        order=crammer_singer.SEQUENTIAL,
    )  # fmt: skip
    assert run(state, np.eye(2), order="sequential", tol=1e-12)[0] == crammer_singer.STALLED
    assert state.counters.tolist()[::2] == [4, 1]  # the first row has moved, and then no row


@pytest.mark.parametrize("order", ORDERS)
def test_a_missing_row_is_named_and_nothing_has_changed(method, order):
    K, label, bounds, gradient = problem()
    whole = begin(K, label, bounds, gradient, order=order)
    run(whole, K, method=method, order=order, tol=1e-3)
    state = begin(K, label, bounds, gradient, order=order)
    slots = np.full(30, -1, np.int32)
    missed = []
    while True:
        before = state.alpha.copy(), state.gradient.copy(), state.counters[0]
        status, row = run(state, K, slots=slots, method=method, order=order, tol=1e-3, steps=1)
        if status == crammer_singer.CONVERGED:
            break
        if status == crammer_singer.NEED_ROW:
            missed.append(row)
            np.testing.assert_array_equal(state.alpha, before[0])
            np.testing.assert_array_equal(state.gradient, before[1])
            assert state.counters[0] == before[2]
            slots[:] = -1  # only the last row asked for is there
            slots[row] = row
    assert len(missed) > 30
    np.testing.assert_array_equal(state.alpha, whole.alpha)
    np.testing.assert_array_equal(state.gradient, whole.gradient)


def test_used_rows_are_stamped():
    K, label, bounds, gradient = problem()
    state = begin(K, label, bounds, gradient)
    rows = np.zeros((30, smo.row_width(30)), np.float32)
    rows[:, :30] = K
    used = np.zeros(30, np.int64)
    crammer_singer.run(
        state, rows, np.arange(30, dtype=np.int32), used,
        method=crammer_singer.EXACT, tol=1e-9, max_steps=5,
    )  # fmt: skip
    assert sorted(used[used > 0]) == sorted(set(used[used > 0]))
    assert used.max() == state.counters[1]


@pytest.mark.parametrize("size", [1, 63, 64, 65])
def test_any_number_of_rows(size):
    K, label, bounds, gradient = problem(size + 3)
    part = np.arange(3, size + 3) if size < 60 else np.arange(size)
    K = K[np.ix_(part, part)]
    state = begin(K, label[part], bounds[part], gradient[part])
    run(state, K, tol=1e-5)
    alpha = state.alpha[:, :size].T
    psi = naive.multiclass_violations(gradient[part] - K @ alpha, label[part], bounds[part], alpha)
    assert psi.max() <= 1.01e-5
    assert not state.alpha[:, size:].any()


@pytest.mark.parametrize("order", ORDERS)
def test_a_state_made_again_goes_on_to_the_same_bits(method, order):
    K, label, bounds, gradient = problem()
    whole = begin(K, label, bounds, gradient, order=order)
    run(whole, K, method=method, order=order, tol=1e-3)
    state = begin(K, label, bounds, gradient, order=order)
    while (
        run(state, K, method=method, order=order, tol=1e-3, steps=7)[0]
        == crammer_singer.STEPS_SPENT
    ):
        again = begin(
            K, label, bounds, state.gradient[:, :30].T.copy(), state.alpha[:, :30].T.copy(),
            order=order,
        )  # fmt: skip
        again.counters[:] = state.counters
        state = again
    np.testing.assert_array_equal(state.alpha, whole.alpha)
    assert state.counters[0] == whole.counters[0]


def test_row_that_float64_cannot_move_is_stalled():
    """A violation that float64 does not resolve beside the coefficients."""
    gradient = np.array([[1e-9, 0.0]])
    alpha = np.array([[-1e12, 1e12]])
    state = crammer_singer.make_state(
        alpha, gradient, np.array([1e13]), np.array([1]), np.array([1.0])
    )
    assert run(state, np.array([[1.0]]), tol=1e-12)[0] == crammer_singer.STALLED


def test_violations_are_named_where_they_are_above_the_level():
    K, label, bounds, gradient = problem()
    state = begin(K, label, bounds, gradient, order="cooled")
    run(state, K, order="cooled", tol=1e-3, steps=40)
    score, quiet = np.empty(30, np.float32), np.empty(30, np.bool_)
    crammer_singer.violations(state, crammer_singer.NO_COOLING, score, quiet)
    alpha = state.alpha[:, :30].T
    psi = naive.multiclass_violations(gradient - K @ alpha, label, bounds, alpha)
    found = np.where(np.isneginf(score), 0, score)
    np.testing.assert_allclose(found, psi, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(quiet, state.violation[:30] == 0)
    height = crammer_singer.level(state, crammer_singer.LOG, 0.0)
    assert psi.max() > height > psi.min()
    crammer_singer.violations(state, crammer_singer.LOG, score, quiet)
    np.testing.assert_array_equal(np.isfinite(score), psi > height)


# -- rows that are watched -----------------------------------------------------------------------


@pytest.fixture
def large(monkeypatch):
    """A problem of more than two blocks, of which one is watched."""
    monkeypatch.setattr(crammer_singer, "WATCHED", crammer_singer.BLOCK)
    return problem(3 * crammer_singer.BLOCK + 10)


def naive_violations(state, K, label, bounds, gradient):
    """Of all rows, and their gradient, from alpha alone."""
    alpha = state.alpha[:, : len(K)].T
    g = gradient - K @ alpha
    return naive.multiclass_violations(g, label, bounds, alpha), g


def assert_is_current(state, K, label, bounds, gradient):
    """The gradient and ψ of all rows are those of alpha, whichever rows were watched."""
    psi, g = naive_violations(state, K, label, bounds, gradient)
    np.testing.assert_allclose(state.gradient[:, : len(K)].T, g, atol=1e-10)
    np.testing.assert_allclose(state.violation[: len(K)], psi, rtol=1e-6, atol=1e-9)


def test_watching_some_rows_leads_to_the_optimum_of_watching_all(large, method, monkeypatch):
    K, label, bounds, gradient = large
    found = []
    for most in (crammer_singer.BLOCK, len(K)):
        monkeypatch.setattr(crammer_singer, "WATCHED", most)
        state = begin(K, label, bounds, gradient)
        assert len(state.some.places) == (most if most < len(K) else 0)
        status, row = run(state, K, method=method, tol=1e-5)
        assert (status, row) == (crammer_singer.CONVERGED, -1)
        assert_is_current(state, K, label, bounds, gradient)
        assert naive_violations(state, K, label, bounds, gradient)[0].max() <= 1.001e-5
        alpha = state.alpha[:, : len(K)].T
        np.testing.assert_array_equal(state.active[: len(K)], alpha.any(axis=1))
        found.append(naive.multiclass_objectives(K, label, 4, bounds, alpha)[0])
    assert found[0] == pytest.approx(found[1], rel=1e-6)


@pytest.mark.parametrize("order", sorted(ORDERS.keys() - {"auto"}))
def test_the_paper_s_orders_look_at_all_rows(large, order):
    assert not len(begin(*large, order=order).some.places)
    assert len(begin(*large).some.places)


def test_rows_of_largest_violation_are_watched(large):
    K, label, bounds, gradient = large
    state, size = begin(K, label, bounds, gradient), len(K)
    run(state, K, tol=1e-3, steps=2 * size)
    assert called(crammer_singer._choose)(state) == state.violation.max()
    places = state.some.places
    assert (np.diff(places) > 0).all()
    left = np.setdiff1d(np.arange(size), places)
    assert len(left) == size - crammer_singer.BLOCK
    psi, g = naive_violations(state, K, label, bounds, gradient)
    assert psi[places].min() >= psi[left].max() / (1 + 2.0**-4) > 0
    np.testing.assert_allclose(state.some.gradient.T, g[places], atol=1e-10)
    np.testing.assert_allclose(state.some.violation, psi[places], rtol=1e-6)
    np.testing.assert_array_equal(state.some.active, state.active[places])


def test_equal_violations_are_watched_in_order(large):
    state = begin(*large)  # of alpha = 0 all have 1, but one without weight
    assert called(crammer_singer._choose)(state) == 1.0
    expected = np.setdiff1d(np.arange(crammer_singer.BLOCK + 1), [3])
    np.testing.assert_array_equal(state.some.places, expected)


@pytest.mark.parametrize("steps", [1, 47])
def test_step_limit_among_watched_rows_leaves_a_current_state(large, method, steps):
    K, label, bounds, gradient = large
    state = begin(K, label, bounds, gradient)
    assert run(state, K, method=method, tol=1e-9, steps=steps) == (crammer_singer.STEPS_SPENT, -1)
    assert state.counters[0] == steps
    assert_is_current(state, K, label, bounds, gradient)


def test_slices_among_watched_rows_raise_the_objective_and_can_be_begun_again(large, method):
    """To the same bits, as what is watched follows from where a slice begins."""
    K, label, bounds, gradient = large
    size, before = len(K), 0.0
    whole, state = (begin(K, label, bounds, gradient) for _ in range(2))
    status = crammer_singer.STEPS_SPENT
    while status == crammer_singer.STEPS_SPENT:
        status, _ = run(whole, K, method=method, tol=1e-3, steps=40)
        assert run(state, K, method=method, tol=1e-3, steps=40)[0] == status
        np.testing.assert_array_equal(state.alpha, whole.alpha)
        np.testing.assert_array_equal(state.gradient, whole.gradient)
        after, _ = naive.multiclass_objectives(K, label, 4, bounds, state.alpha[:, :size].T)
        assert after >= before - 1e-12
        before = after
        again = begin(
            K, label, bounds, state.gradient[:, :size].T.copy(), state.alpha[:, :size].T.copy()
        )
        again.counters[:] = state.counters
        state = again
    assert status == crammer_singer.CONVERGED
    assert whole.counters[0] > 200 or crammer_singer.BLOCK < 64


def test_missing_rows_change_nothing_among_watched_rows(large):
    K, label, bounds, gradient = large
    whole, state = (begin(K, label, bounds, gradient) for _ in range(2))
    run(whole, K, tol=1e-2)
    slots = np.full(len(K), -1, np.int32)
    status, missed = crammer_singer.NEED_ROW, []
    while status == crammer_singer.NEED_ROW:
        status, row = run(state, K, slots=slots, tol=1e-2)
        slots[:] = -1  # only the last row asked for is there
        if status == crammer_singer.NEED_ROW:
            assert row in state.some.places
            # ψ of those watched is told as it is now, for whoever chooses what else to bring.
            psi, _ = naive_violations(state, K, label, bounds, gradient)
            places = state.some.places
            np.testing.assert_allclose(state.violation[places], psi[places], rtol=1e-5, atol=1e-9)
            slots[row] = row
            missed.append(row)
    assert status == crammer_singer.CONVERGED
    assert len(missed) > crammer_singer.BLOCK
    np.testing.assert_array_equal(state.alpha, whole.alpha)
    np.testing.assert_array_equal(state.gradient, whole.gradient)
    assert state.counters[0] == whole.counters[0]


def test_watched_row_that_float64_cannot_move_is_stalled(large):
    """One that float64 does not resolve beside its coefficients, after all others have moved."""
    size = len(large[0])
    gradient = np.tile([1.0, 0.0], (size, 1))
    gradient[7] = 1e-9, 0.0
    alpha, bound, label = np.zeros((size, 2)), np.ones(size), np.zeros(size, np.int64)
    alpha[7], bound[7], label[7] = (-1e12, 1e12), 1e13, 1
    state = crammer_singer.make_state(alpha, gradient, bound, label, np.ones(size))
    assert run(state, np.eye(size), tol=1e-12) == (crammer_singer.STALLED, -1)
    assert state.counters[0] >= size - 1
    np.testing.assert_array_equal(state.alpha[:, 7], alpha[7])
    assert state.violation.max() == np.float32(1e-9)


def test_many_classes_are_watched_in_few_rows():
    for k in (2, 10, 1000, 10**5):
        rows = crammer_singer.watched_rows(k)
        assert rows % crammer_singer.BLOCK == 0
        assert rows == crammer_singer.BLOCK or rows * k <= crammer_singer.WATCHED_VALUES
    assert crammer_singer.watched_rows(2) == crammer_singer.WATCHED

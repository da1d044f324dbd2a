"""Steps on the simplex: one by one beside an oracle in float64, and to the optimum."""

import naive
import numpy as np
import pytest
from smo_problems import JIT

from bigsvm.core import ball, smo

PADDING = 3
AWAY = {"fw": False, "mfw": True}


def gaussian(n=12, seed=0, ridge=0.1):
    """Labelled rbf kernel values + 1, (n, n) float64 of float32 values, and a ridge (n,)."""
    rng = np.random.default_rng(seed)
    X, sign = rng.normal(size=(n, 3)), rng.choice([-1.0, 1.0], n)
    K = naive.kernel_matrix(X, X, "rbf", gamma=0.5) + 1
    return (K * np.outer(sign, sign)).astype(np.float32).astype(np.float64), np.full(n, ridge)


def polynomial(n=12, seed=0, ridge=0.1):
    """Values whose diagonal goes over three orders, and a ridge that differs."""
    rng = np.random.default_rng(seed)
    X, sign = rng.normal(size=(n, 3)) * 1.5, rng.choice([-1.0, 1.0], n)
    K = naive.kernel_matrix(X, X, "poly", gamma=0.5, coef0=1.0, degree=2) + 1
    K = (K * np.outer(sign, sign)).astype(np.float32).astype(np.float64)
    return K, ridge * rng.uniform(0.5, 2, n)


PROBLEMS = {"rbf": gaussian, "polynomial": polynomial}


def begin(problem, a):
    """Points that stand at a, (n,), followed by padding."""
    K, ridge = problem
    n = len(K)

    def padded(values):
        return np.pad(np.asarray(values, np.float64), (0, PADDING))

    gradient = -(K @ a + ridge * a)
    return ball.Points(
        padded(a),
        padded(gradient),
        np.zeros(n + PADDING),
        padded(np.full(n, np.inf)),
        padded(ridge),
        padded(np.diag(K) + ridge),
        np.zeros(3, np.int64),
    )


def rows_of(problem, held=None):
    """Rows, slots and stamps; of `held` points only, where not all are."""
    n = len(problem[0])
    rows = np.zeros((n, n + PADDING), np.float32)
    rows[:, :n] = problem[0]
    slots = np.full(n + PADDING, -1, np.int32)
    held = np.arange(n) if held is None else np.asarray(held, np.int64)
    slots[held] = held
    return rows, slots, np.zeros(n, np.int64)


def run(problem, points, *, away, tol=1e-9, max_steps=1, memory=None):
    return ball.run(points, *(memory or rows_of(problem)), away, tol, max_steps)


def full(problem):
    return problem[0] + np.diag(problem[1])


def somewhere(n, seed):
    """A point of the simplex, some of whose weights are 0."""
    rng = np.random.default_rng(seed)
    a = rng.exponential(size=n) * (rng.random(n) < 0.6)
    a[rng.integers(n)] += 0.1
    return a / a.sum()


def test_statuses_are_those_of_pair_steps():
    for name in ("CONVERGED", "STEPS_SPENT", "NEED_ROW", "STALLED"):
        assert getattr(ball, name) == getattr(smo, name)


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("solver", AWAY)
@pytest.mark.parametrize("seed", range(5))
def test_a_step_is_the_oracles(kind, solver, seed):
    """From a random point, forty steps, each from where the last one ended."""
    problem = PROBLEMS[kind](seed=seed)
    K, a = full(problem), somewhere(12, seed)
    n_left = 0
    for _ in range(40):
        expected, leaves, _ = naive.ball_step(K, a, away=AWAY[solver])
        points = begin(problem, a)
        assert run(problem, points, away=AWAY[solver]) == (ball.STEPS_SPENT, -1)
        after = points.alpha[:12]
        np.testing.assert_allclose(after, expected, atol=1e-12)
        np.testing.assert_allclose(points.gradient[:12], -K @ after, atol=3e-7 * np.abs(K).max())
        assert (after >= 0).all()
        assert after.sum() == pytest.approx(1, abs=1e-14)
        assert after @ K @ after <= a @ K @ a
        n_left += leaves
        assert not points.alpha[12:].any()
        assert not points.gradient[12:].any()
        assert points.counters[0] == 1
        a = after.copy()
    assert (n_left > 5) is AWAY[solver]


def test_a_step_away_may_drop_its_point_exactly():
    problem = np.array([[1, 0, 0.9], [0, 1, 0.9], [0.9, 0.9, 2.0]]), np.zeros(3)
    a = np.array([0.4995, 0.4995, 0.001])
    expected, leaves, drops = naive.ball_step(problem[0], a, away=True)
    assert leaves
    assert drops
    points = begin(problem, a)
    assert run(problem, points, away=True) == (ball.STEPS_SPENT, -1)
    assert points.alpha[2] == 0
    np.testing.assert_allclose(points.alpha[:3], expected, atol=1e-15)
    np.testing.assert_allclose(points.gradient[:3], -problem[0] @ expected, atol=1e-9)


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("seed", range(4))
def test_along_the_step_nothing_is_nearer(kind, seed):
    problem = PROBLEMS[kind](seed=seed)
    K, a = full(problem), somewhere(12, seed + 50)
    points = begin(problem, a)
    run(problem, points, away=True)
    after = points.alpha[:12]
    reached = after @ K @ after
    for share in np.linspace(0, 3, 61):
        other = a + share * (after - a)
        if (other >= 0).all():
            assert other @ K @ other >= reached - 1e-12


@pytest.mark.parametrize("kind", PROBLEMS)
@pytest.mark.parametrize("seed", range(3))
def test_ends_at_the_optimum(kind, seed):
    problem = PROBLEMS[kind](n=12, seed=seed)
    K = full(problem)
    points = begin(problem, np.eye(12)[seed])
    tol = 1e-5 * np.abs(K).max()
    status, row = run(problem, points, away=True, tol=tol, max_steps=20_000 if JIT else 2000)
    assert (status, row) == (ball.CONVERGED, -1)
    a = points.alpha[:12]
    best = naive.l2_svc(K)
    best /= best.sum()
    assert 0 <= a @ K @ a - best @ K @ best + 1e-12 <= 2 * tol
    assert a @ K @ a - (K @ a).min() <= 1.01 * tol
    assert points.counters[0] > 3


@pytest.mark.parametrize("solver", AWAY)
@pytest.mark.parametrize("kind", PROBLEMS)
def test_after_many_steps_the_gradient_is_still_that_of_the_weights(kind, solver):
    """Both have been scaled by one factor all along, and the factor multiplied in at times."""
    problem = PROBLEMS[kind](n=20, seed=3)
    K = full(problem)
    points = begin(problem, np.eye(20)[0])
    run(problem, points, away=AWAY[solver], tol=0.0, max_steps=5000 if JIT else 300)
    a = points.alpha[:20]
    assert points.counters[0] > 40
    assert a.sum() == pytest.approx(1, abs=1e-10)
    assert (a >= 0).all()
    np.testing.assert_allclose(points.gradient[:20], -K @ a, atol=1e-6 * np.abs(K).max())


def test_a_factor_of_next_to_nothing_is_multiplied_in():
    """A step of 1 - 1e-7 leaves it below what the next steps could be divided by for long."""
    problem = np.array([[1e4, 0.0, 0.0], [0.0, 1e-3, 0.0], [0.0, 0.0, 2e-3]]), np.zeros(3)
    points = begin(problem, np.array([1.0, 0, 0]))
    run(problem, points, away=False, tol=1e-12, max_steps=3)
    expected = np.array([1.0, 0, 0])
    for _ in range(3):
        expected, *_ = naive.ball_step(problem[0], expected, away=False)
    assert 0 < expected[0] < 1e-6
    np.testing.assert_allclose(points.alpha[:3], expected, rtol=1e-6)
    np.testing.assert_allclose(points.gradient[:3], -problem[0] @ expected, rtol=1e-6)


@pytest.mark.parametrize("solver", AWAY)
def test_all_weight_goes_to_a_point_that_is_better_alone(solver):
    """As it can where the diagonal is not constant: the best step is longer than 1."""
    problem = np.array([[100.0, 9.5], [9.5, 1.0]]), np.zeros(2)
    points = begin(problem, np.array([1.0, 0.0]))
    assert run(problem, points, away=AWAY[solver], max_steps=5) == (ball.CONVERGED, -1)
    np.testing.assert_array_equal(points.alpha[:2], [0, 1])
    np.testing.assert_array_equal(points.gradient[:2], [-9.5, -1.0])
    assert points.counters[0] == 1


@pytest.mark.parametrize("solver", AWAY)
def test_a_single_point_is_its_own_ball(solver):
    problem = np.array([[2.0]]), np.array([0.5])
    points = begin(problem, np.ones(1))
    assert run(problem, points, away=AWAY[solver], tol=0.0) == (ball.CONVERGED, -1)
    np.testing.assert_array_equal(points.alpha, [1, 0, 0, 0])
    assert points.counters[0] == 0


def test_without_room_nothing_is_chosen():
    problem = gaussian(6)
    points = begin(problem, np.eye(6)[0])
    points.upper[3:] = 0
    run(problem, points, away=True, tol=1e-8, max_steps=500)
    assert points.counters[0] > 1
    assert not points.alpha[3:].any()
    points.upper[:] = 0
    points.alpha[:] = 0
    assert run(problem, points, away=True) == (ball.CONVERGED, -1)


@pytest.mark.parametrize("solver", AWAY)
def test_a_row_that_is_not_there_is_asked_for_and_nothing_has_changed(solver):
    problem = gaussian()
    points = begin(problem, np.eye(12)[4])
    before = [part.copy() for part in points]
    memory = rows_of(problem, held=[])
    status, row = run(problem, points, away=AWAY[solver], memory=memory)
    assert status == ball.NEED_ROW
    assert row == np.argmin(full(problem)[4])
    for part, was in zip(points, before, strict=True):
        np.testing.assert_array_equal(part, was)


@pytest.mark.parametrize("solver", AWAY)
def test_from_row_to_row_it_gets_to_the_same_point(solver):
    """But for rounding: where it stops the common factor is multiplied in."""
    problem = polynomial(seed=2)
    one = begin(problem, np.eye(12)[0])
    run(problem, one, away=AWAY[solver], tol=1e-12, max_steps=60)
    points, memory = begin(problem, np.eye(12)[0]), rows_of(problem, held=[])
    asked = []
    while points.counters[0] < 60:
        left = 60 - int(points.counters[0])
        status, row = run(
            problem, points, away=AWAY[solver], tol=1e-12, max_steps=left, memory=memory
        )
        if status != ball.NEED_ROW:
            break
        asked.append(row)
        memory[1][row] = row
    assert len(asked) == len(set(asked)) > 2
    assert points.counters[0] == one.counters[0]
    np.testing.assert_allclose(points.alpha, one.alpha, atol=1e-5)
    used = memory[2]
    assert sorted(np.flatnonzero(used)) == sorted(asked)


@pytest.mark.parametrize("seed", range(4))
def test_the_gap_of_signed_variables_is_its_definition(seed):
    """Of variables on either side, one without bounds, and one that may not move."""
    rng = np.random.default_rng(seed)
    sign = rng.choice([-1.0, 1.0], 8)
    alpha, gradient = sign * rng.random(8), rng.normal(size=8)
    upper, lower = np.where(sign > 0, np.inf, 0.0), np.where(sign > 0, 0.0, -np.inf)
    upper[6], lower[6] = np.inf, -np.inf
    upper[7] = lower[7] = alpha[7] = 0.0
    points = ball.Points(
        alpha, gradient, lower, upper, np.zeros(8), np.ones(8), np.zeros(3, np.int64)
    )
    bound = slice(0, 6)
    farthest = max(0.0, (sign * gradient)[bound].max())
    mean = alpha[bound] @ gradient[bound] / np.abs(alpha[bound]).sum()
    assert ball.gap_of_signed(points) == pytest.approx(farthest - mean, rel=1e-12)
    alpha[bound] = 0
    assert ball.gap_of_signed(points) == np.inf

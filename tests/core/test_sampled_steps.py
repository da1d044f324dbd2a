"""Steps for samples: one by one beside an oracle in float64, and what is asked for."""

import naive
import numpy as np
import pytest

from bigsvm.core import sampled_steps as steps

AWAY = {"fw": False, "mfw": True}
LARGE = 10**9


class Problem:
    """n rows of K̃ = K + ridge in float64, of which `first` are points with weights."""

    def __init__(self, n=12, seed=0, *, first=(0,), weights=None, size=None, n_slots=None):
        rng = np.random.default_rng(seed)
        X, self.signs = rng.normal(size=(n, 3)), rng.choice([-1.0, 1.0], n)
        self.kernel = naive.kernel_matrix(X, X, "rbf", gamma=0.5) + 1
        self.ridge = 0.1 * rng.uniform(0.5, 2, n)
        self.K = self.kernel * np.outer(self.signs, self.signs) + np.diag(self.ridge)
        p, self.n = len(first), n
        first = np.array(first)
        a = np.full(p, 1 / p) if weights is None else np.array(weights)
        room = n_slots or n
        self.points = steps.Points(
            np.zeros(n, np.int64), *(np.zeros(n) for _ in range(5)), np.full(n, -1, np.int32)
        )
        self.kept = steps.KernelRows(
            np.zeros((room, n)), np.full(room, -1, np.int32), *np.zeros((2, room), np.int64)
        )
        self.counters = np.zeros(steps.N_COUNTERS, np.int64)
        self.counters[[steps.FARTHEST, steps.POINTS]] = -1, p
        points = self.points
        points.row[:p], points.weights[:p] = first, a
        points.gradient[:p] = -self.K[np.ix_(first, first)] @ a
        points.signs[:p], points.ridge[:p] = self.signs[first], self.ridge[first]
        points.diagonal[:p] = np.diag(self.K)[first]

    def fetch(self, t):
        """Fill in the kernel row of a point."""
        p, points = int(self.counters[steps.POINTS]), self.points
        kept = self.kept
        slot = steps.give_slot(points.slots, kept.owner, kept.used, self.counters, t)
        among = np.ix_([points.row[t]], points.row[:p])
        signs = points.signs[t] * points.signs[:p]
        self.kept.values[slot, :p] = self.kernel[among] * signs
        self.kept.length[slot] = p

    def block(self, rows, *, evaluated=True):
        """Make a block of samples of some rows, one after the other."""
        rows = np.asarray(rows, np.int64)
        p, m = int(self.counters[steps.POINTS]), len(rows)
        values = np.zeros((p + m, m))
        values[:p] = self.kernel[np.ix_(self.points.row[:p], rows)]
        known = {int(row): t for t, row in enumerate(self.points.row[:p])}
        point = np.array([known.get(int(row), -1) for row in rows], np.int32)
        fresh_of = np.arange(m) if evaluated else np.full(m, -1)
        fresh = self.kernel[np.ix_(rows, rows)] * np.ones((m, m))
        ridge = self.ridge[rows]
        ridge.setflags(write=False)  # as training has it: else all is compiled once more
        return steps.Samples(
            rows, self.signs[rows], ridge, np.ones(m, np.bool_), point, values, fresh,
            fresh_of.astype(np.int32),
        )  # fmt: skip

    def run(self, samples, size, *, away=False, follow=True, tol=1e-12, enough=1, most=LARGE):
        """Run with kernel rows of points handed out as they are asked for."""
        self.asked = []
        while True:
            code, what, gap = steps.run(
                self.points, self.kept, samples, self.counters, np.empty(size), (tol, 4.0),
                (away, follow), enough, most,
            )  # fmt: skip
            if code != steps.NEED_ROW:
                return code, what, gap
            self.asked.append(what)
            self.fetch(what)

    def weights(self):
        p = int(self.counters[steps.POINTS])
        a = np.zeros(self.n)
        a[self.points.row[:p]] = self.points.weights[:p]
        return a

    def gradient(self):
        p = int(self.counters[steps.POINTS])
        return self.points.gradient[:p], -(self.K @ self.weights())[self.points.row[:p]]


@pytest.mark.parametrize("n_slots", [12, 3])
@pytest.mark.parametrize("solver", AWAY)
@pytest.mark.parametrize("seed", range(3))
def test_step_on_a_sample_of_all_rows_is_that_of_the_oracle(solver, seed, n_slots):
    problem = Problem(seed=seed, first=(2, 5), n_slots=n_slots)
    a, n_left = problem.weights(), 0
    for step in range(40):
        expected, leaves, _ = naive.ball_step(problem.K, a, away=AWAY[solver])
        problem.counters[steps.SAMPLE] = 0
        samples = problem.block(np.arange(12))
        code, _, gap = problem.run(samples, 12, away=AWAY[solver])
        assert code == steps.SPENT
        assert problem.counters[steps.STEPS] == step + 1
        assert gap == pytest.approx(a @ problem.K @ a - (problem.K @ a).min(), abs=1e-12)
        found = problem.weights()
        np.testing.assert_allclose(found, expected, atol=1e-12)
        np.testing.assert_array_equal(found > 0, expected > 0)
        here, exact = problem.gradient()
        np.testing.assert_allclose(here, exact, atol=1e-12)
        a, n_left = found, n_left + leaves
    assert (n_left > 3) is AWAY[solver]


def test_each_sample_of_a_block_gives_one_step():
    problem = Problem(first=(0, 1))
    rows = np.random.default_rng(1).integers(0, 12, 20 * 4)
    a = problem.weights()
    assert problem.run(problem.block(rows), 4, enough=LARGE)[0] == steps.SPENT
    for sample in rows.reshape(-1, 4):
        products = problem.K @ a
        i = min(sample, key=lambda t: (products[t], t))
        if a @ products - products[i] <= 1e-12 * (4 - a @ products):
            continue
        step = (a @ products - products[i]) / (a @ products - 2 * products[i] + problem.K[i, i])
        a = (1 - step) * a
        a[i] += step
    np.testing.assert_allclose(problem.weights(), a, atol=1e-12)


def test_ties_between_farthest_rows_go_to_the_lowest_index():
    problem = Problem(n=6, first=(0,))
    for values in (problem.kernel, problem.K):
        values[4], values[:, 4] = values[2], values[:, 2]
    problem.signs[4] = problem.signs[2]
    samples = problem.block([4, 2, 4])
    if problem.run(samples, 3, follow=False)[0] == steps.JOINED:
        assert problem.points.row[1] == 2
    else:
        pytest.fail("neither row is outside")


def test_empty_samples_are_counted_in_a_row():
    problem = Problem(first=tuple(range(12)))
    best = naive.l2_svc(problem.K)
    problem.points.weights[:] = best / best.sum()
    problem.points.gradient[:] = -problem.K @ problem.points.weights
    samples = problem.block(np.arange(12))
    assert problem.run(samples, 2, tol=1e-6, enough=4)[0] == steps.EMPTY
    assert problem.counters[steps.SAMPLE] == problem.counters[steps.EMPTY_SAMPLES] == 4
    assert problem.run(problem.block(np.arange(12)), 2, tol=1e-6, enough=9)[0] == steps.SPENT
    assert problem.counters[steps.EMPTY_SAMPLES] == 6
    assert problem.counters[steps.STEPS] == 0


def test_rows_that_may_not_be_points_are_never_taken():
    problem = Problem(first=(0,))
    samples = problem.block(np.arange(12))
    samples.movable[:] = False
    assert problem.run(samples, 12)[0] == steps.EMPTY
    assert problem.counters[steps.POINTS] == 1


def test_missing_kernel_values_are_requested_without_a_change_of_state():
    problem = Problem(first=(0, 1))
    samples = problem.block(np.arange(12), evaluated=False)
    before = [part.copy() for part in problem.points]
    code, what, _ = problem.run(samples, 12)
    assert code == steps.NEED_VALUES
    assert what == np.argmin(problem.K @ problem.weights())
    for part, was in zip(problem.points, before, strict=True):
        np.testing.assert_array_equal(part, was)
    wanted = np.empty(3, np.int64)
    assert steps.next_farthest(problem.points, samples, problem.counters, np.empty(12), wanted) == 1
    assert wanted[0] == what
    samples.fresh_of[what] = 0
    samples.fresh[0] = problem.kernel[what]
    expected, *_ = naive.ball_step(problem.K, problem.weights(), away=False)
    assert problem.run(samples, 12)[0] == steps.SPENT
    np.testing.assert_allclose(problem.weights(), expected, atol=1e-12)


def test_the_next_rows_are_the_farthest_of_their_samples():
    problem = Problem(first=(0, 1))
    rows = np.random.default_rng(2).integers(2, 12, 24)
    samples = problem.block(rows, evaluated=False)
    products = problem.K @ problem.weights()
    wanted = np.empty(24, np.int64)
    found = steps.next_farthest(problem.points, samples, problem.counters, np.empty(4), wanted)
    farthest = {min(sample, key=lambda t: products[t]) for sample in rows.reshape(-1, 4)}
    assert set(rows[wanted[:found]]) == farthest
    assert found == len(farthest)


def test_full_core_set_is_reported():
    problem = Problem(first=(0, 1))
    problem.points = steps.Points(*(part[:2] for part in problem.points))
    assert problem.run(problem.block(np.arange(12)), 12)[0] == steps.FULL


def test_limits_of_steps():
    problem = Problem(first=(0, 1))
    samples = problem.block(np.tile(np.arange(12), 8))
    assert problem.run(samples, 12, most=5)[0] == steps.STEPS_SPENT
    assert problem.counters[steps.STEPS] == 5


def test_least_recently_used_row_is_evicted():
    problem = Problem(first=(0, 1, 2), n_slots=2)
    for t in (0, 1, 2):
        problem.fetch(t)
    assert problem.points.slots[:3].tolist() == [-1, 1, 0]
    problem.fetch(1)  # computed again where it is
    problem.fetch(0)
    assert problem.points.slots[:3].tolist() == [0, 1, -1]


def test_rows_are_completed_from_those_of_later_points():
    problem = Problem(first=(0, 1, 2), n_slots=3)
    for t in (0, 1, 2):
        problem.fetch(t)
    problem.kept.values[problem.points.slots[0], 2] = 0
    problem.kept.length[problem.points.slots[0]] = 2
    assert steps.complete(problem.points.slots, problem.kept.values, problem.kept.length, 3, 0)
    expected = problem.kernel[0, :3] * problem.signs[0] * problem.signs[:3]
    np.testing.assert_array_equal(problem.kept.values[problem.points.slots[0], :3], expected)
    problem.kept.length[problem.points.slots[0]] = 2
    problem.points.slots[2] = -1
    assert not steps.complete(problem.points.slots, problem.kept.values, problem.kept.length, 3, 0)

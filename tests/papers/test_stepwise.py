"""Stepwise searches beside the paper's algorithms written down a second time."""

import numpy as np
import pytest
from support.problems import Ball, blobs, gram

import bigsvm
from bigsvm.balls.core_set import CoreSet
from bigsvm.balls.random_rows import RandomRows
from bigsvm.balls.search import FirstPoints
from bigsvm.errors import MemoryBudgetError
from bigsvm.kernels import Polynomial
from bigsvm.papers.stepwise import StepwiseSearch
from bigsvm.training.checkpoint import Checkpoint
from bigsvm.training.result import StopReason
from bigsvm.training.state import Limits

STEPWISE = ("fw", "mfw", "cvm")


def algorithm(K, a, samples, *, tol, away, n_steps):
    """Algorithms 2 and 3 of Frandi et al. 2013, the steps by exact line search on the whole matrix.

    Samples without a row outside are passed over.
    """
    a, D = a.copy(), K.diagonal().max()
    for sample in samples:
        if not n_steps:
            break
        products = K @ a
        R = a @ products
        sample = np.sort(sample)
        i = sample[np.argmin(products[sample])]
        if 2 * (R - products[i]) <= (2 * tol + tol**2) * (D - R):
            continue
        support = np.flatnonzero(a > 0)
        j = support[np.argmax(products[support])]
        if away and products[j] - R > R - products[i]:
            most = a[j] / (1 - a[j])
            step = min((products[j] - R) / (R - 2 * products[j] + K[j, j]), most)
            a *= 1 + step
            a[j] = 0.0 if step == most else a[j] - step
        else:
            step = min((R - products[i]) / (R - 2 * products[i] + K[i, i]), 1.0)
            a *= 1 - step
            a[i] += step
        n_steps -= 1
    return a


class Recorded:
    """A search whose samples and first weights are known afterwards."""

    def __init__(self, ball, monkeypatch, **options):
        draw, begin = RandomRows.draw, StepwiseSearch._begin
        self.drawn, self.first = [], None

        def drawing(rows, count):
            for indices, part in draw(rows, count):
                self.drawn.append(indices)
                yield indices, part

        def beginning(search, rows):
            begin(search, rows)
            self.first = np.zeros(ball.source.n_rows)
            self.first[search.core.indices] = search.core.weights

        with monkeypatch.context() as patch:
            patch.setattr(RandomRows, "draw", drawing)
            patch.setattr(StepwiseSearch, "_begin", beginning)
            patch.setattr(CoreSet, "solve", lambda *_, **__: 0)  # as the first weights are
            self.search = ball.search(tiles=ball.tiles(np.float64), **options)
            self.reason = self.search.run()

    def weights(self, n):
        a = np.zeros(n)
        a[self.search.core.indices] = self.search.core.weights
        return a

    def samples(self, size):
        return np.concatenate(self.drawn).reshape(-1, size)


@pytest.mark.parametrize("kind", ["classes", "one class", "polynomial", "few kernel rows"])
@pytest.mark.parametrize("solver", ["fw", "mfw"])
def test_a_thousand_steps_are_those_of_the_algorithm(solver, kind, monkeypatch):
    n, size, tol, C = 400, 60, 1e-9, 100.0
    X, y = blobs(n, seed=2)
    options = {"solver": solver, "sampling": size, "ball_tol": tol, "C": C, "capacity": 6000}
    labels, K = y.astype(float), gram(X)
    if kind == "one class":
        labels = np.ones(n)
    else:
        if kind == "polynomial":
            options["kernel"] = Polynomial(gamma=0.5, coef0=1.0, degree=2)
            K = (0.5 * X.astype(float) @ X.T.astype(float) + 1.0) ** 2
        K = (K + 1) * np.outer(labels, labels)
    K += np.eye(n) / C
    ball = Ball(X, None if kind == "one class" else y, **options)
    ball.dual = type(ball.dual)(
        ball.dual.formulation, ball.dual.rule, ball.dual.solver, K.diagonal().max()
    )
    if kind == "few kernel rows":
        ball.plan = ball.plan.with_kernel_rows(6)
    for steps in (1, 30, 1000):
        found = Recorded(ball, monkeypatch, limits=Limits(max_iter=steps), empty_samples=10**9)
        assert found.reason is StopReason.MAX_ITER
        expected = algorithm(
            K, found.first, found.samples(size), tol=tol, away=solver == "mfw", n_steps=steps
        )
        here = found.weights(n)
        np.testing.assert_array_equal(np.flatnonzero(here), np.flatnonzero(expected))
        np.testing.assert_allclose(here, expected, atol=1e-9)


def certificate(search):
    return search.result(search.run()).certificate


@pytest.mark.parametrize("solver", STEPWISE)
def test_it_ends_at_the_first_empty_sample_or_after_several_in_a_row(solver):
    X, y = blobs(600)
    one, many = (
        Ball(X, y, solver=solver, ball_tol=1e-2).search(empty_samples=count) for count in (1, 5)
    )
    first, later = certificate(one), certificate(many)
    assert (one.count.empty_samples, many.count.empty_samples) == (1, 5)
    assert first.stop_reason is later.stop_reason is StopReason.SAMPLED
    assert many.count.rows_drawn >= one.count.rows_drawn + 4 * 60
    assert later.objective >= first.objective - 1e-9


@pytest.mark.parametrize("one_class", [False, True])
def test_a_pair_of_first_points_is_a_row_and_the_farthest_of_its_sample(one_class):
    X, y = blobs(200)
    ball = Ball(X, None if one_class else y, solver="fw", sampling="all")
    search = ball.search(first_points=FirstPoints.PAIR, limits=Limits(max_iter=0))
    search.run()
    sign = np.ones(200) if one_class else y.astype(float)
    K = gram(X) * np.outer(sign, sign)
    pair = search.core.indices
    assert len(pair) == 2
    assert any(K[a, b] <= K[a].min() + 1e-6 for a, b in (pair, pair[::-1]))


def test_the_core_vector_machine_adds_one_row_of_each_sample_and_solves_again(monkeypatch):
    X, y = blobs(300)
    sizes, solve = [], CoreSet.solve

    def solving(core, **options):
        sizes.append(len(core))
        done = solve(core, **options)
        gap = float(core.gradient.max()) + core.energy
        assert gap <= options["tol"] * (1 + 1e-3) + 1e-7
        return done

    monkeypatch.setattr(CoreSet, "solve", solving)
    search = Ball(X, y, solver="cvm", ball_tol=1e-4).search()
    assert search.run() is StopReason.SAMPLED
    joins = np.diff(sizes[1:])  # the first ball gives up its points without weight
    assert len(joins) > 30
    assert (joins == 1).all()


@pytest.mark.parametrize("solver", STEPWISE)
def test_kernel_rows_that_memory_does_not_hold_are_computed_again(solver, monkeypatch):
    X, y = blobs(600)
    fetched, fetch = [], CoreSet.fetch

    def fetching(core, wanted):
        fetched.extend(wanted)
        fetch(core, wanted)

    monkeypatch.setattr(CoreSet, "fetch", fetching)
    ball = Ball(X, y, solver=solver, ball_tol=1e-3, capacity=6000)
    ball.plan = ball.plan.with_kernel_rows(6)
    search = ball.search()
    assert search.run() is StopReason.SAMPLED
    core = search.core
    assert len(core.kept.owner) < len(core) / 5
    assert len(fetched) > 2 * len(core.kept.owner)
    there = core.indices
    K = (gram(X[there]) + 1) * np.outer(y[there], y[there]) + np.eye(len(there)) / 5
    np.testing.assert_allclose(core.gradient, -K @ core.weights, atol=1e-6)
    assert search.count.drift < 1e-5  # steps had kept it so


def test_arrays_take_no_more_than_the_plan_has_for_kernel_rows_and_active_rows(monkeypatch):
    X, y = blobs(3000)
    ball = Ball(X, y, solver="mfw", ball_tol=1e-3, capacity=3000)
    block, most = StepwiseSearch._block, []

    def measured(search, *given):
        made = block(search, *given)
        most.append(made.samples.values.nbytes + made.samples.fresh.nbytes)
        assert len(made.samples.row) <= search._block_rows
        return made

    monkeypatch.setattr(StepwiseSearch, "_block", measured)
    search = ball.search()
    search.run()
    assert len(most) > 3
    assert search.core._values.nbytes + max(most) <= ball.plan.gram_bytes
    assert 3 * search.core.capacity + 2 * search._block_rows <= 4 * ball.plan.active_rows


@pytest.mark.parametrize("solver", ["fw", "mfw", "cvm"])
@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_very_few_rows_have_room(solver, n):
    X = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0], [1.0, -2.0], [3.0, 1.0]])[:n]
    model = bigsvm.L2OneClassSVM(1e7, gamma=1.0, solver=solver, ball_tol=1e-2).fit(X)
    assert model.converged_
    assert 1 <= len(model.support_) <= n


def test_a_core_set_without_room_for_the_first_ball_is_refused():
    X, y = blobs(40)
    search = Ball(X, y, solver="fw").search()
    search.core.capacity = len(search.core.points.row)
    n = search.core.capacity + 1
    with pytest.raises(MemoryBudgetError, match=f"and {n} are needed; give more memory"):
        search.core.add(np.arange(n), X[:n])


def test_longer_kernel_rows_keep_the_values_of_those_used_last():
    X, y = blobs(1600)
    ball = Ball(X, y, solver="cvm", C=100.0, capacity=4000)
    core = ball.search()._make_core(ball.plan.with_kernel_rows(200), ball.tiles(), capacity=1600)
    core.add(np.arange(1000), X[:1000])
    K = (gram(X) + 1) * np.outer(y, y)
    core.add(np.arange(1000, 1500), X[1000:1500])
    assert core.width == 2048
    held = np.flatnonzero(core.points.slots[:1000] >= 0)
    assert len(held) == len(core.kept.owner)
    for t in held[:5].tolist():
        slot = core.points.slots[t]
        np.testing.assert_allclose(core.kept.values[slot, :1000], K[t, :1000], atol=1e-6)
        assert core.kept.length[slot] == 1000


def test_points_without_weight_are_removed_and_the_rest_is_as_it_was():
    X, y = blobs(300)
    core = (
        Ball(X, y, solver="mfw")
        .search()
        ._make_core(Ball(X, y).plan, Ball(X, y).tiles(), capacity=300)
    )
    core.add(np.arange(60), X[:60])
    core.points.weights[:60] = np.where(np.arange(60) % 2, 1 / 30, 0.0)
    core.recompute()
    gradient = core.gradient.copy()
    assert core.drop_weightless()
    assert core.indices.tolist() == list(range(1, 60, 2))
    np.testing.assert_array_equal(core.gradient, gradient[1::2])
    K = (gram(X) + 1) * np.outer(y, y)
    for t, slot in enumerate(core.points.slots[:30]):
        expected = K[np.ix_([1 + 2 * t], core.indices)][0]
        np.testing.assert_allclose(core.kept.values[slot, :30], expected, atol=1e-6)
    assert core.recompute() < 1e-6


@pytest.mark.parametrize("solver", STEPWISE)
def test_stopped_by_steps_and_gone_on_it_gives_the_same_bits(solver, tmp_path):
    """In the middle of a block: it is drawn again."""
    X, y = blobs(600)
    ball = Ball(X, y, solver=solver, ball_tol=1e-2)
    whole = ball.train(certify=False)
    steps = whole.certificate.n_iter
    with Checkpoint(tmp_path / "run", {}) as checkpoint:
        for limit in (steps // 3, steps // 3 + 1, steps // 2, -1):
            found = ball.train(certify=False, checkpoint=checkpoint, limits=Limits(max_iter=limit))
            if limit >= 0:
                assert found.certificate.n_iter == limit
    np.testing.assert_array_equal(found.support, whole.support)
    np.testing.assert_array_equal(found.alpha, whole.alpha)
    assert found.certificate.n_iter == steps

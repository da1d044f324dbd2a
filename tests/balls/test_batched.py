"""The sampled search: where it ends, what it may not do, and the bits of an undisturbed run."""

import itertools
from dataclasses import replace

import dask.array as da
import naive
import numpy as np
import pytest
import scipy.sparse as sp
from support.problems import Ball, blobs, dense_alpha, gram
from support.resuming import StopAt, assert_resumed_to_the_same_bits
from support.same import assert_same_bits

from bigsvm.balls import batched as frank_wolfe
from bigsvm.balls.batched import SampledSearch
from bigsvm.balls.random_rows import RandomRows, random_rows
from bigsvm.balls.search import largest_core, sample_size
from bigsvm.budget import plan_training
from bigsvm.conversion.from_arrays import write_store
from bigsvm.data.sources import as_row_source
from bigsvm.errors import MemoryBudgetError
from bigsvm.training import events
from bigsvm.training.checkpoint import Checkpoint
from bigsvm.training.result import StopReason
from bigsvm.training.run import Watch
from bigsvm.training.state import Limits

SOLVERS = ("pairwise", "mfw", "fw", "cvm")
SAMPLINGS = ("all", 0.3, 60, 1)


@pytest.fixture(scope="module")
def problem():
    return blobs(600)


def tilde(X, y, C=5.0):
    return (gram(X) + 1) * np.outer(y, y) + np.eye(len(y)) / C


@pytest.fixture(scope="module")
def optimum(problem):
    X, y = problem
    a = naive.l2_svc(tilde(X, y.astype(float)))
    return 0.5 * a.sum()


# -- where it ends --------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_certified_ball_is_the_optimum(problem, optimum, solver, sampling):
    X, y = problem
    result = Ball(X, y, solver=solver, sampling=sampling, ball_tol=1e-9).train()
    certificate = result.certificate
    assert certificate.converged
    assert certificate.n_sweeps >= 1
    assert certificate.objective == pytest.approx(optimum, rel=1e-6)
    K, alpha = tilde(X, y.astype(float)), dense_alpha(result, 600)
    a = alpha * y
    assert (a >= 0).all()
    gap = (1 - K @ a).max() + a @ K @ a / a.sum() - 1
    assert certificate.gap == pytest.approx(gap, abs=1e-7)
    assert gap <= certificate.tol * 1.01 + 1e-9
    assert 0 <= certificate.drift < 1e-2


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("solver", SOLVERS)
def test_samples_of_all_rows_end_within_the_tolerance(problem, solver, form):
    """No sweep has said so; the definition does, of the rows outside the core set."""
    X, y = problem
    tol = 1e-6 if solver in ("pairwise", "cvm") else 1e-2  # single steps are many
    ball = Ball(form(X), y, solver=solver, sampling="all", ball_tol=tol)
    search = ball.search()
    result = search.result(search.run())
    assert result.certificate.stop_reason is StopReason.SAMPLED
    assert not result.certificate.converged
    assert result.certificate.gap is None
    assert result.certificate.n_sweeps == 0
    K = tilde(X, y.astype(float))
    a = dense_alpha(result, 600) * y
    objective = a.sum() - 0.5 * a @ K @ a
    assert result.certificate.objective == pytest.approx(objective, rel=1e-5)
    a /= a.sum()
    R = a @ K @ a
    goal = (tol + tol**2 / 2) * (2 + 1 / 5 - R)
    outside = R - K @ a
    others = np.setdiff1d(np.arange(600), search.core.indices)
    assert len(others) > 50
    assert outside[others].max() <= goal + 1e-7
    if solver == "cvm":
        assert outside.max() <= goal + 1e-7


def test_sweeps_find_violators_that_samples_miss(problem, optimum):
    """One row a sample: it ends at the first that is not outside."""
    X, y = problem
    ball = Ball(X, y, sampling=1)
    found = ball.train(certify=False).certificate
    assert found.stop_reason is StopReason.SAMPLED
    assert found.objective < 0.9 * optimum
    whole = ball.train().certificate
    assert whole.objective == pytest.approx(optimum, rel=1e-6)


def test_rows_sorted_by_class_are_sampled_as_well(problem, optimum):
    """Several samples that are all rows in sum are not the rows in order, one after the other."""
    X, y = problem
    order = np.lexsort((X[:, 0], y))
    ball = Ball(X[order], y[order], sampling=60, ball_tol=1e-7)
    found = ball.train(certify=False).certificate
    assert found.objective > 0.5 * optimum
    drawn = []
    rows = random_rows(ball.source, 1 << 14, 0, 0, sample=60)
    for indices, _ in rows.draw(1200):
        drawn.extend(indices)
    assert len(set(drawn[:60])) > 50
    assert np.abs(np.diff(drawn)).mean() > 100


@pytest.mark.parametrize("solver", SOLVERS)
def test_rows_without_weight_never_join(problem, solver):
    X, y = problem
    rng = np.random.default_rng(3)
    weights = rng.choice([0.0, 0.0, 1.0, 2.0, 1e-310], 600)
    ball = Ball(X, y, solver=solver, sample_weight=weights, sampling="all", ball_tol=1e-6)
    search = ball.search(certify=solver == "fw")
    assert search.run() is StopReason.SAMPLED
    assert (weights[search.core.indices] >= 1).all()
    result = ball.train()
    assert (weights[result.support] >= 1).all()
    there = weights >= 1
    K = (gram(X[there]) + 1) * np.outer(y[there], y[there]).astype(float)
    a = naive.l2_svc(K + np.diag(1 / (5.0 * weights[there])))
    assert result.certificate.objective == pytest.approx(0.5 * a.sum(), rel=1e-5)


def test_a_class_of_one_row_is_in_the_first_ball(problem):
    X, y = problem
    y = np.full(600, -1, np.int8)
    y[417] = 1
    ball = Ball(X, y, sampling=5)
    search = ball.search(limits=Limits(max_iter=0))
    search.run()
    assert 417 in search.core.indices
    a = naive.l2_svc(tilde(X, y.astype(float)))
    certificate = ball.train().certificate
    assert certificate.objective == pytest.approx(0.5 * a.sum(), rel=1e-6)


@pytest.mark.parametrize("solver", SOLVERS)
def test_rows_that_are_repeated_with_either_label(solver):
    X, y = blobs(150)
    X, y = np.concatenate([X, X, X]), np.concatenate([y, y, -y])
    result = Ball(X, y, solver=solver, ball_tol=1e-9).train()
    a = naive.l2_svc(tilde(X, y.astype(float)))
    assert result.certificate.converged
    assert result.certificate.objective == pytest.approx(0.5 * a.sum(), rel=1e-6)


def test_two_rows_are_a_ball():
    X, y = np.array([[0.0], [3.0]], np.float32), np.array([1, -1], np.int8)
    result = Ball(X, y, ball_tol=1e-9).train()
    a = naive.l2_svc(tilde(X, y.astype(float)))
    np.testing.assert_allclose(np.abs(result.alpha), a, rtol=1e-6)


def test_every_round_lowers_the_energy_and_tells(problem):
    X, y = problem
    for solver in SOLVERS:
        seen = []
        search = Ball(X, y, solver=solver, ball_tol=1e-3).search(listener=seen.append)
        search.run()
        assert type(seen[0]) is events.Planned
        told = [event for event in seen if type(event) is events.Searching]
        assert len(told) == len(seen) - 1 > 3
        # D - R: R falls, but for the rounding of the factor.
        assert all(b.radius >= a.radius - 1e-6 for a, b in itertools.pairwise(told))
        assert all(a.steps <= b.steps for a, b in itertools.pairwise(told))
        assert told[-1].size == len(search.core)
        assert all(np.isfinite(event.gap) and event.gap >= 0 for event in told)


# -- one class ------------------------------------------------------------------------------------


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("solver", SOLVERS)
def test_certified_ball_of_one_class_is_the_optimum(problem, solver, sampling):
    X, _ = problem
    result = Ball(X, None, C=50.0, solver=solver, sampling=sampling, ball_tol=1e-9).train()
    K = gram(X) + np.eye(600) / 50
    assert result.certificate.converged
    assert result.certificate.objective == pytest.approx(0.5 * naive.l2_svc(K).sum(), rel=1e-6)
    alpha = dense_alpha(result, 600)
    assert (alpha >= 0).all()
    gap = (1 - K @ alpha).max() + alpha @ K @ alpha / alpha.sum() - 1
    assert result.certificate.gap == pytest.approx(gap, abs=1e-7)


@pytest.mark.parametrize("solver", SOLVERS)
def test_rows_of_one_class_without_weight_never_join(problem, solver):
    X, _ = problem
    weights = np.random.default_rng(3).choice([0.0, 0.0, 1.0, 2.0, 1e-310], 600)
    ball = Ball(X, None, solver=solver, sample_weight=weights, sampling="all", ball_tol=1e-6)
    search = ball.search(certify=solver == "fw")
    assert search.run() is StopReason.SAMPLED
    assert (weights[search.core.indices] >= 1).all()
    result, there = ball.train(), weights >= 1
    assert there[result.support].all()
    best = naive.l2_svc(gram(X[there]) + np.diag(1 / (5.0 * weights[there])))
    assert result.certificate.objective == pytest.approx(0.5 * best.sum(), rel=1e-5)


# -- limits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("max_iter", [0, 1, 50])
def test_max_iter_stops_it_there(problem, solver, max_iter):
    X, y = problem
    result = Ball(X, y, solver=solver).train(limits=Limits(max_iter=max_iter))
    assert result.certificate.stop_reason is StopReason.MAX_ITER
    assert result.certificate.n_iter == max_iter
    assert result.certificate.gap is None
    assert len(result.support) > 0


def test_max_iter_counts_the_steps_of_both(problem):
    X, y = problem
    ball = Ball(X, y, ball_tol=1e-8)  # what float32 can tell
    search = ball.search()
    search.run()
    found = ball.train(limits=Limits(max_iter=search.count.n_iter + 1)).certificate
    assert found.n_iter == search.count.n_iter + 1
    # What so few rows lack is polished without steps.
    assert found.converged
    assert found.gap <= found.tol


def test_a_time_limit_stops_and_says_so(problem):
    result = Ball(*problem).train(limits=Limits(max_seconds=1e-9))
    assert result.certificate.stop_reason is StopReason.TIME_LIMIT
    assert result.certificate.gap is None


def test_search_and_sweeps_have_one_time_limit(problem, monkeypatch):
    """The clock goes on where the search ends."""
    now, alpha = [0.0], SampledSearch.alpha

    def late(search):
        now[0] = 11.0
        return alpha(search)

    monkeypatch.setattr("bigsvm.training.run.time.monotonic", lambda: now[0])
    monkeypatch.setattr(SampledSearch, "alpha", late)
    result = Ball(*problem).train(limits=Limits(max_seconds=10.0))
    assert result.certificate.stop_reason is StopReason.TIME_LIMIT


def test_costs_of_search_and_sweeps_are_counted_once(problem, monkeypatch):
    ball = Ball(*problem)
    search = ball.search()
    search.run()
    tiles = ball.tiles()
    monkeypatch.setattr(ball, "tiles", lambda: tiles)
    blocks, add = [], Watch.add
    monkeypatch.setattr(
        Watch, "add", lambda self, one, **more: blocks.append(one) or add(self, one, **more)
    )
    total = ball.train().certificate.n_kernel_evaluations
    of_passes = sum(one.evaluations for one in blocks)
    assert total - of_passes == tiles.n_evaluations > search.count.n_kernel_evaluations > 0
    assert of_passes > 0


def test_interrupted_before_its_first_points_there_is_no_model_but_a_way_on(problem, tmp_path):
    ball = Ball(*problem)
    with Checkpoint(tmp_path / "run", {}) as checkpoint:
        result = ball.train(checkpoint=checkpoint, limits=Limits(interrupted=StopAt(1)))
    assert result.certificate.stop_reason is StopReason.INTERRUPTED
    assert result.certificate.objective is None
    assert len(result.support) == 0
    with Checkpoint(tmp_path / "run", {}) as checkpoint:
        assert_same_bits(ball.train(checkpoint=checkpoint), ball.train())


# -- a core set that is full ----------------------------------------------------------------------


def test_a_full_core_set_ends_the_search(problem, optimum):
    X, y = problem
    ball = Ball(X, y, capacity=40)
    search = ball.search()
    assert search.run() is StopReason.CORE_FULL
    result = search.result(StopReason.CORE_FULL)
    assert not result.certificate.converged
    assert 0 < len(result.support) <= 40
    assert result.certificate.objective < 0.9 * optimum
    assert "memory" in StopReason.CORE_FULL.sentence


@pytest.mark.fault("half-models")
@pytest.mark.parametrize("certify", [True, False])
def test_after_a_full_core_set_training_goes_on_as_certified(problem, optimum, certify):
    X, y = problem
    certificate = Ball(X, y, capacity=40).train(certify=certify).certificate
    assert certificate.converged
    assert certificate.n_sweeps > 0
    assert certificate.objective == pytest.approx(optimum, rel=1e-5)


@pytest.mark.slow
@pytest.mark.fault("half-models")
def test_run_after_a_full_core_set_is_resumed_to_the_same_bits(problem, tmp_path):
    X, y = problem
    ball = Ball(X, y, capacity=40)
    watch = StopAt()
    whole = ball.train(certify=False, limits=Limits(interrupted=watch))
    phases = set()

    def attempt(folder, interrupted):
        with Checkpoint(folder, {}) as checkpoint:
            limits = Limits(interrupted=interrupted)
            result = ball.train(certify=False, checkpoint=checkpoint, limits=limits)
            phases.add(checkpoint.latest().values["phase"])
            return result

    firsts = range(1, watch.count, max(1, watch.count // 5))
    assert_resumed_to_the_same_bits(attempt, tmp_path, firsts, whole, then=(2, 1, -1))
    assert "search" in phases
    assert len(phases) > 1


@pytest.mark.fault("samples")
def test_the_first_points_of_a_class_are_random_rows_of_it():
    """A class that the first random rows miss has been put in by its first row."""
    X, _ = blobs(600)
    y = np.full(600, -1, np.int8)
    rare = np.arange(100, 104)
    y[rare] = 1
    found = set()
    for seed in range(30):
        search = Ball(X, y, sampling=5, seed=seed).search(limits=Limits(max_iter=0))
        search.run()
        found |= set(search.core.indices) & set(rare)
    assert found == set(rare)


@pytest.mark.fault("samples")
@pytest.mark.parametrize("form", ["dask", "sparse dask"])
def test_a_search_in_sorted_rows_ends_where_one_in_shuffled_rows_does(problem, optimum, form):
    X, y = problem
    order = np.lexsort((X[:, 0], y))
    chunked = da.from_array(X[order], chunks=(100, -1))
    if form == "sparse dask":
        chunked = chunked.map_blocks(sp.csr_array)
    ball = Ball(as_row_source(chunked), y[order], sampling=60, ball_tol=1e-4, capacity=1400)
    shuffled = Ball(X, y, sampling=60, ball_tol=1e-4).train(certify=False).certificate.objective
    for room in (400, 4000):  # a pass for some samples, or one for all
        search = ball.search()
        search._most_drawn = room
        assert search.run() is StopReason.SAMPLED
        found = search.result(StopReason.SAMPLED).certificate.objective
        assert found == pytest.approx(shuffled, rel=0.02)


@pytest.mark.parametrize("kind", ["array", "shuffled", "dask", "in order"])
def test_rows_drawn_in_a_pass_take_memory_from_the_core_set(problem, kind):
    """Together they take no more than the active rows of certified training."""
    X, y = problem
    source = as_row_source(da.from_array(X, chunks=(37, -1)) if kind != "array" else X)
    source.is_shuffled = kind == "shuffled"
    plan = plan_training(
        2_000_000, n_rows=600, n_columns=5, bytes_per_row=20, row_alignment=37, threads=1
    )
    ball = Ball(source, y, sampling="all" if kind == "in order" else 60)
    ball.plan = plan = replace(plan, active_rows=500)
    search = ball.search()
    if kind != "dask":
        assert (search.core.capacity, search._most_drawn) == (largest_core(plan), 0)
        return
    core = search.core.capacity
    assert core <= 250
    drawn = search._most_drawn * (source.bytes_per_row + 40)
    assert drawn <= (500 - core) * plan.active_row_bytes
    assert search._most_drawn >= 500 - core


def test_a_core_set_beyond_memory_is_not_resumed(problem, tmp_path):
    X, y = problem
    limits = Limits(max_iter=600)
    with Checkpoint(tmp_path / "run", {}) as checkpoint:
        Ball(X, y).train(checkpoint=checkpoint, limits=limits)
    with (
        Checkpoint(tmp_path / "run", {}) as checkpoint,
        pytest.raises(MemoryBudgetError, match="as much memory as before"),
    ):
        Ball(X, y, capacity=40).train(checkpoint=checkpoint)


def test_the_largest_core_is_what_memory_holds():
    X, y = blobs(50)
    for capacity in (1, 30, 300, 1024, 1500):
        plan = Ball(X, y, capacity=capacity).plan
        size = largest_core(plan)
        width = 4 * 1024 * -(-size // 1024)
        assert size * width <= plan.gram_bytes
        assert size == capacity or (size + 1) * 4 * 1024 * -(-(size + 1) // 1024) > plan.gram_bytes


def test_sizes_of_samples():
    assert [sample_size(s, 1000) for s in ("all", 0.3, 1.0, 1, 60, 5000, 1e-9, 60.0)] == [
        1000, 300, 1000, 1, 60, 1000, 1, 60,
    ]  # fmt: skip


# -- resuming -------------------------------------------------------------------------------------


SOURCES = {
    "memory": lambda X, y, folder: (X, y),
    "sparse": lambda X, y, folder: (sp.csr_array(X), y),
    "store": lambda X, y, folder: stored(X, y, folder),
    "dask": lambda X, y, folder: (as_row_source(da.from_array(X, chunks=(97, -1))), y),
}


def stored(X, y, folder):
    store = write_store(folder / "s.zarr", X, y.astype(float))
    return store.rows, store.labels()


@pytest.mark.parametrize("one_class", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("kind", "solver"),
    [
        *(("memory", solver) for solver in SOLVERS),
        ("sparse", "cvm"),
        ("store", "mfw"),
        ("store", "pairwise"),
        ("dask", "pairwise"),
    ],
)
def test_resumed_at_every_moment_it_gives_the_same_bits(tmp_path, solver, kind, one_class):
    """Each run gets a little further, whatever it is doing; the next one goes on from there."""
    X, y = SOURCES[kind](*blobs(250, seed=4), tmp_path)
    ball = Ball(X, None if one_class else y, solver=solver, sampling=40, ball_tol=1e-6)
    watch = StopAt()
    whole = ball.train(limits=Limits(interrupted=watch))
    assert whole.certificate.converged
    assert watch.count > 12
    phases = set()

    def attempt(folder, interrupted):
        with Checkpoint(folder, {}) as checkpoint:
            result = ball.train(checkpoint=checkpoint, limits=Limits(interrupted=interrupted))
            saved = checkpoint.latest()
            if saved is not None:
                phases.add(saved.values["phase"])
            return result

    firsts = range(1, watch.count, max(1, watch.count // 6))
    assert_resumed_to_the_same_bits(attempt, tmp_path, firsts, whole, then=(2, 1, 3, 7, -1))
    assert "search" in phases
    assert len(phases) > 1


@pytest.mark.parametrize("one_class", [False, True])
def test_saved_at_every_round_and_killed_it_gives_the_same_bits(tmp_path, problem, one_class):
    """A generation of each round is what a kill after it would leave."""
    X, y = problem
    ball = Ball(X, None if one_class else y, sampling=40)
    whole = ball.train()

    class Killed(BaseException):
        pass

    class Kill:
        def __init__(self, after):
            self.left = after

        def __call__(self, event):
            self.left -= type(event) is events.Checkpointed
            if not self.left:
                raise Killed

    for after in (1, 2, 3):
        with Checkpoint(tmp_path / f"{after}", {}) as checkpoint:
            for _ in range(2):
                with pytest.raises(Killed):
                    ball.train(checkpoint=checkpoint, checkpoint_every=1e-9, listener=Kill(after))
            assert_same_bits(ball.train(checkpoint=checkpoint), whole)


def test_killed_between_search_and_sweep_it_searches_the_rest_again(tmp_path, problem):
    X, y = problem
    ball = Ball(X, y, sampling=40)
    whole = ball.train()
    with Checkpoint(tmp_path / "run", {}) as checkpoint:
        # As a process that was killed then leaves it: the search's own generations, no other.
        search = ball.search(checkpoint=checkpoint, checkpoint_every=1e-9)
        assert search.run() is StopReason.SAMPLED
        assert checkpoint.latest().values["phase"] == "search"
        assert_same_bits(ball.train(checkpoint=checkpoint), whole)
        # And once more: the run is over.
        assert_same_bits(ball.train(checkpoint=checkpoint), whole)


def test_the_seed_is_another_search_of_the_same_ball(problem, optimum):
    X, y = problem
    one, other = (Ball(X, y, seed=seed).search() for seed in (0, 1))
    one.run()
    other.run()
    assert set(one.core.indices) != set(other.core.indices)
    assert Ball(X, y, seed=1).train().certificate.objective == pytest.approx(optimum, rel=1e-6)


def test_rounds_are_bounded(problem, monkeypatch):
    """However small a sample, so many are looked at together at most, and rows of all of them."""
    X, y = problem
    asked = []
    draw = RandomRows.draw

    def counted(rows, count):
        asked.append(count)
        return draw(rows, count)

    monkeypatch.setattr(RandomRows, "draw", counted)
    Ball(X, y, sampling=7).search().run()
    assert max(asked) <= frank_wolfe.MOST_SAMPLES * 7
    assert all(count % 7 == 0 for count in asked)
    asked.clear()
    Ball(X, y, sampling="all").search().run()
    assert set(asked) == {600}

"""Steps of all active rows together: each is exact and uphill, and a run by them is a run."""

import itertools

import naive
import numpy as np
import pytest
import scipy.sparse as sp
from support.problems import Ball, blobs, dense_alpha, gram
from support.resuming import StopAt, assert_resumed_to_the_same_bits, with_checkpoint

from bigsvm.budget import TrainingPlan
from bigsvm.conversion.from_arrays import write_store
from bigsvm.executors.working_rows import WorkingRows
from bigsvm.gram.low_rank import SMALLEST_RANK, rank_of_model
from bigsvm.gram.row_cache import RowBuffer
from bigsvm.interruption import checked_by
from bigsvm.kernels import Sigmoid
from bigsvm.training import events, loop
from bigsvm.training.result import StopReason
from bigsvm.training.state import Limits
from bigsvm.working_sets import choice
from bigsvm.working_sets.active import ActiveRows
from bigsvm.working_sets.model_steps import ModelSteps


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """More rows than these step together."""
    monkeypatch.setattr(choice, "MANY_TOGETHER", 100)


@pytest.fixture
def steps(monkeypatch):
    """Gains of all steps that are taken."""
    gains = []
    take = ModelSteps.take

    def taken(self, *, tol=0.0):
        gains.append(take(self, tol=tol))
        return gains[-1]

    monkeypatch.setattr(ModelSteps, "take", taken)
    return gains


def little():
    """What models of rank 1, 2, ... lack: so much that the largest is wanted."""
    return np.full(768, 0.01)


def optimum(X, y, C=5.0):
    K = (gram(X) + 1) * np.outer(y, y) + np.eye(len(y)) / C
    return 0.5 * naive.l2_svc(K).sum()


def plan_of(gram_bytes):
    return TrainingPlan(1, 1, 1, gram_bytes, 1, {}, 1)


@pytest.mark.parametrize(("capacity", "within"), [(250, 5e-3), (700, 1e-4)])
def test_each_step_is_uphill_and_outputs_stay_exact(capacity, within):
    X, y = blobs(400)
    problem = Ball(X, y, capacity=capacity, lack=little)
    alpha, outputs = np.zeros(400), np.zeros(400)
    with problem.tiles() as tiles:
        rows = WorkingRows(problem.source).gathered(np.arange(400))
        active = ActiveRows(problem.dual, tiles, rows, np.arange(400), alpha, outputs)
        plan, buffer = problem.plan, RowBuffer(problem.plan.gram_bytes)
        steps = ModelSteps(active, plan, buffer)
        assert buffer.n_touched == 400 * rank_of_model(400, plan.gram_bytes, wanted=768)
        before = 0.0
        for _ in range(12):
            gain = steps.take()
            standing = active.optimality()
            assert gain >= -1e-6 * standing.objective
            np.testing.assert_allclose(
                standing.objective - before, gain, atol=1e-3 + 1e-4 * abs(gain)
            )
            before = standing.objective
            np.testing.assert_allclose(outputs, (gram(X) + 1) @ alpha, atol=2e-3)
    assert ((alpha == 0) | (np.sign(alpha) == y)).all()
    np.testing.assert_allclose(standing.objective, optimum(X, y), rtol=within)


def test_a_step_that_is_interrupted_changes_nothing():
    class Interrupted(Exception):
        pass

    def check():
        raise Interrupted

    X, y = blobs(400)
    problem = Ball(X, y, lack=little)
    alpha, outputs = np.zeros(400), np.zeros(400)
    with problem.tiles() as tiles:
        rows = WorkingRows(problem.source).gathered(np.arange(400))
        active = ActiveRows(problem.dual, tiles, rows, np.arange(400), alpha, outputs)
        steps = ModelSteps(active, problem.plan, RowBuffer(problem.plan.gram_bytes))
        with checked_by(check), pytest.raises(Interrupted):
            steps.take()
    assert not alpha.any()
    assert not outputs.any()


@pytest.mark.parametrize("one_class", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_run_of_model_steps_ends_at_the_optimum(steps, sparse, one_class):
    X, y = blobs(600, overlap=1.5)
    source = sp.csr_array(X) if sparse else X
    found = Ball(source, None if one_class else y, lack=little, sampling=40).train()
    without = Ball(source, None if one_class else y, sampling=40).train()
    assert found.certificate.converged
    assert steps
    assert min(steps) >= -1e-6 * found.certificate.objective
    np.testing.assert_allclose(
        found.certificate.objective, without.certificate.objective, rtol=1e-6
    )
    alpha, K = dense_alpha(found, 600), gram(X) + (0 if one_class else 1)
    dual = np.abs(alpha).sum() - 0.5 * (alpha @ K @ alpha + alpha @ alpha / 5.0)
    np.testing.assert_allclose(dual, found.certificate.objective, rtol=1e-5)


@pytest.mark.parametrize("kind", ["memory", "store"])
def test_resumed_at_every_moment_it_gives_the_same_bits(tmp_path, steps, kind, monkeypatch):
    monkeypatch.setattr(loop, "LEAST_GAIN", 1e-6)
    X, y = blobs(700, seed=4, overlap=1.5)
    if kind == "store":
        store = write_store(tmp_path / "s.zarr", X, y.astype(float))
        X, y = store.rows, store.labels()
    problem = Ball(X, y, sampling=20, lack=little, capacity=900)
    watch = StopAt()
    whole = problem.train(limits=Limits(interrupted=watch))
    assert whole.certificate.converged
    assert len(steps) > 1
    firsts = range(1, watch.count, max(1, watch.count // 8))
    assert_resumed_to_the_same_bits(
        with_checkpoint(problem.train), tmp_path, firsts, whole, then=(2, 1, 3, 7, -1)
    )


def test_model_steps_are_reported_and_counted(steps):
    X, y = blobs(600, overlap=1.5)
    told = []
    Ball(X, y, lack=little, sampling=40).train(listener=told.append)
    solving = [event for event in told if isinstance(event, events.Solving)]
    together = [b for a, b in itertools.pairwise(solving) if b.steps == a.steps + 1]
    assert len(together) >= len(steps) - 1


def test_no_step_is_taken_beyond_max_iter(steps):
    X, y = blobs(600, overlap=1.5)
    problem = Ball(X, y, lack=little, sampling=40)
    searched = problem.search(certify=True)
    searched.run()
    limit = searched.count.n_iter + 1
    found = problem.train(limits=Limits(max_iter=limit))
    assert found.certificate.n_iter == limit
    assert len(steps) == 1
    assert found.certificate.stop_reason is StopReason.MAX_ITER


def test_model_steps_end_without_a_gain(steps, monkeypatch):
    monkeypatch.setattr(loop, "LEAST_GAIN", np.inf)
    X, y = blobs(600, overlap=1.5)
    assert Ball(X, y, lack=little, sampling=40).train().certificate.converged


@pytest.mark.parametrize("lack", [None, lambda: np.ones(768)])
def test_no_model_steps_without_a_good_model(steps, lack):
    X, y = blobs(600, overlap=1.5)
    assert Ball(X, y, sampling=40, lack=lack).train().certificate.converged
    assert not steps


def test_few_violators_take_pair_steps(steps, monkeypatch):
    monkeypatch.setattr(choice, "MANY_TOGETHER", 600)
    X, y = blobs(600, overlap=1.5)
    assert Ball(X, y, sampling=40, lack=little).train().certificate.converged
    assert not steps


def test_an_indefinite_kernel_has_no_model_and_pair_steps_go_on(monkeypatch):
    X, y = blobs(300)
    problem = Ball(X, y, kernel=Sigmoid(gamma=2.0, coef0=-1.0), lack=little)
    alpha, outputs = np.zeros(300), np.zeros(300)
    with problem.tiles() as tiles:
        rows = WorkingRows(problem.source).gathered(np.arange(300))
        active = ActiveRows(problem.dual, tiles, rows, np.arange(300), alpha, outputs)
        given = active, problem.plan, RowBuffer(problem.plan.gram_bytes)
        with pytest.raises(np.linalg.LinAlgError):
            ModelSteps(*given)
        assert ModelSteps.of(*given) is None
    monkeypatch.setattr(ModelSteps, "of", lambda *_: None)
    assert Ball(X, y, lack=little, sampling=20).train().certificate.converged


@pytest.mark.parametrize("n_rows", [0, 1, 100, 130, 5000, 10**6])
@pytest.mark.parametrize("gram_bytes", [10**5, 10**7, 10**9])
def test_a_model_takes_no_more_than_the_memory_of_kernel_rows(n_rows, gram_bytes):
    rank = rank_of_model(n_rows, gram_bytes, wanted=768)
    assert 4 * rank * (n_rows + 12 * rank) <= gram_bytes
    assert rank == 0 or SMALLEST_RANK <= rank <= n_rows // 2

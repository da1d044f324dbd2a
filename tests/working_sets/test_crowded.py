"""Runs whose scopes have many more violators than a working set holds."""

import functools
import itertools

import numpy as np
import pytest
from support.problems import blobs, decomposition, gram, target
from support.resuming import StopAt, assert_resumed_to_the_same_bits, with_checkpoint
from support.same import assert_same_bits

from bigsvm.conversion.from_arrays import write_store
from bigsvm.duals.formulations import CSVC, EpsilonSVR, NuClassification, OneClass, SquaredHingeSVC
from bigsvm.training.state import Limits
from bigsvm.working_sets.active import ActiveRows

N_ROWS, SMALL = 1200, 100


@pytest.fixture(autouse=True)
def small_scopes(monkeypatch):
    for name, value in {
        "working_sets.choice.FIRST_SCOPE": 300,
        "working_sets.choice.DIRECT_ROWS": 0,
        "working_sets.choice.SMALLEST_SET": SMALL // 3,
    }.items():
        monkeypatch.setattr(f"bigsvm.{name}", value)


@pytest.fixture
def pivots(monkeypatch):
    """Rows whose neighbours became a working set."""
    found = []
    kernel_row = ActiveRows.kernel_row

    def spied(self, place):
        found.append(int(self.indices[place]))
        return kernel_row(self, place)

    monkeypatch.setattr(ActiveRows, "kernel_row", spied)
    return found


FORMULATIONS = {
    "c-svc": lambda X, y: CSVC(sign=y, C=1.0),
    "squared": lambda X, y: SquaredHingeSVC(sign=y, C=1.0),
    "nu-svc": lambda X, y: NuClassification(sign=y, nu=0.5),
    "one-class": lambda X, y: OneClass(n_rows=len(y), nu=0.5),
    "eps-svr": lambda X, y: EpsilonSVR(target=target(X), C=1.0, epsilon=0.02),
}


def crowded(X, y, **options):
    return decomposition(X, y, working_set=SMALL, active_rows=N_ROWS, **options).run()


@pytest.mark.parametrize("kind", FORMULATIONS)
def test_resumed_between_sets_of_neighbours_it_gives_the_same_bits(kind, tmp_path, pivots):
    X, y = blobs(N_ROWS, overlap=1.5)
    settings = {"formulation": FORMULATIONS[kind](X, y)}
    watch = StopAt()
    whole = crowded(X, y, limits=Limits(interrupted=watch), **settings)
    assert whole.certificate.converged
    of_whole = list(pivots)
    assert len(of_whole) > 2
    pivots.clear()
    train = functools.partial(crowded, X, y, **settings)
    firsts = (watch.count // 3, 4 * watch.count // 5)
    assert_resumed_to_the_same_bits(with_checkpoint(train), tmp_path, firsts, whole)
    assert set(pivots) <= set(of_whole)


def test_threads_do_not_change_the_bits(pivots):
    X, y = blobs(N_ROWS, overlap=1.5)
    alone = crowded(X, y)
    assert pivots
    assert_same_bits(crowded(X, y, threads=3), alone)


def test_rows_of_a_store_are_chosen_as_neighbours_too(tmp_path, pivots):
    X, y = blobs(N_ROWS, overlap=1.5)
    in_memory = crowded(X, y)
    pivots.clear()
    rows = write_store(tmp_path / "s.zarr", X, y.astype(float), shuffle=False).rows
    streamed = crowded(rows, y)
    assert pivots
    assert streamed.certificate.converged
    assert streamed.certificate.objective == pytest.approx(
        in_memory.certificate.objective, rel=1e-6
    )


def test_no_scope_leads_away_from_the_optimum(pivots, monkeypatch):
    """A part of very many violators solved alone leaves a larger gap and a worse classifier."""
    monkeypatch.setattr("bigsvm.working_sets.choice.FIRST_SCOPE", 240)
    X, y = blobs(2 * N_ROWS, overlap=1.5, seed=1)
    held_out, its_classes = X[N_ROWS:], y[N_ROWS:]
    X, y = X[:N_ROWS], y[:N_ROWS]
    run = decomposition(X, y, gamma=0.1, working_set=80, active_rows=N_ROWS)
    between = gram(np.concatenate([held_out, X]), 0.1)[: len(held_out), len(held_out) :]
    begins, ends, accuracies = {}, [], []
    select, grow = run._select, run._passes.grow

    def selecting():
        standing = run._run.dual.optimality(*run._run.of_scope())
        begins.setdefault(run.count.scope, standing.gap)
        select()

    def growing():
        alpha, outputs = run._run.of_scope()
        standing = run._run.dual.optimality(alpha, outputs)
        values = between[:, : len(alpha)] @ alpha + standing.thresholds[0]
        ends.append(standing.gap)
        accuracies.append(np.mean(np.where(values > 0, 1, -1) == its_classes))
        grow()

    run._select, run._passes.grow = selecting, growing
    assert run.run().certificate.converged
    assert list(begins) == [240, 420, 735, N_ROWS]
    for begin, end in zip(begins.values(), ends, strict=False):
        assert end < 0.5 * begin
    error = np.sqrt(0.25 / len(its_classes))
    for before, after in itertools.pairwise(accuracies):
        assert after >= before - 2 * error
    assert len(pivots) > 3

"""What workers compute has the bits of one machine."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from support.problems import blobs

from bigsvm.data.sources import as_row_source
from bigsvm.executors import tasks
from bigsvm.executors.executor import Exact, Products, WeightedRows
from bigsvm.executors.messages import Chosen, Job, SentJob, SentPiece, Unit
from bigsvm.executors.worker_state import OpenJob
from bigsvm.gram import KernelTiles
from bigsvm.gram.partners import rows_at
from bigsvm.kernels import RBF


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize(("at_once", "step"), [(64, 512), (300, 512), (512, 512), (1100, 512)])
def test_products_by_halves_are_those_of_one_machine(at_once, step, k, sparse):
    X, _ = blobs(1300)
    X = sp.csr_array(X) if sparse else X
    weights = np.random.default_rng(0).standard_normal((1300, k) if k > 1 else 1300)
    kernel = RBF(gamma=0.5)
    sent = SentJob(
        "run", f"halves-{at_once}-{k}-{sparse}", pickle.dumps(Job(None, kernel, None, 0.0, sparse))
    )
    weighted = WeightedRows(weights, lambda places: rows_at(X[places]), at_once=at_once)
    pieces, start = [], 0
    for number, piece in enumerate(weighted.pieces()):
        pieces.append(SentPiece(f"piece-{number}", start, piece.rows.rows, piece.weights))
        start += len(piece.weights)
    sums = [
        tasks.add_up_halves(sent, pieces, low, min(low + step, stop)).values
        for first, stop in weighted.spans()
        for low in range(first, stop, step)
    ]
    source = as_row_source(X)
    with KernelTiles(kernel, dtype=np.float64) as tiles:
        exact = Exact(Products(source), tiles, source.take, at_once=at_once)
        expected = exact.outputs(np.arange(1300), weights)
    np.testing.assert_array_equal(np.concatenate(sums), expected)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("k", [1, 3])
def test_sums_do_not_depend_on_how_many_partners_are_packed_together(monkeypatch, k, sparse, exact):
    X, _ = blobs(1500)
    X = sp.csr_array(X) if sparse else X
    weights = np.random.default_rng(0).standard_normal((1300, k) if k > 1 else 1300)
    pieces = [
        SentPiece("piece", 0, X[:1100], weights[:1100]),
        SentPiece("last", 1100, X[1100:1300], weights[1100:]),
    ]
    sums, packed = [], []
    pack = OpenJob._pack
    monkeypatch.setattr(
        OpenJob, "_pack", lambda *given, **named: packed.append(1) or pack(*given, **named)
    )
    for memory in (1 << 30, 0):
        tasks.PROCESS.open(f"run-{memory}", memory)
        job = Job(None, RBF(gamma=0.5), None, 0.0, sparse)
        sent = SentJob(f"run-{memory}", "job", pickle.dumps(job))
        for unit in (Unit(0, 800, X[:800]), Unit(800, 1500, X[800:])):
            chosen = Chosen(unit.start, unit.stop)
            sums.append(tasks.add_up(sent, pieces, unit, chosen, None, exact).values)
        tasks.forget_run(f"run-{memory}")
    assert len(packed) == 2 + 8  # once, and part by part for each unit
    np.testing.assert_array_equal(np.concatenate(sums[:2]), np.concatenate(sums[2:]))

"""The weighted variance: against repeated rows, near its numerical limits, and its memory."""

import tracemalloc

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from support.stores import make_chunks_small

import bigsvm
from bigsvm.data.sources import as_row_source
from bigsvm.fit.gamma import weighted_variance
from bigsvm.interruption import checked_by
from bigsvm.training.events import Hooks

FORMS = [np.asarray, sp.csr_array, lambda X: da.from_array(X, chunks=(70, 5))]


def rows(n=500, d=5, *, density=0.5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) * (rng.random((n, d)) < density)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("density", [0.1, 1.0])
@pytest.mark.parametrize("block_bytes", [300, 1 << 20])
def test_variance_with_weights_is_that_of_repeated_rows(form, density, block_bytes):
    X = rows(density=density)
    weights = np.random.default_rng(1).integers(0, 4, len(X))
    weights[:200] = 0  # whole blocks of nothing, the first among them
    value = weighted_variance(
        as_row_source(form(X)), weights.astype(float), block_bytes=block_bytes
    )
    assert value == pytest.approx(np.repeat(X, weights, axis=0).var(), rel=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_weights_that_are_no_whole_numbers(form):
    X = rows()
    weights = np.random.default_rng(1).random(len(X)) * 1e-3
    mean = np.average(X, weights=np.repeat(weights[:, None], 5, axis=1))
    exact = np.average((X - mean) ** 2, weights=np.repeat(weights[:, None], 5, axis=1))
    value = weighted_variance(as_row_source(form(X)), weights, block_bytes=1 << 20)
    assert value == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("form", FORMS)
def test_variance_far_from_the_origin_is_accurate(form):
    X = rows(density=1.0) + 1e7
    value = weighted_variance(as_row_source(form(X)), np.full(len(X), 2.0), block_bytes=4000)
    assert value == pytest.approx(X.var(), rel=1e-9)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_columns", [1, 3, 7])
@pytest.mark.parametrize("value", [0.1, 1e5 / 3, -7.0])
def test_equal_values_have_no_variance(form, n_columns, value):
    X, weights = np.full((40, n_columns), value), np.random.default_rng(0).uniform(0.1, 3, 40)
    X[:5], weights[:5] = value + 3, 0.0
    assert weighted_variance(as_row_source(form(X)), weights, block_bytes=1 << 20) == 0.0
    assert as_row_source(form(X[5:])).total_variance() == 0.0
    assert as_row_source(form(X)).total_variance() == pytest.approx(X.var())


@pytest.mark.parametrize("form", FORMS)
def test_rows_without_weight_do_not_count(form):
    X = rows(density=1.0)
    X[7] = 1e100
    weights = np.ones(len(X))
    weights[7] = 0
    value = weighted_variance(as_row_source(form(X)), weights, block_bytes=1 << 20)
    assert value == pytest.approx(np.delete(X, 7, axis=0).var(), rel=1e-12)


def test_wide_sparse_rows_are_never_dense():
    X = sp.random_array((2000, 100_000), density=1e-4, format="csr", rng=np.random.default_rng(0))
    source, weights = as_row_source(X), np.ones(2000)
    tracemalloc.start()
    try:
        weighted_variance(source, weights, block_bytes=64 << 20)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 * 8 * 100_000  # a few numbers a column; dense 1600 MB


def interrupted():
    raise KeyboardInterrupt


@pytest.mark.parametrize("blocks", [{"block_bytes": 1 << 10}, {"block_bytes": 1 << 20}])
def test_variance_can_be_interrupted(blocks, monkeypatch):
    monkeypatch.setattr("bigsvm.fit.gamma._VALUES_AT_ONCE", 100)
    with checked_by(interrupted), pytest.raises(KeyboardInterrupt):
        weighted_variance(as_row_source(rows()), np.ones(500), **blocks)


@pytest.mark.parametrize("sparse", [False, True])
def test_workers_compute_the_same_bits(client, sparse, monkeypatch, tmp_path):
    make_chunks_small(monkeypatch)
    rng = np.random.default_rng(3)
    X = rng.standard_normal((9000, 40)).astype(np.float32)
    X = sp.csr_array(X * (X > 0)) if sparse else X
    store = bigsvm.write_store(tmp_path / "rows.zarr", X, np.zeros(9000))
    weights = rng.integers(3, size=9000) * 0.7
    weights[:3000] = 0
    here, there = store.rows, bigsvm.open_store(store.path).rows
    with_client = Hooks(client=client)
    assert weighted_variance(there, weights, block_bytes=1 << 18, hooks=with_client) == (
        weighted_variance(here, weights, block_bytes=1 << 18)
    )
    # A few spans are computed here too, to check the workers.
    assert there.bytes_read < here.bytes_read
    with checked_by(interrupted), pytest.raises(KeyboardInterrupt):
        weighted_variance(there, weights, block_bytes=1 << 18, hooks=with_client)

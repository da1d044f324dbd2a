"""Predictions that the workers of a cluster compute have the bits of this machine."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

import bigsvm
from bigsvm.data.in_memory import ArrayRows
from bigsvm.errors import MemoryBudgetError, ParameterError
from bigsvm.executors import units
from bigsvm.executors.messages import WorkerTerms
from bigsvm.executors.workforce import Workforce
from bigsvm.models import prediction

ROWS, COLUMNS = 600, 30

pytestmark = pytest.mark.usefixtures("compiled_predictions")


@pytest.fixture(scope="module")
def rows():
    return np.random.default_rng(0).standard_normal((ROWS, COLUMNS)).astype(np.float32)


@pytest.fixture(scope="module")
def labels():
    return np.random.default_rng(1).integers(4, size=ROWS)


@pytest.fixture(autouse=True)
def small_units(monkeypatch):
    """Some tasks for each worker, however few rows there are."""
    monkeypatch.setattr(units, "SENT_UNIT_BYTES", 1 << 13)
    monkeypatch.setattr(units, "UNIT_BYTES", 1 << 13)


def assert_same_values(model, source, client):
    np.testing.assert_array_equal(
        model.decision_function(source, client=client), model.decision_function(source)
    )
    np.testing.assert_array_equal(model.decide(source, client=client), model.decide(source))
    if model.rule is not None:
        np.testing.assert_array_equal(
            model.class_values(source, client=client), model.class_values(source)
        )


@pytest.mark.parametrize(
    ("kernel", "multiclass"),
    [
        ("rbf", None),
        ("linear", "ovo"),
        pytest.param("laplacian", "ovr", marks=pytest.mark.slow),
    ],
)
def test_arrays(client, rows, labels, kernel, multiclass):
    if multiclass is None:
        model = bigsvm.SVC(kernel=kernel, gamma=0.05).fit(rows, labels % 2).model_
    else:
        model = (
            bigsvm.SVC(kernel=kernel, gamma=0.05, multiclass=multiclass).fit(rows, labels).model_
        )
    with_workers = Workforce(client)
    assert_same_values(model, ArrayRows(rows), with_workers)
    assert with_workers.traffic.tasks > 10
    assert with_workers.traffic.evaluations > 0
    with_workers.close()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("coefficients", [1, 1e9])
def test_both_precisions(client, rows, labels, dtype, coefficients):
    """float32 rows are predicted in float64 where coefficients are large."""
    model = bigsvm.SVC(gamma=0.05).fit(rows.astype(dtype), labels % 2).model_
    from dataclasses import replace

    model = replace(model, coefficients=model.coefficients * coefficients)
    assert_same_values(model, ArrayRows(rows.astype(dtype)), client)


@pytest.mark.parametrize("columns", [COLUMNS, 200_000])
@pytest.mark.parametrize("pieces", [False, True])
def test_sparse_rows(client, labels, columns, pieces, monkeypatch):
    rng = np.random.default_rng(2)
    shape = (ROWS, columns)
    X = sp.random_array(shape, density=15 / columns, rng=rng, format="csr").astype("f4")
    model = bigsvm.SVC(gamma=0.05).fit(X, labels % 2).model_
    if pieces:
        monkeypatch.setattr(prediction, "SHARE_LAID_OUT", 1e-3)
    assert_same_values(model, ArrayRows(sp.csr_array(X)), client)


def test_stores_scaled_here_or_there(client, rows, labels, tmp_path):
    store = bigsvm.write_store(tmp_path / "rows.zarr", rows, labels % 2)
    scaled = bigsvm.scale_store(store, tmp_path / "scaled.zarr")
    model = bigsvm.SVC(gamma=0.5).fit(scaled).model_
    with_workers = Workforce(client)
    for source in (store.rows, scaled.rows):
        assert_same_values(model, source, with_workers)
    with_workers.close()
    # Workers read the rows, and are sent the model.
    traffic = with_workers.traffic
    assert sum(traffic.bytes_read.values()) >= 2 * rows.nbytes
    assert traffic.bytes_sent < 1.05 * traffic.bytes_moved * traffic.n_workers


def test_dask_arrays_and_kernel_matrices(client, rows, labels):
    model = bigsvm.SVC(gamma=0.05).fit(rows, labels % 2).model_
    blocks = client.persist(da.from_array(rows, chunks=(200, COLUMNS)))
    np.testing.assert_array_equal(
        model.decision_function(blocks, client=client), model.decision_function(ArrayRows(rows))
    )
    gram = rows @ rows.T
    matrix = bigsvm.SVC(kernel="precomputed", C=0.01).fit(gram, labels % 2).model_
    assert_same_values(matrix, ArrayRows(gram[:100]), client)


def test_progress_goes_on_and_may_end_the_pass(client, rows, labels):
    model = bigsvm.SVC(gamma=0.05).fit(rows, labels % 2).model_
    seen = []
    model.decision_function(rows, client=client, on_progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == ROWS

    def stop(done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.decision_function(rows, client=client, on_progress=stop)


def test_what_cannot_work_is_refused(client, rows, labels):
    model = bigsvm.SVC(gamma=0.05).fit(rows, labels % 2).model_
    with pytest.raises(ParameterError, match=r"client is 'tcp://.*must be a distributed\.Client"):
        model.decide(rows, client="tcp://127.0.0.1:1")
    small = Workforce(client, WorkerTerms(memory=100_000))
    with pytest.raises(MemoryBudgetError, match=r"the model takes .* on each worker"):
        model.decide(rows, client=small)
    small.close()

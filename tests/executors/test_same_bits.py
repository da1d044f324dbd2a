"""A model has the same bits, whatever computes its passes."""

import numpy as np
import pytest
import scipy.sparse as sp
from support.cluster_fits import FITS, assert_same_fit, fit, problem, stored
from support.clusters import opened_cluster
from support.stores import make_chunks_small

from bigsvm.conversion.from_arrays import write_store
from bigsvm.conversion.scaling import scale_store
from bigsvm.data.sources import as_row_source
from bigsvm.data.store import open_store
from bigsvm.data.wrappers import narrowed
from bigsvm.executors.messages import WorkerTerms
from bigsvm.executors.passes import Pass
from bigsvm.gram.partners import PARTNERS_PER_TILE

distributed = pytest.importorskip("distributed")

pytestmark = pytest.mark.usefixtures("many_tasks")

LEAST_TASKS = 20
"""Of a pass over all rows."""
NIGHTLY = ("squared hinge", "eps-svr", "one-class")
"""Formulations whose duals are like those of others."""
SLICE = [
    pytest.param(name, number % 2 == 1, marks=[pytest.mark.slow] if name in NIGHTLY else [])
    for number, name in enumerate(FITS)
]
"""Each formulation with one layout."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        make_chunks_small(patch)
        yield tmp_path_factory.mktemp("stores")


@pytest.fixture
def workers(client):
    """Two workers; the slow tests below have other numbers of them."""
    return client


@pytest.fixture
def passes(monkeypatch):
    """Names and numbers of tasks of all passes on workers."""
    begun, begin = [], Pass.__init__

    def noted(self, workforce, sent, calls, *arguments, name, **options):
        begun.append((name, len(calls)))
        begin(self, workforce, sent, calls, *arguments, name=name, **options)

    monkeypatch.setattr(Pass, "__init__", noted)
    return begun


def assert_computed_by_workers(passes):
    assert max(n for name, n in passes if name == "bigsvm-pass") >= LEAST_TASKS
    assert {name for name, _ in passes} >= {"bigsvm-pass", "bigsvm-take"}


def here_and_there(folder, name, client, *, sparse):
    labels, options = FITS[name]
    rows, y = stored(folder, labels, sparse=sparse)
    assert_same_fit(fit(rows, y, options, client), fit(rows, y, options))


@pytest.mark.parametrize(("name", "sparse"), SLICE)
def test_formulations_on_workers(folder, name, sparse, workers, passes):
    here_and_there(folder, name, workers, sparse=sparse)
    assert_computed_by_workers(passes)


@pytest.mark.parametrize("name", ["c-svc", pytest.param("one-vs-rest", marks=pytest.mark.slow)])
def test_rows_that_have_moved_need_not_fit_on_a_worker(folder, name, workers, passes):
    labels, options = FITS[name]
    rows, y = stored(folder, labels)
    options = options | {"C": 0.01}
    expected = fit(rows, y, options)
    assert len(expected.support) > 2 * PARTNERS_PER_TILE  # so they are sent in parts
    some = 3 * 4 * rows.n_columns * PARTNERS_PER_TILE
    n_passes = []
    for memory in (10**9, some):
        model = fit(rows, y, options, workers, terms=WorkerTerms(memory=memory))
        assert_same_fit(model, expected)
        n_passes.append(len(passes))
        passes.clear()
    assert n_passes[1] > n_passes[0]


def test_support_vectors_of_a_store_come_from_the_workers(folder, workers, monkeypatch):
    labels, options = FITS["c-svc"]
    rows, y = stored(folder, labels)
    taken, take = [], type(rows).take

    def noted(self, indices):
        taken.append(len(indices))
        return take(self, indices)

    monkeypatch.setattr(type(rows), "take", noted)
    model = fit(rows, y, options, workers)
    assert max(taken, default=0) < len(model.support) / 4  # what is computed again here
    np.testing.assert_array_equal(model.support_vectors, take(rows, model.support))


@pytest.mark.slow
def test_one_worker_and_two(folder):
    for n_workers in (1, 2):
        with opened_cluster(n_workers) as cluster, distributed.Client(cluster) as client:
            here_and_there(folder, "c-svc", client, sparse=False)


@pytest.mark.parametrize("sparse", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_rows_in_memory_are_sent(workers, sparse, passes):
    labels, options = FITS["c-svc"]
    X, y = problem(labels, sparse=sparse)
    rows = as_row_source(X)
    rows.is_shuffled = True
    assert_same_fit(fit(rows, y, options, workers), fit(rows, y, options))
    assert max(n for name, n in passes if name == "bigsvm-pass") >= LEAST_TASKS


def test_rows_of_a_scaled_store(folder, workers, passes):
    labels, options = FITS["c-svc"]
    rows, y = stored(folder, labels)
    path = folder / "scaled.zarr"
    scale_store(folder / f"{labels}-False.zarr", path)
    rows, y = open_store(path).rows, open_store(path).labels()
    assert rows.scaler is not None
    assert_same_fit(fit(rows, y, options, workers), fit(rows, y, options))
    assert_computed_by_workers(passes)


@pytest.mark.slow
def test_rows_of_few_columns_among_many(folder, workers, passes):
    labels, options = FITS["c-svc"]
    X, y = problem(labels, sparse=True)
    shape = len(y), 10**6 * X.shape[1]
    wide = sp.csr_array((X.data, 10**6 * X.indices, X.indptr), shape=shape)
    store = write_store(folder / "wide.zarr", wide, y)
    rows, y = store.rows, store.labels()
    assert narrowed(rows)[0].n_columns < 100
    assert_same_fit(fit(rows, y, options, workers), fit(rows, y, options))
    assert_computed_by_workers(passes)


@pytest.mark.slow
@pytest.mark.parametrize("n_workers", [1, 2, 3, 5])
def test_formulations_on_any_number_of_workers(folder, n_workers):
    with opened_cluster(n_workers) as cluster, distributed.Client(cluster) as client:
        for name in FITS:
            for sparse in (False, True):
                here_and_there(folder, name, client, sparse=sparse)

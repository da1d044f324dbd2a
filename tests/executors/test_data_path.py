"""Rows of a run on workers: who reads them, who is sent them, and that the certificate says so."""

import contextlib

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from support import faulty_workers
from support.cluster_fits import FITS, assert_same_fit, fit, problem, stored
from support.clusters import opened_cluster
from support.stores import dense, make_chunks_small

from bigsvm.conversion.from_arrays import write_store
from bigsvm.data.dask_rows import DaskRows
from bigsvm.data.fetched import FetchedRows
from bigsvm.data.sources import as_row_source
from bigsvm.data.store import open_store
from bigsvm.data.wrappers import PartRows
from bigsvm.executors import passes as passes_module
from bigsvm.executors import sizing, units
from bigsvm.executors.passes import Pass
from bigsvm.executors.worker_rows import WorkerRows, of_workers
from bigsvm.executors.workforce import Workforce
from bigsvm.fit import problem as problem_module
from bigsvm.fit import sampling
from bigsvm.fit.duplicates import hashes_of
from bigsvm.models import KernelExpansion, prediction
from bigsvm.small.rule import SWITCH
from bigsvm.training.result import BYTES_OF_WORKERS, CLUSTER_COSTS
from bigsvm.working_sets import choice
from tools.fake_workers import fake_workforce

distributed = pytest.importorskip("distributed")

MOST_READ = 0.05
"""Share of the rows that this process may read from their source."""
ROOM = {"memory": 20 * 10**6}
"""All rows take a small share of this memory: a run without workers holds them."""
IN_CI = ("c-svc", "crammer-singer")


@pytest.fixture(autouse=True)
def random_order(monkeypatch):
    """Rows are trained in random order, and workers have some units each."""
    for module in (
        "bigsvm.working_sets.choice",
        "bigsvm.fit.variables",
        "bigsvm.fit.crammer_singer",
    ):
        monkeypatch.setattr(f"{module}.DIRECT_ROWS", 500)
    monkeypatch.setattr(choice, "FIRST_SCOPE", 500)
    monkeypatch.setattr(sizing, "UNITS_PER_THREAD", 5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        make_chunks_small(patch)
        yield tmp_path_factory.mktemp("stores")


@pytest.fixture
def fetched(monkeypatch):
    """Sources that fits have held by what workers sent."""
    made, make = [], FetchedRows.__init__

    def noted(self, source):
        made.append(self)
        make(self, source)

    monkeypatch.setattr(FetchedRows, "__init__", noted)
    return made


@pytest.fixture
def passes(monkeypatch):
    """Names of the passes on workers."""
    begun, begin = [], Pass.__init__

    def noted(self, *arguments, name, **options):
        begun.append(name)
        begin(self, *arguments, name=name, **options)

    monkeypatch.setattr(Pass, "__init__", noted)
    return begun


def size_of(rows):
    return rows.n_rows * rows.bytes_per_row


def assert_counts(model, rows, before=0):
    """Hold what a certificate says was read to what the source of the rows has counted."""
    costs = model.certificate
    assert costs["bytes_read"] <= MOST_READ * size_of(rows)
    assert rows.bytes_read - before == costs["bytes_read"] + costs["bytes_checked"]


@pytest.mark.parametrize("sparse", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in IN_CI else pytest.mark.slow) for n in FITS]
)
def test_stores_that_would_fit_stay_where_they_are(folder, client, fetched, passes, name, sparse):
    labels, options = FITS[name]
    options = options | ROOM
    rows, y = stored(folder, labels, sparse=sparse)
    model = fit(rows, y, options, client)
    assert_counts(model, rows)
    assert len(fetched) == 1
    assert {"bigsvm-rows", "bigsvm-pass", "bigsvm-take"} - {*passes} <= {"bigsvm-rows"}
    read = model.certificate[BYTES_OF_WORKERS]
    assert len(read) == 2
    # Each row once or, where a worker has done what another one was to do, twice.
    assert size_of(rows) <= sum(read) <= 2 * size_of(rows)
    assert 0 < model.certificate["bytes_fetched"] <= 1.1 * size_of(rows)
    assert model.certificate["bytes_sent"] < size_of(rows) * len(passes)
    assert_same_fit(model, fit(rows, y, options))


def test_equal_rows_of_a_store_are_found_by_workers(folder, client, tmp_path):
    X, y = (values[:2000] for values in problem("two"))
    X[1::4], y[1::4] = X[::4], y[::4]
    store = write_store(folder / "equal.zarr", X, y)
    rows, y, options = store.rows, store.labels(), FITS["c-svc"][1] | ROOM
    expected = fit(rows, y, options)
    before = rows.bytes_read  # of a fit before this one
    model = fit(rows, y, options, client)
    assert_counts(model, rows, before)
    assert_same_fit(model, expected)
    assert model.certificate["n_different"] == expected.certificate["n_different"] == 1500
    # What was read is kept in models.
    model.save(tmp_path / "model", timings=True)
    loaded = KernelExpansion.load(tmp_path / "model").certificate
    assert loaded == model.certificate
    assert {*CLUSTER_COSTS, BYTES_OF_WORKERS} <= loaded.keys()


@pytest.mark.parametrize("sparse", [False, True])
def test_statistics_of_a_part_of_a_store_are_those_of_rows_that_workers_send(
    folder, client, sparse
):
    stored(folder, "two", sparse=sparse)
    store = open_store(folder / f"two-{sparse}.zarr")
    whole, chosen = store.rows, np.flatnonzero(np.arange(store.rows.n_rows) % 3)
    y, options = store.labels()[chosen], FITS["c-svc"][1] | {"gamma": "scale"}
    expected = fit(PartRows(whole, chosen), y, options | ROOM)
    # What is left is which columns of sparse rows occur, before the run.
    before = whole.bytes_read
    model = fit(PartRows(whole, chosen), y, options | ROOM, client)
    read = whole.bytes_read - before - model.certificate["bytes_checked"]
    assert read <= (1 if sparse else MOST_READ) * size_of(whole)
    assert_same_fit(model, expected)


def test_random_rows_for_training_without_certificate_are_sent_by_workers(tmp_path, client):
    X, y = problem("two")
    # Small chunks, as of other stores here; this one is not shuffled.
    with pytest.MonkeyPatch.context() as patch:
        make_chunks_small(patch)
        rows = write_store(tmp_path / "sorted.zarr", X, y, shuffle=False).rows
    drawn, opened = [], []
    with pytest.MonkeyPatch.context() as patch:
        for module in (sampling, problem_module):
            patch.setattr(module, "DIRECT_ROWS", 100)
        patch.setattr(WorkerRows, "rows_with", _noted(WorkerRows.rows_with, drawn))
        patch.setattr(Workforce, "close", _noted(Workforce.close, opened, notes_self=True))
        options = FITS["c-svc"][1] | {"memory": 10**6, "certify": False}
        expected = fit(rows, y, options)
        assert not drawn
        before = rows.bytes_read
        model = fit(rows, y, options, client)
    [sent] = drawn
    assert len(sent) < rows.n_rows
    checked = sum(workforce.traffic.bytes_checked for workforce in opened)
    assert rows.bytes_read - before - checked <= MOST_READ * size_of(rows)
    assert_same_fit(model, expected)


def _noted(method, results, *, notes_self=False):
    def noted(*given):
        answer = method(*given)
        results.append(given[0] if notes_self else answer)
        return answer

    return noted


def test_few_rows_are_trained_here_and_read_once(folder, client, passes, monkeypatch):
    monkeypatch.setenv(SWITCH, "auto")
    X, y = (values[:2000] for values in problem("two"))
    store = write_store(folder / "few.zarr", X, y)
    before = store.rows.bytes_read
    model = fit(store.rows, store.labels(), FITS["c-svc"][1] | {"memory": 10**8}, client)
    assert not passes
    assert not {*CLUSTER_COSTS} & model.certificate.keys()
    assert store.rows.bytes_read - before == size_of(store.rows)


@contextlib.contextmanager
def beside_a_faulty_worker(rows, client, kind):
    """Yield rows that two workers send, of which one is wrong, and is named."""
    workforce = Workforce(client)
    workforce.wait_for_workers()
    address = min(workforce.workers)
    client.run(faulty_workers.fail, kind, workers=[address])
    try:
        with pytest.warns(UserWarning, match=f"worker {address} returned"):
            yield of_workers(rows, workforce)
    finally:
        client.run(faulty_workers.mend)
        workforce.close()


@pytest.fixture
def patience(monkeypatch):
    """Wait for the faulty worker, though another one could do its work."""
    for name in ("LATE_SECONDS", "SILENT_SECONDS"):
        monkeypatch.setattr(passes_module, name, 1e9)


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("kind", [*faulty_workers.HASHES, "none", "short"])
def test_a_worker_that_sends_wrong_hashes_is_left_out(folder, client, kind):
    rows, _ = stored(folder, "two")
    with beside_a_faulty_worker(rows, client, kind) as source:
        found = source.values(hashes_of, np.dtype(np.uint64))
    np.testing.assert_array_equal(found, hashes_of(rows.read(0, rows.n_rows)))


@pytest.mark.usefixtures("patience")
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", faulty_workers.KINDS)
def test_a_worker_that_sends_wrong_rows_is_left_out(folder, client, kind, sparse):
    rows, _ = stored(folder, "two", sparse=sparse)
    asked = np.random.default_rng(0).permutation(rows.n_rows)[:1000]
    with beside_a_faulty_worker(rows, client, kind) as source:
        found = source.take(asked)
    np.testing.assert_array_equal(dense(found), dense(rows.take(asked)))


@pytest.mark.parametrize("kind", ["dense", pytest.param("sparse", marks=pytest.mark.slow)])
@pytest.mark.parametrize("are_held", [True, False])
def test_persisted_arrays_stay_where_they_are(client, fetched, monkeypatch, kind, are_held):
    if not are_held:
        monkeypatch.setattr("bigsvm.fit.reduction.hold", lambda source, memory: source)
    labels, options = FITS["c-svc"]
    options = options | ROOM
    X, y = (values[:1500] for values in problem(labels))
    blocks = da.from_array(X * (X > 0) if kind == "sparse" else X, chunks=(200, -1))
    if kind == "sparse":
        blocks = blocks.map_blocks(sp.csr_array)
    blocks = client.persist(blocks)
    rows = DaskRows(blocks)
    before = rows.bytes_read
    model = fit(rows, y, options, client)
    assert_counts(model, rows, before)
    assert len(fetched) == are_held
    assert sum(model.certificate[BYTES_OF_WORKERS]) == 0  # they had the rows
    assert model.certificate["bytes_sent"] < size_of(rows) * model.certificate["tasks"]
    assert_same_fit(model, fit(DaskRows(blocks), y, options))


@pytest.mark.parametrize("small", [False, True])
def test_predictions_read_nothing_here(folder, client, monkeypatch, small):
    """Those of stores and of persisted arrays; some are read again to check workers."""
    rows, y = stored(folder, "two")
    model = fit(rows, y, FITS["c-svc"][1])
    monkeypatch.setattr(prediction, "FEW_NUMBERS", 10**9 if small else 0)
    X, _ = problem("two")
    blocks = DaskRows(client.persist(da.from_array(X, chunks=(300, -1))))
    for source, expected in ((open_store(folder / "two-False.zarr").rows, rows), (blocks, X)):
        before, workforce = source.bytes_read, Workforce(client)
        values = model.decision_function(source, client=workforce)
        workforce.close()
        read = source.bytes_read - before - workforce.traffic.bytes_checked
        assert read <= MOST_READ * size_of(source)
        assert workforce.traffic.tasks
        np.testing.assert_array_equal(values, model.decision_function(expected))


def test_a_run_without_workers_left_reads_rows_itself(folder, client):
    """Such as support vectors of a run that a time limit has ended."""
    rows, _ = stored(folder, "two")
    workforce, some = Workforce(client), np.array([700, 3, 3999])
    source = of_workers(rows, workforce)
    assert isinstance(source, WorkerRows)
    before = source.bytes_read
    np.testing.assert_array_equal(source.take(some), rows.take(some))
    assert workforce.traffic.bytes_fetched == 3 * rows.bytes_per_row
    workforce.workers.clear()
    workforce.changes += 1
    sent = workforce.traffic.bytes_fetched
    np.testing.assert_array_equal(source.take(some), rows.take(some))
    workforce.close()
    np.testing.assert_array_equal(source.read(5, 9), rows.read(5, 9))
    assert workforce.traffic.bytes_fetched == sent
    assert source.bytes_read > before


@pytest.mark.slow
@pytest.mark.parametrize("n_workers", [1, 3])
def test_any_number_of_workers(folder, n_workers):
    with opened_cluster(n_workers) as cluster, distributed.Client(cluster) as client:
        for name in FITS:
            labels, options = FITS[name]
            rows, y = stored(folder, labels)
            model = fit(rows, y, options | ROOM, client)
            assert_counts(model, rows)
            assert_same_fit(model, fit(rows, y, options | ROOM))


def test_a_worker_has_room_for_many_units():
    workforce = fake_workforce(2)
    for worker in workforce.workers.values():
        worker.opened = worker.opened._replace(memory=units.UNITS_OF_MEMORY * 400)
    rows = as_row_source(np.zeros((1000, 10), np.float32))
    assert units.Units(workforce, rows).most_rows == 10

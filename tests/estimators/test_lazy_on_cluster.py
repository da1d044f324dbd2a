"""Lazy predictions that the workers of a cluster compute."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

import bigsvm
from bigsvm.estimators import lazily

ROWS = 1200
# Labels that are drawn at random are learned by heart.
pytestmark = pytest.mark.filterwarnings("ignore::bigsvm.AdviceWarning")


@pytest.fixture(scope="module")
def clouds():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((ROWS, 40)).astype(np.float32)
    return X, rng.integers(3, size=ROWS)


@pytest.fixture(params=["copied to workers", "in the graph"])
def way(request, monkeypatch):
    """Either way in which tasks refer to the model."""
    if request.param == "copied to workers":
        monkeypatch.setattr(lazily, "LARGEST_IN_GRAPH", 0)
    return request.param


def of_kind(kind, X, folder):
    if kind == "dask":
        return da.from_array(X, chunks=(250, 40))
    if kind == "sparse dask":
        return da.from_array(X, chunks=(250, 40)).map_blocks(sp.csr_array)
    if kind == "persisted":
        return da.from_array(X, chunks=(250, 40)).persist()
    store = bigsvm.write_store(folder / "rows.zarr", X, np.zeros(len(X)))
    return bigsvm.scale_store(store, folder / "scaled.zarr") if kind == "scaled store" else store


@pytest.mark.parametrize("kind", ["dask", "sparse dask", "persisted", "store"])
def test_predictions_are_those_of_this_machine(client, clouds, kind, way, tmp_path):
    X, y = clouds
    two = bigsvm.SVC(gamma=0.1, calibration="sigmoid").fit(X, y == 1)
    many = bigsvm.SVC(gamma=0.1).fit(X, y)
    rows = of_kind(kind, X, tmp_path)
    for model, method in [
        (two, "decision_function"), (two, "predict"), (two, "predict_proba"),
        (many, "decision_function"), (many, "predict"),
    ]:  # fmt: skip
        here = getattr(model, method)(sp.csr_array(X) if kind == "sparse dask" else X)
        if kind == "store":
            here = here[bigsvm.open_store(rows.path).original_rows()]
        lazy = getattr(model, method)(rows)
        np.testing.assert_array_equal(lazy.compute(), here)


def test_scaled_stores_and_scores(client, clouds, way, tmp_path):
    X, y = clouds
    scaled = of_kind("scaled store", X, tmp_path)
    model = bigsvm.SVC(gamma=0.1).fit(scaled, scaled.row_values(y == 1, order="input"))
    order = scaled.original_rows()
    np.testing.assert_array_equal(model.predict(scaled).compute(), model.predict(X)[order])
    labels = scaled.row_values(y == 1, order="input")
    assert model.score(scaled, labels) == model.score(X, y == 1)


def test_a_large_model_is_sent_once_and_forgotten(client, clouds, monkeypatch):
    monkeypatch.setattr(lazily, "LARGEST_IN_GRAPH", 0)
    X, y = clouds
    model = bigsvm.SVC(gamma=0.1).fit(X, y == 1)
    rows = da.zeros((ROWS, 40), chunks=(100, 40), dtype=np.float32)
    before = set(client.who_has())  # the cluster has served other tests
    first, second = model.predict(rows), model.decision_function(rows)
    (key,) = set(client.who_has()) - before
    assert len(client.who_has()[key]) == 1  # other workers fetch it from this one
    assert first.compute().shape == second.compute().shape
    del first, second
    while key in client.who_has():
        client.sync(_moment)


async def _moment():
    import asyncio

    await asyncio.sleep(0.05)


@pytest.mark.parametrize("largest", [0, 1 << 30])
def test_the_model_is_no_part_of_each_task(client, clouds, monkeypatch, largest):
    import cloudpickle

    monkeypatch.setattr(lazily, "LARGEST_IN_GRAPH", largest)
    X, y = clouds
    model = bigsvm.SVC(gamma=0.1).fit(X, y == 1)
    rows = da.zeros((100 * 50, 40), chunks=(50, 40), dtype=np.float32)
    graph = model.predict(rows).__dask_graph__()
    tasks = [task for key, task in graph.items() if "_block_values" in str(key)]
    assert len(tasks) == 100
    most = max(len(cloudpickle.dumps(task)) for task in tasks)
    assert most < model.support_vectors_.nbytes / 10


def test_another_scheduler_gets_the_model_in_the_graph(client, clouds, monkeypatch):
    import dask

    monkeypatch.setattr(lazily, "LARGEST_IN_GRAPH", 0)
    X, y = clouds
    model = bigsvm.SVC(gamma=0.1).fit(X, y == 1)
    with dask.config.set(scheduler="synchronous"):
        lazy = model.predict(da.from_array(X, chunks=(250, 40)))
        np.testing.assert_array_equal(lazy.compute(), model.predict(X))

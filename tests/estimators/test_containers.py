"""Containers × {fit, predict, write_store}: as an array gives, or refused in a sentence."""

import numpy as np
import pytest
from containers import CONTAINERS, READ_BY_PREDICT, REFUSED, act
from sklearn.base import clone

from bigsvm import SVC, open_store, write_store
from bigsvm.data.sources import as_row_source
from bigsvm.errors import BigsvmError, MemoryBudgetError

pytestmark = pytest.mark.fault("containers")

N_ROWS = 400


@pytest.fixture(scope="module")
def matrix():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((N_ROWS, 7)).astype(np.float32)
    rows[rng.random(rows.shape) < 0.3] = 0
    return rows


@pytest.fixture(scope="module")
def y(matrix):
    return (matrix[:, 0] + matrix[:, 1] ** 2 > 0.5).astype(int)


@pytest.fixture(scope="module")
def model(matrix, y):
    return SVC(tol=1e-6).fit(matrix, y)


def original(store):
    rows = store.rows.read(0, store.rows.n_rows)
    rows = rows if isinstance(rows, np.ndarray) else rows.toarray()
    ordered = np.empty_like(rows)
    ordered[store.original_rows()] = rows
    return ordered


@pytest.mark.parametrize("name", CONTAINERS)
def test_fit(name, tmp_path, matrix, y, model):
    X = CONTAINERS[name](matrix, tmp_path)
    fitted = SVC(tol=1e-6).fit(X, y)
    assert fitted.converged_
    rows = as_row_source(matrix)
    expected = model.model_.decision_function(rows)
    np.testing.assert_allclose(fitted.model_.decision_function(rows), expected, atol=1e-4)


@pytest.mark.filterwarnings("ignore:X has feature names")
@pytest.mark.parametrize("name", CONTAINERS)
def test_predict(name, tmp_path, matrix, model):
    found = model.predict(CONTAINERS[name](matrix, tmp_path))
    np.testing.assert_array_equal(np.asarray(found), model.predict(matrix))


@pytest.mark.parametrize("name", CONTAINERS)
def test_write_store(name, tmp_path, matrix, y):
    store = write_store(tmp_path / "s", CONTAINERS[name](matrix, tmp_path), y, layout="dense")
    np.testing.assert_array_equal(original(store), matrix)
    np.testing.assert_array_equal(store.labels(), y[store.original_rows()])


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("action", ["fit", "predict", "write_store"])
def test_refusals(name, action, tmp_path, matrix, y, model):
    make, sentence = REFUSED[name]
    X = make(matrix, tmp_path)
    if action == "predict" and name in READ_BY_PREDICT:
        np.testing.assert_array_equal(model.predict(X), model.predict(matrix))
        return
    with pytest.raises(BigsvmError, match=sentence):
        act(action, X, y, tmp_path / "s", clone(model) if action == "fit" else model)
    assert not (tmp_path / "s").exists()


def test_group_of_a_store_is_the_store(tmp_path, matrix, y, model):
    import zarr

    write_store(tmp_path / "s", matrix, y)
    group = zarr.open_group(tmp_path / "s", mode="r")
    fitted, expected = SVC().fit(group), SVC().fit(tmp_path / "s")
    np.testing.assert_array_equal(fitted.support_, expected.support_)
    store = open_store(tmp_path / "s")
    np.testing.assert_array_equal(model.predict(group).compute(), model.predict(store).compute())
    labels = store.row_values(store.labels(), order="store")
    copy = write_store(tmp_path / "t", group, labels, shuffle=False)
    np.testing.assert_array_equal(original(copy), store.rows.read(0, N_ROWS))


@pytest.mark.filterwarnings("ignore:X has feature names")
@pytest.mark.parametrize("action", ["predict", "write_store"])
def test_missing_values_are_named(action, tmp_path, matrix, y, model):
    frame = CONTAINERS["pandas_nullable"](matrix, tmp_path)
    frame.iloc[211, 3] = None
    with pytest.raises(ValueError, match=r"NaN|nan in row 211, column 3"):
        act(action, frame, y, tmp_path / "s", model)


class TestTooLarge:
    """Blocks of rows that do not fit in memory are refused before they are computed."""

    @pytest.fixture
    def lazy(self):
        import dask.array as da

        def compute(block):
            raise AssertionError("a block was computed")

        rows = da.zeros((400_000, 50), chunks=(200_000, 50), dtype=np.float32)
        return rows.map_blocks(compute, dtype=np.float32, meta=np.empty((0, 50), np.float32))

    @pytest.mark.parametrize("action", ["fit", "predict", "write_store"])
    def test_dask_blocks(self, lazy, action, tmp_path):
        y = np.arange(400_000) % 2
        model = SVC(memory="50MB").fit(np.eye(50, dtype=np.float32), np.arange(50) % 2)
        with pytest.raises(MemoryBudgetError, match=r"up to 200000 rows \(40 MB\).*fewer rows"):
            act(action, lazy, y, tmp_path / "s", model)

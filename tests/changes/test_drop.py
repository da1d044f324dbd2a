"""A store without some rows of another one."""

import os

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file
from support.stores import dense, make_matrix

import bigsvm
from bigsvm.errors import DataError, ParameterError, StoreError

N = 300
DROPPED = [0, 7, 8, 150, 299]


pytestmark = pytest.mark.usefixtures("small_chunks")


def make_store(path, **options):
    rng = np.random.default_rng(0)
    X, y, w = make_matrix(N), rng.integers(0, 3, N) - 1.0, rng.random(N)
    return bigsvm.write_store(path, X, y, w, **options), X, y, w


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("shuffle", [True, False])
def test_the_other_rows_are_there_in_their_order(tmp_path, layout, shuffle):
    store, X, y, w = make_store(tmp_path / "s", layout=layout, shuffle=shuffle)
    new = bigsvm.drop(store, DROPPED, tmp_path / "new")
    kept = np.delete(np.arange(N), DROPPED)
    order = new.original_rows()
    np.testing.assert_array_equal(dense(new.rows.read(0, len(new))), X[kept][order])
    np.testing.assert_array_equal(new.labels(), y[kept][order])
    np.testing.assert_array_equal(new.sample_weight(), w[kept][order])
    np.testing.assert_allclose(new.statistics.mean, X[kept].mean(axis=0), rtol=1e-6)
    before = store.original_rows()
    np.testing.assert_array_equal(kept[order], before[~np.isin(before, DROPPED)])
    assert new.rows.is_shuffled == store.rows.is_shuffled == shuffle
    new.verify()


def test_a_class_without_rows_is_forgotten(tmp_path):
    X = make_matrix(30)
    words = np.array(["ant", "bee", "cat"], object)[np.arange(30) % 3]
    store = bigsvm.write_store(tmp_path / "s", X, words)
    new = bigsvm.drop(store, np.flatnonzero(words == "bee"), tmp_path / "new")
    assert new.class_names == ("ant", "cat")
    np.testing.assert_array_equal(new.in_input_order(new.labels()), words[words != "bee"])
    new.verify()


def test_scaled_and_appended_stores(tmp_path):
    _, X, y, w = make_store(tmp_path / "raw")
    store = bigsvm.scale_store(tmp_path / "raw", tmp_path / "s", method="standard")
    assert bigsvm.drop(store, DROPPED, tmp_path / "scaled").scaler == store.scaler
    larger = bigsvm.append(tmp_path / "raw", X[:20], y[:20], w[:20])
    assert not bigsvm.drop(larger, DROPPED, tmp_path / "still").rows.is_shuffled
    back = bigsvm.drop(larger, np.arange(N, N + 20), tmp_path / "back")
    assert back.rows.is_shuffled
    np.testing.assert_array_equal(back.in_input_order(back.labels()), y)


def test_text_keeps_its_first_index(tmp_path):
    X = make_matrix(20)
    dump_svmlight_file(X, np.arange(20) % 2, str(tmp_path / "x"), zero_based=False)
    store = bigsvm.convert(tmp_path / "x", tmp_path / "s", zero_based="no")
    new = bigsvm.drop(store, [1], tmp_path / "new")
    assert (new.first_index, new.attributes.sources) == (1, ("x",))


@pytest.mark.parametrize(
    ("rows", "error", "match"),
    [
        ([N], DataError, f"has no row {N}; its rows are 0 to {N - 1}"),
        ([-1], DataError, "has no row -1"),
        (np.arange(N), DataError, "all of its 300 rows would be dropped"),
        ([], ParameterError, "rows must be numbers of rows"),
        ([1.5], ParameterError, "rows must be numbers of rows"),
        ([[1]], ParameterError, "rows must be numbers of rows"),
        (np.ones(N, bool), ParameterError, "rows must be numbers of rows"),
    ],
)
def test_what_are_no_rows_is_refused(tmp_path, rows, error, match):
    store = make_store(tmp_path / "s")[0]
    with pytest.raises(error, match=match):
        bigsvm.drop(store, rows, tmp_path / "new")
    assert os.listdir(tmp_path) == ["s"]


def test_a_store_is_not_replaced(tmp_path):
    store = make_store(tmp_path / "s")[0]
    with pytest.raises(StoreError, match="already exists"):
        bigsvm.drop(store, DROPPED, tmp_path / "s")
    assert len(bigsvm.open_store(tmp_path / "s")) == N

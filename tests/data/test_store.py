"""The store: what is written is what is read."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
import zarr
from support.stores import N_ROWS, chunk_files, everything, make_matrix

from bigsvm.conversion.from_arrays import write_store
from bigsvm.conversion.scaling import scale_store
from bigsvm.data.store import open_store


def test_store_holds_its_rows_labels_and_weights(store):
    matrix = make_matrix(N_ROWS, density=0.6)
    rows, y, weights, original, *statistics = everything(store)
    assert sorted(original) == list(range(N_ROWS))
    assert original.tolist() != list(range(N_ROWS))
    np.testing.assert_array_equal(rows, matrix[original])
    rng = np.random.default_rng(1)
    np.testing.assert_array_equal(y, rng.integers(0, 3, N_ROWS)[original])
    np.testing.assert_array_equal(weights, rng.random(N_ROWS)[original])
    exact = matrix.astype(np.float64)
    expected = [exact.min(axis=0), exact.max(axis=0), exact.mean(axis=0), exact.var(axis=0)]
    for ours, theirs in zip(statistics[:4], expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-14)
    attributes = store.attributes
    assert attributes.mean == pytest.approx(exact.mean(), rel=1e-12)
    assert attributes.variance == pytest.approx(exact.var(), rel=1e-12)
    assert attributes.n_nonzero == np.count_nonzero(matrix)
    assert dict(attributes.label_counts) == {k: (y == k).sum() for k in (0, 1, 2)}
    assert attributes.shuffled
    assert attributes.seed == 0
    store.verify()


def test_has_many_chunks_in_several_shards(store):
    name = "X" if store.attributes.layout == "dense" else "X/data"
    files = [f for f in chunk_files(store.path / name)]
    assert 1 < len(files) < len(store.attributes.manifest[name])


def test_the_sparse_layout_is_a_csr_matrix_of_anndata(tmp_path):
    matrix = make_matrix(200)
    store = write_store(tmp_path / "s.zarr", matrix, np.zeros(200), layout="sparse", shuffle=False)
    group = zarr.open_group(store.path, mode="r")["X"]
    assert group.attrs["encoding-type"] == "csr_matrix"
    assert group.attrs["encoding-version"] == "0.1.0"
    parts = (group["data"][...], group["indices"][...], group["indptr"][...])
    rows = sp.csr_array(parts, shape=tuple(group.attrs["shape"]))
    np.testing.assert_array_equal(rows.toarray(), matrix)
    assert group["indptr"].dtype == np.int64
    assert group["indices"].dtype == np.int32


@pytest.mark.slow
def test_anndata_reads_the_sparse_layout(tmp_path):
    anndata_io = pytest.importorskip("anndata.io")
    matrix = make_matrix(200)
    store = write_store(tmp_path / "s.zarr", matrix, np.zeros(200), layout="sparse", shuffle=False)
    group = zarr.open_group(store.path, mode="r")["X"]
    lazy = anndata_io.sparse_dataset(group)
    np.testing.assert_array_equal(lazy[10:20].toarray(), matrix[10:20])
    np.testing.assert_array_equal(anndata_io.read_elem(group).toarray(), matrix)


def test_chunks_do_not_depend_on_memory(tmp_path, small_chunks):
    matrix = make_matrix(3000)
    few, much = (
        write_store(tmp_path / f"{m}.zarr", matrix, np.zeros(3000), memory=m).attributes
        for m in ("40MB", "1GB")
    )
    assert few == much


def test_store_is_read_from_another_directory(store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    again = open_store("s.zarr")
    monkeypatch.chdir("/")
    np.testing.assert_array_equal(again.labels(), store.labels())


def test_a_store_goes_to_other_processes(tmp_path):
    X = np.arange(12.0).reshape(4, 3)
    store = write_store(tmp_path / "s.zarr", X, np.arange(4.0))
    copy = pickle.loads(pickle.dumps(store))
    assert copy.path == store.path
    np.testing.assert_array_equal(copy.labels(), store.labels())
    np.testing.assert_array_equal(copy.rows.read(0, 4), store.rows.read(0, 4))


def test_a_store_is_shown_in_a_line(tmp_path):
    X = np.eye(6, 3)
    plain = write_store(tmp_path / "plain", X, [1, 2, 3, 1, 2, 3], np.ones(6), shuffle=False)
    assert repr(plain) == (
        f"<Store {tmp_path / 'plain'}: 6 rows, 3 columns, dense float64, 3 distinct labels, "
        "weights>"
    )
    words = write_store(tmp_path / "words", sp.csr_array(X), list("abcabc"), dtype="float32")
    words = scale_store(words, tmp_path / "scaled", method="maxabs")
    assert repr(words) == (
        f"<Store {tmp_path / 'scaled'}: 6 rows, 3 columns, sparse float32, 3 classes, "
        "scaled (maxabs), shuffled>"
    )

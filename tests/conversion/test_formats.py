"""Each door: the same store, byte for byte, as from arrays in the same order; and direct fits."""

import numpy as np
import pytest
import scipy.sparse as sp

import bigsvm
from tests.support.stores import folder_digest

pa = pytest.importorskip("pyarrow")
h5py = pytest.importorskip("h5py")

N, D = 1000, 7
NAMES = [f"column {c}" for c in range(D)]


def data(seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((N, D)).astype(dtype)
    return X, np.where(X[:, 0] + rng.standard_normal(N) / 2 > 0, 1, -1)


def table(X, y, **more):
    columns = {name: X[:, c] for c, name in enumerate(NAMES)}
    return pa.table({**columns, "target": y, **more})


def parquet(folder, X, y, **more):
    from pyarrow import parquet as pq

    (folder / "parts").mkdir()
    whole = table(X, y, **more)
    for i, start in enumerate(range(0, N, 300)):
        part = whole.slice(start, 300)
        if i % 2:  # columns are read by name
            part = part.select(part.column_names[::-1])
        pq.write_table(part, folder / "parts" / f"{i:03}.parquet", row_group_size=128)
    return folder / "parts", "target"


def feather(folder, X, y, **more):
    from pyarrow import feather

    feather.write_feather(table(X, y, **more), folder / "rows.feather")
    return folder / "rows.feather", "target"


def stream(folder, X, y, **more):
    whole = table(X, y, **more)
    with pa.ipc.new_stream(folder / "rows.arrows", whole.schema) as writer:
        writer.write_table(whole, max_chunksize=77)
    return folder / "rows.arrows", "target"


def csv(folder, X, y, **more):
    from pyarrow import csv

    csv.write_csv(table(X, y, **more), folder / "rows.csv")
    return folder / "rows.csv", "target"


def packed_csv(folder, X, y, **more):
    import gzip

    path, label = csv(folder, X, y, **more)
    packed = folder / "rows.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    return packed, label


def dataset(folder, X, y, **more):
    from pyarrow import dataset

    path, label = parquet(folder, X, y, **more)
    return dataset.dataset(path), label


def lazy_frame(folder, X, y, **more):
    polars = pytest.importorskip("polars")
    return polars.from_arrow(table(X, y, **more)).lazy(), "target"


TABLES = [parquet, feather, stream, csv, packed_csv, dataset, lazy_frame]


def npy(folder, X, y):
    np.save(folder / "rows.npy", X)
    np.save(folder / "labels.npy", y)
    return folder / "rows.npy", "labels.npy"


def npz(folder, X, y):
    np.savez(folder / "rows.npz", X=X, y=y)
    return folder / "rows.npz", "y"


def hdf5(folder, X, y):
    with h5py.File(folder / "rows.h5", "w") as file:
        file["matrix"], file["target"] = X, y
    return folder / "rows.h5", "target"


def zarr_group(folder, X, y):
    import zarr

    group = zarr.open_group(folder / "rows.zarr", mode="w")
    group.create_array("X", data=X, chunks=(100, D))
    group.create_array("y", data=y)
    return folder / "rows.zarr", "y"


def batches(folder, X, y):
    def make():
        for start in range(0, N, 130):
            yield X[start : start + 130], y[start : start + 130]

    return make, None


ARRAYS = [npy, npz, hdf5, zarr_group, batches]


def assert_same_store(found, expected):
    assert folder_digest(found.path) == folder_digest(expected.path)


@pytest.mark.parametrize("door", [*TABLES, *ARRAYS])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_door_writes_the_store_of_the_arrays(door, dtype, tmp_path):
    if door in (csv, packed_csv):  # text has no types: its numbers are float64
        dtype = np.float64
    X, y = data(dtype=dtype)
    source, label = door(tmp_path, X, y)
    store = bigsvm.write_store(tmp_path / "found.zarr", source, label, seed=3)
    values = X
    if door in TABLES:
        pandas = pytest.importorskip("pandas")
        values = pandas.DataFrame(X, columns=NAMES)
    expected = bigsvm.write_store(tmp_path / "expected.zarr", values, y, seed=3)
    assert_same_store(store, expected)


@pytest.mark.parametrize("door", TABLES)
def test_words_and_weights(door, tmp_path):
    X, y = data(1)
    words, weight = np.where(y > 0, "yes", "no"), np.random.default_rng(2).uniform(0, 2, N)
    source, _ = door(tmp_path, X, words, weight=weight)
    store = bigsvm.write_store(tmp_path / "found.zarr", source, "target", "weight", seed=3)
    pandas = pytest.importorskip("pandas")
    expected = bigsvm.write_store(
        tmp_path / "expected.zarr", pandas.DataFrame(X, columns=NAMES), words, weight, seed=3
    )
    assert_same_store(store, expected)
    assert store.class_names == ("no", "yes")


@pytest.mark.parametrize("door", [*TABLES, *ARRAYS])
def test_a_source_is_fitted_and_predicted_directly(door, tmp_path):
    X, y = data(2)
    source, label = door(tmp_path, X, y)
    model = bigsvm.SVC(gamma=0.1).fit(source, label)
    plain = bigsvm.SVC(gamma=0.1).fit(X, y)
    assert model.n_features_in_ == D
    assert model.converged_
    assert model.certificate_["objective"] == pytest.approx(plain.certificate_["objective"])
    if door in TABLES:
        assert model.feature_names_in_.tolist() == NAMES
    if door is not batches:
        np.testing.assert_array_equal(model.predict(source), plain.predict(X))


def test_some_columns_in_an_order(tmp_path):
    X, y = data()
    source, label = parquet(tmp_path, X, y)
    chosen = [NAMES[4], NAMES[1]]
    store = bigsvm.write_store(tmp_path / "found.zarr", source, label, columns=chosen, seed=3)
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=NAMES)[chosen]
    assert_same_store(store, bigsvm.write_store(tmp_path / "expected.zarr", frame, y, seed=3))


def test_sparse_batches_and_archives(tmp_path):
    X, y = data()
    X[np.abs(X) < 1.2] = 0
    rows = sp.csr_array(X)
    sp.save_npz(tmp_path / "rows.npz", rows)
    expected = bigsvm.write_store(tmp_path / "expected.zarr", rows, y, seed=3)

    def make():
        for start in range(0, N, 130):
            yield rows[start : start + 130], y[start : start + 130]

    found = bigsvm.write_store(tmp_path / "found.zarr", make, seed=3)
    assert_same_store(found, expected)


def test_an_anndata_file(tmp_path):
    anndata, pandas = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    X, y = data()
    words = np.where(y > 0, "yes", "no")
    obs = pandas.DataFrame({"kind": pandas.Categorical(words)}, index=list(map(str, range(N))))
    var = pandas.DataFrame(index=NAMES)
    cells = anndata.AnnData(sp.csr_array(X), obs=obs, var=var, layers={"dense": X})
    cells.write_h5ad(tmp_path / "cells.h5ad")
    store = bigsvm.write_store(
        tmp_path / "found.zarr", tmp_path / "cells.h5ad", "kind", rows="layers/dense", seed=3
    )
    frame = pandas.DataFrame(X, columns=NAMES)
    assert_same_store(store, bigsvm.write_store(tmp_path / "same.zarr", frame, words, seed=3))
    model = bigsvm.SVC(gamma=0.1).fit(tmp_path / "cells.h5ad", "kind")
    assert model.feature_names_in_.tolist() == NAMES
    assert model.classes_.tolist() == ["no", "yes"]

"""Names of columns: kept by stores and models, and checked where rows with names are predicted."""

import dataclasses
import json

import numpy as np
import pytest
from containers import CONTAINERS

from bigsvm import L2SVC, SVC, KernelExpansion, OneClassSVM, open_store, scale_store, write_store
from bigsvm.data.sources import as_row_source
from bigsvm.errors import DataError, ModelError

pytestmark = pytest.mark.fault("columns-and-order")

N_ROWS = 200
NAMES = ("c0", "c1", "c2")
NAMED = (
    "pandas_frame", "pandas_nullable", "pandas_sparse", "polars_frame", "arrow_table", "dask_frame",
    "anndata_dense", "anndata_sparse", "anndata_backed",
)  # fmt: skip
MISMATCH = "The feature names should match those that were passed during fit"


@pytest.fixture(scope="module")
def matrix():
    return np.random.default_rng(0).standard_normal((N_ROWS, 3)).astype(np.float32)


@pytest.fixture(scope="module")
def y(matrix):
    return (matrix[:, 0] > 0.2).astype(int)


@pytest.fixture
def named(matrix, y, tmp_path):
    """A store that has names; their only source that needs no other library."""
    source = as_row_source(matrix)
    source.feature_names = NAMES
    return write_store(tmp_path / "named.zarr", source, y)


def reordered(store, path):
    """The same store with its columns in another order."""
    rows = as_row_source(store.rows.read(0, N_ROWS)[:, ::-1])
    rows.feature_names = NAMES[::-1]
    return write_store(path, rows, store.labels(), shuffle=False)


@pytest.mark.parametrize("name", NAMED)
def test_store_keeps_names(name, matrix, y, tmp_path):
    store = write_store(tmp_path / "s.zarr", CONTAINERS[name](matrix, tmp_path), y)
    assert store.feature_names == NAMES
    assert open_store(tmp_path / "s.zarr").rows.feature_names == NAMES


@pytest.mark.parametrize("name", NAMED)
def test_fitted_estimator_has_names(name, matrix, y, tmp_path):
    fitted = SVC().fit(CONTAINERS[name](matrix, tmp_path), y)
    assert fitted.feature_names_in_.tolist() == list(NAMES)
    assert fitted.model_.feature_names == NAMES


@pytest.mark.parametrize("name", NAMED)
def test_containers_in_another_order_are_refused(name, named, matrix, tmp_path):
    fitted = SVC().fit(named)
    X = CONTAINERS[name](matrix, tmp_path)
    assert np.asarray(fitted.predict(X)).shape == (N_ROWS,)
    order = [2, 1, 0]
    if name == "arrow_table":
        X = X.select(order)
    elif name.startswith("anndata"):
        X = (X.to_memory() if X.isbacked else X)[:, order]
    else:
        X = X[[NAMES[i] for i in order]]
    with pytest.raises(ValueError, match=MISMATCH):
        fitted.predict(X)


@pytest.mark.parametrize("kind", [SVC, L2SVC, OneClassSVM])
def test_store_in_another_order_is_refused(kind, named, tmp_path):
    fitted = kind().fit(named)
    other = reordered(named, tmp_path / "other.zarr")
    with pytest.raises(DataError, match=MISMATCH + r".*column 0 .*'c2', .*'c0' there"):
        fitted.predict(other)
    with pytest.raises(DataError, match="in another order"):
        fitted.model_.decision_function(other.rows)


def test_other_names_are_refused(named, matrix, y, tmp_path):
    rows = as_row_source(matrix)
    rows.feature_names = ("c0", "c1", "d")
    other = write_store(tmp_path / "other.zarr", rows, y)
    with pytest.raises(DataError, match=r"column 2 .*'d'.*'c2' there \(other columns\)"):
        SVC().fit(named).predict(other)


def test_rows_without_names_are_taken(named, matrix, y, tmp_path):
    fitted = SVC().fit(named)
    plain = write_store(tmp_path / "plain.zarr", matrix, y)
    assert plain.feature_names is None
    assert fitted.predict(plain).compute().shape == (N_ROWS,)
    assert SVC().fit(plain).predict(named).compute().shape == (N_ROWS,)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        fitted.predict(matrix)


def test_model_file_keeps_names(named, tmp_path):
    SVC().fit(named).model_.save(tmp_path / "m")
    assert KernelExpansion.load(tmp_path / "m").feature_names == NAMES


@pytest.mark.parametrize("wrong", [["c0"], [1, 2, 3], "abc"])
def test_model_file_with_impossible_names(named, tmp_path, wrong):
    model = SVC().fit(named).model_
    given = {**model.provenance, "feature_names": wrong}
    dataclasses.replace(model, provenance=given).save(tmp_path / "m")
    with pytest.raises(ModelError, match="names of"):
        KernelExpansion.load(tmp_path / "m")


def test_fitting_rows_without_names_forgets_names(named, matrix, y):
    fitted = SVC().fit(named)
    plain = SVC().set_params(**fitted.get_params())
    plain.fit(named).fit(matrix, y)
    assert not hasattr(plain, "feature_names_in_")
    assert plain.model_.feature_names is None


def test_scaled_and_copied_stores_keep_names(named, tmp_path):
    assert scale_store(named, tmp_path / "scaled.zarr").feature_names == NAMES
    copy = write_store(tmp_path / "copy.zarr", named.rows, named.labels())
    assert copy.feature_names == NAMES


def test_feature_names_of_mixed_types_are_refused(matrix, y, tmp_path):
    pandas = pytest.importorskip("pandas")
    numbered = write_store(tmp_path / "s.zarr", pandas.DataFrame(matrix), y)
    assert numbered.feature_names is None
    with pytest.raises(DataError, match=r"names of types int, str; make all of them text"):
        write_store(tmp_path / "t.zarr", pandas.DataFrame(matrix, columns=["a", 1, 2]), y)


def record_of(path):
    return json.loads((path / "zarr.json").read_text())["attributes"]["bigsvm"]


def test_earlier_versions_read_stores_with_names(named, matrix, y, tmp_path):
    """A reader that knows no names finds its format version, arrays and a checksum that fits."""
    plain = write_store(tmp_path / "plain.zarr", matrix, y)
    record, expected = record_of(named.path), record_of(plain.path)
    assert "feature_names" not in expected
    assert record.pop("feature_names") == list(NAMES)
    del record["checksum"], expected["checksum"]
    assert record == expected

"""`scale_store`: the same store with other values in X, and what is not scaled."""

import json
import os
import shutil
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from support.stores import (
    chunk_files,
    dense,
    edit_attributes,
    make_matrix,
    read_array,
    rewrite_array,
)

from bigsvm.conversion.from_arrays import write_store
from bigsvm.conversion.from_text import convert
from bigsvm.conversion.scaling import scale_store
from bigsvm.data import schema
from bigsvm.data.scaler import Scaler, choose_scaler
from bigsvm.data.store import open_store
from bigsvm.data.store_rows import StoreRows
from bigsvm.data.wrappers import ScaledRows
from bigsvm.errors import (
    DataCorruptionError,
    DataError,
    MemoryBudgetError,
    ParameterError,
    StoreError,
)


def test_everything_but_the_values_stays(store, tmp_path):
    scaled = scale_store(store, tmp_path / "out", method="maxabs")
    scaled.verify()
    a, b = store.attributes, scaled.attributes
    same = (
        "n_rows n_columns n_nonzero dtype layout shuffled seed label_counts sources first_index "
        "has_weights"
    )
    for name in same.split():
        assert getattr(a, name) == getattr(b, name), name
    np.testing.assert_array_equal(scaled.labels(), store.labels())
    np.testing.assert_array_equal(scaled.original_rows(), store.original_rows())
    np.testing.assert_array_equal(scaled.sample_weight(), store.sample_weight())
    rows = dense(store.rows.read(0, a.n_rows))
    expected = choose_scaler(store.statistics, "maxabs").apply(rows)
    np.testing.assert_array_equal(dense(scaled.rows.read(0, a.n_rows)), expected)
    np.testing.assert_allclose(scaled.statistics.mean, expected.mean(axis=0, dtype=float))
    assert scaled.scaler == choose_scaler(store.statistics, "maxabs")
    assert (b.scaler, store.scaler) == ("maxabs", None)
    assert b.fingerprint != a.fingerprint


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("method", ["minmax", "standard"])
def test_dense_rows_reach_what_the_method_says(tmp_path, method, dtype):
    store = write_store(tmp_path / "s", make_matrix(), np.zeros(1000), dtype=dtype)
    statistics = scale_store(tmp_path / "s", tmp_path / "out", method=method).statistics
    varies = store.statistics.minimum < store.statistics.maximum
    tolerance = 1e-6 if dtype == "float32" else 1e-13
    if method == "minmax":
        np.testing.assert_allclose(statistics.minimum[varies], -1, atol=tolerance)
        np.testing.assert_allclose(statistics.maximum[varies], 1, atol=tolerance)
    else:
        np.testing.assert_allclose(statistics.mean, 0, atol=tolerance)
        np.testing.assert_allclose(statistics.variance[varies], 1, atol=tolerance)
    assert not statistics.maximum[~varies].any()
    assert (~varies).sum() == 1


def test_text_keeps_its_rows_numbers_and_index(text, tmp_path):
    store = convert(text(), tmp_path / "s", layout="dense", seed=7)
    scaled = scale_store(store, tmp_path / "out")
    assert scaled.attributes.first_index == store.attributes.first_index == 1
    assert scaled.attributes.seed == 7
    np.testing.assert_array_equal(scaled.original_rows(), store.original_rows())


@pytest.mark.parametrize("kind", ["store", "path"])
def test_like_another_store(tmp_path, kind):
    train = write_store(tmp_path / "train", make_matrix(), np.zeros(1000))
    test = write_store(tmp_path / "test", make_matrix(100, seed=5) * 3, np.zeros(100))
    scaled = scale_store(train, tmp_path / "a", method="standard")
    like = scaled if kind == "store" else tmp_path / "a"
    other = scale_store(test, tmp_path / "b", like=like)
    assert other.scaler == scaled.scaler
    assert other.attributes.scaler == "standard"
    expected = scaled.scaler.apply(test.rows.read(0, 100))
    np.testing.assert_array_equal(other.rows.read(0, 100), expected)


def test_invalid_like_is_refused(tmp_path, text):
    store = convert(text(), tmp_path / "one", layout="dense")
    scaled = scale_store(store, tmp_path / "scaled")
    with pytest.raises(DataError, match="is not scaled; give a scaled store"):
        scale_store(store, tmp_path / "out", like=store)
    for options in ({"method": "minmax"}, {"lower": 0}, {"upper": 2}):
        with pytest.raises(ParameterError, match="like brings all parameters"):
            scale_store(store, tmp_path / "out", like=scaled, **options)
    narrow = write_store(tmp_path / "narrow", np.eye(3), np.zeros(3))
    with pytest.raises(DataError, match=r"3 columns, their scaler 40; .*--features 40"):
        scale_store(narrow, tmp_path / "out", like=scaled)
    other = convert(text(), tmp_path / "zero", layout="dense", zero_based="yes", n_features=41)
    with pytest.raises(DataError, match="column 0 is index 0 of its text, but index 1 where"):
        scale_store(other, tmp_path / "out", like=scaled)
    assert not (tmp_path / "out").exists()


def test_sparse_rows_become_dense_where_zeros_do_not_stay(tmp_path):
    matrix = make_matrix(density=0.1)
    sparse = write_store(tmp_path / "s", sp.csr_array(matrix), np.zeros(1000))
    dense = write_store(tmp_path / "d", matrix, np.zeros(1000), layout="dense")
    assert (sparse.attributes.layout, dense.attributes.layout) == ("csr", "dense")
    for method in ("minmax", "standard"):
        scaled, expected = (
            scale_store(store, tmp_path / f"{store.path.name}-{method}", method=method)
            for store in (sparse, dense)
        )
        assert scaled.attributes.layout == "dense"
        # Statistics of sparse rows are added up in another order.
        np.testing.assert_allclose(scaled.rows.read(0, 1000), expected.rows.read(0, 1000), 1e-5)
        like = scale_store(sparse, tmp_path / f"like-{method}", like=expected)
        np.testing.assert_array_equal(like.rows.read(0, 1000), expected.rows.read(0, 1000))


def test_sparse_rows_that_are_too_large_when_dense_are_refused(tmp_path, monkeypatch):
    matrix = sp.csr_array(make_matrix(density=0.1))
    store = write_store(tmp_path / "s", matrix, np.zeros(1000))
    assert store.attributes.layout == "csr"
    dense_one = write_store(tmp_path / "d", matrix, np.zeros(1000), layout="dense")
    like = scale_store(dense_one, tmp_path / "like")
    monkeypatch.setattr("bigsvm.conversion.scaling.memory_bytes", lambda memory: 50_000)
    with pytest.raises(DataError, match="but minmax turns the zeros"):
        scale_store(store, tmp_path / "out", like=like)
    negative = write_store(tmp_path / "n", -matrix, np.zeros(1000))
    for rows, method, remedy in (
        (store, "minmax", "lower=0"), (negative, "minmax", "method='maxabs'"),
        (store, "standard", "method='maxabs'"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=f"zeros of column 0 .*use {remedy}, which keeps zeros"):
            scale_store(rows, tmp_path / "out", method=method)
    assert sorted(os.listdir(tmp_path)) == ["d", "like", "n", "s"]
    positive = write_store(tmp_path / "p", abs(matrix), np.zeros(1000))
    assert scale_store(positive, tmp_path / "out", lower=0).attributes.layout == "csr"


def test_a_scaled_store_is_not_scaled_again(tmp_path):
    store = write_store(tmp_path / "s", make_matrix(), np.zeros(1000))
    scaled = scale_store(store, tmp_path / "a")
    with pytest.raises(DataError, match=r"/a: is scaled already \(minmax\); scale the store it"):
        scale_store(scaled, tmp_path / "b")


def test_places_that_are_taken(tmp_path):
    store = write_store(tmp_path / "s", make_matrix(), np.zeros(1000))
    with pytest.raises(StoreError, match="already exists"):
        scale_store(store, tmp_path / "s")
    scaled = scale_store(store, tmp_path / "s", overwrite=True)
    assert open_store(tmp_path / "s").scaler == scaled.scaler is not None
    assert scaled.rows.read(0, 1000).max() == 1


def test_a_value_that_float32_cannot_hold_leaves_nothing_behind(tmp_path):
    """A column of 1e-30 like one of 1 … : every value is fine, what it becomes is not."""
    small = write_store(tmp_path / "small", make_matrix() * np.float32(1e-30), np.zeros(1000))
    like = scale_store(small, tmp_path / "like", method="maxabs")
    large = write_store(tmp_path / "large", make_matrix() * np.float32(1e30), np.zeros(1000))
    with pytest.raises(DataError, match=r"X has .* no finite float32 when scaled"):
        scale_store(large, tmp_path / "out", like=like)
    assert sorted(os.listdir(tmp_path)) == ["large", "like", "small"]


def test_too_many_columns_for_the_memory(tmp_path):
    store = write_store(tmp_path / "s", np.zeros((2, 200_000)), np.zeros(2))
    with pytest.raises(MemoryBudgetError, match="200000 columns: their statistics"):
        scale_store(store, tmp_path / "out", memory="32MiB")


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_memory_stays_below_the_budget_and_no_read_is_whole(tmp_path, monkeypatch, layout):
    rows = np.random.default_rng(0).random((100_000, 100), np.float32)
    store = write_store(tmp_path / "s", rows, np.zeros(100_000), layout=layout)
    size = rows.nbytes
    del rows
    spans = []
    read = StoreRows.read

    def watched(self, start, stop):
        spans.append(stop - start)
        return read(self, start, stop)

    monkeypatch.setattr(StoreRows, "read", watched)
    tracemalloc.start()
    try:
        scale_store(store, tmp_path / "out", method="maxabs", memory="34MB")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 34e6 < size
    assert max(spans) < 20_000
    assert sum(spans) == 100_000


def test_progress(tmp_path):
    events = []
    store = write_store(tmp_path / "s", make_matrix(), np.zeros(1000))
    scale_store(store, tmp_path / "out", on_progress=events.append)
    assert [event.stage for event in events] == ["write"]
    assert (events[-1].done, events[-1].total) == (1000, 1000)


@pytest.mark.parametrize("kind", ["array", "spool"])
def test_a_copy_of_scaled_rows_knows_their_scaler(tmp_path, kind):
    store = write_store(tmp_path / "s", make_matrix(), np.zeros(1000))
    rows = scale_store(store, tmp_path / "a").rows
    if kind == "array":
        rows = ScaledRows(open_store(tmp_path / "s").rows, rows.scaler)
    copy = write_store(tmp_path / "b", rows, np.zeros(1000), seed=9)
    assert copy.scaler == rows.scaler


@pytest.fixture
def scaled(store, tmp_path):
    return scale_store(store, tmp_path / "scaled", method="maxabs")


@pytest.mark.parametrize("name", ["scaler/offset", "scaler/factor"])
def test_a_damaged_scaler_is_refused(scaled, name):
    [file] = chunk_files(scaled.path / name)
    content = file.read_bytes()
    for position in (0, len(content) // 2, len(content) - 1):
        changed = bytearray(content)
        changed[position] ^= 1
        file.write_bytes(changed)
        with pytest.raises(DataCorruptionError, match=f"'{name}': chunk 0"):
            open_store(scaled.path).scaler  # noqa: B018 (reading it is what is tried)
        with pytest.raises(DataCorruptionError, match=f"'{name}': chunk 0"):
            open_store(scaled.path).verify()
    file.write_bytes(content)
    assert open_store(scaled.path).scaler == scaled.scaler


def test_a_missing_scaler_is_refused(scaled):
    shutil.rmtree(scaled.path / "scaler")
    with pytest.raises(DataCorruptionError, match="array 'scaler/offset' is missing"):
        open_store(scaled.path)


def test_a_forged_scaler_is_refused(scaled):
    """Its hashes are right, its values are none."""
    edit_attributes(scaled.path, scaler="robust")
    with pytest.raises(DataCorruptionError, match="rows scaled by 'robust'"):
        open_store(scaled.path).scaler  # noqa: B018 (to read it is to check it)
    values = read_array(scaled.path, "scaler/factor")
    values[3] = np.inf
    rewrite_array(scaled.path, "scaler/factor", values)
    with pytest.raises(DataCorruptionError, match="holds inf, but its values go from"):
        open_store(scaled.path).scaler  # noqa: B018 (to read it is to check it)


def test_only_scaled_stores_have_the_newer_format(scaled, store):
    """Who knows no scaler must not take scaled rows for plain ones."""
    assert (store.attributes.format_version, scaled.attributes.format_version) == (1, 2)


def test_a_store_from_before_scalers_opens(store):
    file = store.path / "zarr.json"
    content = json.loads(file.read_text())
    record = content["attributes"][schema.KEY]
    del record["scaler"]
    record["checksum"] = schema.checksum(record)
    file.write_text(json.dumps(content))
    assert open_store(store.path).scaler is None


def test_a_model_can_be_what_rows_are_scaled_like(tmp_path):
    """Anything that has a scaler and the index of column 0."""

    class Other:
        scaler = Scaler("minmax", np.zeros(23), np.full(23, 0.5))
        first_index = None

    store = write_store(tmp_path / "s", make_matrix(), np.zeros(1000))
    assert scale_store(store, tmp_path / "out", like=Other()).scaler == Other.scaler

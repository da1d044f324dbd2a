"""Sparse rows of very many columns: statistics, stores, scalers and numbers of those that occur."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from row_contracts import RowSourceContract
from support.stores import dense

import bigsvm
from bigsvm.conversion.from_text import convert
from bigsvm.data.in_memory import ArrayRows
from bigsvm.data.narrow import Numbering
from bigsvm.data.scaler import Scaler, choose_scaler
from bigsvm.data.sources import as_row_source
from bigsvm.data.statistics import (
    MOST_DENSE,
    ColumnStatistics,
    ListedStatistics,
    far_columns,
    statistics_of,
)
from bigsvm.data.store import open_store
from bigsvm.data.wrappers import NarrowRows, ScaledRows, narrowed
from bigsvm.errors import DataCorruptionError, DataError

WIDE = 2**31 - 2
"""Most columns of LIBSVM text whose indices start at 1."""


def wide_rows(n_rows=60, n_columns=WIDE, n_occurring=40, seed=0, dtype=np.float32):
    """CSR rows, and the same over the columns that occur: the first and the last among them."""
    rng = np.random.default_rng(seed)
    columns = np.sort(rng.choice(n_columns - 2, n_occurring - 2, replace=False) + 1)
    columns = np.concatenate([[0], columns, [n_columns - 1]])
    narrow = rng.standard_normal((n_rows, n_occurring)) + 1
    narrow[rng.random(narrow.shape) > 0.3] = 0
    narrow[0] = np.arange(n_occurring) + 1
    narrow = sp.csr_array(narrow.astype(dtype))
    indices = columns[narrow.indices].astype(np.int32 if n_columns < 2**31 else np.int64)
    rows = sp.csr_array((narrow.data, indices, narrow.indptr), shape=(n_rows, n_columns))
    return rows, narrow, columns


def labels_for(narrow):
    return np.where(narrow[:, [0]].toarray().ravel() > 0.5, 1.0, -1.0)


@pytest.mark.parametrize("cuts", [[0, 60], [0, 1, 30, 30, 60]])
@pytest.mark.parametrize("n_columns", [MOST_DENSE + 1, WIDE, 2**40])
def test_listed_statistics_are_those_of_the_columns(n_columns, cuts):
    rows, narrow, columns = wide_rows(n_columns=n_columns, dtype=np.float64)
    statistics = statistics_of(n_columns, sparse=True)
    assert isinstance(statistics, ListedStatistics)
    for a, b in itertools.pairwise(cuts):
        statistics.add(rows[a:b])
    found, values = statistics.result(), narrow.toarray()
    np.testing.assert_array_equal(found.columns, columns)
    np.testing.assert_array_equal(found.minimum, values.min(axis=0))
    np.testing.assert_array_equal(found.maximum, values.max(axis=0))
    np.testing.assert_allclose(found.mean, values.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(found.variance, values.var(axis=0), rtol=1e-12)
    assert statistics.n_nonzero == narrow.nnz
    mean = values.sum() / (60 * n_columns)
    assert found.total_mean() == pytest.approx(mean, rel=1e-12)
    variance = (values**2).sum() / (60 * n_columns) - mean**2
    assert found.total_variance() == pytest.approx(variance, rel=1e-9)
    assert (found.smallest(), found.largest()) == (min(0, values.min()), values.max())
    assert found.n_constant() == n_columns - len(columns)


def test_statistics_of_all_columns_where_most_occur():
    n_columns = MOST_DENSE + 10
    rows = sp.csr_array(np.arange(1, n_columns + 1, dtype=float)[None, :])
    few = sp.csr_array((np.ones(1), [3], [0, 1]), shape=(1, n_columns))
    listed, every = statistics_of(n_columns, sparse=True), ColumnStatistics(n_columns)
    for statistics in (listed, every):
        statistics.add(rows)
        statistics.add(few)
    found, expected = listed.result(), every.result()
    assert found.columns is None
    for ours, theirs in zip(found[:4], expected[:4], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-13)


def test_far_columns_among_listed_columns():
    mean = np.array([0.1, 2000.0, 0.2])
    whole = np.zeros(100)
    whole[[5, 30, 70]] = mean
    variance = 1e-2 + float(np.var(whole))
    expected = far_columns(whole, variance, 100)
    np.testing.assert_allclose(far_columns(mean, variance, 100), expected[[5, 30, 70]])


def test_few_columns_take_little_memory():
    statistics = statistics_of(2**40, sparse=True)
    statistics.add(wide_rows(n_columns=2**40)[0])
    held = [value for value in vars(statistics).values() if isinstance(value, np.ndarray)]
    assert sum(array.nbytes for array in held) < 1 << 17


@pytest.mark.parametrize("n_columns", [1, 2, 7, 40, 1000, 2**31 - 1, 2**40])
@pytest.mark.parametrize("n_listed", [1, 2, 40])
def test_numbering_finds_columns(n_columns, n_listed):
    rng = np.random.default_rng(3)
    listed = np.unique(rng.integers(0, n_columns, n_listed))
    asked = np.concatenate([rng.integers(0, n_columns, 200), listed])
    rows = sp.csr_array(
        (np.ones(len(asked)), asked, np.arange(len(asked) + 1)), shape=(len(asked), n_columns)
    )
    place = np.searchsorted(listed, asked)
    known = np.isin(asked, listed)
    spread = Numbering(listed, n_columns, spread=True).apply(rows)
    np.testing.assert_array_equal(spread.indices, 2 * place + known)
    exact = Numbering(listed, n_columns)
    some = exact.apply(rows[known])
    np.testing.assert_array_equal(some.indices, place[known])
    np.testing.assert_array_equal(exact.undo(some).indices, asked[known])
    if not known.all():
        with pytest.raises(DataError, match=r"column \d+ \(from 0\), which is not one of the"):
            exact.apply(rows)


@pytest.mark.parametrize("wrong", [-1, 5000])
def test_numbering_refuses_columns_out_of_range(wrong):
    rows = sp.csr_array((np.ones(2), [3, 4], [0, 1, 2]), shape=(2, 1000))
    rows.indices[1] = wrong
    for spread in (False, True):
        with pytest.raises(DataError, match=rf"row 1 of a block has column {wrong} "):
            Numbering(np.array([3]), 1000, spread=spread).apply(rows)


class TestNarrowStoreRows(RowSourceContract):
    sparse = True

    @pytest.fixture
    def make(self, tmp_path):
        def make(matrix):
            rows = sp.csr_array(matrix)
            path = tmp_path / "x.zarr"
            bigsvm.write_store(
                path, rows, np.zeros(len(matrix)), shuffle=False, layout="sparse", overwrite=True
            )
            every = np.arange(matrix.shape[1])
            return NarrowRows(open_store(path).rows, Numbering(every, matrix.shape[1]))

        return make


@pytest.mark.parametrize("kind", ["array", "dask", "store", "scaled"])
def test_narrowed_sources(kind, tmp_path):
    rows, narrow, columns = wide_rows()
    source = ArrayRows(rows)
    factors = np.ones(len(columns))
    if kind == "dask":
        import dask.array as da

        source = as_row_source(da.from_array(rows, chunks=(25, WIDE), asarray=False, meta=rows[:0]))
    elif kind == "store":
        source = bigsvm.write_store(tmp_path / "x", rows, np.zeros(60), shuffle=False).rows
    elif kind == "scaled":
        factors = np.arange(len(columns)) + 0.5
        source = ScaledRows(source, Scaler("maxabs", 0 * factors, factors, columns, WIDE))
    found, numbering = narrowed(source)
    np.testing.assert_array_equal(numbering.columns, columns)
    assert (found.n_columns, found.n_features) == (len(columns), WIDE)
    assert found.fingerprint() == source.fingerprint()
    values = narrow.toarray() * factors
    np.testing.assert_allclose(dense(found.read(0, 60)), values, rtol=1e-6)
    np.testing.assert_allclose(dense(found.take(np.array([9, 3]))), values[[9, 3]], rtol=1e-6)
    np.testing.assert_allclose(found.column_means(), values.mean(axis=0), rtol=1e-6)
    assert 0 < found.kept_bytes < 10_000
    assert found.row_alignment == 1 if kind == "array" else found.row_alignment > 1


def test_sources_with_few_columns_stay_as_they_are():
    for rows in (np.ones((3, 2)), sp.csr_array(np.ones((3, 2)))):
        source = ArrayRows(rows)
        assert narrowed(source) == (source, None)


@pytest.mark.fault("many-columns")
@pytest.mark.parametrize("n_columns", [3_200_000, 20_000_000, WIDE])
def test_text_of_many_columns_becomes_a_store(tmp_path, n_columns):
    (tmp_path / "x").write_text(f"1 1:2 {n_columns}:1\n-1 1:-1 {n_columns - 1}:3\n")
    store = convert(tmp_path / "x", tmp_path / "x.zarr", memory="34MB")
    attributes = store.attributes
    assert (attributes.n_columns, attributes.listed_columns) == (n_columns, 3)
    assert attributes.format_version == 3
    assert store.statistics.columns.tolist() == [0, n_columns - 2, n_columns - 1]
    assert sorted(store.statistics.minimum) == [-1, 0, 0]
    store.verify()
    rows = store.rows.read(0, 2)
    order = np.argsort(store.original_rows())
    assert rows[order].indices.tolist() == [0, n_columns - 1, 0, n_columns - 2]


@pytest.mark.fault("many-columns")
@pytest.mark.parametrize("method", ["maxabs", "minmax"])
def test_stores_of_many_columns_are_scaled(tmp_path, method):
    rows, narrow, columns = wide_rows()
    store = bigsvm.write_store(tmp_path / "x", rows, labels_for(narrow), memory="34MB")
    if method == "minmax":
        with pytest.raises(DataError, match="turns the zeros of column"):
            bigsvm.scale_store(store, tmp_path / "s", method=method, memory="34MB")
        return
    scaled = bigsvm.scale_store(store, tmp_path / "s", method=method, memory="34MB")
    scaler = scaled.scaler
    assert (scaled.attributes.scaler_columns, scaler.n_columns) == (len(columns), WIDE)
    assert scaler.ignored_columns == WIDE - len(columns)
    order = store.original_rows()
    expected = narrow.toarray()[order] / np.abs(narrow.toarray()).max(axis=0)
    np.testing.assert_allclose(narrowed(scaled.rows)[0].read(0, 60).toarray(), expected, 1e-6)
    again = bigsvm.scale_store(store, tmp_path / "t", like=tmp_path / "s", memory="34MB")
    assert again.scaler == scaler
    assert again.attributes.rows_fingerprint == scaled.attributes.rows_fingerprint


def test_listed_scalers_are_those_of_all_columns():
    n_columns = MOST_DENSE + 1
    rows, _, columns = wide_rows(n_columns=n_columns)
    listed, every = statistics_of(n_columns, sparse=True), ColumnStatistics(n_columns)
    for statistics in (listed, every):
        statistics.add(rows)
    for method in ("maxabs", "minmax"):
        one = choose_scaler(listed.result(), method)
        other = choose_scaler(every.result(), method)
        assert one == other
        assert other == one
        assert one == one.of_all_columns()
        assert one.ignored_columns == other.ignored_columns
        np.testing.assert_array_equal(one.moved_columns(), other.moved_columns())
        ours, theirs = one.apply(rows[:3]), other.apply(rows[:3])
        np.testing.assert_array_equal(dense(ours), dense(theirs))
    unknown = sp.csr_array((np.ones(1, np.float32), [1], [0, 1]), shape=(1, n_columns))
    assert 1 not in columns
    assert choose_scaler(wide_statistics(rows), "maxabs").apply(unknown).data.tolist() == [0]


def wide_statistics(rows):
    statistics = statistics_of(rows.shape[1], sparse=True)
    statistics.add(rows)
    return statistics.result()


@pytest.mark.parametrize(
    ("columns", "width"),
    [([3, 1], 5), ([1, 1], 5), ([1, 5], 5), ([-1, 2], 5), ([1], 5), (None, 5), ([1, 2], None)],
)
def test_invalid_scaler_columns_are_refused(columns, width):
    given = None if columns is None else np.array(columns)
    with pytest.raises(DataError, match="scaler"):
        Scaler("maxabs", np.zeros(2), np.ones(2), given, width)


def test_invalid_store_columns_are_refused(tmp_path, monkeypatch):
    rows, narrow, _ = wide_rows()
    store = bigsvm.write_store(tmp_path / "x", rows, labels_for(narrow))
    array = store.rows._arrays["statistics/column"]
    monkeypatch.setattr(array, "read", lambda start, stop: np.arange(stop)[::-1])
    with pytest.raises(DataCorruptionError, match="'statistics/column' makes no sense"):
        store.rows.occurring_columns()


def test_more_columns_than_a_store_can_have(tmp_path):
    rows, narrow, _ = wide_rows(n_columns=2**31)
    with pytest.raises(DataError, match="2147483648 columns, but a store 2147483647 at most"):
        bigsvm.write_store(tmp_path / "x", rows, labels_for(narrow))
    assert not (tmp_path / "x").exists()

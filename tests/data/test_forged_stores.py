"""Forged stores with matching hashes: every value is still checked."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from support.stores import (
    N_ROWS,
    edit_attributes,
    everything,
    make_matrix,
    read_array,
    rewrite_array,
)

from bigsvm import SVC
from bigsvm.conversion.from_arrays import write_store
from bigsvm.data import schema
from bigsvm.data.scaler import Scaler
from bigsvm.data.store import open_store
from bigsvm.data.wrappers import ChosenRows, ScaledRows
from bigsvm.errors import DataCorruptionError, DataError, StoreError

N_COLUMNS = 23


def with_value(value, at=5):
    def change(values):
        whole = values.dtype.kind == "i" and not np.isfinite(value)
        changed = values.astype(np.float64) if whole else values.copy()
        changed.reshape(-1)[at] = value
        return changed

    return change


CHANGES = {
    "empty": lambda values: values[:0],
    "half": lambda values: values[: len(values) // 2],
    "doubled": lambda values: np.concatenate([values, values]),
    "negative": lambda values: -values - 1,
    "reversed": lambda values: values[::-1].copy(),
    "2^30": lambda values: np.full_like(values, 2**30),
    "one 2^30": with_value(2**30),
    "one -1": with_value(-1),
    "NaN": with_value(float("nan")),
    "inf": with_value(float("inf")),
    "other type": lambda values: values.astype("f4" if values.dtype.kind == "i" else "i4"),
}
ARRAYS = {
    "dense": ["X"],
    "sparse": ["X/data", "X/indices", "X/indptr"],
    "both": [
        *("y", "row", "sample_weight"),
        *(f"statistics/{name}" for name in schema.STATISTICS),
    ],
}
OTHER_DATA = {
    "X": {"negative", "reversed", "2^30", "one 2^30", "one -1"},
    "X/data": {"negative", "reversed", "2^30", "one 2^30", "one -1"},
    "y": {"reversed"},
    "sample_weight": {"reversed", "2^30", "one 2^30"},
    "row": {"reversed"},
    "statistics/minimum": {"negative", "reversed", "one -1"},
    "statistics/maximum": {"2^30", "one 2^30"},
}
"""What may be taken for other rows, labels and weights, another order, or other statistics."""


def read_it_all(path):
    store = open_store(path)
    store.verify()
    return everything(store)


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize("change", CHANGES)
def test_forged_arrays_are_refused(store, change):
    layout = "dense" if store.attributes.layout == "dense" else "sparse"
    for name in ARRAYS[layout] + ARRAYS["both"]:
        values = read_array(store.path, name)
        rewrite_array(store.path, name, CHANGES[change](values))
        if change in OTHER_DATA.get(name, ()):
            rows, labels, weights, original, *_ = read_it_all(store.path)
            assert np.isfinite(rows).all()
            assert np.isfinite(labels).all()
            assert (np.isfinite(weights) & (weights >= 0)).all()
            assert sorted(original) == list(range(N_ROWS))
        else:
            with pytest.raises(DataCorruptionError, match="convert the data again"):
                read_it_all(store.path)
        rewrite_array(store.path, name, values)
    read_it_all(store.path)


def equal_twice(indices, indptr):
    long = int(np.flatnonzero(np.diff(indptr) > 1)[0])
    indices[indptr[long] + 1] = indices[indptr[long]]


def descending(indices, indptr):
    long = int(np.flatnonzero(np.diff(indptr) > 1)[0])
    indices[indptr[long] : indptr[long + 1]] = indices[indptr[long] : indptr[long + 1]][::-1]


def far(indices, indptr):
    indices[-1] = 2**31 - 2


def below(indices, indptr):
    indices[0] = -1


READERS = {
    "read": lambda rows: rows.read(0, N_ROWS),
    "take": lambda rows: rows.take(np.arange(N_ROWS)[::-1]),
    "blocks": lambda rows: list(rows.blocks(1 << 14)),
    "dask": lambda rows: rows.as_dask().compute(),
    "scaled": lambda rows: ScaledRows(
        rows, Scaler("maxabs", np.zeros(N_COLUMNS), np.ones(N_COLUMNS))
    ).read(0, N_ROWS),
    "chosen": lambda rows: ChosenRows(rows, np.arange(N_ROWS)).read(0, N_ROWS),
    "training": lambda rows: SVC(max_iter=1).fit(rows._place.path),
}


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize("change", [equal_twice, descending, far, below])
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("original", ["sparse"], indirect=True)
def test_forged_csr_indices_are_refused(store, change, reader):
    indices, indptr = (read_array(store.path, f"X/{name}") for name in ("indices", "indptr"))
    change(indices, indptr)
    rewrite_array(store.path, "X/indices", indices)
    message = "but its values go from 0 to 22" if change in (far, below) else r"of row \d+ do not"
    with pytest.raises(DataCorruptionError, match=message):
        READERS[reader](open_store(store.path).rows)


@pytest.mark.parametrize("original", ["sparse"], indirect=True)
def test_the_row_whose_columns_descend_is_named(store):
    indices, indptr = (read_array(store.path, f"X/{name}") for name in ("indices", "indptr"))
    start = int(indptr[300])
    assert indptr[301] - start > 1
    indices[start : start + 2] = indices[start : start + 2][::-1]
    rewrite_array(store.path, "X/indices", indices)
    with pytest.raises(DataCorruptionError, match="the column indices of row 300 do not ascend"):
        open_store(store.path).rows.read(250, 350)
    open_store(store.path).rows.read(0, 300)
    open_store(store.path).rows.read(301, N_ROWS)


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_nonfinite_values_are_refused(store, reader, value):
    name = "X" if store.attributes.layout == "dense" else "X/data"
    rewrite_array(store.path, name, with_value(value, at=99)(read_array(store.path, name)))
    with pytest.raises(DataCorruptionError, match=rf"array '{name}': chunk 0 holds {value}"):
        READERS[reader](open_store(store.path).rows)


@pytest.mark.fault("forged-files")
def test_row_numbers_that_are_no_permutation_are_refused(store):
    rows = read_array(store.path, "row")
    rows[3] = rows[4]
    rewrite_array(store.path, "row", rows)
    again = open_store(store.path)
    for read in (again.original_rows, again.rows.original_rows, again.verify):
        with pytest.raises(DataCorruptionError, match=r"array 'row' lacks row \d+; convert"):
            read()


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize("change", ["another label", "another count"])
def test_labels_other_than_those_counted_are_refused(store, change):
    labels = read_array(store.path, "y")
    labels[7] = 9 if change == "another label" else (labels[7] + 1) % 3
    rewrite_array(store.path, "y", labels)
    with pytest.raises(DataCorruptionError, match="its labels are not those it has counted"):
        SVC().fit(store.path)
    assert open_store(store.path).labels(7, 8) == labels[7]


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("minimum", lambda a: a + 1e6, "statistics of column 0"),
        ("maximum", lambda a: np.where(a < 99, -1e6, a), "statistics of column 0"),
        ("mean", lambda a: a * 100, "statistics of column 0"),
        ("mean", lambda a: a * 1.001, r"its mean is \S+, but \S+ by the statistics"),
        ("mean", lambda a: np.full_like(a, np.nan), "statistics of column 0"),
        ("variance", lambda a: a - 99, "statistics of column 0"),
        ("variance", lambda a: a + 1e6, "statistics of column 0"),
        ("variance", lambda a: a / 2, r"its variance is \S+, but \S+ by the statistics"),
    ],
)
def test_impossible_statistics_are_refused(store, name, change, message):
    path = f"statistics/{name}"
    rewrite_array(store.path, path, change(read_array(store.path, path)))
    readers = [
        lambda store: store.statistics,
        lambda store: store.rows.column_means(),
        lambda store: store.rows.total_variance(),
    ]
    for read in readers:
        with pytest.raises(DataCorruptionError, match=message):
            read(open_store(store.path))


@pytest.mark.parametrize("name", ["mean", "variance"])
def test_contradictory_mean_and_variance_are_refused(store, name):
    edit_attributes(store.path, **{name: getattr(store.attributes, name) * 1.001})
    with pytest.raises(DataCorruptionError, match=f"its {name} is"):
        open_store(store.path).rows.total_variance()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_statistics_that_overflow_are_those_of_large_values(tmp_path):
    matrix = make_matrix(dtype=np.float64) * 1e200
    store = write_store(tmp_path / "s", matrix, np.zeros(len(matrix)))
    assert not np.isfinite(store.statistics.variance).all()
    assert not np.isfinite(open_store(store.path).rows.total_variance())
    store.verify()


@pytest.mark.parametrize("value", [0.1, -1e7 / 3, 1e-30, 0.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_statistics_of_constant_columns_are_accepted(tmp_path, small_chunks, value, dtype, layout):
    """Rounded, their mean may lie just beside the only value there is."""
    matrix = np.full((5000, 3), value, dtype)
    matrix[0, 0] = 1
    store = write_store(tmp_path / "s", matrix, np.zeros(5000), layout=layout)
    open_store(store.path).verify()


HARMLESS = {
    "seed": [None],
    "label_counts": [None],
    "first_index": [None],
    "scaler": [None],
    "feature_names": [None],
    "encoding": [None],
    "listed_columns": [None],
    "scaler_columns": [None],
    "earlier": [None],
    "shuffled": [True],
    "sources": [[]],
}


@pytest.fixture
def wide(tmp_path):
    """A store of few columns of very many, which are listed."""
    rng = np.random.default_rng(0)
    columns = np.sort(rng.choice(1 << 20, 40, replace=False))
    rows = sp.csr_array(make_matrix(60, 40))
    matrix = sp.csr_array((rows.data, columns[rows.indices], rows.indptr), shape=(60, 1 << 20))
    return write_store(tmp_path / "wide", matrix, np.arange(60) % 2, layout="sparse")


LIST_CHANGES = {
    "equal twice": lambda columns: np.repeat(columns[::2], 2)[: len(columns)],
    "descending": lambda columns: columns[::-1].copy(),
    "negative": lambda columns: -columns - 1,
    "too large": lambda columns: columns + (1 << 20),
    "fewer": lambda columns: columns[:-1],
    "none": lambda columns: columns[:0],
}


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize("change", LIST_CHANGES)
def test_forged_column_lists_are_refused(wide, change):
    assert wide.attributes.listed_columns is not None
    columns = read_array(wide.path, "statistics/column")
    rewrite_array(wide.path, "statistics/column", LIST_CHANGES[change](columns))
    with pytest.raises(DataCorruptionError):
        SVC().fit(wide.path)
    with pytest.raises(DataCorruptionError):
        open_store(wide.path).verify()


@pytest.mark.fault("forged-files")
def test_unlisted_column_is_refused(wide):
    columns = read_array(wide.path, "statistics/column")
    columns[0] += columns[1] > columns[0] + 1
    rewrite_array(wide.path, "statistics/column", columns)
    with pytest.raises(DataError, match=r"not one of the \d+ that were found to occur"):
        SVC().fit(wide.path)


def test_statistics_of_a_listed_column_are_named_by_its_number(wide):
    columns, means = (read_array(wide.path, f"statistics/{name}") for name in ("column", "mean"))
    means[7] *= 1e6
    rewrite_array(wide.path, "statistics/mean", means)
    with pytest.raises(DataCorruptionError, match=f"the statistics of column {columns[7]};"):
        open_store(wide.path).rows.column_means()


WRONG = [None, True, -1, 2**64, 2.5, float("inf"), float("nan"), 10**400, "7", "", [], [[]], {}]


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize(
    "name",
    [
        *("format_version", "n_rows", "n_columns", "n_nonzero", "dtype", "layout", "shuffled"),
        *("seed", "label_counts", "mean", "variance", "sources", "first_index", "manifest"),
        *("fingerprint", "rows_fingerprint", "scaler", "feature_names"),
        *("encoding", "listed_columns", "scaler_columns", "earlier"),
    ],
)
def test_forged_attributes_are_refused(store, name):
    before = everything(store)
    for value in WRONG:
        file = store.path / "zarr.json"
        text = file.read_text()
        content = json.loads(text)
        record = content["attributes"][schema.KEY]
        record[name] = value
        record["checksum"] = schema.checksum(record)
        file.write_text(json.dumps(content))
        if name in HARMLESS and value in HARMLESS[name]:
            for old, new in zip(before, read_it_all(store.path), strict=True):
                np.testing.assert_array_equal(old, new)
        else:
            with pytest.raises(StoreError) as caught:
                read_it_all(store.path)
            assert len(str(caught.value)) < 1000
        file.write_text(text)


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize(
    "counts",
    [
        [[0, N_ROWS - 1]],
        [[0, N_ROWS + 1], [1, -1]],
        [[0, N_ROWS - 1], [0, 1]],
        [[1, N_ROWS - 1], [0, 1]],
        [[float("nan"), N_ROWS]],
        [[0, float(N_ROWS)]],
        [["0", N_ROWS]],
        [[0, N_ROWS, 1]],
        [0, N_ROWS],
    ],
)
def test_forged_label_counts_are_refused(store, counts):
    edit_attributes(store.path, label_counts=counts)
    with pytest.raises(DataCorruptionError, match="label_counts"):
        open_store(store.path)


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize("deep", ["[" * 900 + "]" * 900, '{"a":' * 900 + "1" + "}" * 900])
@pytest.mark.parametrize("name", ["manifest", "n_rows", "sources", "checksum"])
def test_deeply_nested_attributes_are_refused(store, deep, name):
    file = store.path / "zarr.json"
    content = json.loads(file.read_text())
    content["attributes"][schema.KEY][name] = "DEEP"
    file.write_text(json.dumps(content).replace('"DEEP"', deep))
    with pytest.raises(DataCorruptionError):
        open_store(store.path)

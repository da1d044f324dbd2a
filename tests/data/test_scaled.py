"""Scaled rows are a source like any other; their values are checked as they are made."""

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from row_contracts import RowSourceContract
from support.stores import dense, make_matrix

from bigsvm.conversion.from_arrays import write_store
from bigsvm.data.dask_rows import DaskRows
from bigsvm.data.in_memory import ArrayRows
from bigsvm.data.scaler import Scaler
from bigsvm.data.store import open_store
from bigsvm.data.wrappers import ChosenRows, HeldRows, ScaledRows, in_scale_of
from bigsvm.errors import DataError


def halved(n_columns):
    """A scaler that no bit is lost by."""
    return Scaler("maxabs", np.zeros(n_columns), np.full(n_columns, 0.5))


def doubled(form):
    return lambda matrix: ScaledRows(ArrayRows(form(matrix * 2)), halved(matrix.shape[1]))


class TestScaledDenseRows(RowSourceContract):
    sparse = False

    @pytest.fixture
    def make(self):
        return doubled(np.asarray)


class TestScaledSparseRows(RowSourceContract):
    sparse = True

    @pytest.fixture
    def make(self):
        return doubled(sp.csr_array)


class TestScaledDaskRows(RowSourceContract):
    sparse = False

    @pytest.fixture
    def make(self):
        def make(matrix):
            return ScaledRows(DaskRows(da.from_array(matrix * 2, chunks=(130, 23))), halved(23))

        return make


class TestScaledStoreRows(RowSourceContract):
    sparse = True

    @pytest.fixture
    def make(self, tmp_path, small_chunks):
        def make(matrix):
            path = tmp_path / f"{len(list(tmp_path.iterdir()))}.zarr"
            options = {"shuffle": False, "layout": "sparse"}
            store = write_store(path, matrix * 2, np.zeros(len(matrix)), **options)
            return ScaledRows(store.rows, halved(23))

        return make


def test_sparse_rows_whose_zeros_move_become_dense_block_by_block():
    matrix = make_matrix(1000, density=0.05)
    scaler = Scaler("minmax", np.ones(23), np.full(23, 0.5))
    source = ScaledRows(ArrayRows(sp.csr_array(matrix)), scaler)
    assert not source.is_sparse
    assert source.bytes_per_row == 23 * 4
    expected = (matrix - 1) * np.float32(0.5)
    for start, values in source.blocks(2 * 100 * 23 * 4):
        assert values.shape[0] <= 100
        np.testing.assert_array_equal(values, expected[start : start + len(values)])
    np.testing.assert_array_equal(source.take(np.array([7, 3])), expected[[7, 3]])
    array = source.as_dask(block_bytes=300 * 23 * 4)
    assert array.chunks == ((300, 300, 300, 100), (23,))
    np.testing.assert_array_equal(array.compute(), expected)
    assert source.total_variance() == pytest.approx(expected.astype(float).var(), rel=1e-12)


def test_the_fingerprint_is_that_of_rows_and_scaler():
    rows = ArrayRows(np.eye(3))
    prints = {
        ScaledRows(rows, Scaler("minmax", np.full(3, offset), np.full(3, factor))).fingerprint()
        for offset in (0.0, 1.0)
        for factor in (1.0, 2.0)
    }
    assert len(prints | {rows.fingerprint()}) == 5


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "csr"])
def test_scaled_values_beyond_float32_are_refused_by_row_and_column(form):
    matrix = np.ones((50, 2), np.float32)
    matrix[31, 1] = 1e30
    source = ScaledRows(ArrayRows(form(matrix)), Scaler("maxabs", np.zeros(2), np.full(2, 1e20)))
    message = r"X has 1.* in row 31, column 1 .* no finite float32 when scaled; .* as float64"
    with pytest.raises(DataError, match=message):
        source.read(20, 50)
    with pytest.raises(DataError, match=message):
        source.take(np.array([3, 31]))
    with pytest.raises(DataError, match=message):
        source.as_dask().compute()
    assert np.isfinite(dense(source.read(0, 31))).all()
    wide = ScaledRows(ArrayRows(form(matrix.astype(np.float64))), source.scaler)
    assert dense(wide.read(31, 32))[0, 1] == pytest.approx(1e50)


def test_another_number_of_columns():
    with pytest.raises(DataError, match=r"3 columns, their scaler 4; .*--features 4"):
        ScaledRows(ArrayRows(np.eye(3)), halved(4))


def test_rows_come_as_a_model_wants_them(tmp_path):
    raw = ArrayRows(np.eye(3))
    scaler = halved(3)
    assert in_scale_of(raw, None) is raw
    assert in_scale_of(raw, scaler).scaler is scaler
    write_store(tmp_path / "s", ScaledRows(raw, scaler), np.zeros(3))
    rows = open_store(tmp_path / "s").rows
    assert in_scale_of(rows, scaler) is rows
    other = Scaler("minmax", np.zeros(3), np.ones(3))
    with pytest.raises(DataError, match=r"other parameters \(maxabs\) than .* on \(minmax\)"):
        in_scale_of(rows, other)
    with pytest.raises(DataError, match="trained on rows that were not scaled"):
        in_scale_of(rows, None)


def test_sources_that_wrap_others_know_their_scaler():
    source = ScaledRows(ArrayRows(np.eye(3)), halved(3))
    assert ChosenRows(source, np.array([2, 0])).scaler == source.scaler
    assert HeldRows(source, source.read(0, 3)).scaler == source.scaler
    assert ArrayRows(np.eye(3)).scaler is None


def test_scaled_rows_have_the_input_numbers_of_their_source(tmp_path):
    store = write_store(tmp_path / "x.zarr", make_matrix(), np.zeros(1000), seed=3)
    rows = ScaledRows(store.rows, halved(23))
    assert not (store.original_rows() == np.arange(1000)).all()
    np.testing.assert_array_equal(rows.original_rows(), store.original_rows())

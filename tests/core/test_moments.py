"""Sums of the columns of sparse rows against NumPy's."""

import numpy as np
import pytest

from bigsvm.core import wide

N_COLUMNS = 7


def entries(dtype, index_type=np.int32):
    rng = np.random.default_rng(0)
    columns = rng.integers(0, N_COLUMNS - 1, 300).astype(index_type)
    return columns, rng.standard_normal(300).astype(dtype)


def added(columns, values):
    filled, sums = np.zeros(N_COLUMNS, np.int64), np.zeros(N_COLUMNS)
    minima, maxima = np.full(N_COLUMNS, np.inf), np.full(N_COLUMNS, -np.inf)
    fits = wide.add_entries(columns, values, filled, sums, minima, maxima)
    return fits, filled, sums, minima, maxima


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("index_type", [np.int32, np.int64])
def test_sums_have_the_bits_of_bincount(dtype, index_type):
    columns, values = entries(dtype, index_type)
    fits, filled, sums, minima, maxima = added(columns, values)
    assert fits
    np.testing.assert_array_equal(filled, np.bincount(columns, minlength=N_COLUMNS))
    np.testing.assert_array_equal(sums, np.bincount(columns, values, minlength=N_COLUMNS))
    for j in range(N_COLUMNS - 1):
        assert (minima[j], maxima[j]) == (values[columns == j].min(), values[columns == j].max())
    assert (minima[-1], maxima[-1]) == (np.inf, -np.inf)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_deviations_have_the_bits_of_bincount(dtype):
    columns, values = entries(dtype)
    means, deviations = np.linspace(-1, 1, N_COLUMNS), np.zeros(N_COLUMNS)
    wide.add_deviations(columns, values, means, deviations)
    squares = (values.astype(np.float64) - means[columns]) ** 2
    np.testing.assert_array_equal(deviations, np.bincount(columns, squares, minlength=N_COLUMNS))


@pytest.mark.parametrize("column", [-1, N_COLUMNS, -(2**31), 2**31 - 1])
def test_a_column_out_of_range_is_noticed(column):
    columns, values = entries(np.float32)
    columns[100] = column
    assert not added(columns, values)[0]

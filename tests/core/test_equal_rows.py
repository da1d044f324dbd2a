"""Hashes against Python's integers, comparisons against arrays."""

import numpy as np
import pytest
import scipy.sparse as sp

from bigsvm.core import duplicates


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_hashes_of_dense_and_sparse_rows_are_the_sum(dtype):
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 4, (7, 5)).astype(dtype)
    keys = rng.integers(0, 1 << 20, 5).astype(np.uint64)
    expected = [sum(int(b) * int(k) for b, k in zip(row, keys, strict=True)) for row in bits]
    dense, sparse = np.empty(7, np.uint64), np.empty(7, np.uint64)
    duplicates.hash_dense(bits, keys, dense)
    rows = sp.csr_array(bits)
    duplicates.hash_sparse(rows.data, rows.indices, rows.indptr, keys, sparse)
    assert dense.tolist() == sparse.tolist() == expected


def test_rows_are_the_same_where_every_bit_is():
    rows = np.array([[1, 0, 2], [1, 0, 2], [1, 0, 3], [0, 1, 2], [1, 0, 0]], np.uint32)
    first, second = (i.ravel().astype(np.int32) for i in np.meshgrid(np.arange(5), np.arange(5)))
    expected = (rows[first] == rows[second]).all(axis=1)
    dense, sparse = np.empty(25, np.bool_), np.empty(25, np.bool_)
    duplicates.same_dense(rows, first, second, dense)
    stored = sp.csr_array(rows)
    duplicates.same_sparse(stored.data, stored.indices, stored.indptr, first, second, sparse)
    np.testing.assert_array_equal(dense, expected)
    np.testing.assert_array_equal(sparse, expected)

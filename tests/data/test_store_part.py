"""Chosen rows of a store are a source like any other, with statistics of their own."""

import numpy as np
import pytest
import scipy.sparse as sp
from row_contracts import RowSourceContract

from bigsvm.data.in_memory import ArrayRows
from bigsvm.data.store_part import PartRows


def scattered(matrix, form):
    """Give the rows of `matrix` as some rows of a larger source."""
    n = len(matrix)
    chosen = np.sort(np.random.default_rng(3).permutation(n + 20)[:n])
    larger = np.full((n + 20, matrix.shape[1]), 7, matrix.dtype)
    larger[chosen] = matrix
    return PartRows(ArrayRows(form(larger)), chosen)


class TestDensePart(RowSourceContract):
    sparse = False

    @pytest.fixture
    def make(self):
        return lambda matrix: scattered(matrix, np.asarray)


class TestSparsePart(RowSourceContract):
    sparse = True

    @pytest.fixture
    def make(self):
        return lambda matrix: scattered(matrix, sp.csr_array)

"""Moments of few sparse entries, by NumPy: the bits are those of compiled code."""

import numpy as np
import pytest
import scipy.sparse as sp

from bigsvm.data import statistics
from bigsvm.data.statistics import moments_of
from bigsvm.errors import DataError


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("density", [0.0, 0.05, 0.5, 1.0])
def test_moments_have_the_bits_of_compiled_code(density, dtype, monkeypatch):
    rng = np.random.default_rng(0)
    rows = sp.random_array((300, 12), density=density, rng=rng, format="csr", dtype=np.float64)
    rows = (rows * 3).astype(dtype)
    [found] = moments_of(rows)
    monkeypatch.setattr(statistics, "FEW_ENTRIES", -1)
    [expected] = moments_of(rows)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("column", [-1, 3])
@pytest.mark.parametrize("few", [-1, 1 << 16])
def test_a_column_out_of_range_is_refused(column, few, monkeypatch):
    monkeypatch.setattr(statistics, "FEW_ENTRIES", few)
    rows = sp.csr_array(np.eye(3))
    rows.indices[1] = column
    with pytest.raises(DataError, match="not one of its 3 columns"):
        list(moments_of(rows))

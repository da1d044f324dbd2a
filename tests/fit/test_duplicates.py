"""Equal rows, against a dictionary of their bytes."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from bigsvm.core import duplicates as core
from bigsvm.data.sources import as_row_source
from bigsvm.fit.duplicates import equal_rows


def by_dictionary(matrix, kind, candidates):
    groups = {}
    for i in candidates.tolist():
        groups.setdefault((matrix[i].tobytes(), int(kind[i])), []).append(i)
    return sorted(map(tuple, groups.values()))


def listed(groups):
    return sorted(
        tuple(groups.rows[a:b].tolist())
        for a, b in zip(groups.starts[:-1], groups.starts[1:], strict=True)
    )


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(seed=st.integers(0, 2**32), n=st.integers(1, 60), values=st.integers(1, 4))
def test_groups_are_those_of_a_dictionary(form, dtype, seed, n, values):
    rng = np.random.default_rng(seed)
    matrix = rng.integers(0, values, (n, 3)).astype(dtype) / 3
    kind = rng.choice(np.array([-1, 1], np.int8), n)
    candidates = np.flatnonzero(rng.random(n) < 0.8).astype(np.int32)
    groups = equal_rows(as_row_source(form(matrix)), kind, candidates)
    assert listed(groups) == by_dictionary(matrix, kind, candidates)
    assert len(groups) == len(groups.first)
    np.testing.assert_array_equal(np.sort(groups.rows), candidates)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_equal_hashes_alone_make_no_rows_equal(form, monkeypatch):
    for name in ("hash_dense", "hash_sparse"):
        monkeypatch.setattr(core, name, lambda *arrays: arrays[-1].fill(1))
    matrix = np.array([[1, 2], [1, 2], [3, 4], [1, 2]], np.float32)
    groups = equal_rows(as_row_source(form(matrix)), np.ones(4, np.int8), np.arange(4))
    found = listed(groups)
    assert (0, 1) in found
    assert (2,) in found  # what follows a row that only looked the same is kept twice


def test_zeros_of_either_sign_are_kept_apart():
    matrix = np.array([[0.0], [-0.0]], np.float32)
    assert len(equal_rows(as_row_source(matrix), np.ones(2, np.int8), np.arange(2))) == 2

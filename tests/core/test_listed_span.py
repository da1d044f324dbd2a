"""Products with partners in lists: the bits of chains with all zeros."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from numba import config

from bigsvm.core import gram
from bigsvm.gram.lists import FULL_LIST, lists_of

LINEAR = gram.Formula(gram.LINEAR, 1.0, 0.0, 1, 0.0)
COLUMNS = 70
"""More than two words of a directory have."""


def draw_rows(n, *, seed, density, dtype):
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, COLUMNS)) * (rng.random((n, COLUMNS)) < density)
    if n > 1:
        values[1] = 0
    values[:, [31, 32]] *= 8  # the last of a word, and the first one
    return values.astype(dtype)


def run(span, rows, vectors, used, parts):
    """Products of CSR rows with tiles."""
    place, (m, p), dtype = np.full(COLUMNS, -1, np.int32), (rows.shape[0], parts[-1][0]), rows.dtype
    out = np.full((m, p), np.nan, dtype)
    widest = max(np.diff([start for start, _, _ in parts]))
    span(
        rows.data, rows.indices, rows.indptr.astype(np.int64), np.zeros(m, dtype), place,
        np.concatenate(vectors), np.concatenate(used).astype(np.int32), np.array(parts, np.int64),
        np.zeros(p, dtype), None, LINEAR, np.full((m, widest), np.nan, dtype), np.empty(0),
        np.empty(0), out, np.arange(m),
    )  # fmt: skip
    np.testing.assert_array_equal(place, -1)
    return out


def listed(rows, others, *, cuts=()):
    """Products of CSR rows with dense partners (p, d), in tiles that end at `cuts`."""
    parts, used, vectors = [(0, 0, 0)], [], []
    for part in np.split(others, cuts):
        part = sp.csr_array(part)
        features = np.unique(part.indices).astype(np.int32)
        given = part.data, part.indices, part.indptr.astype(np.int64), features
        lists, values = lists_of(*given, np.empty(COLUMNS, np.int32))
        used.append(lists)
        vectors.append(values)
        parts.append(tuple(np.add(parts[-1], (part.shape[0], len(lists), len(values)))))
    return run(gram.listed_span, rows, vectors, used, parts)


def chains(rows, others):
    """The same products with all features, in tiles of one partner."""
    p, d = others.shape
    parts = [(j, j * d, j * d) for j in range(p + 1)]
    return run(gram.sparse_span, rows, list(others), [np.arange(d)] * p, parts)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(data=st.data())
def test_products_have_the_bits_of_chains_with_zeros(dtype, data):
    most = 4 if config.DISABLE_JIT else 60
    m, p = data.draw(st.integers(1, 4)), data.draw(st.integers(1, most))
    density, seed = data.draw(st.sampled_from([0.02, 0.1, 0.6])), data.draw(st.integers(0, 1000))
    rows = draw_rows(m, seed=seed, density=0.3, dtype=dtype)
    others = draw_rows(p, seed=seed + 1, density=density, dtype=dtype)
    cuts = sorted(data.draw(st.sets(st.integers(0, p), max_size=2)))
    rows = sp.csr_array(rows)
    np.testing.assert_array_equal(listed(rows, others, cuts=cuts), chains(rows, others))


def test_frequent_features_have_all_partners_and_rare_ones_those_that_have_them():
    n = 4 * FULL_LIST
    others = np.zeros((n, COLUMNS), np.float32)
    others[:, 40] = np.arange(1, n + 1)
    others[[3, 9, 10, n - 1], 50] = 5
    others[[2, 7], 69] = 7
    part = sp.csr_array(others)
    features = np.array([40, 50, 69], np.int32)
    given = part.data, part.indices, part.indptr.astype(np.int64), features
    lists, values = lists_of(*given, np.empty(COLUMNS, np.int32))
    starts = lists[1 + 2 * 3 : 1 + 2 * 3 + 4]
    np.testing.assert_array_equal(np.diff(starts), [n, n, 2])
    np.testing.assert_array_equal(values[:n], others[:, 40])
    np.testing.assert_array_equal(values[n : 2 * n], others[:, 50])
    np.testing.assert_array_equal(lists[-2:], [2, 7])
    np.testing.assert_array_equal(values[-2:], 7)

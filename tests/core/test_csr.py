"""Products of sparse rows with tiles: against loops, and bit by bit wherever they are computed."""

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numba import config

from bigsvm.core import csr, gram

SLOW_PYTHON = config.DISABLE_JIT
LINEAR = gram.Formula(gram.LINEAR, 1.0, 0.0, 1, 0.0)
CHUNKS = {np.float32: gram.CHUNK32, np.float64: gram.CHUNK64}


@st.composite
def sparse_problems(draw):
    """CSR rows with empty ones among them, and a dense (d, p) matrix with rows of zeros."""
    d, m, p = draw(st.integers(1, 12)), draw(st.integers(1, 5)), draw(st.integers(1, 6))
    p += draw(st.sampled_from([0] if SLOW_PYTHON else [0, CHUNKS[np.float32] * 2]))
    columns = [sorted(draw(st.sets(st.integers(0, d - 1), max_size=d))) for _ in range(m)]
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    indptr = np.cumsum([0] + [len(c) for c in columns])
    indices = np.array([c for row in columns for c in row], np.int64)
    dense = rng.normal(size=(d, p)) * (rng.random(d) < 0.7)[:, None]
    return rng.normal(size=len(indices)), indices, indptr, dense


def tile_of(columns, dtype):
    """The layout of `sparse_span`: chunks one after the other."""
    width = CHUNKS[dtype]
    chunks = [columns[:, low : low + width].ravel() for low in range(0, columns.shape[1], width)]
    return np.concatenate([np.empty(0), *chunks]).astype(dtype)


def sparse_product(data, indices, indptr, dense, dtype=np.float64):
    """Products with two tiles, each of its own features; either may be empty.

    Indices have the types that training has: those of other types would be compiled too.
    """
    cut = dense.shape[1] // 2
    parts, used, vectors = [(0, 0, 0)], [], []
    for columns in (dense[:, :cut], dense[:, cut:]):
        features = np.flatnonzero(columns.any(axis=1))
        used.append(features)
        vectors.append(tile_of(columns[features], dtype))
        size = (columns.shape[1], len(features), vectors[-1].size)
        parts.append(tuple(np.add(parts[-1], size)))
    place = np.full(len(dense), -1, np.int32)
    out = np.full((len(indptr) - 1, dense.shape[1]), np.nan, dtype)
    block = np.full((len(out), max(cut, dense.shape[1] - cut)), np.nan, dtype)
    norms, norms_partners = np.zeros(len(out), dtype), np.zeros(dense.shape[1], dtype)
    gram.sparse_span(
        data.astype(dtype), indices.astype(np.int32), indptr.astype(np.int64), norms, place,
        np.concatenate(vectors), np.concatenate(used).astype(np.int32),
        np.array(parts, np.int64), norms_partners, None, LINEAR,
        block, np.empty(0), np.empty(0), out, np.arange(len(out)),
    )  # fmt: skip
    np.testing.assert_array_equal(place, -1)
    return out


@given(sparse_problems())
def test_sparse_products_are_loops(problem):
    exact = naive.csr_product(*problem)
    np.testing.assert_allclose(sparse_product(*problem), exact, atol=1e-13)
    data, indices, indptr, dense = problem
    narrow = sparse_product(data, indices, indptr, dense, np.float32)
    np.testing.assert_allclose(narrow, exact, atol=2e-5)


@pytest.mark.parametrize("dtype", CHUNKS)
def test_sparse_bits_depend_on_the_two_vectors_alone(dtype):
    rng = np.random.default_rng(5)
    # Half of them are a chunk and a few columns.
    n, d = (8, 12) if SLOW_PYTHON else (2 * CHUNKS[dtype] + 12, 40)
    matrix = (rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.5)).astype(dtype)
    indptr = np.cumsum([0, *np.count_nonzero(matrix, axis=1)])
    indices = np.nonzero(matrix)[1]
    data = matrix[matrix != 0]
    whole = sparse_product(data, indices, indptr, matrix.T, dtype)
    np.testing.assert_array_equal(whole, whole.T)
    for columns in ([0], [n - 1, 2], rng.permutation(n)[: n // 2]):
        part = sparse_product(data, indices, indptr, matrix[columns].T, dtype)
        np.testing.assert_array_equal(part, whole[:, columns])
    norms = np.empty(n, dtype)
    csr.csr_squared_norms(data, indptr, norms)
    np.testing.assert_array_equal(norms, np.diag(whole))


def test_sparse_norms_do_not_lose_small_rows_after_large_ones():
    data = np.array([1e10, 3e10, 1e-3, 2e-3])
    norms = np.empty(3)
    csr.csr_squared_norms(data, np.array([0, 2, 2, 4]), norms)
    np.testing.assert_allclose(norms, [1e21, 0, 5e-6], rtol=1e-15)


@pytest.mark.parametrize("dtype", CHUNKS)
@pytest.mark.parametrize("beside", [-1, 0, 1, 5])
def test_bits_of_a_column_do_not_depend_on_the_chunk_it_is_in(beside, dtype):
    rng = np.random.default_rng(6)
    dense = rng.normal(size=(23, 2 * CHUNKS[dtype] + beside)).astype(dtype)
    indptr = np.array([0, 0, 1, 6, 23])
    indices = np.concatenate([[3], np.arange(4, 9), np.arange(17)])
    data = rng.normal(size=len(indices)).astype(dtype)
    whole = sparse_product(data, indices, indptr, dense, dtype)
    np.testing.assert_array_equal(whole[0], 0)
    for j in (0, CHUNKS[dtype] - 1, CHUNKS[dtype], dense.shape[1] - 1):
        alone = sparse_product(data, indices, indptr, dense[:, j : j + 1], dtype)
        np.testing.assert_array_equal(alone, whole[:, j : j + 1])
    np.testing.assert_allclose(whole, naive.csr_product(data, indices, indptr, dense), atol=3e-5)


@pytest.mark.parametrize("dtype", CHUNKS)
def test_a_tile_is_laid_out_in_chunks(dtype):
    rng = np.random.default_rng(7)
    p, used = CHUNKS[dtype] + 3, np.array([1, 2, 5, 6], np.int32)
    rows = np.zeros((p, 8), dtype)
    rows[:, used] = rng.normal(size=(p, 4)) * (rng.random((p, 4)) < 0.5)
    indptr = np.cumsum([0, *np.count_nonzero(rows, axis=1)])
    tile = np.zeros(4 * p, dtype)
    csr.csr_tile(
        rows[rows != 0],
        np.nonzero(rows)[1].astype(np.int32),
        indptr,
        used,
        np.empty(8, np.int32),
        CHUNKS[dtype],
        tile,
    )
    np.testing.assert_array_equal(tile, tile_of(rows.T[used], dtype))

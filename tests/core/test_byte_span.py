"""Products with columns of bytes: those of Python integers, and the bits of float chains."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from numba import config

from bigsvm.core import csr, gram

SLOW_PYTHON = config.DISABLE_JIT
WORDS = pytest.param(
    np.uint32,
    marks=pytest.mark.skipif(
        not gram.MULTIPLIES_BYTES, reason="the processor does not multiply bytes"
    ),
)
LARGEST = {np.uint8: 1, np.uint32: 255}
LINEAR = gram.Formula(gram.LINEAR, 1.0, 0.0, 1, 0.0)


def parts_of(rows):
    """The arrays of CSR rows, of the types that training has: others would be compiled too."""
    return rows.data, rows.indices.astype(np.int32), rows.indptr.astype(np.int64)


def chunk_of(layout):
    return gram.CHUNK_BYTES // np.dtype(layout).itemsize


def run(span, rows, vectors, used, parts, dtype):
    """Products of CSR rows with tiles."""
    place, p = np.full(rows.shape[1], -1, np.int32), parts[-1][0]
    m = rows.shape[0]
    out = np.full((m, p), np.nan, dtype)
    widest = max(np.diff([start for start, _, _ in parts]))
    span(
        *parts_of(rows.astype(dtype)), np.zeros(m, dtype), place,
        np.concatenate(vectors), np.concatenate(used).astype(np.int32), np.array(parts, np.int64),
        np.zeros(p, dtype), None, LINEAR, np.full((m, widest), np.nan, dtype), np.empty(0),
        np.empty(0), out, np.arange(m),
    )  # fmt: skip
    np.testing.assert_array_equal(place, -1)
    return out


def multiply(rows, columns, layout, *, dtype=np.float32, cuts=()):
    """Products of CSR rows with dense columns (p, d), in tiles of bytes that end at `cuts`."""
    parts, used, vectors = [(0, 0, 0)], [], []
    for part in np.split(columns, cuts):
        part = sp.csr_array(part.astype(dtype))
        features = np.unique(part.indices)
        used.append(np.unique(features >> 2) if layout == np.uint32 else features)
        width = chunk_of(layout)
        vectors.append(np.full(len(used[-1]) * -(-part.shape[0] // width) * width, 77, layout))
        csr.csr_byte_tile(
            *parts_of(part), used[-1].astype(np.int32), np.empty(rows.shape[1], np.int32), width,
            vectors[-1],
        )  # fmt: skip
        parts.append(tuple(np.add(parts[-1], (part.shape[0], len(used[-1]), len(vectors[-1])))))
    return run(gram.byte_span, rows, vectors, used, parts, dtype)


def chains(rows, columns, dtype=np.float32):
    """The same products in floats, in tiles of one column."""
    p, d = columns.shape
    parts = [(j, j * d, j * d) for j in range(p + 1)]
    used = [np.arange(d)] * p
    return run(gram.sparse_span, rows, list(columns.astype(dtype)), used, parts, dtype)


def draw_whole(shape, largest, *, seed=0, density=0.5):
    rng = np.random.default_rng(seed)
    return rng.integers(1, largest + 1, shape) * (rng.random(shape) < density)


@st.composite
def problems(draw, layout):
    d, m, p = draw(st.integers(1, 11)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
    if not SLOW_PYTHON:
        wide = chunk_of(layout)
        p += draw(st.sampled_from([0, wide - 2, wide, 2 * wide - 1]))
    seed, density = draw(st.integers(0, 1000)), draw(st.sampled_from([0.2, 0.6, 1.0]))
    rows = draw_whole((m, d), LARGEST[layout], seed=seed, density=density)
    columns = draw_whole((p, d), LARGEST[layout], seed=seed + 1, density=density)
    return rows, columns, sorted(draw(st.sets(st.integers(0, p), max_size=2)))


@pytest.mark.parametrize("layout", [pytest.param(np.uint8, marks=pytest.mark.slow), WORDS])
@given(data=st.data())
def test_products_are_those_of_integers(layout, data):
    rows, columns, cuts = data.draw(problems(layout))
    exact = rows.astype(np.int64) @ columns.astype(np.int64).T
    for dtype in (np.float32, np.float64):
        found = multiply(sp.csr_array(rows), columns, layout, dtype=dtype, cuts=cuts)
        np.testing.assert_array_equal(found, exact)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layout", [np.uint8, WORDS])
@pytest.mark.parametrize("value", [0.5, -1.0, 256.0, 1e30, np.inf, np.nan, 2.0**-149])
def test_other_rows_have_the_bits_of_float_chains(layout, dtype, value):
    rng = np.random.default_rng(1)
    d, p = 13, 5 if SLOW_PYTHON else 5 + chunk_of(layout)
    rows = draw_whole((6, d), LARGEST[layout], density=0.7).astype(dtype)
    rows[1, 4] = value
    rows[2] = rng.normal(size=d) * 100
    rows[4] = value
    columns = draw_whole((p, d), LARGEST[layout], seed=2)
    with np.errstate(over="ignore", invalid="ignore"):
        found = multiply(sp.csr_array(rows), columns, layout, dtype=dtype)
        np.testing.assert_array_equal(found, chains(sp.csr_array(rows), columns, dtype))


@pytest.mark.parametrize("layout", [np.uint8, WORDS])
def test_explicit_zeros_and_empty_rows_count_nothing(layout):
    rows = sp.csr_array(
        (np.array([0.0, 1, 1, 0]), np.array([0, 1, 5, 6]), np.array([0, 2, 2, 4])), shape=(3, 8)
    )
    assert rows.nnz == 4
    found = multiply(rows, np.ones((2, 8)), layout)
    np.testing.assert_array_equal(found, [[1, 1], [0, 0], [1, 1]])


@pytest.mark.parametrize("n_common", [255, 256, 510, 511, 700])
def test_counters_do_not_overflow(n_common):
    rows = sp.csr_array(np.ones((2, n_common)))
    columns = np.ones((3, n_common))
    columns[1, 7] = 0
    found = multiply(rows, columns, np.uint8)
    np.testing.assert_array_equal(found, [[n_common, n_common - 1, n_common]] * 2)


@pytest.mark.parametrize("layout", [WORDS])
@pytest.mark.parametrize("n_largest", [257, 258, 259, 600])
def test_the_largest_products_are_those_of_float_chains(layout, n_largest):
    """float32 does not hold every whole number from 2²⁴ on, which 259 · 255 · 255 exceeds."""
    rows = np.full((2, n_largest + 1), 255)
    rows[1, ::2] = 254
    rows[0, 0] = 1
    found = multiply(sp.csr_array(rows), rows, layout)
    np.testing.assert_array_equal(found, chains(sp.csr_array(rows), rows))
    if n_largest < 258:
        np.testing.assert_array_equal(found, rows @ rows.T)
        assert found.max() > 2**24 - 2 * 255**2


@pytest.mark.parametrize("layout", [WORDS])
def test_rows_of_many_features_are_exact_in_float64(layout):
    rows = np.full((2, 1000), 255)
    rows[1, ::3] = 254
    found = multiply(sp.csr_array(rows), rows, layout, dtype=np.float64)
    np.testing.assert_array_equal(found, rows @ rows.T)


def survey(rows, places=None):
    rows = sp.csr_array(rows)
    places = np.arange(rows.shape[0]) if places is None else np.array(places, np.int64)
    return csr.csr_survey(*parts_of(rows), places)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("wrong", [-1.0, 0.5, 255.5, 256.0, 1e30, np.nan, np.inf, -np.inf])
def test_a_survey_finds_values_that_are_no_bytes(dtype, wrong):
    rows = np.array([[0, 1, 0, 3, 0, 255], [1, 0, 0, 0, 0, 0], [0, 0, 0, 0, wrong, 0]], dtype)
    assert survey(rows)[0] == -1
    assert survey(rows, [1, 0]) == (255, 4, 3)
    assert survey(rows, [1]) == (1, 1, 1)
    assert survey(rows, []) == (0, 0, 0)


def test_a_survey_counts_groups_of_four_features():
    rows = np.zeros((3, 12))
    rows[0, :4], rows[1, 3:5], rows[2, [0, 11]] = 2, 3, 1
    assert survey(rows) == (3, 8, 5)


@pytest.mark.skipif(SLOW_PYTHON, reason="the interpreter multiplies bytes")
def test_processors_without_the_instruction_are_known(monkeypatch):
    wanted = {64: "+avx512vnni", 32: "+avxvnni"}
    for size, feature in wanted.items():
        monkeypatch.setattr(gram, "VECTOR_BYTES", size)
        monkeypatch.setattr(config, "CPU_FEATURES", f"+avx2,{feature}")
        assert gram._multiplies_bytes()
        monkeypatch.setattr(config, "CPU_FEATURES", f"+avx2,-{feature[1:]}")
        assert not gram._multiplies_bytes()
        monkeypatch.setattr(config, "CPU_FEATURES", "")
        assert not gram._multiplies_bytes()
    monkeypatch.setattr(gram, "VECTOR_BYTES", 16)
    assert not gram._multiplies_bytes()

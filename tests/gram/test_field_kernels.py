"""Kernels of fields: their values against loops, bit by bit for dense and sparse rows."""

import naive
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.gaussian_process.kernels import Matern
from sklearn.metrics.pairwise import chi2_kernel, cosine_similarity

from bigsvm.errors import DataError
from bigsvm.gram import KernelTiles, Partners
from bigsvm.kernels import make_kernel

NAMES = ["cosine", "matern32", "matern52", "intersection", "tanimoto", "chi2"]
NONNEGATIVE = ["intersection", "tanimoto", "chi2"]
GAMMA = 0.05


def values_of(name, A, B, *, sparse=False, dtype=np.float64, **options):
    convert = sp.csr_array if sparse else np.asarray
    with KernelTiles(make_kernel(name, gamma=GAMMA), dtype=dtype, **options) as tiles:
        out = np.full((len(A), len(B)), np.nan, dtype)
        partners = Partners(tiles.values, convert(B), for_sparse_rows=sparse)
        tiles.evaluate(convert(A), partners, out)
        diagonal = tiles.values.diagonal(partners.norms)
        np.testing.assert_array_equal(diagonal, np.diag(own_values(tiles, convert(B), partners)))
    return out


def own_values(tiles, rows, partners):
    out = np.empty((partners.n, partners.n), tiles.dtype)
    tiles.evaluate(rows, partners, out)
    return out


def counts(n, d, *, seed=0):
    """Counts, a row of zeros among them."""
    rows = np.random.default_rng(seed).poisson(0.6, (n, d)).astype(float)
    rows[n // 2] = 0
    return rows


ROWS = {
    "counts": lambda n, seed: counts(n, 23, seed=seed),
    "bits": lambda n, seed: np.minimum(counts(n, 23, seed=seed), 1),
    "fractions": lambda n, seed: counts(n, 23, seed=seed) / 3,
    "one column": lambda n, seed: counts(n, 1, seed=seed),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("name", NAMES)
def test_values_are_their_definition(name, kind, dtype):
    A, B = ROWS[kind](9, 0), ROWS[kind](14, 1)
    exact = naive.kernel_matrix(A, B, name, gamma=GAMMA)
    dense, sparse = (values_of(name, A, B, sparse=s, dtype=dtype) for s in (False, True))
    eps = 30 * np.finfo(dtype).eps
    np.testing.assert_allclose(dense, exact, rtol=eps, atol=eps)
    np.testing.assert_array_equal(dense, sparse)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", NONNEGATIVE)
def test_any_rows_with_partners_of_bits(name, dtype):
    """Partners of 0 and 1 are laid out as bytes, and rows with other values meet them."""
    A, B = counts(30, 300) * np.linspace(0.3, 3, 30)[:, None], np.minimum(counts(600, 300), 1)
    A[3] = A[4] > 0
    exact = naive.kernel_matrix(A[:5], B[:9], name, gamma=GAMMA)
    dense, sparse = (values_of(name, A, B, sparse=s, dtype=dtype) for s in (False, True))
    np.testing.assert_array_equal(dense, sparse)
    eps = 100 * np.finfo(dtype).eps
    np.testing.assert_allclose(dense[:5, :9], exact, rtol=eps, atol=eps)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_bits_do_not_depend_on_place_threads_and_tiles(name, sparse, monkeypatch):
    rows = counts(600, 19) / 3
    whole = values_of(name, rows, rows, sparse=sparse, dtype=np.float32, threads=3)
    np.testing.assert_array_equal(whole, whole.T)
    i, j = np.arange(250, 257), np.arange(70, 590)
    monkeypatch.setattr("bigsvm.gram.partners.PARTNERS_PER_TILE", 64)
    monkeypatch.setattr("bigsvm.gram.tiles.ROWS_PER_TILE", 11)
    part = values_of(name, rows[i], rows[j], sparse=sparse, dtype=np.float32)
    np.testing.assert_array_equal(part, whole[np.ix_(i, j)])


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_an_offset_and_weighted_sums(name, sparse):
    rows, weights = counts(50, 7), np.random.default_rng(0).normal(size=50)
    plain = values_of(name, rows, rows, sparse=sparse)
    raised = values_of(name, rows, rows, sparse=sparse, offset=1.0)
    np.testing.assert_allclose(raised, plain + 1, rtol=1e-14)
    convert = sp.csr_array if sparse else np.asarray
    with KernelTiles(make_kernel(name, gamma=GAMMA), dtype=np.float64, offset=1.0) as tiles:
        sums = np.zeros(50)
        partners = Partners(tiles.values, convert(rows), for_sparse_rows=sparse)
        tiles.multiply(convert(rows), partners, weights, sums)
    np.testing.assert_allclose(sums, raised @ weights, atol=1e-12)


def test_formulas_are_scikit_learns():
    A, B = counts(9, 5), counts(14, 5, seed=1)
    length = 1 / np.sqrt(2 * GAMMA)
    for name, values in {
        "cosine": cosine_similarity(A, B),
        "chi2": chi2_kernel(A, B, gamma=GAMMA),
        "matern32": Matern(length, nu=1.5)(A, B),
        "matern52": Matern(length, nu=2.5)(A, B),
    }.items():
        np.testing.assert_allclose(values_of(name, A, B), values, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_numpy_has_the_same_formula(name):
    A, B = counts(9, 5), counts(14, 5, seed=1)
    product = {
        "intersection": lambda a, b: np.minimum(a, b),
        "tanimoto": lambda a, b: np.minimum(a, b),
        "chi2": lambda a, b: np.divide(2 * a * b, a + b, out=0 * (a + b), where=a + b > 0),
    }.get(name, np.multiply)
    norm = (lambda rows: rows.sum(1)) if name in NONNEGATIVE else (lambda rows: (rows**2).sum(1))
    dots = product(A[:, None], B[None]).sum(2)
    values = make_kernel(name, gamma=GAMMA).from_products(dots, norm(A), norm(B))
    np.testing.assert_allclose(values, values_of(name, A, B), rtol=1e-13, atol=1e-14)


def test_rows_of_zeros():
    """Two empty fingerprints are alike; a vector without length has no direction."""
    rows = np.array([[0.0, 0.0], [1.0, 2.0]])
    assert values_of("tanimoto", rows, rows).tolist() == [[1, 0], [0, 1]]
    assert values_of("intersection", rows, rows).tolist() == [[0, 0], [0, 3]]
    assert values_of("cosine", rows, rows)[0].tolist() == [0, 0]
    assert values_of("chi2", rows, rows)[0, 0] == 1


def test_tanimoto_of_bits_is_the_form_of_dot_products():
    bits = np.minimum(counts(20, 30), 1)
    dots, ones = bits @ bits.T, bits.sum(1)
    either = np.add.outer(ones, ones) - dots
    expected = np.divide(dots, either, out=np.ones_like(dots), where=either > 0)
    np.testing.assert_array_equal(values_of("tanimoto", bits, bits, sparse=True), expected)


small = arrays(
    np.float64, st.tuples(st.integers(1, 8), st.integers(1, 5)),
    elements=st.integers(0, 40).map(lambda i: i / 8),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(small, st.sampled_from(NAMES))
def test_matrices_are_symmetric_and_positive_semidefinite(rows, name):
    K, sparse = (values_of(name, rows, rows, sparse=s) for s in (False, True))
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_array_equal(K, sparse)
    assert np.linalg.eigvalsh(K).min() >= -1e-12 * max(1.0, np.trace(K))
    np.testing.assert_allclose(K, naive.kernel_matrix(rows, rows, name, gamma=GAMMA), atol=1e-12)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", NONNEGATIVE)
def test_rows_to_multiply_are_not_negative(name, sparse):
    rows = counts(9, 5)
    rows[4, 2] = -1
    with pytest.raises(DataError, match=f"value -1, and the kernel {name} is for rows without"):
        values_of(name, rows, rows, sparse=sparse)


@pytest.mark.parametrize("sparse", [False, True])
def test_a_length_that_float32_would_lose_is_refused(sparse):
    with pytest.raises(DataError, match=r"value 1e-20, and the kernel cosine squares.*put 0"):
        values_of("cosine", np.array([[1e-20, 0.0]]), np.eye(2), sparse=sparse)


@pytest.mark.parametrize("name", ["tanimoto", "chi2", "matern32", "matern52"])
def test_rows_whose_sums_leave_float32_are_refused(name):
    rows = np.full((2, 3), 1e38 if name in NONNEGATIVE else 1e19, np.float32)
    with pytest.raises(DataError, match=f"{name} kernel values"):
        values_of(name, rows, rows, dtype=np.float32)

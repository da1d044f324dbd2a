"""Products of row blocks with the kernel: against loops, and bit by bit wherever computed."""

import itertools
import os
import subprocess
import sys
import threading
from contextlib import nullcontext

import naive
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from bigsvm.data.rows import RowsAt
from bigsvm.errors import DataError
from bigsvm.gram import KernelTiles, Partners
from bigsvm.gram import tiles as kernel_tiles
from bigsvm.gram.partners import PARTNERS_PER_TILE
from bigsvm.gram.tiles import ROWS_PER_TILE
from bigsvm.kernels import RBF, Linear, Polynomial, make_kernel

NAMES = ["linear", "poly", "rbf", "sigmoid"]
DTYPES = [np.float32, np.float64]
PARAMETERS = {"gamma": 0.2, "coef0": 0.5, "degree": 3}


def make_rows(n, d, *, seed=0, density=0.5, dtype=np.float32):
    """Dense rows with zeros, an empty row and an empty column where there are several."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d)) * (rng.random((n, d)) < density)
    if n > 2 and d > 2:
        rows[1] = 0
        rows[:, 1] = 0
    return rows.astype(dtype)


def tiles_for(kernel, **options):
    return KernelTiles(kernel, **options)


def evaluate(tiles, rows, partners, *, sparse=False):
    out = np.full((rows.shape[0], partners.shape[0]), np.nan, tiles.dtype)
    tiles.evaluate(rows, Partners(tiles.values, partners, for_sparse_rows=sparse), out)
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(1, 1, 1), (9, 13, 1), (14, 6, 5), (7, 8, 23)])
def test_values_are_their_definition(name, sparse, dtype, shape):
    m, p, d = shape
    A, B = make_rows(m, d), make_rows(p, d, seed=1)
    exact = naive.kernel_matrix(A, B, name, **PARAMETERS)
    convert = sp.csr_array if sparse else np.asarray
    with tiles_for(make_kernel(name, **PARAMETERS), dtype=dtype) as tiles:
        found = evaluate(tiles, convert(A), convert(B), sparse=sparse)
        eps = np.finfo(dtype).eps
        np.testing.assert_allclose(found, exact, rtol=40 * eps, atol=40 * eps)
        weights = np.random.default_rng(2).normal(size=p)
        out = np.full(m, 2.0)
        tiles.multiply(
            convert(A), Partners(tiles.values, convert(B), for_sparse_rows=sparse), weights, out
        )
        scale = np.abs(exact) @ np.abs(weights)
        assert (np.abs(out - 2 - exact @ weights) <= 60 * eps * (scale + 1)).all()
        assert tiles.n_evaluations == 2 * m * p
        diagonal = [naive.kernel_value(a, a, name, **PARAMETERS) for a in A]
        np.testing.assert_allclose(
            tiles.values.diagonal(Partners(tiles.values, convert(A), for_sparse_rows=sparse).norms),
            diagonal,
            rtol=60 * eps,
            atol=eps,
        )
        own = evaluate(tiles, convert(A), convert(A), sparse=sparse)
        np.testing.assert_array_equal(
            tiles.values.diagonal(Partners(tiles.values, convert(A), for_sparse_rows=sparse).norms),
            np.diag(own),
        )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", [*NAMES, "laplacian"])
def test_an_offset_is_added_to_every_value(name, sparse, dtype):
    A, B = make_rows(9, 5), make_rows(13, 5, seed=1)
    kernel = make_kernel(name, **PARAMETERS)
    convert = sp.csr_array if sparse else np.asarray
    weights = np.random.default_rng(2).normal(size=13)
    found = []
    for offset in (0.0, 1.0):
        with tiles_for(kernel, dtype=dtype, offset=offset) as tiles:
            partners = Partners(tiles.values, convert(B), for_sparse_rows=sparse)
            sums = np.zeros(9)
            tiles.multiply(convert(A), partners, weights, sums)
            own = evaluate(tiles, convert(B), convert(B), sparse=sparse)
            diagonal = tiles.values.diagonal(partners.norms)
            np.testing.assert_array_equal(diagonal, np.diag(own))
            found.append((evaluate(tiles, convert(A), convert(B), sparse=sparse), diagonal, sums))
    plain, raised = found
    atol = 30 * np.finfo(dtype).eps * (1 + np.abs(plain[0]).max())
    for a, b, more in zip(plain, raised, (1.0, 1.0, weights.sum()), strict=True):
        np.testing.assert_allclose(b, a + more, rtol=0, atol=atol)


@pytest.mark.parametrize("degree", [0, 1, 2, 20])
def test_degrees(degree):
    rows = make_rows(10, 4)
    with tiles_for(Polynomial(gamma=0.3, coef0=0.9, degree=degree)) as tiles:
        exact = naive.kernel_matrix(rows, rows, "poly", gamma=0.3, coef0=0.9, degree=degree)
        np.testing.assert_allclose(evaluate(tiles, rows, rows), exact, rtol=3e-6 * max(degree, 1))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_bits_depend_on_the_two_rows_alone(name, sparse, dtype, monkeypatch):
    """Whatever the place, the batch, the tile and the threads; and so K = Kᵀ."""
    rows = make_rows(600, 19)
    matrix = sp.csr_array(rows) if sparse else rows
    with tiles_for(make_kernel(name, **PARAMETERS), dtype=dtype, threads=3) as tiles:
        whole = evaluate(tiles, matrix, matrix, sparse=sparse)
        np.testing.assert_array_equal(whole, whole.T)
        rng = np.random.default_rng(0)
        for m, p in ((1, 1), (3, 600), (253, 5), (300, 513)):
            i, j = rng.permutation(600)[:m], rng.permutation(600)[:p]
            part = evaluate(tiles, matrix[i], matrix[j], sparse=sparse)
            np.testing.assert_array_equal(part, whole[np.ix_(i, j)])
        monkeypatch.setattr("bigsvm.gram.partners.PARTNERS_PER_TILE", 64)
        monkeypatch.setattr(kernel_tiles, "ROWS_PER_TILE", 11)
        np.testing.assert_array_equal(evaluate(tiles, matrix, matrix, sparse=sparse), whole)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", [*NAMES, "laplacian"])
def test_bits_of_sums_do_not_depend_on_threads_or_on_the_rows_beside(
    name, sparse, dtype, monkeypatch
):
    rows = make_rows(600, 19)
    matrix = sp.csr_array(rows) if sparse else rows
    weights = np.random.default_rng(1).normal(size=600)
    found = []
    for threads, most in ((1, ROWS_PER_TILE), (3, ROWS_PER_TILE), (2, 13)):
        monkeypatch.setattr(kernel_tiles, "ROWS_PER_TILE", most)
        monkeypatch.setattr(kernel_tiles, "WORTH_SHARING", 0.0)
        kernel = make_kernel(name, **PARAMETERS)
        with tiles_for(kernel, dtype=dtype, threads=threads, offset=0.5) as tiles:
            partners = Partners(tiles.values, matrix, for_sparse_rows=sparse)
            found.append(np.zeros(600))
            tiles.multiply(matrix, partners, weights, found[-1])
            part = np.zeros(7)
            tiles.multiply(matrix[100:107], partners, weights, part)
            np.testing.assert_array_equal(part, found[0][100:107])
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sparse", [False, True])
def test_rbf_of_a_row_and_its_duplicate_is_one(sparse, dtype):
    rows = make_rows(300, 31) * 7
    twice = np.concatenate([rows, rows])
    matrix = sp.csr_array(twice) if sparse else twice
    centre = None if sparse else twice.mean(axis=0, dtype=np.float64)
    with tiles_for(RBF(gamma=3.0), dtype=dtype, centre=centre) as tiles:
        K = evaluate(tiles, matrix, matrix, sparse=sparse)
        np.testing.assert_array_equal(np.diag(K), 1)
        np.testing.assert_array_equal(np.diag(K[300:, :300]), 1)
        packed = Partners(tiles.values, matrix, for_sparse_rows=sparse)
        np.testing.assert_array_equal(tiles.values.diagonal(packed.norms), 1)


def test_centring_keeps_distances_far_from_the_origin():
    near = make_rows(40, 6, density=1.0, dtype=np.float64)
    far = near + 1e6
    exact = naive.kernel_matrix(near, near, "rbf", gamma=0.2)
    with tiles_for(RBF(gamma=0.2), centre=far.mean(axis=0)) as tiles:
        np.testing.assert_allclose(evaluate(tiles, far, far), exact, atol=2e-6)
    with tiles_for(RBF(gamma=0.2)) as tiles:
        assert np.abs(evaluate(tiles, far, far) - exact).max() > 0.1  # what centring is for


@pytest.mark.parametrize("name", ["linear", "poly", "sigmoid"])
def test_other_kernels_are_not_centred(name):
    rows = make_rows(5, 3)
    with tiles_for(make_kernel(name, **PARAMETERS), centre=np.ones(3)) as tiles:
        exact = naive.kernel_matrix(rows, rows, name, **PARAMETERS)
        np.testing.assert_allclose(evaluate(tiles, rows, rows), exact, rtol=1e-5, atol=1e-6)


def test_dense_columns_against_sparse_rows():
    rows = make_rows(20, 5)
    with tiles_for(Linear()) as tiles:
        mixed = evaluate(tiles, sp.csr_array(rows), rows, sparse=True)
        np.testing.assert_allclose(mixed, rows @ rows.T, atol=1e-5)


@pytest.mark.parametrize("name", ["linear", "rbf"])
def test_hundred_thousand_columns(name):
    rng = np.random.default_rng(0)
    rows = sp.random_array((120, 100_000), density=1e-3, format="csr", dtype="f8", rng=rng)
    kernel = make_kernel(name, gamma=0.02)
    with tiles_for(kernel) as tiles:
        partners = Partners(tiles.values, rows, for_sparse_rows=True)
        assert partners.whole.listed  # too many features for one tile
        # Nothing here is as long as the features are many, but one scratch array a thread.
        assert partners.nbytes < 4 * 120 * 100 * 120
        out = np.empty((120, 120), np.float32)
        tiles.evaluate(rows, partners, out)
    dots = (rows @ rows.T).toarray()
    exact = kernel.from_products(dots, np.diag(dots), np.diag(dots))
    np.testing.assert_allclose(out, exact, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_wide_indices_and_values_of_the_other_dtype(dtype):
    rows = make_rows(30, 12, dtype=np.float64)
    wide = sp.csr_array(rows)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    narrow = sp.csr_array(rows.astype(np.float32).astype(np.float64))
    with tiles_for(RBF(gamma=0.2), dtype=dtype) as tiles:
        exact = naive.kernel_matrix(rows, rows, "rbf", gamma=0.2)
        found = evaluate(tiles, wide, wide, sparse=True)
        np.testing.assert_allclose(found, exact, atol=40 * np.finfo(dtype).eps)
        np.testing.assert_array_equal(np.diag(found), 1)
        if dtype == np.float32:
            # Norms are those of the rounded values, as the products are.
            np.testing.assert_array_equal(found, evaluate(tiles, narrow, narrow, sparse=True))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sparse", [False, True])
def test_places_of_rows_give_the_bits_of_a_copy(sparse, dtype):
    """The same bits as of a copy of them, whatever their order and however often one is named."""
    rows = make_rows(400, 9, dtype=dtype)
    matrix = sp.csr_array(rows) if sparse else rows
    places = np.random.default_rng(3).integers(0, 400, 300)
    weights = np.linspace(-1, 1, 70)
    centre = None if sparse else rows.mean(axis=0, dtype=np.float64)
    with tiles_for(RBF(gamma=0.7), threads=2, dtype=dtype, centre=centre) as tiles:
        results = []
        for lent in (RowsAt(matrix, places), matrix[places]):
            partners = Partners(tiles.values, RowsAt(matrix, places[:70]), for_sparse_rows=sparse)
            sums, values = np.zeros(300), np.empty((300, 70), dtype)
            tiles.multiply(lent, partners, weights, sums)
            tiles.evaluate(lent, partners, values)
            results.append((sums, values, tiles.values.diagonal(partners.norms)))
        for at_places, copied in zip(*results, strict=True):
            np.testing.assert_array_equal(at_places, copied)
        np.testing.assert_array_equal(results[0][1][:70].diagonal(), results[0][2])
        assert tiles.n_evaluations == 4 * 300 * 70


@pytest.mark.parametrize("sparse", [False, True])
def test_no_rows_and_no_columns(sparse):
    rows = make_rows(5, 4)
    matrix = sp.csr_array(rows) if sparse else rows
    with tiles_for(RBF(gamma=1.0), threads=2) as tiles:
        none = Partners(tiles.values, matrix[:0], for_sparse_rows=sparse)
        assert (none.n, none.nbytes, list(none)) == (0, 0, [])
        out = np.full(5, 3.0)
        tiles.multiply(matrix, none, np.empty(0), out)
        np.testing.assert_array_equal(out, 3.0)
        some = Partners(tiles.values, matrix, for_sparse_rows=sparse)
        tiles.multiply(matrix[:0], some, np.ones(5), np.empty(0))
        tiles.evaluate(matrix[:0], some, np.empty((0, 5), np.float32))
        assert tiles.n_evaluations == 0
        assert tiles.values.diagonal(none.norms).shape == (0,)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("m", [5, 300])
def test_rows_are_written_to_their_slots_and_the_other_slots_are_left_alone(m, sparse):
    rows = make_rows(m, 4)
    matrix = sp.csr_array(rows) if sparse else rows
    slots = np.random.default_rng(1).permutation(m + 9)[:m]
    with tiles_for(RBF(gamma=0.3), threads=2) as tiles:
        partners = Partners(tiles.values, matrix, for_sparse_rows=sparse)
        out = np.full((m + 9, m + 3), -5.0, np.float32)
        tiles.evaluate(matrix, partners, out, slots=slots)
        np.testing.assert_array_equal(
            out[slots, :m], evaluate(tiles, matrix, matrix, sparse=sparse)
        )
    assert (out[:, m:] == -5).all()
    assert (np.delete(out, slots, axis=0) == -5).all()


def test_columns_past_the_last_are_left_alone():
    rows = make_rows(7, 4)
    with tiles_for(Linear()) as tiles:
        out = np.full((7, 12), -5.0, np.float32)
        tiles.evaluate(rows, Partners(tiles.values, rows, for_sparse_rows=False), out)
        np.testing.assert_array_equal(out[:, 7:], -5)
        np.testing.assert_allclose(out[:, :7], rows @ rows.T, atol=1e-5)


@given(
    st.integers(1, 3 * ROWS_PER_TILE), st.integers(1, 2 * PARTNERS_PER_TILE),
    st.booleans(), st.sampled_from([1, 2, 3]),
)  # fmt: skip
@settings(max_examples=20)
def test_threads_and_tiles_cover_everything_once(m, p, sparse, threads):
    rows, partners = make_rows(m, 2, density=0.9), make_rows(p, 2, seed=1, density=0.9)
    weights = np.random.default_rng(3).normal(size=p)
    convert = sp.csr_array if sparse else np.asarray
    with tiles_for(Linear(), threads=threads, dtype=np.float64) as tiles:
        out = np.ones(m)
        prepared = Partners(tiles.values, convert(partners), for_sparse_rows=sparse)
        assert [t.start for t in prepared] == [
            0,
            *itertools.islice((t.stop for t in prepared), len(list(prepared)) - 1),
        ]
        tiles.multiply(convert(rows), prepared, weights, out)
    np.testing.assert_allclose(out, 1 + rows @ (partners.T.astype(float) @ weights), atol=1e-11)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("m", [1, 511, 512, 513, 1300])
@pytest.mark.parametrize("of_several", [(), (3,), (20,)])
def test_symmetric_products_are_those_of_all_values(m, of_several, sparse, dtype, monkeypatch):
    monkeypatch.setattr("bigsvm.gram.tiles.SPANS_AT_ONCE", 2)
    monkeypatch.setattr("bigsvm.gram.tiles.WORTH_SHARING", 0.0)
    rows = make_rows(m, 6, dtype=dtype)
    rows = sp.csr_array(rows) if sparse else rows
    weights = np.random.default_rng(2).normal(size=(m, *of_several))
    found = {}
    for threads in (1, 3):
        with tiles_for(RBF(gamma=0.3), dtype=dtype, threads=threads) as tiles:
            partners = Partners(tiles.values, rows, for_sparse_rows=sparse)
            found[threads] = np.ones(weights.shape)
            tiles.multiply_symmetric(rows, partners, weights, found[threads])
            evaluations = tiles.n_evaluations
            expected = np.ones(weights.shape)
            tiles.multiply(rows, partners, weights, expected)
    np.testing.assert_allclose(found[1], expected, atol=3 * np.finfo(dtype).eps * m)
    np.testing.assert_array_equal(found[1], found[3])
    assert evaluations == sum(min(512, m - a) * (m - a) for a in range(0, m, 512))


def test_threads_do_not_share_their_scratch():
    """Several callers at once, on one pool, dense and sparse."""
    rows = make_rows(700, 9)
    with tiles_for(RBF(gamma=0.3), threads=2) as tiles:
        wanted = {s: evaluate(tiles, *[sp.csr_array(rows) if s else rows] * 2, sparse=s)
                  for s in (False, True)}  # fmt: skip
        errors = []

        def work(seed):
            rng = np.random.default_rng(seed)
            for _ in range(5):
                i, j = rng.permutation(700)[: rng.integers(1, 700)], rng.permutation(700)[:300]
                sparse = bool(rng.integers(2))
                matrix = sp.csr_array(rows) if sparse else rows
                found = evaluate(tiles, matrix[i], matrix[j], sparse=sparse)
                if not np.array_equal(found, wanted[sparse][np.ix_(i, j)]):
                    errors.append(seed)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kernel", [RBF(gamma=1.0), Linear()])
def test_rows_that_are_not_numbers_are_refused(kernel, sparse):
    rows = np.ones((4, 2))
    wrong = rows.copy()
    wrong[2, 0] = np.nan
    convert = sp.csr_array if sparse else np.asarray
    with tiles_for(kernel) as tiles:
        with pytest.raises(DataError, match=r"values that are not numbers \(NaN\)"):
            Partners(tiles.values, convert(wrong), for_sparse_rows=sparse)
        with pytest.raises(DataError, match=r"values that are not numbers \(NaN\)"):
            evaluate(tiles, convert(wrong), convert(rows), sparse=sparse)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("kernel", "value"), [
    (RBF(gamma=1.0), 2e19), (Linear(), 3e19), (Polynomial(gamma=1.0, degree=3), 1e7),
    (Linear(), np.inf),
])  # fmt: skip
def test_rows_whose_values_overflow_are_refused(kernel, value, sparse):
    """They would otherwise go from one row into every output."""
    rows = np.ones((4, 2))
    wrong = rows.copy()
    wrong[2, 0] = value
    convert = sp.csr_array if sparse else np.asarray
    with tiles_for(kernel) as tiles, np.errstate(over="ignore"):
        with pytest.raises(DataError, match=r"squared length .* scale the features"):
            Partners(tiles.values, convert(wrong), for_sparse_rows=sparse)
        with pytest.raises(DataError, match=f"{kernel.name} kernel values in float32"):
            evaluate(tiles, convert(wrong), convert(rows), sparse=sparse)
        assert np.isfinite(evaluate(tiles, convert(rows), convert(rows), sparse=sparse)).all()
    if np.isfinite(value):
        with tiles_for(kernel, dtype=np.float64) as tiles:
            assert np.isfinite(evaluate(tiles, convert(wrong), convert(wrong), sparse=sparse)).all()


BY_INSTRUCTIONS = """
import hashlib
import numpy as np
import scipy.sparse as sp
from bigsvm.core import gram
from bigsvm.kernels import make_kernel
from bigsvm.gram import KernelTiles, Partners
rng = np.random.default_rng(0)
rows = (rng.standard_normal((150, 9)) * (rng.random((150, 9)) < 0.5)).astype(np.float32)
weights, digest, sums = rng.normal(size=150), hashlib.sha256(), np.zeros(150)
for dtype in (np.float32, np.float64):
    for name in ("linear", "poly", "rbf", "sigmoid", "laplacian"):
        kernel = make_kernel(name, gamma=0.2, coef0=0.5, degree=3)
        for matrix in (rows, sp.csr_array(rows)):
            with KernelTiles(kernel, dtype=dtype) as tiles:
                partners = Partners(tiles.values, matrix, for_sparse_rows=matrix is not rows)
                out = np.empty((150, 150), dtype)
                tiles.evaluate(matrix, partners, out)
                tiles.multiply(matrix, partners, weights, sums)
            digest.update(out.tobytes())
print(gram.VECTOR_BYTES, digest.hexdigest(), float(np.abs(sums).sum()))
"""


@pytest.mark.slow
def test_values_do_not_depend_on_the_instructions_of_the_processor(tmp_path):
    """Bit by bit for this processor, for one with AVX2, and for one without AVX and FMA."""
    path = os.pathsep.join(p for p in sys.path if p)
    printed = []
    for features in (None, "+avx,+avx2,+fma", ""):
        environment = {**os.environ, "PYTHONPATH": path}
        if features is not None:
            environment |= {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": features}
            environment["NUMBA_CACHE_DIR"] = str(tmp_path / f"cache{len(printed)}")
        ran = subprocess.run(
            [sys.executable, "-c", BY_INSTRUCTIONS],
            env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        printed.append(ran.stdout.split())
    assert [int(width) for width, *_ in printed[1:]] == [32, 16]
    assert len({values for _, values, _ in printed}) == 1
    assert [float(sums) for *_, sums in printed] == pytest.approx([float(printed[0][2])] * 3)


@pytest.mark.parametrize("fails", [False, True])
def test_evaluations_in_float64_are_added_to_those_of_the_tiles(fails):
    rows = make_rows(20, 6, dtype=np.float32)
    with tiles_for(RBF(gamma=0.3), dtype=np.float32, threads=1) as tiles:
        with pytest.raises(KeyError) if fails else nullcontext(), tiles.exact() as exact:
            partners = Partners(exact.values, rows[:5], for_sparse_rows=False)
            exact.evaluate(rows, partners, np.empty((20, 5)))
            assert exact.dtype == np.float64
            assert tiles.n_evaluations == 0
            if fails:
                raise KeyError
        assert tiles.n_evaluations == 100

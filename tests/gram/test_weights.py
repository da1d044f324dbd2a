"""Products of kernel values with the weights of several functions at once."""

import naive
import numpy as np
import pytest
import scipy.sparse as sp

from bigsvm.data.rows import RowsAt
from bigsvm.gram import KernelTiles, Partners
from bigsvm.gram import partners as functions
from bigsvm.gram import tiles as kernel_tiles
from bigsvm.gram.partners import PARTNERS_PER_TILE, AllWeights
from bigsvm.kernels import make_kernel

PARAMETERS = {"gamma": 0.2, "coef0": 0.5, "degree": 3}


def make_rows(n, d, *, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.6)).astype(np.float32)


def make_weights(p, k, *, share=0.4, seed=2):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((p, k)) * (rng.random((p, k)) < share)


def products(A, B, weights, *, kernel="rbf", sparse=False, **options):
    """K(A, B) @ weights on top of ones."""
    convert = sp.csr_array if sparse else np.asarray
    out = np.ones((A.shape[0], weights.shape[1]))
    with KernelTiles(make_kernel(kernel, **PARAMETERS), **options) as tiles:
        partners = Partners(tiles.values, convert(B), for_sparse_rows=sparse)
        tiles.multiply(convert(A), partners, weights, out)
        assert tiles.n_evaluations == A.shape[0] * B.shape[0]
    return out


@pytest.fixture
def way(request, monkeypatch):
    """Zeros are added up in every tile, or in none."""
    costs = (functions, "ALL_PER_TURN"), (functions, "ALL_PER_WEIGHT")
    for cost in costs:
        monkeypatch.setattr(*cost, {"all": 1000, "nonzero": 0}[request.param])
    return request.param


def kinds(weights):
    """What is prepared for each tile."""
    with KernelTiles(make_kernel("linear")) as tiles:
        partners = Partners(tiles.values, make_rows(len(weights), 2), for_sparse_rows=False)
        prepared = tiles.prepared(partners, sp.csr_array(weights))
    return [
        "all" if isinstance(one, AllWeights) else "nonzero"
        for one in prepared._weights_of_tile.values()
    ]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf", "sigmoid"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (9, 13, 4), (70, 3, 2), (2, 6, 30)])
def test_each_function_is_its_definition(kernel, sparse, dtype, shape):
    m, p, k = shape
    A, B, weights = make_rows(m, 5), make_rows(p, 5, seed=1), make_weights(p, k)
    exact = naive.kernel_matrix(A, B, kernel, **PARAMETERS)
    tolerance = 60 * np.finfo(dtype).eps * (np.abs(exact) @ np.abs(weights) + 1)
    for given in (weights, sp.csr_array(weights)):
        found = products(A, B, given, kernel=kernel, sparse=sparse, dtype=dtype)
        assert (np.abs(found - 1 - exact @ weights) <= tolerance).all()


@pytest.mark.parametrize(
    ("way", "sparse"), [("all", False), ("nonzero", False), ("all", True)], indirect=["way"]
)
def test_several_tiles_have_the_same_bits_however_they_are_shared_out(way, sparse, monkeypatch):
    A, B = make_rows(300, 7), make_rows(PARTNERS_PER_TILE + 88, 7, seed=1)
    weights = make_weights(len(B), 6)
    weights[:, 3] = 0
    assert kinds(weights) == [way, way]
    expected = products(A, B, weights, sparse=sparse)
    np.testing.assert_array_equal(expected[:, 3], 1)
    np.testing.assert_allclose(
        expected - 1, naive.kernel_matrix(A, B, "rbf", gamma=0.2) @ weights, atol=1e-4
    )
    for given in (weights, sp.csr_array(weights)):
        for threads in (1, 3):
            found = products(A, B, given, sparse=sparse, threads=threads)
            np.testing.assert_array_equal(found, expected)
    alone = [products(A[i : i + 1], B, weights, sparse=sparse) for i in range(0, 300, 37)]
    np.testing.assert_array_equal(np.concatenate(alone), expected[::37])
    monkeypatch.setattr(kernel_tiles, "SUMS_PER_TILE", 100)
    np.testing.assert_array_equal(products(A, B, weights, sparse=sparse, threads=2), expected)


def test_zeros_are_added_up_where_that_is_faster():
    def of(k, share):
        return kinds(make_weights(PARTNERS_PER_TILE + 88, k, share=share))

    assert of(2, 0.01) == of(8, 0.01) == of(10, 0.2) == of(40, 0.25) == ["all", "all"]
    assert of(30, 0.05) == of(100, 0.1) == ["nonzero", "nonzero"]
    # The second tile alone has few functions.
    weights = make_weights(PARTNERS_PER_TILE + 88, 100, share=0.02)
    weights[PARTNERS_PER_TILE:, 3:] = 0
    assert kinds(weights) == ["nonzero", "all"]


@pytest.mark.parametrize("sparse", [False, True])
def test_tiles_of_both_kinds_are_added_up(sparse):
    A, B = make_rows(40, 5), make_rows(PARTNERS_PER_TILE + 30, 5, seed=1)
    weights = make_weights(len(B), 60, share=0.04)
    weights[PARTNERS_PER_TILE:] = make_weights(30, 60, share=0.8)
    assert kinds(weights) == ["nonzero", "all"]
    exact = naive.kernel_matrix(A, B, "rbf", gamma=0.2)
    found = products(A, B, weights, sparse=sparse, dtype=np.float64)
    np.testing.assert_allclose(found - 1, exact @ weights, atol=1e-11)


def test_rows_taken_from_a_block_and_weights_prepared_for_many():
    A, B, weights = make_rows(80, 5), make_rows(40, 5, seed=1), make_weights(40, 3)
    with KernelTiles(make_kernel("rbf", **PARAMETERS), offset=1.0) as tiles:
        partners = Partners(tiles.values, B, for_sparse_rows=False)
        prepared = tiles.prepared(partners, sp.csr_array(weights))
        assert (prepared.n, prepared.n_weights) == (3, np.count_nonzero(weights))
        places = np.array([70, 3, 3, 41])
        out = np.zeros((4, 3))
        tiles.multiply(RowsAt(A, places), partners, prepared, out)
    exact = naive.kernel_matrix(A[places], B, "rbf", gamma=0.2) + 1
    np.testing.assert_allclose(out, exact @ weights, atol=1e-5)


@pytest.mark.parametrize("k", [0, 3])
def test_empty_rows_and_columns_change_nothing(k):
    rows = make_rows(5, 3)
    with KernelTiles(make_kernel("rbf", **PARAMETERS)) as tiles:
        out = np.ones((5, k))
        none = Partners(tiles.values, rows[:0], for_sparse_rows=False)
        tiles.multiply(rows, none, np.empty((0, k)), out)
        some = Partners(tiles.values, rows, for_sparse_rows=False)
        tiles.multiply(rows[:0], some, np.ones((5, k)), np.empty((0, k)))
        tiles.multiply(rows, some, sp.csr_array((5, k)), out)
    np.testing.assert_array_equal(out, 1)


def test_memory_of_sums_is_bounded_where_functions_are_many(monkeypatch):
    A, B = make_rows(200, 3), make_rows(4, 3, seed=1)
    weights = sp.csr_array((np.ones(4), ([0, 1, 2, 3], [7, 0, 99_999, 7])), shape=(4, 100_000))
    shapes = set()
    with KernelTiles(make_kernel("rbf", **PARAMETERS)) as tiles:
        scratch = tiles._team.scratch

        def watched(name, shape, dtype):
            shapes.add((name, *shape))
            return scratch(name, shape, dtype)

        monkeypatch.setattr(tiles._team, "scratch", watched)
        out = np.zeros((200, 100_000))
        tiles.multiply(A, Partners(tiles.values, B, for_sparse_rows=False), weights, out)
    most = max(rows for name, *_, rows in shapes if name == "sums")
    assert most <= 12
    np.testing.assert_array_equal(np.flatnonzero(out.any(axis=0)), [0, 7, 99_999])

"""Tiles of bytes: chosen where they are exact, with the bits of tiles of floats everywhere."""

import numpy as np
import pytest
import scipy.sparse as sp

from bigsvm.core import gram
from bigsvm.gram import KernelTiles, Partners
from bigsvm.gram.values import KernelValues
from bigsvm.kernels import RBF, Laplacian, Linear

N, D = 300, 45
needs_words = pytest.mark.skipif(
    not gram.MULTIPLIES_BYTES, reason="the processor does not multiply bytes"
)


def whole_rows(largest, *, density=0.6, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.integers(1, largest + 1, (N, D)) * (rng.random((N, D)) < density)
    rows[3] = 0
    return rows.astype(np.float32)


def chosen(rows, *, kernel=None, places=slice(None), **options):
    with KernelTiles(kernel or RBF(gamma=0.1), **options) as tiles:
        partners = Partners(tiles.values, sp.csr_array(rows[places]), for_sparse_rows=True)
        return partners.whole.vectors.dtype


def computed(rows, partners, *, dtype, threads=1):
    """Values, weighted sums, and the sums of the symmetric product, and the partners' bytes."""
    rows, partners = sp.csr_array(rows), sp.csr_array(partners)
    weights = np.linspace(-1, 2, N)
    with KernelTiles(RBF(gamma=1e-3), dtype=dtype, threads=threads) as tiles:
        prepared = Partners(tiles.values, partners, for_sparse_rows=True)
        own = Partners(tiles.values, rows, for_sparse_rows=True)
        values, sums, symmetric = np.empty((N, N), dtype), np.zeros(N), np.zeros(N)
        tiles.evaluate(rows, prepared, values)
        tiles.multiply(rows, prepared, weights, sums)
        tiles.multiply_symmetric(rows, own, weights, symmetric)
    return (values, sums, symmetric), prepared.nbytes


def test_zeros_and_ones_are_bytes():
    assert chosen(whole_rows(1)) == np.uint8
    assert chosen(np.zeros((N, D))) == np.uint8
    assert chosen(whole_rows(1), dtype=np.float64) == np.uint8


@needs_words
def test_integers_up_to_255_are_words():
    assert chosen(whole_rows(255)) == np.uint32
    assert chosen(whole_rows(2), kernel=Linear(), dtype=np.float64) == np.uint32


@pytest.mark.parametrize("value", [0.5, -1.0, 256.0])
@pytest.mark.parametrize("largest", [1, 255])
def test_one_other_value_makes_float_tiles(largest, value):
    rows = whole_rows(largest)
    rows[N - 1, D - 1] = value
    assert chosen(rows) == np.float32
    assert chosen(rows, places=slice(N - 1)) != np.float32


def test_kernels_and_centres_without_integer_products_use_floats():
    rows = whole_rows(1)
    assert chosen(rows, kernel=Laplacian(gamma=0.1)) == np.float32
    centre = np.zeros(D)
    centre[2] = 0.5
    assert chosen(rows, centre=centre) == np.float32


def test_scattered_features_and_few_columns_stay_in_floats():
    scattered = np.zeros((N, D), np.float32)
    scattered[:, ::4] = 7
    assert chosen(scattered) == np.float32
    assert chosen(whole_rows(255), places=slice(1)) == np.float32


def test_processors_that_do_not_multiply_bytes_use_floats(monkeypatch):
    monkeypatch.setattr(gram, "MULTIPLIES_BYTES", False)
    assert chosen(whole_rows(255)) == np.float32
    assert chosen(whole_rows(1)) == np.uint8


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("largest", [1, pytest.param(255, marks=needs_words)])
@pytest.mark.parametrize("others", ["whole", "mixed"])
def test_bits_and_memory_are_at_most_those_of_floats(others, largest, dtype, monkeypatch):
    partners, rows = whole_rows(largest), whole_rows(largest, seed=1)
    rows[:20] = partners[:20]
    if others == "mixed":
        rows[5:9] *= 0.3
        rows[100, 7] = -2
        rows[200:] = 300
    found, n_bytes = computed(rows, partners, dtype=dtype)
    shared, _ = computed(rows, partners, dtype=dtype, threads=3)
    monkeypatch.setattr(KernelValues, "tile_dtypes", lambda self, rows, places: [self.dtype])
    floats, n_bytes_of_floats = computed(rows, partners, dtype=dtype)
    for bytewise, threaded, exact in zip(found, shared, floats, strict=True):
        np.testing.assert_array_equal(bytewise, exact)
        np.testing.assert_array_equal(threaded, exact)
    assert n_bytes < n_bytes_of_floats / 2
    np.testing.assert_array_equal(found[0][:5].diagonal(), 1)

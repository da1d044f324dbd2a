"""Partners in lists: chosen where rows share few of many columns, with the bits of other tiles."""

import numpy as np
import pytest
import scipy.sparse as sp

from bigsvm.data.rows import RowsAt
from bigsvm.gram import KernelTiles, Partners
from bigsvm.gram.lists import listed_bytes
from bigsvm.gram.partners import PARTNERS_PER_TILE
from bigsvm.kernels import RBF, Laplacian, Linear

N, ENTRIES = 1100, 6
"""Rows, more than two tiles of them; and entries of each, as many as features that may be alike."""


def text_rows(n=N, *, columns=20_000, common=0, always=0, seed=0):
    """Rows with ENTRIES in any columns, as many in few columns, and some in columns of all rows."""
    rng = np.random.default_rng(seed)
    own = rng.integers(common + always, columns, (n, ENTRIES))
    shared = rng.integers(0, max(common, 1), (n, ENTRIES if common else 0))
    chosen = np.hstack([own, shared, np.tile(common + np.arange(always), (n, 1))])
    starts = np.arange(0, chosen.size + 1, chosen.shape[1], dtype=np.int32)
    values, chosen = rng.normal(size=chosen.size), chosen.ravel().astype(np.int32)
    rows = sp.csr_array((values, chosen, starts), (n, columns))
    rows.sum_duplicates()
    return rows.astype(np.float32)


def prepared(rows, *, kernel=None, **options):
    with KernelTiles(kernel or RBF(gamma=0.1), **options) as tiles:
        return Partners(tiles.values, rows, for_sparse_rows=True)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_that_share_few_columns_are_listed(dtype):
    partners = prepared(text_rows(), dtype=dtype)
    assert partners.whole.listed
    assert [tile.start for tile in partners] == [0, PARTNERS_PER_TILE, 2 * PARTNERS_PER_TILE]
    assert prepared(text_rows(), kernel=Linear(), dtype=dtype).whole.listed


def test_other_rows_are_not():
    assert not prepared(text_rows(columns=2000)).whole.listed  # their tiles fit
    assert not prepared(text_rows(always=6)).whole.listed  # they share too many
    assert not prepared(text_rows(columns=10**6)).whole.listed  # a directory would be larger
    assert not prepared(text_rows(), kernel=Laplacian(gamma=0.1)).whole.listed


def test_zeros_and_ones_are_listed_too():
    rows = text_rows()
    rows.data[:] = 1
    assert prepared(rows).whole.listed


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("threads", [1, 2])
def test_values_and_sums_have_the_bits_of_other_tiles(dtype, threads, monkeypatch):
    rows = text_rows(700, common=60)
    weights = np.random.default_rng(1).normal(size=rows.shape[0])

    def computed():
        with KernelTiles(RBF(gamma=0.1), dtype=dtype, threads=threads) as tiles:
            partners = Partners(tiles.values, rows, for_sparse_rows=True)
            values, sums = np.empty((700, 700), dtype), np.zeros(700)
            symmetric = np.zeros(700)
            tiles.evaluate(rows, partners, values)
            tiles.multiply(rows, partners, weights, sums)
            tiles.multiply_symmetric(rows, partners, weights, symmetric)
        return (values, sums, symmetric), partners

    listed, lists = computed()
    # Tiles as wide as lists, but of all features.
    monkeypatch.setattr("bigsvm.gram.partners.SPARSE_TILE_BYTES", 1 << 30)
    full, tiles = computed()
    assert lists.whole.listed
    assert not tiles.whole.listed
    assert 10 * lists.nbytes < tiles.nbytes
    for found, expected in zip(listed, full, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_sums_do_not_depend_on_pieces():
    """One piece has a tile that is listed beside one that is not."""
    few = sp.vstack([text_rows(PARTNERS_PER_TILE, always=6), text_rows(N)], format="csr")
    few = sp.csr_array(few)
    n = few.shape[0]
    weights, some = np.linspace(-1, 2, n), RowsAt(few, np.arange(100))
    whole, pieces = np.zeros(100), np.zeros(100)
    with KernelTiles(RBF(gamma=0.1)) as tiles:
        everything = Partners(tiles.values, few, for_sparse_rows=True)
        assert len({tile.stop - tile.start for tile in everything}) > 2
        tiles.multiply(some, everything, weights, whole)
        for low in range(0, n, PARTNERS_PER_TILE):
            places = np.arange(low, min(low + PARTNERS_PER_TILE, n))
            partners = Partners(tiles.values, RowsAt(few, places), for_sparse_rows=True)
            tiles.multiply(some, partners, weights[places], pieces)
    np.testing.assert_array_equal(whole, pieces)


@pytest.mark.parametrize("common", [0, 60])
def test_lists_take_no_more_than_is_planned_for_a_sample(common):
    sample, others = text_rows(PARTNERS_PER_TILE, common=common), text_rows(common=common, seed=1)
    planned = listed_bytes(sample, most_features=1000)
    partners = prepared(others)
    assert partners.whole.listed
    assert partners.nbytes <= N * planned <= 2 * partners.nbytes


def test_nothing_is_planned_where_other_rows_of_their_kind_may_not_be_listed():
    sample = text_rows(PARTNERS_PER_TILE)
    assert listed_bytes(sample, most_features=2000) is None
    assert prepared(text_rows(always=2)).whole.listed
    assert listed_bytes(text_rows(PARTNERS_PER_TILE, always=2), most_features=1000) is None

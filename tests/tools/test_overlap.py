"""The made-up data: what its recipe promises, and that it comes out the same block by block."""

import runpy

import numpy as np
import pytest
from sklearn.svm import SVC

from bigsvm.data.store import open_store
from tools.benchmarks import overlap

ROWS = 2 * overlap.BLOCK_ROWS + 1000


def test_lazy_blocks_are_the_blocks_made_one_by_one():
    x, y = overlap.overlap(ROWS, 7, seed=3)
    assert x.shape == (ROWS, 7)
    assert x.dtype == np.float32
    assert x.chunks[0] == (overlap.BLOCK_ROWS, overlap.BLOCK_ROWS, 1000)
    computed = x.compute()
    start = 0
    for block, size in enumerate(x.chunks[0]):
        expected = overlap.block_rows(block, n_rows=size, n_columns=7, seed=3)
        np.testing.assert_array_equal(computed[start : start + size], expected)
        labels = overlap.block_labels(block, n_rows=size, seed=3)
        np.testing.assert_array_equal(y[start : start + size], labels)
        start += size


def test_another_seed_or_block_makes_other_rows():
    rows = [
        overlap.block_rows(block, n_rows=5, n_columns=6, seed=seed)
        for block, seed in ((0, 0), (1, 0), (0, 1))
    ]
    assert not np.array_equal(rows[0], rows[1])
    assert not np.array_equal(rows[0], rows[2])


def test_the_surface_separates_all_but_the_promised_share():
    x, y = overlap.overlap(400_000, overlap.SIGNAL_COLUMNS, seed=0)
    x = x.compute()
    wrong = np.count_nonzero(np.sign(x[:, 0] - overlap.surface(x)) != y)
    expected = overlap.BAYES_ERROR * len(y)
    assert 1e-4 < overlap.BAYES_ERROR < 5e-4
    assert abs(wrong - expected) < 4 * np.sqrt(expected)


def test_few_rows_become_support_vectors():
    x, y = overlap.overlap(10_000, 200, seed=0)
    model = SVC(C=overlap.C, gamma=overlap.GAMMA).fit(x.compute(), y)
    assert model.n_support_.sum() < 300


def test_fewer_columns_than_the_signal_takes_are_refused():
    with pytest.raises(ValueError, match="3 columns: the signal alone takes 4"):
        overlap.overlap(10, 3, seed=0)


def test_the_store_holds_the_rows_and_their_labels(tmp_path, monkeypatch):
    path = tmp_path / "overlap.zarr"
    monkeypatch.setattr("sys.argv", ["overlap", str(path), "1000", "6"])
    runpy.run_path(overlap.__file__, run_name="__main__")
    store = open_store(path)
    x, y = overlap.overlap(1000, 6)
    order = store.original_rows()
    assert store.rows.is_shuffled
    np.testing.assert_array_equal(store.rows.read(0, 1000), x.compute()[order])
    np.testing.assert_array_equal(store.labels(), y[order])

"""The sweep reads and computes at the same time, one block ahead and no more."""

import threading

import numpy as np
import pytest
import scipy.sparse as sp

from bigsvm.data.sources import ArrayRows
from bigsvm.kernels import RBF
from bigsvm.tiles import Columns, KernelTiles
from bigsvm.training import sweep as sweep_module
from bigsvm.training.sweep import sweep

from .problems import blobs, gram

N_BLOCKS = 6
PATIENCE = 60.0
"""Seconds until a test gives up on a block that is not read."""


class Watched(ArrayRows):
    """Rows that are not in memory, and note which blocks have been read."""

    def __init__(self, X):
        super().__init__(X)
        self.row_alignment = self.n_rows // N_BLOCKS
        self.started = 0
        self.read_to = [threading.Event() for _ in range(N_BLOCKS)]

    def read(self, start, stop):
        block = start * N_BLOCKS // self.n_rows
        self.started += 1
        rows = super().read(start, stop)
        self.read_to[block].set()
        return rows


def test_the_next_block_is_read_while_this_one_is_computed():
    X, _ = blobs(600)
    source = Watched(X)
    done = []
    with KernelTiles(RBF(gamma=0.5), threads=1) as tiles:
        columns = Columns(tiles, X[:50], sparse_partners=False)
        multiply = tiles.multiply

        def compute(*arguments):
            block = len(done)
            if block + 1 < N_BLOCKS:
                assert source.read_to[block + 1].wait(PATIENCE)
            # Two blocks are what `block_bytes` and the plan count.
            assert source.started == min(block + 2, N_BLOCKS)
            done.append(block)
            multiply(*arguments)

        tiles.multiply = compute
        out = np.zeros(600)
        sweep(tiles, source, columns, np.ones(50), out, block_bytes=2 * X.nbytes // N_BLOCKS)
    assert done == list(range(N_BLOCKS))
    np.testing.assert_allclose(out, gram(X)[:, :50].sum(axis=1), rtol=1e-5)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("skip", [None, np.arange(5, 400, 2)])
def test_several_functions_are_swept_as_each_alone(skip, aligned, monkeypatch):
    X, _ = blobs(600)
    source = Watched(X) if aligned else ArrayRows(X)
    weights = np.random.default_rng(0).standard_normal((50, 3))
    # Of as many functions no more than so many values at a time.
    monkeypatch.setattr(sweep_module, "VALUES_AT_ONCE", 3 * 40)
    done = []
    out, alone = np.ones((600, 3)), np.ones((600, 3))
    with KernelTiles(RBF(gamma=0.5), dtype=np.float64) as tiles:
        columns = Columns(tiles, X[:50], sparse_partners=False)
        options = {"block_bytes": 2 * X.nbytes // N_BLOCKS, "start": 3, "stop": 590, "skip": skip}
        sweep(
            tiles, source, columns, sp.csr_array(weights), out, on_progress=done.append, **options
        )
        for function in range(3):
            column = alone[:, function].copy()
            sweep(tiles, source, columns, weights[:, function].copy(), column, **options)
            alone[:, function] = column
    np.testing.assert_allclose(out, alone, rtol=1e-12)
    np.testing.assert_array_equal(out[:3], 1)
    assert (out[3:5] != 1).all()
    assert (np.diff([3, *done]) <= 40).all()
    assert done[-1] == 590

"""The sweep reads and computes at the same time, one block ahead and no more."""

import threading

import numpy as np

from bigsvm.data.sources import ArrayRows
from bigsvm.kernels import RBF
from bigsvm.tiles import Columns, KernelTiles
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

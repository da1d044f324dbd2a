"""Executors: reading ahead, several functions, and bits that do not depend on the blocks."""

import threading

import numpy as np
import pytest
import scipy.sparse as sp
from support.problems import blobs, gram

from bigsvm.data.in_memory import ArrayRows
from bigsvm.data.sources import as_row_source
from bigsvm.executors import local
from bigsvm.executors.executor import WeightedRows
from bigsvm.executors.local import LocalExecutor
from bigsvm.gram import KernelTiles
from bigsvm.gram.partners import rows_at
from bigsvm.kernels import RBF

N_BLOCKS = 6
PATIENCE = 600.0
"""Seconds until a test gives up on a block that is not read."""


def sweep(source, tiles, partners, weights, out, *, block_bytes, on_progress=None, **options):
    """Add the sums of all blocks to `out`."""
    executor = LocalExecutor(source, tiles, block_bytes=block_bytes)
    options = {"start": 0, "stop": source.n_rows, **options}
    for partial in executor.run(WeightedRows.held(partners, weights), **options):
        rows = np.arange(partial.start, partial.stop)
        out[rows if partial.kept is None else rows[partial.kept]] += partial.added
        if on_progress is not None:
            on_progress(partial.stop)


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


def test_the_next_block_is_read_while_this_one_is_computed(monkeypatch):
    X, _ = blobs(600)
    source = Watched(X)
    done = []
    with KernelTiles(RBF(gamma=0.5), threads=1) as tiles:
        partners = rows_at(X[:50])
        compute_sums = local.partial_sums

        def compute(*arguments):
            block = len(done)
            if block + 1 < N_BLOCKS:
                assert source.read_to[block + 1].wait(PATIENCE)
            # Two blocks are what `block_bytes` and the plan count.
            assert source.started == min(block + 2, N_BLOCKS)
            done.append(block)
            return compute_sums(*arguments)

        monkeypatch.setattr(local, "partial_sums", compute)
        out = np.zeros(600)
        sweep(source, tiles, partners, np.ones(50), out, block_bytes=2 * X.nbytes // N_BLOCKS)
    assert done == list(range(N_BLOCKS))
    np.testing.assert_allclose(out, gram(X)[:, :50].sum(axis=1), rtol=1e-5)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("skip", [None, np.arange(5, 400, 2)])
def test_several_functions_are_swept_as_each_alone(skip, aligned, monkeypatch):
    X, _ = blobs(600)
    source = Watched(X) if aligned else ArrayRows(X)
    weights = np.random.default_rng(0).standard_normal((50, 3))
    # A block has at most this many sums.
    monkeypatch.setattr(local, "VALUES_AT_ONCE", 3 * 40)
    done = []
    out, alone = np.ones((600, 3)), np.ones((600, 3))
    with KernelTiles(RBF(gamma=0.5), dtype=np.float64) as tiles:
        partners = rows_at(X[:50])
        options = {"block_bytes": 2 * X.nbytes // N_BLOCKS, "start": 3, "stop": 590, "skip": skip}
        sweep(
            source, tiles, partners, sp.csr_array(weights), out, on_progress=done.append, **options
        )
        for function in range(3):
            column = alone[:, function].copy()
            sweep(source, tiles, partners, weights[:, function].copy(), column, **options)
            alone[:, function] = column
    np.testing.assert_allclose(out, alone, rtol=1e-12)
    np.testing.assert_array_equal(out[:3], 1)
    assert (out[3:5] != 1).all()
    assert (np.diff([3, *done]) <= 40).all()
    assert done[-1] == 590


class Enough(Exception):
    """Ends a sweep."""


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("skip", [None, np.arange(301), np.r_[7:12, 100:590:3]])
def test_bits_do_not_depend_on_blocks_parts_or_threads(skip, sparse, k, monkeypatch):
    X, _ = blobs(600)
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((550, k) if k > 1 else 550)
    initial = 100 * rng.standard_normal((600, *weights.shape[1:]))
    wanted = np.setdiff1d(np.arange(600), [] if skip is None else skip)
    monkeypatch.setattr("bigsvm.gram.tiles.WORTH_SHARING", 0.0)
    found = []
    for aligned, at_once, threads in (
        (1, 10**6, 1), (1, 37, 2), (50, 10**6, 3), (50, 37, 1), (200, 111, 8),
    ):  # fmt: skip
        monkeypatch.setattr(local, "VALUES_AT_ONCE", at_once)
        rows = sp.csr_array(X) if sparse else X
        source = as_row_source(rows)
        source.row_alignment = aligned
        out, done = initial.copy(), 0
        with KernelTiles(RBF(gamma=0.5), threads=threads) as tiles:
            partners = rows_at(rows[:550])

            def interrupt(rows_done):
                nonlocal done
                done = rows_done
                raise Enough

            while done < 600:
                with pytest.raises(Enough):
                    sweep(
                        source, tiles, partners, weights, out, block_bytes=2 * aligned * 20,
                        start=done, skip=skip, on_progress=interrupt,
                    )  # fmt: skip
        found.append(out[wanted])
    assert (found[0] != initial[wanted]).all()
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


@pytest.mark.parametrize("skip", [None, np.arange(300)])
def test_partial_has_the_costs_of_its_block(skip):
    X, _ = blobs(600)
    source = Watched(X)
    with KernelTiles(RBF(gamma=0.5)) as tiles:
        partners = rows_at(X[:50])
        executor = LocalExecutor(source, tiles, block_bytes=2 * X.nbytes // N_BLOCKS)
        partials = list(
            executor.run(WeightedRows.held(partners, np.ones(50)), start=0, stop=600, skip=skip)
        )
        assert tiles.n_evaluations == 0
    n_rows = 600 if skip is None else 300
    assert sum(partial.evaluations for partial in partials) == 50 * n_rows
    assert sum(len(partial.added) for partial in partials) == n_rows
    assert [(partial.start, partial.stop) for partial in partials] == [
        (start, start + 100) for start in range(0, 600, 100)
    ]
    assert all(partial.seconds > 0 for partial in partials)


def test_sums_go_on_from_those_given_and_these_stay_as_they_are():
    X, _ = blobs(300)
    initial = np.random.default_rng(0).standard_normal(300)
    before = initial.copy()
    with KernelTiles(RBF(gamma=0.5), dtype=np.float64) as tiles:
        partners = rows_at(X[:50])
        executor = LocalExecutor(ArrayRows(X), tiles, block_bytes=1 << 20)
        (partial,) = executor.run(
            WeightedRows.held(partners, np.ones(50)), start=10, stop=290, initial=initial
        )
    np.testing.assert_array_equal(initial, before)
    expected = (initial + gram(X)[:, :50].sum(axis=1))[10:290]
    np.testing.assert_allclose(partial.added, expected, rtol=1e-5)

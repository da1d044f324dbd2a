"""Passes over the rows: the same bits however many rows fit in memory, and wherever one ends."""

import dataclasses
from copy import deepcopy
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from support.problems import blobs, gram

from bigsvm.budget import TrainingPlan
from bigsvm.data.sources import as_row_source
from bigsvm.executors.local import LocalExecutor
from bigsvm.executors.working_rows import WorkingRows
from bigsvm.gram import KernelTiles
from bigsvm.kernels import RBF
from bigsvm.training import events
from bigsvm.training.run import Watch
from bigsvm.training.state import Counters, Limits
from bigsvm.training.sweep import Passes

N = 500
TILE = 64


class Killed(Exception):
    """Ends a process."""


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    """Have several tiles, parts of rows, and threads."""
    monkeypatch.setattr("bigsvm.gram.partners.PARTNERS_PER_TILE", TILE)
    monkeypatch.setattr("bigsvm.gram.partners.NARROWEST_SPARSE_TILE", 8)
    monkeypatch.setattr("bigsvm.gram.tiles.WORTH_SHARING", 0.0)
    monkeypatch.setattr("bigsvm.executors.local.VALUES_AT_ONCE", 333)


def problem(*, sparse, k):
    """Rows, and weights of which one in ten is 0."""
    rng = np.random.default_rng(0)
    X, _ = blobs(N, d=40)
    if sparse:
        X *= rng.random(X.shape) < 0.3
    weights = rng.standard_normal((N, k)) * (rng.random((N, 1)) < 0.9)
    if k == 1:
        return X, weights[:, 0]
    return X, weights if k < 10 else sp.csr_array(weights)


def add(X, weights, *, sums, count, active_rows, block_bytes=1 << 14, threads=1, killed_at=-1):
    """Add them up in one process, which may be killed where it looks up for the so manyth time."""
    source = as_row_source(X)
    source.row_alignment = 50
    looks = 0

    def pause():
        nonlocal looks
        looks += 1
        if looks == killed_at:
            raise Killed

    with KernelTiles(RBF(gamma=0.5), threads=threads) as tiles:
        plan = TrainingPlan(TILE, TILE, active_rows, 1 << 20, block_bytes, {}, active_rows)
        watch = Watch(count, source=source, tiles=tiles, limits=Limits())
        executor = LocalExecutor(source, tiles, block_bytes=block_bytes)
        run = SimpleNamespace(
            plan=plan, count=count, watch=watch, listener=events.ignore, pause=pause
        )
        passes = Passes(run, executor, WorkingRows(source), None)
        passes.add_by_pieces(weights, sums, start=20, stop=N)


def zeros(weights):
    return np.zeros((N, *weights.shape[1:]))


@pytest.mark.parametrize("k", [1, 3, 20])
@pytest.mark.parametrize("narrow", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
def test_bits_do_not_depend_on_pieces_blocks_or_threads(sparse, narrow, k, monkeypatch):
    if narrow:
        # Tiles of 64 sparse columns take more: they are divided, some more often than others.
        monkeypatch.setattr("bigsvm.gram.partners.SPARSE_TILE_BYTES", 4 * 38 * 32)
    dense, weights = problem(sparse=sparse, k=k)
    X = sp.csr_array(dense) if sparse else dense
    found = []
    for active_rows, block_bytes, threads in (
        (10**6, 1 << 20, 1), (TILE, 1 << 14, 2), (TILE + 9, 1 << 16, 3), (3 * TILE, 1 << 12, 8),
    ):  # fmt: skip
        sums, count = zeros(weights), Counters()
        add(
            X, weights, sums=sums, count=count,
            active_rows=active_rows, block_bytes=block_bytes, threads=threads,
        )  # fmt: skip
        assert count.rows_done == count.columns_done == 0
        found.append(sums)
    all_weights = weights if isinstance(weights, np.ndarray) else weights.toarray()
    np.testing.assert_allclose(found[0][20:], (gram(dense) @ all_weights)[20:], atol=1e-4)
    assert not found[0][:20].any()
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


@pytest.mark.parametrize("k", [1, 3])
def test_killed_anywhere_and_resumed_it_gives_the_same_bits(k):
    """All that is left of a process are the sums and the counters."""
    X, weights = problem(sparse=False, k=k)
    whole, count = zeros(weights), Counters()
    add(X, weights, sums=whole, count=count, active_rows=10**6)
    for killed_at in (1, 2, 5, 9):
        sums, count, kills, within = zeros(weights), Counters(), 0, set()
        while True:
            try:
                add(X, weights, sums=sums, count=count, active_rows=70, killed_at=killed_at)
                break
            except Killed:
                sums, count = sums.copy(), deepcopy(count)
                within.add((count.columns_done > 0, count.rows_done > 0))
                kills += 1
        assert kills > 5 // killed_at
        assert (True, True) in within
        np.testing.assert_array_equal(sums, whole)


def test_resumed_with_other_memory_it_gives_the_same_bits():
    X, weights = problem(sparse=False, k=1)
    whole = zeros(weights)
    add(X, weights, sums=whole, count=Counters(), active_rows=10**6)
    for killed_at in range(1, 30, 3):
        sums, count = zeros(weights), Counters()
        with pytest.raises(Killed):
            add(X, weights, sums=sums, count=count, active_rows=150, killed_at=killed_at)
        for active_rows in (100, 400):
            again, count_again = sums.copy(), dataclasses.replace(count)
            add(X, weights, sums=again, count=count_again, active_rows=active_rows)
            np.testing.assert_array_equal(again, whole)


def test_fewer_rows_than_a_tile_are_added_up_all_the_same():
    X, weights = problem(sparse=False, k=1)
    sums = zeros(weights)
    add(X, weights, sums=sums, count=Counters(), active_rows=7)
    np.testing.assert_allclose(sums[20:], (gram(X) @ weights)[20:], atol=1e-4)

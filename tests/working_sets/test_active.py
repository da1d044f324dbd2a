"""Passes over the rows, and the active rows, where a row has an output for each of k functions."""

from types import SimpleNamespace

import numpy as np
import pytest
from support.problems import blobs, gram

from bigsvm.data.in_memory import ArrayRows
from bigsvm.executors.local import LocalExecutor
from bigsvm.executors.working_rows import Gathered, WorkingRows
from bigsvm.gram import KernelTiles
from bigsvm.kernels import RBF
from bigsvm.training.state import Counters
from bigsvm.training.sweep import Passes
from bigsvm.working_sets.active import ActiveRows
from bigsvm.working_sets.choice import WorkingSet

K = 3


class Interrupted(Exception):
    pass


@pytest.fixture
def weights():
    """Most rows have none, some have one, in some of the functions."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((300, K)) * (rng.random((300, K)) < 0.3)


@pytest.mark.parametrize("interrupted_at", [0, 1, 3])
def test_pieces_add_up_and_go_on_where_they_were_interrupted(interrupted_at, weights):
    X = blobs(300)[0].astype(np.float64)
    source, count, outputs, seen = ArrayRows(X), Counters(), np.zeros((300, K)), []

    def pause():
        seen.append(count.rows_done)
        if len(seen) == interrupted_at:
            raise Interrupted

    def add():
        with KernelTiles(RBF(gamma=0.5), dtype=np.float64) as tiles:
            run = SimpleNamespace(
                plan=SimpleNamespace(active_rows=40),
                count=count,
                watch=SimpleNamespace(add=lambda partial, threads: None),
                listener=lambda event: None,
                pause=pause,
            )
            executor = LocalExecutor(source, tiles, block_bytes=1 << 20)
            passes = Passes(run, executor, WorkingRows(source), None)
            passes.add_by_pieces(weights, outputs, stop=250)

    if interrupted_at:
        with pytest.raises(Interrupted):
            add()
    add()
    np.testing.assert_allclose(outputs[:250], (gram(X) @ weights)[:250], atol=1e-12)
    np.testing.assert_array_equal(outputs[250:], 0)


def test_active_rows_take_over_what_a_working_set_has_become():
    X = blobs(60)[0].astype(np.float64)
    matrix, indices = gram(X), np.arange(60)
    rng = np.random.default_rng(1)
    alpha, places = np.zeros((60, K)), np.array([50, 3, 17])
    alpha[:5] = rng.standard_normal((5, K))
    new = alpha[places].copy()
    new[0, 1], new[1] = 0.5, 0  # the third has not moved
    after = alpha.copy()
    after[places] = new
    dual = SimpleNamespace(
        formulation=SimpleNamespace(per_output=lambda change: change),
        outputs_from=lambda gradient, alpha, rows: -gradient,
    )
    with KernelTiles(RBF(gamma=0.5), dtype=np.float64) as tiles:
        active = ActiveRows(
            dual, tiles, Gathered(ArrayRows(X), indices, None), indices, alpha, matrix @ alpha
        )
        working = WorkingSet(places, places[:0], new, -(matrix @ after)[places])
        assert active.absorb(working)
        np.testing.assert_allclose(active.outputs, matrix @ after, atol=1e-12)
        np.testing.assert_array_equal(active.alpha, after)
        assert not active.absorb(working)

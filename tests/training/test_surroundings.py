"""A run is saved when what is around it fails, and goes on to the bits of an undisturbed one."""

from dataclasses import replace

import numpy as np
import pytest
from support.problems import Ball, blobs, classes_of_blobs, decomposition
from support.same import assert_same_bits, assert_same_model

from bigsvm.data.in_memory import ArrayRows
from bigsvm.errors import ClusterError, StoreError, UnreachableError
from bigsvm.fit.train import train_model
from bigsvm.parameters import TrainingParameters
from bigsvm.training.checkpoint import Checkpoint

NEVER = 10**9


class FailingRows(ArrayRows):
    """Rows that are read in blocks; one of the reads fails."""

    def __init__(self, X, error, fails_at):
        super().__init__(X)
        self.row_alignment, self.is_shuffled = 100, True
        self.reads, self.fails_at, self._error = 0, fails_at, error

    def _count(self):
        self.reads += 1
        if self.reads == self.fails_at:
            raise self._error("gone")

    def read(self, start, stop):
        self._count()
        return super().read(start, stop)

    def take(self, indices):
        self._count()
        return super().take(indices)


@pytest.mark.slow
@pytest.mark.fault("surroundings")
@pytest.mark.parametrize("error", [UnreachableError, StoreError, ClusterError])
def test_rows_that_cannot_be_read_for_a_while(error, tmp_path):
    X, y = blobs(2000)

    def run(fails_at, checkpoint=None):
        rows = FailingRows(X, error, fails_at)
        run = decomposition(rows, y, working_set=200, checkpoint=checkpoint, checkpoint_every=1e9)
        return rows, run

    rows, undisturbed = run(NEVER)
    whole, n_reads = undisturbed.run(), rows.reads
    generations = set()
    for fails_at in np.linspace(5, n_reads - 1, 8).astype(int):
        folder = tmp_path / str(fails_at)
        with Checkpoint(folder, {}) as checkpoint:
            _, failing = run(fails_at, checkpoint)
            with pytest.raises(error, match="gone"):
                failing.run()
            generations.add((failing.count.n_working_sets, failing.count.rows_done))
        assert list(folder.glob("generation-*"))
        with Checkpoint(folder, {}) as checkpoint:
            _, resumed = run(NEVER, checkpoint)
            assert (resumed.count.n_working_sets, resumed.count.rows_done) in generations
            assert_same_bits(resumed.run(), whole)
    assert len(generations) > 5


@pytest.mark.fault("surroundings")
@pytest.mark.slow
def test_a_search_whose_rows_cannot_be_read_for_a_while(tmp_path):
    X, y = blobs(2000)
    rows = FailingRows(X, UnreachableError, NEVER)
    whole = Ball(rows, y).train(certify=False)
    for fails_at in (rows.reads // 3, rows.reads - 1):
        folder = tmp_path / str(fails_at)
        with Checkpoint(folder, {}) as checkpoint:
            failing = Ball(FailingRows(X, UnreachableError, fails_at), y)
            with pytest.raises(UnreachableError):
                failing.train(checkpoint=checkpoint, certify=False)
        assert list(folder.glob("generation-*"))
        with Checkpoint(folder, {}) as checkpoint:
            resumed = Ball(FailingRows(X, UnreachableError, NEVER), y)
            assert_same_bits(resumed.train(checkpoint=checkpoint, certify=False), whole)


@pytest.mark.fault("surroundings")
def test_class_pairs_whose_rows_cannot_be_read_for_a_while(tmp_path, pairs_by_runs):
    X, y = classes_of_blobs(1500, k=4)
    parameters = TrainingParameters(
        formulation="c-svc", multiclass="ovo", C=1.0, gamma=0.5, memory=10**8, threads=1,
        checkpoint=str(tmp_path / "run"), checkpoint_every=1e9,
    )  # fmt: skip

    def train(fails_at, parameters=parameters):
        rows = FailingRows(X, UnreachableError, fails_at)
        return rows, train_model(rows, y, None, parameters)

    rows, whole = train(NEVER, replace(parameters, checkpoint=None))
    with pytest.raises(UnreachableError):
        train(rows.reads - 1)
    assert list((tmp_path / "run").rglob("generation-*"))
    assert_same_model(train(NEVER)[1], whole)

"""Runs whose working sets leap: interrupted at any moment they go on to the same bits."""

import numpy as np
import pytest
from interruption import StopAt

from bigsvm.kernels import Linear, Polynomial
from bigsvm.training.checkpoint import Checkpoint
from bigsvm.training.result import StopReason
from bigsvm.training.state import Limits

from .problems import blobs, decomposition

KERNELS = {"linear": (Linear(), 100.0), "poly": (Polynomial(gamma=1.0, coef0=1.0, degree=2), 3.0)}


@pytest.fixture(params=KERNELS)
def run(request, monkeypatch):
    """A run with several working sets of 300 rows, each of which leaps."""
    monkeypatch.setattr("bigsvm.duals.subproblem.FIRST_LEAP", 2048)
    monkeypatch.setattr("bigsvm.duals.subproblem.STEPS_PER_ROW", 0)
    monkeypatch.setattr("bigsvm.training.start.FIRST_SCOPE", 300)
    monkeypatch.setattr("bigsvm.training.start.DIRECT_ROWS", 0)
    monkeypatch.setattr("bigsvm.training.choice.DIRECT_ROWS", 0)
    monkeypatch.setattr("bigsvm.training.choice.SMALLEST_SET", 100)
    kernel, scale = KERNELS[request.param]
    X, y = blobs(900, overlap=0.8)

    def make(**options):
        options = {"working_set": 300, "active_rows": 600, "block_bytes": 1 << 21, **options}
        return decomposition((scale * X).astype(np.float32), y, kernel=kernel, **options)

    return make


def leaps_of(monkeypatch):
    """Count the leaps of this process."""
    from bigsvm.duals.pair_steps import PairSteps

    found, leap = [], PairSteps.leap

    def counted(self, *given, **named):
        found.append(self.n_done)
        return leap(self, *given, **named)

    monkeypatch.setattr(PairSteps, "leap", counted)
    return found


def assert_same_bits(result, reference):
    np.testing.assert_array_equal(result.support, reference.support)
    np.testing.assert_array_equal(result.alpha, reference.alpha)
    assert result.thresholds == reference.thresholds
    for name in ("n_sweeps", "n_iter", "gap", "objective"):
        assert getattr(result.certificate, name) == getattr(reference.certificate, name)


def test_resumed_at_every_moment_it_gives_the_same_bits(run, tmp_path, monkeypatch):
    leaps, watch = leaps_of(monkeypatch), StopAt(-1)
    whole = run(limits=Limits(interrupted=watch)).run()
    assert whole.certificate.stop_reason is StopReason.CONVERGED
    assert len(leaps) > 1
    n_moments = watch.count
    for first in range(1, n_moments, max(1, n_moments // 40)):
        for moment in (first, 3, 17, -1):
            with Checkpoint(tmp_path / str(first), {}) as checkpoint:
                limits = Limits(interrupted=StopAt(moment))
                result = run(checkpoint=checkpoint, limits=limits).run()
            if result.certificate.converged:
                break
            assert result.certificate.stop_reason is StopReason.INTERRUPTED
        assert_same_bits(result, whole)


def test_threads_do_not_change_the_bits(run):
    assert_same_bits(run(threads=3).run(), run().run())


def test_without_memory_for_it_there_is_none(run, monkeypatch):
    leaps = leaps_of(monkeypatch)
    run(block_bytes=1 << 14, limits=Limits(max_iter=10**4)).run()
    assert not leaps

"""Runs whose working sets leap: interrupted at any moment they go on to the same bits."""

import numpy as np
import pytest
from support.problems import blobs, decomposition
from support.resuming import StopAt, assert_resumed_to_the_same_bits, with_checkpoint
from support.same import assert_same_bits

from bigsvm.kernels import Linear, Polynomial
from bigsvm.training.result import StopReason
from bigsvm.training.state import Limits

KERNELS = {"linear": (Linear(), 100.0), "poly": (Polynomial(gamma=1.0, coef0=1.0, degree=2), 3.0)}


@pytest.fixture(params=KERNELS)
def run(request, monkeypatch):
    """Train with several working sets of 300 rows, each of which leaps."""
    monkeypatch.setattr("bigsvm.working_sets.long_steps.FIRST_LEAP", 2048)
    monkeypatch.setattr("bigsvm.working_sets.long_steps.STEPS_PER_ROW", 0)
    monkeypatch.setattr("bigsvm.working_sets.choice.FIRST_SCOPE", 300)
    monkeypatch.setattr("bigsvm.working_sets.choice.DIRECT_ROWS", 0)
    monkeypatch.setattr("bigsvm.working_sets.choice.DIRECT_ROWS", 0)
    monkeypatch.setattr("bigsvm.working_sets.choice.SMALLEST_SET", 100)
    kernel, scale = KERNELS[request.param]
    X, y = blobs(900, overlap=0.8)

    def make(**options):
        options = {"working_set": 300, "active_rows": 600, "block_bytes": 1 << 21, **options}
        return decomposition((scale * X).astype(np.float32), y, kernel=kernel, **options).run()

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


def test_resumed_at_every_moment_it_gives_the_same_bits(run, tmp_path, monkeypatch):
    leaps, watch = leaps_of(monkeypatch), StopAt()
    whole = run(limits=Limits(interrupted=watch))
    assert whole.certificate.stop_reason is StopReason.CONVERGED
    assert len(leaps) > 1
    firsts = range(1, watch.count, max(1, watch.count // 10))
    assert_resumed_to_the_same_bits(with_checkpoint(run), tmp_path, firsts, whole, then=(3, 17, -1))


def test_threads_do_not_change_the_bits(run):
    assert_same_bits(run(threads=3), run())


def test_no_leap_without_memory_for_its_factor(run, monkeypatch):
    leaps = leaps_of(monkeypatch)
    run(block_bytes=1 << 14, limits=Limits(max_iter=10**4))
    assert not leaps

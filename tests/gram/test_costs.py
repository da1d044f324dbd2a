"""What rows cost: measured, decided by, and the rows that were measured stay."""

import errno
import os
from types import SimpleNamespace

import numpy as np
import pytest

from bigsvm.gram import costs, disk
from bigsvm.gram.costs import WORTH_KEEPING, decide, least_read_seconds
from gram.disk_rows import (
    NOT_KEPT,
    Computing,
    N,
    assert_hands_on,
    failing,
    fetched,
    fill,
    hits,
    offer,
    open_tier,
)


@pytest.mark.parametrize(
    ("compute", "read", "keep", "reason"),
    [
        (9e-4, 2e-4, True, "takes 0.9 ms to compute and 0.2 ms to read: rows are kept on disk"),
        (2e-4, 9e-4, False, "takes 0.2 ms to compute and 0.9 ms to read: rows are computed again"),
        (2e-4, 1.9e-4, False, "compute and 0.19 ms to read: rows are computed again, not kept"),
        (0.0421, 0.0123, True, "takes 42 ms to compute and 12 ms to read: rows are kept on disk"),
    ],
)
def test_rows_are_kept_where_reading_is_clearly_cheaper(compute, read, keep, reason):
    decision = decide(compute_seconds=compute, read_seconds=read, write_seconds=1.0)
    assert decision[:4] == (compute, read, 1.0, keep)
    assert reason in decision.reason


def test_decision_on_a_lower_bound_says_at_least():
    given = {"compute_seconds": 1e-5, "read_seconds": 2e-5, "write_seconds": np.nan}
    decision = decide(**given, at_least=True)
    assert not decision.keep
    assert "takes 0.01 ms to compute and at least 0.02 ms to read" in decision.reason


class Clock:
    """Time passes only where it is said to: per row computed, read, and synced."""

    def __init__(self, monkeypatch, *, compute, read, write=0.25):
        self.now, self.compute, self.first = 0.0, compute, 1000.0
        self.n_synced = 0
        for module in (costs, disk):
            monkeypatch.setattr(module, "time", SimpleNamespace(perf_counter=lambda: self.now))
        preadv, fsync, pwrite = os.preadv, os.fsync, os.pwrite

        def reading(*args):
            self.now += read
            return preadv(*args)

        def writing(fd, data, offset):
            self.now += write * (len(data) > 16)
            return pwrite(fd, data, offset)

        def syncing(*args):
            self.n_synced += 1
            return fsync(*args)

        monkeypatch.setattr(os, "preadv", reading)
        monkeypatch.setattr(os, "pwrite", writing)
        monkeypatch.setattr(os, "fsync", syncing)

    def below(self, n=N):
        clock = self

        class Timed(Computing):
            def fetch(self, variables, rows, slots):
                super().fetch(variables, rows, slots)
                clock.now += clock.first + clock.compute * len(variables)
                clock.first = 0.0  # the first takes long: it compiles

        return Timed(n)


def test_rows_measured_stay_and_serve(tmp_path, monkeypatch):
    clock = Clock(monkeypatch, compute=2**-6, read=2**-9)
    below = clock.below(100)
    with open_tier(tmp_path, below, n=100, decision=None) as tier:
        assert tier.decision == (2**-6, 2**-9, 0.25, True, tier.decision.reason)
        assert "takes 16 ms to compute and 2 ms to read" in tier.decision.reason
        assert below.batches == [[0], list(range(12)), list(range(12, 24))]
        assert clock.n_synced == 1
        assert tier.n_held == 24  # a batch takes 0.19 s, and measuring ends after 0.2
        assert (tier.n_hits, tier.n_misses) == (0, 0)
        assert hits(tier, *range(40), n=100) == list(range(24))


def test_measuring_again_computes_rows_that_are_not_there(tmp_path, monkeypatch):
    clock = Clock(monkeypatch, compute=2**-8, read=2**-10)
    for start in (0, 36, 72):
        below = clock.below(108)
        with open_tier(tmp_path, below, n=108, decision=None) as tier:
            assert set(below.computed) == set(range(start, start + 36))
            assert tier.bytes_written == 36 * 432
    with open_tier(tmp_path, clock.below(108), n=108, decision=None) as tier:
        assert (tier.n_held, tier.bytes_written) == (108, 0)
        assert tier.decision.keep
        assert np.isnan(tier.decision.write_seconds)
        assert hits(tier, 0, 107, n=108) == [0, 107]


@pytest.mark.parametrize(("rows", "queue_rows"), [(1, 64), (5, 64), (64, 1), (64, 7)])
def test_measuring_where_there_is_little_room(tmp_path, monkeypatch, rows, queue_rows):
    clock = Clock(monkeypatch, compute=2**-8, read=2**-10)
    below = clock.below(100)
    options = {"rows": rows, "queue_bytes": queue_rows * 400, "decision": None}
    with open_tier(tmp_path, below, n=100, **options) as tier:
        assert tier.decision[:4] == (2**-8, 2**-10, 0.25, True)
        assert tier.n_held == min(rows, queue_rows)
        assert len(below.computed) <= min(queue_rows, 36) + 1


def test_large_rows_are_measured_with_few(tmp_path, monkeypatch):
    monkeypatch.setattr(disk, "PROBE_BYTES", 1000)
    clock = Clock(monkeypatch, compute=2**-8, read=2**-10)
    below = clock.below(100)
    with open_tier(tmp_path, below, n=100, decision=None) as tier:
        assert below.batches == [[0], list(range(12))]
        assert tier.n_held == 2


def test_costs_of_a_problem_with_one_variable(tmp_path):
    with open_tier(tmp_path, n=1, decision=None) as tier:
        assert tier.decision.compute_seconds > 0
        fill(tier, 0, n=1)
        fetched(tier, 0, n=1)


def test_rows_are_not_kept_where_reading_is_slower_than_computing(tmp_path, monkeypatch):
    clock = Clock(monkeypatch, compute=2**-10, read=2**-8)
    below = clock.below()
    with open_tier(tmp_path, below, decision=None) as tier:
        assert tier.decision.reason.endswith("rows are computed again, not kept on disk")
        assert list(tmp_path.iterdir()) == []
        below.batches.clear()
        offer(tier, 1, 2)
        fetched(tier, 1, 0, 2)
        assert below.batches == [[1, 0, 2]]
        assert (tier.n_hits, tier.n_misses, tier.n_dropped, tier.nbytes) == (0, 3, 0, 0)


LEAST = WORTH_KEEPING * least_read_seconds(400)


@pytest.mark.parametrize("folder_holds", [None, "another problem"])
def test_disk_is_not_measured_where_rows_are_cheaper_than_any_read(
    tmp_path, monkeypatch, folder_holds
):
    if folder_holds is not None:
        with open_tier(tmp_path / "cache", fingerprint=folder_holds) as tier:
            fill(tier, 1)
    before = {path: path.stat() for path in tmp_path.rglob("*")}
    clock = Clock(monkeypatch, compute=0.9 * LEAST, read=0.0)
    below = clock.below(100)
    with open_tier(tmp_path / "cache", below, n=100, decision=None) as tier:
        assert below.batches == [[0], list(range(12))]
        assert not tier.decision.keep
        assert "at least 0.0021 ms to read: rows are computed again" in tier.decision.reason
        offer(tier, 1)
        fetched(tier, 1, n=100)
        assert (tier.n_hits, tier.n_misses, tier.nbytes, clock.n_synced) == (0, 1, 0, 0)
    assert {path: path.stat() for path in tmp_path.rglob("*")} == before


def test_disk_is_measured_where_a_fast_one_would_pay(tmp_path, monkeypatch):
    clock = Clock(monkeypatch, compute=1.1 * LEAST, read=0.0)
    with open_tier(tmp_path, clock.below(100), n=100, decision=None) as tier:
        assert clock.n_synced == 1
        assert tier.decision.keep


def test_slow_outlier_among_timed_batches_is_ignored(tmp_path, monkeypatch):
    clock = Clock(monkeypatch, compute=0.5 * LEAST, read=0.0)
    below = clock.below(100)

    class HeldUp:
        def fetch(self, variables, rows, slots):
            below.fetch(variables, rows, slots)
            clock.now += 0.01 * (variables[-1] == 11)

    with open_tier(tmp_path, HeldUp(), n=100, decision=None) as tier:
        assert below.batches == [[0], list(range(12)), list(range(12, 24))]
        assert not tier.decision.keep
    assert list(tmp_path.iterdir()) == []


def test_cheap_rows_leave_the_file_of_earlier_runs_as_it_is(tmp_path, monkeypatch):
    with open_tier(tmp_path, n=100) as tier:
        fill(tier, 1, 2, 3, n=100)
    clock = Clock(monkeypatch, compute=0.5 * LEAST, read=0.0)
    with open_tier(tmp_path, clock.below(100), n=100, decision=None) as tier:
        assert not tier.decision.keep
        assert clock.n_synced == tier.bytes_written == 0
    with open_tier(tmp_path, n=100) as tier:
        assert hits(tier, *range(10), n=100) == [1, 2, 3]


def test_rows_of_earlier_runs_survive_a_decision_against_them(tmp_path, monkeypatch):
    with open_tier(tmp_path) as tier:
        fill(tier, 1, 2, 3)
    with monkeypatch.context() as patch:
        clock = Clock(patch, compute=2**-10, read=2**-8)
        with open_tier(tmp_path, clock.below(), decision=None) as tier:
            assert hits(tier, 1, 2, 3) == []
    with open_tier(tmp_path) as tier:
        assert set(hits(tier, *range(N))) >= {1, 2, 3}


def test_no_file_is_made_when_rows_are_not_kept(tmp_path):
    with open_tier(tmp_path / "cache", decision=NOT_KEPT) as tier:
        offer(tier, 1)
        assert hits(tier, 1) == []
        tier.drain()
        assert tier.decision is NOT_KEPT
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("call", ["pwrite", "fsync", "preadv"])
def test_a_disk_that_fails_while_measuring(tmp_path, monkeypatch, caplog, call):
    at = 5 if call == "pwrite" else 1
    monkeypatch.setattr(os, call, failing(getattr(os, call), errno.EIO, at=at))
    assert_hands_on(open_tier(tmp_path, decision=None), caplog)
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_while_measuring_gives_the_file_up(tmp_path):
    class Interrupted(Computing):
        def fetch(self, variables, rows, slots):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_tier(tmp_path, Interrupted(), decision=None)
    with open_tier(tmp_path) as tier:
        assert tier.decision.keep

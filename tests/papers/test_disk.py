"""The disk tier: rows come back bit for bit or are computed, whatever is done to the file."""

import errno
import itertools
import os
import tempfile
import threading
import time

import numpy as np
import pytest
from gram.contracts import RowTierContract
from hypothesis import given, settings
from hypothesis import strategies as st

from bigsvm.gram import KernelTiles, Partners
from bigsvm.gram.row_cache import ComputedRows
from bigsvm.kernels import RBF
from bigsvm.papers import disk
from papers.disk_rows import (
    KEPT,
    NOT_KEPT,
    Computing,
    N,
    failing,
    fetched,
    fill,
    flip,
    hits,
    offer,
    open_tier,
    row_offset,
    true_rows,
)


class TestEmptyDiskRows(RowTierContract):
    @pytest.fixture
    def decision(self):
        return KEPT

    @pytest.fixture
    def make(self, tmp_path, decision):
        with KernelTiles(RBF(gamma=self.gamma)) as tiles:
            opened = []

            def make(data):
                below = ComputedRows(
                    tiles, data, Partners(tiles.values, data, for_sparse_rows=False)
                )
                opened.append(open_tier(tmp_path, below, decision=decision))
                return opened[0]

            yield make
            opened[0].close()


class TestHandingOn(TestEmptyDiskRows):
    @pytest.fixture
    def decision(self):
        return NOT_KEPT


class TestRowsOnDisk(TestEmptyDiskRows):
    """Every row is in the file before the contract is looked at."""

    @pytest.fixture
    def tier(self, make, data):
        tier = make(data)
        rows = np.empty((N, N), np.float32)
        tier.fetch(np.arange(N), rows, np.arange(N))
        tier.offer(np.arange(N), rows, np.arange(N))
        tier.drain()
        assert tier.bytes_written == N * N * 4
        return tier


# -- rows go out and come back ---------------------------------------------------------------------


def test_rows_come_back_bit_for_bit(tmp_path):
    below = Computing()
    with open_tier(tmp_path, below) as tier:
        fill(tier, 4, 0, 29)
        fetched(tier, 29, 4, 0)
        assert below.batches == []
        assert (tier.n_hits, tier.n_misses, tier.n_damaged, tier.n_dropped) == (3, 0, 0, 0)
        assert tier.bytes_written == tier.bytes_read == 3 * 4 * N
        assert tier.n_held == 3


class SteppedWrites:
    """Each `os.pwrite` waits until it is let go."""

    def __init__(self, monkeypatch):
        self.n_begun, self._steps, self._write = 0, threading.Semaphore(0), os.pwrite
        monkeypatch.setattr(os, "pwrite", self)

    def __call__(self, *args):
        self.n_begun += 1
        self._steps.acquire()
        return self._write(*args)

    def let_go(self, count):
        """And wait until as many are done and the next has begun."""
        goal = self.n_begun + count
        self._steps.release(count)
        while self.n_begun < goal:
            time.sleep(0.001)

    def __enter__(self):
        while self.n_begun == 0:
            time.sleep(0.001)
        return self

    def __exit__(self, *exception):
        self._steps.release(1000)


def test_a_row_that_waits_to_be_written_is_served_from_the_queue(tmp_path, monkeypatch):
    with open_tier(tmp_path, queue_bytes=2 * 4 * N) as tier:
        writes = SteppedWrites(monkeypatch)
        offer(tier, 3, 5)
        with writes:
            assert hits(tier, 5, 3) == [5, 3]
            assert (tier.bytes_read, tier.bytes_written) == (0, 0)
            # The queue is full: rows are dropped, and nobody waits.
            offer(tier, 3, 7, 8)
            assert (tier.n_dropped, tier.n_held) == (2, 2)
        tier.drain()
        assert hits(tier, 3, 5, 7) == [3, 5]
        assert tier.bytes_read == 2 * 4 * N
        fill(tier, 7)
        assert hits(tier, 7) == [7]


def test_a_row_given_up_and_offered_again_while_it_waits(tmp_path, monkeypatch):
    """It is in the queue twice; when the first is written, the second is what serves."""
    monkeypatch.setattr(disk, "ADMITTED", 1.0)
    with open_tier(tmp_path, rows=1) as tier:
        writes = SteppedWrites(monkeypatch)
        for v in (0, 1, 0):
            offer(tier, v)
        with writes:
            writes.let_go(3)  # 0 and its entry, and of 1 the bytes in the same place
            assert hits(tier, 1, 0) == [0]
        tier.drain()
        assert hits(tier, 1, 0) == [0]
        assert (tier.n_damaged, tier.bytes_written) == (0, 3 * 4 * N)


def test_queued_rows_are_written_before_the_file_is_closed(tmp_path, monkeypatch):
    done = []
    write, close = os.pwrite, os.close
    tier = open_tier(tmp_path)
    monkeypatch.setattr(os, "pwrite", lambda *args: (done.append("write"), write(*args))[1])
    monkeypatch.setattr(
        os, "close", lambda fd: (done.append(threading.current_thread()), close(fd))
    )
    offer(tier, *range(10))
    tier.close()
    tier.close()
    # Never by the thread that may be interrupted while the other still writes.
    assert done[:-1] == ["write"] * 20
    assert done[-1] is not threading.main_thread()
    monkeypatch.undo()
    assert hits(tier, 1) == []  # closed: all comes from below
    offer(tier, 1)
    with open_tier(tmp_path) as again:
        assert hits(again, *range(11)) == list(range(10))


def test_a_row_on_disk_is_not_written_again(tmp_path):
    with open_tier(tmp_path) as tier:
        fill(tier, 1, 2)
        fill(tier, 2, 1, 3)
        assert tier.bytes_written == 3 * 4 * N
    with open_tier(tmp_path) as tier:
        fill(tier, 1, 2, 3)
        assert tier.bytes_written == 0


@given(
    asked=st.lists(st.integers(0, N - 1), unique=True, max_size=N),
    on_disk=st.sets(st.integers(0, N - 1)),
    width=st.integers(N, N + 3),
)
@settings(max_examples=60)
def test_missing_rows_are_computed_in_one_batch(asked, on_disk, width):
    with tempfile.TemporaryDirectory() as folder:
        below = Computing()
        with open_tier(folder, below) as tier:
            fill(tier, *on_disk)
            buffer = np.full((2 * len(asked), width), -3, np.float32)
            tier.fetch(np.array(asked, np.int64), buffer, np.arange(len(asked)) * 2)
            np.testing.assert_array_equal(
                buffer[::2, :N].view(np.uint32), true_rows(asked).view(np.uint32)
            )
            assert (buffer[::2, N:] == -3).all()
            assert (buffer[1::2] == -3).all()
            missing = sorted(set(asked) - on_disk)
            assert [sorted(batch) for batch in below.batches if batch] == [missing][: len(missing)]
            assert (tier.n_misses, tier.n_hits) == (len(missing), len(asked) - len(missing))


def test_rows_are_read_while_others_are_computed(tmp_path, monkeypatch):
    begun, read = threading.Event(), os.preadv

    class Waiting(Computing):
        def fetch(self, variables, rows, slots):
            assert begun.wait(600)  # or reading comes after computing
            super().fetch(variables, rows, slots)

    def reading(*args):
        assert threading.current_thread() is not threading.main_thread()
        begun.set()
        return read(*args)

    with open_tier(tmp_path, Waiting()) as tier:
        fill(tier, 1, 2)
        monkeypatch.setattr(os, "preadv", reading)
        fetched(tier, 1, 0, 2)
        assert (tier.n_hits, tier.n_misses) == (2, 1)


def test_an_interrupt_waits_for_what_is_being_read(tmp_path, monkeypatch):
    read, interrupted, done = os.preadv, threading.Event(), []

    class Interrupted(Computing):
        def fetch(self, variables, rows, slots):
            interrupted.set()
            raise KeyboardInterrupt

    def reading(*args):
        assert interrupted.wait(600)
        done.append(args)
        return read(*args)

    with open_tier(tmp_path, Interrupted()) as tier:
        fill(tier, 1)
        monkeypatch.setattr(os, "preadv", reading)
        with pytest.raises(KeyboardInterrupt):
            fetched(tier, 0, 1)
        assert len(done) == 1
        assert (tier.n_hits, tier.n_misses) == (0, 0)


def test_an_interrupted_read_is_an_interrupt(tmp_path, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    with open_tier(tmp_path) as tier:
        fill(tier, 1)
        with monkeypatch.context() as patch:
            patch.setattr(os, "preadv", interrupt)
            with pytest.raises(KeyboardInterrupt):
                fetched(tier, 1)
        assert hits(tier, 1) == [1]


def test_below_a_tier_that_offers_what_it_evicts_rows_are_computed_once(tmp_path):
    below, memory = Computing(), {}
    with open_tier(tmp_path, below) as tier:
        for v in [*range(N), *range(N - 5), *range(N)]:
            row = memory.pop(v, None)
            memory[v] = fetched(tier, v) if row is None else row
            if len(memory) > 5:
                oldest = next(iter(memory))
                tier.offer(np.array([oldest]), memory.pop(oldest), np.array([0]))
        assert below.computed == list(range(N))
        assert (tier.n_misses, tier.n_hits) == (N, N - 5 + N)


def test_memory_is_bounded(tmp_path):
    """4 bytes a variable, 16 a slot, and the queue."""
    with open_tier(tmp_path, n=2000, rows=700, queue_bytes=30_000) as tier:
        assert tier.nbytes <= 4 * 2000 + 16 * 700 + 30_000
        assert tier.nbytes > 24_000  # three rows in the queue
    assert tier.nbytes == 0


# -- a disk that fails, damage: said, and gone on without ------------------------------------------


def test_several_damaged_rows_of_a_batch_are_computed_beside_the_missing(damaged, caplog):
    for slot in (1, 4, 5):
        flip(damaged, row_offset(slot))
    below = Computing()
    with open_tier(damaged.parent, below) as tier:
        fetched(tier, 5, 0, 20, 1, 2, 4, 21)
        assert sorted(below.batches) == [[1], [4], [5], [20, 21]]
        assert (tier.n_hits, tier.n_misses, tier.n_damaged) == (2, 5, 3)
    assert len(caplog.records) == 1


def test_damage_everywhere_is_said_a_few_times_and_then_counted(damaged, caplog):
    with open_tier(damaged.parent) as tier:
        for v in range(10):
            flip(damaged, row_offset(v))
        assert hits(tier, *range(10)) == []
        said = [m for m in caplog.messages if "damaged, so computed again" in m]
        assert len(said) == len(caplog.messages) == disk.MOST_WARNINGS
    assert caplog.messages[-1].endswith("10 rows or slots were damaged in all")


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("at", range(1, 10))
def test_a_write_that_fails_is_the_last_one(tmp_path, monkeypatch, caplog, error, at):
    """Two writes per row, its bytes and its entry; a row of which either fails is not there."""
    written = [v for v in range(4) if 2 * v + 2 < at]
    with open_tier(tmp_path) as tier:
        with monkeypatch.context() as patch:
            patch.setattr(os, "pwrite", failing(os.pwrite, error, at=at))
            fill(tier, 0, 1)
            fill(tier, 2)
            fill(tier, 3)
            assert hits(tier, *range(4)) == written
        fill(tier, 4)
        assert hits(tier, 4) == ([4] if at == 9 else [])
        assert tier.bytes_written == 4 * N * len(written) + (4 * N if at == 9 else 0)
        assert tier.n_damaged == 0
    said = [r for r in caplog.messages if os.strerror(error) + "; no more rows are written" in r]
    assert len(said) == (at < 9)
    with open_tier(tmp_path) as tier:
        assert hits(tier, *range(4)) == written


def test_a_write_that_fails_half_way_over_another_row(tmp_path, monkeypatch):
    write, n_writes = os.pwrite, itertools.count(1)

    def half(fd, data, offset):
        if next(n_writes) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data[: len(data) // 2], offset)

    with open_tier(tmp_path, rows=1) as tier:
        fill(tier, 0)
        monkeypatch.setattr(os, "pwrite", half)
        for v in range(1, N):
            fill(tier, v)
        assert next(n_writes) == 3
        assert hits(tier, *range(N)) == []
        assert tier.n_damaged == 0
    with open_tier(tmp_path, rows=1) as tier:
        assert hits(tier, *range(N)) == []
        assert tier.n_damaged == 1


@pytest.mark.parametrize("at", range(1, 6))
def test_a_read_that_fails_is_the_last_one(damaged, monkeypatch, caplog, at):
    with open_tier(damaged.parent) as tier:
        reads = []
        failing_read = failing(os.preadv, errno.EIO, at=at)
        monkeypatch.setattr(os, "preadv", lambda *args: (reads.append(1), failing_read(*args))[1])
        fetched(tier, 4, 20, 7)
        fetched(tier, 1, 21, 2)
        fetched(tier, 3)
        offer(tier, 22)
        assert len(reads) == at
        assert tier.n_hits == at - 1
        assert (tier.n_hits + tier.n_misses, tier.n_damaged) == (7, 0)
        assert tier.n_held == 0
    assert "Input/output error; kernel rows are computed from now on" in caplog.text
    monkeypatch.undo()
    with open_tier(damaged.parent) as tier:
        assert hits(tier, *range(10)) == list(range(10))


def test_an_error_of_the_tier_below_is_no_error_of_the_disk(tmp_path):
    class Unreadable(Computing):
        def fetch(self, variables, rows, slots):
            raise OSError(errno.EIO, "the data cannot be read")

    with open_tier(tmp_path, Unreadable()) as tier:
        fill(tier, 1)
        with pytest.raises(OSError, match="the data cannot be read"):
            fetched(tier, 1, 2)
        fetched(tier, 1)

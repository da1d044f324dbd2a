"""The disk tier: rows come back bit for bit or are computed, whatever is done to the file."""

import errno
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from contracts import RowTierContract
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from bigsvm.cache import disk
from bigsvm.cache.disk import Decision, DiskRows, RowFile, decide
from bigsvm.cache.resident import ComputedRows
from bigsvm.kernels import RBF
from bigsvm.tiles import Columns, KernelTiles

N = 30
HEADER = TABLE = 4096
KEPT = Decision(1.0, 0.1, 0.1, keep=True, reason="as the test wants it")
NOT_KEPT = KEPT._replace(keep=False)
FINGERPRINT = {"data": "d41d8cd9", "kernel": "rbf(gamma=0.5)"}


def true_rows(variables, n=N):
    """Any bits whatever, NaN among them."""
    words = [np.random.default_rng(int(v)).integers(1 << 32, size=n) for v in variables]
    return np.array(words, np.uint32).reshape(-1, n).view(np.float32)


class Computing:
    """The tier below: notes each batch."""

    def __init__(self, n=N):
        self.n = n
        self.batches = []

    def fetch(self, variables, out):
        assert len(variables) == len(out)
        out[:, : self.n] = true_rows(variables, self.n)
        self.batches.append(variables.tolist())

    @property
    def computed(self):
        return [v for batch in self.batches for v in batch]


def open_tier(folder, below=None, *, n=N, rows=None, **options):
    """A tier with room for `rows` rows, all of them where not said."""
    options = {"fingerprint": FINGERPRINT, "decision": KEPT} | options
    if rows is not None:
        options["capacity_bytes"] = capacity_for(rows, n)
    options.setdefault("capacity_bytes", 1 << 20)
    return DiskRows(Computing(n) if below is None else below, folder, n_variables=n, **options)


def capacity_for(rows, n=N):
    return HEADER + -(-rows // 256) * TABLE + rows * 4 * n


def row_offset(slot, n=N):
    return capacity_for(slot, n) + (TABLE if slot % 256 == 0 else 0)


def fetched(tier, *variables, n=N):
    """Fetch, and see to it that the values are right."""
    out = np.zeros((len(variables), n), np.float32)
    tier.fetch(np.array(variables, np.int64), out)
    np.testing.assert_array_equal(out.view(np.uint32), true_rows(variables, n).view(np.uint32))
    return out


def offer(tier, *variables, n=N):
    tier.offer(np.array(variables, np.int64), true_rows(variables, n))


def fill(tier, *variables, n=N):
    offer(tier, *variables, n=n)
    tier.drain()


def hits(tier, *variables, n=N):
    """Those of `variables` that are not computed; the values of all are right."""
    found = []
    for v in variables:
        before = tier.n_misses
        fetched(tier, v, n=n)
        if tier.n_misses == before:
            found.append(v)
    return found


def the_file(folder):
    (path,) = folder.iterdir()
    return path


def flip(path, offset, bit=0):
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ (1 << bit)]))


class TestEmptyDiskRows(RowTierContract):
    @pytest.fixture
    def decision(self):
        return KEPT

    @pytest.fixture
    def make(self, tmp_path, decision):
        with KernelTiles(RBF(gamma=self.gamma)) as tiles:
            opened = []

            def make(data):
                below = ComputedRows(tiles, data, Columns(tiles, data, sparse_partners=False))
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
        tier.fetch(np.arange(N), rows)
        tier.offer(np.arange(N), rows)
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


def test_what_is_queued_is_written_before_the_file_is_given_up(tmp_path, monkeypatch):
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
def test_what_is_missing_is_computed_in_one_batch(asked, on_disk, width):
    with tempfile.TemporaryDirectory() as folder:
        below = Computing()
        with open_tier(folder, below) as tier:
            fill(tier, *on_disk)
            buffer = np.full((2 * len(asked), width), -3, np.float32)
            tier.fetch(np.array(asked, np.int64), buffer[::2])
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
        def fetch(self, variables, out):
            assert begun.wait(60)  # or reading comes after computing
            super().fetch(variables, out)

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
        def fetch(self, variables, out):
            interrupted.set()
            raise KeyboardInterrupt

    def reading(*args):
        assert interrupted.wait(60)
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
                tier.offer(np.array([oldest]), memory.pop(oldest))
        assert below.computed == list(range(N))
        assert (tier.n_misses, tier.n_hits) == (N, N - 5 + N)


# -- the file: named after what it is valid for, within its budget ---------------------------------


def test_a_reopened_file_goes_on_serving(tmp_path):
    with open_tier(tmp_path) as tier:
        fill(tier, 3, 17)
    with open_tier(tmp_path, fingerprint=dict(reversed(FINGERPRINT.items()))) as again:
        assert hits(again, 2, 3, 17) == [3, 17]
        fill(again, 2)
    with open_tier(tmp_path) as again:
        assert hits(again, 2, 3, 17) == [2, 3, 17]
        assert again.n_damaged == 0


@pytest.mark.parametrize(
    "other", [FINGERPRINT | {"data": "d41d8cd8"}, {"data": "d41d8cd9"}, "d41d8cd9", {}]
)
def test_another_problem_has_another_file(tmp_path, other):
    with open_tier(tmp_path) as tier, open_tier(tmp_path, fingerprint=other) as second:
        fill(tier, 3)
        assert hits(second, 3) == []
        fill(second, 4)
        assert hits(tier, 3, 4) == [3]
        assert len(list(tmp_path.iterdir())) == 2


def test_another_number_of_variables_has_another_file(tmp_path):
    with open_tier(tmp_path) as tier:
        fill(tier, 3)
    with open_tier(tmp_path, n=N - 1) as second:
        assert hits(second, 3, n=N - 1) == []


@pytest.mark.parametrize("with_its_header", [False, True])
def test_a_file_of_another_problem_in_the_place_of_this(tmp_path, with_its_header, caplog):
    """Such as by a wrong copy, or with a header to match: the rows say whose they are."""
    with open_tier(tmp_path / "a", fingerprint="a") as tier:
        fill(tier, *range(N))
    with open_tier(tmp_path / "b", fingerprint="b") as tier:
        fill(tier, 7)
    wrong, right = the_file(tmp_path / "a"), the_file(tmp_path / "b")
    header = right.read_bytes()[:HEADER] if with_its_header else b""
    right.write_bytes(header + wrong.read_bytes()[len(header) :])
    with open_tier(tmp_path / "b", fingerprint="b") as tier:
        assert hits(tier, *range(N)) == []
        assert tier.n_damaged == (N if with_its_header else 0)
    assert "damaged" in caplog.text


@pytest.mark.parametrize("n", [1, 30, 300, 600])
@pytest.mark.parametrize("slots", [1, 2, 255, 256, 257, 299, 512, 513])
def test_the_file_has_its_length_at_once_and_never_exceeds_the_budget(tmp_path, n, slots):
    exact = capacity_for(slots, n)
    for capacity in (exact - 1, exact, exact + 4 * n - 1):
        folder = tmp_path / str(capacity)
        with open_tier(folder, n=n, capacity_bytes=capacity) as tier:
            fitting = min(slots - (capacity < exact), n)
            assert tier.decision.keep == (fitting > 0)
            if fitting:
                size = os.stat(the_file(folder)).st_size
                assert size == capacity_for(fitting, n) <= capacity
                assert os.stat(the_file(folder)).st_blocks * 512 >= size
                offered = range(0, n, max(n // 40, 1))
                fill(tier, *offered, n=n)
                assert tier.n_held <= fitting
                assert os.stat(the_file(folder)).st_size == size
                found = hits(tier, *offered, n=n)
                assert len(found) == min(fitting, len(offered))


def test_a_budget_without_room_for_a_row_is_no_error(tmp_path, caplog):
    with open_tier(tmp_path, capacity_bytes=0) as tier:
        offer(tier, 1)
        assert hits(tier, 1) == []
    assert "0 bytes hold no row of 120 bytes" in tier.decision.reason
    assert tier.decision.reason in caplog.text


@pytest.mark.parametrize("budgets", [(300, 10, 300), (10, 300), (300, 270, 280), (257, 300, 256)])
def test_with_another_budget_the_rows_that_fit_go_on_serving(tmp_path, budgets):
    with open_tier(tmp_path, n=300, rows=budgets[0]) as tier:
        for start in range(0, 300, 60):
            fill(tier, *range(start, start + 60), n=300)
        assert tier.n_held == budgets[0]
    for rows, kept in zip(budgets, itertools.accumulate(budgets, min), strict=True):
        with open_tier(tmp_path, n=300, rows=rows) as tier:
            assert os.stat(the_file(tmp_path)).st_size == capacity_for(rows, 300)
            assert tier.n_held == kept
            assert len(hits(tier, *range(300), n=300)) == kept
            assert tier.n_damaged == 0


def test_a_slot_beyond_four_gigabytes(tmp_path, monkeypatch):
    n = 5_000_000

    def cannot(*args):
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "posix_fallocate", cannot)  # a file of holes
    file = RowFile(tmp_path, "", n_variables=n, capacity_bytes=capacity_for(600, n))
    assert file.n_slots == 600
    row = np.arange(n, dtype=np.float32)
    file.write(599, n - 1, row)
    out = np.zeros(n, np.float32)
    assert file.read(599, n - 1, out)
    np.testing.assert_array_equal(out, row)
    assert not file.read(599, n - 2, out)
    assert file.owners().tolist() == [-1] * 599 + [n - 1]
    file.close(remove=True)


def test_memory_is_bounded(tmp_path):
    """4 bytes a variable, 16 a slot, and the queue."""
    with open_tier(tmp_path, n=2000, rows=700, queue_bytes=30_000) as tier:
        assert tier.nbytes <= 4 * 2000 + 16 * 700 + 30_000
        assert tier.nbytes > 24_000  # three rows in the queue
    assert tier.nbytes == 0


# -- damage: a miss, said and counted --------------------------------------------------------------


@pytest.fixture
def damaged(tmp_path):
    """A file with rows 0 … 9 in slots 0 … 9."""
    with open_tier(tmp_path) as tier:
        fill(tier, *range(10))
    return the_file(tmp_path)


@pytest.mark.parametrize("byte", [0, 1, 60, 4 * N - 1])
@pytest.mark.parametrize("bit", [0, 7])
@pytest.mark.parametrize("slot", [0, 4, 9])
@pytest.mark.parametrize("reopened", [True, False])
def test_a_flipped_bit_in_a_row_is_one_miss(damaged, byte, bit, slot, reopened, caplog):
    tier = open_tier(damaged.parent)
    if reopened:
        tier.close()
    flip(damaged, row_offset(slot) + byte, bit)
    if reopened:
        tier = open_tier(damaged.parent)
    with tier:
        assert hits(tier, *range(10)) == [v for v in range(10) if v != slot]
        assert tier.n_damaged == 1
        assert f"damaged, so computed again: rows {slot}" in caplog.text
        fill(tier, slot)  # takes a slot again
        assert hits(tier, *range(10)) == list(range(10))
        assert tier.n_damaged == 1
    with open_tier(damaged.parent) as tier:
        assert hits(tier, *range(10)) == list(range(10))


@pytest.mark.parametrize("byte", range(16))
@pytest.mark.parametrize("slot", [0, 1])
def test_a_flipped_bit_in_an_entry_is_one_miss(damaged, byte, slot, caplog):
    """Of the variable or of the hash; also where it then names the variable of another slot."""
    flip(damaged, HEADER + 16 * slot + byte, 1)
    with open_tier(damaged.parent) as tier:
        assert set(range(10)) - set(hits(tier, *range(N))) in [{slot}, {slot, slot ^ 2}]
        fill(tier, *range(10))
        assert hits(tier, *range(10)) == list(range(10))
        # 1 in slot 1 becomes 0 in the variable's place: a free slot.
        assert (tier.n_damaged > 0) == ("damaged" in caplog.text) == ((slot, byte) != (1, 0))


@given(offset=st.integers(0, capacity_for(10)), bit=st.integers(0, 7))
@settings(max_examples=100)
def test_wherever_a_bit_is_flipped_values_are_right(offset, bit):
    with tempfile.TemporaryDirectory() as folder:
        with open_tier(folder) as tier:
            fill(tier, *range(10))
        flip(the_file(Path(folder)), offset, bit)
        with open_tier(folder) as tier:
            found = hits(tier, *range(N))
        assert len(found) >= 8 if offset >= HEADER else found == []


@pytest.mark.parametrize("offset", [0, 25, 60, 100, HEADER - 1])
def test_a_damaged_header_begins_the_file_anew(damaged, offset, caplog):
    flip(damaged, offset)
    with open_tier(damaged.parent) as tier:
        assert "header is damaged" in caplog.text
        assert (tier.n_held, tier.n_damaged) == (0, 0)
        fill(tier, 5)
    caplog.clear()
    with open_tier(damaged.parent) as tier:
        assert hits(tier, *range(10)) == [5]
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("length", "left"),
    [
        (0, []),
        (HEADER - 1, []),
        (HEADER, []),
        (HEADER + 8, []),
        (HEADER + TABLE, []),
        (row_offset(0) + 4 * N, [0]),
        (row_offset(3) + 1, [0, 1, 2]),
        (row_offset(9) + 4 * N - 1, list(range(9))),
    ],
)
@pytest.mark.parametrize("reopened", [True, False])
def test_of_a_truncated_file_the_rest_serves(damaged, length, left, reopened, caplog):
    tier = open_tier(damaged.parent)
    if reopened:
        tier.close()
    os.truncate(damaged, length)
    if reopened:
        tier = open_tier(damaged.parent)
    with tier:
        assert hits(tier, *range(10)) == left
        fill(tier, *range(10))
        assert hits(tier, *range(10)) == list(range(10))
    if not reopened or 0 < length < HEADER or length > HEADER + TABLE:
        assert "damaged" in caplog.text


def test_a_file_that_is_removed(damaged):
    with open_tier(damaged.parent) as tier:
        damaged.unlink()
        fill(tier, 12)
        assert hits(tier, 3, 12, 13) == [3, 12]
    with open_tier(damaged.parent) as tier:
        assert hits(tier, 3, 12) == []


def test_a_slot_that_is_free_again_is_used_before_a_row_is_given_up(damaged):
    with damaged.open("r+b") as file:
        for slot in (3, 7):
            file.seek(HEADER + 16 * slot)
            file.write(bytes(16))
    with open_tier(damaged.parent, rows=11) as tier:
        assert hits(tier, *range(10)) == [0, 1, 2, 4, 5, 6, 8, 9]
        fill(tier, 20, 3, 21)
        assert hits(tier, *range(N)) == [0, 1, 2, 3, 4, 5, 6, 8, 9, 20, 21]
        assert tier.n_damaged == 0


def test_rows_that_changed_places_are_misses(damaged):
    content = bytearray(damaged.read_bytes())
    one, two = (slice(row_offset(s), row_offset(s) + 4 * N) for s in (2, 6))
    content[one], content[two] = content[two], content[one]
    damaged.write_bytes(content)
    with open_tier(damaged.parent) as tier:
        assert hits(tier, *range(10)) == [0, 1, 3, 4, 5, 7, 8, 9]
        assert tier.n_damaged == 2


def test_several_damaged_rows_of_a_batch_are_computed_beside_the_missing(damaged, caplog):
    for slot in (1, 4, 5):
        flip(damaged, row_offset(slot))
    below = Computing()
    with open_tier(damaged.parent, below) as tier:
        fetched(tier, 5, 0, 20, 1, 2, 4, 21)
        assert sorted(below.batches) == [[1], [4], [5], [20, 21]]
        assert (tier.n_hits, tier.n_misses, tier.n_damaged) == (2, 5, 3)
    assert len(caplog.records) == 1


# -- a disk that fails: said, and gone on without -------------------------------------------------


def failing(call, error, *, at):
    """Let the call numbered `at` and all later ones fail."""
    count = itertools.count(1)

    def wrapped(*args):
        if next(count) >= at:
            raise OSError(error, os.strerror(error))
        return call(*args)

    return wrapped


def assert_hands_on(tier, caplog):
    """Rows are right and none is kept."""
    with tier:
        assert not tier.decision.keep
        assert tier.decision.reason in caplog.text
        offer(tier, 1, 2)
        tier.drain()
        assert hits(tier, 1, 2) == []
        assert (tier.n_misses, tier.n_held, tier.nbytes) == (2, 0, 0)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG])
def test_a_disk_too_full_for_the_file(tmp_path, monkeypatch, caplog, error):
    monkeypatch.setattr(os, "posix_fallocate", failing(os.posix_fallocate, error, at=1))
    tier = open_tier(tmp_path)
    assert os.strerror(error) in tier.decision.reason
    assert_hands_on(tier, caplog)
    assert list(tmp_path.iterdir()) == []  # what it got of the disk is given back


def test_rows_survive_a_disk_too_full_for_more(tmp_path, monkeypatch, caplog):
    with open_tier(tmp_path, rows=8) as tier:
        fill(tier, *range(8))
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", failing(os.posix_fallocate, errno.ENOSPC, at=1))
        assert_hands_on(open_tier(tmp_path, rows=20), caplog)
    assert os.stat(the_file(tmp_path)).st_size == capacity_for(8)
    with open_tier(tmp_path, rows=20) as tier:
        assert hits(tier, *range(10)) == list(range(8))


@pytest.mark.parametrize("error", [errno.EOPNOTSUPP, errno.EINVAL])
def test_a_file_system_that_cannot_promise_bytes(tmp_path, monkeypatch, error):
    monkeypatch.setattr(os, "posix_fallocate", failing(os.posix_fallocate, error, at=1))
    with open_tier(tmp_path, rows=20) as tier:
        assert os.stat(the_file(tmp_path)).st_size == capacity_for(20)
        fill(tier, 4)
        assert hits(tier, 4) == [4]


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


@pytest.mark.parametrize("at", [1, 2])
def test_a_header_that_cannot_be_written_or_read(tmp_path, monkeypatch, caplog, at):
    call = "pwrite" if at == 1 else "pread"
    monkeypatch.setattr(os, call, failing(getattr(os, call), errno.EIO, at=at))
    assert_hands_on(open_tier(tmp_path), caplog)


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


def test_reads_and_writes_may_be_short(tmp_path, monkeypatch):
    write, read = os.pwrite, os.preadv
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, data[:7], at))
    monkeypatch.setattr(os, "preadv", lambda fd, parts, at: read(fd, [parts[0][:11]], at))
    for _ in range(2):
        with open_tier(tmp_path) as tier:
            fill(tier, 1, 2, 3)
            assert hits(tier, 1, 2, 3) == [1, 2, 3]
            assert tier.n_damaged == 0


def test_a_folder_that_cannot_be_written(caplog):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o555)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)  # for root no folder is read-only
        try:
            tier = open_tier(folder)
        finally:
            os.seteuid(user)
    assert "Permission denied" in tier.decision.reason
    assert_hands_on(tier, caplog)


def test_a_folder_that_is_a_file(tmp_path, caplog):
    (tmp_path / "cache").write_text("")
    assert_hands_on(open_tier(tmp_path / "cache"), caplog)
    assert_hands_on(open_tier(tmp_path / "cache" / "below"), caplog)


CHILD = """
import os, resource, signal, sys
sys.path.insert(0, {tests!r})
import test_disk
from test_disk import *
tier = open_tier({folder!r}, **{options!r})
"""


def run_child(folder, code, **options):
    code = (
        CHILD.format(tests=str(Path(__file__).parent), folder=str(folder), options=options) + code
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("limited", ["before", "after"])
def test_a_limit_that_the_system_sets(tmp_path, limited):
    """Files of at most 10 rows: the file is refused, or the 11th row is."""
    limit = f"resource.setrlimit(resource.RLIMIT_FSIZE, ({row_offset(10) + 50},) * 2)\n"
    if limited == "before":
        code = limit + f"tier = open_tier({str(tmp_path / 'new')!r})\n"
    else:
        code = limit
    code += """
tier.close() if not tier.decision.keep else fill(tier, *range(20))
print(tier.decision.keep, tier.n_held, hits(tier, *range(20)), tier.n_damaged)
tier.close()
"""
    with run_child(tmp_path, code) as child:
        said, _ = child.communicate(timeout=60)
    expected = "False 0 [] 0" if limited == "before" else f"True 10 {list(range(10))} 0"
    assert (child.returncode, said.strip()) == (0, expected)


def test_a_file_in_use_is_left_to_its_owner(tmp_path, caplog):
    with run_child(tmp_path, "fill(tier, 3)\nprint('ready', flush=True)\ninput()") as child:
        assert child.stdout.readline() == "ready\n"
        tier = open_tier(tmp_path)
        assert "in use by another process" in tier.decision.reason
        assert_hands_on(tier, caplog)
        child.kill()
        child.wait(60)
    with open_tier(tmp_path) as tier:
        assert hits(tier, 3, 4) == [3]
        assert_hands_on(open_tier(tmp_path), caplog)  # nor by this process twice


@pytest.mark.parametrize("at", range(1, 9))
def test_killed_in_the_middle_of_a_write(tmp_path, at):
    """Half of a row or of an entry is written, in new slots and, from the fifth on, in old ones."""
    code = f"""
write, count = os.pwrite, itertools.count(1)
def dying(fd, data, offset):
    if next(count) == {at}:
        write(fd, data[: len(data) // 2], offset)
        os.kill(os.getpid(), signal.SIGKILL)
    return write(fd, data, offset)
os.pwrite = dying
for v in itertools.cycle(range(30)):
    fill(tier, v)
"""
    with run_child(tmp_path, code, rows=2) as child:
        child.wait(60)
    assert child.returncode == -signal.SIGKILL
    with open_tier(tmp_path, rows=2) as tier:
        found = hits(tier, *range(N))
        if at <= 4:
            assert found == list(range((at - 1) // 2))
        else:
            assert len(found) >= 1
        for _ in range(2):
            fill(tier, *range(N))
        assert tier.n_held == len(hits(tier, *range(N))) == 2


def test_killed_at_any_time(tmp_path):
    n = 20_000
    code = """
rows = true_rows(range(40), 20_000)
for i in itertools.count():
    v = np.random.default_rng(i).choice(40, 4, replace=False)
    tier.offer(v, rows[v])
    if i == 200:
        print("busy", flush=True)
"""
    for _ in range(3):
        with run_child(tmp_path, code, n=n, rows=30) as child:
            assert child.stdout.readline() == "busy\n"
            child.kill()
            child.wait(60)
        with open_tier(tmp_path, n=n, rows=30) as tier:
            assert len(hits(tier, *range(40), n=n)) + tier.n_damaged >= 20
            assert tier.n_damaged <= 2


# -- a full file: which rows stay ------------------------------------------------------------------


def hit_rate(tier, variables):
    """Ask for rows one after the other, and offer those that had to be computed."""
    before = tier.n_hits
    for v in variables:
        misses = tier.n_misses
        fetched(tier, v, n=300)
        if tier.n_misses > misses:
            fill(tier, v, n=300)
    return (tier.n_hits - before) / len(variables)


@pytest.mark.parametrize(
    ("n_asked", "at_least"), [(100, 1.0), (101, 0.97), (110, 0.88), (150, 0.62), (200, 0.45)]
)
def test_a_budget_a_little_too_small_costs_a_little(tmp_path, n_asked, at_least):
    """Rows in turn, where the least recently used is always the one asked for next."""
    turn = list(range(n_asked))
    with open_tier(tmp_path, n=300, rows=100) as tier:
        hit_rate(tier, turn * 2)
        written = tier.bytes_written
        assert hit_rate(tier, turn * 4) >= at_least
        assert tier.bytes_written - written <= 0.05 * len(turn * 4) * 1200


def test_rows_no_longer_asked_for_make_room(tmp_path):
    with open_tier(tmp_path, n=300, rows=50) as tier:
        assert hit_rate(tier, list(range(50)) * 3) == pytest.approx(2 / 3)
        hit_rate(tier, list(range(100, 150)) * 15)
        assert hit_rate(tier, list(range(100, 150))) > 0.5


def test_rows_that_are_read_stay_before_rows_that_are_not(tmp_path):
    with open_tier(tmp_path, n=300, rows=100) as tier:
        fill(tier, *range(50), n=300)
        fill(tier, *range(50, 100), n=300)
        for v in range(100, 300):
            fetched(tier, *range(50), n=300)
            fill(tier, v, n=300)
        kept = tier._slots >= 0
        assert kept[:50].sum() > 1.2 * kept[50:100].sum()


def test_the_choice_is_that_of_the_seed(tmp_path):
    def held(folder, seed):
        with open_tier(tmp_path / folder, n=300, rows=40, seed=seed) as tier:
            for start in range(0, 300, 50):
                fill(tier, *range(start, start + 50), n=300)
            return np.flatnonzero(tier._slots >= 0).tolist()

    assert held("a", 1) == held("b", 1) != held("c", 2)


# -- whether it is worth it ------------------------------------------------------------------------


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


class Clock:
    """Time passes only where it is said to: per row computed, read, and synced."""

    def __init__(self, monkeypatch, *, compute, read, write=0.25):
        self.now, self.compute, self.first = 0.0, compute, 1000.0
        self.n_synced = 0
        monkeypatch.setattr(disk, "time", SimpleNamespace(perf_counter=lambda: self.now))
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
            def fetch(self, variables, out):
                super().fetch(variables, out)
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


def test_with_one_variable(tmp_path):
    with open_tier(tmp_path, n=1, decision=None) as tier:
        assert tier.decision.compute_seconds > 0
        fill(tier, 0, n=1)
        fetched(tier, 0, n=1)


def test_where_reading_takes_longer_nothing_is_kept(tmp_path, monkeypatch):
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


def test_rows_of_earlier_runs_survive_a_decision_against_them(tmp_path, monkeypatch):
    with open_tier(tmp_path) as tier:
        fill(tier, 1, 2, 3)
    with monkeypatch.context() as patch:
        clock = Clock(patch, compute=2**-10, read=2**-8)
        with open_tier(tmp_path, clock.below(), decision=None) as tier:
            assert hits(tier, 1, 2, 3) == []
    with open_tier(tmp_path) as tier:
        assert set(hits(tier, *range(N))) >= {1, 2, 3}


def test_told_not_to_keep_rows_it_makes_no_file(tmp_path):
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


def test_an_error_of_the_tier_below_is_no_error_of_the_disk(tmp_path):
    class Unreadable(Computing):
        def fetch(self, variables, out):
            raise OSError(errno.EIO, "the data cannot be read")

    with pytest.raises(OSError, match="the data cannot be read"):
        open_tier(tmp_path, Unreadable(), decision=None)
    with open_tier(tmp_path, Unreadable()) as tier:
        fill(tier, 1)
        with pytest.raises(OSError, match="the data cannot be read"):
            fetched(tier, 1, 2)
        fetched(tier, 1)


def test_an_interrupt_while_measuring_gives_the_file_up(tmp_path):
    class Interrupted(Computing):
        def fetch(self, variables, out):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        open_tier(tmp_path, Interrupted(), decision=None)
    with open_tier(tmp_path) as tier:
        assert tier.decision.keep


# -- against a dict --------------------------------------------------------------------------------


class DiskMachine(RuleBasedStateMachine):
    """Rows asked for and offered at random, a file reopened and damaged; beside it, sets.

    `there` are variables whose rows must come from the disk: those offered, where there is room for
    all. `doubtful` are those that the tier may take for intact when they are not.
    """

    @initialize(rows=st.integers(1, 40))
    def begin(self, rows):
        self.folder = tempfile.TemporaryDirectory()
        self.below = Computing()
        self.offered, self.there, self.doubtful = set(), set(), set()
        self.damaged = False
        self.open(rows)

    def open(self, rows):
        self.rows = min(rows, N)
        self.tier = open_tier(self.folder.name, self.below, rows=rows)
        self.n_asked = 0

    @rule(variables=st.lists(st.integers(0, N - 1), unique=True))
    def ask(self, variables):
        before = len(self.below.computed)
        fetched(self.tier, *variables)
        computed = self.below.computed[before:]
        assert len(computed) == len(set(computed))
        assert not self.there & set(computed)
        assert set(variables) - set(computed) <= self.offered
        self.n_asked += len(variables)
        self.doubtful -= set(variables)

    @rule(variables=st.lists(st.integers(0, N - 1), unique=True), drained=st.booleans())
    def offer(self, variables, drained):
        n_dropped = self.tier.n_dropped
        offer(self.tier, *variables)
        if drained:
            self.tier.drain()
        self.offered |= set(variables)
        if self.rows == N and self.tier.n_dropped == n_dropped:
            self.there |= set(variables) - self.doubtful

    @rule(rows=st.integers(1, 40))
    def reopen(self, rows):
        self.tier.close()
        if min(rows, N) < self.rows or self.damaged:
            self.there.clear()
        if self.damaged:
            self.doubtful = set(range(N))
        self.open(rows)
        assert (self.tier.n_damaged == 0) or self.damaged

    @rule(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
    def flip_a_bit(self, place, bit):
        path = self.file_to_damage()
        if path.stat().st_size > 0:
            flip(path, int(place * path.stat().st_size), bit)

    @rule(place=st.floats(0, 1))
    def truncate(self, place):
        path = self.file_to_damage()
        os.truncate(path, int(place * path.stat().st_size))

    def file_to_damage(self):
        self.tier.drain()
        self.there.clear()
        self.doubtful = set(range(N))
        self.damaged = True
        return the_file(Path(self.folder.name))

    @invariant()
    def counts_what_it_does(self):
        if not hasattr(self, "tier"):
            return
        tier = self.tier
        assert tier.n_hits + tier.n_misses == self.n_asked
        assert len(self.there) <= tier.n_held <= self.rows
        assert tier.n_damaged == 0 or self.damaged
        assert the_file(Path(self.folder.name)).stat().st_size <= capacity_for(self.rows)

    def teardown(self):
        if hasattr(self, "tier"):
            self.tier.close()
            self.folder.cleanup()


TestDiskRowsAgainstSets = DiskMachine.TestCase
TestDiskRowsAgainstSets.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)

"""The file of kernel rows: what it is valid for, its length, damage to it, a disk without room."""

import errno
import itertools
import os
import signal
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bigsvm.papers.row_file import RowFile
from papers.disk_rows import (
    FINGERPRINT,
    HEADER,
    TABLE,
    N,
    assert_hands_on,
    capacity_for,
    failing,
    fill,
    flip,
    hits,
    offer,
    open_tier,
    row_offset,
    run_child,
    the_file,
)

# -- named after what it is valid for, within its budget -------------------------------------------


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


@pytest.mark.fault("forged-files")
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_row_with_a_value_that_is_not_finite_is_a_miss(tmp_path, value):
    row = np.ones(N, np.float32)
    file = RowFile(tmp_path, FINGERPRINT, n_variables=N, capacity_bytes=capacity_for(4))
    try:
        file.write(0, 3, row)
        assert file.read(0, 3, np.empty_like(row))
        row[N // 2] = value
        file.write(0, 3, row)
        assert not file.read(0, 3, np.empty_like(row))
    finally:
        file.close()


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


# -- damage: a miss, said and counted --------------------------------------------------------------


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
def test_flipped_bits_anywhere_never_give_wrong_values(offset, bit):
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
def test_rows_before_the_end_of_a_truncated_file_are_served(
    damaged, length, left, reopened, caplog
):
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


# -- a disk without room, and other reasons not to have the file -----------------------------------


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


@pytest.mark.parametrize("at", [1, 2])
def test_a_header_that_cannot_be_written_or_read(tmp_path, monkeypatch, caplog, at):
    call = "pwrite" if at == 1 else "pread"
    monkeypatch.setattr(os, call, failing(getattr(os, call), errno.EIO, at=at))
    assert_hands_on(open_tier(tmp_path), caplog)


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
        said, _ = child.communicate(timeout=600)
    expected = "False 0 [] 0" if limited == "before" else f"True 10 {list(range(10))} 0"
    assert (child.returncode, said.strip()) == (0, expected)


def test_a_file_in_use_is_left_to_its_owner(tmp_path, caplog):
    with run_child(tmp_path, "fill(tier, 3)\nprint('ready', flush=True)\ninput()") as child:
        assert child.stdout.readline() == "ready\n"
        tier = open_tier(tmp_path)
        assert "in use by another process" in tier.decision.reason
        assert_hands_on(tier, caplog)
        child.kill()
        child.wait(600)
    with open_tier(tmp_path) as tier:
        assert hits(tier, 3, 4) == [3]
        assert_hands_on(open_tier(tmp_path), caplog)  # nor by this process twice


# -- killed ----------------------------------------------------------------------------------------


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
        child.wait(600)
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
    tier.offer(v, rows, v)
    if i == 200:
        tier.drain()  # what is held is not all written: some of it waits
        assert tier.n_held >= 25
    if i == 220:
        print("busy", flush=True)
"""
    for _ in range(3):
        with run_child(tmp_path, code, n=n, rows=30) as child:
            assert child.stdout.readline() == "busy\n"
            child.kill()
            child.wait(600)
        with open_tier(tmp_path, n=n, rows=30) as tier:
            assert len(hits(tier, *range(40), n=n)) + tier.n_damaged >= 20
            assert tier.n_damaged <= 2


@pytest.mark.fault("forged-files")
def test_a_forged_row_that_is_not_finite_is_computed_again_and_the_file_named(tmp_path, caplog):
    with open_tier(tmp_path) as tier:
        fill(tier, 3)
    with open_tier(tmp_path) as tier:
        file, slot = tier._file, int(tier._slots[3])
        file.write(slot, 3, np.full(N, np.nan, np.float32))
        assert hits(tier, 3) == []
        assert tier.n_damaged == 1
        assert f"{file.path}: damaged, so computed again: rows 3" in caplog.text

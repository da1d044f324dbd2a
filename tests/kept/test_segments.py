"""Segments come back as they were written, or not at all, whatever is done to the file."""

import errno
import os

import numpy as np
import pytest
from papers.disk_rows import flip, the_file

from bigsvm.kept import segments
from bigsvm.kept.segments import Segments

pytestmark = pytest.mark.usefixtures("short")
N = 150
FINGERPRINT = {"data": "d41d8cd9", "kernel": "own(gamma=0.5)"}


def opened(folder, **changed):
    given = {"n_rows": N, "capacity_bytes": 1 << 20, "table_bytes": 1 << 20}
    fingerprint = changed.pop("fingerprint", FINGERPRINT)
    return Segments(folder, fingerprint, **(given | changed))


def values_of(row, segment):
    return np.random.default_rng([row, segment]).random(segments.WIDTH).astype(np.float32)


def written(folder, rows=(3, 140, 7), **changed):
    """Write the first two segments of some rows, and close."""
    file = opened(folder, **changed)
    for row in rows:
        for segment in (0, 1):
            file.write(row, segment, values_of(row, segment))
    return file


def found(file, rows=(3, 140, 7)):
    """Rows and segments that are read; others must say that they are not there."""
    seen = []
    for segment in range(file.per_row):
        held = file.held(np.array(rows), segment)
        for row, is_held in zip(rows, held, strict=True):
            out = np.empty(segments.WIDTH, np.float32)
            if file.read(row, segment, out):
                assert is_held
                np.testing.assert_array_equal(out, values_of(row, segment))
                seen.append((row, segment))
    return seen


ALL = [(3, 0), (140, 0), (7, 0), (3, 1), (140, 1), (7, 1)]


def test_segments_come_back_in_this_process_and_in_the_next(tmp_path):
    file = written(tmp_path)
    assert not file.has_earlier
    assert found(file) == ALL
    file.close()
    again = opened(tmp_path)
    assert again.has_earlier
    assert found(again) == ALL
    again.write(5, 2, values_of(5, 2))
    again.close()
    assert found(opened(tmp_path), rows=(5,)) == [(5, 2)]


@pytest.mark.parametrize("other", [{"kernel": "own(gamma=0.6)"}, {"data": "other"}])
def test_values_of_other_data_or_another_kernel_are_not_found(tmp_path, other):
    written(tmp_path).close()
    assert found(opened(tmp_path, fingerprint=FINGERPRINT | other)) == []


def test_another_number_of_rows_is_another_file(tmp_path):
    written(tmp_path).close()
    assert found(opened(tmp_path, n_rows=N + 1, fingerprint=FINGERPRINT | {"rows": "151"})) == []


def test_each_flipped_bit_costs_one_segment_at_most(tmp_path):
    written(tmp_path).close()
    path = the_file(tmp_path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for offset in [*range(4096, 4096 + 160, 7), *rng.integers(8192, len(whole), 40).tolist()]:
        flip(path, offset, bit=int(rng.integers(8)))
        file = opened(tmp_path)
        assert len(found(file)) >= len(ALL) - 2  # a damaged owner may cost its row another one
        file.close()
        path.write_bytes(whole)


@pytest.mark.parametrize("size", [0, 100, 4096, 5000, 8192 + 300])
def test_a_file_cut_off_is_not_trusted(tmp_path, size):
    written(tmp_path).close()
    os.truncate(the_file(tmp_path), size)
    file = opened(tmp_path)
    assert len(found(file)) < len(ALL)
    file.write(3, 0, values_of(3, 0))
    assert (3, 0) in found(file)


def test_a_value_without_its_entry_is_not_there(tmp_path, monkeypatch):
    """As after a kill between the two writes."""
    file, write = opened(tmp_path), os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda *a: write(*a) if len(a[1]) != 16 else 16)
    file.write(3, 0, values_of(3, 0))
    monkeypatch.undo()
    file._file.close()
    monkeypatch.setattr(segments, "WIDTH", 64)
    assert found(opened(tmp_path)) == []


def test_no_more_rows_than_there_is_room_for(tmp_path):
    file = written(tmp_path, rows=range(20), capacity_bytes=8192 + 10 * 3 * 256 + 100)
    assert file.n_rows_kept == 10
    assert not file.has_room
    assert len(found(file, rows=range(20))) == 20
    assert the_file(tmp_path).stat().st_size <= 8192 + 10 * 3 * 256 + 100


def test_memory_for_the_table_limits_rows_too(tmp_path):
    assert opened(tmp_path, table_bytes=5 * 3 * segments.TABLE_BYTES).n_rows_kept == 5


@pytest.mark.parametrize("few", [{"capacity_bytes": 8500}, {"table_bytes": 40}])
def test_too_little_room_for_a_row_is_an_error(tmp_path, few):
    with pytest.raises(OSError, match="bytes"):
        opened(tmp_path, **few)
    assert list(tmp_path.iterdir()) == []


def test_two_runs_do_not_share_a_file(tmp_path):
    first = written(tmp_path)
    with pytest.raises(BlockingIOError, match="in use"):
        opened(tmp_path)
    assert found(first) == ALL


def failing(*_):
    raise OSError(errno.EIO, "the disk fails")


def test_a_disk_that_fails_is_not_written_any_more(tmp_path, monkeypatch, caplog):
    file = written(tmp_path)
    monkeypatch.setattr(os, "pwrite", failing)
    for row in (8, 9):
        file.write(row, 0, values_of(row, 0))
    assert not file.has_room
    assert found(file) == ALL
    assert caplog.text.count("no more rows are written") == 1


def test_a_disk_that_fails_is_not_read_any_more(tmp_path, monkeypatch, caplog):
    file = written(tmp_path)
    monkeypatch.setattr(os, "preadv", failing)
    assert found(file) == []
    assert caplog.text.count("kernel rows are computed from now on") == 1


def test_a_file_without_rows_is_removed(tmp_path):
    opened(tmp_path).close()
    assert list(tmp_path.iterdir()) == []
    written(tmp_path).close(remove=True)
    assert list(tmp_path.iterdir()) == []

"""The folder a store is made in: whole or not there, whatever ends the conversion."""

import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from stores import assert_holds, folder_digest

from bigsvm.data.convert import convert
from bigsvm.data.store import open_store
from bigsvm.errors import ParseError, StoreError


def test_existing_store_is_kept_until_the_new_one_is_whole(text, tmp_path):
    target = tmp_path / "s.zarr"
    convert(text(), target)
    before = folder_digest(target)
    with pytest.raises(StoreError, match=r"s\.zarr: already exists"):
        convert(text(), target)
    bad = tmp_path / "bad"
    bad.write_text("1 1:1\noops\n")
    with pytest.raises(ParseError):
        convert(bad, target, overwrite=True)
    assert folder_digest(target) == before
    convert(text(n_rows=5), target, overwrite=True)
    assert open_store(target).rows.n_rows == 5
    assert sorted(os.listdir(tmp_path)) == ["bad", "s.zarr", "x.libsvm"]


FOREIGN = '{"zarr_format": 3, "node_type": "group", "attributes": {"made_by": "bigsvm"}}'


@pytest.mark.parametrize("name", [None, "notes.txt", "zarr.json"])
@pytest.mark.parametrize("content", [FOREIGN, '{"bigsvm"'])
def test_what_is_no_store_is_never_overwritten(text, tmp_path, name, content):
    target = tmp_path / "folder"
    target.mkdir()
    if name:
        (target / name).write_text(content)
    with pytest.raises(StoreError, match="not overwritten; remove it first"):
        convert(text(), target, overwrite=True)
    assert target.exists()


def test_parent_that_is_not_there(text, tmp_path):
    with pytest.raises(StoreError, match="no such directory"):
        convert(text(), tmp_path / "a" / "s.zarr")


def test_live_conversion_is_not_disturbed(text, tmp_path):
    path = text()
    started, finish = threading.Event(), threading.Event()

    def wait(_):
        started.set()
        assert finish.wait(30)

    one = threading.Thread(
        target=convert, args=(path, tmp_path / "s.zarr"), kwargs={"on_progress": wait}
    )
    one.start()
    assert started.wait(30)
    with pytest.raises(StoreError, match=rf"process {os.getpid()} is making it"):
        convert(path, tmp_path / "s.zarr")
    finish.set()
    one.join()
    assert_holds(open_store(tmp_path / "s.zarr"), path, 40)


CONVERT = """
import sys
from bigsvm.data.convert import convert
report = lambda event: print(event, flush=True)
convert(sys.argv[1], sys.argv[2], memory="40MB", overwrite=True, on_progress=report)
"""


@pytest.mark.parametrize("n_events", [1, pytest.param(None, marks=pytest.mark.slow)])
def test_killed_conversion_is_forgotten(text, tmp_path, n_events):
    path = text(n_rows=20_000)
    target = tmp_path / "s.zarr"
    expected = convert(path, tmp_path / "expected.zarr", memory="40MB").attributes
    rng = random.Random(0)
    for _ in range(1 if n_events else 12):
        command = [sys.executable, "-c", CONVERT, str(path), str(target)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(n_events or 1):
            process.stdout.readline()
        time.sleep(0 if n_events else rng.uniform(0, 0.5))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        # Whole or not there.
        if target.exists():
            assert open_store(target).attributes == expected
        store = convert(path, target, overwrite=True, memory="40MB")
        assert store.attributes == expected
        assert folder_digest(target) == folder_digest(tmp_path / "expected.zarr")
        assert sorted(os.listdir(tmp_path)) == ["expected.zarr", "s.zarr", "x.libsvm"]


def test_killed_between_the_two_renames(text, tmp_path):
    path = text()
    target = tmp_path / "s.zarr"
    before = convert(path, target).attributes
    left = tmp_path / ".s.zarr.partial-1-abc"
    left.mkdir()
    (left / "lock").touch()
    target.rename(left / "old")
    with pytest.raises(StoreError, match="already exists"):
        convert(path, target)
    assert open_store(target).attributes == before
    assert not left.exists()


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_stopped_between_the_two_renames(text, tmp_path, monkeypatch, error):
    target = tmp_path / "s.zarr"
    before = convert(text(), target).attributes
    rename = Path.rename

    def stop(self, to):
        if self.name == "store":
            raise error
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", stop)
    with pytest.raises((KeyboardInterrupt, StoreError)):
        convert(text(n_rows=5), target, overwrite=True)
    assert open_store(target).attributes == before
    assert sorted(os.listdir(tmp_path)) == ["s.zarr", "x.libsvm"]


def test_store_that_cannot_be_put_back_is_not_removed(text, tmp_path, monkeypatch):
    target = tmp_path / "s.zarr"
    before = convert(text(), target).attributes
    rename = Path.rename

    def fail(self, to):
        if self.name in ("store", "old"):
            raise OSError(5, "Input/output error")
        return rename(self, to)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fail)
        with pytest.raises(StoreError, match=r"whole in .*old: move it back"):
            convert(text(n_rows=5), target, overwrite=True)
        # Nor by the next one, while it does not work either.
        with pytest.raises(StoreError, match="Input/output error"):
            convert(text(n_rows=5), target, overwrite=True)
    with pytest.raises(StoreError, match="already exists"):
        convert(text(n_rows=5), target)
    assert open_store(target).attributes == before
    assert sorted(os.listdir(tmp_path)) == ["s.zarr", "x.libsvm"]


def test_stopped_as_soon_as_the_work_folder_is_made(text, tmp_path, monkeypatch):
    make = Path.mkdir

    def stop(self, **options):
        make(self, **options)
        raise KeyboardInterrupt

    path = text()
    monkeypatch.setattr(Path, "mkdir", stop)
    with pytest.raises(KeyboardInterrupt):
        convert(path, tmp_path / "s.zarr")
    assert os.listdir(tmp_path) == ["x.libsvm"]


def test_leftovers_of_a_name_with_brackets_are_removed(text, tmp_path):
    left = tmp_path / ".data[v2].zarr.partial-1-abc"
    left.mkdir()
    (left / "lock").touch()
    convert(text(), tmp_path / "data[v2].zarr")
    assert not left.exists()


def test_everything_is_flushed_before_the_store_gets_its_name(text, tmp_path, monkeypatch):
    target = tmp_path / "s.zarr"
    flushed = []

    def note(descriptor):
        flushed.append((os.fstat(descriptor).st_ino, target.exists()))

    monkeypatch.setattr(os, "fsync", note)
    convert(text(), target)
    before = {inode for inode, named in flushed if not named}
    assert before == {p.stat().st_ino for p in (target, *target.rglob("*"))}
    assert flushed[-1] == (tmp_path.stat().st_ino, True)


def test_full_disk(text, tmp_path):
    path = text(n_rows=5000, density=1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (1 << 14, 1 << 18, 1 << 19):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
        try:
            with pytest.raises(
                StoreError, match=r"s\.zarr: cannot be written \(File too large\); free"
            ):
                convert(path, tmp_path / "s.zarr", dtype="float64", layout="sparse")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert os.listdir(tmp_path) == ["x.libsvm"]

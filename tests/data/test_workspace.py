"""The folder a store is made in: whole or not there, whatever ends the conversion."""

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from command_line import answer, run_here
from killing import killed_at_every_step
from support import HANGS
from support.stores import assert_holds, folder_digest

from bigsvm.cli.inputs import temporary_folder
from bigsvm.conversion.from_text import convert
from bigsvm.data import schema, workspace
from bigsvm.data.store import open_store
from bigsvm.data.workspace import Workspace, put_back
from bigsvm.errors import ParseError, StoreError
from bigsvm.folders import lock_left, make_folder, remove_folder


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
def test_other_folders_are_not_overwritten(text, tmp_path, name, content):
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
        assert finish.wait(HANGS)

    one = threading.Thread(
        target=convert, args=(path, tmp_path / "s.zarr"), kwargs={"on_progress": wait}
    )
    one.start()
    assert started.wait(HANGS)
    with pytest.raises(StoreError, match=rf"process {os.getpid()} is making it"):
        convert(path, tmp_path / "s.zarr")
    finish.set()
    one.join()
    assert_holds(open_store(tmp_path / "s.zarr"), path, 40)


CONVERT = """
import sys
from bigsvm.conversion.from_text import convert
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


def make_small_store(path, name):
    """Make what looks like a store, of two files in two folders."""
    (path / "y").mkdir(parents=True)
    (path / "y" / "zarr.json").write_text(name)
    attributes = {schema.KEY: {"sources": [name]}}
    (path / "zarr.json").write_text(json.dumps({"node_type": "group", "attributes": attributes}))
    return folder_digest(path)


def replace(target, name):
    """Make a store, or replace another one."""
    with Workspace(target, overwrite=True) as work:
        make_small_store(work.store, name)
        work.commit()


@pytest.mark.fault("leftovers")
@pytest.mark.parametrize("in_one_step", [True, False])
def test_a_store_stands_under_its_name_whenever_its_replacement_is_killed(
    tmp_path, monkeypatch, in_one_step
):
    folder = tmp_path / "folder"
    digests = {make_small_store(tmp_path / name, name) for name in ("old", "new")}
    make_small_store(folder / "s.zarr", "old")
    if in_one_step:
        in_one_step = workspace.exchange(tmp_path / "old", tmp_path / "new")
    else:
        monkeypatch.setattr(workspace, "exchange", lambda one, other: False)
    seen, n_put_back = set(), 0
    steps = killed_at_every_step(
        lambda: replace(folder / "s.zarr", "new"), also=[(workspace, "exchange")]
    )
    for _ in steps:
        n_put_back += not (folder / "s.zarr").exists()
        put_back(folder / "s.zarr")
        seen.add(folder_digest(folder / "s.zarr"))
        replace(folder / "s.zarr", "old")
        assert os.listdir(folder) == ["s.zarr"]
    assert seen == digests
    assert n_put_back == (not in_one_step)


@pytest.mark.fault("leftovers")
def test_a_new_store_is_whole_or_not_there_whenever_its_making_is_killed(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    whole = make_small_store(tmp_path / "new", "new")
    for _ in killed_at_every_step(lambda: replace(folder / "s.zarr", "new")):
        put_back(folder / "s.zarr")
        if (folder / "s.zarr").exists():
            assert folder_digest(folder / "s.zarr") == whole
        replace(folder / "s.zarr", "new")
        assert os.listdir(folder) == ["s.zarr"]
        shutil.rmtree(folder / "s.zarr")


READERS = {
    "open_store": open_store,
    "info": lambda path: answer("info", path),
    "train": lambda path: run_here("train", path, path.parent / "model", "--quiet"),
}


@pytest.mark.fault("leftovers")
@pytest.mark.parametrize("reader", READERS)
def test_a_reader_puts_a_store_back_whose_replacement_was_killed(text, tmp_path, reader):
    left = tmp_path / ".s.zarr.partial-1-0123456789abcdef"
    left.mkdir()
    (left / "lock").touch()
    convert(text(n_rows=50), left / "old")
    READERS[reader](tmp_path / "s.zarr")
    assert open_store(tmp_path / "s.zarr").rows.n_rows == 50
    assert not left.exists()


@pytest.mark.fault("leftovers")
def test_a_store_that_is_being_replaced_is_not_put_back(text, tmp_path):
    folder, lock = make_folder(tmp_path, ".s.zarr.partial-")
    convert(text(n_rows=5), folder / "old")
    with pytest.raises(StoreError, match="no such folder"):
        open_store(tmp_path / "s.zarr")
    assert (folder / "old").exists()
    os.close(lock)
    assert open_store(tmp_path / "s.zarr").rows.n_rows == 5


@pytest.mark.fault("leftovers")
def test_nothing_is_left_of_a_folder_whose_removal_is_killed(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()

    def work():
        with temporary_folder(folder) as made:
            (made / "data.zarr" / "y").mkdir(parents=True)
            (made / "data.zarr" / "y" / "0").write_bytes(b"0")

    n_left = 0
    for _ in killed_at_every_step(work):
        n_left += len(os.listdir(folder))
        work()
        assert os.listdir(folder) == []
    assert n_left > 5


@pytest.mark.fault("leftovers")
def test_a_folder_that_is_swept_before_it_is_locked_gets_another_name(tmp_path, monkeypatch):
    make = Path.mkdir
    swept = []

    def sweep(self, **options):
        make(self, **options)
        if len(swept) < 3:
            swept.append(self)
            lock = lock_left(self, "work-")
            remove_folder(self)
            os.close(lock)

    monkeypatch.setattr(Path, "mkdir", sweep)
    folder, lock = make_folder(tmp_path, "work-")
    assert os.listdir(tmp_path) == [folder.name]
    assert folder not in swept
    assert lock_left(folder, "work-") is None
    os.close(lock)


@pytest.mark.fault("links-and-pipes")
@pytest.mark.parametrize("place", ["folder", "lock", "old"])
def test_links_that_look_like_leftovers_are_not_followed(text, tmp_path, place):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("mine")
    left = tmp_path / ".s.zarr.partial-1-0123456789abcdef"
    if place == "folder":
        left.symlink_to(elsewhere)
    else:
        left.mkdir()
        (left / place).symlink_to(elsewhere / "new" if place == "lock" else elsewhere)
    path = text(n_rows=5)
    if place == "lock":
        with pytest.raises(StoreError, match="cannot be written"):
            convert(path, tmp_path / "s.zarr")
    else:
        assert convert(path, tmp_path / "s.zarr").path == tmp_path / "s.zarr"
    assert os.listdir(elsewhere) == ["file"]
    assert (elsewhere / "file").read_text() == "mine"


def test_a_store_that_cannot_be_put_back_is_named(text, tmp_path, monkeypatch):
    target = tmp_path / "s.zarr"
    left = tmp_path / ".s.zarr.partial-1-abc"
    left.mkdir()
    (left / "lock").touch()
    convert(text(n_rows=5), left / "old")

    def fail(self, to):
        raise OSError(30, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fail)
        with pytest.raises(
            StoreError, match=r"put back \(Read-only.* whole in .*old: move it back"
        ):
            open_store(target)
    assert open_store(target).rows.n_rows == 5
    assert not left.exists()


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
    monkeypatch.setattr(workspace, "exchange", lambda one, other: False)

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
    monkeypatch.setattr(workspace, "exchange", lambda one, other: False)

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

"""Stores made on object storage: whole or not there, whatever ends the process that makes them."""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time

import fsspec
import numpy as np
import pytest
from command_line import answer, error_of, run_here
from support import HANGS
from support.stores import everything, make_matrix

from bigsvm.conversion.from_arrays import write_store
from bigsvm.conversion.from_text import convert
from bigsvm.conversion.scaling import scale_store
from bigsvm.data import far_workspace
from bigsvm.data.objects import Objects
from bigsvm.data.place import Place
from bigsvm.data.store import open_store
from bigsvm.errors import ParameterError, StoreError

_numbers = itertools.count()


@pytest.fixture
def url(faulty):
    """URL that no other test uses, behind the proxy."""
    return f"s3://bucket/made-{next(_numbers)}.zarr"


class Memory:
    """Reads and writes objects in the memory of this process, as an `S3Server` does its own."""

    def __init__(self):
        self._fs = fsspec.filesystem("memory")

    def names(self, url):
        below = self._fs._strip_protocol(url) + "/"
        return sorted(name[len(below) :] for name in self._fs.find(below))

    def read(self, url):
        return self._fs.cat_file(url)

    def write(self, url, data):
        self._fs.pipe_file(url, data)

    def delete(self, url):
        self._fs.rm_file(url)


@pytest.fixture
def memory():
    return Memory()


@pytest.fixture
def near():
    """URL in the memory of this process."""
    return f"memory://made-{next(_numbers)}.zarr"


@pytest.fixture
def arrays(small_chunks):
    """Of three shards, and few chunks of the others: a request to the server takes 10 ms."""
    rng = np.random.default_rng(2)
    return make_matrix(200, density=0.6), rng.integers(0, 3, 200), rng.random(200)


def files_of(path):
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def objects_of(server, url):
    return {name: server.read(f"{url}/{name}") for name in server.names(url)}


def writes(faulty):
    """Paths of the objects that were written."""
    return [path for method, path in faulty.requests if method == "PUT"]


def test_objects_are_the_files_of_a_folder(url, s3_server, arrays, tmp_path, faulty):
    local = write_store(tmp_path / "s.zarr", *arrays)
    far = write_store(url, *arrays)
    assert str(far) == url
    # Each is written once, and the root last.
    written = [path.rpartition(".zarr/")[2] for path in writes(faulty)]
    assert (written[0], written[-1]) == (".making", "zarr.json")
    assert sorted(written) == sorted([".making", *files_of(local.path)])
    assert objects_of(s3_server, url) == files_of(local.path)
    for ours, theirs in zip(everything(far), everything(local), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_text_and_scaled_rows_too(near, memory, text, tmp_path, small_chunks):
    path = text(n_rows=300)
    made = convert(path, near, cache_dir=tmp_path / "cache")
    assert objects_of(memory, near) == files_of(convert(path, tmp_path / "s.zarr").path)
    assert os.listdir(tmp_path / "cache") == []
    scaled = scale_store(made, f"{near}-scaled", method="maxabs")
    local = scale_store(tmp_path / "s.zarr", tmp_path / "scaled.zarr", method="maxabs")
    assert objects_of(memory, f"{near}-scaled") == files_of(local.path)
    assert scaled.scaler is not None


def test_commands_take_urls(near, memory, text, tmp_path):
    path = text(n_rows=30)
    made = answer("convert", path, near, "--cache-dir", tmp_path / "cache")
    assert made["path"] == near
    run_here("convert", path, tmp_path / "s.zarr")
    assert objects_of(memory, near) == files_of(tmp_path / "s.zarr")
    answer("scale", near, f"{near}-scaled", "--method", "maxabs", "--cache-dir", tmp_path / "cache")
    run_here("scale", tmp_path / "s.zarr", tmp_path / "scaled.zarr", "--method", "maxabs")
    assert objects_of(memory, f"{near}-scaled") == files_of(tmp_path / "scaled.zarr")
    assert "give another name" in error_of("convert", path, near, "--overwrite")
    assert "already exists" in error_of("convert", path, near)
    assert "leave it out" in error_of(
        "convert", path, tmp_path / "t.zarr", "--cache-dir", tmp_path / "cache"
    )
    assert "is a store; leave it out" in error_of(
        "scale", near, tmp_path / "t.zarr", "--cache-dir", tmp_path / "cache"
    )


def test_storage_without_conditions_and_without_loops(near, arrays, tmp_path):
    far = write_store(near, *arrays)
    for ours, theirs in zip(
        everything(far), everything(write_store(tmp_path / "s.zarr", *arrays)), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(StoreError, match="already exists"):
        write_store(near, *arrays)


def test_is_no_store_before_the_root_is_there(near, arrays):
    seen = []

    def look(progress):
        with pytest.raises(StoreError, match="is being made") as caught:
            open_store(near)
        seen.append(str(caught.value))

    write_store(near, *arrays, on_progress=look)
    assert seen
    assert open_store(near).rows.n_rows == 200


class Stopped(BaseException):
    """Stands for Ctrl-C."""


def stop(progress):
    raise Stopped


def test_an_interrupted_process_leaves_nothing(near, memory, arrays, tmp_path):
    def stop_late(progress):
        if progress.done == progress.total:
            raise Stopped

    for hook in (stop, stop_late):
        with pytest.raises(Stopped):
            write_store(near, *arrays, on_progress=hook, cache_dir=tmp_path)
        assert memory.names(near) == []
        assert os.listdir(tmp_path) == []
    assert write_store(near, *arrays).rows.n_rows == 200


def test_requests_are_tried_again(url, faulty, arrays, s3_server, tmp_path):
    faulty.refused, faulty.methods = 0.3, ("GET", "HEAD", "PUT", "DELETE", "POST")
    write_store(url, *arrays)
    faulty.refused = 0
    assert objects_of(s3_server, url) == files_of(write_store(tmp_path / "s.zarr", *arrays).path)


def test_a_server_that_is_gone_ends_it(url, faulty, s3_server, arrays, monkeypatch):
    monkeypatch.setenv("BIGSVM_STORE_TIMEOUT", "0.2")
    monkeypatch.setattr(far_workspace, "_CLEARING_SECONDS", 0.1)

    def go(progress):
        faulty.stop()

    try:
        with pytest.raises(StoreError, match="cannot be reached"):
            write_store(url, *arrays, on_progress=go)
    finally:
        faulty.start()
    assert "zarr.json" not in s3_server.names(url)


@pytest.mark.parametrize(
    ("where", "options", "message"),
    [
        ("s3://bucket/a.zarr", {"overwrite": True}, "cannot be replaced, as readers"),
        ("https://host/a.zarr", {}, "nothing is written by https://"),
        ("a.zarr", {"cache_dir": "x"}, "cache_dir is for stores at URLs"),
        ("a.zarr", {"storage_options": {"anon": True}}, "storage_options are for URLs"),
        ("s3://bucket/a.zarr", {"cache_dir": "s3://bucket"}, "cache_dir is 's3://bucket'; it must"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(tmp_path, monkeypatch, where, options, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParameterError, match=message):
        write_store(where, np.eye(4), [0, 1, 0, 1], **options)
    assert os.listdir(tmp_path) == []


def test_a_lock_that_cannot_be_removed_is_a_warning(near, monkeypatch, caplog):
    def fail(self, names):
        if list(names):
            raise StoreError("refused")

    monkeypatch.setattr(Objects, "delete", fail)
    made = write_store(near, np.eye(4), [0, 1, 0, 1])
    assert made.rows.n_rows == 4
    assert "the object .making is left, and of no use (refused)" in caplog.text
    monkeypatch.undo()
    with pytest.raises(StoreError, match="already exists"):
        write_store(near, np.eye(4), [0, 1, 0, 1])


def test_a_bucket_that_is_missing_is_said(s3_server):
    with pytest.raises(StoreError, match="no bucket or container 'nowhere'"):
        write_store("s3://nowhere/a.zarr", np.eye(4), [0, 1, 0, 1])


def test_nothing_that_is_there_is_changed(near, memory, arrays):
    write_store(near, *arrays)
    before = objects_of(memory, near)
    with pytest.raises(StoreError, match="already exists"):
        write_store(near, np.eye(4), [0, 1, 0, 1])
    assert objects_of(memory, near) == before
    memory.write(f"{near}-other/X/c/0/0", b"foreign")
    with pytest.raises(StoreError, match="holds other objects"):
        write_store(f"{near}-other", np.eye(4), [0, 1, 0, 1])
    assert objects_of(memory, f"{near}-other") == {"X/c/0/0": b"foreign"}
    with pytest.raises(ParameterError, match="lies in the store"):
        scale_store(near, f"{near}/X")


# -- several processes -------------------------------------------------------------------------


def lock_of(seconds_ago, **others):
    record = {"process": 1, "host": "other", "id": "x", "time": time.time() - seconds_ago}
    return json.dumps({**record, **others}).encode()


def test_a_second_writer_is_refused(near, memory, arrays):
    def second(progress):
        with pytest.raises(StoreError, match=f"process {os.getpid()} on .* is making it"):
            write_store(near, *arrays)

    write_store(near, *arrays, on_progress=second)
    assert ".making" not in memory.names(near)


def test_what_a_dead_process_has_left_is_removed(near, memory, arrays, tmp_path):
    memory.write(f"{near}/.making", lock_of(far_workspace.LEFT_AFTER / 2))
    memory.write(f"{near}/X/c/9/0", b"left")
    with pytest.raises(StoreError, match="process 1 on other is making it"):
        write_store(near, *arrays)
    memory.write(f"{near}/.making", lock_of(far_workspace.LEFT_AFTER + 30))
    memory.write(f"{near}/notes", b"not of a store")
    with pytest.raises(StoreError, match=r"holds other objects \(notes\)"):
        write_store(near, *arrays)
    memory.delete(f"{near}/notes")
    memory.write(f"{near}/.making", lock_of(far_workspace.LEFT_AFTER + 30))
    write_store(near, *arrays)
    assert objects_of(memory, near) == files_of(write_store(tmp_path / "s.zarr", *arrays).path)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"time": 3}', b'{"time": "x"}'])
def test_a_foreign_lock_is_refused(near, memory, data):
    memory.write(f"{near}/.making", data)
    with pytest.raises(StoreError, match="that bigsvm did not write"):
        write_store(near, np.eye(4), [0, 1, 0, 1])
    assert memory.names(near) == [".making"]


def test_the_lock_is_renewed(near, memory, monkeypatch, arrays):
    monkeypatch.setattr(far_workspace, "RENEWED_EVERY", 0.05)
    times = []

    def look(progress):
        while not times or times[-1] == times[0]:
            times.append(json.loads(memory.read(f"{near}/.making"))["time"])
            time.sleep(0.05)

    write_store(near, *arrays, on_progress=look)
    assert times[-1] > times[0]


def test_a_process_that_lost_its_lock_writes_no_root(near, memory, arrays):
    def lose(progress):
        memory.write(f"{near}/.making", lock_of(0))
        memory.write(f"{near}/X/c/9/0", b"of the other process")

    with pytest.raises(StoreError, match=r"\.making is no longer that of this process"):
        write_store(near, *arrays, on_progress=lose)
    names = memory.names(near)
    assert "zarr.json" not in names
    assert {".making", "X/c/9/0"} <= set(names)


def test_of_two_that_end_together_one_makes_the_store(url, monkeypatch):
    """As if a lock had been taken over in the moment of the last look at it."""
    monkeypatch.setattr(far_workspace._Lock, "check", lambda *a, **k: None)
    monkeypatch.setattr(far_workspace._Lock, "take", lambda self: False)
    monkeypatch.setattr(far_workspace.FarWorkspace, "_check_names", lambda *a, **k: None)
    barrier, results = threading.Barrier(2), []
    X, y = np.eye(40), np.arange(40) % 2

    def meet(progress):
        barrier.wait(HANGS)

    def make(seed):
        try:
            results.append(write_store(url, X, y, seed=seed, on_progress=meet))
        except StoreError as error:
            results.append(error)

    threads = [threading.Thread(target=make, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum("already exists" in str(result) for result in results) == 1


KILLED = """
import os, signal, sys
import numpy as np
from bigsvm.data import objects
from bigsvm.conversion.from_arrays import write_store

url, left = sys.argv[1], int(sys.argv[2])
pipe = objects.Objects.put, objects.Objects._pipe
def counted(function):
    def call(*arguments, **options):
        global left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return function(*arguments, **options)
    return call
objects.Objects.put, objects.Objects._pipe = map(counted, pipe)
write_store(url, np.eye(40), np.arange(40) % 2, cache_dir=sys.argv[3])
"""


@pytest.mark.fault("leftovers")
@pytest.mark.parametrize("n_writes", [pytest.param(6, marks=pytest.mark.slow), 16])
def test_after_a_kill_there_is_no_store_and_the_next_one_makes_it(
    url, s3_server, tmp_path, n_writes
):
    """In the middle, with objects on their way, and before the root, which is the 17th."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, url, str(n_writes), tmp_path / "cache"], timeout=600
    )
    assert done.returncode == -signal.SIGKILL
    names = s3_server.names(url)
    assert n_writes - 4 < len(names) <= n_writes
    assert "zarr.json" not in names
    with pytest.raises(StoreError, match="is being made, or the process that made it was stopped"):
        open_store(url)
    with pytest.raises(StoreError, match="If it was killed, the place is free at"):
        write_store(url, np.eye(30), np.arange(30) % 2)
    s3_server.write(f"{url}/.making", lock_of(far_workspace.LEFT_AFTER + 1))
    store = write_store(url, np.eye(30), np.arange(30) % 2, cache_dir=tmp_path / "cache")
    store.verify()
    assert store.rows.n_rows == 30
    assert len(s3_server.names(url)) == 16
    assert os.listdir(tmp_path / "cache") == []


def test_a_lock_is_renewed_several_times_before_it_is_nobodys():
    assert far_workspace.LEFT_AFTER > 5 * far_workspace.RENEWED_EVERY


# -- objects -----------------------------------------------------------------------------------


def test_objects_of_storage_that_knows_no_conditions(url, s3_server):
    """A server that says so is asked for the object instead."""
    made = Objects(Place.of(url))
    real = made.place.storage.answer

    def answered(fs, method, *args, **kwargs):
        if kwargs.pop("mode", None) == "create":
            error = OSError("a header is not implemented")
            error.code = 501
            raise error
        return real(fs, method, *args, **kwargs)

    made.place.storage.answer = answered
    assert made.create("a", b"1")
    assert made.create("a", b"1")
    assert not made.create("a", b"2")
    assert s3_server.read(f"{url}/a") == b"1"


def test_an_object_is_made_once(url, s3_server):
    made = Objects(Place.of(url))
    assert made.create("a", b"1")
    assert made.create("a", b"1")  # as if the first answer had been lost
    assert not made.create("a", b"2")
    assert s3_server.read(f"{url}/a") == b"1"


def test_a_large_file_is_sent_in_parts(url, s3_server, tmp_path, monkeypatch):
    monkeypatch.setattr("bigsvm.data.objects._MOST_OF_A_PUT", 99)
    (tmp_path / "file").write_bytes(bytes(100))
    Objects(Place.of(url)).put("a", tmp_path / "file")
    assert s3_server.read(f"{url}/a") == bytes(100)


def test_a_file_is_not_whole_in_memory(url, s3_server, tmp_path):
    (tmp_path / "file").write_bytes(bytes(24 << 20))
    program = (
        "import resource, sys, pathlib\n"
        "from bigsvm.data.objects import Objects\n"
        "from bigsvm.data.place import Place\n"
        "made = Objects(Place.of(sys.argv[1]))\n"
        "made.write('before', b'')\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak()\n"
        "made.put('a', pathlib.Path(sys.argv[2]))\n"
        "print(peak() - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, url, tmp_path / "file"],
        capture_output=True, text=True, timeout=600, check=True,
    )  # fmt: skip
    assert int(done.stdout) < 8 << 10  # KiB
    assert s3_server.names(url) == ["a", "before"]


def test_what_is_sent_takes_its_time(url, s3_server, faulty, monkeypatch, tmp_path):
    monkeypatch.setenv("BIGSVM_STORE_TIMEOUT", "0.01")
    monkeypatch.setattr("bigsvm.data.storage._SLOWEST", 100.0)
    (tmp_path / "file").write_bytes(bytes(1000))
    faulty.methods, faulty.refused_first = ("PUT",), 2
    Objects(Place.of(url)).put("a", tmp_path / "file")
    assert s3_server.names(url) == ["a"]

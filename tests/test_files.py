"""Files that are whole or absent."""

import fcntl
import os
import signal
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from command_line import REPOSITORY, two_clouds
from killing import killed_at_every_step

import bigsvm
from bigsvm.errors import DataError, ModelError, ParameterError
from bigsvm.files import (
    begin_sync,
    exchange,
    local_path,
    open_regular,
    parse_json,
    replace_synced,
)
from bigsvm.report.predictions import write_values


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_interrupted_replacement_leaves_nothing(tmp_path, monkeypatch, error):
    path = tmp_path / "model"
    replace_synced(path, b"old")

    def stop(*_):
        raise error

    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(error):
        replace_synced(path, b"new")
    assert os.listdir(tmp_path) == ["model"]
    assert path.read_bytes() == b"old"


@pytest.mark.parametrize("system", ["has it", "refuses", "has it not"])
def test_beginning_to_sync_needs_nothing_of_the_system(tmp_path, monkeypatch, system):
    def refuse(*_):
        raise OSError

    if system == "refuses":
        monkeypatch.setattr(os, "posix_fadvise", refuse, raising=False)
    elif system == "has it not":
        monkeypatch.delattr(os, "posix_fadvise", raising=False)
    with (tmp_path / "x").open("ab") as file:
        file.write(b"some bytes")
        begin_sync(file, 0, 10)
        assert (tmp_path / "x").read_bytes() == b"some bytes"


@pytest.fixture(scope="module")
def model():
    return bigsvm.SVC().fit(*two_clouds(50)).model_


def write_predictions(model, path):
    write_values(path, np.arange(3.0), np.arange(3))


WRITERS = {
    "file": (lambda model, path: replace_synced(path, b"new"), OSError),
    "model": (lambda model, path: model.save(path), ModelError),
    "predictions": (write_predictions, DataError),
}


class TestExistingFiles:
    """A pipe stands for all that is no file: a device that root renames a file to is gone."""

    @pytest.mark.parametrize("writer", ["file", "model"])
    def test_directories_and_pipes_are_not_replaced(self, writer, model, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "link").symlink_to(tmp_path / "pipe")
        write, error = WRITERS[writer]
        for name in ("pipe", "link"):
            with pytest.raises(error, match="Not a file, so it is not replaced"):
                write(model, tmp_path / name)
        assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
        assert (tmp_path / "link").is_symlink()
        assert sorted(os.listdir(tmp_path)) == ["link", "pipe"]

    @pytest.mark.parametrize("writer", WRITERS)
    @pytest.mark.parametrize("exists", [True, False])
    def test_is_replaced_behind_a_link(self, writer, model, tmp_path, exists):
        (tmp_path / "far").mkdir()
        target = tmp_path / "far" / "target"
        if exists:
            target.write_bytes(b"old")
        (tmp_path / "link").symlink_to(target)
        WRITERS[writer][0](model, tmp_path / "link")
        assert (tmp_path / "link").is_symlink()
        assert target.read_bytes() not in (b"", b"old")
        assert os.listdir(tmp_path / "far") == ["target"]


KILLED = """
import sys, time
from pathlib import Path
from bigsvm.files import part_of
with part_of(Path(sys.argv[1])) as part:
    part.write_bytes(b"half of it")
    print("here", flush=True)
    time.sleep(600)
"""


class TestLeftovers:
    """Of a process that was killed while it wrote."""

    @pytest.fixture
    def writing(self, tmp_path):
        command = [sys.executable, "-c", KILLED, str(tmp_path / "model")]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
        assert process.stdout.readline() == "here\n"
        yield process
        process.kill()
        process.communicate()

    @pytest.mark.parametrize("writer", WRITERS)
    def test_the_next_that_writes_the_same_file_removes_it(self, writing, writer, model, tmp_path):
        WRITERS[writer][0](model, tmp_path / "other")
        WRITERS[writer][0](model, tmp_path / "model")
        assert len(os.listdir(tmp_path)) == 3  # it is at work
        writing.send_signal(signal.SIGKILL)
        writing.wait()
        WRITERS[writer][0](model, tmp_path / "other")
        assert len(os.listdir(tmp_path)) == 3  # it is another file's
        WRITERS[writer][0](model, tmp_path / "model")
        assert sorted(os.listdir(tmp_path)) == ["model", "other"]

    def test_similar_names_are_not_removed(self, tmp_path):
        """Not even where it looks alike: a file, a link, another name."""
        (tmp_path / ".model.abcdefg1.part").touch()
        for name in ("own", ".model.abc.part", ".model.abcdefgh", ".model.range.abcdefgh.part"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "file").touch()
        (tmp_path / ".model.abcdefg2.part").symlink_to(tmp_path / "own")
        before = sorted(tmp_path.rglob("*"))
        replace_synced(tmp_path / "model", b"new")
        assert sorted(tmp_path.rglob("*")) == sorted([*before, tmp_path / "model"])

    @pytest.mark.fault("leftovers")
    def test_killed_process_leaves_no_parts_behind(self, tmp_path):
        file = tmp_path / "model"
        file.write_bytes(b"old")
        seen = set()
        for _ in killed_at_every_step(lambda: replace_synced(file, b"new")):
            seen.add(file.read_bytes())
            replace_synced(file, b"old")
            assert os.listdir(tmp_path) == ["model"]
        assert seen == {b"old", b"new"}

    @pytest.mark.fault("leftovers")
    @pytest.mark.parametrize("locked", [True, False])
    def test_a_folder_that_another_process_removes_gets_another_name(
        self, tmp_path, monkeypatch, locked
    ):
        """It was just made, and is not locked yet."""
        make, made = tempfile.mkdtemp, []

        def sweep(**options):
            made.append(Path(make(**options)))
            if len(made) == 1 and locked:
                lock = os.open(made[0], os.O_RDONLY)
                fcntl.flock(lock, fcntl.LOCK_EX)
            elif len(made) == 1:
                made[0].rmdir()
            return str(made[-1])

        monkeypatch.setattr(tempfile, "mkdtemp", sweep)
        replace_synced(tmp_path / "model", b"new")
        assert len(made) == 2
        assert (tmp_path / "model").read_bytes() == b"new"


@pytest.mark.fault("leftovers")
def test_two_names_are_exchanged_in_one_step(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    if exchange(tmp_path / "one", tmp_path / "other"):
        assert os.listdir(tmp_path / "one") == ["other"]
        assert os.listdir(tmp_path / "other") == ["one"]
        with pytest.raises(FileNotFoundError):
            exchange(tmp_path / "one", tmp_path / "nothing")


@pytest.mark.fault("local-paths")
@pytest.mark.parametrize(
    "url", ["s3://bucket/run", "s3:/bucket", "file:///tmp/x", "gs://a", "C+h:/a"]
)
def test_a_url_is_no_local_path(url):
    with pytest.raises(ParameterError, match=r"checkpoint is '.*'; it must be a path on this"):
        local_path(url, "checkpoint")
    assert local_path(f"./{url}", "checkpoint") == Path(f"./{url}").absolute()
    # It is no URL to the next one that asks either.
    assert local_path(local_path(f"./{url}", "x"), "x") == Path(f"./{url}").absolute()


def test_names_with_a_colon_are_local_paths():
    for name in ("a:b", "run-12:30", "/tmp/s3:/x", Path("x")):
        assert local_path(name, "cache_dir") == Path(name)


@pytest.mark.fault("links-and-pipes")
@pytest.mark.parametrize("follow", [True, False])
def test_only_regular_files_are_opened(tmp_path, follow):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(b"content")
    with open_regular(tmp_path / "file", follow_links=follow) as file:
        assert file.read() == b"content"
    for path in (tmp_path / "pipe", Path("/dev/null"), tmp_path):
        with pytest.raises(OSError, match=r"Not a regular file"):
            open_regular(path, follow_links=follow)


@pytest.mark.fault("links-and-pipes")
def test_links_are_followed_only_where_asked(tmp_path):
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with open_regular(tmp_path / "link", follow_links=True) as file:
        assert file.read() == b"content"
    with pytest.raises(OSError, match="symbolic links"):
        open_regular(tmp_path / "link", follow_links=False)


def test_json_that_is_nested_too_deeply_is_a_value_error():
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json(b"[" * 100_000)


@pytest.mark.fault("surroundings")
@pytest.mark.parametrize("length", [200, 201, 255])
def test_a_name_as_long_as_the_system_allows_is_taken(tmp_path, length, model):
    name = "m" * length
    model.save(tmp_path / name)
    replace_synced(tmp_path / name, b"again")
    store = bigsvm.write_store(tmp_path / ("s" * length), *two_clouds(50))
    assert bigsvm.open_store(store.path).rows.n_rows == 50
    assert sorted(map(len, os.listdir(tmp_path))) == [length, length]

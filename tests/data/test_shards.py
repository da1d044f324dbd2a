"""Shards that hold more than their metadata say: they are refused before memory is taken."""

import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import warnings
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
import zstandard
from command_line import REPOSITORY, error_of
from support.stores import edit_attributes

from bigsvm import SVC
from bigsvm.conversion.from_arrays import write_store
from bigsvm.data import schema
from bigsvm.data.shards import Claims
from bigsvm.data.store import open_store
from bigsvm.errors import DataCorruptionError, MemoryBudgetError, StoreError

PEAK = """
import sys
from bigsvm.report.text import peak_rss_bytes
import numpy, scipy.sparse, xxhash, zstandard, google_crc32c
import bigsvm.data.store
from bigsvm.errors import StoreError
bigsvm.data.store.open_store(sys.argv[1]).verify()
before = peak_rss_bytes()
try:
    bigsvm.data.store.open_store(sys.argv[2]).labels()
except StoreError as error:
    print(peak_rss_bytes() - before, error)
"""


def frame_of_zeros(n_bytes, *, says):
    """Zstd frame of zeros whose header says another size, or none."""
    piece = bytes(1 << 20)
    packer = zstandard.ZstdCompressor(level=1, write_content_size=says is not None)
    packer = packer.compressobj(size=n_bytes)
    parts = [packer.compress(piece) for _ in range(n_bytes // len(piece))]
    frame = b"".join([*parts, packer.flush()])
    if says is None:
        return frame
    # Magic number, descriptor, window, then the size in four bytes.
    assert frame[4] >> 6 == 2
    return frame[:6] + struct.pack("<I", says) + frame[10:]


def write_shard(path, frame, *, offset=0, size=None):
    """Write a shard of one chunk."""
    index = struct.pack("<QQ", offset, len(frame) if size is None else size)
    path.write_bytes(frame + index + struct.pack("<I", google_crc32c.value(index)))


def forge_rows(path, n_rows):
    """Make a store of ones and labels 0 say that it has more rows, all chunks being the same."""
    for name, value in (("X", 1), ("y", 0), ("row", 0)):
        rows = schema.CHUNK_BYTES * 2 // 8
        chunk = np.full(rows, value, np.int64 if name == "row" else np.float64)
        frame = zstandard.ZstdCompressor(write_checksum=True).compress(chunk.tobytes())
        file = path / name / "zarr.json"
        content = json.loads(file.read_text())
        rest = content["shape"][1:]
        content["shape"] = [n_rows, *rest]
        content["chunk_grid"]["configuration"]["chunk_shape"] = [n_rows, *rest]
        content["codecs"][0]["configuration"]["chunk_shape"] = [rows, *rest]
        file.write_text(json.dumps(content))
        [shard] = (file for file in (path / name / "c").rglob("*") if file.is_file())
        index = struct.pack("<QQ", 0, len(frame)) * (n_rows // rows)
        shard.write_bytes(frame + index + struct.pack("<I", google_crc32c.value(index)))
        record = json.loads((path / "zarr.json").read_text())["attributes"][schema.KEY]
        hashes = [schema.hash_values(chunk)] * (n_rows // rows)
        edit_attributes(path, manifest={**record["manifest"], name: hashes})
    edit_attributes(path, n_rows=n_rows, n_nonzero=n_rows, label_counts=[[0, n_rows]])


@pytest.fixture
def store(tmp_path):
    """A store of 4096 rows, each of whose vectors is a shard of one chunk."""
    return write_store(tmp_path / "store", np.ones((4096, 1)), np.zeros(4096))


@pytest.fixture
def labels(store):
    """The file of its labels."""
    return store.path / "y" / "c" / "0"


@pytest.fixture
def peak_of(store, tmp_path):
    """Give the bytes that reading labels takes beyond a good store, and why they are refused."""
    good = shutil.copytree(store.path, tmp_path / "good")

    def peak_of(path):
        ended = subprocess.run(
            [sys.executable, "-c", PEAK, str(good), str(path)],
            capture_output=True,
            text=True,
            check=True,
            timeout=600,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        )
        grown, message = ended.stdout.split(" ", 1)
        return int(grown), message

    return peak_of


@pytest.mark.fault("bombs")
@pytest.mark.parametrize("says", [1 << 30, None, 4096 * 8])
def test_a_chunk_of_a_gigabyte(store, labels, peak_of, says):
    frame = frame_of_zeros(1 << 30, says=says)
    assert len(frame) < 1 << 16
    write_shard(labels, frame)
    peak, message = peak_of(store.path)
    assert "array 'y': chunk 0 cannot be read: " in message
    assert peak < 4 << 20


@pytest.mark.fault("bombs")
def test_a_chunk_that_is_a_hole(store, labels, peak_of):
    labels.write_bytes(b"")
    os.truncate(labels, 8 << 30)
    index = struct.pack("<QQ", 0, 8 << 30)
    with labels.open("ab") as file:
        file.write(index + struct.pack("<I", google_crc32c.value(index)))
    peak, message = peak_of(store.path)
    assert "its shard has 8589934592 bytes for it at 0, which cannot be" in message
    assert peak < 4 << 20


@pytest.mark.fault("bombs")
@pytest.mark.parametrize("name", ["y/c/0", "y/zarr.json", "zarr.json"])
def test_a_file_that_ends_in_a_hole(store, peak_of, name):
    os.truncate(store.path / name, 8 << 30)
    peak, message = peak_of(store.path)
    assert "the index of its shard is damaged" in message or "which no store needs" in message
    assert peak < 4 << 20


@pytest.mark.fault("bombs")
@pytest.mark.parametrize("items", ["[]," * (8 << 20), "1," * (16 << 20), '"a":{},' * (4 << 20)])
def test_metadata_of_millions_of_items(store, peak_of, items):
    file = store.path / "zarr.json"
    opening, closing = ("{", '"b":1}') if items[0] == '"' else ("[", "1]")
    text = file.read_text().replace('"sources": []', f'"sources": {opening}{items}{closing}')
    file.write_text(text)
    peak, message = peak_of(store.path)
    assert "has more items than a store needs; convert the data again" in message
    assert peak < len(text) + (8 << 20)


@pytest.mark.fault("bombs")
def test_rows_whose_labels_alone_exceed_the_memory(store, tmp_path):
    """Two billion labels in 4096 chunks that are the same few bytes, with all hashes right."""
    forge_rows(store.path, 1 << 31)
    opened = open_store(store.path)
    assert opened.labels((1 << 31) - 1, 1 << 31) == [0]
    message = error_of("train", store.path, tmp_path / "model", "--memory", "50MB")
    assert "memory is 50 MB, too little for 2147483648 rows" in message
    with pytest.raises(MemoryBudgetError, match="too little for 2147483648 rows"):
        SVC(memory="50MB").fit(store.path)


@pytest.mark.fault("bombs")
def test_rows_whose_predictions_exceed_the_memory(store, tmp_path):
    X = np.random.default_rng(0).random((40, 1))
    SVC().fit(X, np.arange(40) % 2).model_.save(tmp_path / "model")
    forge_rows(store.path, 1 << 31)
    message = error_of("predict", store.path, tmp_path / "model", "--memory", "500MB")
    assert "predictions of 2 147 483 648 rows" in message


@pytest.mark.parametrize(
    ("offset", "size", "message"),
    [
        (0, 2**64 - 1, "which cannot be"),
        (2**64 - 2, 1, "which cannot be"),
        (1 << 40, 10, "which cannot be"),
        (2**64 - 1, 2**64 - 1, "its shard does not have it"),
        (1, None, "which cannot be"),
        (0, 3, "error when determining content size"),
        (0, 0, "error when determining content size"),
    ],
)
def test_an_index_that_points_elsewhere(store, labels, offset, size, message):
    frame = labels.read_bytes()[:-20]
    write_shard(labels, frame, offset=offset, size=size)
    with pytest.raises(
        DataCorruptionError, match=f"array 'y': chunk 0 cannot be read: .*{message}"
    ):
        open_store(store.path).labels()
    write_shard(labels, frame)
    assert open_store(store.path).labels().tolist() == [0] * 4096


def test_a_shard_shorter_than_its_index(store, labels):
    labels.write_bytes(b"short")
    with pytest.raises(DataCorruptionError, match="its shard is shorter than an index"):
        open_store(store.path).labels()


def put_pipe(path):
    os.mkfifo(path)


def put_socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def put_link(path):
    path.with_name("elsewhere").write_bytes(b"")
    path.symlink_to(path.with_name("elsewhere"))


KINDS = {"pipe": put_pipe, "socket": put_socket, "link": put_link}


@pytest.mark.fault("links-and-pipes")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["y/c/0", "y/zarr.json", "X/c/0/more", "zarr.json"])
def test_directories_pipes_and_sockets_are_refused_when_opening(store, monkeypatch, kind, name):
    place = store.path / name
    place.unlink(missing_ok=True)
    # Names of sockets are short.
    monkeypatch.chdir(place.parent)
    KINDS[kind](Path(place.name))
    with pytest.raises(StoreError, match=r"is a |cannot be read") as caught:
        open_store(store.path)
    assert "\n" not in str(caught.value)


@pytest.mark.fault("links-and-pipes")
@pytest.mark.parametrize("kind", KINDS)
def test_directories_pipes_and_sockets_are_refused_when_reading(store, labels, monkeypatch, kind):
    labels.unlink()
    monkeypatch.chdir(labels.parent)
    KINDS[kind](Path(labels.name))
    with pytest.raises(StoreError, match="array 'y': chunk 0 cannot be read"):
        store.labels()


@pytest.mark.fault("links-and-pipes")
def test_a_link_to_a_store_is_followed(store, tmp_path):
    (tmp_path / "link").symlink_to(store.path)
    assert open_store(tmp_path / "link").labels().tolist() == [0] * 4096


def test_children_of_a_process_that_has_read_can_read(tmp_path):
    """The threads that decode are not there after a fork."""
    store = write_store(tmp_path / "s", np.ones((1 << 18, 4), np.float32), np.zeros(1 << 18))
    store.rows.read(0, 1 << 18)
    with warnings.catch_warnings():
        # Python 3.12 warns of forks beside threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        os._exit(int(store.rows.read(0, 1 << 18).sum() != 1 << 20))
    assert os.waitpid(pid, 0)[1] == 0


def test_a_thread_may_forget_the_index_while_another_fetches(tmp_path, monkeypatch):
    """A damaged chunk from far has the indices read again, whatever other threads do."""
    store = write_store(tmp_path / "s.zarr", np.ones((4096, 1)), np.zeros(4096))
    array = store.rows._arrays["X"]
    claims = Claims(array._chunks._place, array.spec)
    parts = claims._place.parts

    def parts_after_forgetting(*arguments):
        claims.forget()
        return parts(*arguments)

    expected = list(claims.fetched(0, 1))
    monkeypatch.setattr(claims._place, "parts", parts_after_forgetting)
    assert list(claims.fetched(0, 1)) == expected

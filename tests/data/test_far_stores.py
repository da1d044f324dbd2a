"""Stores on object storage hold what a folder holds, and faults of a network are no damage."""

import itertools
import multiprocessing
import pickle
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import fsspec
import numpy as np
import pytest
from row_contracts import RowSourceContract
from support import HANGS
from support.stores import everything, make_chunks_small, make_matrix

from bigsvm.conversion.from_arrays import write_store
from bigsvm.data import arrays, schema, storage
from bigsvm.data.place import Place
from bigsvm.data.sources import as_row_source
from bigsvm.data.store import open_store
from bigsvm.errors import DataCorruptionError, StoreError, UnreachableError

_numbers = itertools.count()
one_layout = pytest.mark.parametrize("local", ["sparse"], indirect=True)


@pytest.fixture
def upload(s3_server, tmp_path, small_chunks, monkeypatch):
    """Write a store of some arrays, and put it under a URL that no other test uses."""
    # A request takes the server 10 ms.
    monkeypatch.setattr(schema, "CHUNK_BYTES", 1 << 14)
    monkeypatch.setattr(schema, "VECTOR_CHUNK_BYTES", 1 << 13)

    def upload(matrix, *others, **options):
        name = f"far-{next(_numbers)}.zarr"
        write_store(tmp_path / name, matrix, *others, **options)
        return s3_server.upload(tmp_path / name, f"s3://bucket/{name}")

    return upload


class FarContract(RowSourceContract):
    @pytest.fixture
    def make(self, upload):
        layout = "sparse" if self.sparse else "dense"

        def make(matrix):
            return as_row_source(
                upload(matrix, np.zeros(len(matrix)), shuffle=False, layout=layout)
            )

        return make


class TestDenseFarRows(FarContract):
    sparse = False


@pytest.mark.slow
class TestSparseFarRows(FarContract):
    sparse = True


@pytest.fixture(scope="module", params=["dense", "sparse"])
def local(request, tmp_path_factory):
    """A store in a folder."""
    matrix, rng = make_matrix(400, density=0.6), np.random.default_rng(1)
    path = tmp_path_factory.mktemp("local") / "s.zarr"
    with pytest.MonkeyPatch.context() as patch:
        make_chunks_small(patch)
        return write_store(
            path, matrix, rng.integers(0, 3, 400), rng.random(400), layout=request.param
        )


@pytest.fixture
def url(faulty, s3_server, local):
    """URL of a copy of it behind the proxy."""
    url = f"s3://bucket/far-{next(_numbers)}.zarr"
    return s3_server.upload(local.path, url)


def test_holds_what_a_folder_holds(url, local):
    store = open_store(url)
    for ours, theirs in zip(everything(store), everything(local), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    store.verify()
    assert str(store) == url
    with pytest.raises(StoreError, match="has no path, as it is at a URL"):
        _ = store.path


def test_is_opened_by_one_request_for_each_file_of_metadata(url, faulty, local):
    open_store(url)
    assert [method for method, _ in faulty.requests] == ["GET"] * (
        1 + len(local.attributes.manifest)
    )


def test_waits_for_two_answers_to_open(url, faulty, local):
    """The first says what the others are, which are asked for together."""
    with faulty.answering_together(len(local.attributes.manifest), after=1):
        open_store(url)


def test_an_index_is_asked_for_once(url, faulty, local):
    store = open_store(url)
    del faulty.requests[:]
    for _ in range(3):
        store.rows.read(0, 400)
    manifest = local.attributes.manifest
    names = ["X"] if "X" in manifest else ["X/data", "X/indices", "X/indptr"]
    chunks = sum(len(manifest[name]) for name in names)
    shards = len({path for _, path in faulty.requests})
    assert 1 < shards < chunks
    # All chunks of a shard come together. Of sparse rows, indptr is read the first time only.
    once = len(manifest.get("X/indptr", ()))
    assert len(faulty.requests) <= 3 * (shards + len(names)) + shards < 3 * chunks - 2 * once


def test_rows_from_all_over_are_asked_for_together(neighbours, faulty):
    """Four chunks that are no neighbours are requested before the first answer comes."""
    rows, X = neighbours
    chosen = np.array([1950, 300, 650, 1200])
    with faulty.answering_together(4):
        np.testing.assert_array_equal(rows.take(chosen), X[chosen])


def test_four_chunks_come_in_a_request(neighbours, faulty):
    """Those of a pass, and those of chosen rows; rows of one chunk come alone."""
    rows, X = neighbours
    for chosen, n_requests in (
        (range(2048), 4), (range(0, 2048, 100), 4), (range(512, 1024, 100), 1), ([200, 700], 2),
        (range(100, 900), 2), ([1300, 1299, 1299], 1), ([2047, 1800, 0], 2), ([], 0),
    ):  # fmt: skip
        indices = np.array(chosen, np.int64)
        del faulty.requests[:]
        np.testing.assert_array_equal(rows.take(indices), X[indices])
        assert len(faulty.requests) == n_requests
    for start, stop, n_requests in ((0, 2048, 4), (0, 512, 1), (256, 768, 2), (128, 256, 1)):
        del faulty.requests[:]
        np.testing.assert_array_equal(rows.read(start, stop), X[start:stop])
        assert len(faulty.requests) == n_requests


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_shards_at_a_url_are_smaller(tmp_path, small_chunks, monkeypatch, layout):
    """They hold the same chunks; a copy of a store with larger ones is read as it is."""
    monkeypatch.setattr(arrays, "SHARD_BYTES", 1 << 20)
    monkeypatch.setattr(arrays, "FAR_SHARD_BYTES", 1 << 14)
    matrix = make_matrix(2000)
    near, far = (
        write_store(where, matrix, np.arange(2000) % 2, layout=layout)
        for where in (tmp_path / "s.zarr", f"memory://far-{next(_numbers)}.zarr")
    )
    assert far.attributes == near.attributes
    copy = f"memory://far-{next(_numbers)}.zarr"
    fsspec.filesystem("memory").put(f"{near.path}/", copy, recursive=True)
    for store in (far, open_store(copy)):
        for ours, theirs in zip(everything(store), everything(near), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    below = Place.of(str(far)).url.partition("://")[2]
    name = first_array(near)
    objects = fsspec.filesystem("memory").find(f"/{below}/{name}/c")
    files = [p for p in (near.path / name / "c").rglob("*") if p.is_file()]
    assert len(files) == 1
    n_chunks = len(near.attributes.manifest[name])
    chunk = near.rows._arrays[name].spec.chunk_bytes
    assert len(objects) == -(-n_chunks // ((1 << 14) // chunk)) > 1


def _read(frozen, answers):
    store, rows = pickle.loads(frozen)
    answers.put((store.labels(), rows.read(3, 9)))


@pytest.mark.slow
@pytest.mark.parametrize("local", ["dense"], indirect=True)
def test_goes_to_other_processes(url, local):
    store = open_store(url)
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=_read, args=(pickle.dumps((store, store.rows)), answers))
    process.start()
    labels, rows = answers.get(timeout=600)
    process.join()
    np.testing.assert_array_equal(labels, local.labels())
    np.testing.assert_array_equal(rows, local.rows.read(3, 9))


@one_layout
def test_a_store_that_was_replaced_is_not_opened_again(url, s3_server, upload):
    frozen = pickle.dumps(open_store(url).rows)
    other = upload(make_matrix(50), np.zeros(50))
    for name in s3_server.names(other):
        s3_server.write(f"{url}/{name}", s3_server.read(f"{other}/{name}"))
    with pytest.raises(StoreError, match="was replaced by a store with other content"):
        pickle.loads(frozen)


def test_a_url_without_a_store_is_named(s3_server):
    s3_server.write("s3://bucket/other.zarr/zarr.json", b'{"node_type": "array"}')
    with pytest.raises(StoreError, match="no store there"):
        open_store("s3://bucket/nothing.zarr")
    with pytest.raises(StoreError, match=r"a Zarr array, .* zarr.open_array\('s3://bucket/other"):
        open_store("s3://bucket/other.zarr")


# -- web servers ---------------------------------------------------------------------------------


def test_a_web_server_is_read_from(url, local, faulty, monkeypatch):
    address = f"{faulty.endpoint}/{url.removeprefix('s3://')}"
    store = open_store(address)
    for ours, theirs in zip(everything(store), everything(local), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    with pytest.raises(StoreError, match="no store there"):
        open_store(f"{address}-of-nobody")
    monkeypatch.setenv(storage.TIMEOUT_VARIABLE, "0.2")
    for share, status, kind in ((1, 403, StoreError), (1, 503, UnreachableError)):
        faulty.refused, faulty.status = share, status
        with pytest.raises(kind) as caught:
            store.verify()
        assert type(caught.value) is kind
    faulty.refused, faulty.cut = 0, 1
    with pytest.raises(UnreachableError):
        store.verify()


@one_layout
def test_a_web_server_without_ranges_is_refused(local):
    class Silent(SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    handler = partial(Silent, directory=local.path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            store = open_store(f"http://127.0.0.1:{server.server_address[1]}")
            with pytest.raises(StoreError, match="sends whole files where a part is asked for"):
                store.labels()
        finally:
            server.shutdown()
            thread.join()


# -- faults: the table of the kinds of errors ----------------------------------------------------


def shards(s3_server, url, name):
    return [n for n in s3_server.names(url) if n.startswith(name) and "/c/" in n]


def first_array(store):
    return "X" if "X" in store.attributes.manifest else "X/data"


def test_some_faults_change_nothing(url, local, faulty):
    faulty.refused = faulty.cut = 0.05
    store = open_store(url)
    for ours, theirs in zip(everything(store), everything(local), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.fixture
def neighbours(faulty, s3_server, small_chunks, tmp_path, monkeypatch):
    """Rows of 16 chunks in one shard, whose index has been read, and the same in memory."""
    monkeypatch.setattr(schema, "CHUNK_BYTES", 1 << 14)
    monkeypatch.setattr(arrays, "SHARD_BYTES", 1 << 20)
    X = np.random.default_rng(0).random((2048, 50), np.float32)
    local = write_store(tmp_path / "s.zarr", X, np.zeros(len(X)), shuffle=False)
    assert len(local.attributes.manifest["X"]) == 16
    rows = open_store(s3_server.upload(local.path, f"s3://bucket/far-{next(_numbers)}.zarr")).rows
    rows.read(0, 1)
    del faulty.requests[:]
    return rows, X


@pytest.mark.parametrize(
    "faults", [["refused"] * 2, ["cut"], ["short"], ["other"], ["cut", "refused", "short"]]
)
def test_a_faulty_answer_of_several_chunks_changes_nothing(neighbours, faulty, faults):
    rows, X = neighbours
    faulty.planned = list(faults)
    np.testing.assert_array_equal(rows.read(0, 512), X[:512])
    assert faulty.planned == []
    assert len(faulty.requests) > 1
    np.testing.assert_array_equal(rows.take(np.arange(2047, 0, -3)), X[:0:-3])


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        ("refused", UnreachableError, "cannot be reached"),
        ("cut", UnreachableError, "cannot be reached"),
        ("short", DataCorruptionError, "shard (ends before it|is shorter)|index of its shard"),
        ("long", StoreError, "sends whole files where a part is asked for"),
        ("other", DataCorruptionError, "chunk 0 (is not|cannot)"),
    ],
)
def test_an_answer_of_several_chunks_that_stays_faulty(
    neighbours, faulty, monkeypatch, fault, kind, words
):
    monkeypatch.setenv(storage.TIMEOUT_VARIABLE, "0.15")
    rows, X = neighbours
    faulty.planned = [fault] * 1000
    with pytest.raises(kind, match=words) as caught:
        rows.read(0, 512)
    assert type(caught.value) is kind
    assert "\n" not in str(caught.value)
    faulty.planned = []
    np.testing.assert_array_equal(rows.read(0, 512), X[:512])


@one_layout
@pytest.mark.parametrize("fault", ["refused", "cut", "down"])
def test_faults_that_last_are_no_damage(url, faulty, fault, monkeypatch):
    monkeypatch.setenv(storage.TIMEOUT_VARIABLE, "0.15")
    store = open_store(url)
    if fault == "down":
        faulty.stop()
    else:
        setattr(faulty, fault, 1)
    try:
        for call in (
            lambda: open_store(url), store.verify, lambda: list(store.rows.blocks(10_000)),
            lambda: store.rows.take(np.arange(0, 400, 7)),
        ):  # fmt: skip
            with pytest.raises(UnreachableError, match="cannot be reached"):
                call()
    finally:
        if fault == "down":
            faulty.start()
        else:
            setattr(faulty, fault, 0)
    store.verify()


def test_a_shard_that_is_deleted_is_damage(url, s3_server, local):
    store = open_store(url)
    s3_server.delete(f"{url}/{shards(s3_server, url, first_array(local))[-1]}")
    with pytest.raises(DataCorruptionError, match="is missing; convert the data again"):
        store.verify()


@one_layout
@pytest.mark.parametrize("damage", ["flipped", "index", "short", "empty", "other"])
def test_shards_that_are_damaged_are_damage(url, s3_server, local, damage):
    store = open_store(url)
    names = shards(s3_server, url, first_array(local))
    data = bytearray(s3_server.read(f"{url}/{names[0]}"))
    if damage == "flipped":
        data[100] ^= 1
    elif damage == "index":
        data[-10] ^= 1
    elif damage == "other":
        data = s3_server.read(f"{url}/{names[1]}")
    else:
        data = data[:3] if damage == "short" else b""
    s3_server.write(f"{url}/{names[0]}", bytes(data))
    with pytest.raises(DataCorruptionError, match=r"array 'X.*: chunk 0 .*; convert the data"):
        store.verify()


@one_layout
def test_metadata_that_are_damaged_are_damage(url, s3_server):
    s3_server.write(f"{url}/y/zarr.json", b"{}")
    with pytest.raises(DataCorruptionError, match="array 'y' is not as written"):
        open_store(url)
    s3_server.delete(f"{url}/y/zarr.json")
    with pytest.raises(DataCorruptionError, match="array 'y' is missing"):
        open_store(url)


def test_an_interrupted_pass_does_not_wait(url, faulty, monkeypatch):
    monkeypatch.setenv(storage.TIMEOUT_VARIABLE, "1e6")
    rows = open_store(url).rows
    rows.read(0, rows.row_alignment)
    before = len(faulty.requests)
    rows.read(0, rows.row_alignment)
    blocks = rows.blocks(1)
    faulty.go_dark(after=len(faulty.requests) - before, seconds=1e6)
    next(blocks)
    while not faulty.faults["dark"]:  # the next block is read ahead
        time.sleep(0.01)
    closing = threading.Thread(target=blocks.close)
    closing.start()
    closing.join(HANGS)
    has_waited = closing.is_alive()
    faulty.light()
    closing.join()
    assert not has_waited


def test_chunks_of_a_pass_are_asked_for_together(faulty, s3_server, tmp_path, monkeypatch):
    """Four answers at least are awaited at a time: else latencies would add up."""
    monkeypatch.setattr(schema, "SMALL_CHUNK_BYTES", 1 << 17)
    monkeypatch.setattr(schema, "CHUNK_BYTES", 1 << 17)
    X = np.random.default_rng(0).random((20_000, 100), np.float32)
    local = write_store(tmp_path / "s.zarr", X, np.zeros(len(X)), shuffle=False)
    store = open_store(s3_server.upload(local.path, f"s3://bucket/far-{next(_numbers)}.zarr"))
    store.rows.read(0, 1)
    with faulty.answering_together(4):
        for start, rows in store.rows.blocks(2 * 16 * store.rows.row_alignment * 400):
            np.testing.assert_array_equal(rows, X[start : start + len(rows)])

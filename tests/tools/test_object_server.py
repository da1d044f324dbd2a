"""The S3 server of the benchmarks answers as moto's does, and counts what it answers."""

import json
import threading
import urllib.error
import urllib.request
from types import SimpleNamespace

import numpy as np
import pytest
from support.object_storage import set_environment

import bigsvm
from tools.benchmarks.suites import object_storage
from tools.object_server import ObjectServer


@pytest.fixture
def server(tmp_path, monkeypatch):
    (tmp_path / "served" / "bucket").mkdir(parents=True)
    with ObjectServer(tmp_path / "served") as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        set_environment(monkeypatch, server.endpoint)
        yield server
        server.shutdown()
        thread.join()


def answers(endpoint, folder):
    """Give what a server answers to a list of requests, as s3fs gives it."""
    import s3fs

    fs = s3fs.S3FileSystem(
        endpoint_url=endpoint, key="test", secret="test", skip_instance_cache=True,
        use_listings_cache=False,
    )  # fmt: skip
    data = np.random.default_rng(0).bytes(100_000)
    large = folder / "large"
    large.write_bytes(data * 120)  # of two parts

    def tried(call, *arguments, **options):
        try:
            return call(*arguments, **options)
        except Exception as error:
            return type(error)

    def create():
        fs.pipe_file("bucket/compared/new", b"new", mode="create")
        return fs.cat_file("bucket/compared/new")

    def put_large():
        fs.put_file(str(large), "bucket/compared/large", chunksize=5 << 20)
        return fs.cat_file("bucket/compared/large") == data * 120

    try:
        for name in ("b/1", "b/2", "a b&<ü>", "c"):
            fs.pipe_file(f"bucket/compared/{name}", data)
        fs.pipe_file("bucket/compared/empty", b"")
        one = "bucket/compared/b/1"
        found = [
            fs.cat_file(one) == data,
            *(
                tried(fs.cat_file, one, start=start, end=end)
                for start, end in (
                    (0, 1),
                    (5, 999),
                    (99_990, 200_000),
                    (-7, None),
                    (-(10**6), None),
                )
            ),
            tried(fs.cat_file, one, start=100_000, end=100_001),
            tried(fs.cat_file, "bucket/compared/empty"),
            tried(fs.cat_file, "bucket/compared/empty", start=0, end=1),
            tried(fs.cat_file, "bucket/compared/no"),
            tried(fs.cat_file, "nowhere/no"),
            tried(fs.ls, "nowhere"),
            fs.info(one)["size"],
            tried(fs.info, "bucket/compared/no"),
            sorted(fs.ls("bucket/compared", detail=False)),
            sorted(fs.find("bucket/compared/")),
            tried(fs.pipe_file, one, b"new", mode="create"),
            tried(create),
            put_large(),
        ]
        fs.rm_file(one)
        found.append(sorted(fs.find("bucket/compared/")))
        fs.rm("bucket/compared", recursive=True)
        found.append(tried(fs.find, "bucket/compared/"))
    finally:
        large.unlink()
    return found


def test_answers_as_moto_does(server, s3_server, tmp_path):
    ours, theirs = (answers(s.endpoint, tmp_path) for s in (server, s3_server))
    assert ours == theirs


def test_more_names_than_a_page_are_listed(server, monkeypatch):
    import s3fs

    monkeypatch.setattr("tools.object_server.PAGE", 3)
    folder = server.folder / "bucket"
    for name in ("a/1", "a/2", "b/1", *"cdefgh"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"x")
    fs = s3fs.S3FileSystem(endpoint_url=server.endpoint, skip_instance_cache=True)
    assert fs.find("bucket") == [f"bucket/{name}" for name in ("a/1", "a/2", "b/1", *"cdefgh")]
    assert sorted(fs.ls("bucket", detail=False)) == [f"bucket/{name}" for name in "abcdefgh"]
    assert server.counts["GET"] >= 3 + 3


@pytest.mark.parametrize("path", ["bucket/../../secret", "bucket/a//b", ".uploads/x", "bucket/./a"])
def test_nothing_outside_a_bucket_is_served(server, tmp_path, path):
    (tmp_path / "secret").write_bytes(b"secret")
    (server.uploads / "x").write_bytes(b"secret")
    with pytest.raises(urllib.error.HTTPError, match=r"400|404"):
        urllib.request.urlopen(f"{server.endpoint}/{path.replace('..', '%2e%2e')}")


def test_counts_what_a_store_takes(server):
    """The store is that of a folder, and every request and byte is counted."""
    X = np.random.default_rng(0).random((300, 4), np.float32)
    store = bigsvm.write_store("s3://bucket/a/s.zarr", X, X[:, 0] > 0.5, shuffle=False)
    before = dict(server.counts)
    np.testing.assert_array_equal(store.rows.read(0, 300), X)
    # The index of the shard, and its chunk.
    assert server.counts["GET"] - before["GET"] == 2
    shard = (server.folder / "bucket/a/s.zarr/X/c/0/0").stat().st_size
    assert server.counts["sent"] - before["sent"] == shard
    size = sum(path.stat().st_size for path in (server.folder / "bucket").rglob("*")
               if path.is_file())  # fmt: skip
    assert size < server.counts["received"] < size + 1000  # and .making
    with urllib.request.urlopen(server.endpoint) as answer:
        told = json.load(answer)
    assert told["sent"] >= server.counts["sent"] - len(json.dumps(told))
    assert told["cpu_seconds"] > 0


@pytest.mark.slow
def test_the_suite_counts_requests_and_passes(monkeypatch, tmp_path, capsys):
    """A tiny run ends with a table, and fails the limit of requests: its chunks are small."""
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "")  # the suite sets them
    options = SimpleNamespace(rows=3000, memory="40MB", threads=1, folder=tmp_path)
    assert object_storage.training(options) == 1
    printed = capsys.readouterr().out
    assert "requests a pass" in printed
    checks = {
        line.split("|")[1].strip(): line.split("|")[4].strip()
        for line in printed.splitlines()
        if line.count("|") == 5
    }
    assert checks["certified"] == checks["support vectors"] == checks["seconds"] == "holds"
    assert checks["requests for 8 MB"] == "does not hold"

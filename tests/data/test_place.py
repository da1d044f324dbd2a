"""Places: folders and prefixes of URLs, and what each fault of a network becomes."""

import itertools
import pickle
import sys

import pytest
from command_line import REPOSITORY
from support.object_storage import forget_file_systems

from bigsvm.data import storage
from bigsvm.data.place import Folder, Place, Prefix
from bigsvm.errors import DataCorruptionError, ParameterError, StoreError, UnreachableError
from bigsvm.interruption import checked_by

URL = "s3://bucket/place"


@pytest.fixture
def files():
    return {"zarr.json": b"{}", "X/c/0": bytes(range(100)), "empty": b""}


@pytest.fixture(params=["folder", "s3", "memory"])
def made(request, files, tmp_path):
    """A place that holds the files."""
    if request.param == "folder":
        for name, data in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(data)
        return Place.of(tmp_path)
    if request.param == "s3":
        server = request.getfixturevalue("s3_server")
        for name, data in files.items():
            server.write(f"{URL}/{name}", data)
        return Place.of(URL)
    import fsspec

    fs = fsspec.filesystem("memory")
    for name, data in files.items():
        fs.pipe_file(f"/place/{name}", data)
    return Place.of("memory://place")


def test_reads_whole_files(made, files):
    for name, data in files.items():
        assert made.read(name, 100) == data
    assert (made / "X").read("c/0", 100) == files["X/c/0"]
    with pytest.raises(StoreError, match="X/c/0: larger than 99 bytes"):
        made.read("X/c/0", 99)


def test_reads_parts_of_files(made, files):
    data = files["X/c/0"]
    assert made.part("X/c/0", 10, 5) == data[10:15]
    assert made.part("X/c/0", 95, 10) == data[95:]
    assert made.part("X/c/0", 200, 10) == b""
    assert made.tail("X/c/0", 7) == data[-7:]
    assert made.tail("X/c/0", 100) == data


def test_tells_which_files_are_there(made, files):
    assert made.exists("X/c/0")
    assert not made.exists("X/c/1")
    assert not made.exists("nowhere/at/all")
    with pytest.raises(FileNotFoundError):
        made.read("X/c/1", 10)
    assert made.read_each(["zarr.json", "none", "X/c/0"], 100) == [b"{}", None, files["X/c/0"]]
    assert made.read_each([], 100) == []


def test_goes_to_other_processes(made, files):
    again = pickle.loads(pickle.dumps(made / "X"))
    assert str(again) == str(made / "X")
    assert again.name == "X"
    assert again.read("c/0", 100) == files["X/c/0"]


@pytest.mark.parametrize("path", ["c:/data/train.zarr", "C:\\data", "a.zarr", "./s3:", "x:y/z"])
def test_paths_are_folders(path):
    assert isinstance(Place.of(path), Folder)


@pytest.mark.parametrize(
    "url",
    ["s3://b/k", "gs://b", "az://b/k", "abfs://c@account.dfs.core.windows.net/k", "memory://m",
     "https://host/a.zarr", "S3://b/k/"],
)  # fmt: skip
def test_urls_are_prefixes(url):
    assert isinstance(Place.of(url), Prefix)
    assert str(Place.of(url)) == url.rstrip("/")


@pytest.mark.fault("local-paths")
@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("ftp://host/a.zarr", "no store is read by ftp://"),
        ("file:///tmp/a.zarr", "no store is read by file://"),
        ("s3://", "without a bucket or server"),
        ("https://user:word@host/a", "'https://…@host/a', with credentials in it"),
        ("https://host/a?token=secret", "'https://host/a', with a query in it"),
        ("s3:/b/k", "must be a path on this machine, not a URL"),
    ],
)
def test_urls_that_name_no_place_are_refused(where, message):
    with pytest.raises(ParameterError, match=message) as caught:
        Place.of(where)
    assert "word" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_missing_driver_is_named_with_what_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(ParameterError, match=r"the package gcsfs; install bigsvm\[cloud\]"):
        Place.of("gs://bucket/a.zarr").exists("zarr.json")


def test_pickles_hold_no_secrets():
    options = {
        "key": "SECRET1", "secret": "SECRET2", "anon": False, "endpoint_url": "http://host",
        "client_kwargs": {"region_name": "eu", "aws_session_token": "SECRET3"},
    }  # fmt: skip
    data = pickle.dumps(Place.of(URL, options) / "X")
    assert b"SECRET" not in data
    again = pickle.loads(data)
    assert again.harmless_options() == {
        "anon": False, "endpoint_url": "http://host", "client_kwargs": {"region_name": "eu"},
    }  # fmt: skip


def test_options_are_refused_with_a_folder(tmp_path):
    with pytest.raises(ParameterError, match="storage_options are for URLs"):
        Place.of(tmp_path, {"anon": True})


# -- faults --------------------------------------------------------------------------------------


@pytest.fixture
def far(faulty, s3_server, files, monkeypatch):
    monkeypatch.setenv(storage.TIMEOUT_VARIABLE, "0.2")
    for name, data in files.items():
        s3_server.write(f"{URL}/{name}", data)
    return Place.of(URL)


@pytest.mark.slow
def test_is_tried_again(far, faulty, files, monkeypatch):
    monkeypatch.setenv(storage.TIMEOUT_VARIABLE, "600")
    faulty.refused_first = 3
    assert far.read("X/c/0", 100) == files["X/c/0"]
    assert len(faulty.requests) == 4
    faulty.refused, faulty.cut = 0.2, 0.4
    for _ in range(6):
        assert far.part("X/c/0", 3, 90) == files["X/c/0"][3:93]


def test_a_server_that_comes_back_is_waited_for(far, faulty, files, monkeypatch):
    monkeypatch.setenv(storage.TIMEOUT_VARIABLE, "600")
    timer = faulty.down_for(1)
    assert far.read("X/c/0", 100) == files["X/c/0"]
    timer.join()


@pytest.mark.parametrize(
    "fault", [{"refused": 1}, {"cut": 1}, {"refused": 1, "status": 500}, {"down": True}]
)
def test_what_cannot_be_reached_for_long_is_no_damage(far, faulty, fault):
    down = fault.pop("down", False)
    for name, value in fault.items():
        setattr(faulty, name, value)
    if down:
        faulty.stop()
    try:
        for call in (
            lambda: far.read("X/c/0", 100), lambda: far.tail("X/c/0", 5),
            lambda: far.read_each(["zarr.json", "X/c/0"], 100), lambda: far.exists("X/c/0"),
        ):  # fmt: skip
            with pytest.raises(UnreachableError, match=r"cannot be reached .* tried for") as caught:
                call()
            assert not isinstance(caught.value, DataCorruptionError)
    finally:
        if down:
            faulty.start()


def test_refused_access_is_not_tried_again(far, faulty, monkeypatch):
    monkeypatch.setenv(storage.TIMEOUT_VARIABLE, "20")
    faulty.refused, faulty.status = 1, 403
    with pytest.raises(StoreError, match=r"access is refused .* check the credentials") as caught:
        far.read("X/c/0", 100)
    assert not isinstance(caught.value, UnreachableError)
    assert len(faulty.requests) == 1


def test_a_bucket_that_is_missing_is_named(s3_server):
    with pytest.raises(StoreError, match="there is no bucket or container 'nobody-has-it'"):
        Place.of("s3://nobody-has-it/a.zarr").read("zarr.json", 10)


def test_missing_credentials_are_named(s3_server, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    forget_file_systems()
    with pytest.raises(StoreError, match=r"no valid credentials .* AWS_ACCESS_KEY_ID"):
        Place.of(URL).read("zarr.json", 10)
    forget_file_systems()


@pytest.mark.parametrize(
    ("url", "options"), [("s3://no", {}), ("s3://B_!/k", {}), (URL, {"unknown_option": 1})]
)
def test_requests_that_are_wrong_are_not_tried_again(s3_server, url, options):
    with pytest.raises(StoreError) as caught:
        Place.of(url, options).read("zarr.json", 10)
    assert not isinstance(caught.value, UnreachableError)


def test_credentials_may_be_given_as_options(s3_server, files, monkeypatch):
    s3_server.write(f"{URL}/zarr.json", files["zarr.json"])
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name)
    options = {"key": "test", "secret": "test", "endpoint_url": s3_server.endpoint}
    assert Place.of(URL, options).read("zarr.json", 10) == files["zarr.json"]


@pytest.mark.parametrize(("fault", "value"), [("refused", 1), ("pause", 60)])
def test_waits_look_several_times_a_second(far, faulty, fault, value, monkeypatch):
    """Four looks come before the end of a wait of a minute, or of 1000 s of trying again."""
    monkeypatch.setenv(storage.TIMEOUT_VARIABLE, "1000")
    setattr(faulty, fault, value)

    def check():
        if next(looks) == 4:
            raise KeyboardInterrupt

    for call in (lambda: far.read("X/c/0", 100), lambda: far.read_each(["X/c/0"] * 3, 100)):
        looks = itertools.count(1)
        with checked_by(check), pytest.raises(KeyboardInterrupt):
            call()


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan"])
def test_a_timeout_that_is_no_number_of_seconds_is_refused(text, monkeypatch):
    monkeypatch.setenv(storage.TIMEOUT_VARIABLE, text)
    with pytest.raises(ParameterError, match=f"BIGSVM_STORE_TIMEOUT is '{text}'"):
        Place.of(URL).exists("zarr.json")


def test_the_guide_has_the_times():
    guide = " ".join((REPOSITORY / "docs" / "guide.md").read_text(encoding="utf-8").split())
    assert f"with growing pauses, for {storage._TIMEOUT:g} seconds" in guide
    assert f"has {storage._CONNECT_SECONDS} seconds to accept a connection" in guide
    assert f"may be silent for {storage._ANSWER_SECONDS} seconds" in guide

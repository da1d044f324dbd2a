"""Commands read stores at URLs as they read folders."""

import itertools
import signal

import pytest
from command_line import answer, error_of, run_here, two_clouds
from support.same import assert_same_model
from support.stores import make_chunks_small

import bigsvm
from bigsvm.cli.signals import Interrupted, Interruption
from bigsvm.data import schema, shards, storage
from bigsvm.data.store import open_store
from bigsvm.models import KernelExpansion

_numbers = itertools.count()
ARGUMENTS = ("--C", "2", "--gamma", "0.3")


@pytest.fixture
def upload(s3_server):
    """Copy a folder to a URL that no other test uses."""

    def upload(path, name="store.zarr"):
        return s3_server.upload(path, f"s3://bucket/cli-{next(_numbers)}/{name}")

    return upload


def test_a_model_is_trained_and_used_as_from_a_folder(data, upload, tmp_path):
    model = tmp_path / "model"
    trained = answer("train", upload(data / "train.zarr"), model, *ARGUMENTS)
    assert trained["n_rows"] == 300
    assert_same_model(KernelExpansion.load(model), KernelExpansion.load(data / "model"))
    test = upload(data / "test.zarr")
    run_here("predict", test, model, "--output", tmp_path / "far.txt")
    run_here("predict", data / "test.zarr", model, "--output", tmp_path / "near.txt")
    assert (tmp_path / "far.txt").read_text() == (tmp_path / "near.txt").read_text()


def test_a_store_is_described(data, upload):
    url = upload(data / "train.zarr")
    far, near = answer("info", url), answer("info", data / "train.zarr")
    # Rows from far are not read for it.
    assert (far.pop("n_different"), near.pop("n_different")) == (None, 300)
    assert far.pop("path") == url
    assert far.pop("bytes_on_disk") is None
    assert far == {name: near[name] for name in far}
    assert near.keys() - far.keys() == {"path", "bytes_on_disk"}
    assert url in run_here("info", url).stdout


def test_a_store_is_scaled(data, upload, tmp_path):
    far = answer("scale", upload(data / "train.zarr"), tmp_path / "far.zarr")
    near = answer("scale", data / "train.zarr", tmp_path / "near.zarr")
    assert far["fingerprint"] == near["fingerprint"]


@pytest.mark.slow
def test_doubtful_rows_are_listed(data, upload, tmp_path):
    model = tmp_path / "model"
    run_here("train", data / "train.zarr", model, "--formulation", "crammer-singer")
    far = answer("inspect", model, upload(data / "train.zarr"))
    assert far == answer("inspect", model, data / "train.zarr")


def test_what_has_a_zarr_json_is_a_store(data, upload, tmp_path):
    url = upload(data / "train.zarr", "store")
    run_here("train", url, tmp_path / "model", *ARGUMENTS)
    assert "is for LIBSVM text" in error_of("train", url, tmp_path / "x", "--zero-based", "yes")


def test_other_urls_are_text(data, s3_server, tmp_path):
    url = f"s3://bucket/cli-{next(_numbers)}.libsvm"
    s3_server.write(url, (data / "train.libsvm").read_bytes())
    ended = run_here("train", url, tmp_path / "model", *ARGUMENTS)
    assert "is read as LIBSVM text" in ended.stderr
    assert_same_model(
        KernelExpansion.load(tmp_path / "model"), KernelExpansion.load(data / "model")
    )


def test_a_url_without_a_store_is_named(s3_server, tmp_path):
    message = error_of("train", "s3://bucket/nothing.zarr", tmp_path / "model")
    assert "s3://bucket/nothing.zarr: no store there (no zarr.json); check the URL" in message


@pytest.mark.slow
def test_a_run_whose_store_goes_away_says_how_to_resume(faulty, upload, tmp_path, monkeypatch):
    make_chunks_small(monkeypatch)
    monkeypatch.setattr(schema, "CHUNK_BYTES", 1 << 14)
    monkeypatch.setattr(shards, "REQUEST_BYTES", 0)
    X, _ = two_clouds(4000, 40)
    path, run, options = (
        tmp_path / "s.zarr",
        tmp_path / "run",
        ("--gamma", "0.02", "--memory", "4MB"),
    )
    bigsvm.write_store(path, X, X[:, 0] > 0)
    run_here("train", path, tmp_path / "near", *options)
    url = upload(path)
    before = len(faulty.requests)
    open_store(url).labels()
    # The run reads these first, and some more.
    faulty.go_dark(after=len(faulty.requests) - before + 60, seconds=1000)
    monkeypatch.setenv(storage.TIMEOUT_VARIABLE, "0.2")
    message = error_of("train", url, tmp_path / "far", *options, "--checkpoint", run)
    assert "cannot be reached" in message
    command = f"bigsvm train {url} --resume {run}"
    assert f"The run is saved; resume it by: {command}" in message
    faulty.light()
    assert "which --resume does not open by itself" in error_of("train", "--resume", run)
    run_here(*command.split()[1:])
    assert_same_model(*(KernelExpansion.load(tmp_path / name) for name in ("far", "near")))


def test_a_signal_ends_a_wait(faulty, upload, data):
    url = upload(data / "train.zarr")
    faulty.go_dark(after=0, seconds=1000)
    with Interruption():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(Interrupted):
            open_store(url)

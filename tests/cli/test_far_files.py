"""Models and predictions at URLs: whole in a file of this machine first, and then one object."""

import itertools
import os
import shutil
import sys
import time

import numpy as np
import pytest
from command_line import answer, error_of, run_here, start, two_clouds
from support.same import assert_same_model

import bigsvm
from bigsvm.errors import ModelError, ParameterError, StoreError
from bigsvm.models import KernelExpansion

_numbers = itertools.count()


@pytest.fixture
def place():
    """Place in the memory of this process."""
    return f"memory://files-{next(_numbers)}"


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """The system's folder for temporary files."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return tmp_path / "tmp"


@pytest.fixture(scope="module")
def model():
    return bigsvm.SVC().fit(*two_clouds(60)).model_


def objects_in(place):
    import fsspec

    fs = fsspec.filesystem("memory")
    below = fs._strip_protocol(place) + "/"
    return {name[len(below) :]: fs.cat_file(name) for name in fs.find(below)}


def test_a_model_is_saved_and_loaded_by_its_url(model, s3_server, temporary, tmp_path):
    url = "s3://bucket/models/model.safetensors"
    model.save(url)
    model.save(tmp_path / "model")
    assert len(s3_server.read(url)) == (tmp_path / "model").stat().st_size
    assert_same_model(KernelExpansion.load(url), model)
    assert os.listdir(temporary) == []


def test_a_larger_model_comes_in_parts(model, place, monkeypatch):
    monkeypatch.setattr("bigsvm.data.objects._PART_BYTES", 1000)
    model.save(f"{place}/model")
    assert len(objects_in(place)["model"]) > 2000
    assert_same_model(KernelExpansion.load(f"{place}/model"), model)


def test_a_model_that_cannot_be_sent_is_kept(model, faulty, temporary, monkeypatch):
    monkeypatch.setenv("BIGSVM_STORE_TIMEOUT", "0.1")
    faulty.methods, faulty.refused = ("PUT",), 1.0
    with pytest.raises(StoreError, match=r"cannot be reached.*The model is whole in") as caught:
        model.save("s3://bucket/kept")
    kept = str(caught.value).rpartition(" ")[2]
    assert_same_model(KernelExpansion.load(kept), model)


def test_models_that_cannot_be_read(model, place, s3_server):
    with pytest.raises(ModelError, match=r"cannot read the model memory://.*no such object"):
        KernelExpansion.load(f"{place}/none")
    with pytest.raises(StoreError, match="no bucket or container 'nowhere'"):
        KernelExpansion.load("s3://nowhere/model")
    s3_server.write("s3://bucket/damaged", b"x" * 100)
    with pytest.raises(ModelError, match="s3://bucket/damaged is not a whole bigsvm model"):
        KernelExpansion.load("s3://bucket/damaged")
    for url in ("s3://bucket", "s3://", "s3://bucket/"):
        with pytest.raises(ParameterError, match=r"path is 's3://.*names no file"):
            KernelExpansion.load(url)


@pytest.mark.fault("local-paths")
def test_what_cannot_be_written_is_refused(model, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for url, message in (
        ("https://host/model", "nothing is written by https://"),
        ("ftp://host/model", "no store is read by ftp://"),
        ("s3:/bucket/model", "must be a path on this machine, not a URL"),
    ):
        with pytest.raises(ParameterError, match=message):
            model.save(url)
        assert message in error_of("train", "none.zarr", url)
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(ParameterError, match=r"gcsfs; install bigsvm\[cloud\]"):
        model.save("gs://bucket/model")
    assert os.listdir(tmp_path) == []


def test_commands_read_and_write_them(data, place, temporary, tmp_path):
    url = f"{place}/model"
    made = answer("train", data / "train.zarr", url, "--C", "2", "--gamma", "0.3")
    assert made["model"] == url
    theirs = KernelExpansion.load(data / "model")
    np.testing.assert_array_equal(KernelExpansion.load(url).coefficients, theirs.coefficients)
    assert answer("info", url)["path"] == url
    for options in ([], ["--decision-function", "--overwrite"]):
        run_here("predict", data / "test.zarr", data / "model", "-o", tmp_path / "p", *options)
        told = answer("predict", data / "test.zarr", url, "-o", f"{place}/p", *options)
        assert told["output"] == f"{place}/p"
        assert objects_in(place)["p"] == (tmp_path / "p").read_bytes()
    told = error_of("predict", data / "test.zarr", url, "-o", f"{place}/p")
    assert f"{place}/p exists, so it is not replaced" in told
    assert os.listdir(temporary) == []


def test_other_commands_read_them(data, place, tmp_path):
    pytest.importorskip("onnx")
    url = f"{place}/model"
    run_here("scale", data / "train.zarr", f"{place}/scaled.zarr")
    run_here("train", f"{place}/scaled.zarr", url, "--gamma", "0.3")
    run_here("scale", data / "train.zarr", tmp_path / "scaled.zarr")
    run_here("train", tmp_path / "scaled.zarr", tmp_path / "model", "--gamma", "0.3")
    for model in (url, tmp_path / "model"):
        run_here("export", model, tmp_path / f"onnx-{model == url}", "--to", "onnx")
    assert (tmp_path / "onnx-True").read_bytes() == (tmp_path / "onnx-False").read_bytes()
    rows = []
    for like in (f"{place}/scaled.zarr", url, tmp_path / "scaled.zarr"):
        made = f"{place}/{len(rows)}.zarr"
        run_here("scale", data / "test.zarr", made, "--like", like)
        rows.append(bigsvm.open_store(made).rows.read(0, 100))
    np.testing.assert_array_equal(rows[0], rows[2])
    np.testing.assert_array_equal(rows[1], rows[2])
    assert "which tells nothing of single labels" in error_of("inspect", url, data / "train.zarr")


def test_no_object_of_another_kind_and_no_input_is_replaced(data, place):
    import fsspec

    fsspec.filesystem("memory").pipe_file(f"{place}/notes", b"notes")
    assert "exists and is not a model" in error_of("train", data / "train.zarr", f"{place}/notes")
    bigsvm.write_store(f"{place}/s.zarr", *two_clouds(60))
    inside = f"{place}/s.zarr/model"
    assert "is part of the input" in error_of("train", f"{place}/s.zarr", inside)
    model, rows = f"{place}/m", data / "test.zarr"
    KernelExpansion.load(data / "model").save(model)
    for arguments in (
        [f"{place}/s.zarr", data / "model", "-o", inside],
        [rows, model, "-o", model],
    ):
        assert "is part of the input" in error_of("predict", *arguments)
    told = error_of("predict", rows, model, "--range", data / "model")
    assert "read from this machine" in told


def test_a_resumed_run_writes_only_to_a_url_that_is_named(data, place, tmp_path):
    url, run, store = f"{place}/model", tmp_path / "run", data / "train.zarr"
    ended = run_here(
        "train", store, url, "--checkpoint", run, "--gamma", 0.1, "--max-time", "0.000001s"
    )
    command = f"bigsvm train {store} {url} --resume {run}"
    assert command in ended.stderr
    assert f"name it: {command}" in error_of("train", "--resume", run)
    assert "leave MODEL out" in error_of("train", store, f"{place}/other", "--resume", run)
    run_here(*command.split()[1:], "--max-time", "1h")
    assert KernelExpansion.load(url).certificate["converged"]


@pytest.mark.fault("leftovers")
def test_a_killed_run_whose_folder_is_lost_goes_on(s3_server, tmp_path):
    """As in a pod that is started again elsewhere: the same command, without its folder."""
    url, run, store = "s3://bucket/killed", tmp_path / "run", tmp_path / "s.zarr"
    X, y = two_clouds(1500, distance=0.3)
    bigsvm.write_store(store, X, y)
    options = ["--gamma", "0.3", "--memory", "40MB", "--threads", "1"]
    run_here("train", store, tmp_path / "whole", *options)
    command = ["train", store, tmp_path / "model", *options, "--checkpoint", run]
    command += ["--checkpoint-copy", url, "--checkpoint-every", "0.1s"]
    child = start(*command)
    while not any(name.endswith("manifest.json") for name in s3_server.names(url)):
        assert child.poll() is None, child.stderr.read()
        time.sleep(0.01)
    child.kill()
    child.communicate()
    assert f"bigsvm train --resume {run} --checkpoint-copy {url}" in run_here("info", run).stdout
    assert f"is copied to {url}, which --resume does not open" in error_of("train", "--resume", run)
    shutil.rmtree(run)
    told = run_here(*command).stderr
    assert "will be replaced" not in told
    models = [KernelExpansion.load(tmp_path / name) for name in ("whole", "model")]
    for name in ("support", "coefficients", "intercept"):
        np.testing.assert_array_equal(*(getattr(model, name) for model in models))
    assert models[1].certificate["converged"]
    told = error_of("train", store, tmp_path / "other", "--checkpoint-copy", url)
    assert "give --checkpoint run too, a folder of this machine" in told

"""Files and folders that a command reads or writes lie on this machine; URLs are text to read."""

import os
from pathlib import Path

import numpy as np
import pytest
import typer
from command_line import error_of, run_here, two_clouds

import bigsvm
from bigsvm.cli import app
from bigsvm.errors import ParameterError
from bigsvm.interchange.libsvm_model import read_libsvm_model, write_libsvm_model
from bigsvm.models import KernelExpansion

URL = "s3://bucket/folder/name"
REFUSED = "must be a path on this machine, not a URL"


def parameters_of(command):
    return typer.main.get_command(app).commands[command].params


def paths():
    """Every argument and option that takes a local path: command and parameter."""
    group = typer.main.get_command(app)
    for name, command in group.commands.items():
        for parameter in command.params:
            annotation = command.callback.__annotations__.get(parameter.name)
            if annotation is not None and "Path" in str(annotation):
                yield pytest.param(name, parameter, id=f"{name} {parameter.name}")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.fault("local-paths")
@pytest.mark.parametrize(("command", "parameter"), list(paths()))
def test_a_path_that_is_a_url_is_refused_by_its_name(here, command, parameter):
    """Every argument of every command, and every option together with the arguments."""
    is_option = parameter.opts[0].startswith("-")
    arguments = [
        "s3://bucket/name" if p.name == parameter.name else "word"
        for p in parameters_of(command)
        if not p.opts[0].startswith("-")
    ]
    options = [parameter.opts[0], URL] if is_option else []
    if command == "export":
        options += ["--to", "libsvm"]
    message = error_of(command, *arguments, *options)
    assert REFUSED in message
    assert f"{parameter.opts[0] if is_option else parameter.metavar} is 's3:/" in message
    assert os.listdir(here) == []


@pytest.fixture(scope="module")
def model():
    return bigsvm.SVC().fit(*two_clouds(60)).model_


ROWS = np.eye(4)
CALLS = {
    "checkpoint": lambda _: bigsvm.SVC(checkpoint=URL).fit(*two_clouds(60)),
    "checkpoint of a path": lambda _: bigsvm.SVR(checkpoint=Path(URL)).fit(*two_clouds(60)),
    "cache_dir": lambda _: bigsvm.OneClassSVM(
        cache_dir=URL, disk_cache="1MB", working_set="all"
    ).fit(two_clouds(60)[0]),
    "fit": lambda _: bigsvm.SVC().fit(Path(URL)),
    "open_store": lambda _: bigsvm.open_store(Path(URL)),
    "write_store": lambda _: bigsvm.write_store(Path(URL), ROWS, [0, 1, 0, 1]),
    "convert": lambda _: bigsvm.convert("text.libsvm", Path(URL)),
    "scale_store": lambda _: bigsvm.scale_store(Path(URL), "scaled.zarr"),
    "save": lambda model: model.save(Path(URL)),
    "load": lambda _: KernelExpansion.load(Path(URL)),
    "write_libsvm_model": lambda model: write_libsvm_model(model, URL),
    "read_libsvm_model": lambda _: read_libsvm_model(URL),
}


@pytest.mark.fault("local-paths")
@pytest.mark.parametrize("call", CALLS)
def test_python_refuses_urls_before_it_writes(here, model, call):
    with pytest.raises(ParameterError, match=REFUSED):
        CALLS[call](model)
    assert os.listdir(here) == []


@pytest.mark.fault("local-paths")
@pytest.mark.parametrize(
    ("url", "message"),
    [("ftp://", "no store is read by ftp://"), ("s3:", REFUSED), ("file:///", "by file://")],
)
def test_a_url_without_a_place_is_refused(here, data, url, message):
    assert message in error_of("scale", data / "train.zarr", url)
    assert os.listdir(here) == []


def test_text_is_read_from_a_url(here, data):
    url = (data / "train.libsvm").as_uri()
    run_here("convert", url, here / "made.zarr")
    assert "accuracy" in run_here("predict", url, data / "model").stdout

"""Systems that refuse what a command asks for: one line, exit code 2, nothing half written."""

import os
import shlex
import subprocess
import sys

import numpy as np
import pytest
from command_line import REPOSITORY, error_of, run_here

import bigsvm
from bigsvm.errors import BigsvmError
from bigsvm.models import KernelExpansion

BIGSVM = f"{shlex.quote(sys.executable)} -m bigsvm"
LONG = "n" * 300
"""Longer than a file name may be."""
FORMULATION = ("--formulation", "crammer-singer")


@pytest.mark.fault("surroundings")
@pytest.mark.parametrize(
    "arguments",
    [
        ("info", LONG),
        ("convert", LONG, "out"),
        ("convert", "T", LONG),
        ("scale", "S", LONG),
        ("scale", LONG, "out"),
        ("scale", "S", "out", "--like", LONG),
        ("train", "S", LONG),
        ("train", LONG, "m"),
        ("train", "S", "m", "--checkpoint", LONG),
        ("train", "T", "m", "--cache-dir", LONG),
        ("train", "--resume", LONG),
        ("predict", "S", LONG),
        ("predict", LONG, "M"),
        ("predict", "S", "M", "-o", LONG),
        ("predict", "S", "M", "-o", f"{LONG}/out", "--decision-function"),
        ("export", LONG, "out", "--to", "onnx"),
        ("export", "M", LONG, "--to", "libsvm"),
        ("inspect", "M", LONG),
        ("demo", "--directory", LONG),
    ],
    ids=lambda words: " ".join(words).replace(LONG, "LONG"),
)
def test_too_long_a_file_name_is_reported(data, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    names = {"S": data / "test.zarr", "T": data / "test.libsvm", "M": data / "model"}
    told = error_of(*(names.get(word, word) for word in arguments))
    assert len(told.splitlines()) == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("what", ["checkpoint", "store", "model", "source"])
def test_too_long_a_path_raises_a_typed_error_in_python(rows, tmp_path, monkeypatch, what):
    monkeypatch.chdir(tmp_path)
    calls = {
        "checkpoint": lambda: bigsvm.SVC(checkpoint=LONG).fit(*rows),
        "store": lambda: bigsvm.write_store(LONG, *rows),
        "model": lambda: KernelExpansion.load(LONG),
        "source": lambda: bigsvm.SVC().fit(LONG),
    }
    with pytest.raises(BigsvmError, match="File name too long"):
        calls[what]()
    assert os.listdir(tmp_path) == []


def limited(blocks, words, *arguments):
    """Run a command with a file size limit in blocks of 512 bytes; returns its output."""
    ended = subprocess.run(
        ["sh", "-c", f"ulimit -f {blocks}; {BIGSVM} {words}", "sh", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"},
        timeout=600,
    )
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert ended.stdout == ""
    [*_, last] = ended.stderr.splitlines()
    assert last.startswith("bigsvm: error: ")
    return last


@pytest.mark.fault("surroundings")
@pytest.mark.parametrize(
    ("words", "names"),
    [
        ('predict "$1" "$2" -o out --decision-function -q', ("test.zarr", "model")),
        ('predict "$1" "$2" -o out --decision-function -q', ("test.libsvm", "model")),
        ('train "$1" out -q', ("train.zarr",)),
        ('export "$1" out --to libsvm', ("model",)),
        ('export "$1" out --to onnx', ("model",)),
        ('convert "$1" out -q', ("train.libsvm",)),
        ('scale "$1" out -q', ("train.zarr",)),
    ],
)
def test_full_disk_is_reported(data, tmp_path, monkeypatch, words, names):
    """The limit of a file's size stands for a disk that is full."""
    pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    told = limited(2, words, *(data / name for name in names))
    assert "File too large" in told
    assert os.listdir(tmp_path) == []


@pytest.mark.fault("surroundings")
def test_no_room_for_the_values_of_many_functions(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).normal(size=(300, 5)).astype(np.float32)
    bigsvm.write_store("s.zarr", X, np.arange(300) % 5)
    run_here("train", "s.zarr", "many", "--quiet", *FORMULATION)
    told = limited(8, "predict s.zarr many -o out --decision-function -q")
    assert "cannot keep values beside the predictions" in told
    assert sorted(os.listdir(tmp_path)) == ["many", "s.zarr"]


@pytest.mark.fault("surroundings")
@pytest.mark.parametrize("error", [MemoryError("Unable to allocate 16. GiB"), MemoryError()])
def test_out_of_memory_is_reported(data, tmp_path, monkeypatch, error):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(KernelExpansion, "decide", fails)
    output = tmp_path / "out"
    told = error_of("predict", data / "test.zarr", data / "model", "-o", output)
    assert "the system has no more memory" in told
    assert told.endswith("free some, or lower --memory")
    assert os.listdir(tmp_path) == []


def test_removed_current_folder_is_reported(data, tmp_path):
    """The current folder, removed by somebody else."""
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f'cd "$1" && rmdir "$1" && {BIGSVM} predict "$2" "$3" -o out'
    ended = subprocess.run(
        ["sh", "-c", script, "sh", gone, data / "test.zarr", data / "model"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        timeout=600,
    )
    assert ended.returncode == 2
    assert "Traceback" not in ended.stderr

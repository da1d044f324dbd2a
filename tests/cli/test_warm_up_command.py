"""`bigsvm warm-up`: all that runs need is compiled, and kept."""

import json
import os
import subprocess
import sys
from itertools import islice

import pytest
from command_line import REPOSITORY, answer, error_of, run_here
from support.guide import GUIDE, follow_page

from bigsvm.cli import warm_up
from bigsvm.conversion import libsvm
from bigsvm.data import shuffle
from tools.compilation import BIG, KINDS, RUNS, measured


def test_a_second_warm_up_compiles_nothing(monkeypatch):
    jobs = warm_up._jobs
    monkeypatch.setattr(warm_up, "_jobs", lambda folder: islice(jobs(folder), 2))
    run_here("warm-up", "--quiet")
    again = answer("warm-up", "--quiet")
    assert again["n_functions"] == 0
    assert again["folder"]
    assert "0 functions in 0.0 s" in run_here("warm-up").stdout


def test_text_is_converted_by_compiled_code(monkeypatch, tmp_path):
    parsed, copied = [], []
    compiled, copying = libsvm._compiled, shuffle._copying

    def parse(text, dtype, *args, **options):
        parsed.append(dtype.name)
        return compiled(text, dtype, *args, **options)

    def choose(n_words):
        copied.append(copying(n_words))
        return copied[-1]

    monkeypatch.setattr(libsvm, "_compiled", parse)
    monkeypatch.setattr(shuffle, "_copying", choose)
    for name, job in warm_up._jobs(tmp_path):
        if name.startswith("much text"):
            job()
    assert parsed == ["float32", "float64"]
    assert set(copied) == {shuffle.records}


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    """A folder that a warm-up has filled, and what it said."""
    folder = tmp_path_factory.mktemp("warm")
    ended = subprocess.run(
        [sys.executable, "-m", "bigsvm", "warm-up", "--json"],
        capture_output=True, text=True, check=True, cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "NUMBA_CACHE_DIR": str(folder),
             "BIGSVM_SMALL": "auto"},
    )  # fmt: skip
    return folder, ended


def files_of(folder):
    """The compiled code in a folder: what has been written, and when."""
    kept = [path for path in folder.rglob("*.nb[ci]")]
    return {path.relative_to(folder): path.stat().st_mtime_ns for path in kept}


@pytest.mark.slow
def test_a_warm_up_says_what_it_compiles(warm):
    folder, ended = warm
    assert "compiling for this processor" in ended.stderr
    record = json.loads(ended.stdout)
    assert record["n_functions"] > 100
    assert record["folder"].startswith(str(folder))
    assert f"compiled {record['n_functions']} functions in" in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_after_a_warm_up_first_fits_compile_nothing(warm, kind):
    folder, _ = warm
    compiled = {name: measured(name, str(folder), kind=kind)["functions"] for name in RUNS}
    compiled["large"] = measured("c-svc", str(folder), kind=kind, n_rows=BIG)["functions"]
    assert not {name: functions for name, functions in compiled.items() if functions}


@pytest.mark.slow
def test_after_a_warm_up_the_guide_compiles_nothing(warm, tmp_path):
    """All code that a function of the core is compiled to is kept in the folder."""
    folder, _ = warm
    before = files_of(folder)
    place, programs = tmp_path / "page", tmp_path / "bin"
    place.mkdir()
    programs.mkdir()
    variables = {"NUMBA_CACHE_DIR": str(folder), "BIGSVM_SMALL": "auto"}
    follow_page(GUIDE, "guide.md", place, programs, **variables)
    assert files_of(folder) == before


def test_all_functions_of_the_core_are_kept():
    """Those that were not would be compiled by each process, and leave no file to find."""
    core = REPOSITORY / "bigsvm" / "core"
    assert not [path for path in core.glob("*.py") if "cache=False" in path.read_text("utf-8")]


def test_without_compilation_it_is_refused(monkeypatch):
    monkeypatch.setattr("numba.config.DISABLE_JIT", 1)
    assert "NUMBA_DISABLE_JIT is set" in error_of("warm-up")

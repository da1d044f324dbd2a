"""`bigsvm warm-up`: all that runs need is compiled, and kept."""

import json
import os
import subprocess
import sys
from itertools import islice

import pytest
from command_line import REPOSITORY, answer, error_of, run_here

from bigsvm.cli import warm_up
from bigsvm.conversion import libsvm
from bigsvm.data import shuffle
from tools.compilation import RUNS, measured


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


@pytest.mark.slow
def test_after_a_warm_up_first_fits_compile_nothing(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-m", "bigsvm", "warm-up", "--json"],
        capture_output=True, text=True, check=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "NUMBA_CACHE_DIR": str(tmp_path),
             "BIGSVM_SMALL": "auto"},
    )  # fmt: skip
    assert "compiling for this processor" in ended.stderr
    record = json.loads(ended.stdout)
    assert record["n_functions"] > 100
    assert record["folder"].startswith(str(tmp_path))
    compiled = {
        name: measured(name, estimator, str(tmp_path))["functions"]
        for name, estimator in RUNS.items()
    }
    assert not {name: functions for name, functions in compiled.items() if functions}


def test_without_compilation_it_is_refused(monkeypatch):
    monkeypatch.setattr("numba.config.DISABLE_JIT", 1)
    assert "NUMBA_DISABLE_JIT is set" in error_of("warm-up")

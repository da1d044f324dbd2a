"""What a type checker says of code that uses the estimators."""

import subprocess
import sys
from pathlib import Path

import pytest

import bigsvm

PROGRAM = Path(__file__).with_name("typed_program.py")

RIGHT = """
import numpy as np
import bigsvm
bigsvm.SVC(2.0, kernel="rbf", gamma="auto", random_state=np.random.RandomState(0))
bigsvm.SVC(kernel="poly", calibration="sigmoid", multiclass="ovr", memory="50%", n_jobs=-2)
bigsvm.SVC(probability=True, cache_size=500, verbose=True, shrinking=False)
"""
WRONG = {
    'bigsvm.SVC(kernel="gauss")': '"kernel"',
    'bigsvm.SVC(multiclass="all")': '"multiclass"',
    'bigsvm.SVC(calibration="platt")': '"calibration"',
    'bigsvm.SVC(decision_function_shape="both")': '"decision_function_shape"',
    'bigsvm.SVR(random_state="first")': '"random_state"',
}


def mypy(path):
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file", "pyproject.toml", str(path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.slow
def test_wrong_words_are_found_by_mypy(tmp_path):
    path = tmp_path / "used.py"
    path.write_text("\n".join([RIGHT, *WRONG]) + "\n")
    ended = mypy(path)
    lines = [line for line in ended.stdout.splitlines() if "error:" in line]
    assert len(lines) == len(WRONG), ended.stdout
    for line, argument in zip(lines, WRONG.values(), strict=True):
        assert f"Argument {argument}" in line


@pytest.mark.slow
def test_a_users_program_is_right_under_strict_mypy():
    ended = mypy(PROGRAM)
    assert ended.returncode == 0, ended.stdout


@pytest.mark.slow
def test_the_program_uses_each_public_name_and_runs():
    text = PROGRAM.read_text(encoding="utf-8")
    assert [name for name in bigsvm.__all__ if f"bigsvm.{name}" not in text] == []
    ended = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr

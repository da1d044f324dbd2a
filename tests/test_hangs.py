"""A test that hangs fails, and is named."""

import subprocess
import sys
from pathlib import Path

import pytest

HANGS = """
import time

def test_hangs():
    time.sleep(600)
"""
CONFIGURATION = Path(__file__).parents[1] / "pyproject.toml"


@pytest.mark.slow
@pytest.mark.parametrize("processes", [0, 1])
def test_a_test_that_hangs_fails_and_is_named(tmp_path, processes):
    (tmp_path / "test_one.py").write_text(HANGS)
    ended = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", str(CONFIGURATION),
            "--rootdir", str(tmp_path), f"-n{processes}", "-o", "faulthandler_timeout=1",
            "test_one.py",
        ],
        capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False,
    )  # fmt: skip
    assert ended.returncode != 0
    assert "test_hangs" in ended.stdout + ended.stderr

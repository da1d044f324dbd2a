"""The tool is `bigsvm convert` under another name: same options, same store, same errors."""

import runpy
import sys
from pathlib import Path

import pytest

from bigsvm.conversion.from_text import convert
from bigsvm.data.store import open_store

TOOL = Path(__file__).parents[2] / "tools" / "libsvm_to_zarr.py"


def run(monkeypatch, *arguments):
    """Run the tool as a script; its exit code."""
    monkeypatch.setattr(sys, "argv", [str(TOOL), *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(TOOL), run_name="__main__")
    return ended.value.code


def test_it_makes_the_store_that_convert_makes(tmp_path, monkeypatch):
    text = tmp_path / "text.libsvm"
    text.write_text("+1 1:0.5 3:2\n-1 2:1\n+1 1:4\n-1 3:0.25\n")
    assert run(monkeypatch, text, tmp_path / "tool.zarr", "--features", "5") == 0
    expected = convert(text, tmp_path / "function.zarr", n_features=5)
    made = open_store(tmp_path / "tool.zarr")
    assert made.rows.fingerprint() == expected.rows.fingerprint()


def test_a_bad_line_is_named(tmp_path, monkeypatch, capsys):
    text = tmp_path / "text.libsvm"
    text.write_text("+1 1:0.5\n+1 1:x\n")
    assert run(monkeypatch, text, tmp_path / "tool.zarr") == 2
    assert f"{text}:2:" in capsys.readouterr().err.replace("\n", "")

"""Standard streams that are closed, full or left, and what reaches a terminal."""

import json
import os
import signal
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from command_line import BIGSVM, error_of, run_here, shell, start

import bigsvm
from bigsvm.models import KernelExpansion
from bigsvm.report.progress import Display
from bigsvm.report.text import as_columns, as_json, shown

HOSTILE = "\x1b[2J\x1b]0;title\x07\rover\u202e\x9b1m"
"""Clears the screen, names the window, writes over the line, turns the direction of text."""
needs_full = pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="Linux has a disk that is always full"
)


class TestStandardError:
    @pytest.mark.fault("streams")
    @pytest.mark.parametrize("stream", ["2>&-", pytest.param("2>/dev/full", marks=needs_full)])
    def test_a_run_ends_without_it(self, data, tmp_path, stream):
        script = f'{BIGSVM} train "$1" "$2" --gamma 0.3 {stream}'
        assert "converged" in shell(script, data / "train.libsvm", tmp_path / "m").stdout
        assert len(KernelExpansion.load(tmp_path / "m").support) > 10

    @pytest.mark.fault("streams")
    def test_the_exit_code_of_an_error_is_the_same(self, tmp_path):
        shell(f'{BIGSVM} info "$1" 2>&-', tmp_path / "none", code=2)
        shell(f"{BIGSVM} train --kernel RBG a b 2>&-", code=2)

    def test_all_streams_may_be_closed(self, data, tmp_path):
        """A file that is opened then must not become one of them."""
        script = f'{BIGSVM} train "$1" "$2" --gamma 0.3 <&- 2>&- >&-'
        shell(script, data / "train.zarr", tmp_path / "m", code=2)  # the report has no place
        assert len(KernelExpansion.load(tmp_path / "m").support) > 10

    def test_standard_input_that_is_closed_has_no_rows(self, tmp_path):
        ended = shell(f'{BIGSVM} convert - "$1" <&-', tmp_path / "s", code=2)
        assert "the input has no rows" in ended.stderr

    @pytest.mark.fault("streams")
    def test_progress_that_cannot_be_written_is_dropped(self, monkeypatch):
        class Broken:
            def write(self, _):
                raise OSError(28, "No space left on device")

            flush = isatty = lambda self: False

        monkeypatch.setattr(sys, "stderr", Broken())
        with Display(quiet=False) as display:
            display.line("one")
            display.warn("two")
        monkeypatch.setattr(sys, "stderr", None)
        with Display(quiet=False) as display:
            display.line("three")


@pytest.mark.fault("streams")
@pytest.mark.parametrize("words", ['info "$1"', 'info "$1" --json', 'predict "$1" "$2"', "--help"])
def test_a_reader_that_has_seen_enough_is_no_error(data, words):
    script = f'{{ {BIGSVM} {words}; echo "code $?" >&2; }} | true'
    told = shell(script, data / "test.zarr", data / "model").stderr
    assert "code 0" in told
    assert "error" not in told.lower()


class TestEscapedOutput:
    @pytest.mark.fault("streams")
    def test_control_characters_are_escaped(self):
        assert shown(HOSTILE) == r"\x1b[2J\x1b]0;title\x07\rover\u202e\x9b1m"
        assert shown("a\nb\u2028c\udcff") == r"a\nb\u2028c\udcff"
        assert shown("R² · é 漢") == "R² · é 漢"

    def test_json_says_the_same_without_raw_characters(self):
        text = as_json({HOSTILE: [HOSTILE, "\udcff", "é"]})
        assert text.isprintable()
        assert json.loads(text) == {HOSTILE: [HOSTILE, "\udcff", "é"]}
        assert "é" in text

    def test_columns_have_a_line_each(self):
        assert as_columns([("a", "one\ntwo"), ("b", None)]) == "a  one\\ntwo"

    @pytest.mark.fault("streams")
    def test_errors_are_escaped(self, tmp_path):
        assert r"\x1b[2J" in error_of("info", tmp_path / HOSTILE)
        assert r"\x1b[2J" in error_of("train", "a", "m", "--kernel", HOSTILE)
        told = run_here("info", tmp_path / "a\nbigsvm: done", code=2).stderr
        assert len(told.splitlines()) == 1

    @pytest.mark.fault("streams")
    def test_sources_and_progress_are_escaped(self, data, tmp_path):
        source = tmp_path / HOSTILE
        source.write_bytes((data / "train.libsvm").read_bytes())
        ended = run_here("convert", source, tmp_path / "s.zarr")
        assert r"\x1b[2J" in ended.stdout
        assert "\x1b" not in ended.stdout
        ended = run_here("train", source, tmp_path / "m", "--max-iter", "5")
        assert r"\x1b[2J" in ended.stderr
        assert "\x1b" not in ended.stderr + ended.stdout

    @pytest.mark.fault("streams")
    def test_labels_are_escaped(self, rows, data, tmp_path):
        X, y = rows
        fitted = bigsvm.SVC(gamma=0.3).fit(X, np.where(y > 0, HOSTILE, "b\nc"))
        fitted.model_.save(tmp_path / "m")
        told = run_here("info", tmp_path / "m").stdout
        assert r"\x1b[2J" in told
        assert "\x1b" not in told
        run_here("predict", data / "test.zarr", tmp_path / "m", "-o", tmp_path / "labels")
        lines = (tmp_path / "labels").read_text().splitlines()
        assert set(lines) == {shown(HOSTILE), r"b\nc"}

    def test_warnings_are_escaped(self, capsys):
        with Display(quiet=True), warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn(f"text {HOSTILE}", UserWarning, stacklevel=1)
        [line] = capsys.readouterr().err.splitlines()
        assert line.startswith(r"bigsvm: warning: text \x1b[2J")
        assert line.isprintable()

    def test_paths_that_are_not_text_are_escaped(self, data):
        path = os.fsdecode(b"\xff\xfe")
        ended = run_here("info", path, code=2)
        assert r"\udcff\udcfe" in ended.stderr

    @pytest.mark.fault("streams")
    def test_unencodable_output_is_escaped(self, data, tmp_path):
        source = tmp_path / "漢²"
        source.write_bytes((data / "test.libsvm").read_bytes())
        script = f'LC_ALL=C PYTHONUTF8=0 PYTHONIOENCODING=ascii {BIGSVM} convert "$1" "$2"'
        shell(script, source, tmp_path / "s.zarr")


def interrupted(arguments, module, *, after=0.0):
    """Send SIGINT some seconds after a command has imported a module; exit code and the rest."""
    with start(*arguments, env={"PYTHONPROFILEIMPORTTIME": "1"}) as child:
        for line in child.stderr:
            if line.rstrip().endswith(f"| {module}") or f" {module}." in line:
                break
        time.sleep(after)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=600)
    return child.returncode, err


@pytest.mark.fault("surroundings")
@pytest.mark.parametrize("module", ["typer", "numpy", "numba"])
def test_a_signal_during_imports_leaves_no_traceback(data, tmp_path, module):
    """Python says on standard error what it has imported.

    Numba is imported when training has begun, which ends as by any interruption.
    """
    code, err = interrupted(("train", data / "train.zarr", tmp_path / "m", "--quiet"), module)
    assert code == 130
    assert "Traceback" not in err
    assert "Error" not in err
    if module == "numba":
        assert bigsvm.load(tmp_path / "m").certificate_["stop_reason"] == "interrupted"
    else:
        assert not (tmp_path / "m").exists()


@pytest.mark.slow
def test_a_signal_at_any_moment_leaves_no_traceback(data, tmp_path):
    """Every 40 ms from the first import on."""
    arguments = ("predict", data / "test.zarr", data / "model", "-o", tmp_path / "p", "-q")
    for number in range(40):
        code, err = interrupted(arguments, "typer", after=0.04 * number)
        assert code in (0, 130)
        assert "Traceback" not in err


@pytest.mark.fault("surroundings")
def test_errors_of_url_file_systems_have_no_traceback(tmp_path):
    """fsspec fails a second time when the incomplete file system is deleted."""
    ended = shell(f'{BIGSVM} convert ftp:// "$1"', tmp_path / "s", code=2)
    assert "bigsvm: error: ftp://: cannot be opened" in ended.stderr

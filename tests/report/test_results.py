"""Results as text, and options as values."""

import json
import math

import numpy as np
import pytest

from bigsvm.cli.options import parse_class_weight, parse_gamma, parse_seconds
from bigsvm.conversion.from_arrays import write_store
from bigsvm.errors import ParameterError
from bigsvm.report.describe import certificate_lines, store_lines
from bigsvm.report.progress import duration
from bigsvm.report.text import as_columns, as_json, count, number
from bigsvm.training.result import Certificate, StopReason


def test_json_is_strict_one_line_and_complete():
    record = {"a": math.inf, "b": [1, math.nan, (2.5,)], "c": {1: -math.inf}, "d": "é\n", "e": None}
    text = as_json(record)
    assert "\n" not in text
    read = json.loads(text, parse_constant=pytest.fail)
    assert read == {"a": None, "b": [1, None, [2.5]], "c": {"1": None}, "d": "é\n", "e": None}


def test_columns_are_aligned_and_leave_out_what_is_unknown():
    assert as_columns([("a", 1), ("long", "x"), ("gone", None)]) == "a     1\nlong  x"
    assert as_columns([]) == ""


@pytest.mark.parametrize(
    ("value", "text"), [(1 / 3, "0.333"), (None, "-"), (math.inf, "-"), (0, "0")]
)
def test_number(value, text):
    assert number(value, 3) == text


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (999, "999"), (1234567, "1 234 567")])
def test_count(value, text):
    assert count(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(1.25, "1.2 s"), (250, "4 min 10 s"), (7500, "2 h 05 min")]
)
def test_duration(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("60", 60),
        ("60s", 60),
        (" 0.5s ", 0.5),
        ("5m", 300),
        ("5min", 300),
        ("2h", 7200),
        (".5", 0.5),
    ],
)
def test_a_duration_is_read(text, seconds):
    assert parse_seconds(text, "--x") == seconds


@pytest.mark.parametrize("text", ["", "s", "-5", "0", "5 weeks", "1e3", "5m5", "nan", "inf"])
def test_invalid_durations_are_refused(text):
    with pytest.raises(ParameterError, match="--x"):
        parse_seconds(text, "--x")


@pytest.mark.parametrize(
    ("given", "weights"),
    [([], None), (["balanced"], "balanced"), (["-1:2", "+1:0.5"], {-1.0: 2.0, 1.0: 0.5})],
)
def test_class_weights_are_read(given, weights):
    assert parse_class_weight(given) == weights


def test_gamma_is_read():
    assert [parse_gamma(text) for text in ("scale", "auto", "0.5")] == ["scale", "auto", 0.5]


def certificate(cpu_idle=None):
    counted = dict.fromkeys(
        (
            *("n_support", "n_bounded", "n_sweeps", "n_iter", "n_kernel_evaluations"),
            *("row_misses", "row_reads", "n_working_sets", "rows_swept", "bytes_read"),
        ),
        3,
    )
    return Certificate(
        converged=True,
        stop_reason=StopReason.CONVERGED,
        tol=1e-3,
        objective=1.0,
        gap=1e-4,
        duality_gap=1e-4,
        seconds=2.0,
        seconds_by_phase={"rest": 2.0},
        cpu_idle=cpu_idle,
        **counted,
    ).as_dict()


@pytest.mark.parametrize(
    ("cpu_idle", "text"), [(0.074, "waited for 7% of the time of the sweeps"), (None, None)]
)
def test_a_certificate_says_how_idle_the_threads_were(cpu_idle, text):
    said = certificate(cpu_idle)
    assert dict(certificate_lines(said))["threads"] == text
    del said["cpu_idle"]  # of a model that an earlier version wrote
    assert dict(certificate_lines(said))["threads"] is None


def test_certificate_shows_seconds_by_phase():
    said = certificate() | {
        "seconds_by_phase": {"certificate": 0.1, "kernel_rows": 0.9, "steps": 0.6, "rest": 0.4}
    }
    shown = (
        "certificate 5%, kernel rows 45%, steps 30%, rest 20%; "
        "for 50% of the time only one thread worked"
    )
    assert dict(certificate_lines(said))["time"] == shown
    for nothing in (None, {}, {"rest": 0.0}):
        assert dict(certificate_lines(said | {"seconds_by_phase": nothing}))["time"] is None


@pytest.mark.parametrize(
    ("formulation", "name"),
    [
        ("c-svc", "KKT gap"),
        ("nu-svr", "KKT gap"),
        ("l2-svc", "KKT gap"),
        ("l2-one-class", "KKT gap"),
        ("crammer-singer", "largest violation"),
    ],
)
def test_gap_is_named_by_its_kind(formulation, name):
    lines = dict(certificate_lines(certificate(), formulation=formulation))
    gaps = {"KKT gap", "largest violation"} & lines.keys()
    assert gaps == {name}
    assert lines[name].endswith("(tol 0.001)")


def test_a_gap_that_no_sweep_has_found_has_no_tolerance_beside_it():
    said = {**certificate(), "converged": False, "stop_reason": "sampled", "gap": None}
    shown = dict(certificate_lines(said, formulation="l2-svc"))["KKT gap"]
    assert shown == "not known: no sweep over all rows has ended"


def test_labels_of_a_store_are_written_whole(tmp_path):
    store = write_store(tmp_path / "s.zarr", np.eye(3), [1234567, 1234568, 0.1234567])
    assert dict(store_lines(store))["labels"] == (
        "0.1234567: 1 rows, 1234567: 1 rows, 1234568: 1 rows"
    )

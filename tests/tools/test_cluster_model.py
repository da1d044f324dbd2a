"""The model of a cluster's costs: what it explains it tells, and what not it leaves out."""

import argparse
import time

import pytest

from tools import fake_workers
from tools.benchmarks import cluster_model
from tools.benchmarks.cluster_parts import PARTS, Clock
from tools.benchmarks.results import Case, Results, Run, made_up

SIZES = (100_000, 200_000, 400_000)


def test_a_part_within_another_one_has_its_own_time(monkeypatch):
    now = iter(range(100))
    monkeypatch.setattr(time, "perf_counter", lambda: next(now))
    clock = Clock()
    with clock.of("ends"):  # from 0 to 3
        with clock.of("steps"):  # from 1 to 2
            pass
    assert clock.seconds["steps"] == 1
    assert clock.seconds["ends"] == 2


def run_of(rows, off):
    """A run whose parts are in proportion to its work, but for one, which is off."""
    support = rows // 10
    passes, evaluations = support / 1000, 2 * rows * support
    answer = {
        "n_support": support, "n_passes": passes, "n_tasks": 8 * passes, "swept": 4 * rows,
        "evaluations": evaluations, "moved": support, "returned": rows, "saved": 16 * rows,
        "saves": 3, "empty": 0.01, "passes": 1e-9 * evaluations + 0.01 * passes,
        "steps": 1e-4 * support, "scans": 1e-7 * rows, "labels": 1e-7 * rows,
        "tasks": 0.001 * passes, "checkpoints": 1e-9 * rows, "scheduling": 0.001 * passes,
        "ends": 1 + 1e-6 * support,
    }  # fmt: skip
    if rows == max(SIZES):
        answer = {name: value * off.get(name, 1) for name, value in answer.items()}
    case = Case(f"{rows}", made_up("rows").data, {}, facts={"n_rows": rows})
    return Run(case, "one worker", "dense", 0, {"seconds": 1.0, **answer}, 0.0)


def shown(monkeypatch, **off):
    monkeypatch.setattr(fake_workers, "measured", lambda workers, tasks: {"result": workers**0.1})
    options = argparse.Namespace(workers=[10, 100], every=60.0, link=1e9)
    results = Results(tuple(run_of(rows, off) for rows in SIZES), options)
    return cluster_model.findings_shown(results), cluster_model.model_limits(results)


def test_what_is_explained_is_told_with_how_far_it_is(monkeypatch):
    text, limits = shown(monkeypatch)
    assert "not explained" not in text
    assert all(limit.holds == (True,) for limit in limits)
    lines = [line.split("|") for line in text.splitlines() if line.startswith("| 1e+")]
    assert len(lines) == 2 * len(cluster_model.SIZES)
    far = [[float(cell) for cell in line[-3:-1]] for line in lines]
    assert far[0] == [pytest.approx(1e6 * 1e5 / (4e5 * 4e4), abs=1), 10]
    assert far[-1] == [pytest.approx(1e9 * 1e6 / (4e5 * 4e4), abs=1), 100]


@pytest.mark.parametrize("name", ["passes", "evaluations"])
def test_lines_that_are_not_explained_are_left_out(monkeypatch, name):
    text, limits = shown(monkeypatch, **{name: 1.5})
    assert "not explained" in text
    assert not all(limit.holds == (True,) for limit in limits)
    assert "| 1e+09" not in text
    assert text.count("left out") > len(cluster_model.SIZES)


def test_a_small_part_that_is_not_explained_leaves_out_little(monkeypatch):
    text, _ = shown(monkeypatch, labels=1.5)
    assert "not explained" in text
    assert "| 1e+09" in text


def test_parts_are_those_of_the_clock():
    assert set(PARTS) == set(Clock().seconds)

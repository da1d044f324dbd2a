"""Entries of the log of pairs that a run has written itself are believed, whatever the problem."""

import logging

import numpy as np
import pytest
from support.one_vs_one import train
from support.problems import clouds

from bigsvm import SVC
from bigsvm.data.sources import as_row_source
from bigsvm.fit import log_check
from bigsvm.one_vs_one.log import NAME
from bigsvm.training.events import Hooks, TakenAsRecorded
from tests.training.forged import forge_entry

KINDS = {
    "c-svc": {"C": 5.0},
    "c-svc, large C": {"C": 1e4},
    "c-svc, C that bounds nothing": {"C": 1e8},
    "c-svc, large kernel values": {"C": 5.0, "kernel": "poly", "gamma": 30.0},
    "squared hinge": {"C": 5.0, "loss": "squared_hinge"},
    "nu-svc": {"formulation": "nu-svc", "nu": 0.2},
    "nu-svc without a margin": {"formulation": "nu-svc", "nu": 0.6, "kernel": "linear"},
    "l2-svc": {"formulation": "l2-svc", "C": 3.0},
    "l2-svc, not certified": {"formulation": "l2-svc", "C": 3.0, "certify": False},
}


def rows_of(source):
    """Rows, labels and weights: as they come, each several times, or with weights."""
    rng = np.random.default_rng(0)
    X, y = clouds(n=240, k=3)
    if source == "equal rows":
        some = rng.integers(0, 80, 240)
        return X[some], y[some], None
    weights = rng.choice([0.3, 1.0, 2.7, 1 / 3], 240) if source == "weights" else None
    return X, y, weights


@pytest.mark.parametrize("source", ["plain", "equal rows", "weights"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by_runs", [True, False])
def test_entries_that_a_run_has_written_are_believed(
    tmp_path, kind, source, by_runs, monkeypatch, caplog
):
    monkeypatch.setattr("bigsvm.fit.variables.DIRECT_ROWS", 10)
    if by_runs:
        monkeypatch.setattr("bigsvm.one_vs_one.small.MOST_ROWS", 0)
    given = {"checkpoint": str(tmp_path), **KINDS[kind]}
    X, y, weights = rows_of(source)
    train(X, y, weights, **given)
    before = (tmp_path / NAME).read_bytes()
    train(X, y, weights, **given, max_iter=0)
    assert before
    assert (tmp_path / NAME).read_bytes() == before
    assert "trained again" not in caplog.text


@pytest.mark.fault("forged-files")
def test_entries_beyond_what_takes_seconds_must_still_be_feasible(tmp_path, monkeypatch, caplog):
    """Outputs are not recomputed for these entries."""
    monkeypatch.setattr(log_check, "EVALUATIONS", 0)
    monkeypatch.setattr(
        "bigsvm.fit.trainer.Trainer.exact_outputs", lambda *_: pytest.fail("computed")
    )
    X, y, _ = rows_of("plain")
    train(X, y, checkpoint=str(tmp_path))
    train(X, y, checkpoint=str(tmp_path), max_iter=0)
    assert "trained again" not in caplog.text
    forge_entry(tmp_path, lambda record, rows, values: (rows, 3.0 * values))
    train(X, y, checkpoint=str(tmp_path))
    assert "outside of its bounds" in caplog.text


def resumed(tmp_path, X, y, **given):
    """Result and events of a run whose pairs are all finished."""
    told = []
    hooks = Hooks(listener=told.append)
    result = train(X, y, hooks=hooks, checkpoint=str(tmp_path), max_iter=0, **given)
    return result.functions.pairs, [one for one in told if isinstance(one, TakenAsRecorded)]


@pytest.mark.fault("forged-files")
def test_a_run_tells_how_many_results_it_takes_as_recorded(tmp_path, monkeypatch):
    X, y = clouds(n=240, k=4)
    train(X, y, checkpoint=str(tmp_path))
    pairs, told = resumed(tmp_path, X, y)
    assert (pairs["n_not_recomputed"], told) == (0, [])
    monkeypatch.setattr(log_check, "EVALUATIONS", 2 * log_check.LEAST_COST)
    pairs, told = resumed(tmp_path, X, y)
    assert pairs["n_not_recomputed"] == 4
    assert told == [TakenAsRecorded(4, 6)]
    assert "results of 4 of 6 finished pairs are taken as recorded" in told[0].sentence


def test_an_estimator_logs_and_keeps_how_many_results_are_taken_as_recorded(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(log_check, "EVALUATIONS", 0)
    X, y = clouds(n=120, k=3)
    fitted = SVC(checkpoint=tmp_path).fit(X, y)
    assert fitted.certificate_["pairs"]["n_not_recomputed"] == 0
    with caplog.at_level(logging.INFO, "bigsvm"):
        fitted.fit(X, y)
    assert fitted.certificate_["pairs"]["n_not_recomputed"] == 3
    assert caplog.text.count("results of 3 of 3 finished pairs are taken as recorded") == 1


@pytest.mark.fault("forged-files")
def test_every_entry_of_the_log_can_be_recomputed(tmp_path, monkeypatch):
    """Which one it is depends on the system's random numbers, not on those of the run."""
    checks = []
    choose = log_check.LogCheck.choose

    def seen(self, *entries):
        checks.append((self, entries))
        choose(self, *entries)

    X, y = clouds(n=240, k=4)
    train(X, y, checkpoint=str(tmp_path), seed=3)
    monkeypatch.setattr(log_check.LogCheck, "choose", seen)
    monkeypatch.setattr(log_check, "EVALUATIONS", log_check.LEAST_COST)
    resumed(tmp_path, X, y, seed=3)
    (check, entries), drawn = checks[-1], []
    assert sorted(entries[0]) == list(range(6))
    for _ in range(200):
        check.recomputed.clear()
        choose(check, *entries)
        drawn.append(tuple(check.recomputed))
    assert set(drawn) == {(pair,) for pair in range(6)}


@pytest.mark.fault("forged-files")
def test_forged_last_entry_of_the_log_is_found(tmp_path, monkeypatch, caplog):
    X, y = clouds(n=240, k=3)
    train(X, y, checkpoint=str(tmp_path))
    forge_entry(tmp_path, lambda record, rows, values: (rows, 0.5 * values), place=-1)
    monkeypatch.setattr(log_check, "EVALUATIONS", log_check.LEAST_COST)
    for _ in range(200):
        train(X, y, checkpoint=str(tmp_path), max_iter=0)
        if "trained again" in caplog.text:
            break
    assert "its gap is" in caplog.text


@pytest.mark.parametrize(("n_bytes", "not_recomputed"), [(0, 6), (1e9, 0)])
@pytest.mark.fault("forged-files")
def test_outputs_are_recomputed_within_a_limit_of_what_is_read(
    tmp_path, monkeypatch, n_bytes, not_recomputed
):
    """Rows that are not in memory are read again for each pair."""
    X, y = clouds(n=240, k=4)
    train(X, y, checkpoint=str(tmp_path))
    rows = as_row_source(X)
    rows.row_alignment = 16
    monkeypatch.setattr(log_check, "BYTES_READ", n_bytes)
    pairs, _ = resumed(tmp_path, rows, y)
    assert pairs["n_not_recomputed"] == not_recomputed

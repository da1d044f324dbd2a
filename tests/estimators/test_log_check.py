"""Entries of the log of pairs that a run has written itself are believed, whatever the problem."""

import numpy as np
import pytest
from one_vs_one import clouds, train

from bigsvm.estimators import log_check
from bigsvm.training.pair_log import NAME
from tests.training.forged import forge_entry

KINDS = {
    "c-svc": {"C": 5.0},
    "c-svc, large C": {"C": 1e4},
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
    monkeypatch.setattr("bigsvm.estimators.variables.DIRECT_ROWS", 10)
    if by_runs:
        monkeypatch.setattr("bigsvm.training.small_pairs.MOST_ROWS", 0)
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
        "bigsvm.estimators.running.Trainer.exact_outputs", lambda *_: pytest.fail("computed")
    )
    X, y, _ = rows_of("plain")
    train(X, y, checkpoint=str(tmp_path))
    train(X, y, checkpoint=str(tmp_path), max_iter=0)
    assert "trained again" not in caplog.text
    forge_entry(tmp_path, lambda record, rows, values: (rows, 3.0 * values))
    train(X, y, checkpoint=str(tmp_path))
    assert "outside of its bounds" in caplog.text

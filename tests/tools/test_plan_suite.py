"""The suite that compares plans with fits, on tiny data."""

from types import SimpleNamespace

import numpy as np
from sklearn.datasets import make_blobs

import bigsvm
from tools.benchmarks.suites import plan


def test_a_fit_of_pairs_says_how_long_it_takes():
    """The first estimate is kept, and a fit of one function has none."""
    X, y = make_blobs(2000, centers=8, cluster_std=4.0, random_state=0)
    for labels, n_kept in ((y, 1), (y % 2, 0)):
        kept = []
        machine = bigsvm.SVC(n_jobs=1).set_callbacks(plan.own_estimate(kept))
        machine.fit(X.astype(np.float32), labels)
        assert len(kept) == n_kept
        assert all(0 < seconds < 600 for seconds in kept)


def test_the_table_has_plan_own_estimate_and_truth(monkeypatch, capsys):
    answers = {
        "planning": 0.5, "own": 9.0, "seconds": 12.0, "n_support": 100,
        "planned": {
            "n_rows": 1000, "samples": [{"n_rows": 500}],
            "seconds": {"low": 10, "expected": 18, "high": 30},
            "n_support": {"low": 80, "expected": 90, "high": 110},
        },
    }  # fmt: skip
    monkeypatch.setattr(plan, "is_skipped", lambda data: False)
    monkeypatch.setattr(plan, "run_checked", lambda *_, **__: SimpleNamespace(answer=answers))
    options = SimpleNamespace(cases=["few"], share=1.0, memory="1GB", threads=1)
    assert plan.program(options) == 0
    printed = capsys.readouterr().out
    rows = [row.split("|") for row in printed.splitlines() if "|" in row]
    header, line = (next(row for row in rows if row[1].strip() == name) for name in ("fit", "few"))
    shown = {name.strip(): value.strip() for name, value in zip(header, line, strict=True)}
    assert (line[5].strip(), shown["own ratio"], shown["planning"]) == ("1.50", "0.75", "4%")
    answers["seconds"] = 40.0  # planned 18: more than a factor of 2
    assert plan.program(options) == 1

"""What a search of C and gamma costs: separate fits, warm starts along C, successive halving.

    python -m tools.benchmarks search_times [--names a9a …] [--peer] [--halving 3]

Reads ``NAME.libsvm.gz`` of the data folder. Prints CPU seconds of one thread, pair steps, and the
best point with its mean score over 3 folds and the standard error of that mean. With ``--peer`` the
grid is also searched by scikit-learn.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tools.benchmarks.bench import Suite
from tools.benchmarks.data import DataSet, data_folder, is_skipped, load

if TYPE_CHECKING:
    import argparse

GRID = {"C": [2.0**k for k in (-3, -1, 1, 3, 5)], "gamma": [2.0**k for k in (-9, -7, -5, -3, -1)]}
FOLDS = 3


def search(name: str, halving: int, *, peer: bool) -> None:
    """Search one data set in every way."""
    import numpy as np
    from sklearn import svm
    from sklearn.model_selection import GridSearchCV

    import bigsvm

    X, y = load(DataSet(name), data_folder())
    print(f"{name}: {X.shape[0]} rows, {X.shape[1]} columns; 5 x 5 points, {FOLDS} folds")
    bigsvm.SearchCV(bigsvm.SVC(n_jobs=1), GRID, cv=2).fit(X[:400], y[:400])  # compiles
    estimator = bigsvm.SVC(n_jobs=1)
    searches: dict[str, Any] = {
        f"halving by {halving}": bigsvm.SearchCV(
            estimator, GRID, cv=FOLDS, halving=halving, refit=False
        ),
        "warm starts": bigsvm.SearchCV(estimator, GRID, cv=FOLDS, refit=False),
        "separate fits": bigsvm.SearchCV(estimator, GRID, cv=FOLDS, warm_starts=False, refit=False),
    }
    if peer:
        searches["scikit-learn"] = GridSearchCV(svm.SVC(), GRID, cv=FOLDS, refit=False)
    print(f"{'search':<16}{'CPU s':>9}{'steps':>10}  best point, score, standard error")
    for way, searched in searches.items():
        started = time.process_time()
        searched.fit(X, y)
        seconds = time.process_time() - started
        results, best = searched.cv_results_, searched.best_index_
        error = results["std_test_score"][best] / np.sqrt(FOLDS - 1)
        steps = f"{FOLDS * results['n_iter'].sum():.0f}" if "n_iter" in results else "-"
        point = ", ".join(f"{key} 2^{np.log2(v):g}" for key, v in searched.best_params_.items())
        print(
            f"{way:<16}{seconds:>9.1f}{steps:>10}  {point}, "
            f"{searched.best_score_:.5f}, {error:.5f}",
            flush=True,
        )


def program(options: argparse.Namespace) -> int:
    """Search the data sets that are there."""
    for name in options.names:
        if not is_skipped(DataSet(name)):
            search(name, options.halving, peer=options.peer)
    return 0


SUITE = Suite(
    program=program,
    folder=False,
    threads=1,
    more=(
        ("--names", {"nargs": "+", "default": ["a9a"]}),
        ("--halving", {"type": int, "default": 3}),
        ("--peer", {"action": "store_true", "default": False}),
    ),
)

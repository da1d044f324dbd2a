"""What a search of C and gamma costs: separate fits, warm starts along C, successive halving.

    python -m tools.benchmarks.search_times a9a [--peer] [--halving 3]

Reads ``$BIGSVM_DATA/NAME.libsvm.gz``. Prints CPU seconds of one thread, pair steps, and the best
point with its mean score over 3 folds and the standard error of that mean. With ``--peer`` the grid
is also searched by scikit-learn.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import svm
from sklearn.datasets import load_svmlight_file
from sklearn.model_selection import GridSearchCV

import bigsvm

GRID = {"C": [2.0**k for k in (-3, -1, 1, 3, 5)], "gamma": [2.0**k for k in (-9, -7, -5, -3, -1)]}
FOLDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--halving", type=int, default=3)
    arguments = parser.parse_args()
    X, y = load_svmlight_file(Path(os.environ["BIGSVM_DATA"]) / f"{arguments.name}.libsvm.gz")
    print(f"{arguments.name}: {X.shape[0]} rows, {X.shape[1]} columns; 5 x 5 points, {FOLDS} folds")
    bigsvm.SearchCV(bigsvm.SVC(n_jobs=1), GRID, cv=2).fit(X[:400], y[:400])  # compiles
    estimator = bigsvm.SVC(n_jobs=1)
    searches: dict[str, Any] = {
        f"halving by {arguments.halving}": bigsvm.SearchCV(
            estimator, GRID, cv=FOLDS, halving=arguments.halving, refit=False
        ),
        "warm starts": bigsvm.SearchCV(estimator, GRID, cv=FOLDS, refit=False),
        "separate fits": bigsvm.SearchCV(estimator, GRID, cv=FOLDS, warm_starts=False, refit=False),
    }
    if arguments.peer:
        searches["scikit-learn"] = GridSearchCV(svm.SVC(), GRID, cv=FOLDS, refit=False)
    print(f"{'search':<16}{'CPU s':>9}{'steps':>10}  best point, score, standard error")
    for name, search in searches.items():
        started = time.process_time()
        search.fit(X, y)
        seconds = time.process_time() - started
        results, best = search.cv_results_, search.best_index_
        error = results["std_test_score"][best] / np.sqrt(FOLDS - 1)
        steps = f"{FOLDS * results['n_iter'].sum():.0f}" if "n_iter" in results else "-"
        point = ", ".join(f"{key} 2^{np.log2(v):g}" for key, v in search.best_params_.items())
        print(
            f"{name:<16}{seconds:>9.1f}{steps:>10}  {point}, {search.best_score_:.5f}, {error:.5f}",
            flush=True,
        )


if __name__ == "__main__":
    main()

"""What a search of C and gamma costs: separate fits, warm starts along C, successive halving.

    python -m tools.benchmarks search_times [--names a9a …] [--peer sklearn|sklearnex] [--halving 3]
    python -m tools.benchmarks search_times --part limit [--gammas 0.03125 …]

Reads ``NAME.libsvm.gz`` of the data folder. Prints CPU seconds of one thread, pair steps, and the
best point with its mean score over 3 folds and the standard error of that mean. Separate fits are
those of scikit-learn's ``GridSearchCV`` of our classifier. With ``--peer`` the
grid is also searched by scikit-learn's ``GridSearchCV`` of its own classifier, or of
scikit-learn-intelex's. Limits: the best point is within a standard error of the best of separate
fits (and of the peer), and takes at most half their time; by halving a quarter. ``--part limit``
counts kernel values of warm starts and of separate fits for each gamma, and what would be
left if no pair of rows were computed twice.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tools.benchmarks.bench import Suite
from tools.benchmarks.children import machine
from tools.benchmarks.data import DataSet, data_folder, is_skipped, load
from tools.benchmarks.results import Limit, at_most, table, verdicts

if TYPE_CHECKING:
    import argparse

GRID = {"C": [2.0**k for k in (-3, -1, 1, 3, 5)], "gamma": [2.0**k for k in (-9, -7, -5, -3, -1)]}
FOLDS = 3
HALVING, WARM, SEPARATE = "halving", "warm starts", "separate fits"
MOST = {HALVING: 0.25, WARM: 0.5}
"""Most CPU seconds of a search, in those of separate fits."""


def search(name: str, halving: int, *, peer: str | None) -> list[Limit]:
    """Search one data set in every way."""
    import numpy as np
    from sklearn.model_selection import GridSearchCV

    import bigsvm

    X, y = load(DataSet(name), data_folder())
    print(f"{name}: {X.shape[0]} rows, {X.shape[1]} columns; 5 x 5 points, {FOLDS} folds\n")
    bigsvm.SearchCV(bigsvm.SVC(n_jobs=1), GRID, cv=2).fit(X[:400], y[:400])  # compiles
    estimator = bigsvm.SVC(n_jobs=1)
    searches: dict[str, Any] = {
        HALVING: bigsvm.SearchCV(estimator, GRID, cv=FOLDS, halving=halving, refit=False),
        WARM: bigsvm.SearchCV(estimator, GRID, cv=FOLDS, refit=False),
        # Ours would train the folds of a point together.
        SEPARATE: GridSearchCV(estimator, GRID, cv=FOLDS, refit=False),
    }
    if peer is not None:
        searches[peer] = GridSearchCV(_classifier(peer), GRID, cv=FOLDS, refit=False)
    lines, seconds, best, error = [], {}, {}, {}
    for way, searched in searches.items():
        started = time.process_time()
        searched.fit(X, y)
        seconds[way] = time.process_time() - started
        results, best[way] = searched.cv_results_, searched.best_score_
        error[way] = results["std_test_score"][searched.best_index_] / np.sqrt(FOLDS - 1)
        point = ", ".join(f"{key} 2^{np.log2(v):g}" for key, v in searched.best_params_.items())
        lines.append(
            [
                way, f"{seconds[way]:.1f}",
                f"{FOLDS * results['n_iter'].sum():.0f}" if "n_iter" in results else "-",
                point, f"{best[way]:.5f}", f"{error[way]:.5f}",
            ]
        )  # fmt: skip
    print(table(["search", "CPU s", "steps", "best point", "score", "standard error"], lines))
    limits = [
        at_most(f"{way} ÷ {SEPARATE}, {name}", seconds[way] / seconds[SEPARATE], limit=limit)
        for way, limit in MOST.items()
    ]
    for way in (HALVING, WARM):
        for other in (SEPARATE, *((peer,) if peer else ())):
            behind = (best[other] - best[way]) / error[other]
            limits.append(
                at_most(f"{way} behind {other}, standard errors, {name}", behind, limit=1.0)
            )
    return limits


def limit(name: str, gammas: list[float]) -> None:
    """Count what the searches of one gamma compute, and how little could be enough."""
    import numpy as np
    from sklearn.model_selection import GridSearchCV

    import bigsvm
    from tools.benchmarks.contestants import own_solver
    from tools.benchmarks.search_limit import PARTS, count, least_values

    X, y = load(DataSet(name), data_folder())
    Cs = {"C": GRID["C"]}
    some = slice(None, None, max(1, X.shape[0] // 2000))
    with own_solver():  # compiles
        bigsvm.SearchCV(bigsvm.SVC(gamma=1.0, n_jobs=1), Cs, cv=2, refit=False).fit(
            X[some], y[some]
        )
    lines = []
    for gamma in gammas:
        estimator = bigsvm.SVC(gamma=gamma, n_jobs=1)
        warm = count(bigsvm.SearchCV(estimator, Cs, cv=FOLDS, refit=False), X, y)
        apart = count(GridSearchCV(estimator, Cs, cv=FOLDS, refit=False), X, y)
        least, of_memory = least_values(X, warm.support)
        for way, counted in ((WARM, warm), (SEPARATE, apart)):
            n_values, seconds = sum(counted.values.values()), sum(counted.seconds.values())
            rest = counted.total - seconds
            lines.append(
                [
                    f"2^{np.log2(gamma):g}", way,
                    *(f"{counted.values[part] / 1e6:.0f}" for part in PARTS),
                    f"{least / 1e6:.0f}", f"{of_memory:.1f}", f"{counted.total:.1f}", f"{rest:.1f}",
                    f"{counted.total / apart.total:.2f}",
                    f"{(rest + least * seconds / n_values) / apart.total:.2f}",
                ]
            )  # fmt: skip
    print(f"{name}: {X.shape[0]} rows, 5 values of C, {FOLDS} folds; millions of kernel values\n")
    columns = ["least", "of memory", "CPU s", "without values", "÷ separate", "with the least"]
    print(table(["gamma", "search", *PARTS, *columns], lines))


def _classifier(peer: str) -> Any:  # noqa: ANN401 (of another library)
    """Return the classifier of a peer."""
    if peer == "sklearnex":
        from sklearnex.svm import SVC

        return SVC()
    from sklearn.svm import SVC

    return SVC()


def program(options: argparse.Namespace) -> int:
    """Search the data sets that are there."""
    print(f"{machine(options.threads)}\n")
    limits: list[Limit] = []
    for name in options.names:
        if is_skipped(DataSet(name)):
            continue
        if options.part == "limit":
            limit(name, options.gammas)
        else:
            limits += search(name, options.halving, peer=options.peer)
        print()
    if limits:
        print(verdicts(limits))
    return 0 if all(all(limit.holds) for limit in limits) else 1


SUITE = Suite(
    program=program,
    folder=False,
    threads=1,
    more=(
        ("--names", {"nargs": "+", "default": ["a9a"]}),
        ("--halving", {"type": int, "default": 3}),
        ("--part", {"choices": ["times", "limit"], "default": "times"}),
        ("--gammas", {"nargs": "+", "type": float, "default": [2.0**-9, 2.0**-5, 2.0**-1]}),
        ("--peer", {"choices": ["sklearn", "sklearnex"], "default": None}),
    ),
)

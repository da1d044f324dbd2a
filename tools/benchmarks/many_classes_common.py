"""What the parts of `many_classes.py` share: problems, their rows, and estimators.

NumPy, scikit-learn and bigsvm are imported inside functions only, as in `common.py`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from data_sets import data_folder
from preparations import COLUMNS, IMAGES
from timed_fits import Parts, files_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

METHODS = ("crammer-singer", "ovr", "ovo")
WHO = ("ovo", "sklearnex", "ovr", "separate", "crammer-singer")
"""Who takes part in `speed`; see there."""
TINY_ROWS = 300


class Problem(NamedTuple):
    """A problem of the paper.

    Attributes
    ----------
    file : str
        Name of its files.
    limit : float, optional
        The paper's test error in %, where its table 2 has one.
    n_rows : int, optional
        Random rows of the training part that are trained on; all by default.
    n_trained : int, optional
        Rows of the training part where the files have another: the first of both.
    preparations : tuple of str
        What rows may be trained as, of `preparations.py`.
    folds : int
        Of the cross-validation that takes the place of a test part; 0 where there is one.
    coarse_C : tuple of float, optional
        Of the coarse grid, where it is not that of the others.
    """

    file: str
    limit: float | None = None
    n_rows: int | None = None
    n_trained: int | None = None
    preparations: tuple[str, ...] = COLUMNS
    folds: int = 0
    coarse_C: tuple[float, ...] | None = None


PROBLEMS = {
    "mnist": Problem("mnist", 1.42, preparations=IMAGES),
    "usps": Problem("usps", 4.38, preparations=IMAGES),
    "letter": Problem("letter", 1.95, n_trained=16_000),
    "shuttle": Problem("shuttle.scale", 0.12, coarse_C=(8.0, 64.0, 512.0, 4096.0)),
    "satimage": Problem("satimage.scale"),
    "mnist-5000": Problem("mnist", n_rows=5000, preparations=IMAGES),
    "letter-5000": Problem("letter", n_rows=5000, n_trained=16_000),
    "vowel": Problem("vowel.scale"),
    "glass": Problem("glass.scale", folds=5),
}
"""Table 2, then figure 6 as far as there are files: it has isolet too. The paper tests letter on
4000 rows, the last of all. The classes of shuttle can be told apart almost without an error, for
which C has to be large."""


def is_there(name: str) -> bool:
    """Whether the files of a problem are; says so where they are not."""
    folder, problem = data_folder(), PROBLEMS[name]
    if folder is not None:
        needed = files_of(problem.file, folder)[: 1 if problem.folds else 2]
        if all(path.is_file() for path in needed):
            return True
    print(
        f"skipped {name}: no files of it; name their folder in BIGSVM_DATA",
        file=sys.stderr,
        flush=True,
    )
    return False


def read(name: str, *, seed: int = 0) -> list[Parts]:
    """Read a problem: one pair of parts, or one of each fold; float32 arrays.

    Raw values are divided by the largest of the file that is trained on. `seed` is of the random
    rows, and of the folds.
    """
    import numpy as np
    from sklearn.datasets import load_svmlight_file
    from sklearn.model_selection import StratifiedKFold

    folder, problem = data_folder(), PROBLEMS[name]
    if folder is None:
        raise SystemExit("no folder of data sets")
    train, test = (str(path) for path in files_of(problem.file, folder))
    x, y = load_svmlight_file(train, dtype=np.float32)
    x, y, scaled = x.toarray(), y.astype(np.float64), ""
    largest = float(x.max())
    if largest > 1:
        x /= largest
        scaled = f"values divided by {largest:g}, the largest of the training part"
    if problem.folds:
        folds = StratifiedKFold(problem.folds, shuffle=True, random_state=seed)
        return [Parts(name, x[a], y[a], x[b], y[b], scaled) for a, b in folds.split(x, y)]
    test_x, test_y = load_svmlight_file(test, n_features=x.shape[1], dtype=np.float32)
    test_x, test_y = test_x.toarray(), test_y.astype(np.float64)
    if largest > 1:
        test_x /= largest
    if problem.n_trained is not None and problem.n_trained < len(y) + len(test_y):
        more = max(0, problem.n_trained - len(y))
        x, y = np.concatenate([x, test_x[:more]]), np.concatenate([y, test_y[:more]])
        test_x, test_y = test_x[more:], test_y[more:]
    if problem.n_rows is not None:
        few = some_rows(len(y), problem.n_rows, seed)
        x, y = x[few], y[few]
    return [Parts(name, x, y, test_x, test_y, scaled)]


def some_rows(n: int, most: int, seed: int) -> NDArray[np.int64]:
    """Draw at most so many of n rows; the first of more are those of fewer."""
    import numpy as np

    return np.random.default_rng(seed).permutation(n)[:most]


def few_of_each(y: NDArray[np.float64]) -> NDArray[np.int64]:
    """First rows, and the first of every class: what a fit compiles and loads needs no more."""
    import numpy as np

    return np.union1d(np.arange(min(TINY_ROWS, len(y))), np.unique(y, return_index=True)[1])


def estimator(
    method: str,
    *,
    C: float,
    gamma: float,
    tol: float,
    threads: int,
) -> Any:  # noqa: ANN401 (a classifier)
    """Make one of `METHODS`, with an rbf kernel; it has not been fitted."""
    import bigsvm

    shared: dict[str, Any] = {"gamma": gamma, "tol": tol, "n_jobs": threads}
    if method == "crammer-singer":
        return bigsvm.CrammerSingerSVC(C, **shared)
    return bigsvm.SVC(C, multiclass=method, **shared)

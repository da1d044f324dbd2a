"""Folds: which rows are trained on, and which are tested; nothing is copied.

Rows that are not trained on get weight 0, which means that they are not there. Samples of rows are
nested, and spread over all folds.
"""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xxhash
from sklearn.model_selection import GroupKFold, PredefinedSplit, check_cv

from bigsvm.errors import DataError, ParameterError, brief

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bigsvm.arrays import F8, I8
    from bigsvm.data.row_source import RowSource


class Fold(NamedTuple):
    """One split of the rows.

    Attributes
    ----------
    test : (m,) int64
        Rows that are tested, ascending.
    train : (t,) int64 or None
        Rows that are trained on, ascending; None for all that are not tested.
    """

    test: I8
    train: I8 | None

    def weights(self, weights: F8 | None, n_rows: int) -> F8:
        """Weights for training, (n_rows,) float64: 0 for rows that are not trained on."""
        given = np.ones(n_rows) if weights is None else weights.astype(np.float64)
        if self.train is None:
            given[self.test] = 0.0
            return given
        chosen = np.zeros(n_rows)
        chosen[self.train] = given[self.train]
        return chosen

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.test.nbytes + (0 if self.train is None else self.train.nbytes)


def make_folds(
    cv: Any,
    n_rows: int,
    labels: Any,
    weights: F8 | None,
    groups: Any,
    *,
    stratified: bool,
) -> list[Fold]:
    """Split rows as scikit-learn does.

    Parameters
    ----------
    cv : int, splitter of scikit-learn, (n_rows,) integers, or iterable of pairs
        A number of folds: stratified by the labels if `stratified`; with `groups` by them. One
        number a row is the fold that tests it, -1 for none. Pairs are arrays of the rows that are
        trained on and tested.
    n_rows : int
    labels : (n_rows,) array or None
    weights : (n_rows,) float64 or None
        Rows of weight 0 are neither trained on nor tested.
    groups : (n_rows,) array or None
        Rows of one group are in one fold.
    stratified : bool

    Raises
    ------
    ParameterError
        `cv` has no meaning, or a fold would have no rows to train on or to test.
    DataError
        Another number of labels, groups or fold numbers than rows.
    """
    rows = np.arange(n_rows) if weights is None else np.flatnonzero(weights)
    for name, values in (("y", labels), ("groups", groups)):
        if values is not None and len(values) != n_rows:
            raise DataError(f"{name} has {len(values)} values; there are {n_rows} rows")
    if labels is not None:
        labels = np.asarray(labels)[rows]
    if groups is not None:
        groups = np.asarray(groups)[rows]
    splitter = _splitter(cv, n_rows, rows, groups)
    try:
        checked = check_cv(splitter, labels, classifier=stratified)
        pairs = checked.split(np.empty((len(rows), 0)), labels, groups)
        folds = [_fold(train, test, rows) for train, test in pairs]
    except (ValueError, TypeError) as error:
        raise ParameterError(
            f"cv is {brief(cv)}, which makes no folds of these rows: {error}"
        ) from None
    for number, fold in enumerate(folds):
        n_trained = len(rows) - len(fold.test) if fold.train is None else len(fold.train)
        if not len(fold.test) or not n_trained:
            what = "train on" if len(fold.test) else "test"
            raise ParameterError(f"fold {number} has no rows to {what}; give other folds")
    if not folds:
        raise ParameterError(
            f"cv is {brief(cv)}, which makes no folds; give a number of at least 2"
        )
    return folds


def _splitter(cv: Any, n_rows: int, rows: I8, groups: Any) -> Any:
    """Return what `check_cv` takes."""
    if isinstance(cv, numbers.Integral):
        return cv if groups is None else GroupKFold(int(cv))
    if hasattr(cv, "split"):
        return cv
    cv = list(cv) if not hasattr(cv, "__array__") else np.asarray(cv)
    if len(cv) and isinstance(cv[0], numbers.Real):
        values = np.asarray(cv)
        if values.shape != (n_rows,):
            raise DataError(f"cv has {len(values)} fold numbers; there are {n_rows} rows")
        if values.dtype.kind == "f" and (values == np.floor(values)).all():
            values = values.astype(np.int64)
        if values.dtype.kind not in "iu":
            raise ParameterError(
                f"cv has fold numbers of type {values.dtype}; they must be whole numbers, -1 for "
                "rows that are not tested"
            )
        return PredefinedSplit(values[rows])
    return cv


def _fold(train: Any, test: Any, rows: I8) -> Fold:
    """Make a fold of a pair of scikit-learn's; its indices are places in `rows`."""
    trained, tested = (np.sort(rows[np.asarray(part)]) for part in (train, test))
    is_rest = len(trained) + len(tested) == len(rows) and not np.isin(tested, trained).any()
    return Fold(tested, None if is_rest else trained)


def digest_of(folds: Iterable[Fold]) -> str:
    """Hash of folds: equal only for equal splits."""
    hasher = xxhash.xxh3_128()
    for fold in folds:
        for part in fold:
            hasher.update(b"rest" if part is None else np.ascontiguousarray(part, np.int64).data)
    return hasher.hexdigest()


SEED = 0
"""Seed of samples of rows that are not in random order."""
RUNS = 64
"""Runs of neighbours that a sample of shuffled rows has: many in each fold of consecutive rows, and
few enough that most chunks of a large store are not read."""


def sample_rows(source: RowSource, n_rows: int) -> I8:
    """Choose random rows, ascending, (n_rows,) int64; those of a smaller sample are among them.

    Rows that are shuffled already are taken in runs at equal distances: folds may be consecutive
    rows, and the first ones would all be in one of them.

    Parameters
    ----------
    source : RowSource
    n_rows : int
        At most all of them.
    """
    if not source.is_shuffled:
        return np.sort(np.random.default_rng(SEED).permutation(source.n_rows)[:n_rows])
    run = np.arange(RUNS)
    starts = run * (source.n_rows // RUNS) + np.minimum(run, source.n_rows % RUNS)
    sizes = n_rows // RUNS + (run < n_rows % RUNS)
    return np.concatenate(
        [np.arange(start, start + size) for start, size in zip(starts, sizes, strict=True)]
    )

"""The rows of a selection, and its folds: which rows are trained on, and which are tested.

Rows that are not trained on get weight 0, which means that they are not there. Samples of rows are
nested, and spread over all folds.
"""

from __future__ import annotations

import numbers
import warnings
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xxhash
from sklearn.model_selection import GroupKFold, PredefinedSplit, check_cv

from bigsvm.data.row_values import RowValues, in_order_of
from bigsvm.data.sources import as_store
from bigsvm.data.store_part import StorePart
from bigsvm.errors import DataError, ParameterError, brief
from bigsvm.estimators.watching import StoppedByCtrlC, folder_of_checkpoints
from bigsvm.executors.clients import worker_terms
from bigsvm.parameters.formulations import CLASSIFIERS
from bigsvm.report.progress import Display, TrainingProgress
from bigsvm.selection.steps import Steps
from bigsvm.training import events

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from bigsvm.arrays import F8, I8
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.row_values import Order
    from bigsvm.data.store import Store
    from bigsvm.estimators.base import KernelMachine


class Data(NamedTuple):
    """Rows that several fits have in common.

    Attributes
    ----------
    source : RowSource
        (n, d).
    labels : (n,) array or None
        For training; None for one class.
    truth : (n,) array or None
        What predictions are compared with.
    weights : (n,) float64 or None
    """

    source: RowSource
    labels: NDArray[Any] | None
    truth: NDArray[Any] | None
    weights: F8 | None

    @property
    def nbytes(self) -> int:
        """Bytes of the values of rows."""
        arrays = {id(array): array for array in self[1:] if array is not None}
        return sum(array.nbytes for array in arrays.values())


def steps_of(estimator: Any) -> Steps:
    """Take an estimator of bigsvm apart, or a pipeline of scalers before one; others are refused.

    Raises
    ------
    ParameterError
    """
    steps = Steps(estimator)
    machine = steps.machine
    for name in ("checkpoint", "checkpoint_copy"):
        if getattr(machine, name) is not None:
            raise ParameterError(
                f"the estimator has a {name}, which only one fit can use; leave it out, and give "
                "checkpoint beside the estimator"
            )
    if folder_of_checkpoints(machine) is not None:
        raise ParameterError(
            "a CheckpointCallback is set on the estimator; give checkpoint beside the estimator "
            "instead, which keeps the results of finished fits too"
        )
    return steps


def whole_store(X: Any) -> Store | None:
    """Store that `X` is or refers to; refuses chosen rows of one."""
    store = as_store(X)
    if isinstance(store, StorePart):
        raise ParameterError(
            "X is some rows of a store, and folds are made of a whole one; give the store, and the "
            "other rows the weight 0 (sample_weight)"
        )
    return store


def with_order(store: Store, values: Any, order: Order | None) -> Any:
    """Say which order values beside a store have, if they do not say it themselves."""
    if values is None or order is None or isinstance(values, RowValues):
        return values
    return store.row_values(values, order=order)


def make_data(
    estimator: KernelMachine,
    X: Any,
    y: Any,
    sample_weight: Any,
    client: Any,
) -> Data:
    """Open the rows that all fits have in common; the estimator learns the names of columns.

    The arguments are those of `KernelMachine.fit`.

    Raises
    ------
    DataError, ParameterError, MemoryBudgetError, StoreError
    """
    source, labels, weights = estimator._training_data(X, y, sample_weight, None, client)
    truth = labels
    if labels is None:
        store = whole_store(X)
        if store is not None:
            truth = store.labels() if y is None else in_order_of(store.attributes, y, "y")
        elif y is not None:
            truth = np.asarray(y)
    if weights is not None and len(weights) != source.n_rows:
        raise DataError(f"sample_weight has {len(weights)} values; there are {source.n_rows} rows")
    if estimator._formulation in CLASSIFIERS and labels is not None and len(labels):
        if not (labels != labels[0]).any():  # else each fit of each point would say so
            raise DataError(f"y has one class only ({labels[0]}); two are needed, or more")
    return Data(source, labels, truth, weights)


@contextmanager
def hooks_of(
    estimator: KernelMachine,
    client: Any,
    worker_memory: int | str | None,
    worker_wait: float | None,
) -> Iterator[events.Hooks]:
    """Give the hooks of fits: Ctrl-C stops them, and `verbose` says whether progress is shown."""
    terms = worker_terms(client, worker_memory, worker_wait)
    with StoppedByCtrlC() as stop, ExitStack() as stack:
        show: events.Listener = events.ignore
        if estimator.verbose:
            display = stack.enter_context(Display(quiet=False, takes_warnings=False))
            show = TrainingProgress(display)

        def listener(event: events.Event) -> None:
            if isinstance(event, events.WARNINGS):
                warnings.warn(event.sentence, UserWarning, stacklevel=2)
            else:
                show(event)

        yield events.Hooks(
            listener=listener, interrupted=stop.requested, client=client, terms=terms
        )


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


def labels_of(labels: NDArray[Any], weights: F8) -> NDArray[Any]:
    """Give rows without weight a class that is trained, as theirs may not be there."""
    present = labels[weights > 0]
    absent = np.isin(labels, present, invert=True)
    return np.where(absent, present[0], labels) if absent.any() else labels


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
    labels : (n_rows,) array or None
    weights : (n_rows,) float64 or None
        Rows of weight 0 are neither trained on nor tested.
    groups : (n_rows,) array or None
        Rows of one group are in one fold.

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
    """
    if not source.is_shuffled:
        return np.sort(np.random.default_rng(SEED).permutation(source.n_rows)[:n_rows])
    run = np.arange(RUNS)
    starts = run * (source.n_rows // RUNS) + np.minimum(run, source.n_rows % RUNS)
    sizes = n_rows // RUNS + (run < n_rows % RUNS)
    return np.concatenate(
        [np.arange(start, start + size) for start, size in zip(starts, sizes, strict=True)]
    )

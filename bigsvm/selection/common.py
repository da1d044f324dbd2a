"""What the fits of a selection have in common: an estimator of bigsvm, and rows."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.data.row_values import in_order_of
from bigsvm.data.sources import as_store
from bigsvm.data.store_part import StorePart
from bigsvm.errors import DataError, ParameterError
from bigsvm.estimators.base import KernelMachine
from bigsvm.estimators.watching import folder_of_checkpoints
from bigsvm.report.progress import Display, TrainingProgress
from bigsvm.training import events

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from bigsvm.arrays import F8
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.store import Store


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


def check_estimator(estimator: Any) -> KernelMachine:
    """Refuse estimators of other packages.

    Raises
    ------
    ParameterError
    """
    if not isinstance(estimator, KernelMachine):
        raise ParameterError(
            f"estimator is a {type(estimator).__name__}; it must be one of bigsvm's, as folds are "
            "made by weights: use sklearn.model_selection for pipelines and other estimators"
        )
    for name in ("checkpoint", "checkpoint_copy"):
        if getattr(estimator, name) is not None:
            raise ParameterError(
                f"the estimator has a {name}, which only one fit can use; leave it out, and give "
                "checkpoint beside the estimator"
            )
    if folder_of_checkpoints(estimator) is not None:
        raise ParameterError(
            "a CheckpointCallback is set on the estimator; give checkpoint beside the estimator "
            "instead, which keeps the results of finished fits too"
        )
    return estimator


def whole_store(X: Any) -> Store | None:
    """Store that `X` is or refers to; refuses chosen rows of one.

    Raises
    ------
    ParameterError
    """
    store = as_store(X)
    if isinstance(store, StorePart):
        raise ParameterError(
            "X is some rows of a store, and folds are made of a whole one; give the store, and the "
            "other rows the weight 0 (sample_weight)"
        )
    return store


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
    return Data(source, labels, truth, weights)


@contextmanager
def watched(estimator: KernelMachine) -> Iterator[events.Listener]:
    """Give what listens to the fits: it shows progress if the estimator's `verbose` says so."""
    with Display(quiet=not estimator.verbose, takes_warnings=False) as display:
        show = TrainingProgress(display)

        def listener(event: events.Event) -> None:
            if isinstance(event, events.WARNINGS):
                warnings.warn(event.sentence, UserWarning, stacklevel=2)
            else:
                show(event)

        yield listener

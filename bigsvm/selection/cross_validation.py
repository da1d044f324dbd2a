"""Cross-validation on one data set of any size."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from bigsvm.errors import AdviceWarning, ParameterError
from bigsvm.selection.fits import FoldFits
from bigsvm.selection.folds import hooks_of, steps_of
from bigsvm.selection.lines import trains_together
from bigsvm.selection.points import Line
from bigsvm.selection.record import FoldFit, advice_of, fit_warnings
from bigsvm.selection.tasks import fit_lines

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from bigsvm.data.row_values import Order
    from bigsvm.estimators.base import KernelMachine


def cross_validate(
    estimator: Any,
    X: Any,
    y: Any = None,
    *,
    cv: Any = 5,
    scoring: Any = None,
    groups: Any = None,
    sample_weight: Any = None,
    y_order: Order | None = None,
    return_train_score: bool = False,
    return_estimator: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    client: Any = None,
    worker_memory: int | str | None = None,
    worker_wait: float | None = None,
) -> dict[str, Any]:
    """Fit and score an estimator by cross-validation, on a store of any size or on arrays.

    A fold gives weight 0 to the rows that it tests, so that no rows are copied. What depends on
    the training data, such as ``gamma="scale"`` and ``class_weight="balanced"``, is that of the
    training rows of each fold. Predictions of test rows are streamed.

    Parameters
    ----------
    estimator : estimator of bigsvm, or a pipeline
        It is not changed. Before the estimator a pipeline of scikit-learn may have
        `StandardScaler`, `MinMaxScaler` and `MaxAbsScaler`. Each fold fits them on the rows that it
        trains on, block by block. `max_time` and `max_iter` limit each fit. With `verbose` the
        progress of each fit is shown, and callbacks are called for each fit.
    X, y, sample_weight, client, worker_memory, worker_wait
        As its ``fit`` takes them; `y` also where a one-class estimator is compared with labels.
        Rows of weight 0 are neither trained on nor tested. Weights have no part in the scores.
        With a client each fold is a task for a worker, if its rows and the memory of its run fit
        there. Otherwise, and where one run trains all folds, workers do the passes.
    cv : int, splitter of scikit-learn, (n_rows,) integers, or iterable of pairs
        A number of folds, stratified for classifiers, without shuffling, as in scikit-learn; the
        rows of a store are shuffled already, unless it was made without. Or the number of the fold
        that tests each row, -1 for none. Or arrays of the rows that are trained on and tested.
    scoring : str, callable, list or dict, optional
        As in scikit-learn; by default the accuracy or R², or of `OneClassSVM` ``"consistency"``, as
        `SearchCV` has it.
    groups : (n_rows,) array or RowValues, optional
        Rows of one group are in one fold.
    y_order : {"input", "store"}, optional
        Order of `y`, `sample_weight`, `groups` and fold numbers beside a shuffled store, which are
        refused without, unless they are `RowValues`.
    return_train_score : bool
        Whether the rows that were trained on are scored too.
    return_estimator : bool
        Whether the fitted estimators are returned. Folds are then no tasks of a cluster.
    checkpoint : path, optional
        Folder on a local disk for the results of finished fits, and the state of the fit under way.
        The same call goes on from it, and has the same scores.

    Returns
    -------
    dict
        What scikit-learn's ``cross_validate`` returns: ``"test_score"``, (n_folds,) float64, or a
        key for each of several scores, ``"fit_time"`` and ``"score_time"`` in seconds,
        ``"train_score"`` and ``"estimator"`` if asked for. Besides ``"mean_test_score"``,
        ``"std_test_score"``, and ``"certificate"``, a list of dict: that of each fit.

    Raises
    ------
    ParameterError, DataError, MemoryBudgetError, StoreError, CheckpointError, ClusterError
    KeyboardInterrupt
        Ctrl-C, within about a second.

    See Also
    --------
    SearchCV : Choose parameters by cross-validation.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> import bigsvm
    >>> X, y = make_moons(200, noise=0.1, random_state=0)
    >>> result = bigsvm.cross_validate(bigsvm.SVC(gamma=1), X, y, cv=3)
    >>> len(result["test_score"]), bool(result["mean_test_score"] > 0.9)
    (3, True)
    """
    steps = steps_of(estimator)
    with hooks_of(steps.machine, client, worker_memory, worker_wait) as hooks:
        if return_estimator and checkpoint is not None:
            raise ParameterError(
                "return_estimator is True, but with checkpoint only the results of finished fits "
                "are kept; leave one out"
            )
        fits = FoldFits(
            steps, X, y, sample_weight, cv=cv, groups=groups, y_order=y_order,
            scoring=scoring, hooks=hooks, with_train_scores=return_train_score,
        )  # fmt: skip
        with fits.recorded(checkpoint):
            fitted = folds_fitted(fits, keep_estimators=return_estimator)
    results = [result for result, _ in fitted]
    for sentence in fit_warnings(results, steps.machine._formulation):
        warnings.warn(sentence, ConvergenceWarning, stacklevel=2)
    if (advice := advice_of(results)) is not None:
        warnings.warn(advice, AdviceWarning, stacklevel=2)
    table = table_of(results)
    if return_estimator:
        machines = [machine for _, machine in fitted if machine is not None]
        table["estimator"] = [fits.as_asked(machine, k) for k, machine in enumerate(machines)]
    return table


def folds_fitted(
    fits: FoldFits,
    *,
    keep_estimators: bool = False,
    on_fit: Callable[[int, FoldFit], None] = lambda *_: None,
) -> list[tuple[FoldFit, KernelMachine | None]]:
    """Fit all folds, on the workers of a cluster where they fit; returns them in their order.

    Workers return no estimators, so `keep_estimators` has folds fitted here. `on_fit` gets the
    number of each fold that is finished, and its result.
    """
    numbers = list(range(len(fits.folds)))
    lines = [Line([{}], numbers)]
    if not (keep_estimators or trains_together(fits, lines[0])):
        lines = [Line([{}], [number]) for number in numbers]
    fitted: dict[int, tuple[FoldFit, KernelMachine | None]] = {}
    for _, fit in fit_lines(
        fits, lines, name="bigsvm-fold", raises=True, as_tasks=not keep_estimators
    ):
        assert isinstance(fit.result, FoldFit)
        fitted[fit.fold] = fit.result, fit.estimator if keep_estimators else None
        on_fit(fit.fold, fit.result)
    return [fitted[number] for number in numbers]


def table_of(results: Sequence[FoldFit]) -> dict[str, Any]:
    """Gather the results of all folds as scikit-learn's ``cross_validate`` does."""
    table: dict[str, Any] = {
        "fit_time": np.array([result.fit_seconds for result in results]),
        "score_time": np.array([result.score_seconds for result in results]),
    }
    for which, scores in (
        ("test", [result.scores for result in results]),
        ("train", [result.train_scores for result in results]),
    ):
        for name in scores[0]:
            values = np.array([of_fold[name] for of_fold in scores])
            table[f"{which}_{name}"] = values
            table[f"mean_{which}_{name}"] = float(values.mean())
            table[f"std_{which}_{name}"] = float(values.std())
    table["certificate"] = [result.certificate for result in results]
    return table

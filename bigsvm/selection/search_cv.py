"""SearchCV: the best parameters by cross-validation, on one data set of any size."""

from __future__ import annotations

import logging
import math
import time
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from bigsvm.errors import AdviceWarning, ParameterError, brief
from bigsvm.estimators.bases import BaseEstimator

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from bigsvm.arrays import F8
    from bigsvm.data.row_values import Order
    from bigsvm.estimators.base import KernelMachine
    from bigsvm.selection.grid import Evaluated
    from bigsvm.selection.record import FoldFit
    from bigsvm.selection.steps import Steps

logger = logging.getLogger("bigsvm")


def _has(name: str) -> Any:
    """Whether the estimator has a method."""

    def check(search: SearchCV) -> bool:
        getattr(getattr(search, "best_estimator_", search.estimator), name)
        return True

    return available_if(check)


class SearchCV(BaseEstimator):
    """Search the points of a grid for the best parameters by cross-validation.

    Like scikit-learn's ``GridSearchCV``, for stores of any size: folds give weight 0 to the rows
    that they test, so that no rows are copied, and predictions are streamed. Points that differ in
    C alone are fitted from the smallest C on, each from the model of the one before.

    Parameters
    ----------
    estimator : estimator of bigsvm, or a pipeline
        It is not changed. `max_time` and `max_iter` limit each fit. With `verbose` the progress of
        each fit is shown, and callbacks are called for each fit. Before the estimator a pipeline of
        scikit-learn may have `StandardScaler`, `MinMaxScaler` and `MaxAbsScaler`. Each fold fits
        them on the rows that it trains on, block by block; those of weight 0 are left out, and
        otherwise weights do not count.
    param_grid : dict or list of dict, optional
        Values to try by the names of parameters, as in scikit-learn, such as ``svc__C`` in a
        pipeline; with `n_iter` distributions too. By default LIBSVM's grid of C and gamma, and nu
        where there is one: every second value on a sample of the rows, then what is between the
        best, half steps at the end. Where the best point is on the edge, the grid grows there, by
        three steps in all. The log says so of values that are given.
    n_iter : int, optional
        How many points are drawn from `param_grid`, as ``RandomizedSearchCV`` does: its values may
        be frozen distributions of ``scipy.stats``.
    random_state : int, RandomState or None
        Of these points; with a `checkpoint` it must be an int.
    scoring : str, callable, list or dict, optional
        As in scikit-learn; by default the accuracy or R², or of `OneClassSVM` ``"consistency"``,
        which takes no labels: the number of support vectors of models that leave no more tested
        rows outside than nu says, and three standard deviations (Tax and Müller 2004). Others have
        no score, NaN. The default grid then leaves nu as it is.
    refit : bool or str
        Whether the best parameters are fitted on all rows at the end; with several scores, the name
        of the one that decides.
    cv : int, splitter, (n_rows,) integers, or iterable of pairs
        As `cross_validate` takes it.
    halving : int, optional
        Successive halving (Jamieson and Talwalkar 2016) by this factor: all points are first fitted
        on a small sample of the rows, and the best of them go on to samples that are larger by the
        factor, at last to all rows. Samples are nested; all rows of a fold are tested. Without
        `param_grid` it is 3.
    warm_starts : bool
        Whether fits start from the model of a smaller C.
    error_score : "raise" or nan
        Whether parameters that training refuses end the search, or have no score.
    return_train_score : bool
        Whether the rows that were trained on are scored too.
    checkpoint : path, optional
        Folder on a local disk for the results of finished fits, and the state of the fit under way.
        The same search goes on from it, and has the same scores.

    Attributes
    ----------
    best_params_ : dict
    best_score_ : float
        Mean over the folds.
    best_index_ : int
    best_estimator_ : estimator or Pipeline
        Fitted on all rows, with `refit`. The scalers of a pipeline take the containers that
        scikit-learn takes; methods of the search take stores and others too.
    cv_results_ : dict
        As in scikit-learn; with `halving` there is a place for each round of a point:
        ``"iter"`` tells which it is, ``"n_resources"`` how many rows it had. ``"n_iter"`` is the
        mean number of pair steps.
    n_splits_ : int
    refit_time_ : float
        In seconds.
    classes_, n_features_in_
        Those of `best_estimator_`.

    See Also
    --------
    cross_validate : The scores of one choice.
    SearchDisplay : A picture of the scores.
    C_path : Models of several `C`.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> import bigsvm
    >>> X, y = make_moons(200, noise=0.2, random_state=0)
    >>> grid = {"C": [0.1, 1, 10], "gamma": [0.1, 1]}
    >>> search = bigsvm.SearchCV(bigsvm.SVC(), grid, cv=3).fit(X, y)
    >>> sorted(search.best_params_), search.best_score_ > 0.9
    (['C', 'gamma'], True)
    """

    def __init__(
        self,
        estimator: Any,
        param_grid: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        *,
        n_iter: int | None = None,
        random_state: Any = None,
        scoring: Any = None,
        refit: bool | str = True,
        cv: Any = 5,
        halving: int | None = None,
        warm_starts: bool = True,
        error_score: str | float = math.nan,
        return_train_score: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.estimator: Any = estimator
        self.param_grid: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = param_grid
        self.n_iter: int | None = n_iter
        self.random_state: Any = random_state
        self.scoring: Any = scoring
        self.refit: bool | str = refit
        self.cv: Any = cv
        self.halving: int | None = halving
        self.warm_starts: bool = warm_starts
        self.error_score: str | float = error_score
        self.return_train_score: bool = return_train_score
        self.checkpoint: str | os.PathLike[str] | None = checkpoint

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        groups: Any = None,
        y_order: Order | None = None,
        client: Any = None,
        worker_memory: int | str | None = None,
        worker_wait: float | None = None,
    ) -> Self:
        """Search.

        Parameters
        ----------
        X, y, sample_weight, y_order, client, worker_memory, worker_wait
            As the ``fit`` of the estimator takes them. With a client the points that differ in C
            alone, with all folds, are a task for a worker, if their rows and the memory of a fit
            fit there; otherwise they are fitted one after the other, and workers do the passes.
        groups : (n_rows,) array or RowValues, optional
            Rows of one group are in one fold.

        Returns
        -------
        self

        Raises
        ------
        ParameterError, DataError, MemoryBudgetError, StoreError, CheckpointError, ClusterError
        KeyboardInterrupt
            Ctrl-C, within about a second.
        """
        # Imported here, as training takes Numba, and making a search does not.
        from bigsvm.selection.fits import FoldFits
        from bigsvm.selection.folds import hooks_of, steps_of
        from bigsvm.selection.grid import Rules, best_of, edge_advice, edges_of, mean_score
        from bigsvm.selection.record import advice_of, fit_warnings

        steps = steps_of(self.estimator)
        with hooks_of(steps.machine, client, worker_memory, worker_wait) as hooks:
            search = self._search_of(steps)
            fits = FoldFits(
                steps, X, y, sample_weight, cv=self.cv, groups=groups,
                y_order=y_order, scoring=self.scoring, hooks=hooks,
                with_train_scores=self.return_train_score,
            )  # fmt: skip
            score = self._deciding_score()
            rules = Rules(
                score, self.halving, warm_starts=self.warm_starts, checkpoint=self.checkpoint,
                raises=self.error_score == "raise",
            )  # fmt: skip
            evaluated = search(fits, rules=rules)
        for sentence in fit_warnings(fits_of(evaluated), steps.machine._formulation):
            warnings.warn(sentence, ConvergenceWarning, stacklevel=2)
        in_rounds = self.halving is not None or self.param_grid is None
        self.cv_results_: dict[str, Any] = results_of(evaluated, halved=in_rounds)
        self.n_splits_: int = len(fits.folds)
        self.best_index_: int = best_of(evaluated, score)
        best = evaluated[self.best_index_]
        self.best_params_: dict[str, Any] = best.parameters
        self.best_score_: float = mean_score(best.fits, score)
        # Of points that are drawn one is the largest by chance.
        edges = [] if self.n_iter is not None else edges_of(evaluated, score)
        if (edge := edge_advice(edges)) is not None:
            logger.warning(edge)
        if self.refit:
            started = time.perf_counter()
            self._machine, fitted = steps.fitted(
                self.best_params_, X, y, sample_weight, client=client,
                worker_memory=worker_memory, worker_wait=worker_wait, y_order=y_order,
            )  # fmt: skip
            self.best_estimator_: Any = fitted
            self.refit_time_: float = time.perf_counter() - started
        elif (advice := advice_of([fit for fit in best.fits if fit is not None])) is not None:
            warnings.warn(advice, AdviceWarning, stacklevel=2)
        return self

    def _search_of(self, steps: Steps) -> Callable[..., list[Evaluated]]:
        """Return what fits the points, called with the folds and the rules."""
        from bigsvm.selection.grid import candidates_of, searched

        if self.param_grid is None:
            if self.n_iter is not None:
                raise ParameterError(
                    "n_iter draws points from the distributions of param_grid, and there is none; "
                    "give it, or leave n_iter out"
                )
            from bigsvm.selection.lattice import lattice_of, searched_further

            return partial(searched_further, lattice=lattice_of(steps))
        if self.n_iter is None:
            return partial(searched, candidates=candidates_of(self.param_grid, steps))
        from bigsvm.selection.draws import drawn_candidates

        drawn = drawn_candidates(
            self.param_grid, steps, n_iter=self.n_iter, random_state=self.random_state,
            is_recorded=self.checkpoint is not None,
        )  # fmt: skip
        return partial(searched, candidates=drawn)

    def _deciding_score(self) -> str:
        """Name the score that decides."""
        if not isinstance(self.scoring, list | tuple | set | dict):
            from bigsvm.selection.scores import SCORE

            return SCORE
        if self.refit not in self.scoring:
            raise ParameterError(
                f"refit is {brief(self.refit)}, and there are several scores; name the one that "
                f"decides: {', '.join(sorted(map(str, self.scoring)))}"
            )
        return str(self.refit)

    def _best(self) -> KernelMachine:
        """Return the machine of the best estimator, which scales the rows that it predicts."""
        check_is_fitted(self, "best_estimator_")
        return self._machine

    @property
    def classes_(self) -> Any:
        """Classes of the best estimator."""
        return self._best().classes_

    @property
    def n_features_in_(self) -> int:
        """Columns of the training data."""
        return int(self._best().n_features_in_)

    @_has("predict")  # type: ignore[untyped-decorator]  # scikit-learn has no types
    def predict(self, X: Any) -> Any:
        """Predictions of the best estimator."""
        return self._best().predict(X)

    @_has("decision_function")  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Any:
        """Values of the best estimator's functions."""
        return self._best().decision_function(X)

    @_has("predict_proba")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Any:
        """Probabilities by the best estimator."""
        return self._best().predict_proba(X)

    @_has("score")  # type: ignore[untyped-decorator]
    def score(self, X: Any, y: Any = None) -> float:
        """Accuracy or R² of the best estimator; without `y` the labels of the store are used."""
        return float(self._best().score(X, y))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        of_estimator = self.estimator.__sklearn_tags__()
        tags.estimator_type = of_estimator.estimator_type
        tags.classifier_tags = of_estimator.classifier_tags
        tags.regressor_tags = of_estimator.regressor_tags
        tags.input_tags = of_estimator.input_tags
        return tags


def fits_of(evaluated: Sequence[Evaluated]) -> list[FoldFit]:
    """Return the fits of all points, without those that could not be trained."""
    return [fit for point in evaluated for fit in point.fits if fit is not None]


def results_of(evaluated: Sequence[Evaluated], *, halved: bool) -> dict[str, Any]:
    """Gather results as scikit-learn's ``cv_results_``."""

    def values_of(field: str, name: str | None = None) -> F8:
        """Return a value of each fit, (points, folds); NaN where there is no fit."""

        def value(fit: FoldFit | None) -> Any:
            if fit is None:
                return math.nan
            found = getattr(fit, field)
            return found if name is None else found[name]

        return np.array([[value(fit) for fit in point.fits] for point in evaluated])

    table: dict[str, Any] = {}
    for name in ("fit", "score"):
        seconds = values_of(f"{name}_seconds")
        table[f"mean_{name}_time"], table[f"std_{name}_time"] = seconds.mean(1), seconds.std(1)
    for name in sorted({name for point in evaluated for name in point.parameters}):
        column: Any = np.ma.MaskedArray(np.empty(len(evaluated), object), mask=True)
        for row, point in enumerate(evaluated):
            if name in point.parameters:
                column[row] = point.parameters[name]
        table[f"param_{name}"] = column
    table["params"] = [point.parameters for point in evaluated]
    rounds = [point.round for point in evaluated]
    for fit in fits_of(evaluated)[:1]:
        for which, scores in (("test", "scores"), ("train", "train_scores")):
            for name in getattr(fit, scores):
                values = values_of(scores, name)
                for fold, of_fold in enumerate(values.T):
                    table[f"split{fold}_{which}_{name}"] = of_fold
                table[f"mean_{which}_{name}"] = means = values.mean(axis=1)
                table[f"std_{which}_{name}"] = values.std(axis=1)
                if which == "test":
                    table[f"rank_test_{name}"] = _ranks(means, rounds)
    table["n_iter"] = values_of("certificate", "n_iter").mean(axis=1)
    if halved:
        table["iter"] = np.array(rounds)
        table["n_resources"] = np.array([point.n_rows for point in evaluated])
    return table


def _ranks(means: Any, rounds: Sequence[int]) -> Any:
    """Rank by rounds, the last first, and within a round by the mean; equal ones share a rank."""
    keys = [
        (-number, -mean if math.isfinite(mean) else math.inf)
        for number, mean in zip(rounds, means.tolist(), strict=True)
    ]
    return np.array([1 + sum(other < key for other in keys) for key in keys], np.int32)

"""Fits of folds: each trains on the rows of a fold, and is scored at its other rows."""

from __future__ import annotations

import copy
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.base import clone, is_regressor
from sklearn.metrics import check_scoring

from bigsvm.budget import parse_bytes, show_bytes
from bigsvm.data.row_values import RowValues, check_y_order, in_order_of
from bigsvm.data.wrappers import ChosenRows
from bigsvm.duals.crammer_singer import CrammerSinger
from bigsvm.errors import BigsvmError, DataError, MemoryBudgetError, ParameterError, brief
from bigsvm.fit.single import StartError
from bigsvm.kernels import takes_kernel_matrix
from bigsvm.parameters.formulations import CLASSIFIERS
from bigsvm.processors import count_threads
from bigsvm.selection.folds import check_metrics, make_data, make_folds, sample_rows, whole_store
from bigsvm.selection.identity import belongings_of
from bigsvm.selection.record import FoldFit, Record
from bigsvm.selection.saved import FitContent, metric_of
from bigsvm.training.events import Hooks
from bigsvm.training.result import StopReason

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from bigsvm.arrays import F8
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.row_values import Order
    from bigsvm.data.store import Store
    from bigsvm.estimators.base import KernelMachine
    from bigsvm.models import KernelExpansion

SCORE = "score"
"""Name of the only score of a fit."""


class Line(NamedTuple):
    """Points that are fitted one after the other on some folds.

    Attributes
    ----------
    points : list of dict
        Parameters, in ascending order of C.
    folds : list of int
        Numbers of the folds.
    n_rows : int or None
        Train on the rows of each fold in a random sample of this size; smaller samples are parts of
        larger ones. All rows of a fold are tested.
    """

    points: list[dict[str, Any]]
    folds: list[int]
    n_rows: int | None = None

    def key(self, place: int, **fold: int) -> str:
        """Name the fit of a point on a fold in the record; without `fold` the run of all folds."""
        return Record.key(self.points[place], rows=self.n_rows or 0, **fold)


class Fitted(NamedTuple):
    """What a fit of a line has led to.

    Attributes
    ----------
    place, fold : int
        Place of the point in the line, and number of the fold.
    result : FoldFit or BigsvmError
        The error says why it cannot be trained with these parameters.
    estimator : KernelMachine or None
        None if another process has made the fit.
    """

    place: int
    fold: int
    result: FoldFit | BigsvmError
    estimator: KernelMachine | None = None


class FoldFits:
    """Fits of the folds of one data set, one after the other.

    Arguments are those of `cross_validate`, of which `with_train_scores` is the
    `return_train_score`. The estimator has the resources of all fits, and learns the names of
    columns. `memory` is that of a fit in bytes, without what all have in common; `record` keeps
    results while there is one.
    """

    def __init__(
        self,
        estimator: KernelMachine,
        X: Any,
        y: Any,
        sample_weight: Any,
        *,
        cv: Any,
        groups: Any,
        y_order: Order | None,
        scoring: Any,
        hooks: Hooks,
        with_train_scores: bool = False,
    ) -> None:
        self.estimator, self.hooks = estimator, hooks
        self._with_train_scores, self._scoring = with_train_scores, scoring
        check_metrics(scoring)
        try:
            self._scorer = check_scoring(estimator, scoring=scoring)
        except (TypeError, ValueError) as error:
            raise ParameterError(f"scoring is {brief(scoring)}: {error}") from None
        store = whole_store(X)
        fold_numbers = cv if isinstance(cv, RowValues | np.ndarray) else None
        beside_rows = [y, sample_weight, groups, fold_numbers]
        if y_order is not None:
            check_y_order(y_order, beside_rows, beside_store=store is not None)
        if store is not None:
            y, sample_weight, groups, fold_numbers = (
                _with_order(store, values, y_order) for values in beside_rows
            )
            groups = None if groups is None else in_order_of(store.attributes, groups, "groups")
            if fold_numbers is not None:
                cv = in_order_of(store.attributes, fold_numbers, "cv")
        self.data = make_data(estimator, X, y, sample_weight, hooks.client)
        if self.data.truth is None:
            raise DataError("y is None; scores need what predictions are compared with")
        self._is_classifier = estimator._formulation in CLASSIFIERS
        self.folds = make_folds(
            cv, self.data.source.n_rows, self.data.truth, self.data.weights, groups,
            stratified=self._is_classifier,
        )  # fmt: skip
        self._held = self._bytes_in_common()
        self.memory = parse_bytes(self.estimator.memory) - self._held
        self.record: Record | None = None

    @property
    def score_names(self) -> list[str]:
        """Names of the scores, in their order; those of a callable are not known."""
        several = isinstance(self._scoring, list | tuple | set | dict)
        return list(self._scoring) if several else [SCORE]

    def _metrics(self) -> dict[str, str | None] | None:
        """Metric of each score by its name, None of one's own; None if names are not known."""
        scoring = self._scoring
        if isinstance(scoring, dict):
            return {name: metric_of(scorer) for name, scorer in scoring.items()}
        if isinstance(scoring, list | tuple | set):
            return {name: metric_of(name) for name in scoring}
        if scoring is None:
            score: Any = getattr(type(self.estimator), "score", None)
            is_own = not getattr(score, "__module__", "").startswith(("bigsvm.", "sklearn."))
            usual = "r2" if is_regressor(self.estimator) else "accuracy"
            return {SCORE: None if is_own else usual}
        metric = metric_of(scoring)
        return None if metric is None else {SCORE: metric}

    def _bytes_in_common(self) -> int:
        """Bytes that all fits have in common: labels, weights, folds and predictions.

        They are refused if they leave nothing for a fit.
        """
        memory, n_rows = parse_bytes(self.estimator.memory), self.data.source.n_rows
        held = self.data.nbytes + sum(fold.nbytes for fold in self.folds) + 16 * n_rows
        if held >= memory:
            raise MemoryBudgetError(
                f"memory is {show_bytes(memory)}, but labels, weights and folds of {n_rows} rows "
                f"take {show_bytes(held)}; give at least {show_bytes(2 * held)}"
            )
        return held

    @contextmanager
    def recorded(
        self,
        directory: str | os.PathLike[str] | None,
        search: Mapping[str, str] | None = None,
        searched: Sequence[str] = (),
    ) -> Iterator[None]:
        """Keep the results of fits in a folder for a while, and take those that it has.

        Besides the data, the folds and the estimator, results belong to a `search`. The parameters
        in `searched` differ from fit to fit.
        """
        if directory is None:
            yield
            return
        belongs_to = belongings_of(
            self.estimator, self.data, self.folds, self._scoring,
            with_train_scores=self._with_train_scores, searched=searched,
        )  # fmt: skip
        belongs_to |= search or {}
        content = FitContent(self._metrics(), with_train_scores=self._with_train_scores)
        with Record(directory, belongs_to, content) as record:
            self.record = record
            try:
                yield
            finally:
                self.record = None

    def fit(
        self,
        line: Line,
        place: int,
        fold: int,
        *,
        start: Fitted | None = None,
        is_start: bool = False,
    ) -> Fitted:
        """Fit and score a point of a line on one fold.

        Parameters
        ----------
        start : Fitted, optional
            A fit of the same line and fold to start from; its model is needed no more.
        is_start : bool
            Whether another fit will start from this one.

        Raises
        ------
        KeyboardInterrupt
            The run was asked to stop; if fits are recorded it was saved.
        ParameterError, DataError, MemoryBudgetError, CheckpointError
        """
        record, key = self.record, line.key(place, fold=fold)
        before = "" if start is None else line.key(start.place, fold=fold)
        earlier = None if record is None else record.result(key)
        if earlier is not None:
            fitted = Fitted(place, fold, earlier)
        else:
            estimator, started = self.prepared(line.points[place], key), time.perf_counter()
            try:
                model = None if start is None else self._model_of(start, before)
                if model is not None and not _can_start(model, estimator):
                    model = None
                self._fit(estimator, *self.training_rows(estimator, fold, line.n_rows), model)
            except StartError as error:
                if record is None or start is None or start.estimator is not None:
                    raise
                raise record.model_damaged(before, error) from error
            seconds = time.perf_counter() - started
            fitted = self.finished(estimator, line, place, fold, seconds, keeps_model=is_start)
        if record is not None and start is not None:
            record.drop_start(before)
        return fitted

    def prepared(self, parameters: Mapping[str, Any], key: str) -> KernelMachine:
        """Return the estimator of a fit, whose checkpoint is in the record under `key`."""
        estimator: KernelMachine = clone(self.estimator)
        return estimator.set_params(**parameters).set_params(
            memory=self.memory,
            checkpoint=None if self.record is None else self.record.run_folder(key),
        )

    def finished(
        self,
        estimator: KernelMachine,
        line: Line,
        place: int,
        number: int,
        seconds: float,
        *,
        keeps_model: bool = False,
        values: F8 | None = None,
    ) -> Fitted:
        """Score an estimator of a fold that has been trained, and record the result.

        Parameters
        ----------
        seconds : float
            What training took.
        keeps_model : bool
            Whether the model is recorded too.
        values : (n_rows,) float64, optional
            Values of the function, as `KernelMachine._knowing` takes them; NaN where not known.
        """
        fold, started = self.folds[number], time.perf_counter()
        scores = self._scores(estimator, fold.test, values)
        scored, train_scores = time.perf_counter() - started, {}
        if self._with_train_scores:
            weights = fold.weights(self.data.weights, self.data.source.n_rows)
            train_scores = self._scores(estimator, np.flatnonzero(weights), values)
        result = FoldFit(scores, train_scores, seconds, scored, dict(estimator.certificate_))
        if self.record is not None:
            key = line.key(place, fold=number)
            self.record.add(key, result, estimator.model_ if keeps_model else None)
        estimator.set_params(memory=self.estimator.memory, checkpoint=None)
        return Fitted(place, number, result, estimator)

    def to_send(self, source: RowSource) -> FoldFits:
        """Return these fits of the rows of `source`, without hooks and record.

        They take the same memory in another process, and count as many threads, so that results are
        the same.
        """
        sent = self.with_hooks(Hooks())
        sent.estimator = clone(self.estimator)
        sent.estimator.set_params(n_jobs=count_threads(self.estimator.n_jobs))
        sent.data, sent.record = self.data._replace(source=source), None
        return sent

    def with_hooks(self, hooks: Hooks) -> FoldFits:
        """Return the same fits with other hooks."""
        others = copy.copy(self)
        others.hooks = hooks
        return others

    def on_all_rows(self, parameters: Mapping[str, Any]) -> KernelMachine:
        """Fit an estimator with these parameters on all rows; errors are those of `fit`."""
        data = self.data
        estimator: KernelMachine = clone(self.estimator)
        estimator.set_params(**parameters).set_params(memory=self.memory)
        self._fit(estimator, data.source, data.labels, data.weights)
        estimator.set_params(memory=self.estimator.memory)
        return estimator

    def training_rows(
        self, estimator: KernelMachine, number: int, n_rows: int | None
    ) -> tuple[RowSource, NDArray[Any] | None, F8]:
        """Rows, labels and weights that an estimator is trained on for a fold, or on a sample."""
        source, labels = self.data.source, self.data.labels
        weights = self.folds[number].weights(self.data.weights, source.n_rows)
        if n_rows is not None and n_rows < source.n_rows:
            if takes_kernel_matrix(estimator.kernel):
                raise ParameterError(
                    "halving fits some of the rows, but the columns of a kernel matrix stand for "
                    "all of them; leave it out"
                )
            rows = sample_rows(source, n_rows)
            source, weights = ChosenRows(source, rows), weights[rows]
            labels = None if labels is None else labels[rows]
        if not weights.any():
            raise DataError(f"the sample has no rows to train on in fold {number}; give more rows")
        if labels is not None and self._is_classifier:
            labels = _labels_of(labels, weights)
        return source, labels, weights

    def _fit(
        self,
        estimator: KernelMachine,
        source: RowSource,
        labels: NDArray[Any] | None,
        weights: F8 | None,
        start: KernelExpansion | None = None,
    ) -> None:
        """Train, with the memory that what all fits have in common leaves."""
        try:
            estimator._fit_rows(source, labels, weights, self.hooks, start)
        except MemoryBudgetError as error:
            raise MemoryBudgetError(
                f"{error}, and {show_bytes(self._held)} more for labels, weights and folds, which "
                "that figure leaves out"
            ) from error
        if estimator.stop_reason_ == StopReason.INTERRUPTED:
            raise KeyboardInterrupt

    def _model_of(self, fitted: Fitted, key: str) -> KernelExpansion | None:
        """Return the model of a fit, from the record if another process has made it."""
        if fitted.estimator is not None:
            return fitted.estimator.model_
        assert self.record is not None
        source, truth = self.data.source, self.data.truth
        assert truth is not None
        # Support vectors are rows, in float64 at most; their coefficients are of all classes.
        per_row = 4 * source.bytes_per_row + 16 * (2 + len(np.unique(truth)))
        most = source.n_rows * per_row + 64 * source.n_columns + (32 << 20)
        return self.record.model(key, most_bytes=most)

    def _scores(
        self, estimator: KernelMachine, rows: NDArray[np.int64], values: F8 | None
    ) -> dict[str, float]:
        truth = self.data.truth
        assert truth is not None
        chosen = ChosenRows(self.data.source, rows)
        of_rows = None if values is None else values[rows]
        if of_rows is not None and np.isnan(of_rows).any():
            of_rows = None
        with estimator._knowing(chosen, of_rows):
            scores = self._scorer(estimator, chosen, truth[rows])
        named = scores if isinstance(scores, dict) else {SCORE: scores}
        return {name: float(score) for name, score in named.items()}


def _with_order(store: Store, values: Any, order: Order | None) -> Any:
    """Say which order values beside a store have, if they do not say it themselves."""
    if values is None or order is None or isinstance(values, RowValues):
        return values
    return store.row_values(values, order=order)


def _can_start(model: KernelExpansion, estimator: KernelMachine) -> bool:
    """Whether training can start from a model: it has one function, or functions of all classes."""
    has_one = model.rule is None or estimator._formulation == CrammerSinger.name
    return has_one and bool(getattr(estimator, "certify", True))


def _labels_of(labels: NDArray[Any], weights: F8) -> NDArray[Any]:
    """Give rows without weight a class that is trained, as theirs may not be there."""
    present = labels[weights > 0]
    absent = np.isin(labels, present, invert=True)
    return np.where(absent, present[0], labels) if absent.any() else labels

"""Fits of folds: each trains on the rows of a fold, and is scored at its other rows."""

from __future__ import annotations

import copy
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone

from bigsvm.budget import parse_bytes, show_bytes
from bigsvm.data.row_values import RowValues, check_y_order, in_order_of
from bigsvm.data.wrappers import ChosenRows
from bigsvm.duals.crammer_singer import CrammerSinger
from bigsvm.errors import DataError, MemoryBudgetError, ParameterError
from bigsvm.fit.single import StartError
from bigsvm.interruption import checked_by
from bigsvm.kernels import takes_kernel_matrix
from bigsvm.parameters.formulations import CLASSIFIERS
from bigsvm.processors import count_threads
from bigsvm.selection.folds import (
    labels_of,
    make_data,
    make_folds,
    sample_rows,
    whole_store,
    with_order,
)
from bigsvm.selection.identity import belongings_of
from bigsvm.selection.points import Fitted
from bigsvm.selection.record import FoldFit, Record
from bigsvm.selection.saved import FitContent
from bigsvm.selection.scores import (
    CONSISTENCY,
    SCORE,
    check_metrics,
    check_weights_count,
    metrics_of,
    names_in,
    scorer_of,
)
from bigsvm.selection.steps import COLUMN_BYTES, FoldScalers, fitted_scalers
from bigsvm.training.events import Hooks
from bigsvm.training.result import StopReason

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from bigsvm.arrays import F8
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.row_values import Order
    from bigsvm.estimators.base import KernelMachine
    from bigsvm.models import KernelExpansion
    from bigsvm.selection.points import Line
    from bigsvm.selection.steps import Steps


class FoldFits:
    """Fits of the folds of one data set, one after the other.

    Arguments are those of `cross_validate`, of which `with_train_scores` is the
    `return_train_score`. `estimator` is the machine of its `steps`; it has the resources of all
    fits, and learns the names of columns. `memory` is that of a fit in bytes, without what all have
    in common; `record` keeps results while there is one.
    """

    def __init__(
        self,
        steps: Steps,
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
        estimator = steps.machine
        self.steps, self.estimator, self.hooks = steps, estimator, hooks
        self._with_train_scores, self._scoring = with_train_scores, scoring
        check_metrics(scoring)
        self._scorer = scorer_of(scoring, estimator)
        store = whole_store(X)
        fold_numbers = cv if isinstance(cv, RowValues | np.ndarray) else None
        beside_rows = [y, sample_weight, groups, fold_numbers]
        if y_order is not None:
            check_y_order(y_order, beside_rows, beside_store=store is not None)
        if store is not None:
            y, sample_weight, groups, fold_numbers = (
                with_order(store, values, y_order) for values in beside_rows
            )
            groups = None if groups is None else in_order_of(store.attributes, groups, "groups")
            if fold_numbers is not None:
                cv = in_order_of(store.attributes, fold_numbers, "cv")
        self.data = make_data(estimator, X, y, sample_weight, hooks.client)
        steps.check_rows(self.data.source)
        names = names_in(scoring, estimator)
        self.is_by_consistency = CONSISTENCY in names
        if self.data.truth is None and names != [CONSISTENCY]:
            raise DataError("y is None; scores need what predictions are compared with")
        check_weights_count(names, self.data.weights)
        self._is_classifier = estimator._formulation in CLASSIFIERS
        self.folds = make_folds(
            cv, self.data.source.n_rows, self.data.truth, self.data.weights, groups,
            stratified=self._is_classifier,
        )  # fmt: skip
        self._held = self._bytes_in_common()
        self.memory = parse_bytes(self.estimator.memory) - self._held
        self.record: Record | None = None
        self._scalers = FoldScalers(steps)

    @property
    def score_names(self) -> list[str]:
        """Names of the scores, in their order; those of a callable are not known."""
        several = isinstance(self._scoring, list | tuple | set | dict)
        return list(self._scoring) if several else [SCORE]

    def _bytes_in_common(self) -> int:
        """Bytes that all fits have in common: labels, weights, folds and predictions.

        They are refused if they leave nothing for a fit.
        """
        memory, n_rows = parse_bytes(self.estimator.memory), self.data.source.n_rows
        held = self.data.nbytes + sum(fold.nbytes for fold in self.folds) + 16 * n_rows
        if self.steps.has_scalers:
            held += len(self.folds) * COLUMN_BYTES * self.data.source.n_columns
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
        if self.is_by_consistency and self.steps.name_of("nu") in searched:
            raise ParameterError(
                f"nu is searched, but {CONSISTENCY} compares the rows outside with it, and any nu "
                "can be kept; give the estimator the share of rows that may be outside, or labels "
                "1 and -1 and another score"
            )
        if directory is None:
            yield
            return
        belongs_to = belongings_of(
            self.estimator, self.data, self.folds, self._scoring,
            with_train_scores=self._with_train_scores,
            searched=list(self.steps.of_machine(dict.fromkeys(searched))),
        )  # fmt: skip
        belongs_to |= self.steps.described()
        belongs_to |= search or {}
        content = FitContent(
            metrics_of(self._scoring, self.estimator), with_train_scores=self._with_train_scores
        )
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
                rows = self.training_rows(estimator, fold, line.n_rows, line.points[place])
                self._fit(estimator, *rows, model)
            except StartError as error:
                if record is None or start is None or start.estimator is not None:
                    raise
                raise record.model_damaged(before, error) from error
            seconds = time.perf_counter() - started
            fitted = self.finished(estimator, line, place, fold, seconds, keeps_model=is_start)
        if record is not None and start is not None:
            record.drop_start(before)
        return fitted

    def at(self, point: Mapping[str, Any]) -> KernelMachine:
        """Return the machine with the parameters of a point, not fitted."""
        machine: KernelMachine = clone(self.estimator)
        return machine.set_params(**self.steps.of_machine(point))

    def prepared(self, parameters: Mapping[str, Any], key: str) -> KernelMachine:
        """Return the estimator of a fit, whose checkpoint is in the record under `key`."""
        return self.at(parameters).set_params(
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
        sent._scalers = FoldScalers(self.steps)
        return sent

    def with_hooks(self, hooks: Hooks) -> FoldFits:
        """Return the same fits with other hooks."""
        others = copy.copy(self)
        others.hooks = hooks
        return others

    def on_all_rows(self, parameters: Mapping[str, Any]) -> KernelMachine:
        """Fit an estimator with these parameters on all rows; errors are those of `fit`."""
        data = self.data
        estimator = self.at(parameters).set_params(memory=self.memory)
        with self._interrupted():
            scalers = self.steps.scalers_at(parameters)
            _, source = fitted_scalers(scalers, data.source, data.weights)
        self._fit(estimator, source, data.labels, data.weights)
        estimator.set_params(memory=self.estimator.memory)
        return estimator

    def training_rows(
        self,
        estimator: KernelMachine,
        number: int,
        n_rows: int | None,
        point: Mapping[str, Any],
    ) -> tuple[RowSource, NDArray[Any] | None, F8]:
        """Rows, labels and weights that an estimator is trained on for a fold, or on a sample.

        The rows are scaled where the steps of the point have scalers.
        """
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
            labels = labels_of(labels, weights)
        if self.steps.has_scalers:
            with self._interrupted():
                _, source = self._scalers.fitted(number, source, weights, point)
        return source, labels, weights

    def as_asked(self, machine: KernelMachine, number: int) -> Any:
        """Return the fitted estimator of a fold as the caller has it: a pipeline, if it is one."""
        weights = self.folds[number].weights(self.data.weights, self.data.source.n_rows)
        scalers, _ = self._scalers.fitted(number, self.data.source, weights, {})
        return self.steps.fitted_pipeline(machine, scalers, {})

    @contextmanager
    def _interrupted(self) -> Iterator[None]:
        """Let what asks the run to end, end passes over the rows too."""

        def check() -> None:
            if self.hooks.interrupted():
                raise KeyboardInterrupt

        with checked_by(check):
            yield

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
        n_classes = 0 if truth is None else len(np.unique(truth))
        # Support vectors are rows, in float64 at most; their coefficients are of all classes.
        per_row = 4 * source.bytes_per_row + 16 * (2 + n_classes)
        most = source.n_rows * per_row + 64 * source.n_columns + (32 << 20)
        return self.record.model(key, most_bytes=most)

    def _scores(
        self, estimator: KernelMachine, rows: NDArray[np.int64], values: F8 | None
    ) -> dict[str, float]:
        truth = self.data.truth
        chosen = ChosenRows(self.data.source, rows)
        of_rows = None if values is None else values[rows]
        if of_rows is not None and np.isnan(of_rows).any():
            of_rows = None
        with estimator._knowing(chosen, of_rows):
            scores = self._scorer(estimator, chosen, None if truth is None else truth[rows])
        named = scores if isinstance(scores, dict) else {SCORE: scores}
        return {name: float(score) for name, score in named.items()}


def _can_start(model: KernelExpansion, estimator: KernelMachine) -> bool:
    """Whether training can start from a model: it has one function, or functions of all classes."""
    has_one = model.rule is None or estimator._formulation == CrammerSinger.name
    return has_one and bool(getattr(estimator, "certify", True))

"""An estimator behind scalers, in a pipeline of scikit-learn: what a fold scales its rows by.

A scaler is fitted by `partial_fit`, block by block, on the rows that a fold trains on. Together
the scalers of a pipeline are one affine map of each column, with which the rows are wrapped as
those of a scaled store are. So training streams, and the model scales the rows that it predicts.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from bigsvm.data.scaler import Scaler
from bigsvm.data.wrappers import ScaledRows
from bigsvm.errors import DataError, ParameterError, brief
from bigsvm.estimators.base import KernelMachine
from bigsvm.interruption import checked_between
from bigsvm.kernels import takes_kernel_matrix

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bigsvm.arrays import F8
    from bigsvm.data.row_source import RowSource

METHODS = {StandardScaler: "standard", MinMaxScaler: "minmax", MaxAbsScaler: "maxabs"}
"""Steps that a pipeline may have before its estimator, and what a `Scaler` calls them."""
BLOCK_BYTES = 16 << 20
"""Bytes of blocks in the pass that fits a scaler. They are the same for any memory, as sums have
the bits of their blocks, and a search that goes on must scale as before."""
COLUMN_BYTES = 64
"""Bytes of a column that the scalers of a fold keep: up to eight float64 numbers."""
_SET_ONCE = ("memory", "checkpoint", "checkpoint_copy")
"""Parameters of an estimator that all fits of a search have in common."""


class Steps:
    """An estimator of bigsvm, alone or at the end of a pipeline of scalers.

    Attributes
    ----------
    machine : KernelMachine
        The estimator, not fitted.
    has_scalers : bool
    """

    def __init__(self, estimator: Any) -> None:
        """Take a copy of the estimator; ParameterError says which steps may not be there."""
        self._pipeline = clone(estimator) if isinstance(estimator, Pipeline) else None
        self._prefix = ""
        machine = estimator
        if self._pipeline is not None:
            name, machine = self._pipeline.steps[-1]
            self._prefix = f"{name}__"
        if not isinstance(machine, KernelMachine):
            raise ParameterError(
                f"estimator is a {type(machine).__name__}; it must be one of bigsvm's, or end a "
                "pipeline of scalers: use sklearn.model_selection for others"
            )
        self.machine: KernelMachine = machine if self._pipeline else clone(machine)
        self.has_scalers = self._pipeline is not None and len(self._pipeline.steps) > 1
        self.scalers_at({})

    def name_of(self, parameter: str) -> str:
        """Name of a parameter of the machine, as points have it."""
        return self._prefix + parameter

    def of_machine(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of a point that are the machine's, by the names that it has."""
        n = len(self._prefix)
        return {name[n:]: value for name, value in point.items() if name.startswith(self._prefix)}

    def names(self) -> set[str]:
        """Names of parameters that points may have."""
        own = self.machine.get_params(deep=False).keys() - {*_SET_ONCE}
        names = {self.name_of(name) for name in own}
        for step, scaler in self._before():
            names |= {step, *(f"{step}__{name}" for name in _parameters_of(scaler))}
        return names

    def scalers_at(self, point: Mapping[str, Any]) -> list[Any]:
        """Return the scalers that a point has, not fitted.

        Raises
        ------
        ParameterError
            A step is no scaler that can be fitted block by block, or the kernel takes a matrix.
        """
        if not self.has_scalers:
            return []
        if takes_kernel_matrix(self.of_machine(point).get("kernel", self.machine.kernel)):
            raise ParameterError(
                "the rows are those of a kernel matrix, which have no scale; leave the scalers out"
            )
        steps = self._pipeline_at(point).steps[:-1]
        return [_checked(name, step) for name, step in steps if not _is_nothing(step)]

    def check_rows(self, source: RowSource) -> None:
        """Refuse rows of a scaled store before scalers, DataError."""
        if self.scalers_at({}):
            _check_not_scaled(source)

    def _pipeline_at(self, point: Mapping[str, Any]) -> Any:
        """Return the pipeline with the scalers that a point has."""
        others = {k: v for k, v in point.items() if not k.startswith(self._prefix)}
        try:
            return clone(self._pipeline).set_params(**others)
        except ValueError as error:
            raise ParameterError(f"{brief(others)} cannot be set: {error}") from None

    def described(self) -> dict[str, str]:
        """Describe the scalers, for what results belong to."""
        if self._pipeline is None:
            return {}
        words = [
            (n, type(s).__name__, sorted(_parameters_of(s).items())) for n, s in self._before()
        ]
        return {"scalers": repr(words)}

    def fitted(
        self, point: Mapping[str, Any], X: Any, y: Any, sample_weight: Any, **options: Any
    ) -> tuple[KernelMachine, Any]:
        """Fit the machine and the scalers of a point on all rows.

        The arguments are those of `KernelMachine.fit`. Returns the machine, which scales the rows
        that it predicts, and what `fitted_pipeline` makes of it.
        """
        machine: KernelMachine = clone(self.machine).set_params(**self.of_machine(point))
        scalers = self.scalers_at(point)
        if not scalers:
            machine.fit(X, y, sample_weight, **options)
            return machine, self.fitted_pipeline(machine, [], point)
        client, order = options["client"], options.pop("y_order")
        source, labels, weights = machine._training_data(X, y, sample_weight, order, client)
        fitted, rows = fitted_scalers(scalers, source, weights)
        machine.fit(rows, labels, weights, **options)
        return machine, self.fitted_pipeline(machine, fitted, point)

    def fitted_pipeline(
        self, machine: KernelMachine, scalers: Sequence[Any], point: Mapping[str, Any]
    ) -> Any:
        """Put a fitted machine behind the fitted scalers of a point.

        Without a pipeline it is the machine alone. At the end of one it takes rows that are scaled,
        as scikit-learn gives them to it.
        """
        if self._pipeline is None:
            return machine
        last, left = copy.copy(machine), iter(scalers)
        if scalers:
            last._adopt(replace(machine.model_, scaler=None))
            last._keep_names(None)
            last.n_features_in_ = machine.model_.n_features
        pipeline = self._pipeline_at(point)
        names = [name for name, _ in pipeline.steps]
        steps = [step if _is_nothing(step) else next(left) for _, step in pipeline.steps[:-1]]
        pipeline.steps = list(zip(names, [*steps, last], strict=True))
        return pipeline

    def _before(self) -> list[tuple[str, Any]]:
        """Return the steps before the last, by name."""
        return [] if self._pipeline is None else list(self._pipeline.steps[:-1])


class FoldScalers:
    """Scalers of the folds, fitted; of each fold those that were asked for last are kept."""

    def __init__(self, steps: Steps) -> None:
        self._steps = steps
        self._last: dict[int, tuple[str, list[Any], RowSource]] = {}

    def fitted(
        self, number: int, source: RowSource, weights: F8, point: Mapping[str, Any]
    ) -> tuple[list[Any], RowSource]:
        """Fit the scalers of a point as `fitted_scalers` does, unless they are the last ones.

        `source` has the rows of the fold with this number, or a sample of them.
        """
        scalers = self._steps.scalers_at(point)
        words = f"{source.n_rows} {[(type(one), one.get_params()) for one in scalers]!r}"
        last = self._last.get(number)
        if last is None or last[0] != words:
            last = self._last[number] = words, *fitted_scalers(scalers, source, weights)
        return last[1], last[2]


def fitted_scalers(
    scalers: Sequence[Any], source: RowSource, weights: F8 | None
) -> tuple[list[Any], RowSource]:
    """Fit scalers, each on rows as those before it scale them; also returns the scaled rows.

    Rows without weight are left out; otherwise weights do not count, as in scikit-learn.

    Parameters
    ----------
    scalers : list of scalers of scikit-learn, not fitted
    source : RowSource
        (n, d); not scaled.
    weights : (n,) float64 or None

    Raises
    ------
    ParameterError
        A scaler refuses the rows, such as sparse ones.
    DataError
        The rows are those of a scaled store.
    """
    if not scalers:
        return [], source
    _check_not_scaled(source)
    fitted, rows, scaler = [], source, None
    for one in map(clone, scalers):
        for block in checked_between(rows.blocks(BLOCK_BYTES)):
            values = block.values
            if weights is not None:
                kept = weights[block.start : block.start + values.shape[0]] > 0
                if not kept.all():
                    values = values[kept]
            if values.shape[0]:
                try:
                    one.partial_fit(values)
                except (ValueError, TypeError) as error:
                    raise ParameterError(
                        f"{type(one).__name__} cannot be fitted to these rows: {error}"
                    ) from None
        if source.feature_names is not None:
            one.feature_names_in_ = np.array(source.feature_names, object)
        fitted.append(one)
        scaler = _followed_by(scaler, one)
        rows = ScaledRows(source, scaler)
    return fitted, rows


def _check_not_scaled(source: RowSource) -> None:
    """Refuse rows of a scaled store, DataError, which scalers would scale once more."""
    if source.scaler is not None:
        raise DataError(
            f"the rows are those of a scaled store ({source.scaler.method}), and the pipeline "
            "would scale them once more; leave its scalers out, or give the store from which they "
            "were scaled"
        )


def _followed_by(first: Scaler | None, fitted: Any) -> Scaler:
    """Return a scaler that does what another one does, and then what a fitted one does."""
    n = int(fitted.n_features_in_)
    offset, factor = np.zeros(n), np.ones(n)
    if isinstance(fitted, MinMaxScaler):
        factor = fitted.scale_.astype(np.float64)
        offset = -fitted.min_.astype(np.float64) / factor
    elif fitted.scale_ is not None:
        factor = 1 / fitted.scale_.astype(np.float64)
    if isinstance(fitted, StandardScaler) and fitted.with_mean:
        offset = fitted.mean_.astype(np.float64)
    if first is not None:
        offset, factor = first.offset + offset / first.factor, first.factor * factor
    return Scaler(METHODS[type(fitted)], offset, factor)


def _checked(name: str, step: Any) -> Any:
    """Return a step that is a scaler; ParameterError says why another one cannot be used."""
    if type(step) not in METHODS:
        raise ParameterError(
            f"{name} is a {type(step).__name__}; folds are scaled block by block, by "
            "StandardScaler, MinMaxScaler and MaxAbsScaler: use sklearn.model_selection for "
            "pipelines with other steps"
        )
    if getattr(step, "clip", False):
        raise ParameterError(f"{name} has clip=True, which is no scale of a column; leave it out")
    return step


def _is_nothing(step: Any) -> bool:
    """Whether a step of a pipeline passes rows as they are."""
    return step is None or (isinstance(step, str) and step == "passthrough")


def _parameters_of(step: Any) -> dict[str, Any]:
    return {} if _is_nothing(step) else step.get_params(deep=False)

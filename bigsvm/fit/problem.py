"""From labels or targets and weights to a formulation, everything checked on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

import numpy as np

from bigsvm.duals import ball  # noqa: F401 (adds its formulations to the table)
from bigsvm.duals.box_problem import BOX_PROBLEMS
from bigsvm.duals.formulations import SquaredHingeSVC
from bigsvm.duals.picking import spans
from bigsvm.errors import DataError, ParameterError, brief
from bigsvm.kernels import LARGEST
from bigsvm.models.expansion import label_array
from bigsvm.parameters.formulations import traits_of
from bigsvm.training import events
from bigsvm.working_sets.choice import DIRECT_ROWS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from bigsvm.arrays import F8, I4, I8
    from bigsvm.data.row_source import RowSource
    from bigsvm.duals.box_problem import Formulation
    from bigsvm.duals.formulations import Classification
    from bigsvm.models import KernelExpansion
    from bigsvm.parameters import TrainingParameters

LARGEST_TARGET = LARGEST / 8
"""Largest target: sums of kernel values reach it in float32, and residuals can be subtracted."""
FEW_ROWS = 20
"""Most rows for which many classes cause no warning, as in scikit-learn."""


def make_problem(
    parameters: TrainingParameters,
    n_rows: int,
    labels: NDArray[Any] | None,
    sample_weight: F8 | None,
) -> tuple[list[Any] | None, Formulation]:
    """Make the dual problem, and the two classes where there are classes."""
    weights = check_weights(sample_weight, n_rows)
    classes: list[Any] | None = None
    learns = traits_of(parameters.formulation).learns
    if learns == "rows":
        problem = _make(parameters, n_rows=n_rows, sample_weight=weights)
    elif labels is None:
        raise DataError(f"{parameters.formulation} needs a label or a target for each row")
    elif learns == "targets":
        target = check_targets(labels, n_rows)
        problem = _make(parameters, target=target, sample_weight=weights)
    else:
        found, codes = encode_labels(labels, n_rows)
        classes = found.tolist()
        negative, positive = class_weights(
            parameters.class_weight, found, codes if weights is None else codes[weights > 0]
        )
        problem = make_classification(
            parameters,
            np.where(codes == 1, np.int8(1), np.int8(-1)),
            (float(negative), float(positive)),
            weights,
        )
    problem.check()
    return classes, problem


def make_classification(
    parameters: TrainingParameters,
    sign: NDArray[np.int8],
    class_weight: tuple[float, float],
    sample_weight: F8 | None,
) -> Classification:
    """Make the dual problem of two classes, not checked yet.

    Raises
    ------
    ParameterError, DataError
        A class weight that is none, or a class without a row of positive weight.
    """
    made: Classification = _make(
        parameters, sign=sign, class_weight=class_weight, sample_weight=sample_weight
    )
    return made


def _make(parameters: TrainingParameters, **per_row: Any) -> Any:
    """Make a formulation of its own parameters, and of what is known of the rows."""
    losses = {("c-svc", "squared_hinge"): SquaredHingeSVC.name}
    name = losses.get((parameters.formulation, parameters.loss), parameters.formulation)
    kind = BOX_PROBLEMS[name]
    return kind(**{name: getattr(parameters, name) for name in kind.chosen_names()}, **per_row)


def check_targets(targets: NDArray[Any], n_rows: int) -> F8:
    """Refuse targets that kernel values in float32 cannot reach, or not one a row.

    Returns
    -------
    (n_rows,) float64, contiguous
    """
    _check_length(targets, n_rows)
    try:
        values = np.ascontiguousarray(targets, np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"y must be numbers, for a regression: {error}") from None
    wrong = np.flatnonzero(~(np.abs(values) <= LARGEST_TARGET))
    if len(wrong):
        raise DataError(
            f"y of row {wrong[0]} is {values[wrong[0]]}; targets must be finite numbers of at most "
            f"{LARGEST_TARGET:.3g}, as kernel values are computed in float32: scale the targets"
        )
    return values


def encode_labels(labels: NDArray[Any], n_rows: int) -> tuple[NDArray[Any], NDArray[np.int8]]:
    """Find the two classes, sorted, and which of them each row has, (n,) int8.

    Raises
    ------
    DataError
        As `encode_classes`, or more than two.
    """
    classes = classes_of(labels, n_rows)
    if len(classes) != 2:
        if len(classes) == 1:
            raise DataError(
                f"y has one class only ({classes[0]}); two are needed, or more: give rows of others"
            )
        listed = ", ".join(str(label) for label in classes[:5])
        raise DataError(
            f"Only binary classification is supported. The type of the target is multiclass: y has "
            f"{len(classes)} classes "
            f"({listed}{', …' if len(classes) > 5 else ''}); two are needed"
        )
    return classes, (labels == classes[1]).astype(np.int8)


def are_many_classes(labels: NDArray[Any] | None) -> TypeGuard[NDArray[Any]]:
    """Whether labels have more than two distinct values, without sorting them."""
    if labels is None or labels.ndim != 1 or not len(labels):
        return False
    one, another = labels[:1], labels[:0]
    for span in spans(len(labels)):
        others = labels[span][labels[span] != one]
        another = another if len(another) else others[:1]
        if len(others) and (others != another).any():
            return True
    return False


def encode_classes(labels: NDArray[Any], n_rows: int) -> tuple[NDArray[Any], I4]:
    """Find all classes, sorted, and which of them each row has, (n,) int32.

    Labels are compared as they are: whole numbers of any size, text, booleans.

    Raises
    ------
    DataError
        One class only, labels that have no order, that no model can name or that are targets of a
        regression, or another number of labels than rows.
    """
    classes = classes_of(labels, n_rows)
    if len(classes) < 2:
        raise DataError(f"y has one class only ({classes[0]}); at least two are needed")
    return classes, np.searchsorted(classes, labels).astype(np.int32)


def classes_of(labels: NDArray[Any], n_rows: int) -> NDArray[Any]:
    """Distinct labels, sorted, which are checked as by `encode_classes`."""
    _check_length(labels, n_rows)
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        row = np.flatnonzero(~np.isfinite(labels))[0]
        raise DataError(f"y of row {row} is {labels[row]}, which is no class; give it a label")
    try:
        # Sorted by parts, as a sorted copy of all labels would take as much memory as these.
        parts = [np.unique(labels[span]) for span in spans(n_rows)]
        classes: NDArray[Any] = np.unique(np.concatenate(parts))
    except TypeError as error:
        raise DataError(f"the labels have no order ({error}); give labels of one type") from None
    names = classes.tolist()
    odd = [name for name in names if not isinstance(name, bool | int | float | str)]
    if odd:
        raise DataError(
            f"label {brief(odd[0])} is a {type(odd[0]).__name__}; the classes of a model are bool, "
            "int, float or str"
        )
    if label_array(names).tolist() != names:  # NaN too, which an array of objects may have
        raise DataError(
            f"labels from {brief(names[0])} to {brief(names[-1])} have no type of number in common "
            "that holds them all; give numbers of one type, or text"
        )
    for name in names:
        if isinstance(name, float) and not name.is_integer():
            raise DataError(
                f"the label {name!r} is a target of a regression and no class (Unknown label "
                "type: continuous); train a regression with SVR (--formulation eps-svr), or give "
                "classes as whole numbers or text"
            )
    return classes


class Given(NamedTuple):
    """What a model is trained from, as `train_model` takes it."""

    source: RowSource
    labels: NDArray[Any] | None
    sample_weight: F8 | None
    parameters: TrainingParameters
    hooks: events.Hooks
    start: KernelExpansion | None = None


class Classes(NamedTuple):
    """Labels of many classes, checked, and the weights that come with them.

    Attributes
    ----------
    labels : (k,) array
        Sorted, of the type they were given in.
    codes : (n,) int32
        Place of each row's label in them.
    sample_weight : (n,) float64 or None
    class_weight : (k,) float64
    """

    labels: NDArray[Any]
    codes: I4
    sample_weight: F8 | None
    class_weight: F8

    def sizes(self) -> I8:
        """Rows with a weight of each class, (k,)."""
        weights = self.sample_weight
        counted = self.codes if weights is None else self.codes[weights > 0]
        return np.bincount(counted, minlength=len(self.labels))


def check_every_class(labels: NDArray[Any], class_weight: F8, sizes: I8) -> None:
    """Refuse classes without weight, or without a row that has one; all (k,).

    Raises
    ------
    DataError, ParameterError
        Naming the class.
    """
    for label, size, weight in zip(
        labels.tolist(), sizes.tolist(), class_weight.tolist(), strict=True
    ):
        if not (np.isfinite(weight) and weight >= 0):
            raise ParameterError(f"class {label!r} has weight {weight!r}; it must be > 0")
        if weight == 0 or not size:
            raise DataError(f"no row of class {label!r} has a positive weight; leave its rows out")


def find_classes(given: Given) -> Classes:
    """Find the classes and their weights; the listener is informed if there are very many."""
    parameters, n_rows = given.parameters, given.source.n_rows
    if given.labels is None:
        raise DataError(f"{parameters.formulation} needs a label for each row")
    weights = check_weights(given.sample_weight, n_rows)
    classes, codes = encode_classes(given.labels, n_rows)
    if n_rows > FEW_ROWS and len(classes) > round(n_rows / 2):
        given.hooks.listener(events.ManyClasses(len(classes), n_rows))
    counted = codes if weights is None else codes[weights > 0]
    return Classes(
        classes, codes, weights, class_weights(parameters.class_weight, classes, counted)
    )


def _check_length(values: NDArray[Any], n_rows: int) -> None:
    if values.shape != (n_rows,):
        raise DataError(
            f"y has shape {values.shape}; there are {n_rows} rows, so it must be ({n_rows},)"
        )


def check_weights(weights: F8 | None, n_rows: int) -> F8 | None:
    """Refuse weights that are negative, not finite, all zero, or not one a row.

    Returns
    -------
    (n_rows,) float64, contiguous, or None
    """
    if weights is None:
        return None
    if weights.shape != (n_rows,):
        raise DataError(f"sample_weight has shape {weights.shape}; it must be ({n_rows},)")
    wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
    if len(wrong):
        raise DataError(
            f"sample_weight of row {wrong[0]} is {weights[wrong[0]]}; weights must be finite and "
            ">= 0 (Negative values in data passed to `sample_weight`)"
        )
    if not weights.any():
        raise DataError("sample_weight is zero for every row; at least one must be positive")
    return np.ascontiguousarray(weights, np.float64)


def class_weights(
    given: Mapping[Any, float] | str | None, classes: NDArray[Any], codes: NDArray[np.integer[Any]]
) -> F8:
    """Weight of each class, (k,); ``"balanced"`` as in scikit-learn.

    `codes` are those of the rows with a weight: one without is not there.
    """
    k = len(classes)
    if given is None:
        return np.ones(k)
    if isinstance(given, str):
        if given != "balanced":
            raise ParameterError(
                f"class_weight is {given!r}; it must be 'balanced', a dictionary or None"
            )
        # scikit-learn's formula: importing it takes longer than all other imports of a command.
        balanced: F8 = len(codes) / np.maximum(k * np.bincount(codes, minlength=k), 1)
        return balanced
    labels = classes.tolist()
    known = set(labels)
    unknown = [label for label in given if label not in known]
    others = [label for label in labels if label not in given]
    # A fold may lack a class, as in scikit-learn, but all classes that it has must be named.
    if unknown and others:
        listed = ", ".join(repr(label) for label in labels[:10]) + (", …" if k > 10 else "")
        raise ParameterError(
            f"class_weight names {brief(unknown[0])}, which is no class, and not "
            f"{brief(others[0])}; the classes are [{listed}]: name all of them where rows of some "
            "may be missing"
        )
    return np.array([given.get(label, 1.0) for label in labels], np.float64)


def check_has_others(parameters: TrainingParameters, n_rows: int) -> None:
    """Refuse ``certify=False`` where the first scope is all rows already.

    Not called for balls, which are searched for among samples.
    """
    if parameters.certify or n_rows > DIRECT_ROWS:
        return
    raise ParameterError(
        f"certify is False, but a problem of {n_rows} rows is so small that all are trained on "
        f"from the start, and certified; leave it out below {DIRECT_ROWS + 1} rows"
    )

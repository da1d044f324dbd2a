"""Classes of which no row has a weight: training leaves them out, and the model keeps their names.

Their functions are constant: a pair votes for its other class, and the function of such a class is
less than all others. So they are never predicted, and other programs do not predict them either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from bigsvm.errors import DataError, brief
from bigsvm.fit.problem import are_many_classes, classes_of
from bigsvm.kernels import LARGEST
from bigsvm.parameters.formulations import CLASSIFIERS
from bigsvm.training.events import ClassesLeftOut
from bigsvm.votes import OF_PAIRS, pair_classes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.arrays import F8, I8
    from bigsvm.models import KernelExpansion
    from bigsvm.parameters import TrainingParameters
    from bigsvm.training.events import Listener


class LeftOut(NamedTuple):
    """What is trained on instead of labels of which some have no weight.

    Attributes
    ----------
    labels : (n,) array
        In which rows of classes that are left out, which have no weight, have another label.
    parameters : TrainingParameters
        Without weights of these classes.
    classes : (k,) array
        All of them.
    places : (m,) int64
        Places in it of those that are left out.
    weights : (m,) float64
        Class weights that these were given.
    """

    labels: NDArray[Any]
    parameters: TrainingParameters
    classes: NDArray[Any]
    places: I8
    weights: F8

    def start(self, model: KernelExpansion | None) -> KernelExpansion | None:
        """Return a model to start from without the same classes; other models as they are."""
        if model is None or model.left_out != self.places.tolist() or model.rule in OF_PAIRS:
            return model
        kept = np.delete(np.arange(len(self.classes)), self.places)
        return replace(
            model,
            classes=self.classes[kept].tolist(),
            coefficients=sp.csr_array(sp.csr_array(model.coefficients)[:, kept]),
            intercept=np.asarray(model.intercept)[kept],
            calibration=None,
            provenance={**model.provenance, "left_out": []},
        )

    def in_model(self, model: KernelExpansion) -> KernelExpansion:
        """Give a model of the other classes all of them."""
        k = len(self.classes)
        kept = np.delete(np.arange(k), self.places)
        if model.rule in OF_PAIRS:
            first, second = pair_classes(k)
            is_kept = np.isin(first, kept), np.isin(second, kept)
            intercept = np.where(is_kept[1] & ~is_kept[0], 1.0, -1.0)
            columns = np.flatnonzero(is_kept[0] & is_kept[1])
        else:
            intercept, columns = np.full(k, -LARGEST), kept
        intercept[columns] = model.intercept
        given: Any = sp.csr_array(model.coefficients)
        shape = (given.shape[0], len(intercept))
        trained = dict(model.provenance.get("parameters", {}))
        weights = np.empty(k)
        weights[kept], weights[self.places] = trained["class_weight"], self.weights
        return replace(
            model,
            classes=self.classes.tolist(),
            coefficients=sp.csr_array((given.data, columns[given.indices], given.indptr), shape),
            intercept=intercept,
            certificate=self._certificate(model.certificate, kept, columns, len(intercept)),
            provenance={
                **model.provenance,
                "parameters": {**trained, "class_weight": weights.tolist()},
                "left_out": self.places.tolist(),
            },
        )

    def _certificate(
        self, certificate: Mapping[str, Any], kept: I8, columns: I8, n_functions: int
    ) -> dict[str, Any]:
        """Name the classes of a certificate by their places among all."""

        def named(record: dict[str, Any]) -> dict[str, Any]:
            if "classes" in record:
                return {**record, "classes": kept[record["classes"]].tolist()}
            return {**record, "class": int(kept[record["class"]])}

        renamed = dict(certificate)
        if "n_support_of_classes" in renamed:
            counts = np.zeros(len(self.classes), np.int64)
            counts[kept] = renamed["n_support_of_classes"]
            renamed["n_support_of_classes"] = counts.tolist()
        if "least_sure" in renamed:
            renamed["least_sure"] = named(renamed["least_sure"])
        if "pairs" in renamed:
            pairs = dict(renamed["pairs"])
            pairs["worst"] = [named(pair) for pair in pairs["worst"]]
            if "least_sure" in pairs:
                pairs["least_sure"] = named(pairs["least_sure"])
            if "n_iter_of_pairs" in pairs:
                steps = np.zeros(n_functions, np.int64)
                steps[columns] = pairs["n_iter_of_pairs"]
                pairs["n_iter_of_pairs"] = steps.tolist()
            renamed["pairs"] = pairs
        return renamed


def leave_out(
    parameters: TrainingParameters,
    labels: NDArray[Any] | None,
    sample_weight: F8 | None,
    listener: Listener,
) -> LeftOut | None:
    """Leave out classes of which no row has a weight, where there are more than two classes.

    Returns None where every class has a row with a weight. Two classes have to be left.

    Raises
    ------
    DataError
        The rows with a weight have one class only.
    """
    if parameters.formulation not in CLASSIFIERS or labels is None or sample_weight is None:
        return None
    has_weight = sample_weight > 0
    if has_weight.shape != labels.shape or not 0 < np.count_nonzero(has_weight) < len(labels):
        return None
    if not are_many_classes(labels):
        return None
    classes = classes_of(labels, len(labels))
    codes = np.searchsorted(classes, labels)
    is_kept = np.bincount(codes[has_weight], minlength=len(classes)) > 0
    if is_kept.all():
        return None
    kept, places, names = np.flatnonzero(is_kept), np.flatnonzero(~is_kept), classes.tolist()
    if len(kept) == 1:
        raise DataError(
            f"all rows with a positive weight are of class {brief(names[kept[0]])} (all samples "
            "with positive weights belong to the same class); give rows of another one a weight"
        )
    listener(ClassesLeftOut([names[place] for place in places]))
    given, weights = parameters.class_weight, np.ones(len(places))
    if isinstance(given, Mapping):
        weights[:] = [given.get(names[place], 1.0) for place in places]
        others = {names[place] for place in places}
        remaining = {label: weight for label, weight in given.items() if label not in others}
        parameters = replace(parameters, class_weight=remaining or None)
    return LeftOut(
        np.where(is_kept[codes], labels, classes[kept[0]]).astype(labels.dtype, copy=False),
        parameters, classes, places, weights,
    )  # fmt: skip

"""`load`: from the file of a model to a fitted estimator."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from bigsvm.errors import ModelError, ParameterError
from bigsvm.estimators.crammer_singer import CrammerSingerSVC
from bigsvm.estimators.l2_svc import L2SVC
from bigsvm.estimators.one_class import L2OneClassSVM, OneClassSVM
from bigsvm.estimators.svc import SVC, NuSVC
from bigsvm.estimators.svr import SVR, NuSVR
from bigsvm.interchange.model_file import read_model_file
from bigsvm.kernels import RBF, RBFByColumn
from bigsvm.parameters import FIELDS
from bigsvm.parameters.declaration import check_value, declaration_of
from bigsvm.parameters.names import KERNEL_PARAMETERS

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from bigsvm.estimators.base import KernelMachine
    from bigsvm.models import KernelExpansion
    from bigsvm.parameters import TrainingParameters

ESTIMATORS: dict[str, type[KernelMachine]] = {
    kind._formulation: kind
    for kind in (SVC, NuSVC, L2SVC, CrammerSingerSVC, SVR, NuSVR, OneClassSVM, L2OneClassSVM)
}
OF_THE_MACHINE = frozenset({"cache_dir", "checkpoint", "checkpoint_copy", "n_jobs"})
"""Parameters that keep their defaults: another machine has other folders and processors."""
TRAINED = {declaration_of(field).in_estimators or name: name for name, field in FIELDS.items()}
"""Names of training parameters by those in the estimators."""


def load(
    path: str | os.PathLike[str],
    *,
    n_features: int | None = None,
    range_file: str | os.PathLike[str] | None = None,
) -> KernelMachine:
    """Return the fitted estimator of a model file.

    It predicts as the one that was saved. Its class and its parameters are those that the model was
    trained with; `cache_dir`, `checkpoint`, `checkpoint_copy` and `n_jobs` have their defaults.
    `class_weight` is a dictionary of the weights that training used, and `random_state` the seed.
    `history_` and `working_set_history_` are not in the file.

    A model of LIBSVM becomes `SVC`, `NuSVC`, `OneClassSVM`, `SVR` or `NuSVR`, with its kernel and
    its calibration. What such a file does not tell is None, such as `converged_`, or has its
    default, such as `C`.

    Parameters
    ----------
    path : path or URL
        Written by the method ``save`` of an estimator or of `KernelExpansion`, by ``bigsvm train``,
        or by LIBSVM (not at a URL).
    n_features : int, optional
        Columns of the training data of a model of LIBSVM, which only tells the last column that it
        uses. Without it there is no `n_features_in_`, and rows may have any number of columns from
        that one on, as for ``svm-predict``.
    range_file : path, optional
        File of ``svm-scale -s``; a model of LIBSVM then scales rows by it.

    Returns
    -------
    SVC, NuSVC, L2SVC, CrammerSingerSVC, SVR, NuSVR, OneClassSVM or L2OneClassSVM

    Raises
    ------
    ModelError
        It is no model, damaged, cannot be read or was written by a newer version.
    StoreError
        The URL cannot be read, or not reached for a while; see `open_store`.

    See Also
    --------
    KernelExpansion.load : The model alone, without parameters of an estimator.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> import bigsvm
    >>> X, y = load_iris(return_X_y=True)
    >>> bigsvm.SVC(C=10, gamma=0.1).fit(X, y).save("iris.safetensors")
    >>> classifier = bigsvm.load("iris.safetensors")
    >>> classifier.C, classifier.predict(X[:2]).tolist()
    (10, [0, 0])
    """
    model = read_model_file(path, n_features=n_features, range_file=range_file)
    kind = ESTIMATORS[model.formulation.removesuffix(" squared hinge")]
    try:
        estimator = kind(**_parameters(kind, model))
        estimator._keep_names(model.feature_names)
        estimator._adopt(model)
    except (ParameterError, TypeError, ValueError) as error:
        raise ModelError(f"{path} has parameters that no training has: {error}") from error
    if model.provenance.get("read from") == "libsvm" and n_features is None:
        del estimator.n_features_in_
    return estimator


def estimator_of(parameters: TrainingParameters) -> KernelMachine:
    """Make the estimator, not fitted, that trains with these parameters."""
    kind = ESTIMATORS[parameters.formulation]
    names = [field.name for field in fields(kind) if field.name in TRAINED]
    values = {name: getattr(parameters, TRAINED[name]) for name in names}
    if values["max_time"] == math.inf:
        values["max_time"] = None
    return kind(**values)


def _parameters(kind: type[KernelMachine], model: KernelExpansion) -> dict[str, Any]:
    """Parameters of an estimator, as far as the model knows them; wrong values are refused."""
    trained: Mapping[str, Any] = model.provenance.get("parameters", {})
    known = {name: trained[ours] for name, ours in TRAINED.items() if ours in trained}
    known |= model.provenance.get("estimator", {})
    described = model.kernel.describe()
    name = described.pop("name")
    if name == RBFByColumn.name:
        known |= {"kernel": RBF.name, **described}
    elif name not in KERNEL_PARAMETERS:
        known["kernel"] = model.kernel
    elif known.get("kernel") != name:  # an instance, or a model of LIBSVM
        known |= {"kernel": name, **described}
    known.setdefault("break_ties", model.rule == "ovo-break-ties")
    if model.calibration is not None:
        known["calibration"] = model.calibration.method
    weights = known.get("class_weight")
    if weights is not None:
        unequal = model.classes is not None and any(weight != 1 for weight in weights)
        known["class_weight"] = (
            dict(zip(model.classes or (), weights, strict=True)) if unequal else None
        )
    chosen = {}
    for field in fields(kind):
        if field.name in known and field.name not in OF_THE_MACHINE:
            check_value(field, known[field.name])
            chosen[field.name] = known[field.name]
    return chosen

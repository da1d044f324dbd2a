"""A path of models: one after the other, each from the one before."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from sklearn.base import clone

from bigsvm.budget import parse_bytes
from bigsvm.errors import AdviceWarning, ParameterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bigsvm.data.row_values import Order
    from bigsvm.estimators.base import KernelMachine


WORTH_STARTING = 2.5
"""A start from a model saves kernel values if the model took this many times those of the start."""


def C_path(
    estimator: KernelMachine,
    X: Any,
    y: Any = None,
    *,
    C: Sequence[float],
    sample_weight: Any = None,
    y_order: Order | None = None,
    client: Any = None,
    worker_memory: int | str | None = None,
) -> list[KernelMachine]:
    """Train with several values of C, each starting from the model before; the smallest is first.

    A start costs the kernel values of all rows with the support vectors of that model. Where memory
    is scarce and the model itself took little more, the next one starts anew.

    Parameters
    ----------
    estimator : SVC, L2SVC, CrammerSingerSVC, SVR, NuSVR or L2OneClassSVM
        Has all parameters but C, and is not changed. For more than two classes it must be a
        `CrammerSingerSVC`, as `warm_start` requires.
    X, y, sample_weight, y_order, client, worker_memory
        As its ``fit`` takes them.
    C : sequence of float

    Returns
    -------
    list of estimators
        Fitted, in the order of C. The ``certificate_`` of each has its cost.

    Raises
    ------
    ParameterError
        If the estimator has no C, no value is given, or there are more than two classes and the
        estimator trains several functions for them.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> import bigsvm
    >>> X, y = make_moons(200, noise=0.1, random_state=0)
    >>> models = bigsvm.C_path(bigsvm.SVC(gamma=1), X, y, C=[1, 10])
    >>> [(model.C, model.converged_) for model in models]
    [(1, True), (10, True)]
    """
    if "C" not in estimator.get_params() or not len(C):
        raise ParameterError(f"C is {list(C)}; give some values for an estimator that has a C")
    fitted: dict[float, KernelMachine] = {}
    last = None
    for value in sorted(set(C)):
        model = clone(estimator).set_params(C=value, warm_start=True)
        if last is not None and _saves_work(last):
            model.model_ = last.model_
        with warnings.catch_warnings():
            # The path may well begin where C is too small.
            warnings.simplefilter("ignore", AdviceWarning)
            last = fitted[value] = model.fit(
                X, y, sample_weight=sample_weight, y_order=y_order, client=client,
                worker_memory=worker_memory,
            )  # fmt: skip
        last.set_params(warm_start=estimator.warm_start)
    if last is not None and all(model.certificate_["advice"] for model in fitted.values()):
        warnings.warn("; ".join(last.certificate_["advice"]), AdviceWarning, stacklevel=2)
    return [fitted[value] for value in C]


def _saves_work(model: KernelMachine) -> bool:
    """Whether to start from a model: the kernel matrix fits in memory, or the model took long."""
    n_rows: int = model.model_.provenance["n_rows"]
    of_start = n_rows * len(model.model_.support)
    took: int = model.certificate_["n_kernel_evaluations"]
    return 4 * n_rows**2 <= parse_bytes(model.memory) or took >= WORTH_STARTING * of_start

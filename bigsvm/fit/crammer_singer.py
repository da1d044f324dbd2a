"""Crammer and Singer's machine: from rows and labels to a model of k functions.

Rows have their variables to themselves, and equal rows stay apart: their labels may differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.data.views import ChosenRows
from bigsvm.duals.crammer_singer import Cooling, CrammerSinger, CrammerSingerDual, Order, RowSolver
from bigsvm.duals.row_steps import watched_bytes
from bigsvm.errors import DataError, ParameterError
from bigsvm.fit.problem import check_every_class, check_has_others, find_classes
from bigsvm.fit.setting import Setting
from bigsvm.fit.variables import ORDER_SEED
from bigsvm.models.doubt import support_codes
from bigsvm.working_sets.scopes import DIRECT_ROWS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.data.row_source import RowSource
    from bigsvm.fit.problem import Classes
    from bigsvm.models import KernelExpansion
    from bigsvm.parameters import TrainingParameters
    from bigsvm.training.events import Hooks

ROW_BYTES = 12
"""Of a row, beside what any run has: its class, and its place in the order of training."""
ORDER_BYTES = 32
"""Bytes of a row in one of the paper's orders: its place in a pass, and the permutation of it."""


def train_crammer_singer(
    source: RowSource,
    labels: NDArray[Any] | None,
    sample_weight: NDArray[np.float64] | None,
    parameters: TrainingParameters,
    hooks: Hooks,
    *,
    start: KernelExpansion | None = None,
) -> KernelExpansion:
    """Train one function for each class, all together.

    Parameters
    ----------
    source : RowSource
        (n, d).
    labels : (n,) array
        Two distinct values or more, of any sortable type.
    sample_weight : (n,) float64 or None
        In [0, ∞).
    parameters : TrainingParameters
        Checked.
    hooks : Hooks
    start : KernelExpansion, optional
        A model of the same rows and classes, trained with other parameters, to start from.

    Returns
    -------
    KernelExpansion
        With the rule "crammer-singer", of two classes too.

    Raises
    ------
    ParameterError, DataError, MemoryBudgetError, CheckpointError, DataCorruptionError
    """
    if labels is None:
        raise DataError("crammer-singer needs a label for each row")
    found = find_classes(parameters, source.n_rows, labels, sample_weight, hooks.listener)
    del labels
    check_has_others(parameters, source.n_rows)
    problem = make_crammer_singer(parameters, found)
    classes, class_weight = found.labels.tolist(), found.class_weight.tolist()
    del found  # weights of classes may have made others of its rows', and one of these is counted
    n, k = source.n_rows, problem.n_classes
    resident = ROW_BYTES * n + watched_bytes(k)
    resident += 0 if parameters.order == "auto" else ORDER_BYTES * n
    resident += problem.held_bytes
    resident += 0 if start is None else 8 * n * k
    setting = Setting.of(
        parameters, source, sample_weight, hooks, resident_bytes=resident, n_outputs=k
    )
    source = setting.source
    fingerprint = setting.fingerprint(
        formulation=problem.name,
        per_row=(problem.label, problem.sample_weight),
        chosen=problem.chosen(),
        class_weights=class_weight,
        # The label of each row is known by its place among these.
        others={"classes": repr(classes), **_recorded_order(parameters)},
    )
    begin = None if start is None else _alpha_of(start, problem, classes)
    order = _order(source, problem, parameters)
    trained, dealt = source, problem
    if order is not None:
        trained = ChosenRows(source, order, in_random_order=True)
        dealt = problem.take(order)
        begin = None if begin is None else begin[order]
    dual = CrammerSingerDual(
        dealt,
        RowSolver[parameters.subproblem.upper()],
        Order[parameters.order.upper()],
        Cooling[str(parameters.cooling).upper()],
        parameters.seed,
    )
    with setting.running(fingerprint, offset=problem.offset) as (trainer, watched):
        result = trainer.decompose(trained, dual, setting.plan, start=begin, **watched)
    support = result.support if order is None else order[result.support]
    ascending = np.argsort(support)
    support, alpha = support[ascending], result.alpha[ascending]
    return setting.model(
        fingerprint, class_weight, support, result.certificate.as_dict(),
        coefficients=alpha,
        intercept=np.asarray(alpha.sum(axis=0)) if problem.fit_intercept else np.zeros(k),
        classes=classes, formulation=problem.name, rule=problem.name,
        bounds=problem.bounds(support),
    )  # fmt: skip


def make_crammer_singer(parameters: TrainingParameters, classes: Classes) -> CrammerSinger:
    """Make the problem, with rows for each class.

    Raises
    ------
    ParameterError
        A class weight that is none.
    DataError
        A class without a row of positive weight: its function would only say what it is not.
    """
    labels, codes, weights, class_weight = classes
    check_every_class(labels, class_weight, classes.sizes())
    if (class_weight != 1).any():
        weights = class_weight[codes] if weights is None else weights * class_weight[codes]
    return CrammerSinger(
        label=codes,
        n_classes=len(labels),
        C=parameters.C,
        fit_intercept=bool(parameters.fit_intercept),
        sample_weight=weights,
    )


def _recorded_order(parameters: TrainingParameters) -> dict[str, str]:
    """Say in which of the paper's orders rows are taken, as a run goes on in the same one."""
    if parameters.order == "auto":
        return {}
    cools = parameters.cooling not in (None, "none")
    cooled = f", cooled by {parameters.cooling}" if cools else ""
    seed = f", seed {parameters.seed}" if parameters.order == "random" else ""
    return {"order": f"{parameters.order}{cooled}{seed}"}


def _order(
    source: RowSource, problem: CrammerSinger, parameters: TrainingParameters
) -> NDArray[np.int64] | None:
    """Rows with a weight in random order, of which the first stand for all; None as they come."""
    if source.row_alignment > 1 or source.n_rows <= DIRECT_ROWS or parameters.working_set == "all":
        return None
    weighted = np.flatnonzero(problem.weights(slice(None)))
    return np.random.default_rng(ORDER_SEED).permutation(weighted)


def _alpha_of(
    model: KernelExpansion, problem: CrammerSinger, classes: list[Any]
) -> NDArray[np.float64]:
    """Alpha of all rows, (n, k), whose τ a model of them has; 0 where the label is another now."""
    if model.formulation != problem.name or model.bounds is None:
        raise ParameterError(
            f"the model to start from is a {model.formulation}, this one a {problem.name}"
        )
    trained_on = model.provenance.get("n_rows", len(problem))
    if trained_on != len(problem):
        raise DataError(
            f"the model to start from was trained on {trained_on} rows, not {len(problem)}"
        )
    if model.classes != classes:
        raise DataError("the model to start from has other classes; start anew")
    coefficients: Any = model.coefficients
    now = problem.bounds(model.support)
    same = problem.label[model.support] == support_codes(model)
    alpha = problem.zeros(len(problem))
    alpha[model.support] = coefficients.toarray() * (same * now / model.bounds)[:, None]
    # Rounding must not carry a coefficient past its bound.
    own = alpha[model.support, problem.label[model.support]]
    alpha[model.support, problem.label[model.support]] = np.minimum(own, now)
    return alpha

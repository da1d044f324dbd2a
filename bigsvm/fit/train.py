"""From rows, labels and parameters to a model: what every estimator's `fit` and the CLI share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.data.narrow import narrowed
from bigsvm.duals.crammer_singer import CrammerSinger
from bigsvm.duals.feasible import project
from bigsvm.errors import DataError, ParameterError
from bigsvm.fit.crammer_singer import train_crammer_singer
from bigsvm.fit.drawing import check_labels_drawn, drawn_for, of_all_rows
from bigsvm.fit.fingerprint import recorded_rules
from bigsvm.fit.held_out import calibrate, hold_out
from bigsvm.fit.models import expansion_of_classes, expansion_of_pairs
from bigsvm.fit.one_vs_one import train_one_vs_one
from bigsvm.fit.one_vs_rest import train_one_vs_rest
from bigsvm.fit.problem import are_many_classes, check_has_others, make_problem
from bigsvm.fit.setting import Setting
from bigsvm.fit.variables import decision_of, make_variables
from bigsvm.parameters.checks import check_parameters
from bigsvm.parameters.formulations import BALLS, CLASSIFIERS, WITH_CLASSES
from bigsvm.training.events import Hooks

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.data.row_source import RowSource
    from bigsvm.duals.box_problem import Formulation
    from bigsvm.models import KernelExpansion
    from bigsvm.parameters import TrainingParameters


def train_model(
    source: RowSource,
    labels: NDArray[Any] | None,
    sample_weight: NDArray[np.float64] | None,
    parameters: TrainingParameters,
    hooks: Hooks | None = None,
    *,
    start: KernelExpansion | None = None,
) -> KernelExpansion:
    """Train a model of any formulation.

    Parameters
    ----------
    source : RowSource
        (n, d).
    labels : (n,) array or None
        Two distinct values or more, of any sortable type, or targets; none for one class.
    sample_weight : (n,) float64 or None
        In [0, ∞); 2 means the row twice, 0 that it is not there.
    parameters : TrainingParameters
    hooks : Hooks, optional
    start : KernelExpansion, optional
        A model of the same rows, trained with other parameters, to start from. It costs one pass
        with its support vectors. Neither may be of more than two classes.

    Returns
    -------
    KernelExpansion
        Its certificate says whether training converged, and if not why.

    Raises
    ------
    ParameterError, DataError, MemoryBudgetError, CheckpointError, DataCorruptionError
    """
    check_parameters(parameters)
    if start is not None and not parameters.certify:
        raise ParameterError(
            "certify is False, and such training starts from a few rows, not from a model of all; "
            "set warm_start or certify"
        )
    narrow, numbering = narrowed(source)
    drawn = None
    if not parameters.certify and parameters.formulation in CLASSIFIERS:
        drawn = drawn_for(narrow, sample_weight, parameters, hooks or Hooks())
    # Handed over: 8 bytes a row that the budget does not count.
    last_reference = [labels]
    del labels
    if drawn is None:
        model = _train(narrow, last_reference.pop(), sample_weight, parameters, hooks, start)
    else:
        check_labels_drawn(last_reference[0], drawn)
        model = of_all_rows(
            _train(
                drawn, drawn.of(last_reference.pop()), drawn.of(sample_weight),
                parameters, hooks, start,
            ),
            drawn,
        )  # fmt: skip
    if numbering is None:
        return model
    # A centre would have one value per column, so it is left out: predictions find their own.
    return replace(model, support_vectors=numbering.undo(model.support_vectors), centre=None)


def _train(
    source: RowSource,
    labels: NDArray[Any] | None,
    sample_weight: NDArray[np.float64] | None,
    parameters: TrainingParameters,
    hooks: Hooks | None,
    start: KernelExpansion | None,
) -> KernelExpansion:
    """Train a model of any formulation; its columns are numbered as in `source`."""
    if parameters.formulation in WITH_CLASSES and are_many_classes(labels):
        if start is not None:
            raise ParameterError("a model of many classes starts from no other; leave it out")
        # Handed over: 8 bytes a row that the budget does not count.
        last_reference = [labels]
        del labels
        if parameters.multiclass == "ovr":
            return expansion_of_classes(
                train_one_vs_rest(source, last_reference.pop(), sample_weight, parameters, hooks)
            )
        return expansion_of_pairs(
            train_one_vs_one(source, last_reference.pop(), sample_weight, parameters, hooks),
            parameters.multiclass,
        )
    hooks = hooks or Hooks()
    held_out = None
    if parameters.calibration is not None:
        held_out, sample_weight = hold_out(source, labels, sample_weight)
    if parameters.formulation == CrammerSinger.name:
        return train_crammer_singer(source, labels, sample_weight, parameters, hooks, start=start)
    classes, formulation = make_problem(parameters, source.n_rows, labels, sample_weight)
    if parameters.formulation not in BALLS:
        check_has_others(parameters, source.n_rows)
    # 8 bytes a row that the budget does not count: from here on the formulation is enough.
    del labels
    kept = 0 if held_out is None else held_out.nbytes
    resident = _resident_bytes(formulation, source.n_rows, kept_bytes=kept)
    setting = Setting.of(
        parameters, source, formulation.sample_weight, hooks, resident_bytes=resident
    )
    source, class_weights = setting.source, getattr(formulation, "class_weight", None)
    fingerprint = setting.fingerprint(
        formulation=formulation.name,
        per_row=(formulation.per_row, formulation.sample_weight),
        chosen=formulation.chosen(),
        class_weights=class_weights,
        # Either method has the same rows held out.
        others={
            **recorded_rules(parameters),
            **({} if held_out is None else {"calibration": "sigmoid or isotonic"}),
        },
    )
    # From here on rows have the order they are trained in.
    variables = make_variables(
        source, formulation, merge=parameters.merges_rows, compare=parameters.compares_rows
    )
    begin = None
    if start is not None:
        begin = variables.gather(_alpha_of(start, formulation, source.n_rows))
        begin = project(variables.formulation, begin)
    with setting.running(fingerprint, offset=formulation.offset) as (trainer, watched):
        result = trainer.train(variables, setting.plan, start=begin, **watched)
    decision = decision_of(variables, formulation, result)
    model = setting.model(
        fingerprint, class_weights, decision.support,
        {**decision.certificate.as_dict(), **decision.found},
        coefficients=decision.coefficients, intercept=decision.intercept,
        classes=classes, formulation=formulation.name,
    )  # fmt: skip
    if held_out is None or parameters.calibration is None:
        return model
    calibration = calibrate(
        model, source, held_out, parameters.calibration,
        threads=parameters.n_threads,
        block_bytes=setting.plan.block_bytes, hooks=hooks,
    )  # fmt: skip
    return replace(model, calibration=calibration)


def _resident_bytes(formulation: Formulation, n_rows: int, *, kept_bytes: int) -> int:
    """Bytes that are in memory for the whole run, beside the rows."""
    return 8 * (formulation.n_faces - 1) * n_rows + formulation.held_bytes + kept_bytes


def _alpha_of(model: KernelExpansion, formulation: Formulation, n_rows: int) -> NDArray[np.float64]:
    """Alpha of all rows that a model of them, of the same formulation, has."""
    if model.rule is not None:
        raise ParameterError(
            "the model to start from is one of many classes, which have no two to start from; set "
            "warm_start to False"
        )
    if model.formulation != formulation.name:
        raise ParameterError(
            f"the model to start from is a {model.formulation}, this one a {formulation.name}"
        )
    trained_on = model.provenance.get("n_rows", n_rows)
    if trained_on != n_rows:
        raise DataError(f"the model to start from was trained on {trained_on} rows, not {n_rows}")
    beta = np.zeros(n_rows)
    beta[model.support] = model.coefficients
    if formulation.name == "nu-svc":
        beta *= model.certificate.get("rho") or 1.0
    # Pair steps of a path of C = 1, 2, 4, 8 on 4000 rows of a9a: 6225 so, 6250 with only those at
    # their bounds scaled, 6375 with none; of 8, 4, 2, 1: 4380, 6368, 6368; each C alone 6716.
    earlier = model.provenance.get("parameters", {}).get("C")
    if isinstance(earlier, int | float) and hasattr(formulation, "C"):
        beta *= formulation.C / earlier
    if formulation.n_faces == 1:
        return beta
    return np.stack([np.maximum(beta, 0), np.minimum(beta, 0)], axis=1)

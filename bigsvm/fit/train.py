"""From rows, labels and parameters to a model: what every estimator's `fit` and the CLI share."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from bigsvm.data.kernel_matrix import training_matrix
from bigsvm.data.wrappers import narrowed
from bigsvm.errors import ParameterError
from bigsvm.fit.advice import advised, sample_of
from bigsvm.fit.fingerprint import fingerprint_of
from bigsvm.fit.left_out import leave_out
from bigsvm.fit.one_vs_one import OneVsOneReduction
from bigsvm.fit.problem import Given, are_many_classes
from bigsvm.fit.reduction import Result, RunResources, Trained, find_kernel, model_of
from bigsvm.fit.single import SingleReduction
from bigsvm.interruption import unchecked
from bigsvm.kernels import KERNELS, Kernel
from bigsvm.parameters.checks import check_parameters
from bigsvm.parameters.formulations import WITH_CLASSES
from bigsvm.small.rule import is_small
from bigsvm.training.events import Hooks
from bigsvm.training.state import before_training

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from bigsvm.arrays import F8
    from bigsvm.data.row_source import RowSource
    from bigsvm.fit.reduction import MakeReduction, Problems
    from bigsvm.models import KernelExpansion
    from bigsvm.parameters import TrainingParameters


def train_model(
    source: RowSource,
    labels: NDArray[Any] | None,
    sample_weight: F8 | None,
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
        In [0, ∞); 2 means the row twice, 0 that it is not there. A class without a row of positive
        weight is left out, and the model keeps its name.
    parameters : TrainingParameters
    hooks : Hooks, optional
    start : KernelExpansion, optional
        A model of the same rows, trained with other parameters, to start from. It costs one pass
        with its support vectors. Neither may be of more than two classes, save for
        crammer-singer, whose classes must be the same.

    Returns
    -------
    KernelExpansion
        Its certificate says whether training converged, and if not why.

    Raises
    ------
    ParameterError, DataError, MemoryBudgetError, CheckpointError, DataCorruptionError
    """
    check_parameters(parameters)
    hooks = hooks or Hooks()
    if start is not None and not parameters.certify:
        raise ParameterError(
            "certify is False, and such training starts from a few rows, not from a model of all; "
            "set warm_start or certify"
        )
    make_reduction = reduction_of(parameters, labels)
    left_out, numbering, drawn = None, None, None
    if sample_weight is not None:
        left_out = leave_out(parameters, labels, sample_weight, hooks.listener)
    if left_out is not None:
        labels, parameters, start = left_out.labels, left_out.parameters, left_out.start(start)
    kernel = parameters.kernel
    kind = type(kernel) if isinstance(kernel, Kernel) else KERNELS[kernel]
    with before_training(parameters, hooks):
        if not kind.takes_negative:
            from bigsvm.fit.nonnegative import refuse_negative  # few need it

            refuse_negative(source, kind.name)
        if source.is_sparse:
            source, numbering = narrowed(source, keep_numbers=parameters.has_column_factors)
        if not parameters.certify:
            from bigsvm.fit.sampling import drawn_for, of_all_rows  # few need it

            drawn = drawn_for(source, labels, sample_weight, parameters, hooks)
    if drawn is not None:
        source, labels, sample_weight = drawn, drawn.of(labels), drawn.of(sample_weight)
    # Only `train_by` holds the labels from here on: 8 bytes a row that the budget does not count.
    last_reference = [Given(source, labels, sample_weight, parameters, hooks, start)]
    del labels
    model = train_by(make_reduction, last_reference.pop())
    if drawn is not None:
        model = of_all_rows(model, drawn)
    if left_out is not None:
        model = left_out.in_model(model)
    if numbering is None:
        return model
    # A centre would have one value per column, so it is left out: predictions find their own.
    return replace(model, support_vectors=numbering.undo(model.support_vectors), centre=None)


def reduction_of(parameters: TrainingParameters, labels: NDArray[Any] | None) -> MakeReduction:
    """Choose how labelled rows become problems."""
    if parameters.formulation == "crammer-singer":
        # Others do without, and without one against the rest.
        from bigsvm.fit.crammer_singer import CrammerSingerReduction

        return CrammerSingerReduction
    if parameters.formulation not in WITH_CLASSES or not are_many_classes(labels):
        return SingleReduction
    if parameters.multiclass != "ovr":
        return OneVsOneReduction
    from bigsvm.fit.one_vs_rest import OneVsRestReduction

    return OneVsRestReduction


def train_by(make_reduction: MakeReduction, given: Given) -> KernelExpansion:
    """Train a model by a reduction; its columns are numbered as in the source."""
    source, parameters, hooks = given.source, given.parameters, given.hooks
    reduction = make_reduction(given)
    if is_small(
        parameters,
        source,
        n_classes=len(reduction.classes or ()),
        has_start=given.start is not None,
        by_steps=hooks.by_steps,
    ):
        from bigsvm.fit.small_way import small_model  # others do without scikit-learn

        model = small_model(reduction, given)
        if model is not None and model.certificate["converged"]:
            return model
        if model is not None and reduction.rule is None:
            # Our own solver goes on from there.
            reduction = make_reduction(given._replace(start=model))
    sample = sample_of(given)
    del given
    with run_problems(reduction, source, parameters, hooks) as trained:
        with unchecked():  # a run that was interrupted has a model too
            functions = reduction.functions(trained.result)
            model = model_of(trained, functions, parameters, reduction, reduction.class_weight)
    with unchecked():
        model = advised(model, sample, parameters)
    if reduction.held_out is None or parameters.calibration is None:
        return model
    from bigsvm.fit.held_out import calibrate  # few need it

    calibration = calibrate(
        model, trained.source, reduction.held_out, parameters.calibration,
        threads=parameters.n_threads, block_bytes=trained.block_bytes, hooks=hooks,
    )  # fmt: skip
    return replace(model, calibration=calibration)


@contextmanager
def run_problems(
    problems: Problems[Result], source: RowSource, parameters: TrainingParameters, hooks: Hooks
) -> Iterator[Trained[Result]]:
    """Plan the memory, find the kernel, and solve problems of the rows of `source`.

    Workers are there until the block ends, as support vectors are taken from them.
    """
    # Small problems do without our own solver.
    from bigsvm.fit.trainer import Trainer, costs_of, open_checkpoint, workforce_of

    if parameters.takes_kernel_matrix:
        source = training_matrix(source)
    scaler = source.scaler  # read before the run, so that a damaged one is found before it
    with ExitStack() as stack:
        workforce, waited = None, None
        if hooks.client is not None:
            from bigsvm.executors.worker_rows import of_workers  # one process does without

            workforce = workforce_of(hooks)
            stack.callback(workforce.close)
            hooks = replace(hooks, client=workforce)
            waited = partial(getattr, workforce, "seconds_without")
            source = of_workers(source, workforce, patience=parameters.max_seconds)
        # The memory, the kernel, what a checkpoint must agree with, and the order of training.
        with before_training(parameters, hooks, waited) as time_left:
            source, plan = problems.plan(source)
            kernel, centre = find_kernel(
                parameters, source, problems.sample_weight, block_bytes=plan.block_bytes,
                hooks=hooks,
            )  # fmt: skip
            fingerprint = fingerprint_of(source, kernel, problems.recorded())
            problems.arrange(source)
            parameters = time_left()
        trainer = stack.enter_context(
            Trainer(parameters, kernel, centre, offset=problems.offset, workforce=workforce)
        )
        with open_checkpoint(parameters, fingerprint, hooks) as checkpoint:
            result = problems.run(RunResources(trainer, plan, parameters, hooks, checkpoint))
            if checkpoint is not None:
                ended = result.certificate
                checkpoint.end(ended.stop_reason, converged=ended.converged)
        costs = dict if workforce is None else partial(costs_of, workforce, parameters.n_threads)
        yield Trained(
            result, source, plan.block_bytes, kernel, centre, scaler, fingerprint, costs,
            source.take,
        )  # fmt: skip

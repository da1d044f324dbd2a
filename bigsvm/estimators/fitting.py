"""From rows, labels and parameters to a model: what every estimator's `fit` and the CLI share."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash
from threadpoolctl import threadpool_limits

from bigsvm import __version__
from bigsvm.budget import available_processors, parse_bytes, plan_training
from bigsvm.cache.disk_cache import DiskCache
from bigsvm.data.held import hold
from bigsvm.data.kernel_matrix import support_rows, training_matrix
from bigsvm.duals.ball import BallDual, BallFormulation
from bigsvm.duals.box import BoxDual, SelectionRule
from bigsvm.duals.feasible import project
from bigsvm.duals.formulations import Regression
from bigsvm.errors import DataError, ParameterError
from bigsvm.estimators.ball import ball_dual, mean_distance
from bigsvm.estimators.held_out import calibrate, hold_out
from bigsvm.estimators.parameters import Hooks
from bigsvm.estimators.problem import make_problem
from bigsvm.estimators.variables import Variables, make_variables
from bigsvm.estimators.variance import weighted_variance
from bigsvm.kernels import Kernel, Precomputed, make_kernel, resolve_gamma
from bigsvm.models import KernelExpansion
from bigsvm.tiles import KernelTiles
from bigsvm.training.checkpoint import Checkpoint
from bigsvm.training.decomposition import Decomposition
from bigsvm.training.frank_wolfe import ENDS, SampledSearch
from bigsvm.training.state import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from bigsvm.budget import TrainingPlan
    from bigsvm.data.rows import RowSource
    from bigsvm.data.scaler import Scaler
    from bigsvm.duals.formulations import Formulation
    from bigsvm.estimators.parameters import TrainingParameters
    from bigsvm.training.result import TrainingResult

SCARCE = 0.25
"""With fewer kernel rows in memory than this share of all, HMG. Seconds of second-order ÷ its, all
rows of mnist's first 12 000 as one working set: 1.49 at 1 %, 1.30 at 10 %, 1.05 at 25 %."""


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
        Two distinct values of any sortable type, or targets; none for one class.
    sample_weight : (n,) float64 or None
        In [0, ∞); 2 means the row twice, 0 that it is not there.
    parameters : TrainingParameters
    hooks : Hooks, optional
    start : KernelExpansion, optional
        A model of the same rows, trained with other parameters, to start from. It costs one pass
        with its support vectors.

    Returns
    -------
    KernelExpansion
        Its certificate says whether training converged, and if not why.

    Raises
    ------
    ParameterError, DataError, MemoryBudgetError, CheckpointError, DataCorruptionError
    """
    parameters.check()
    hooks = hooks or Hooks()
    held_out = None
    if parameters.calibration is not None:
        held_out, sample_weight = hold_out(source, labels, sample_weight)
    classes, formulation = make_problem(parameters, source.n_rows, labels, sample_weight)
    # 8 bytes a row that the budget does not count: from here on the formulation is enough.
    del labels
    whole = parameters.working_set == "all"
    if parameters.takes_kernel_matrix:
        source = training_matrix(source)
    # Before the run, so that a damaged one does not come out at its end.
    scaler = source.scaler
    kept = 0 if held_out is None else held_out.nbytes
    source, plan = _planned(source, formulation, parameters, kept_bytes=kept)
    kernel = _kernel(
        parameters,
        source,
        formulation.sample_weight,
        block_bytes=plan.block_bytes,
        interrupted=hooks.interrupted,
    )
    centred = kernel.is_shift_invariant and not source.is_sparse
    centre = source.column_means() if centred else None
    fingerprint = _fingerprint(source, formulation, kernel, held_out=held_out is not None)
    # From here on rows have the order they are trained in.
    variables = make_variables(source, formulation, merge=not whole)
    begin = None
    if start is not None:
        begin = variables.gather(_alpha_of(start, formulation, source.n_rows))
        begin = project(variables.formulation, begin)
    result = _run(variables, kernel, centre, plan, fingerprint, parameters, hooks, begin)
    model = _model(
        result, variables, source, formulation, kernel,
        centre=centre, classes=classes, scaler=scaler,
        provenance=_provenance(parameters, source, formulation, fingerprint),
    )  # fmt: skip
    if held_out is None or parameters.calibration is None:
        return model
    calibration = calibrate(
        model, source, held_out, parameters.calibration,
        threads=parameters.threads or available_processors(),
        block_bytes=plan.block_bytes, hooks=hooks,
    )  # fmt: skip
    return replace(model, calibration=calibration)


def _planned(
    source: RowSource, formulation: Formulation, parameters: TrainingParameters, *, kept_bytes: int
) -> tuple[RowSource, TrainingPlan]:
    """Divide the memory; rows that take little of it are read once and held."""
    memory = parse_bytes(parameters.memory)
    read, source = source, hold(source, memory)
    weights = formulation.sample_weight
    of_the_problem = 8 * (formulation.n_faces - 1) * source.n_rows
    if isinstance(formulation, Regression):
        of_the_problem += formulation.target.nbytes
    plan = plan_training(
        memory,
        n_rows=source.n_rows,
        n_columns=source.n_columns,
        bytes_per_row=source.bytes_per_row,
        row_alignment=source.row_alignment,
        threads=parameters.threads or available_processors(),
        resident_bytes=of_the_problem
        + kept_bytes
        + (0 if weights is None else weights.nbytes)
        + (0 if source is read else int(source.bytes_per_row * source.n_rows)),
        packed=not parameters.takes_kernel_matrix,
        whole=parameters.working_set == "all",
    )
    if parameters.kernel_rows is not None:
        plan = plan.with_kernel_rows(parameters.kernel_rows)
    return source, plan


def _run(
    variables: Variables,
    kernel: Kernel,
    centre: NDArray[np.float64] | None,
    plan: TrainingPlan,
    fingerprint: dict[str, str],
    parameters: TrainingParameters,
    hooks: Hooks,
    start: NDArray[np.float64] | None,
) -> TrainingResult:
    """Open what a run needs, and run it."""
    whole = parameters.working_set == "all"
    threads = parameters.threads or available_processors()
    with ExitStack() as stack:
        stack.enter_context(threadpool_limits(1, user_api="blas"))
        tiles = stack.enter_context(
            KernelTiles(kernel, centre=centre, threads=threads, offset=variables.formulation.offset)
        )
        checkpoint = None
        if parameters.checkpoint is not None:
            checkpoint = stack.enter_context(Checkpoint(parameters.checkpoint, fingerprint))
        disk = None
        if whole and parameters.disk_cache_bytes():
            disk = DiskCache(
                parameters.cache_dir or tempfile.gettempdir(),
                capacity_bytes=parameters.disk_cache_bytes(),
                fingerprint=_of_kernel_rows(
                    fingerprint, variables.source, offset=variables.formulation.offset
                ),
            )
        rule = SelectionRule.from_name(
            parameters.selection, rows_are_scarce=whole and plan.holds_few_rows(SCARCE)
        )
        limits = Limits(
            max_iter=parameters.max_iter,
            max_seconds=parameters.max_seconds,
            interrupted=hooks.interrupted,
        )
        saved: dict[str, Any] = {
            "seed": parameters.seed,
            "limits": limits,
            "checkpoint": checkpoint,
            "checkpoint_every": parameters.checkpoint_every,
            "listener": hooks.listener,
        }
        dual, watch = BoxDual(variables.formulation, rule), None
        if isinstance(variables.formulation, BallFormulation):
            dual = ball_dual(variables.source, variables.formulation, tiles, parameters, rule)
            if start is None and SampledSearch.is_next(checkpoint):
                search = SampledSearch(
                    variables.source, dual, tiles, plan,
                    ball_tol=parameters.ball_tol, sampling=parameters.sampling,
                    certify=parameters.certify, **saved,
                )  # fmt: skip
                reason = search.run()
                if not (parameters.certify and reason in ENDS):
                    return search.result(reason)
                start, watch = search.alpha(), search.watch
        result = Decomposition(
            variables.source, dual, tiles, plan,
            tol=parameters.ball_tol if isinstance(dual, BallDual) else parameters.tol,
            whole=whole, disk=disk, start=start, watch=watch, **saved,
        ).run()  # fmt: skip
        objective = result.certificate.objective
        if isinstance(dual, BallDual) and result.certificate.converged and objective:
            dual.energy(0.5 / objective, is_exact=True)
        return result


def _alpha_of(model: KernelExpansion, formulation: Formulation, n_rows: int) -> NDArray[np.float64]:
    """Alpha of all rows that a model of them, of the same formulation, has."""
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


def _model(
    result: TrainingResult,
    variables: Variables,
    source: RowSource,
    formulation: Formulation,
    kernel: Kernel,
    *,
    centre: NDArray[np.float64] | None,
    classes: list[Any] | None,
    scaler: Scaler | None,
    provenance: dict[str, Any],
) -> KernelExpansion:
    """Make the model of a result: rows again instead of variables, and scaled as it is used."""
    support, alpha = variables.spread(formulation, result.support, result.alpha)
    finished = formulation.finish(result.thresholds)
    certificate = result.certificate
    if variables.groups is not None:
        # Several rows may have been one variable.
        bounded = BoxDual(formulation).n_bounded(alpha, support)
        certificate = replace(certificate, n_support=len(support), n_bounded=bounded)
    of_matrix = isinstance(kernel, Precomputed)
    coefficients = finished.scale * formulation.per_output(alpha)
    vectors = support_rows(source, support) if of_matrix else source.take(support)
    return KernelExpansion(
        kernel=kernel,
        support_vectors=vectors,
        coefficients=coefficients,
        intercept=float(finished.intercept + formulation.offset * coefficients.sum()),
        centre=centre,
        support=support,
        classes=classes,
        formulation=formulation.name,
        scaler=scaler,
        certificate={
            **certificate.as_dict(),
            **finished.found,
            "kernel_is_definite": kernel.is_definite,
        },
        provenance=provenance,
    )


def _provenance(
    parameters: TrainingParameters,
    source: RowSource,
    formulation: Formulation,
    fingerprint: dict[str, str],
) -> dict[str, Any]:
    """List where a model comes from, as JSON can say it."""
    unlimited = parameters.max_seconds == float("inf")
    weights = getattr(formulation, "class_weight", None)
    return {
        "bigsvm": __version__,
        "parameters": {
            **asdict(parameters),
            "max_seconds": None if unlimited else parameters.max_seconds,
            "class_weight": None if weights is None else list(weights),
        },
        "data": fingerprint["data"],
        "n_rows": source.n_rows,
        "first_index": source.first_index,
    }


def _kernel(
    parameters: TrainingParameters,
    source: RowSource,
    sample_weight: NDArray[np.float64] | None,
    *,
    block_bytes: int,
    interrupted: Callable[[], bool],
) -> Kernel:
    if isinstance(parameters.kernel, Kernel):
        return parameters.kernel
    gamma = 1.0
    if parameters.kernel not in ("linear", Precomputed.name):
        variance = 1.0
        if parameters.gamma == "scale":
            # Asked for in any case, as it refuses what is not finite.
            variance = source.total_variance()
            if sample_weight is not None:
                variance = weighted_variance(
                    source, sample_weight, block_bytes=block_bytes, interrupted=interrupted
                )
        distance = 1.0
        if parameters.gamma == "mean-distance":
            distance = mean_distance(source, sample_weight, seed=parameters.seed)
        gamma = resolve_gamma(
            parameters.gamma,
            n_features=source.n_columns,
            variance=variance,
            mean_distance=distance,
        )
    return make_kernel(
        parameters.kernel, gamma=gamma, coef0=parameters.coef0, degree=parameters.degree
    )


def _of_kernel_rows(
    fingerprint: dict[str, str], source: RowSource, *, offset: float
) -> dict[str, str]:
    """List what a kernel row is valid for: neither labels nor C, so that others find it again."""
    same = {name: fingerprint[name] for name in ("data", "kernel", "bigsvm")}
    raised = {"offset": repr(offset)} if offset else {}
    return {**same, "rows": str(source.n_rows), **raised}


def _fingerprint(
    source: RowSource, formulation: Formulation, kernel: Kernel, *, held_out: bool
) -> dict[str, str]:
    """List what a checkpoint must agree with, readable where a person will compare."""
    hasher = xxhash.xxh3_128(np.ascontiguousarray(formulation.per_row).data)
    if formulation.sample_weight is not None:
        hasher.update(formulation.sample_weight.data)
    chosen = {name: getattr(formulation, name, None) for name in ("C", "nu", "epsilon")}
    return {
        "data": source.fingerprint(),
        "labels and weights": hasher.hexdigest(),
        "formulation": formulation.name,
        **{name: repr(value) for name, value in chosen.items() if value is not None},
        # Either method has the same rows held out.
        **({"calibration": "sigmoid or isotonic"} if held_out else {}),
        "class weights": repr(getattr(formulation, "class_weight", None)),
        "kernel": repr(kernel),
        "bigsvm": ".".join(__version__.split(".")[:2]),
    }

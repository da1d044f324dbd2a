"""The way of a small problem: LIBSVM's point, its certificate, and the model of it.

`bigsvm.small` has the parts. The model has the form of one of the usual run: the same attributes,
events and certificate, in which a sweep is the one look at all rows.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.data.kernel_matrix import training_matrix
from bigsvm.data.wrappers import HeldRows
from bigsvm.duals.formulations import finish_nu_svc
from bigsvm.duals.problem import FingerprintEntry
from bigsvm.fit.advice import advice_of_known
from bigsvm.fit.one_vs_one import OneVsOneReduction, functions_in_order
from bigsvm.fit.reduction import ModelFunctions, Trained, find_kernel, model_of
from bigsvm.fit.single import SingleReduction
from bigsvm.one_vs_one.entries import REASONS
from bigsvm.one_vs_one.joined import OneVsOne, table_of
from bigsvm.processors import one_blas_thread
from bigsvm.small.certify import certify, certify_functions
from bigsvm.small.kernel import kernel_matrix
from bigsvm.small.pairs import compressed, pairs_of
from bigsvm.small.solve import alpha_of, solve
from bigsvm.training import events
from bigsvm.training.result import PHASES, Certificate, StopReason, finite_or_none

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bigsvm.arrays import F8, I8
    from bigsvm.data.row_source import RowSource
    from bigsvm.duals.box_problem import Optimality
    from bigsvm.fit.problem import Given
    from bigsvm.fit.reduction import Reduction
    from bigsvm.models import KernelExpansion
    from bigsvm.one_vs_one.class_rows import ClassRows
    from bigsvm.parameters import TrainingParameters
    from bigsvm.training.events import Hooks

BLOCK_BYTES = 32 << 20
"""Bytes of the blocks in which rows are read for gamma: all rows at once, mostly."""


class Found(NamedTuple):
    """Functions of a model, the decision values of all rows, and the run's certificate.

    Values are (n,), or (n, n_pairs); 0 of rows without weight. `sizes` are the rows with a weight
    of each class, or of all where there are no classes.
    """

    functions: ModelFunctions
    values: F8
    sizes: Sequence[int]
    certificate: Certificate


class _Matrix(NamedTuple):
    """Kernel values of the rows that have a weight, (m, m), and which these are; None for all."""

    values: F8
    rows: I8 | None
    seconds: float
    began: float

    def of_all(self, rows: I8) -> I8:
        """Numbers among all rows."""
        return rows if self.rows is None else self.rows[rows]

    def spread(self, values: F8, n_rows: int) -> F8:
        """Values of all rows, (n_rows,) or (n_rows, k); 0 of those without weight."""
        if self.rows is None:
            return values
        of_all = np.zeros((n_rows, *values.shape[1:]))
        of_all[self.rows] = values
        return of_all


def small_model(reduction: Reduction[Any], given: Given) -> KernelExpansion | None:
    """Train a small model; its certificate says whether the tolerance holds.

    The reduction is made of what is given.

    Returns
    -------
    KernelExpansion or None
        None where LIBSVM has no answer, or where a pair of several classes has none that holds.
        The listener has been told of a run only if it has converged.

    Raises
    ------
    DataError, ParameterError
    """
    source, parameters, hooks = given.source, given.parameters, given.hooks
    if parameters.takes_kernel_matrix:
        source = training_matrix(source)
    scaler = source.scaler
    if source.row_alignment > 1:
        source = HeldRows(source, source.read_whole())
    if isinstance(reduction, OneVsOneReduction):
        classes = reduction.checked_rows(source)
    kernel, centre = find_kernel(
        parameters, source, reduction.sample_weight, block_bytes=BLOCK_BYTES, hooks=hooks
    )
    with one_blas_thread():
        began, weights = time.monotonic(), reduction.sample_weight
        rows: Any = source.read_whole()
        chosen, found = None, None
        if weights is not None and not weights.all():
            chosen = np.flatnonzero(weights)
            rows = rows[chosen]
        values = kernel_matrix(kernel, rows, centre)
        if values is None:
            return None
        matrix = _Matrix(values, chosen, time.monotonic() - began, began)
        if isinstance(reduction, OneVsOneReduction):
            found = _pairs(reduction, classes, matrix, parameters)
        elif isinstance(reduction, SingleReduction):
            found = _single(reduction, matrix, parameters)
    if found is None:
        return None
    functions, decided, sizes, certificate = found
    if certificate.converged:
        _tell(hooks, source, certificate, functions)
    # Of a checkpoint's fingerprint a model has this entry only.
    data = {FingerprintEntry.DATA.value: source.fingerprint()}
    trained = Trained(
        found, source, BLOCK_BYTES, kernel, centre, scaler, data, dict, source.take, solver="libsvm"
    )
    model = model_of(trained, functions, parameters, reduction, reduction.class_weight)
    advice = advice_of_known(model, sizes, decided, given)
    return replace(model, certificate={**model.certificate, "advice": advice})


def _single(
    reduction: SingleReduction, matrix: _Matrix, parameters: TrainingParameters
) -> Found | None:
    problem = reduction.problem
    if matrix.rows is not None:
        problem = problem.take(matrix.rows)
    answers: Any = None if reduction.name == "one-class" else problem.per_row
    bounds = problem.importance(slice(None))
    solved = solve(parameters, matrix.values, answers, None if (bounds == 1).all() else bounds)
    if solved is None:
        return None
    stepped = time.monotonic()
    certified = certify(problem, matrix.values, alpha_of(solved, problem), tol=parameters.tol)
    if certified is None:
        return None
    alpha, outputs, standing = certified
    finished = problem.finish(standing.thresholds)
    beta = problem.per_output(alpha)
    support = np.flatnonzero(beta)
    certificate = _certificate(
        parameters, (standing,), matrix, len(support), int(np.sum(solved.n_iter_)), stepped,
        rows_swept=len(alpha),
    )  # fmt: skip
    values = matrix.spread(finished.scale * outputs + finished.intercept, len(reduction.problem))
    functions = ModelFunctions(
        matrix.of_all(support),
        finished.scale * beta[support],
        float(finished.intercept),
        {**certificate.as_dict(), **finished.found},
    )
    sizes = [len(alpha)]
    if reduction.classes is not None:
        n_positive = int(np.count_nonzero(np.asarray(problem.per_row, np.int8) > 0))
        sizes = [len(alpha) - n_positive, n_positive]
    return Found(functions, values, sizes, certificate)


def _pairs(
    reduction: OneVsOneReduction,
    classes: ClassRows,
    matrix: _Matrix,
    parameters: TrainingParameters,
) -> Found | None:
    """Solve all pairs in one call of LIBSVM, and certify them together."""
    problem, source, k = reduction.problem, classes.source, len(classes)
    codes, weights, nu = problem.codes, problem.weights, problem.nu
    if matrix.rows is not None:
        codes = codes[matrix.rows]
        weights = None if weights is None else weights[matrix.rows]
    shares, bounds = (C * problem.class_weight for C in (1.0, parameters.C if nu is None else 1.0))
    shares, bounds = shares[codes], bounds[codes]
    if weights is not None:
        shares, bounds = shares * weights, bounds * weights
    solved = solve(parameters, matrix.values, codes, None if (shares == 1).all() else shares)
    if solved is None:
        return None
    stepped = time.monotonic()
    variables, at, n_rows = pairs_of(solved, codes, bounds, nu)
    point = certify_functions(variables, matrix.values, at, tol=parameters.tol)
    if point is None or not all(one.gap <= parameters.tol for one in point.standings):
        return None
    if nu is None:
        scales, rho = np.ones(len(n_rows)), np.full(len(n_rows), np.nan)
        intercepts = np.array([standing.thresholds[0] for standing in point.standings])
    else:
        finished = [
            finish_nu_svc(standing.thresholds, each)
            for standing, each in zip(point.standings, variables.sums[1::2].tolist(), strict=True)
        ]
        scales, intercepts, rho = np.array(
            [(scale, intercept, found["rho"]) for scale, intercept, found in finished]
        ).T.copy()
    coefficients = scales * variables.coefficients(point.at)
    support = np.flatnonzero(coefficients.any(axis=1))
    support = support[np.argsort(codes[support], kind="stable")]
    records = {
        "reason": np.full(len(n_rows), REASONS.index(StopReason.CONVERGED)),
        "gap": np.array([standing.gap for standing in point.standings]),
        "n_support": np.array([standing.n_support for standing in point.standings]),
        "n_iter": np.asarray(solved.n_iter_, np.int64),
    }
    certificate = _certificate(
        parameters, point.standings, matrix, len(support), int(records["n_iter"].sum()), stepped,
        rows_swept=int(n_rows.sum()), bytes_read=source.bytes_read,
    )  # fmt: skip
    joined = OneVsOne(
        matrix.of_all(support),
        compressed(coefficients[support]),
        intercepts,
        rho,
        records["gap"],
        certificate,
        table_of(records, {StopReason.CONVERGED: len(n_rows)}, k, 0),
    )
    values = matrix.spread(scales * point.outputs + intercepts, source.n_rows)
    return Found(functions_in_order(joined, k), values, classes.sizes.tolist(), certificate)


def _certificate(
    parameters: TrainingParameters,
    standings: Sequence[Optimality],
    matrix: _Matrix,
    n_support: int,
    n_iter: int,
    stepped: float,
    *,
    rows_swept: int,
    bytes_read: int = 0,
) -> Certificate:
    """Say what a point of some functions proves, and what it cost; LIBSVM ended at `stepped`."""
    now, n = time.monotonic(), len(matrix.values)
    steps = max(stepped - matrix.began - matrix.seconds, 0.0)
    phases = dict(zip(PHASES, (now - stepped, 0.0, matrix.seconds, steps, 0.0), strict=True))
    gap = max(standing.gap for standing in standings)
    converged = gap <= parameters.tol
    return Certificate(
        converged=converged,
        stop_reason=StopReason.CONVERGED if converged else StopReason.MAX_ITER,
        tol=parameters.tol,
        objective=sum(standing.objective for standing in standings),
        gap=gap,
        duality_gap=finite_or_none(sum(standing.duality_gap for standing in standings)),
        n_support=n_support,
        n_bounded=sum(standing.n_bounded for standing in standings),
        n_sweeps=len(standings),
        n_iter=n_iter,
        n_kernel_evaluations=n * n,
        row_misses=0,
        row_reads=0,
        n_working_sets=len(standings),
        rows_swept=rows_swept,
        bytes_read=bytes_read,
        seconds=now - matrix.began,
        seconds_by_phase=phases,
        objective_error=0.0,
        duality_gap_error=0.0,
    )


def _tell(
    hooks: Hooks, source: RowSource, certificate: Certificate, functions: ModelFunctions
) -> None:
    """Tell the listener of the run, as our own solver does."""
    n, found = source.n_rows, functions.certificate
    hooks.listener(events.Planned(n, source.n_features, n, {"kernel matrix": 8 * n * n}, 0))
    objective, gap = certificate.objective or 0.0, certificate.gap or 0.0
    counts = certificate.n_support, certificate.n_bounded, certificate.seconds
    if "pairs" in found:
        n_pairs = found["pairs"]["n_pairs"]
        hooks.listener(events.PairsUnderWay(n_pairs, n_pairs, 1.0, 1.0, objective, gap, *counts))
    else:
        hooks.listener(events.Swept(1, gap, certificate.tol, objective, *counts, None))

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
from bigsvm.fit.advice import advised
from bigsvm.fit.fingerprint import fingerprint_of
from bigsvm.fit.one_vs_one import OneVsOneReduction, functions_of_pairs
from bigsvm.fit.reduction import ModelFunctions, Trained, find_kernel, model_of
from bigsvm.fit.single import SingleReduction
from bigsvm.one_vs_one.class_rows import PairRows
from bigsvm.one_vs_one.joined import join
from bigsvm.one_vs_one.log import PairLog, Solved
from bigsvm.processors import one_blas_thread
from bigsvm.small.certify import certify
from bigsvm.small.kernel import kernel_matrix
from bigsvm.small.solve import alpha_of, alphas_of_pairs, settled, solve
from bigsvm.training import events
from bigsvm.training.result import PHASES, Certificate, StopReason, finite_or_none
from bigsvm.votes import pair_classes

if TYPE_CHECKING:
    from bigsvm.arrays import F8, I8
    from bigsvm.data.row_source import RowSource
    from bigsvm.duals.box_problem import Optimality
    from bigsvm.fit.advice import Sample
    from bigsvm.fit.reduction import Reduction
    from bigsvm.models import KernelExpansion
    from bigsvm.one_vs_one.class_rows import ClassRows
    from bigsvm.parameters import TrainingParameters
    from bigsvm.training.events import Hooks

BLOCK_BYTES = 32 << 20
"""Bytes of the blocks in which rows are read for gamma: all rows at once, mostly."""


class Found(NamedTuple):
    """Functions of a model, the decision values of all rows, and the run's certificate.

    Values are (n,), or (n, n_pairs); 0 of rows without weight.
    """

    functions: ModelFunctions
    values: F8
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


def small_model(
    reduction: Reduction[Any],
    source: RowSource,
    sample: Sample | None,
    parameters: TrainingParameters,
    hooks: Hooks,
) -> KernelExpansion | None:
    """Train a small model; its certificate says whether the tolerance holds.

    Returns
    -------
    KernelExpansion or None
        None where LIBSVM has no answer, or where a pair of several classes has none that holds.
        The listener has been told of a run only if it has converged.

    Raises
    ------
    DataError, ParameterError
    """
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
    fingerprint = fingerprint_of(source, kernel, reduction.recorded())
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
    functions, decided, certificate = found
    if certificate.converged:
        _tell(hooks, source, certificate, functions)
    trained = Trained(
        found, source, BLOCK_BYTES, kernel, centre, scaler, fingerprint, {}, solver="libsvm"
    )
    model = model_of(trained, functions, parameters, reduction, reduction.class_weight)
    return advised(model, sample, parameters, values=decided)


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
        parameters, standing, matrix, len(support), int(np.sum(solved.n_iter_)), stepped
    )
    values = finished.scale * outputs + finished.intercept
    if matrix.rows is not None:
        of_all = np.zeros(len(reduction.problem))
        of_all[matrix.rows] = values
        values = of_all
    functions = ModelFunctions(
        matrix.of_all(support),
        finished.scale * beta[support],
        float(finished.intercept),
        {**certificate.as_dict(), **finished.found},
    )
    return Found(functions, values, certificate)


def _pairs(
    reduction: OneVsOneReduction,
    classes: ClassRows,
    matrix: _Matrix,
    parameters: TrainingParameters,
) -> Found | None:
    """Solve all pairs in one call of LIBSVM, and certify each."""
    problem, source = reduction.problem, classes.source
    n, k = len(matrix.values), len(classes)
    codes, bounds = problem.codes, problem.class_weight[problem.codes]
    if problem.weights is not None:
        bounds = bounds * problem.weights
    if matrix.rows is not None:
        codes, bounds = codes[matrix.rows], bounds[matrix.rows]
    solved = solve(parameters, matrix.values, codes, None if (bounds == 1).all() else bounds)
    if solved is None:
        return None
    stepped = time.monotonic()
    rows_of = [np.flatnonzero(codes == one) for one in range(k)]
    log = PairLog(None, problem.n_pairs, source, most_bytes=np.inf)
    values = np.zeros((source.n_rows, problem.n_pairs))
    steps = np.asarray(solved.n_iter_).tolist()
    pairs = zip(*(side.tolist() for side in pair_classes(k)), strict=True)
    given = alphas_of_pairs(solved, rows_of)
    for number, ((first, second), alpha) in enumerate(zip(pairs, given, strict=True)):
        both = np.concatenate([rows_of[first], rows_of[second]])
        order = np.argsort(both)
        rows = both[order]
        sign = np.where(order < len(rows_of[first]), np.int8(-1), np.int8(1))
        formulation = problem.of_pair((first, second), PairRows(source, matrix.of_all(rows), sign))
        among = matrix.values[np.ix_(rows, rows)]
        certified = certify(
            formulation, among, settled(formulation, alpha[order]), tol=parameters.tol
        )
        if certified is None or not certified.standing.gap <= parameters.tol:
            return None
        finished = formulation.finish(certified.standing.thresholds)
        support = np.flatnonzero(certified.alpha)
        coefficients = finished.scale * certified.alpha[support]
        part = matrix._replace(values=among, seconds=matrix.seconds / len(given))
        certificate = _certificate(
            parameters, certified.standing, part, len(support), steps[number], stepped
        )
        log.finish(
            number,
            Solved(
                matrix.of_all(rows[support]),
                coefficients,
                finished.intercept,
                finished.found.get("rho", np.nan),
                certificate,
            ),
        )
        of_rows = matrix.values[:, rows[support]] @ coefficients + finished.intercept
        values[slice(None) if matrix.rows is None else matrix.rows, number] = of_rows
    result = join(log, k, source.n_rows, StopReason.CONVERGED)
    ended = replace(
        result.certificate,
        n_kernel_evaluations=n * n,
        seconds=time.monotonic() - matrix.began,
    )
    result = result._replace(certificate=ended)
    return Found(functions_of_pairs(result, k), values, ended)


def _certificate(
    parameters: TrainingParameters,
    standing: Optimality,
    matrix: _Matrix,
    n_support: int,
    n_iter: int,
    stepped: float,
) -> Certificate:
    """Say what a point proves, and what it cost; LIBSVM ended at `stepped`."""
    now, n = time.monotonic(), len(matrix.values)
    steps = max(stepped - matrix.began - matrix.seconds, 0.0)
    phases = dict(zip(PHASES, (now - stepped, 0.0, matrix.seconds, steps, 0.0), strict=True))
    gap, converged = standing.gap, standing.gap <= parameters.tol
    return Certificate(
        converged=converged,
        stop_reason=StopReason.CONVERGED if converged else StopReason.MAX_ITER,
        tol=parameters.tol,
        objective=standing.objective,
        gap=gap,
        duality_gap=finite_or_none(standing.duality_gap),
        n_support=n_support,
        n_bounded=standing.n_bounded,
        n_sweeps=1,
        n_iter=n_iter,
        n_kernel_evaluations=n * n,
        row_misses=0,
        row_reads=0,
        n_working_sets=1,
        rows_swept=n,
        bytes_read=0,
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

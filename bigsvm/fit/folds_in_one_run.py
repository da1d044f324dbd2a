"""Several fits of the same rows in one run: they differ in the weights of the rows, as folds do.

Each fit is a function of the run. A kernel row, and the kernel values of a sweep, serve all of
them, and each gets a model and a certificate of its own. A run of a single fit gains too: it can
start from known outputs, and know those of rows that it is not trained on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import xxhash

from bigsvm.data.wrappers import narrowed
from bigsvm.duals.box import BoxDual
from bigsvm.duals.feasible import project
from bigsvm.duals.functions import WeightedFunctions
from bigsvm.errors import CheckpointError
from bigsvm.fit.advice import advised, sample_of
from bigsvm.fit.fingerprint import Recorded, recorded_rules
from bigsvm.fit.one_vs_rest import FunctionsReduction
from bigsvm.fit.problem import Given, are_many_classes, make_problem
from bigsvm.fit.reduction import ModelFunctions, model_of
from bigsvm.fit.train import run_problems
from bigsvm.parameters.checks import check_parameters
from bigsvm.parameters.formulations import BALLS, traits_of
from bigsvm.training.result import KnownPoint
from bigsvm.working_sets.functions import MANY_FUNCTIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from bigsvm.arrays import F8
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Indices
    from bigsvm.duals.box_problem import Finished, Formulation, Optimality
    from bigsvm.fit.reduction import RunResources
    from bigsvm.models import KernelExpansion
    from bigsvm.parameters import TrainingParameters
    from bigsvm.training.events import Hooks
    from bigsvm.training.result import Certificate, TrainingResult

ROUNDING = 1e-9
"""Largest difference, relative to the largest alpha, of a scaled point from a feasible one: where
boxes scale with C, both are the same but for rounding."""
ADDED_UP = (
    "n_iter", "n_kernel_evaluations", "row_misses", "row_reads", "n_working_sets", "rows_swept",
    "bytes_read",
)  # fmt: skip
"""Counts of a certificate that are those of the whole run; each fit gets an equal share."""


def why_apart(
    parameters: TrainingParameters, labels: NDArray[Any] | None, n_fits: int
) -> str | None:
    """Say why fits that differ in the weights of the rows are not trained together.

    Returns
    -------
    str or None
        Half a sentence; None if they can be trained together.
    """
    reasons = {
        "there is one fit": n_fits < 2,
        f"{n_fits} fits are many": n_fits >= MANY_FUNCTIONS,
        "gamma depends on the weights": (
            parameters.gamma in ("scale", "mean-distance")
            and parameters.kernel not in ("linear", "precomputed")
        ),
        f"{parameters.formulation} is solved by a search": parameters.formulation in BALLS,
        f"{parameters.formulation} has many functions": parameters.formulation == "crammer-singer",
        "there are many classes": (
            traits_of(parameters.formulation).learns == "classes" and are_many_classes(labels)
        ),
        "the fits end without a certificate": not parameters.certify,
        "rows are held out for a calibration": parameters.calibration is not None,
        "max_iter is of each fit": parameters.max_iter >= 0,
        "max_time is of each fit": parameters.max_seconds < float("inf"),
        "all rows are one working set": parameters.working_set == "all",
        "shrinking is of one function": bool(parameters.shrinking),
        "rows_at_once is of one function": bool(parameters.rows_at_once),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


class PointOfFits(NamedTuple):
    """Where a run of several fits ended; one with another C can start there."""

    known: KnownPoint
    C: float


class TrainedTogether(NamedTuple):
    """What a run of several fits has led to.

    Attributes
    ----------
    models : list of KernelExpansion
        Each certificate has the gap and the objective of its fit; what the run has cost is divided
        equally. A fit is as converged as the run.
    point : PointOfFits or None
        None where a run was stopped.
    variable_of : (n,) integers
        Variable of each row, −1 for rows without weight.
    finished : list of Finished
        What makes values of the decision functions from outputs.
    """

    models: list[KernelExpansion]
    point: PointOfFits | None
    variable_of: Indices
    finished: list[Finished]

    def values(self, fit: int) -> F8:
        """Values of the decision function of a fit at all rows, from float32 kernel values.

        Returns
        -------
        (n,) float64
            NaN where they are not known.
        """
        values = np.full(len(self.variable_of), np.nan)
        if self.point is not None:
            rows = np.flatnonzero(self.variable_of >= 0)
            outputs = self.point.known.outputs[self.variable_of[rows], fit]
            values[rows] = self.finished[fit].scale * outputs + self.finished[fit].intercept
        return values


def train_together(
    source: RowSource,
    labels: NDArray[Any] | None,
    sample_weights: Sequence[F8],
    parameters: TrainingParameters,
    hooks: Hooks,
    *,
    start: PointOfFits | None = None,
    tracked: F8 | None = None,
) -> TrainedTogether:
    """Train a model for each of several weights of the rows; `why_apart` has returned None.

    Parameters
    ----------
    source, labels, parameters, hooks
        As `train_model` takes them.
    sample_weights : sequence of (n,) float64
        One or more. Rows without weight have no part in a fit.
    start : PointOfFits, optional
        Where a run of the same fits with another C ended; it is used up.
    tracked : (n,) float64, optional
        Positive for the rows whose outputs the run has to know besides those with a weight.

    Raises
    ------
    ParameterError, DataError, MemoryBudgetError, CheckpointError, DataCorruptionError
    """
    check_parameters(parameters)
    numbering = None
    if source.is_sparse:
        source, numbering = narrowed(source, keep_numbers=parameters.has_column_factors)
    fits = _Folds(source.n_rows, labels, sample_weights, parameters, start, tracked)
    samples = [
        sample_of(Given(source, labels, weights, parameters, hooks)) for weights in sample_weights
    ]
    with run_problems(fits, source, parameters, hooks) as trained:
        models = [
            advised(model_of(trained, functions, parameters, fits, of_classes), sample, parameters)
            for functions, of_classes, sample in zip(
                fits.functions(trained.result), fits.class_weights, samples, strict=True
            )
        ]
    if numbering is not None:
        models = [
            replace(model, support_vectors=numbering.undo(model.support_vectors), centre=None)
            for model in models
        ]
    return fits.trained(models, trained.result)


def projected_together(
    source: RowSource,
    labels: NDArray[Any] | None,
    sample_weights: Sequence[F8],
    parameters: TrainingParameters,
) -> dict[str, int]:
    """Bytes of the parts of a run, by name; the arguments are those of `train_together`."""
    check_parameters(parameters)
    source, _ = narrowed(source, keep_numbers=parameters.has_column_factors)
    fits = _Folds(source.n_rows, labels, sample_weights, parameters, None)
    return fits.plan(source)[1].projected


class _Folds(FunctionsReduction[WeightedFunctions]):
    """A problem for each fit, in one run; the arguments are those of `train_together`, checked."""

    sample_weight = rule = None

    def __init__(
        self,
        n_rows: int,
        labels: NDArray[Any] | None,
        sample_weights: Sequence[F8],
        parameters: TrainingParameters,
        start: PointOfFits | None,
        tracked: F8 | None = None,
    ) -> None:
        made = [make_problem(parameters, n_rows, labels, weights) for weights in sample_weights]
        problems = [problem for _, problem in made]
        functions = WeightedFunctions.of(problems)
        if tracked is not None:
            weights = np.maximum(functions.weights(slice(None)), tracked)
            functions = replace(functions, sample_weight=weights)
        super().__init__(parameters, functions)
        self.classes, self._start, self._n_rows = made[0][0], start, n_rows
        self.class_weights = [getattr(problem, "class_weight", None) for problem in problems]

    def resident_bytes(self, source: RowSource) -> int:
        problem = self._problem
        # Twice: of rows, and of the variables in the order they are trained in.
        labels = 2 * (problem.n_outputs * problem.per_row.nbytes + problem.held_bytes)
        # The number of each row's variable, and alpha of the point that the run starts from.
        return labels + (4 + problem.zeros(1).nbytes) * source.n_rows

    def recorded(self) -> Recorded:
        problem = self._problem
        hasher = xxhash.xxh3_128()
        for function in problem.functions:
            hasher.update(np.ascontiguousarray(function.weights(slice(None))).data)
        return Recorded(
            self.name,
            (problem.per_row, problem.sample_weight),
            problem.chosen(),
            self.class_weights,
            {"weights of fits": hasher.hexdigest(), **recorded_rules(self._parameters)},
        )

    def run(self, resources: RunResources) -> TrainingResult:
        point = self._first_point()
        if self._problem.n_outputs > 1:
            return self.solve(resources, point)
        return self._solve_one(resources, point)

    def _solve_one(self, resources: RunResources, point: KnownPoint | None) -> TrainingResult:
        """Solve the problem of a single fit, as one of one function: it takes less time so."""
        trainer, plan, (source, problem, _) = resources.trainer, resources.plan, self._variables
        (function,) = problem.functions
        dual = _ToldDual(**vars(trainer.dual(source, function, plan)))
        if point is not None:
            point = point._replace(alpha=point.alpha[:, 0], outputs=point.outputs[:, 0])
        result = trainer.decompose(source, dual, plan, point=point, **resources.control())
        alpha: Any = result.alpha[:, None]
        if result.point is not None:
            known = result.point
            point = known._replace(alpha=known.alpha[:, None], outputs=known.outputs[:, None])
        return replace(
            result, alpha=sp.csr_array(alpha) if alpha.ndim == 2 else alpha,
            point=None if result.point is None else point,
        )  # fmt: skip

    def _first_point(self) -> KnownPoint | None:
        """Make the point to start from feasible for this C: scaled, and its outputs with it."""
        if self._start is None:
            return None
        (alpha, outputs, computed_here), C = self._start
        trained = self._variables.formulation
        expected = trained.zeros(len(trained)).shape
        if alpha.shape != expected or outputs.shape != expected[:2]:
            raise CheckpointError(
                f"the point to start from has the shape {alpha.shape} instead of {expected}; "
                "remove it, and the work is done again"
            )
        feasible = np.empty_like(alpha)
        for c, function in enumerate(trained.functions):
            factor = _best_factor(function, alpha[:, c], outputs[:, c], self._parameters.C / C)
            scaled = factor * alpha[:, c]
            feasible[:, c] = project(function, scaled)
            changed = np.abs(feasible[:, c] - scaled).max(initial=0.0)
            if changed > ROUNDING * np.abs(scaled).max(initial=0.0):
                return None
            outputs[:, c] *= factor
        return KnownPoint(feasible, outputs, computed_here)

    def functions(self, result: TrainingResult) -> list[ModelFunctions]:
        """Return the function of each fit."""
        decisions = self.decisions(result)
        shares = _shares(result.certificate, len(decisions))
        return [
            ModelFunctions(
                decision.support,
                decision.coefficients,
                decision.intercept,
                {**decision.certificate.as_dict(), **share, **decision.extras},
            )
            for decision, share in zip(decisions, shares, strict=True)
        ]

    def trained(self, models: list[KernelExpansion], result: TrainingResult) -> TrainedTogether:
        """Gather what the run has led to."""
        groups, trained = self._variables.groups, self._variables.formulation
        variable_of: Indices = np.arange(self._n_rows, dtype=np.int64)
        if self._n_rows <= np.iinfo(np.int32).max:
            variable_of = variable_of.astype(np.int32)
        if groups is not None:
            variable_of[:] = -1
            variable_of[groups.rows] = np.repeat(np.arange(len(groups)), np.diff(groups.starts))
        return TrainedTogether(
            models,
            None if result.point is None else PointOfFits(result.point, self._parameters.C),
            variable_of,
            [
                function.finish(trained.thresholds_of(c, result.thresholds))
                for c, function in enumerate(self._problem.functions)
            ],
        )


@dataclass(frozen=True)
class _ToldDual(BoxDual):
    """The dual of a single fit, whose standing is told as that of one of several."""

    def standings(self, standing: Optimality) -> tuple[Optimality, ...]:
        return (standing,)


def _best_factor(function: Formulation, alpha: F8, outputs: F8, ratio: float) -> float:
    """Factor by which the point of another C is best scaled, up to the ratio of this C to that one.

    The dual objective is quadratic along the way. Where all variables are at their bounds the
    ratio is best, where none is, 1. Sums that are not 0 grow with C.
    """
    if function.sums(slice(0, 0)) is not None or ratio <= 1:
        return ratio
    standing = BoxDual(function).optimality(alpha, outputs)
    quadratic = standing.outputs_term + standing.ridge_term
    if not quadratic > 0:
        return ratio
    return float(np.clip(standing.linear_term / quadratic, 1.0, ratio))


def _shares(certificate: Certificate, k: int) -> Iterator[dict[str, Any]]:
    """Divide what a run of k fits has cost; the counts add up to those of the run."""
    for fit in range(k):
        counts = {name: getattr(certificate, name) for name in ADDED_UP}
        yield {
            **{name: count // k + (fit < count % k) for name, count in counts.items()},
            "seconds": certificate.seconds / k,
            "seconds_by_phase": {
                phase: seconds / k for phase, seconds in certificate.seconds_by_phase.items()
            },
        }

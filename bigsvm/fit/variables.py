"""From rows to the variables that are trained, and back: random order, equal rows merged.

The first rows in training are a sample of all, so the order has to be random. Equal rows of one
class become one variable with the sum of their bounds: the same dual, with fewer kernel values.
After training its alpha is divided among the rows, each up to its own bound. Rows without weight
have no variable. For a regression, equal rows stay apart.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

import numpy as np

from bigsvm.data.wrappers import ChosenRows
from bigsvm.duals.box import BoxDual
from bigsvm.duals.problem import Problem
from bigsvm.fit.duplicates import Groups, equal_rows
from bigsvm.working_sets.choice import DIRECT_ROWS

if TYPE_CHECKING:
    from bigsvm.arrays import F8, I8, Mask
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Indices
    from bigsvm.duals.box_problem import Formulation, Segment
    from bigsvm.training.result import Certificate, TrainingResult

ORDER_SEED = 0
"""Seed of the order of training: not `seed`, so that a run can be resumed with another one."""


AnyProblem = TypeVar("AnyProblem", bound=Problem)
AnyProblem_co = TypeVar("AnyProblem_co", bound=Problem, covariant=True)


class Variables(NamedTuple, Generic[AnyProblem_co]):
    """What is trained.

    Attributes
    ----------
    source : RowSource
    formulation : Problem
        Problem of the rows of this source.
    groups : Groups or None
        The original rows of each; None where there is one variable for each row, in their order.
    """

    source: RowSource
    formulation: AnyProblem_co
    groups: Groups | None

    def gather(self, alpha: F8) -> F8:
        """Add alpha of the original rows, (n,) or (n, faces), up to that of the variables."""
        if self.groups is None:
            return alpha
        summed: F8 = np.add.reduceat(alpha[self.groups.rows], self.groups.starts[:-1], axis=0)
        return summed

    def spread(self, formulation: Formulation, support: I8, alpha: F8) -> tuple[I8, F8]:
        """Deal the alpha of variables out to the rows they stand for.

        Parameters
        ----------
        formulation : Formulation
            Formulation of the original rows.
        support : (p,) int64
            Variables.
        alpha : (p,) or (p, faces) float64

        Returns
        -------
        support, alpha : (q,) int64, ascending, and (q,) or (q, faces) float64
            Rows with a coefficient.
        """
        if self.groups is None:
            return support, alpha
        starts = self.groups.starts
        sizes = np.diff(starts)[support]
        variable = np.repeat(np.arange(len(support)), sizes)
        offset = np.arange(len(variable)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        rows = self.groups.rows[starts[support][variable] + offset].astype(np.int64)
        if (sizes == 1).all():
            order = np.argsort(rows)
            return rows[order], alpha[order]
        segments = formulation.segments(rows)
        amount = _dealt(np.abs(alpha)[variable], segments, variable, offset == 0)
        amount[sizes[variable] == 1] = np.abs(alpha)[sizes == 1]
        nonzero = np.flatnonzero(amount)
        order = nonzero[np.argsort(rows[nonzero])]
        return rows[order], np.copysign(amount, alpha[variable])[order]


def _dealt(total: F8, segments: tuple[Segment, ...], variable: I8, is_first: Mask) -> F8:
    """Divide the total of each variable among its rows: each up to its bound, the first rows first.

    With a ridge, rows share by weight: the inverse of the ridge is the sum of the rows' inverses.
    """
    first = np.flatnonzero(is_first)
    if np.any(segments[0].ridge):
        ridge = np.broadcast_to(segments[0].ridge, len(variable))
        # A row without weight has no ridge.
        weight = np.divide(1.0, ridge, out=np.zeros(len(variable)), where=ridge > 0)
        shared: F8 = total * weight / np.add.reduceat(weight, first)[variable]
        return shared
    width = sum((box.upper - box.lower for box, _, _ in segments), np.zeros(len(variable)))
    if not np.isfinite(width).all():
        width = np.minimum(width, total)
    filled = np.cumsum(width)
    # The widths of the boxes of earlier rows of the same variable.
    earlier = filled - width - (filled - width)[first][variable]
    return np.clip(total - earlier, 0.0, width)


def make_variables(
    source: RowSource, formulation: AnyProblem, *, merge: bool, compare: bool = True
) -> Variables[AnyProblem]:
    """Choose the variables of a training problem; without `merge`, one for each row as it comes.

    Without `compare`, which reads all rows, equal ones stay apart.

    A store's rows have been shuffled already and stay in their order, those that are not in memory
    are not compared.
    Rows so few that all take part at once are trained as they come.
    """
    weights = formulation.sample_weight
    if source.row_alignment > 1 or source.n_rows <= DIRECT_ROWS or not merge:
        return Variables(source, formulation, None)
    weighted: Indices = np.arange(source.n_rows, dtype=np.int64)
    if source.n_rows <= np.iinfo(np.int32).max:
        weighted = weighted.astype(np.int32)
    if weights is not None:
        weighted = weighted[weights > 0]
    if not (compare and formulation.compares_rows):
        groups = Groups(weighted, np.arange(len(weighted) + 1))
    else:
        kind = np.ascontiguousarray(formulation.per_row)
        groups = equal_rows(source, kind, weighted)
    if source.is_shuffled:
        # The first rows are a sample, and in few chunks, so that workers read few.
        order = np.argsort(groups.first)
    else:
        order = np.random.default_rng(ORDER_SEED).permutation(len(groups))
    groups = _ordered(groups, order)
    merged = formulation.summed(groups.rows, groups.starts)
    return Variables(ChosenRows(source, groups.first, in_random_order=True), merged, groups)


def _ordered(groups: Groups, order: I8) -> Groups:
    """Put groups in another order."""
    sizes = np.diff(groups.starts)[order]
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    offset = np.arange(starts[-1]) - np.repeat(starts[:-1], sizes)
    return Groups(groups.rows[np.repeat(groups.starts[:-1][order], sizes) + offset], starts)


class DecisionFunction(NamedTuple):
    """The decision function that a run has led to; `extras` are `Finished.found`.

    Rows of the problem with a coefficient are ascending, (p,).
    """

    support: I8
    coefficients: F8
    intercept: float
    extras: dict[str, float]
    certificate: Certificate


def decision_of(
    variables: Variables[Formulation], formulation: Formulation, result: TrainingResult
) -> DecisionFunction:
    """Read the decision function off a result, for the original rows instead of the variables."""
    support, alpha = variables.spread(formulation, result.support, result.alpha)
    finished = formulation.finish(result.thresholds)
    certificate = result.certificate
    if variables.groups is not None:
        # Several rows may have been one variable.
        bounded = BoxDual(formulation).n_bounded(alpha, support)
        n_different: int | None = len(variables.groups)
        if n_different == len(variables.groups.rows):
            n_different = None
        certificate = replace(
            certificate, n_support=len(support), n_bounded=bounded, n_different=n_different
        )
    coefficients = finished.scale * formulation.per_output(alpha)
    intercept = float(finished.intercept + formulation.offset * coefficients.sum())
    return DecisionFunction(support, coefficients, intercept, finished.found, certificate)

"""The certificate of a small problem: gaps over all rows in float64, and a step to the optimum.

LIBSVM ends within a tolerance. Two problems with the same optimum (a row twice, or once with weight
2) would then differ by it, so the equations of the free variables are solved once more, which costs
little where these are few.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigsvm.duals.box_problem import Box, Extremes, Optimality
from bigsvm.duals.polish import DAMPING, RESOLUTION, polish

if TYPE_CHECKING:
    from bigsvm.arrays import F8, I8
    from bigsvm.duals.box_problem import Formulation

MOST_FREE = 128
"""Most free variables whose equations are solved: they take less than a millisecond."""
MOST_NEAR = 128
"""Most variables of a problem whose set of free ones is searched too: tens of such systems."""
EXACT = 10 * RESOLUTION
"""KKT gap, relative to the largest gradient, of a point that is not searched any further."""
UNBALANCED = 1e-9
"""Largest error of the sum of variables, relative to the sum of their sizes."""


class Certified(NamedTuple):
    """A point of all rows, (n,) or (n, 2), its outputs, (n,), and what they prove."""

    alpha: F8
    outputs: F8
    standing: Optimality


class _Variables(NamedTuple):
    """All variables, (v,), that can move: their box, groups and rows."""

    box: Box
    groups: I8
    rows: I8
    places: I8
    n_groups: int


def certify(problem: Formulation, matrix: F8, alpha: F8, *, tol: float) -> Certified | None:
    """Bring a point nearer to the optimum if that is cheap, and measure its gaps.

    Parameters
    ----------
    problem : Formulation
        Without ridge.
    matrix : (n, n) float64
    alpha : (n,) or (n, 2) float64
    tol : float
        Variables this near to violating may become free.

    Returns
    -------
    Certified or None
        None where the point is none of the problem: outside of a bound, or with other sums.
    """
    variables = _variables_of(problem, len(matrix))
    at = _stacked(problem, alpha)[variables.places]
    if not _is_feasible(problem, variables, at):
        return None
    with_sums = problem.sums(slice(0, 0)) is not None

    def measured(at: F8) -> _Measured:
        outputs = _outputs(matrix, variables, at)
        return _Measured(at, outputs, _standing(variables, at, outputs, with_sums=with_sums))

    free = np.flatnonzero((at > variables.box.lower) & (at < variables.box.upper))
    best = first = None
    if 2 <= len(free) <= MOST_FREE:
        best = measured(_equalised(matrix, variables, at, free))
    if best is None or best.standing.gap > EXACT * best.size(variables):
        first = measured(at)
        searched = _searched(matrix, variables, first, tol)
        tried = [first, best, None if searched is None else measured(searched)]
        best = min((one for one in tried if one is not None), key=lambda one: one.standing.gap)
    if best is not first and not _is_feasible(problem, variables, best.at):
        best = measured(at)
    return Certified(_unstacked(problem, variables, best.at, alpha), best.outputs, best.standing)


class _Measured(NamedTuple):
    """Variables, (v,), the outputs of all rows, (n,), and what they prove."""

    at: F8
    outputs: F8
    standing: Optimality

    def size(self, variables: _Variables) -> float:
        """Largest gradient, at least 1."""
        gradient = variables.box.linear - self.outputs[variables.rows]
        return max(float(np.abs(gradient).max()), 1.0)


def _variables_of(problem: Formulation, n_rows: int) -> _Variables:
    segments = problem.segments(slice(None))
    if len(segments) == 1:
        box, rows = segments[0].box, np.arange(n_rows)
        groups = np.zeros(n_rows, np.int64)
    else:
        box = Box(
            *(np.concatenate(parts) for parts in zip(*(s.box for s in segments), strict=True))
        )
        rows = np.tile(np.arange(n_rows), len(segments))
        groups = np.repeat([segment.group for segment in segments], n_rows)
    places = np.flatnonzero(box.lower < box.upper)
    if len(places) < len(rows):
        box, groups, rows = Box(*(part[places] for part in box)), groups[places], rows[places]
    return _Variables(box, groups, rows, places, problem.n_groups)


def _stacked(problem: Formulation, alpha: F8) -> F8:
    """Alpha of one segment after the other."""
    parts = problem.split(alpha, slice(None))
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _unstacked(problem: Formulation, variables: _Variables, at: F8, like: F8) -> F8:
    n_segments = problem.n_segments
    of_all = np.zeros(n_segments * len(like))
    of_all[variables.places] = at
    return problem.join(list(of_all.reshape(n_segments, -1)))


def _beta(n_rows: int, variables: _Variables, at: F8) -> F8:
    """Weights of kernel rows, (n,)."""
    beta = np.bincount(variables.rows, at, n_rows)
    return beta.astype(np.float64, copy=False)


def _outputs(matrix: F8, variables: _Variables, at: F8) -> F8:
    """Compute the outputs of all rows, (n,)."""
    outputs: F8 = matrix @ _beta(len(matrix), variables, at)
    return outputs


def _is_feasible(problem: Formulation, variables: _Variables, at: F8) -> bool:
    box, groups = variables.box, variables.groups
    if not ((at >= box.lower) & (at <= box.upper)).all():
        return False
    totals = np.bincount(groups, at, variables.n_groups)
    amounts = np.bincount(groups, np.abs(at), variables.n_groups)
    wanted = np.array(problem.sums(slice(None)) or (0.0,) * variables.n_groups)
    return bool((np.abs(totals - wanted) <= UNBALANCED * np.maximum(amounts, np.abs(wanted))).all())


def _standing(variables: _Variables, at: F8, outputs: F8, *, with_sums: bool) -> Optimality:
    """Standing of a point by its outputs, as `BoxDual.optimality` has it."""
    box, groups, rows, _, n_groups = variables
    f = outputs[rows]
    gradient = box.linear - f
    rises, falls = at < box.upper, at > box.lower
    free = rises & falls
    thresholds, extremes = np.zeros(n_groups), []
    for g in range(n_groups):
        here = groups == g if n_groups > 1 else np.True_
        max_up = float(gradient[rises & here].max(initial=-np.inf))
        min_low = float(gradient[falls & here].min(initial=np.inf))
        inside = gradient[free & here]
        ends = [end for end in (max_up, min_low) if math.isfinite(end)]
        threshold = float(inside.mean()) if len(inside) else sum(ends) / max(len(ends), 1)
        thresholds[g] = threshold
        extremes.append(Extremes(max_up, min_low, threshold))
    excess = gradient - thresholds[groups]
    slack = float(np.maximum(excess, 0) @ box.upper + np.minimum(excess, 0) @ box.lower)
    sums_term = float(np.bincount(groups, at, n_groups) @ thresholds) if with_sums else 0.0
    moved = at != 0
    return Optimality(
        tuple(extremes),
        n_support=len(np.unique(rows[moved])) if n_groups > 1 else int(np.count_nonzero(moved)),
        n_bounded=int(np.count_nonzero(moved & ~free)),
        n_free=int(np.count_nonzero(free)),
        linear_term=float(box.linear @ at),
        outputs_term=float(at @ f),
        ridge_term=0.0,
        slack=slack,
        sums_term=sums_term,
    )


def _equalised(matrix: F8, variables: _Variables, at: F8, free: I8) -> F8:
    """Solve the equations of the free variables; what leaves its box is put back to its bound.

    Such a point has other sums: it is not taken unless it is feasible.
    """
    box, groups, rows, _, n_groups = variables
    rows = rows[free]
    gradient = box.linear[free] - matrix[rows] @ _beta(len(matrix), variables, at)
    better = at.copy()
    better[free] += _newton(matrix[np.ix_(rows, rows)], groups[free], n_groups, gradient)
    return np.clip(better, box.lower, box.upper, out=better)


def _searched(matrix: F8, variables: _Variables, point: _Measured, tol: float) -> F8 | None:
    """Find out which of the variables near the thresholds are free; None where these are many."""
    box, groups, rows, *_ = variables
    at, outputs, standing = point
    gradient = box.linear - outputs[rows]
    thresholds = np.array(standing.thresholds)[groups]
    is_near = np.abs(gradient - thresholds) <= 2 * max(tol, standing.gap)
    near = np.flatnonzero(is_near | ((at > box.lower) & (at < box.upper)))
    if not 2 <= len(near) <= MOST_NEAR:
        return None
    gram = matrix[np.ix_(rows[near], rows[near])]
    # What the other variables, which are fixed, add to the outputs.
    linear = gradient[near] + gram @ at[near]
    searched = at.copy()
    searched[near] = polish(
        gram, Box(linear, box.lower[near], box.upper[near]), at[near], groups=groups[near]
    )
    return searched


def _newton(gram: F8, groups: I8, n_groups: int, gradient: F8) -> F8:
    """Change of the free variables that makes their gradients equal, of sum 0 in each group."""
    m = len(gram)
    scale = float(np.abs(gram.diagonal()).max()) or 1.0
    members = scale * (groups[:, None] == np.arange(n_groups)).astype(np.float64)
    if n_groups > 1:
        members = members[:, members.any(axis=0)]
    system = np.zeros((m + members.shape[1],) * 2)
    system[:m, :m] = gram
    system.flat[: m * len(system) : len(system) + 1] += DAMPING * scale
    system[:m, m:], system[m:, :m] = members, members.T
    right = np.zeros(len(system))
    right[:m] = gradient
    try:
        change = np.linalg.solve(system, right)[:m]
    except np.linalg.LinAlgError:
        return np.zeros(m)
    # What rounding has left of the sums.
    balanced: F8 = change - members @ ((members.T @ change) / (scale * members.sum(axis=0)))
    return balanced

"""The certificate of a small problem: gaps over all rows in float64, and a step to the optimum.

LIBSVM ends within a tolerance. Two problems with the same optimum (a row twice, or once with weight
2) would then differ by it, so the equations of the free variables are solved once more, which costs
little where these are few. Several functions over the same kernel matrix, as those of class pairs,
are measured together: for few rows the calls of NumPy cost more than what they compute.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigsvm.duals.box_problem import Box, Extremes, Optimality
from bigsvm.duals.polish import DAMPING, RESOLUTION, polish

if TYPE_CHECKING:
    from bigsvm.arrays import F8, I8, Mask
    from bigsvm.duals.box_problem import Formulation

MOST_FREE = 128
"""Most free variables whose equations are solved: they take less than a millisecond."""
MOST_NEAR = 128
"""Most variables of a problem whose set of free ones is searched too: tens of such systems."""
EXACT = 10 * RESOLUTION
"""KKT gap, relative to the largest gradient, of a point that is not searched any further."""
UNBALANCED = 1e-9
"""Largest error of the sum of variables, relative to the sum of their sizes."""
ROUNDING = 1e-12
"""Share of a bound within which a variable is at it."""


class Certified(NamedTuple):
    """A point of all rows, (n,) or (n, 2), its outputs, (n,), and what they prove."""

    alpha: F8
    outputs: F8
    standing: Optimality


class Variables:
    """Variables, (v,), that can move, of functions over the same rows that share nothing else.

    Attributes
    ----------
    box : Box
    groups : (v,) int64
        Ascending. Each function has as many groups, one or two, which follow one another.
    cells : (v,) int64
        Places of the coefficients in an array (n_rows, n_functions).
    sums : (n_groups,) float64
        What the variables of each group add up to.
    starts, starts_of_functions : (n_groups,), (n_functions,) int64
        Where the variables of each group and of each function begin.
    """

    def __init__(
        self, box: Box, groups: I8, cells: I8, sums: F8, n_rows: int, n_functions: int = 1
    ) -> None:
        self.box, self.groups, self.cells, self.sums = box, groups, cells, sums
        self.n_rows, self.n_functions = n_rows, n_functions
        self.groups_each = len(sums) // n_functions
        self.starts = np.searchsorted(groups, np.arange(len(sums)))
        self.starts_of_functions = self.starts[:: self.groups_each]

    def have_all_groups(self) -> bool:
        """Whether each group has a variable."""
        return bool(np.bincount(self.groups, minlength=len(self.sums)).all())

    def coefficients(self, at: F8) -> F8:
        """Weights of kernel rows, (n_rows, n_functions)."""
        beta: F8 = np.bincount(self.cells, at, self.n_rows * self.n_functions).astype(
            np.float64, copy=False
        )
        return beta.reshape(self.n_rows, self.n_functions)

    def balanced(self, at: F8) -> Mask:
        """Whether each group adds up to its sum, (n_groups,)."""
        totals, sizes = np.add.reduceat([at, np.abs(at)], self.starts, axis=1)
        most = UNBALANCED * np.maximum(sizes, np.abs(self.sums))
        balanced: Mask = np.abs(totals - self.sums) <= most
        return balanced

    def of_function(self, function: int) -> tuple[slice, Variables]:
        """Where the variables of one function are, and these."""
        first = function * self.groups_each
        groups = slice(first, first + self.groups_each)
        places = slice(*np.searchsorted(self.groups, [groups.start, groups.stop]).tolist())
        return places, Variables(
            Box(*(part[places] for part in self.box)),
            self.groups[places] - first,
            self.cells[places] // self.n_functions,
            self.sums[groups],
            self.n_rows,
        )


class Point(NamedTuple):
    """Variables, (v,), outputs of all rows, (n_rows, n_functions), and what they prove.

    `sizes`, (n_functions,), are the largest gradients, 1 at least.
    """

    at: F8
    outputs: F8
    standings: list[Optimality]
    sizes: list[float]

    def is_exact(self, function: int) -> bool:
        """Whether float64 tells a function from the optimum no more."""
        return self.standings[function].gap <= EXACT * self.sizes[function]

    def of_function(self, function: int, places: slice) -> Point:
        """Return the same of one function, whose variables are at `places`."""
        return Point(
            self.at[places].copy(),
            self.outputs[:, function, None].copy(),
            self.standings[function : function + 1],
            self.sizes[function : function + 1],
        )


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
    segments = problem.segments(slice(None))
    boxes = [segment.box for segment in segments]
    box = boxes[0] if len(boxes) == 1 else Box(*map(np.concatenate, zip(*boxes, strict=True)))
    n_rows, n_groups, n_variables = len(matrix), problem.n_groups, len(box.linear)
    rows = np.arange(n_variables) % n_rows
    groups = np.zeros(n_variables, np.int64)
    if n_groups > 1:
        groups = np.repeat([segment.group for segment in segments], n_rows)
    at = np.concatenate(problem.split(alpha, slice(None)))
    moves = box.lower < box.upper
    places = None if moves.all() else np.flatnonzero(moves)
    if places is not None:
        box, groups, rows = Box(*(part[places] for part in box)), groups[places], rows[places]
        at = at[places]
    if problem.n_faces == 1:
        at = at_bounds(box, at)
    sums = np.array(problem.sums(slice(None)) or (0.0,) * n_groups)
    variables = Variables(box, groups, rows, sums, n_rows)
    point = certify_functions(variables, matrix, at, tol=tol)
    if point is None:
        return None
    of_all = point.at
    if places is not None:
        of_all = np.zeros(n_variables)
        of_all[places] = point.at
    alpha = problem.join(list(of_all.reshape(problem.n_segments, -1)))
    return Certified(alpha, point.outputs[:, 0], point.standings[0])


def certify_functions(variables: Variables, matrix: F8, at: F8, *, tol: float) -> Point | None:
    """Do what `certify` does for variables, (v,), of several functions.

    Returns
    -------
    Point or None
        None where the point of any function is none of its problem.
    """
    box, n_functions = variables.box, variables.n_functions
    inside = ((at >= box.lower) & (at <= box.upper)).all()
    if not (inside and variables.have_all_groups() and variables.balanced(at).all()):
        return None
    solved, better = _equalised(variables, matrix, at)
    point = _measured(variables, matrix, better)
    balanced = variables.balanced(better).reshape(n_functions, -1)
    for function in range(n_functions):
        is_balanced = bool(balanced[function].all())
        if is_balanced and point.is_exact(function):
            continue
        places, own = variables.of_function(function)
        found = point.of_function(function, places)
        first = _measured(own, matrix, at[places]) if solved[function] else found
        tried = [first]
        if solved[function] and is_balanced:
            tried.append(found)
        searched = _searched(own, matrix, first, tol)
        if searched is not None and own.balanced(searched).all():
            tried.append(_measured(own, matrix, searched))
        best = min(tried, key=lambda one: one.standings[0].gap)
        point.at[places], point.outputs[:, function] = best.at, best.outputs[:, 0]
        point.standings[function] = best.standings[0]
    return point


def at_bounds(box: Box, at: F8) -> F8:
    """Put variables that are at a bound but for rounding exactly there."""
    for bound in (box.lower, box.upper):
        near = np.abs(at - bound) <= ROUNDING * np.abs(bound)
        at = np.where(near, bound, at)
    return at


def _measured(variables: Variables, matrix: F8, at: F8) -> Point:
    """Measure a point; what it proves is what `BoxDual.optimality` has."""
    box, groups, starts = variables.box, variables.groups, variables.starts
    beta = variables.coefficients(at)
    outputs: F8 = matrix @ beta
    f = outputs.ravel()[variables.cells]
    gradient = box.linear - f
    rises, falls = at < box.upper, at > box.lower
    free = rises & falls
    ups = np.maximum.reduceat(np.where(rises, gradient, -np.inf), starts).tolist()
    lows = np.minimum.reduceat(np.where(falls, gradient, np.inf), starts).tolist()
    within, totals = np.add.reduceat([np.where(free, gradient, 0.0), at], starts, axis=1).tolist()
    n_within = np.add.reduceat(free, starts, dtype=np.int64).tolist()
    extremes = []
    for up, low, inside, n_inside in zip(ups, lows, within, n_within, strict=True):
        ends = [end for end in (up, low) if math.isfinite(end)]
        threshold = inside / n_inside if n_inside else sum(ends) / max(len(ends), 1)
        extremes.append(Extremes(up, low, threshold))
    excess = gradient - np.array([group.threshold for group in extremes])[groups]
    slack = np.maximum(excess, 0) * box.upper + np.minimum(excess, 0) * box.lower
    each, starts = variables.groups_each, variables.starts_of_functions
    terms = np.add.reduceat([box.linear * at, at * f, slack], starts, axis=1).T.tolist()
    counts = np.add.reduceat([(at != 0) & ~free, free], starts, axis=1, dtype=np.int64).tolist()
    n_support = np.count_nonzero(beta, axis=0).tolist()
    sizes = np.maximum.reduceat(np.abs(gradient), starts)
    standings = []
    for number, (linear_term, outputs_term, lost) in enumerate(terms):
        own = slice(each * number, each * (number + 1))
        standings.append(
            Optimality(
                tuple(extremes[own]),
                n_support=n_support[number],
                n_bounded=counts[0][number],
                n_free=counts[1][number],
                linear_term=linear_term,
                outputs_term=outputs_term,
                ridge_term=0.0,
                slack=lost,
                sums_term=sum(
                    total * group.threshold
                    for total, group, wanted in zip(
                        totals[own], extremes[own], variables.sums[own].tolist(), strict=True
                    )
                    if wanted
                ),
            )
        )
    return Point(at, outputs, standings, np.maximum(sizes, 1.0).tolist())


def _equalised(variables: Variables, matrix: F8, at: F8) -> tuple[list[bool], F8]:
    """Solve the equations of the free variables of each function that has few.

    What leaves its box is put back to its bound. Such a point has other sums.

    Returns
    -------
    solved : list of bool
        Of each function, whether its equations were solved.
    better : (v,) float64
    """
    box, n_functions = variables.box, variables.n_functions
    free = np.flatnonzero((at > box.lower) & (at < box.upper))
    starts = np.searchsorted(free, [*variables.starts_of_functions.tolist(), len(at)]).tolist()
    beta, better = variables.coefficients(at), at.copy()
    solved = []
    for function, (start, stop) in enumerate(itertools.pairwise(starts)):
        solved.append(2 <= stop - start <= MOST_FREE)
        if solved[-1]:
            own = free[start:stop]
            rows = variables.cells[own] // n_functions
            kernel_rows = matrix[rows]
            gradient = box.linear[own] - kernel_rows @ beta[:, function]
            better[own] += _newton(kernel_rows[:, rows], variables.groups[own], gradient)
    return solved, np.minimum(np.maximum(better, box.lower), box.upper)


def _searched(variables: Variables, matrix: F8, point: Point, tol: float) -> F8 | None:
    """Find out which of the variables near the thresholds are free; None where these are many.

    The variables are those of one function.
    """
    box, groups, rows, at = variables.box, variables.groups, variables.cells, point.at
    standing = point.standings[0]
    gradient = box.linear - point.outputs[rows, 0]
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


def _newton(gram: F8, groups: I8, gradient: F8) -> F8:
    """Change of the free variables that makes their gradients equal, of sum 0 in each group."""
    m = len(gram)
    scale = float(np.abs(gram.diagonal()).max()) or 1.0
    # A function has two groups at most: none is missing between those that there are.
    present = np.arange(groups[0], groups[-1] + 1)
    members = scale * (groups[:, None] == present)
    system = np.zeros((m + len(present),) * 2)
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

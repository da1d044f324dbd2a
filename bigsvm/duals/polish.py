"""Polishing: an active-set method that takes a small solved problem to the precision of float64.

Pair steps stop at a tolerance; two problems with the same optimum (a row twice, or once with weight
2) then differ by that tolerance. Where the rows that matter are few, solving their linear system
exactly costs nothing beside training, and makes the two answers one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.duals.formulations import Box

MOST_ROWS = 512
"""Rows of a problem worth polishing: its linear systems take milliseconds."""
ROUNDS = 4 * MOST_ROWS
RESOLUTION = 1e-11
"""KKT gap, relative to the largest gradient, below which float64 tells nothing apart."""


def polish(
    gram: NDArray[np.float64],
    box: Box,
    alpha: NDArray[np.float64],
    *,
    groups: NDArray[np.int64] | None = None,
) -> NDArray[np.float64]:
    """Improve alpha until the optimality conditions hold to about 1e-11.

    Each round solves ``g_F − Q_FF d = b, Σ d = 0`` of each group for the free variables F, goes
    along d as far as the box allows, and frees the worst violator once no free variable is left to
    improve. Where Q_FF is singular and there is no solution, the residual is a direction that gains
    and meets no curvature: the round goes along it to the box.

    Parameters
    ----------
    gram : (m, m) float64
        Q among the variables.
    box : Box
        Their linear term and bounds.
    alpha : (m,) float64
        A feasible point.
    groups : (m,) int64, optional
        From 0 on; one group, if not given.

    Returns
    -------
    (m,) float64
        A feasible point with the same sums and at least the same objective.
    """
    linear, lower, upper = box
    groups = np.zeros(len(alpha), np.int64) if groups is None else groups
    members = np.arange(groups.max(initial=0) + 1) == groups[:, None]
    alpha = alpha.copy()
    gradient = linear - gram @ alpha
    free = (alpha > lower) & (alpha < upper)
    for _ in range(ROUNDS):
        rows = np.flatnonzero(free)
        full_step = True
        if len(rows) > 1:
            direction, length = _direction(
                gram[np.ix_(rows, rows)], gradient[rows], members[rows].astype(np.float64)
            )
            room = np.where(direction > 0, upper[rows] - alpha[rows], alpha[rows] - lower[rows])
            with np.errstate(divide="ignore", invalid="ignore"):
                reach = np.where(direction != 0, room / np.abs(direction), np.inf)
            full_step = length < reach.min()
            length = min(length, float(reach.min()))
            hit = rows[reach <= length] if not full_step else rows[:0]
            alpha[rows] += length * direction
            alpha[hit] = np.where(direction[np.isin(rows, hit)] > 0, upper[hit], lower[hit])
            free[hit] = False
            gradient = linear - gram @ alpha
        if not full_step:
            continue
        rises, falls = alpha < upper, alpha > lower
        pairs = [
            (int(np.argmax(np.where(rises & g, gradient, -np.inf))),
             int(np.argmin(np.where(falls & g, gradient, np.inf))))
            for g in members.T
            if (rises & g).any() and (falls & g).any()
        ]  # fmt: skip
        if not pairs:
            break
        i, j = max(pairs, key=lambda pair: gradient[pair[0]] - gradient[pair[1]])
        if gradient[i] - gradient[j] <= RESOLUTION * max(np.abs(gradient).max(), 1.0):
            break
        if free[i] and free[j]:
            break  # the system is as well solved as float64 can
        free[i] = free[j] = True
    return alpha


def _direction(
    gram: NDArray[np.float64], gradient: NDArray[np.float64], members: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float]:
    """Find a direction of sums 0 and how far to go along it, were there no box.

    The d that equalises the gradient in each group (members, (m, n_groups), is 1 where a variable
    is in it), of least norm where duplicate rows leave a choice, or the residual where there is
    none.
    """
    # Only small problems are polished, and to import it takes 7 MB.
    import scipy.linalg

    m, n_groups = members.shape
    system = np.zeros((m + n_groups, m + n_groups))
    system[:m, :m] = gram
    system[:m, m:], system[m:, :m] = members, members.T
    target = np.append(gradient, np.zeros(n_groups))
    solution = scipy.linalg.lstsq(system, target, cond=1e-13, lapack_driver="gelsy")[0]

    def balanced(values: NDArray[np.float64]) -> NDArray[np.float64]:
        means = (members.T @ values) / np.maximum(members.sum(axis=0), 1.0)
        result: NDArray[np.float64] = values - members @ means
        return result

    residual = balanced((target - system @ solution)[:m])
    if np.abs(residual).max() > 10 * RESOLUTION * max(np.abs(gradient).max(), 1.0):
        curvature = float(residual @ gram @ residual)
        return residual, float(gradient @ residual) / max(curvature, 1e-300)
    return balanced(solution[:m]), 1.0

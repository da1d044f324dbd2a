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


def polish(gram: NDArray[np.float64], box: Box, alpha: NDArray[np.float64]) -> NDArray[np.float64]:
    """Improve alpha until the optimality conditions hold to about 1e-11.

    Each round solves ``g_F − K_FF d = b 1, Σ d = 0`` for the free variables F, goes along d as far
    as the box allows, and frees the worst violator once no free variable is left to improve. Where
    K_FF is singular and there is no solution, the residual is a direction that gains and meets no
    curvature: the round goes along it to the box.

    Parameters
    ----------
    gram : (m, m) float64
        K among the rows.
    box : Box
        Their linear term and bounds.
    alpha : (m,) float64
        A feasible point.

    Returns
    -------
    (m,) float64
        A feasible point with the same sum and at least the same objective.
    """
    linear, lower, upper = box
    alpha = alpha.copy()
    gradient = linear - gram @ alpha
    free = (alpha > lower) & (alpha < upper)
    for _ in range(ROUNDS):
        rows = np.flatnonzero(free)
        full_step = True
        if len(rows) > 1:
            direction, length = _direction(gram[np.ix_(rows, rows)], gradient[rows])
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
        if not (rises.any() and falls.any()):
            break
        i = int(np.argmax(np.where(rises, gradient, -np.inf)))
        j = int(np.argmin(np.where(falls, gradient, np.inf)))
        if gradient[i] - gradient[j] <= RESOLUTION * max(np.abs(gradient).max(), 1.0):
            break
        if free[i] and free[j]:
            break  # the system is as well solved as float64 can
        free[i] = free[j] = True
    return alpha


def _direction(
    gram: NDArray[np.float64], gradient: NDArray[np.float64]
) -> tuple[NDArray[np.float64], float]:
    """Find a direction of sum 0 and how far to go along it, were there no box.

    The d that equalises the gradient, of least norm where duplicate rows leave a choice, or the
    residual where there is none.
    """
    # Only small problems are polished, and to import it takes 7 MB.
    import scipy.linalg

    m = len(gradient)
    system = np.zeros((m + 1, m + 1))
    system[:m, :m] = gram
    system[:m, m] = system[m, :m] = 1.0
    target = np.append(gradient, 0.0)
    solution = scipy.linalg.lstsq(system, target, cond=1e-13, lapack_driver="gelsy")[0]
    residual: NDArray[np.float64] = (target - system @ solution)[:m]
    residual -= residual.mean()
    if np.abs(residual).max() > 10 * RESOLUTION * max(np.abs(gradient).max(), 1.0):
        curvature = float(residual @ gram @ residual)
        return residual, float(gradient @ residual) / max(curvature, 1e-300)
    direction: NDArray[np.float64] = solution[:m] - solution[:m].mean()
    return direction, 1.0

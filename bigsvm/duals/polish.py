"""Polishing: an active-set method that takes a small solved problem to the precision of float64.

Pair steps stop at a tolerance; two problems with the same optimum (a row twice, or once with weight
2) then differ by that tolerance. Where the rows that matter are few, solving their linear system
exactly costs nothing beside training, and makes the two answers one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg

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
    as the box allows, and frees the worst violator once no free variable is left to improve.

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
            direction = _newton_direction(gram[np.ix_(rows, rows)], gradient[rows])
            room = np.where(direction > 0, upper[rows] - alpha[rows], alpha[rows] - lower[rows])
            with np.errstate(divide="ignore", invalid="ignore"):
                reach = np.where(direction != 0, room / np.abs(direction), np.inf)
            length = min(1.0, float(reach.min()))
            full_step = length == 1.0
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


def _newton_direction(
    gram: NDArray[np.float64], gradient: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Find d that equalises the gradient; of least norm where duplicate rows leave a choice."""
    m = len(gradient)
    system = np.zeros((m + 1, m + 1))
    system[:m, :m] = gram
    system[:m, m] = system[m, :m] = 1.0
    solution: NDArray[np.float64] = scipy.linalg.lstsq(
        system, np.append(gradient, 0.0), cond=1e-13, lapack_driver="gelsy"
    )[0]
    direction = solution[:m]
    centred: NDArray[np.float64] = direction - direction.mean()
    return centred

"""Polishing: an active-set method that takes a small solved problem to the precision of float64.

Pair steps stop at a tolerance; two problems with the same optimum (a row twice, or once with weight
2) then differ by that tolerance. Where the rows that matter are few, solving their linear system
exactly costs nothing beside training, and makes the two answers one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from bigsvm.duals.box_problem import Box
from bigsvm.interruption import check_interrupt

if TYPE_CHECKING:
    from bigsvm.arrays import F8, I8, Mask
    from bigsvm.duals.box_problem import Formulation

MOST_ROWS = 512
"""Rows of a problem worth polishing: its linear systems take milliseconds."""
ROUNDS = 4 * MOST_ROWS
RESOLUTION = 1e-11
"""KKT gap, relative to the largest gradient, below which float64 tells nothing apart."""
DAMPING = 1e-13
"""Added to the diagonal of a system, as a share of its largest entry: about what float64 loses in
solving it. Along directions of less curvature the step is as long as the box allows, instead of
anything at all; where the damping is felt, another round corrects it."""
REFINED = 0.5
"""A round that has not brought the gradients of the free variables together by this is the last of
its kind."""


def polish_rows(
    formulation: Formulation,
    rows: I8,
    gram: F8,
    alpha: F8,
    outputs: F8,
) -> F8:
    """Polish the alpha, (m,) or (m, faces), of `rows`; all others are fixed.

    `gram`, (m, m), has the kernel values among them; outputs, (m,), are f of the whole problem's
    alpha.
    """
    rest = outputs - gram @ formulation.per_output(alpha)
    segments = formulation.segments(rows)
    of_variables = np.tile(gram, (len(segments), len(segments)))
    of_variables += np.diag(np.concatenate([np.broadcast_to(s.ridge, len(rows)) for s in segments]))
    box = Box(
        np.concatenate([segment.box.linear - rest for segment in segments]),
        np.concatenate([segment.box.lower for segment in segments]),
        np.concatenate([segment.box.upper for segment in segments]),
    )
    start = np.concatenate(formulation.split(alpha, rows))
    groups = np.repeat([segment.group for segment in segments], len(rows))
    n = len(start)
    if not formulation.sums_are_bound:  # a variable without a row takes up the rest
        of_variables = np.pad(of_variables, (0, 1))
        start, groups = np.append(start, 0.0), np.append(groups, 0)
        box = Box(
            *(np.append(part, end) for part, end in zip(box, (0, -np.inf, np.inf), strict=True))
        )
    polished = polish(of_variables, box, start, groups=groups)[:n]
    return formulation.join(list(polished.reshape(len(segments), len(rows))))


def polish_simplexes(of_label: Mask, bounds: F8, gram: F8, alpha: F8, gradient: F8) -> F8:
    """Polish rows that have k variables of sum 0 each; all others are fixed.

    `of_label`, (m, k), is the class of each row, whose variable is at most the row's bound; others
    are at most 0. `gram`, (m, m), has the kernel values among the rows. alpha, (m, k), is a
    feasible point, and the gradient is that there.
    """
    m, k = alpha.shape
    box = Box(
        (gradient + gram @ alpha).ravel(),
        np.full(m * k, -np.inf),
        np.where(of_label, bounds[:, None], 0.0).ravel(),
    )
    of_variables = np.kron(gram, np.eye(k)).astype(np.float64, copy=False)
    groups = np.repeat(np.arange(m), k)
    polished = polish(of_variables, box, alpha.ravel(), groups=groups).reshape(m, k)
    # Sums are 0 up to rounding, of which nothing is to stay where all others are 0.
    nothing = ~(polished.any(axis=1, where=~of_label))
    polished[nothing] = 0.0
    return polished


def polish(
    gram: F8,
    box: Box,
    alpha: F8,
    *,
    groups: I8 | None = None,
) -> F8:
    """Improve alpha until the optimality conditions hold to about 1e-11.

    Each round solves ``g_F − (Q_FF + δ) d = b, Σ d = 0`` of each group for the free variables F,
    and goes along d to where the objective is largest or the box ends. Once their gradients are
    equal, the worst violator is freed; where nothing of its group is free, the worst pair.

    `gram`, (m, m), is Q among the variables. alpha, (m,), is a feasible point. Groups are numbered
    from 0 on; there is one, if they are not given. Returns a feasible point with the same sums and
    at least the same objective.
    """
    linear, lower, upper = box
    groups = np.zeros(len(alpha), np.int64) if groups is None else groups
    members = np.arange(groups.max(initial=0) + 1) == groups[:, None]
    alpha = alpha.copy()
    gradient = linear - gram @ alpha
    free = (alpha > lower) & (alpha < upper)
    last_spread = np.inf
    for _ in range(ROUNDS):
        check_interrupt()
        resolution = RESOLUTION * max(np.abs(gradient).max(initial=0.0), 1.0)
        rows = np.flatnonzero(free)
        spread = max((float(np.ptp(gradient[free & g])) for g in members.T if (free & g).any()),
                     default=0.0)  # fmt: skip
        if resolution < spread < REFINED * last_spread:
            last_spread = spread
            direction = _direction(gram[np.ix_(rows, rows)], gradient[rows], members[rows])
            if not _go(gram, box, alpha, gradient, free, rows, direction):
                last_spread = np.inf
            gradient = linear - gram @ alpha
            continue
        last_spread = np.inf
        freed = _worst(alpha, gradient, box, free, members, resolution)
        if not freed:
            break
        free[freed] = True
    return alpha


def _go(gram: F8, box: Box, alpha: F8, gradient: F8, free: Mask, rows: I8, direction: F8) -> bool:
    """Move alpha of `rows` along a direction in place; False where the box ended it.

    Variables that have reached a bound are exactly there, and no longer free.
    """
    slope = float(gradient[rows] @ direction)
    curvature = float(direction @ gram[np.ix_(rows, rows)] @ direction)
    best = slope / curvature if curvature > 0 else np.inf
    distance = np.where(direction > 0, box.upper[rows] - alpha[rows], alpha[rows] - box.lower[rows])
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        reach = np.where(direction != 0, distance / np.abs(direction), np.inf)
    end = float(reach.min())
    if not slope > 0 or not np.isfinite(min(best, end)):
        return True  # the system is as well solved as float64 can
    if best < end:
        alpha[rows] += best * direction
        return True
    hit = reach <= end
    alpha[rows] += end * direction
    alpha[rows[hit]] = np.where(direction[hit] > 0, box.upper[rows[hit]], box.lower[rows[hit]])
    free[rows[hit]] = False
    return False


def _worst(
    alpha: F8, gradient: F8, box: Box, free: Mask, members: Mask, resolution: float
) -> list[int]:
    """Find the variables to free: the worst violator, or a pair; none at the optimum."""
    worst, freed = resolution, []
    for group in members.T:
        rises, falls = group & (alpha < box.upper) & ~free, group & (alpha > box.lower) & ~free
        up = int(np.argmax(np.where(rises, gradient, -np.inf)))
        low = int(np.argmin(np.where(falls, gradient, np.inf)))
        above, below = rises.any() * gradient[up], falls.any() * gradient[low]
        inside = gradient[group & free]
        if len(inside):
            if rises.any() and gradient[up] - inside.min() > worst:
                worst, freed = float(gradient[up] - inside.min()), [up]
            if falls.any() and inside.max() - gradient[low] > worst:
                worst, freed = float(inside.max() - gradient[low]), [low]
        elif rises.any() and falls.any() and above - below > worst:
            worst, freed = float(above - below), [up, low]
    return freed


def _direction(gram: F8, gradient: F8, members: Mask) -> F8:
    """Find the d of sum 0 in each group (members, (m, n_groups)) that equalises the gradients."""
    scale = float(np.abs(np.diag(gram)).max()) or 1.0
    sums = scale * members[:, members.any(axis=0)].astype(np.float64)
    m, n_groups = sums.shape
    system = np.zeros((m + n_groups, m + n_groups))
    system[:m, :m] = gram
    system[np.arange(m), np.arange(m)] += DAMPING * scale
    system[:m, m:], system[m:, :m] = sums, sums.T
    solution = np.linalg.solve(system, np.append(gradient, np.zeros(n_groups)))[:m]
    means = (sums.T @ solution) / (scale * sums.sum(axis=0))
    balanced: F8 = solution - sums @ means
    return balanced

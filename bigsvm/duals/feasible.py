"""Feasible points to start from: variables that fill a sum, and the point of another problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bigsvm.arrays import F8
    from bigsvm.duals.box_problem import Formulation

ROUNDING = 1e-10
"""Share of the sum on either side: a smaller difference between both is left as it is."""


def project(formulation: Formulation, alpha: F8) -> F8:
    """Make alpha of all rows, of another problem on them, a feasible point of `formulation`.

    Clipped to the boxes; where more rises than falls, or less, the larger side is scaled down.
    Where sums are not 0, `fill` is to follow.
    """
    rows = slice(0, len(alpha))
    by_segment = [
        np.clip(part, box.lower, box.upper)
        for (box, _, _), part in formulation.with_alpha(alpha, rows)
    ]
    if formulation.sums_are_bound and formulation.sums(rows) is None:
        rising = sum(float(part[part > 0].sum()) for part in by_segment)
        falling = -sum(float(part[part < 0].sum()) for part in by_segment)
        both = min(rising, falling)
        if abs(rising - falling) <= ROUNDING * both:
            return formulation.join(by_segment)  # bounds are to be kept exactly
        scales = both / max(rising, 1e-300), both / max(falling, 1e-300)
        by_segment = [np.where(part > 0, part * scales[0], part * scales[1]) for part in by_segment]
    return formulation.join(by_segment)


def fill(formulation: Formulation, alpha: F8, outputs: F8, sums: Sequence[float]) -> F8:
    """Make alpha of the first rows, (m,), add up to `sums`, one for each group of variables.

    What is missing in a group goes to the rows that violate most, up to their bounds.
    """
    rows = slice(0, len(alpha))
    by_segment = [part.copy() for part in formulation.split(alpha, rows)]
    for (box, _, group), part in zip(formulation.segments(rows), by_segment, strict=True):
        missing = sums[group] - part.sum()
        distance = (box.upper - part) if missing > 0 else (box.lower - part)
        gradient = box.linear - outputs
        order = np.argsort(-gradient if missing > 0 else gradient, kind="stable")
        order = order[distance[order] != 0]
        reached = np.cumsum(np.abs(distance[order]))
        full = order[reached <= abs(missing)]
        part[full] = (box.upper if missing > 0 else box.lower)[full]
        if len(full) < len(order):
            rest = missing - np.copysign(reached[len(full) - 1] if len(full) else 0.0, missing)
            part[order[len(full)]] += rest
    return formulation.join(by_segment)

"""The optimum of a box dual whose kernel matrix is replaced by one of low rank.

    maximise  gᵀΔ − ½ Δᵀ(G Gᵀ + S)Δ     subject to  lower ≤ α + Δ ≤ upper

S being diagonal. With ``v = GᵀΔ`` it is ``α + Δ = x(v) = clip((S α + g − G v) / S)``, and v is
where a convex function of r numbers is least,

    φ(v) = ½|v|² + Σ h_i((S α + g − G v)_i) + αᵀG v,    h_i(u) = max over the box of u x − ½ S_i x²

whose gradient is ``v − Gᵀ(x(v) − α)``. It is quadratic while no variable reaches a bound or leaves
one. Newton's method (semismooth: Qi & Sun 1993) solves ``(I + Gᵀ S⁻¹ G) d = …`` over the variables
that are free now, and halves steps that are too long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import cho_factor, cho_solve

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.arrays import F8
    from bigsvm.gram.low_rank import LowRank


ROUNDS = 100
"""Rounds of Newton's method at most; 3 to 6 are usual."""
RESOLUTION = 1e-9
"""A round that lowers φ by at most this share of all that it has fallen is the last."""
HALVINGS = 20
"""Most halvings of a step."""
ENOUGH = 1e-4
"""A step must lower φ by this share of what the first slope promises."""


def box_optimum(
    model: LowRank, *, alpha: F8, gradient: F8, lower: F8, upper: F8, ridge: F8 | float
) -> F8:
    """Find ``α + Δ``, (m,), within the box, from where the m variables stand.

    The model is that of their rows. The ridge is S less the model's own rest; it is more than 0
    where there is room between the bounds.
    """
    stiff = np.where(lower < upper, model.rest + ridge, 1.0)
    wanted = stiff * alpha + gradient
    shift = model.transposed_times(alpha)

    def best(along: F8) -> F8:
        """``x(v)`` where ``G v`` is this, (m,)."""
        optimum: F8 = np.clip((wanted - along) / stiff, lower, upper)
        return optimum

    def sides(x: F8) -> NDArray[np.int8]:
        """0 of the variables that are free, and at which bound the others are."""
        return np.where(x >= upper, np.int8(1), np.where(x <= lower, np.int8(-1), np.int8(0)))

    def phi(v: F8, along: F8) -> float:
        x = best(along)
        return float(0.5 * (v @ v) + ((wanted - along) - 0.5 * stiff * x) @ x + shift @ v)

    def least(v: F8, step: F8, along: F8, onwards: F8) -> float:
        """Length of a step at which φ is least: its slope rises along the way."""
        low, high = 0.0, 1.0
        for _ in range(HALVINGS):
            middle = 0.5 * (low + high)
            x = best(along + middle * onwards)
            slope = float((v + middle * step + shift) @ step - onwards @ x)
            low, high = (middle, high) if slope <= 0 else (low, middle)
        return low

    v, along = np.zeros(model.rank), np.zeros(len(alpha))
    inner = np.eye(model.rank, order="F")
    before, top = np.ones(len(alpha), np.int8), phi(v, along)
    height = top
    for _ in range(ROUNDS):
        x = best(along)
        now = sides(x)
        for changed, sign in (
            ((now == 0) & (before != 0), 1.0),
            ((before == 0) & (now != 0), -1.0),
        ):
            places = np.flatnonzero(changed)
            inner += sign * model.squared(places, 1.0 / stiff[places])
        before = now
        uphill = v + shift - model.transposed_times(x)
        try:
            step = -cho_solve(cho_factor(inner, lower=True), uphill)
        except np.linalg.LinAlgError:  # rounding has lost it
            break
        onwards, slope, length = model.times(step), float(uphill @ step), 1.0
        reached = phi(v + step, along + onwards)
        if reached > height + ENOUGH * slope:
            length = least(v, step, along, onwards)
            reached = phi(v + length * step, along + length * onwards)
            if reached > height + ENOUGH * length * slope:  # no more than rounding is left
                break
        v, along = v + length * step, along + length * onwards
        is_last = height - reached <= RESOLUTION * (top - reached)
        height = reached
        if is_last or (length == 1.0 and (sides(best(along)) == now).all()):
            break
    return best(along)

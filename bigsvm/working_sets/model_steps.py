"""Steps of all active rows together, where very many violate: towards the optimum of a model.

A pair step moves two variables, which is too slow where tens of thousands have to move. Instead, a
model of low rank replaces the kernel matrix of the active rows, and its optimum is cheap. A step
goes towards this optimum while the objective rises, which takes one product with the exact kernel
matrix. Alpha and outputs are as exact after a step as after a sweep; the model only gives the
direction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

from bigsvm.gram.low_rank import LowRank, rank_of_model

if TYPE_CHECKING:
    from bigsvm.budget import TrainingPlan
    from bigsvm.gram.row_cache import RowBuffer
    from bigsvm.working_sets.active import ActiveRows

SHARES = (1.0, 0.75, 0.5)
"""Shares of the best length for the dual objective at which the duality gap is evaluated."""


class ModelSteps:
    """The model of some active rows, and steps by it, each of which changes the rows.

    Their dual declares how rows step `together`. The model uses the memory of kernel rows. A kernel
    that is not positive semidefinite raises numpy.linalg.LinAlgError.
    """

    @classmethod
    def of(cls, active: ActiveRows, plan: TrainingPlan, buffer: RowBuffer) -> Self | None:
        """Make the steps; None where the kernel has no model of low rank."""
        try:
            return cls(active, plan, buffer)
        except np.linalg.LinAlgError:
            return None

    def __init__(self, active: ActiveRows, plan: TrainingPlan, buffer: RowBuffer) -> None:
        self._active, m = active, len(active)
        together = active.dual.together
        if together is None:
            raise TypeError(f"rows of {type(active.dual).__name__} cannot step together")
        self._together = together
        rank = rank_of_model(m, plan.gram_bytes, wanted=together.model_rank)
        buffer.n_touched = max(buffer.n_touched, m * rank)
        # Rows are in random order: any landmarks will do that are the same after a resumption.
        landmarks = np.arange(rank) * m // rank
        self._model = LowRank(
            active.tiles,
            active.rows.everything(),
            landmarks,
            buffer.values[: m * rank].reshape(m, rank),
        )

    def take(self, *, tol: float = 0.0) -> float:
        """Take a step; returns by how much the objective has risen.

        Its length makes the dual objective largest. The last step, which ends at a gap of `tol`,
        has the length with the least duality gap instead.
        """
        active = self._active
        dual, rows = active.dual, active.indices
        gradient = dual.gradient(active.alpha, active.outputs, rows)
        target = self._together.model_optimum(self._model, active.alpha, gradient, rows)
        change = target - active.alpha
        added = active.product(change)
        slope = float(gradient @ change)
        bend = slope - float(dual.gradient(target, active.outputs + added, rows) @ change)
        length = min(slope / bend, 1.0) if slope > 0 and bend > 0 else 0.0

        def gaps(length: float) -> tuple[float, float]:
            """Gap and duality gap there."""
            alpha = active.alpha + length * change
            standing = dual.optimality(alpha, active.outputs + length * added, rows=rows)
            return standing.gap, standing.duality_gap

        if length > 0:
            tried = [share * length for share in SHARES]
            shortened = _least(*((candidate, gaps(candidate)[1]) for candidate in tried))
            if gaps(shortened)[0] <= tol:
                length = shortened
        if length == 1.0:
            active.alpha[:] = target
        else:
            active.alpha += length * change
        active.outputs += length * added
        return length * (slope - 0.5 * length * bend)


def _least(*points: tuple[float, float]) -> float:
    """Place between three points, in descending order, where the parabola through them is least."""
    (a, value_a), (b, value_b), (c, value_c) = points
    slope, steeper = (value_b - value_a) / (b - a), (value_c - value_b) / (c - b)
    bend = (steeper - slope) / (c - a)
    best = 0.5 * (a + b - slope / bend) if bend > 0 else points[0][0]
    return float(np.clip(best, c, a))

"""The duality gap of a point whose outputs are not known, from a sample of the rows.

A run that a time limit ends before a sweep has a point and no outputs of all rows. The duality gap
is a sum over rows at any threshold, so that a sample shows about how large it is. It proves
nothing, and is told under a name of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigsvm.gram.partners import weighted_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigsvm.arrays import F8, I8
    from bigsvm.duals.dual import Dual, Standing

ROWS = 1024
"""Rows of the sample: enough to tell the size of a gap, and read at once."""
SPANS = 16
"""Runs of rows next to each other that make up the sample, as stores are read in chunks."""
LEAST_ROWS = 4 * SPANS
"""Rows of the sample however many support vectors there are."""
EVALUATIONS = 4e6
"""Kernel values that the sample may take: about a second in float64."""


class SampledGap(NamedTuple):
    """Duality gap of all rows, estimated from `rows` of them; `deviation` is its standard error."""

    gap: float
    deviation: float
    rows: int


def sampled_rows(n_rows: int, n_support: int) -> I8:
    """Return the rows of the sample, ascending: all of them, or spans at even distances."""
    size = int(min(ROWS, max(LEAST_ROWS, EVALUATIONS / max(n_support, 1))))
    if n_rows <= size:
        return np.arange(n_rows)
    length = size // SPANS
    starts = np.linspace(0, n_rows - length, SPANS).astype(np.int64)
    return np.unique(starts[:, None] + np.arange(length))


def sampled_gap(
    dual: Dual[Standing], alpha: F8, outputs_at: Callable[[I8, F8], F8]
) -> SampledGap | None:
    """Estimate the duality gap at alpha; None where alpha is no solution, and where it is infinite.

    Parameters
    ----------
    dual : Dual
    alpha : (n,) or (n, …) float64
    outputs_at : callable
        ``K @ beta`` at ascending rows, (m,) int64, for beta of all rows.
    """
    if dual.infeasible(alpha):
        return None
    beta = dual.formulation.per_output(alpha)
    n_support = len(weighted_rows(beta))
    rows = sampled_rows(len(alpha), n_support)
    outputs = outputs_at(rows, beta) if n_support else np.zeros_like(beta[rows])
    gap = len(alpha) / len(rows) * dual.optimality(alpha[rows], outputs, rows=rows).duality_gap
    if not np.isfinite(gap):
        return None
    if len(rows) == len(alpha):
        return SampledGap(gap, 0.0, len(rows))
    # Each span is an estimate of its own.
    spans = [span for span in np.array_split(np.arange(len(rows)), SPANS) if len(span)]
    gaps = [
        len(alpha) / len(span)
        * dual.optimality(alpha[rows[span]], outputs[span], rows=rows[span]).duality_gap
        for span in spans
    ]  # fmt: skip
    spread = float(np.std(gaps, ddof=1)) / len(spans) ** 0.5
    return SampledGap(gap, spread, len(rows)) if np.isfinite(spread) else None

"""The functions of all pairs of classes, joined: what one against one has led to."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.one_vs_one.entries import COUNTS, REASONS
from bigsvm.training.result import Certificate, StopReason
from bigsvm.votes import pair_classes

if TYPE_CHECKING:
    from collections.abc import Mapping

    import scipy.sparse as sp
    from numpy.typing import NDArray

    from bigsvm.arrays import F8, I8
    from bigsvm.one_vs_one.log import PairLog

LISTED = 20
"""Pairs that a certificate has by themselves, the worst ones."""
MOST_COUNTED = 1 << 20
"""Most pairs of which a certificate has the steps of each: 4 MB of a file, which has a limit."""


class OneVsOne(NamedTuple):
    """The functions of all pairs, over support vectors that they share.

    Pairs are in LIBSVM's order: (0, 1), (0, 2), …, (1, 2), …; a positive value of a function stands
    for the second class of its pair. A function that was never begun is 0.

    Attributes
    ----------
    support : (p,) int64
        Rows that any pair has a coefficient of, ascending.
    coefficients : (p, n_pairs) CSR, float64
        At most k − 1 in a row.
    intercepts, rho, gaps : (n_pairs,) float64
        By `rho` nu-svc has divided coefficients and intercept; NaN for the others. A KKT gap is NaN
        where it is not known.
    certificate : Certificate
        Sums over the pairs, and the worst gap; converged only if all pairs are.
    pairs : dict
        How many stopped for which reason, how many of an earlier process were taken as recorded,
        and the worst ones by themselves, as JSON can say it.
    """

    support: I8
    coefficients: sp.csr_array
    intercepts: F8
    rho: F8
    gaps: F8
    certificate: Certificate
    pairs: dict[str, Any]


def join(log: PairLog, n_classes: int, n_rows: int, reason: StopReason) -> OneVsOne:
    """Join what there is of all pairs; the log is empty afterwards.

    The reason is that of the whole run: converged if it has come to the end of all pairs.
    """
    records, reasons = log.records, log.reasons()
    if reason is StopReason.CONVERGED:
        reason = next((other for other in REASONS[1:] if other in reasons), reason)
    support, coefficients = log.coefficients(n_rows)
    counts: dict[str, Any] = {name: log.total(name) for name in COUNTS}
    counts["n_support"] = len(support)
    certificate = Certificate(
        converged=reason is StopReason.CONVERGED,
        stop_reason=reason,
        tol=float(records["tol"].max()),
        objective=_known(records["objective"].sum()),
        gap=_known(records["gap"].max()),
        duality_gap=_known(records["duality_gap"].sum()),
        **counts,
        bytes_read=log.bytes_read,
        seconds=log.seconds,
        seconds_by_phase=log.seconds_by_phase(),
    )
    return OneVsOne(
        support,
        coefficients,
        records["intercept"].copy(),
        records["rho"].copy(),
        records["gap"].copy(),
        certificate,
        table_of(records, reasons, n_classes, log.n_not_recomputed),
    )


def table_of(
    records: NDArray[np.void] | Mapping[str, NDArray[Any]],
    reasons: dict[StopReason, int],
    n_classes: int,
    n_not_recomputed: int,
) -> dict[str, Any]:
    """Count the pairs by their ends, and list the worst: not converged first, by their gaps.

    Of the records `reason`, `gap`, `n_support` and `n_iter` are looked at.
    """
    reason, gap, n_iter = records["reason"], records["gap"], records["n_iter"]
    converged = reason == REASONS.index(StopReason.CONVERGED)
    listed = np.lexsort((-np.where(np.isnan(gap), np.inf, gap), converged))[:LISTED]
    first, second = pair_classes(n_classes)
    columns = (first, second, reason, gap, records["n_support"], n_iter)
    worst = zip(*(column[listed].tolist() for column in columns), strict=True)
    return {
        "n_pairs": len(reason),
        "n_begun": int(np.count_nonzero(reason >= 0)),
        "n_not_recomputed": n_not_recomputed,
        "stop_reasons": {str(reason): n for reason, n in reasons.items()},
        **({"n_iter_of_pairs": n_iter.tolist()} if len(reason) <= MOST_COUNTED else {}),
        "worst": [
            {
                "classes": [one, other],
                "stop_reason": str(REASONS[ended]) if ended >= 0 else None,
                "gap": _known(left),
                "n_support": n_support,
                "n_iter": steps,
            }
            for one, other, ended, left, n_support, steps in worst
        ],
    }


def _known(value: float) -> float | None:
    """Give a number as JSON has it; None for NaN, which any pair without one brings in."""
    return None if math.isnan(value) else float(value)

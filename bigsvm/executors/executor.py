"""Executor: what computes the sums of a pass, in this process or on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bigsvm.arrays import F8, I8
    from bigsvm.executors.local import Partial
    from bigsvm.executors.weighted import WeightedRows


class Executor(Protocol):
    """Computes sums over kernel values for rows of a source."""

    @property
    def threads(self) -> int:
        """Threads that compute."""

    @property
    def partners_at_once(self) -> int:
        """Weighted rows for one pass, even if this process has no memory for all of them."""

    def run(
        self,
        weighted: WeightedRows,
        *,
        start: int,
        stop: int,
        skip: I8 | None = None,
        initial: F8 | None = None,
        sums_bytes: int = 0,
    ) -> Iterator[Partial]:
        """Yield ``K(rows, weighted) @ weights`` for rows ``start … stop - 1``, in their order.

        Parameters
        ----------
        weighted : WeightedRows
            Working-set rows or support vectors, and their weights.
        skip : (s,) int64, optional
            Ascending rows that are left out.
        initial : (n_rows,) or (n_rows, k) float64, optional
            Sums to start from; 0 if not given. One row of them, (1,) or (1, k), is for all rows.
            Excludes `skip`.
        sums_bytes : int
            Bytes of the sums of rows that several pieces are added to, where one process does it.
        """

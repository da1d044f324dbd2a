"""Executor: what computes the sums of a pass, in this process or on a cluster."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, NamedTuple

from bigsvm.executors.products import Products

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bigsvm.arrays import F8, I8
    from bigsvm.executors.weighted import WeightedRows


class Partial(NamedTuple):
    """What a pass adds to the rows of a block, and what computing it has cost.

    Attributes
    ----------
    start, stop : int
        Rows of the block.
    kept : (m,) int64 or None
        Places of the rows with sums, counted from `start`; None for all rows of the block.
    added : (m,) or (m, k) float64
        Sums over the kernel values of each row.
    evaluations : int
        Kernel values computed.
    seconds, cpu_seconds : float
        Since the last block: reading and computing, and the CPU time of all threads meanwhile.
    """

    start: int
    stop: int
    kept: I8 | None
    added: F8
    evaluations: int
    seconds: float
    cpu_seconds: float


class Executor(Products):
    """Computes sums over kernel values for rows of a source."""

    @property
    @abstractmethod
    def threads(self) -> int:
        """Threads that compute."""

    @property
    def partners_at_once(self) -> int:
        """Weighted rows for one pass, even if this process has no memory for all of them."""
        return 0

    @abstractmethod
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

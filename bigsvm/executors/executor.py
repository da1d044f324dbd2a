"""What an executor does: passes over all rows, and products among some of them.

Products of gathered rows are computed here, in this process; an executor may do so elsewhere.
`WeightedRows` are the rows that others are multiplied with. `Exact` has outputs in float64.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.data.rows import RowsAt
from bigsvm.executors.messages import SentPiece
from bigsvm.gram import Partners
from bigsvm.gram.partners import PARTNERS_PER_TILE, in_whole_tiles, weighted_rows
from bigsvm.gram.tiles import EVALUATIONS_AT_ONCE
from bigsvm.interruption import check_interrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bigsvm.arrays import F8, I8
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Rows
    from bigsvm.executors.workforce import Traffic
    from bigsvm.executors.working_rows import Gather, Gathered
    from bigsvm.gram import KernelTiles
    from bigsvm.gram.partners import Weights


class Piece(NamedTuple):
    """Some rows (p), and their weights, (p,) or (p, k)."""

    rows: RowsAt
    weights: Weights


class WeightedRows:
    """Rows and their weights, of which one piece is in memory at a time.

    Parameters
    ----------
    weights : (p,) float64; or (p, k) of k functions, dense or CSR
    gather : callable
        Given places of the rows, ascending, returns these rows.
    at_once : int
        Most rows of a piece.

    Attributes
    ----------
    n, n_functions : int
        p and k; 1 if weights are (p,).
    """

    def __init__(self, weights: Weights, gather: Callable[[I8], RowsAt], *, at_once: int) -> None:
        self.n = int(weights.shape[0])
        self.n_functions = 1 if weights.ndim == 1 else int(weights.shape[1])
        self.weights, self._gather = weights, gather
        self._at_once = max(self.n, 1) if at_once >= self.n else in_whole_tiles(at_once)

    @classmethod
    def held(cls, rows: RowsAt, weights: Weights) -> WeightedRows:
        """Rows that are in memory, as one piece."""
        n = len(rows.places)

        def gather(places: I8) -> RowsAt:
            return rows if len(places) == n else RowsAt(rows.rows, rows.places[places])

        return cls(weights, gather, at_once=n)

    @property
    def is_one_piece(self) -> bool:
        """Whether all rows are in memory together."""
        return self._at_once >= self.n

    @property
    def sums_shape(self) -> tuple[int, ...]:
        """Shape of the sums of one row."""
        return tuple(self.weights.shape[1:])

    def spans(self) -> list[tuple[int, int]]:
        """Return where each piece begins and ends."""
        return [(low, min(low + self._at_once, self.n)) for low in range(0, self.n, self._at_once)]

    def parts(self, most: int) -> list[WeightedRows]:
        """Divide into parts of at most so many rows, and of at least one tile.

        Sums over one part that go on with those over the part before have the bits of sums over
        all.
        """
        if self.n <= most:
            return [self]
        size = in_whole_tiles(most)

        def part(low: int) -> WeightedRows:
            def gather(places: I8) -> RowsAt:
                return self._gather(places + low)

            weights = self.weights[low : low + size]
            return WeightedRows(weights, gather, at_once=self._at_once)

        return [part(low) for low in range(0, self.n, size)]

    def pieces(self) -> Iterator[Piece]:
        """Gather one piece after the other."""
        for low in range(0, max(self.n, 1), self._at_once):
            places = np.arange(low, min(low + self._at_once, self.n))
            yield Piece(self._gather(places), self.weights[low : low + self._at_once])

    def sent(self, name: str) -> Iterator[SentPiece]:
        """Pieces as they are sent to workers, under names that begin with `name`."""
        start = 0
        for number, piece in enumerate(self.pieces()):
            base, places = piece.rows
            n = len(places)
            is_all = n == base.shape[0] and bool((places == np.arange(n)).all())
            rows = base if is_all else base[places]
            yield SentPiece(f"{name}-{number}", start, rows, piece.weights)
            start += n


EVALUATIONS_PER_CHECK = 10**8
"""Kernel values between two checks for an interruption: a second in one thread, for 200 columns."""


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


class Products:
    """Computes products among rows on the threads of this process."""

    def __init__(self, source: RowSource) -> None:
        self.source = source

    def wait_until_ready(self) -> None:
        """Wait until it can compute: this process can."""

    def take(self, indices: I8) -> Rows:
        """Rows at `indices`, (m,) int64 in any order, in that order."""
        return self.source.take(indices)

    def among(
        self, rows: Gathered, at: I8, places: I8, weights: Weights, *, tiles: KernelTiles
    ) -> F8:
        """``K(at, places) @ weights`` among gathered rows.

        Parameters
        ----------
        rows : Gathered
            b rows; those of several calls that belong together are the same object.
        at, places : (m,), (p,) int64
            Places among them.
        weights : (p,) or (p, k) float64
        tiles : KernelTiles

        Returns
        -------
        (m,) or (m, k) float64
        """
        moved = weighted_rows(weights)
        sums = np.zeros((len(at), *weights.shape[1:]))
        if len(moved) and len(at):
            partners = Partners.of_rows_like(tiles.values, rows.at_places(places[moved]))
            prepared = tiles.prepared(partners, weights[moved])
            step = max(1, int(EVALUATIONS_AT_ONCE / partners.n))
            for low in range(0, len(at), step):
                check_interrupt()
                part = slice(low, low + step)
                tiles.multiply(rows.at_places(at[part]), partners, prepared, sums[part])
        return sums

    def exact_at(
        self, rows: I8, support: I8, weights: F8, gather: Gather, *, tiles: KernelTiles, step: int
    ) -> F8:
        """``K(rows, support) @ weights`` in float64, (m,) or (m, k).

        Parameters
        ----------
        rows, support : (m,), (p,) int64
            Numbers of rows, ascending.
        weights : (p,) or (p, k) float64
        gather : callable
            Reads rows by their numbers.
        tiles : KernelTiles
            float64.
        step : int
            Most rows that are gathered together: whole tiles.
        """
        sums = np.zeros((len(rows), *weights.shape[1:]))
        # Rows in memory are not copied.
        lent = self.source.lend(rows) if self.source.row_alignment <= 1 else None
        for low in range(0, len(support), step):
            chosen = slice(low, low + step)
            partners = self._partners(gather(support[chosen]), tiles)
            at_once = max(1, min(step, EVALUATIONS_PER_CHECK // max(partners.n, 1)))
            for first in range(0, len(rows), at_once):
                check_interrupt()
                part = slice(first, first + at_once)
                some = gather(rows[part]) if lent is None else RowsAt(lent.rows, lent.places[part])
                tiles.multiply(some, partners, weights[chosen], sums[part])
        return sums

    def exact_halves(
        self, support: I8, weights: F8, gather: Gather, *, tiles: KernelTiles, step: int
    ) -> F8:
        """``K(support, support) @ weights`` from half of the kernel values; see `exact_at`."""
        along, down = np.zeros_like(weights), np.zeros_like(weights)
        for low in range(0, len(support), step):
            part = slice(low, low + step)
            gathered = gather(support[part])
            partners = self._partners(gathered, tiles)
            # Rows to the end of the last column's block on the diagonal.
            stop = -(-(low + partners.n) // PARTNERS_PER_TILE) * PARTNERS_PER_TILE
            for first in range(0, min(stop, len(support)), step):
                some = slice(first, first + step)
                tiles.multiply_half(
                    gathered if first == low else gather(support[some]), partners,
                    (weights[some], weights[part]), along[some], down[part],
                    corner=(first, low),
                )  # fmt: skip
        along += down
        return along

    def _partners(self, rows: Rows, tiles: KernelTiles) -> Partners:
        return Partners(tiles.values, rows, for_sparse_rows=self.source.is_sparse)


class Executor(Products, ABC):
    """Computes sums over kernel values for rows of a source.

    Attributes
    ----------
    traffic : Traffic or None
        What workers have been asked and have answered; None where this process computes.
    """

    traffic: Traffic | None = None

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


ROWS_AT_ONCE = 1 << 14
"""Most vectors whose products with the support rows are summed up together."""


class Exact:
    """Float64 outputs at chosen rows, of which at most `at_once` are together.

    The executor computes the products, with tiles in float64; `gather` reads rows by their indices.
    """

    def __init__(
        self, executor: Products, tiles: KernelTiles, gather: Gather, *, at_once: int
    ) -> None:
        self._executor, self.tiles, self._gather = executor, tiles, gather
        self._step = in_whole_tiles(min(at_once, ROWS_AT_ONCE))
        self._gram_rows, self._gram = np.empty(0, np.int64), np.empty((0, 0))

    def gram(self, rows: I8, /) -> F8:
        """Kernel values among rows (m,), (m, m); not computed again for the rows of the last call.

        One function after the other often asks for the same rows.
        """
        if not np.array_equal(rows, self._gram_rows):
            gathered, gram = self._gather(rows), np.empty((len(rows), len(rows)))
            sparse = self._executor.source.is_sparse
            partners = Partners(self.tiles.values, gathered, for_sparse_rows=sparse)
            self.tiles.evaluate(gathered, partners, gram)
            self._gram_rows, self._gram = rows, gram
        return self._gram

    def outputs(self, rows: I8, beta: F8) -> F8:
        """``K(rows, all) @ beta``; rows (m,) int64 ascending, beta (n,) or (n, k).

        Bits do not depend on `at_once`, if it is at least a tile.
        """
        support = weighted_rows(beta)
        how: dict[str, Any] = {"tiles": self.tiles, "step": self._step}
        if np.array_equal(rows, support):
            return self._executor.exact_halves(support, beta[support], self._gather, **how)
        return self._executor.exact_at(rows, support, beta[support], self._gather, **how)

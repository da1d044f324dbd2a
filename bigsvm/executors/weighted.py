"""WeightedRows: the rows that others are multiplied with, and their weights, piece by piece."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigsvm.executors.messages import SentPiece
from bigsvm.gram.partners import in_whole_tiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bigsvm.arrays import I8
    from bigsvm.data.rows import Rows, RowsAt
    from bigsvm.gram.weights import Weights


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
    n : int
        Number of rows, p.
    n_functions : int
        k; 1 if weights are (p,).
    weights : (p,) or (p, k)
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
        return cls(weights, lambda places: rows, at_once=n)

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

    def pieces(self) -> Iterator[Piece]:
        """Gather one piece after the other."""
        for low in range(0, max(self.n, 1), self._at_once):
            places = np.arange(low, min(low + self._at_once, self.n))
            yield Piece(self._gather(places), self.weights[low : low + self._at_once])

    def sent(self, name: str) -> Iterator[SentPiece]:
        """Pieces as they are sent to workers, under names that begin with `name`."""
        start = 0
        for number, piece in enumerate(self.pieces()):
            rows = _copied(piece.rows)
            yield SentPiece(f"{name}-{number}", start, rows, piece.weights)
            start += len(piece.rows.places)


def _copied(rows: RowsAt) -> Rows:
    """Rows at some places, alone; not copied if they are all."""
    base, places = rows
    n = len(places)
    is_all = n == base.shape[0] and bool((places == np.arange(n)).all())
    return base if is_all else base[places]

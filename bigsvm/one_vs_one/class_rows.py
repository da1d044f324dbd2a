"""ClassRows: where the rows of each class are, and which classes are held in memory together.

In a shuffled store the rows of a class are everywhere, so reading one class costs as much as
reading many: a pass. Pairs of classes are therefore trained in batches. A batch has the classes
that fit in memory together, which are read in one pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigsvm.data.wrappers import ChosenRows, HeldRows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from bigsvm.arrays import F8, I8, Mask
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Indices


class Batch(NamedTuple):
    """Pairs, (m, 2), that are trained one after the other while their rows are in memory.

    They are in LIBSVM's order. `held`, (q,), are the classes whose rows are held together; empty if
    rows stay where they are.
    """

    pairs: I8
    held: I8


class PairRows(NamedTuple):
    """The rows of two classes: which of all they are, ascending, and their signs, (m,) both.

    The sign is −1 for rows of the first class, +1 for those of the second.
    """

    source: RowSource
    rows: Indices
    sign: NDArray[np.int8]


class ClassRows:
    """The rows of each of k classes; `sizes`, (k,), counts them.

    `codes`, (n,), are the classes of the rows of the source, in 0 … k − 1. Rows of weight 0 are
    left out.
    """

    def __init__(
        self,
        source: RowSource,
        codes: NDArray[np.integer],
        n_classes: int,
        *,
        weights: F8 | None = None,
    ) -> None:
        self.source = source
        rows: Indices = np.argsort(codes, kind="stable")
        if weights is not None:
            rows = rows[weights[rows] > 0]
        self.sizes = np.bincount(codes[rows], minlength=n_classes)
        self._starts = np.concatenate([[0], np.cumsum(self.sizes)])
        small = source.n_rows <= np.iinfo(np.int32).max
        self._rows: Indices = rows.astype(np.int32) if small else rows

    @property
    def nbytes(self) -> int:
        """Bytes they take."""
        return self._rows.nbytes

    def __len__(self) -> int:
        return len(self.sizes)

    def of(self, one: int) -> Indices:
        """Rows of a class, ascending."""
        return self._rows[self._starts[one] : self._starts[one + 1]]

    def batches(self, most_rows: float) -> Iterator[Batch]:
        """Divide all pairs, k (k − 1) / 2, into batches, in which `most_rows` may be held.

        About 2 c² batches if there are c times as many rows as fit in memory, for any number of
        classes; one if all fit or are in memory already. Pairs that are larger come last, and are
        not held.
        """
        left = np.triu(np.ones((len(self), len(self)), np.bool_), 1)
        if self.source.row_alignment <= 1:
            yield Batch(np.argwhere(left), np.empty(0, np.int64))
            return
        yield from self.held_batches(most_rows)
        for pair in np.argwhere(left & ~self._fit(most_rows)):
            yield Batch(pair[None, :], np.empty(0, np.int64))

    def held_batches(self, most_rows: float) -> Iterator[Batch]:
        """Divide the pairs of at most `most_rows` rows into batches of classes that fit together.

        Rows that are in memory already are divided too, for processes that do not have them.
        """
        left = np.triu(self._fit(most_rows), 1)
        while left.any():
            chosen = self._held_next(left, most_rows)
            among = np.zeros_like(left)
            among[np.ix_(chosen, chosen)] = True
            yield Batch(np.argwhere(left & among), np.flatnonzero(chosen))
            left &= ~among

    def _fit(self, most_rows: float) -> Mask:
        """Whether each two classes have at most `most_rows` rows, (k, k)."""
        fits: Mask = self.sizes[:, None] + self.sizes <= most_rows
        return fits

    def _held_next(self, left: Mask, most_rows: float) -> Mask:
        """Choose classes to hold, (k,): the first pair's, then always that which adds most pairs.

        Pairs that are `left`, (k, k), are still to be trained.
        """
        between = left | left.T
        chosen = np.zeros(len(self), np.bool_)
        free, more = most_rows, np.zeros(len(self), np.int64)
        following: int | None = int(np.argmax(left.any(axis=1)))
        while following is not None:
            chosen[following] = True
            free -= self.sizes[following]
            more += between[following]
            # Pairs that a class would bring; of the first one, partners that fit beside it.
            brought = np.where(chosen | (self.sizes > free), 0, more)
            best = int(np.argmax(brought))
            following = best if brought[best] else None
        return chosen

    def in_place(self) -> HeldClasses:
        """Rows of all classes, where they are."""
        return HeldClasses(self, self.source, None)

    def hold(self, batch: Batch) -> HeldClasses:
        """Bring the rows that a batch holds, in one pass."""
        if not len(batch.held):
            return self.in_place()
        rows = np.sort(np.concatenate([self.of(one) for one in batch.held.tolist()]))
        chosen = ChosenRows(self.source, rows)
        values = self.source.take(rows.astype(np.int64))
        return HeldClasses(self, HeldRows(chosen, values), rows)


class HeldClasses(NamedTuple):
    """Rows of some classes in memory, or of all classes where they are.

    `rows`, (m,), are those of all rows that the source has, ascending; None for all.
    """

    of: ClassRows
    source: RowSource
    rows: Indices | None

    def pair(self, first: int, second: int) -> PairRows:
        """Rows of two classes, in the order they have among all."""
        one, other = self.of.of(first), self.of.of(second)
        rows = np.concatenate([one, other])
        order = np.argsort(rows, kind="stable")
        rows = rows[order]
        sign = np.where(order < len(one), np.int8(-1), np.int8(1))
        return PairRows(ChosenRows(self.source, self.places(rows)), rows, sign)

    def places(self, rows: Indices) -> Indices:
        """Places in the source of some of all rows."""
        return rows if self.rows is None else np.searchsorted(self.rows, rows)

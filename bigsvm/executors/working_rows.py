"""The active rows in memory: those read from a store are kept, so that only new ones are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp

from bigsvm.data.rows import RowsAt

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigsvm.arrays import I8, Mask
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Rows

    Gather: TypeAlias = Callable[[I8], Rows]


class WorkingRows:
    """Rows gathered from a source; rows of the last call are not read again.

    Rows of a source in memory are taken from it each time: a copy would cost memory.

    Parameters
    ----------
    source : RowSource
    take : callable, optional
        Used instead of the source's `take`.
    """

    def __init__(self, source: RowSource, take: Gather | None = None) -> None:
        self._source, self._take = source, take or source.take
        self._in_core = source.row_alignment <= 1
        self._held = np.empty(0, np.int64)
        self._rows: Rows | None = None

    def gathered(self, indices: I8) -> Gathered:
        """Return a handle on rows `indices`: read from a store, left in place if in memory."""
        rows = None if self._in_core else self.gather(indices)
        if self._in_core and self._source.is_fetched:
            self._source.lend(indices)  # all together: kernel rows ask for a few at a time
        return Gathered(self._source, indices, rows)

    def gather(self, indices: I8) -> Rows:
        """Rows `indices` ((m,) distinct int64, any order), in that order.

        It checks for an interruption between the chunks that are read: scattered rows may take a
        pass over the data. Where that raises, the rows held before stay.
        """
        if self._in_core:
            return self._source.take(indices)
        if self._rows is None:
            rows = self._take(indices)
        else:
            order = np.argsort(self._held, kind="stable")
            place = np.searchsorted(self._held, indices, sorter=order)
            place = order[np.minimum(place, len(order) - 1)]
            known = self._held[place] == indices
            fresh = None
            if not known.all():
                fresh = self._take(indices[~known])
            rows = _merge(self._rows, place[known], fresh, known)
        self._held, self._rows = indices.copy(), rows
        return rows


class Gathered(NamedTuple):
    """Rows `indices` of a source. `held` has their values; None if the source is in memory."""

    source: RowSource
    indices: I8
    held: Rows | None

    def everything(self) -> RowsAt:
        """Return all of these rows."""
        return self.at_places(np.arange(len(self.indices)))

    def at_places(self, places: I8) -> RowsAt:
        """Return some of these rows, by their places among them."""
        if self.held is None:
            return self.source.lend(self.indices[places])
        return RowsAt(self.held, places)


def _merge(held: Rows, places: I8, fresh: Rows | None, known: Mask) -> Rows:
    """Rows `places` of `held` where `known`, the rows of `fresh` elsewhere."""
    if fresh is None:
        return held[places]
    if sp.issparse(held):
        order = np.empty(len(known), np.int64)
        order[known] = np.arange(len(places))
        order[~known] = len(places) + np.arange(fresh.shape[0])
        return sp.csr_array(sp.vstack([held[places], fresh], format="csr")[order])
    rows = np.empty((len(known), held.shape[1]), held.dtype)
    rows[known] = held[places]
    rows[~known] = fresh
    return rows

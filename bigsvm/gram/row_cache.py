"""KernelRowCache: kernel rows among a working set, in memory.

After `KernelRowCache.ensure` the rows asked for are in memory. The tier below brings them: it
computes them, or reads them from disk.
"""

from __future__ import annotations

import copy
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

from bigsvm.core import row_choice
from bigsvm.data.rows import RowsAt
from bigsvm.gram.partners import rows_at

if TYPE_CHECKING:
    from bigsvm.arrays import F4, I4, I8, Mask
    from bigsvm.data.rows import Rows
    from bigsvm.gram import KernelTiles, Partners

BATCH = 24
"""Most rows fetched together, as many of those that seem to be needed next are not."""
AGAIN = 0.25
"""Once this share of the open slots has been fetched again, more slots are opened."""
OPENED = 1.1
"""Factor by which slots grow then, or if a row would be given up whose variable still moves."""
MANY = 0.6
"""With slots for this share of all rows, more of them rarely help: `AGAIN_OF_MANY` applies."""
AGAIN_OF_MANY = 1.0
"""What `AGAIN` is once many slots are open."""
FEWEST_SLOTS = 4
"""HMG needs the rows of the last pair and of a new one together."""


class RowBuffer:
    """Memory for kernel rows, reused from one working set to the next.

    The first use of a page of memory takes as long as computing the values for it. So the buffer
    counts in `n_touched` the values up to the last one that was ever written. `n_shared` is the
    number of values of the whole buffer, if this is a part of one. `alone` is held while using the
    scratch memory that all parts share.
    """

    def __init__(self, n_bytes: int) -> None:
        self.values = np.empty(n_bytes // 4, np.float32)
        self.n_touched = 0
        self.n_shared = len(self.values)
        self.alone = threading.Lock()
        self._parts: list[RowBuffer] = []

    def parts(self, count: int) -> list[RowBuffer]:
        """Divide it among `count` working sets that are solved at once."""
        if count == 1:
            return [self]
        if len(self._parts) != count:
            each = len(self.values) // count
            self._parts = [copy.copy(self) for _ in range(count)]
            for k, part in enumerate(self._parts):
                part.values = self.values[k * each : (k + 1) * each]
                part.n_touched = min(max(self.n_touched - k * each, 0), each)
        return self._parts


class RowTier(ABC):
    """A tier below the memory tier: brings kernel rows, and may keep those that memory gives up.

    A row has values of K in float32, without labels and C, and is never permuted. A tier is for one
    kernel and one set of rows. It `keeps` if it may keep rows that are offered; `n_hits` counts the
    rows that `fetch` did not have to compute.
    """

    n_hits: int = 0
    keeps: bool = True

    @abstractmethod
    def fetch(self, variables: I8, rows: F4, slots: I8) -> None:
        """Write the kernel rows of `variables` (q,) to ``rows[slots, :m]``.

        rows is (n_slots, ≥ m), and slots (q,) are distinct.
        """

    def offer(self, variables: I8, rows: F4, slots: I8) -> None:
        """Take ``rows[slots]``, which the tier above gives up; a tier may ignore them."""
        return

    def drain(self) -> None:
        """Wait until rows offered so far are stored."""
        return

    def close(self) -> None:
        """Release files and threads; no row is fetched afterwards."""
        return


class ComputedRows(RowTier):
    """The lowest tier: computes kernel rows from the rows of the working set, and keeps none."""

    keeps = False

    def __init__(self, tiles: KernelTiles, rows: Rows | RowsAt, partners: Partners) -> None:
        self._tiles, self._rows, self.partners = tiles, rows_at(rows), partners

    def fetch(self, variables: I8, rows: F4, slots: I8) -> None:
        """Compute the rows in one product."""
        base, places = self._rows
        wanted = RowsAt(base, places[variables])
        self.n_hits += self._tiles.evaluate(wanted, self.partners, rows, slots=slots)


class WithSlack(RowTier):
    """Adds one variable, the last, whose kernel values are all 0, to n_rows of the tier below."""

    def __init__(self, below: RowTier, n_rows: int) -> None:
        self._below, self._n_rows, self.keeps = below, n_rows, below.keeps

    def fetch(self, variables: I8, rows: F4, slots: I8) -> None:
        """Fetch all rows but the last from below."""
        real = variables < self._n_rows
        rows[slots, self._n_rows] = 0
        rows[slots[~real]] = 0
        if real.any():
            self._below.fetch(variables[real], rows, slots[real])
        self.n_hits = self._below.n_hits

    def offer(self, variables: I8, rows: F4, slots: I8) -> None:
        """Offer all rows but the last."""
        real = variables < self._n_rows
        if real.any():
            self._below.offer(variables[real], rows, slots[real])

    def drain(self) -> None:
        """Wait for the tier below."""
        self._below.drain()

    def close(self) -> None:
        """Close the tier below."""
        self._below.close()


class KernelRowCache:
    """The memory tier: slots in a buffer, of which the least recently used is given up first.

    Each of the m variables has a row of m values, in a slot of `width` values; those past m are 0.

    Parameters
    ----------
    first_slots : int, optional
        Slots that are used at first, if the buffer has more. More are opened when rows have to be
        fetched again. Slots in memory that was used before are always open. All, if not given.
    evicting_batch : int
        Most rows fetched together if as many must be given up that may be used again: rows that
        were not asked for are often given up before they are needed.

    Attributes
    ----------
    rows, slots : (n_slots, width), (width,)
        Kernel rows, and the slot of each variable's row, or −1.
    used : (n_slots,) int64
        Stamp of the last use, which the solver writes.
    n_slots, n_misses : int
        Rows that fit, and rows that were fetched from the tier below.
    """

    def __init__(
        self,
        below: RowTier,
        *,
        n_variables: int,
        width: int,
        buffer: RowBuffer,
        first_slots: int | None = None,
        evicting_batch: int = 1,
    ) -> None:
        self.below = below
        self.n_variables = n_variables
        self.n_slots = n_slots = min(n_variables, buffer.values.size // width)
        if n_slots < min(FEWEST_SLOTS, n_variables):
            raise ValueError(
                f"{buffer.values.nbytes} bytes hold {n_slots} rows of {width} float32; "
                f"{min(FEWEST_SLOTS, n_variables)} are needed"
            )
        self.rows = buffer.values[: n_slots * width].reshape(n_slots, width)
        self._buffer = buffer
        self._evicting_batch = evicting_batch
        self._ever = np.zeros(n_variables, np.bool_)
        self._n_again = 0
        self._open = n_slots
        self._frugal = first_slots is not None
        if first_slots is not None:
            warm = buffer.n_touched // width
            self._open = min(n_slots, max(first_slots, warm, FEWEST_SLOTS))
        self.slots = np.full(width, -1, np.int32)
        self.used = np.zeros(n_slots, np.int64)
        self.n_misses = 0
        self._owner = np.full(n_slots, -1, np.int64)
        self._n_filled = 0

    def largest_batch(self, quiet: Mask | None = None) -> int:
        """Most rows to ask for in one `ensure`: the free slots, or a few if there are fewer.

        If more slots can be opened, those of quiet variables count as free.
        """
        few = max(min(self._open // 4, self._evicting_batch), 1)
        n_free = self._open - self._n_filled
        if self._frugal and quiet is not None and n_free < BATCH:
            n_free += self._count_quiet(quiet)
        return max(n_free, few)

    def ensure(self, variables: I8, *, stamp: int, quiet: Mask | None = None) -> None:
        """Bring the rows of `variables` into memory, unless they are there.

        The variables are distinct, the most wanted first, and at most `largest_batch` of them may
        be missing. The stamp of this use is at least as large as all so far. Rows of `quiet`
        variables, (m,), are probably not needed soon; they are given up first.
        """
        held = self.slots[variables]
        missing = variables[held < 0]
        held = held[held >= 0]
        self.used[held] = stamp
        if len(missing) == 0:
            return
        self._n_again += int(np.count_nonzero(self._ever[missing]))
        self._ever[missing] = True
        self._open_more(len(missing), quiet)
        slots = self._take_slots(len(missing), held, quiet)
        self.below.fetch(missing, self.rows, slots)
        self._owner[slots] = missing
        self.slots[missing] = slots
        self.used[slots] = stamp
        self.n_misses += len(missing)

    def carry_over(self, narrow: KernelRowCache, kept: Mask, *, stamp: int) -> None:
        """Move rows to a cache of fewer variables in the same buffer, and end this one.

        `narrow` is empty and for the variables that are `kept`, (n_variables,). The stamp is the
        last one; those of `narrow` begin at 1.
        """
        variables, place = np.flatnonzero(kept), np.cumsum(kept) - 1
        slot = 0
        # A row's new place ends before the old place of the next one: rows move in order.
        for old in np.flatnonzero(self._owner[: self._n_filled] >= 0).tolist():
            owner = int(self._owner[old])
            if kept[owner] and slot < narrow.n_slots:
                narrow._adopt(slot, int(place[owner]), self.rows[old, variables])
                narrow.used[slot] = self.used[old] - stamp
                slot += 1
        self.slots.fill(-1)
        self._n_filled = 0

    def _adopt(self, slot: int, variable: int, row: F4) -> None:
        """Copy the row of a variable, (m,), to the next slot that was never filled."""
        self.rows[slot, : self.n_variables] = row
        self.rows[slot, self.n_variables :] = 0
        self.slots[variable], self._owner[slot] = slot, variable
        self._ever[variable] = True
        self._n_filled = slot + 1

    def close(self) -> None:
        """Offer all rows to the tier below, which may keep them for later runs, and close it."""
        for start in range(0, self._n_filled if self.below.keeps else 0, BATCH):
            slots = np.arange(start, min(start + BATCH, self._n_filled))
            slots = slots[self._owner[slots] >= 0]  # not those whose fetch was interrupted
            self.below.offer(self._owner[slots], self.rows, slots)
            self.below.drain()
        self.below.close()

    def _open_more(self, count: int, quiet: Mask | None) -> None:
        """Open slots if `count` rows would replace rows in use, or many are fetched again."""
        if self._open == self.n_slots:
            return
        many = int(MANY * self.n_variables)
        again, limit = (AGAIN, many) if self._open < many else (AGAIN_OF_MANY, self.n_slots)
        if self._lacks_quiet(count, quiet):
            again, limit = -1, self.n_slots
        if self._n_again > again * self._open:
            self._open = min(int(OPENED * self._open) + count, limit, self.n_slots)
            self._n_again = 0

    def _lacks_quiet(self, count: int, quiet: Mask | None) -> bool:
        """Whether `count` rows do not fit, even if those of all quiet variables were given up."""
        if quiet is None or self._open - self._n_filled >= count:
            return False
        return self._count_quiet(quiet) < count

    def _count_quiet(self, quiet: Mask) -> int:
        """Count slots with rows of quiet variables, except those used last."""
        filled = slice(0, self._n_filled)
        count: int = row_choice.count_quiet(
            self.used[filled], self._owner[filled], quiet, FEWEST_SLOTS
        )
        return count

    def _take_slots(self, count: int, kept: I4, quiet: Mask | None) -> I8:
        """Take `count` slots: unused, then of quiet variables, then the least recently used."""
        filled = self._n_filled
        fresh = min(count, self._open - filled)
        slots = np.arange(filled, filled + fresh)
        if fresh < count:
            oldest = np.empty(count - fresh, np.int64)
            quiet = np.zeros(self.n_variables, np.bool_) if quiet is None else quiet
            stamps = self.used[kept]
            self.used[kept] = np.iinfo(np.int64).max
            row_choice.give_up(
                self.used[:filled], self._owner[:filled], quiet, FEWEST_SLOTS, oldest
            )
            self.used[kept] = stamps
            evicted = self._owner[oldest]
            self.below.offer(evicted, self.rows, oldest)
            self.slots[evicted] = self._owner[oldest] = -1
            slots = np.sort(np.concatenate([slots, oldest]))
        self._n_filled = filled + fresh
        self.rows[filled : self._n_filled, self.n_variables :] = 0
        touched = self._n_filled * self.rows.shape[1]
        self._buffer.n_touched = max(self._buffer.n_touched, touched)
        return slots

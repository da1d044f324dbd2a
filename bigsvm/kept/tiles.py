"""KeptTiles: kernel tiles that read kernel values from disk where they are there.

Sums need the values of each partner with many rows: those of a segment are computed together, all
of them, and kept. Kernel rows among a working set are read if all their segments are there, and
computed otherwise. So what is kept is rows that have moved.

A value that is read for row i and partner j was computed for row j and partner i. Kernel values
are symmetric to the last bit (`bigsvm.kept.choice` looks), and sums are added up in the same order,
so that results have the bits that they have without the file.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from bigsvm.core import gram
from bigsvm.data.rows import RowsAt
from bigsvm.gram import KernelTiles, Partners
from bigsvm.gram.partners import PARTNERS_PER_TILE, FunctionWeights, rows_at
from bigsvm.gram.tiles import ROWS_PER_TILE, SUMS_PER_TILE
from bigsvm.interruption import check_interrupt
from bigsvm.kept.segments import WIDTH

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigsvm.arrays import F4, F8, I8, Mask
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Rows
    from bigsvm.gram.partners import Tile, Weights
    from bigsvm.kept.segments import Segments

    Floats = F4 | F8

READ_SECONDS = 12e-6
"""Seconds to read a segment from the page cache, compare its hash and lay out its values."""
AT_ONCE = 128
"""Segments that are read or computed together: 512 kB, and enough rows for all threads."""
MANY = 0.25
"""Share of the rows of a segment from which all of its values are computed: most of the others are
needed by the sweep that follows."""
WORTH_WHOLE = 0.5
"""Values of a row are computed for working sets until they are this share of all; then all are
computed and kept: it is asked for again and again, or will move and so be needed in sums."""
BUFFER_BYTES = 4 * WIDTH * (PARTNERS_PER_TILE + AT_ONCE)
"""Bytes of the values of a tile with the rows of a segment, and of segments read together."""


class Part(NamedTuple):
    """Rows of one segment: their places among some rows, and in the segment, (m,) each."""

    segment: int
    places: I8
    inside: I8


class Numbered(NamedTuple):
    """Partners by their numbers (p,) in the order of training."""

    numbers: I8

    def by_segment(self) -> list[Part]:
        """Divide them by segments."""
        segments = self.numbers // WIDTH
        parts = ((int(s), np.flatnonzero(segments == s)) for s in np.unique(segments))
        return [Part(s, places, self.numbers[places] % WIDTH) for s, places in parts]


class KeptTiles(KernelTiles):
    """Computes as other tiles do, with their threads, and counts its own evaluations.

    Parameters
    ----------
    tiles : KernelTiles
        float32.
    source : RowSource
        Rows in memory, in the order of training.
    segments : Segments
        Of these rows with this kernel.
    value_seconds : float
        Seconds to compute a kernel value.
    """

    def __init__(
        self, tiles: KernelTiles, source: RowSource, segments: Segments, *, value_seconds: float
    ) -> None:
        vars(self).update(vars(tiles))  # as `KernelTiles.with_threads` does
        self.n_evaluations = 0
        self._segments, self._value_seconds = segments, value_seconds
        lent = source.lend(np.arange(source.n_rows))
        self._base, self._places = lent
        self._number = np.full(self._base.shape[0], -1, np.int32)
        self._number[lent.places] = np.arange(source.n_rows)
        self._alone = threading.Lock()  # of those who use the memory for segments
        self._spent = np.zeros(source.n_rows, np.int64)
        self.values = self.values.numbering(self._numbered)

    def _numbers(self, rows: RowsAt) -> I8 | None:
        """Return the numbers of rows in the order of training, or None for other rows."""
        if rows.rows is not self._base:
            return None
        numbers = self._number[rows.places].astype(np.int64)
        return numbers if (numbers >= 0).all() else None

    def _numbered(self, rows: RowsAt) -> Numbered | None:
        numbers = self._numbers(rows)
        return None if numbers is None else Numbered(numbers)

    # -- kernel rows -------------------------------------------------------------------------

    def evaluate(
        self, rows: Rows | RowsAt, partners: Partners, out: Floats, *, slots: I8 | None = None
    ) -> int:
        """``out[slots] = K(rows, partners)``; returns how many rows were read."""
        at, kept = rows_at(rows), partners.numbered
        numbers = self._numbers(at)
        if numbers is None or not isinstance(kept, Numbered) or out.dtype != np.float32:
            return super().evaluate(rows, partners, out, slots=slots)
        slots = np.arange(len(numbers)) if slots is None else slots
        parts = kept.by_segment()
        computed, is_kept = np.ones(len(numbers), np.bool_), np.zeros(len(numbers), np.bool_)
        if len(parts) * READ_SECONDS < partners.n * self._value_seconds:
            is_read = self._are_held(numbers, parts)
            for i in np.flatnonzero(is_read).tolist():
                is_read[i] = self._read_row(int(numbers[i]), parts, out[slots[i]])
            is_kept = ~is_read & self._are_due(numbers, parts, partners.n)
            self._compute_whole(numbers[is_kept], parts, out, slots[is_kept])
            computed = ~is_read & ~is_kept
        if computed.any():
            some = RowsAt(at.rows, at.places[computed])
            super().evaluate(some, partners, out, slots=slots[computed])
        return len(numbers) - int(np.count_nonzero(computed | is_kept))

    def _are_held(self, rows: I8, parts: list[Part]) -> Mask:
        """Whether all these segments of some rows are in the file."""
        held = np.ones(len(rows), np.bool_)
        for segment, *_ in parts:
            held &= self._segments.held(rows, segment)
        return held

    def _read_row(self, row: int, parts: list[Part], out: Floats) -> bool:
        """Read the values of a row to out (≥ p,); False if it cannot be read."""
        values = np.empty(WIDTH, np.float32)
        for segment, places, inside in parts:
            if not self._segments.read(row, segment, values):
                return False
            out[places] = values[inside]
        return True

    def _are_due(self, rows: I8, parts: list[Part], n_partners: int) -> Mask:
        """Whether so many values of rows have been computed that whole ones are kept."""
        self._spent[rows] += n_partners
        if not self._segments.has_room:
            return np.zeros(len(rows), np.bool_)
        return self._spent[rows] >= WORTH_WHOLE * WIDTH * len(parts)

    def _compute_whole(self, rows: I8, parts: list[Part], out: Floats, slots: I8) -> None:
        """Compute and keep segments of rows, of which ``out[slots]`` gets what it needs."""
        for low in range(0, len(rows), AT_ONCE):
            some = slice(low, low + AT_ONCE)
            with self._alone:
                found = np.empty((len(rows[some]), WIDTH), np.float32)
                for segment, places, inside in parts:
                    self._fill(found, rows[some], segment, self._preparing(segment))
                    out[slots[some, None], places] = found[:, inside]

    def _preparing(self, segment: int) -> Callable[[], Partners]:
        """Return what prepares the rows of a segment, once it is called."""
        first = segment * WIDTH
        rows = RowsAt(self._base, self._places[first : first + WIDTH])
        return functools.cache(lambda: Partners.of_rows_like(self.values, rows))

    # -- sums --------------------------------------------------------------------------------

    def multiply(
        self, rows: Rows | RowsAt, partners: Partners, weights: Weights | FunctionWeights, out: F8
    ) -> None:
        """``out += K(rows, partners) @ weights``, with the bits of `KernelTiles.multiply`."""
        at, kept = rows_at(rows), partners.numbered
        numbers = self._numbers(at)
        if numbers is None or not isinstance(kept, Numbered):
            super().multiply(rows, partners, weights, out)
            return
        rounded = self.prepared(partners, weights)
        computed = np.ones(len(numbers), np.bool_)
        for segment, places, inside in Numbered(numbers).by_segment():
            if self._pays(kept.numbers, segment, len(places)):
                computed[places] = False
                for low in range(0, len(places), WIDTH):
                    part = slice(low, low + WIDTH)
                    self._add_segment(
                        segment, inside[part], partners, kept.numbers, rounded, out, places[part]
                    )  # fmt: skip
        if computed.all():
            super().multiply(rows, partners, rounded, out)
        elif computed.any():
            sums = out[computed]
            some = RowsAt(at.rows, at.places[computed])
            super().multiply(some, partners, rounded, sums)
            out[computed] = sums

    def _pays(self, partners: I8, segment: int, n_rows: int) -> bool:
        """Whether the values of partners with some rows of a segment are read or kept."""
        n_missing = len(partners) - int(np.count_nonzero(self._segments.held(partners, segment)))
        width = min(WIDTH, len(self._places) - segment * WIDTH)
        if n_missing and self._segments.has_room and n_rows >= MANY * width:
            return True
        reading = len(partners) * READ_SECONDS + n_missing * width * self._value_seconds
        return reading < len(partners) * n_rows * self._value_seconds

    def _add_segment(
        self,
        segment: int,
        inside: I8,
        partners: Partners,
        numbers: I8,
        weights: F8 | FunctionWeights,
        out: F8,
        places: I8,
    ) -> None:
        """Add to the sums of the rows at places of `out` that are `inside` a segment, (m,) each."""
        prepare = self._preparing(segment)
        sums = np.ascontiguousarray(out[places].T)
        for tile in partners:
            check_interrupt()
            values = self._with_segment(segment, inside, numbers, tile, prepare)
            self._add(tile, values, weights, sums)
        out[places] = sums.T

    def _add(self, tile: Tile, values: F4, weights: F8 | FunctionWeights, sums: F8) -> None:
        """Add the values (m, ≥ p) of a tile times its weights to sums (m,), or (k, m)."""
        if not isinstance(weights, FunctionWeights):
            gram.weighted_sums(values, weights[tile.start : tile.stop], sums)
            return
        fitting = SUMS_PER_TILE // max(weights.n, 1) // gram.MR * gram.MR
        step = min(ROWS_PER_TILE, max(gram.MR, fitting))
        for low in range(0, len(values), step):
            part = np.ascontiguousarray(sums[:, low : low + step])
            weights.add(tile, values[low : low + step], part, self._team.scratch)
            sums[:, low : low + step] = part

    def _with_segment(
        self, segment: int, inside: I8, numbers: I8, tile: Tile, prepare: Callable[[], Partners]
    ) -> F4:
        """Read the values of a tile's partners with rows of a segment, (m, p), or compute them.

        `numbers` are those of all partners; `prepare` prepares the rows of the segment.
        """
        numbers = numbers[tile.start : tile.stop]
        values = np.empty((len(inside), len(numbers)), np.float32)
        found = np.empty((min(AT_ONCE, len(numbers)), WIDTH), np.float32)
        for low in range(0, len(numbers), AT_ONCE):
            some = numbers[low : low + AT_ONCE]
            self._fill(found, some, segment, prepare)
            values[:, low : low + len(some)] = found[: len(some), inside].T
        return values

    def _fill(self, found: F4, numbers: I8, segment: int, prepare: Callable[[], Partners]) -> None:
        """Write segments of rows (q,) to found (≥ q, WIDTH); what is missing is computed, kept."""
        missing: Mask = ~self._segments.held(numbers, segment)
        for i in np.flatnonzero(~missing).tolist():
            missing[i] = not self._segments.read(int(numbers[i]), segment, found[i])
        at = np.flatnonzero(missing)
        if len(at):
            rows, all_rows = RowsAt(self._base, self._places[numbers[at]]), prepare()
            found[at, all_rows.n :] = 0
            super().evaluate(rows, all_rows, found, slots=at)
            for i in at.tolist():
                self._segments.write(int(numbers[i]), segment, found[i])

"""Steps of many variables of a working set together, between its pair steps: climbs and leaps."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

from bigsvm.core import smo
from bigsvm.data.rows import RowsAt
from bigsvm.gram import Partners
from bigsvm.gram.low_rank import factor
from bigsvm.gram.partners import weighted_rows
from bigsvm.gram.row_cache import BATCH, ComputedRows
from bigsvm.interruption import check_interrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bigsvm.arrays import F4, F8, I8
    from bigsvm.duals.dual import Steps
    from bigsvm.gram import KernelTiles
    from bigsvm.gram.row_cache import RowBuffer

CLIMB_PARTS = 4
"""A climb (`Climbs`) may use 1 / this of the memory for kernel rows, besides that memory."""
FIRST_LEAP = 1 << 13
"""Least steps on a working set before the first leap."""
STEPS_PER_ROW = 2
"""The same for each row."""
STEPS_PER_WIDTH = 2
"""The same, times the squared number of columns of the factor: a leap takes about as long."""
NEXT_LEAP = 4
"""Factor of the steps until the next leap."""


class LongSteps:
    """Climbs and leaps of some steps, where these have any; see `Climbs` and `Leaps`.

    Alpha and gradient of the pair steps are moved. `computed` computes kernel rows of the working
    set's rows, (m, d). A climb may use a part of the buffer besides, a leap `spare` bytes. `origin`
    is alpha and gradient where the steps began: a leap starts from these, as steps have rounded the
    later ones. `per_output` is `Formulation.per_output`.
    """

    def __init__(
        self,
        steps: Steps,
        tiles: KernelTiles,
        rows: RowsAt,
        computed: ComputedRows,
        *,
        buffer: RowBuffer,
        spare: int,
        origin: tuple[F8, F8],
        per_output: Callable[[F8], F8],
    ) -> None:
        self._steps, self._tiles, self._rows, self._computed = steps, tiles, rows, computed
        self._spare, self._alone = spare, buffer.alone
        self._climb_values = buffer.n_shared // CLIMB_PARTS
        self._origin, self._per_output = origin, per_output

    def climb(self, tol: float) -> None:
        """Let variables go uphill together after many pair steps.

        Their kernel rows are computed even if they are in memory, so that bits do not depend on it.
        """
        climbs = self._steps.climbs
        if climbs is None:
            return
        places = climbs.climbing(lambda n_values: n_values <= self._climb_values)
        if not len(places):
            return
        with self._alone:
            gram = np.empty((len(places), len(places)), np.float32)
            done = 0
            for rows in self._rows_of(places):
                gram[done : done + len(rows)] = rows[:, places]
                done += len(rows)
            change = climbs.climb(places, gram, tol=tol)
            climbs.follow(change, self._rows_of(places))

    def next_leap(self) -> int:
        """Return the number of steps at which the next leap is tried.

        Depends only on the step count, so a resumed run leaps exactly where the original did.
        """
        leaps = self._steps.leaps
        if leaps is None:
            return sys.maxsize
        width = self._tiles.values.factor_width(self._rows)
        if width == np.inf or leaps.leap_bytes(width) > self._spare:
            return sys.maxsize
        n_rows = len(self._rows.places)
        least = max(FIRST_LEAP, STEPS_PER_ROW * n_rows, STEPS_PER_WIDTH * int(width) ** 2)
        due = -(-least // smo.REFRESH) * smo.REFRESH
        while due < self._steps.n_done:
            due *= NEXT_LEAP
        return due

    def leap(self, tol: float) -> None:
        """Go to the optimum that a factor of the kernel matrix leads to, or stay."""
        leaps, steps = self._steps.leaps, self._steps
        if leaps is None:
            return
        with self._alone, self._tiles.exact() as exact:
            leap = leaps.leap(self._origin, factor(exact, self._rows), tol=tol)
            if leap is not None:
                here = self._per_output(steps.point.alpha - self._origin[0])
                outputs = (self._outputs_of(change, exact) for change in (leap.change, here))
                leaps.land(self._origin, leap.target, *outputs)

    def _outputs_of(self, change: F8, tiles: KernelTiles) -> F8:
        """``K @ change``, (m,) or (m, k) as `change` is, for a few moved rows at a time."""
        outputs = np.zeros_like(change)
        moved = weighted_rows(change)
        for first in range(0, len(moved), BATCH):
            check_interrupt()
            part = moved[first : first + BATCH]
            partners = Partners.of_rows_like(
                tiles.values, RowsAt(self._rows.rows, self._rows.places[part])
            )
            tiles.multiply(self._rows, partners, change[part], outputs)
        return outputs

    def _rows_of(self, places: I8) -> Iterator[F4]:
        """Compute kernel rows, a batch at a time in the same memory."""
        width = smo.row_width(len(self._rows.places))
        fetched = np.zeros((BATCH, width), np.float32)
        for first in range(0, len(places), BATCH):
            check_interrupt()
            part = places[first : first + BATCH]
            self._computed.fetch(part, fetched, np.arange(len(part)))
            yield fetched[: len(part)]

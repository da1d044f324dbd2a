"""SubProblem: the dual restricted to a working set, solved on kernel rows made on demand."""

from __future__ import annotations

import operator
import time
from abc import ABC, abstractmethod
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.core import row_choice, smo
from bigsvm.data.rows import RowsAt
from bigsvm.gram import Partners
from bigsvm.gram.partners import rows_at
from bigsvm.gram.row_cache import BATCH, ComputedRows, KernelRowCache, WithSlack
from bigsvm.interruption import check_interrupt
from bigsvm.working_sets.long_steps import NEXT_LEAP, LongSteps

if TYPE_CHECKING:
    from collections.abc import Callable

    from bigsvm.arrays import F8, I8, Mask
    from bigsvm.data.rows import Rows
    from bigsvm.duals.dual import Dual, Point
    from bigsvm.gram import KernelTiles
    from bigsvm.gram.row_cache import RowBuffer, RowTier


EVICTING_BATCH = 12
"""Kernel rows computed at once when each takes the place of another: the dense micro-kernel
computes this many in the time of one."""
LEAST_BATCH = 6
"""Kernel rows fetched together if there is room, even if fewer rows violate: starting a batch costs
as much as six rows, and rows that nearly violate are needed next."""

REFRESH = 2048
"""Steps of a slice, which is that of `bigsvm.core.smo`: it says why."""


class Progress(IntEnum):
    """Why `SubProblem.advance` returned; the numbers are those of `bigsvm.core.smo`."""

    CONVERGED = 0
    STEPS_SPENT = 1
    STALLED = 3


class Costs(NamedTuple):
    """What kernel rows have cost: `misses` were fetched, `reads` of these were read from disk."""

    misses: int = 0
    reads: int = 0
    seconds: float = 0.0

    def plus(self, other: Costs) -> Costs:
        """Add other costs."""
        return Costs(*map(operator.add, self, other))

    def since(self, earlier: Costs) -> Costs:
        """Return what has been added to `earlier` costs."""
        return Costs(*map(operator.sub, self, earlier))


class Memory(NamedTuple):
    """The memory that a sub-problem may use: a buffer for kernel rows, `spare` bytes for a leap.

    `first_slots` maps the number of rows of a working set to the kernel rows of it that are in
    memory at first; None for all that fit. See `KernelRowCache`. `tier` puts a tier between memory
    and the computation of rows. `problem` makes the problem of a working set from the arguments of
    `SubProblem`, which is the default.
    """

    buffer: RowBuffer
    first_slots: Callable[[int], int | None] | None = None
    tier: Callable[[RowTier], RowTier] | None = None
    spare: int = 0
    problem: Callable[..., WorkingProblem] | None = None


class WorkingProblem(ABC):
    """The problem of a working set, which is solved in slices of steps."""

    @property
    def slices(self) -> int:
        """Slices of REFRESH steps that one call of `advance` may take."""
        return 1

    @property
    @abstractmethod
    def size(self) -> int:
        """Rows in play."""

    @property
    @abstractmethod
    def point(self) -> Point:
        """Where it is; rows left out may have an earlier gradient until they are back."""

    @property
    @abstractmethod
    def gap(self) -> float:
        """KKT gap among the rows in play."""

    @property
    @abstractmethod
    def costs(self) -> Costs:
        """What its kernel rows have cost."""

    @abstractmethod
    def advance(self, *, tol: float, max_steps: int = REFRESH) -> Progress:
        """Take up to `max_steps` steps."""

    def bring_up_to_date(self) -> None:
        """Make alpha and gradient of all rows belong together, where some were left out."""
        return

    @abstractmethod
    def close(self) -> None:
        """Hand the kernel rows to the tier that keeps them."""


class SubProblem(WorkingProblem):
    """The dual restricted to a working set, solved by its steps on kernel rows made on demand.

    The rows are (m, d), those of the working set. `origin` is alpha and gradient where the steps on
    this working set began; those of `start` if not given. A leap starts from these, as steps have
    rounded the later ones.
    """

    def __init__(
        self,
        dual: Dual[Any],
        tiles: KernelTiles,
        rows: Rows | RowsAt,
        working_set: I8,
        start: Point,
        memory: Memory,
        *,
        origin: tuple[F8, F8] | None = None,
    ) -> None:
        self._size, self._row_seconds = len(working_set), 0.0
        buffer = memory.buffer
        first_slots = memory.first_slots(self.size) if memory.first_slots else None
        self._rows_at_once = min(dual.rows_at_once or BATCH, BATCH)
        rows = rows_at(rows)
        partners = Partners.of_rows_like(tiles.values, rows)
        self._tiles, self._rows = tiles, rows
        diagonal = tiles.values.diagonal(partners.norms)
        self.steps = dual.begin(start, working_set, diagonal=diagonal)
        self._computed = ComputedRows(tiles, rows, partners)
        self.long_steps = LongSteps(
            self.steps, tiles, rows, self._computed, buffer=buffer, spare=memory.spare,
            origin=origin or (start.alpha.copy(), start.gradient.copy()),
            per_output=dual.formulation.per_output,
        )  # fmt: skip
        below = memory.tier(self._computed) if memory.tier else self._computed
        n_slack = self.steps.n_slack
        n_all = self.size + n_slack
        one_function = dual.formulation.n_outputs == 1
        one_by_one = partners.for_sparse_rows and first_slots is None and one_function
        self.cache = KernelRowCache(
            WithSlack(below, self.size) if n_slack else below,
            n_variables=n_all,
            width=smo.row_width(n_all),
            buffer=buffer,
            first_slots=first_slots,
            evicting_batch=1 if one_by_one else EVICTING_BATCH,
        )

    def close(self) -> None:
        self.cache.close()

    def let_go(self) -> None:
        """Free the memory that kernel rows are computed with; none is fetched afterwards."""
        base, places = self._rows
        self._computed.partners = Partners.of_rows_like(
            self._tiles.values, RowsAt(base, places[:0])
        )

    def hand_over(self, narrow: SubProblem, kept: Mask) -> None:
        """Move kernel rows to a sub-problem of the rows kept, (m,) bool, in the same memory."""
        all_kept = np.pad(kept, (0, self.steps.n_slack), constant_values=True)
        self.cache.carry_over(narrow.cache, all_kept, stamp=self.steps.stamp)

    @property
    def size(self) -> int:
        return self._size

    @property
    def point(self) -> Point:
        return self.steps.point

    @property
    def gap(self) -> float:
        return self.steps.gap

    @property
    def costs(self) -> Costs:
        return Costs(self.cache.n_misses, self.cache.below.n_hits, self._row_seconds)

    def advance(self, *, tol: float, max_steps: int = REFRESH) -> Progress:
        """Take up to `max_steps` steps, fetching rows as asked for.

        Before rows are computed it checks for an interruption, which leaves the slice undone.
        """
        self.long_steps.climb(tol)
        cache, steps, due = self.cache, self.steps, self.long_steps.next_leap()
        goal = steps.n_done + max_steps
        while True:
            if steps.n_done == due:
                self.long_steps.leap(tol)
                due *= NEXT_LEAP
            allowed = min(goal, due) - steps.n_done
            status, row = steps.advance(
                cache.rows, cache.slots, cache.used, tol=tol, max_steps=allowed
            )
            if status == smo.STEPS_SPENT and steps.n_done == due < goal:
                continue
            if status != smo.NEED_ROW:
                return Progress(status)
            check_interrupt()
            wanted, quiet = self._most_wanted(row, tol)
            began = time.perf_counter()
            cache.ensure(wanted, stamp=steps.stamp, quiet=quiet)
            self._row_seconds += time.perf_counter() - began

    def _most_wanted(self, row: int, tol: float) -> tuple[I8, Mask]:
        """List the row asked for, then the worst violators without a kernel row, up to a batch.

        If these are very few, rows that nearly violate follow. Returns the list, and which rows are
        quiet: not expected to move.
        """
        n_all = self.size + self.steps.n_slack
        score, quiet = np.empty(n_all, np.float32), np.empty(n_all, np.bool_)
        self.steps.violations(score, quiet)
        most = min(self._rows_at_once, self.cache.largest_batch(quiet))
        wanted = np.empty(most, np.int64)
        at_least = LEAST_BATCH if len(wanted) == BATCH else 0
        count = row_choice.most_wanted(score, self.cache.slots, row, 0.5 * tol, at_least, wanted)
        return wanted[:count], quiet

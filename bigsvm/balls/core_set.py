"""The core set: the points a ball is found from, kernel rows among them, and steps on it."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from bigsvm.core import sampled_steps as steps
from bigsvm.core import smo
from bigsvm.errors import MemoryBudgetError
from bigsvm.gram import Partners
from bigsvm.gram.partners import rows_at

if TYPE_CHECKING:
    from bigsvm.arrays import F8, I4, I8
    from bigsvm.core.sampled_steps import Floats
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Rows, RowsAt
    from bigsvm.duals.ball import BallDual
    from bigsvm.gram import KernelTiles
    from bigsvm.training.state import SearchState

REPACKED = 0.25
"""Share of new points from which all are packed again for products; below it, only the new ones."""
WORTH_DROPPING = 0.25
"""Share of points without weight from which these are removed: removing them takes as long as to
evaluate a block of samples."""
FEWEST_ROWS = 4
"""Kernel rows that a solver cannot do without."""
ROWS_AT_ONCE = 256
"""Kernel rows that are computed together from scratch."""


class CoreSet:
    """Points with weights a on the unit simplex, ``g = −K̃a``, and kernel rows among them.

    As many kernel rows as memory has room for are kept; of others, the one used least recently is
    given up and computed again when a step needs it.

    There are at most `capacity` points, and memory for `n_values` kernel values among them. The
    tiles have the offset of the dual's formulation. `counters` are those of `sampled_steps`.
    """

    def __init__(
        self, dual: BallDual, tiles: KernelTiles, *, capacity: int, n_values: int, is_sparse: bool
    ) -> None:
        self._dual, self._tiles, self._is_sparse = dual, tiles, is_sparse
        self.capacity = capacity
        self.counters = np.zeros(steps.N_COUNTERS, np.int64)
        self.counters[steps.FARTHEST] = -1
        self._rows: list[Rows] = []
        self._packed: list[Partners] = []
        # The system gives memory only once it is written to.
        self._values = np.zeros(n_values, tiles.dtype)
        self._lay_out(smo.row_width(1))
        size = min(self.width, capacity)
        reals = np.zeros((5, size))
        self.points = steps.Points(
            np.zeros(size, np.int64), reals[0], reals[1], reals[2], reals[3], reals[4],
            np.full(size, -1, np.int32),
        )  # fmt: skip

    @staticmethod
    def least_values() -> int:
        """Kernel values that the fewest rows of a few points take."""
        return FEWEST_ROWS * smo.row_width(1)

    @staticmethod
    def most_points(n_values: int) -> int:
        """Most points for which `n_values` kernel values hold the fewest rows."""
        return n_values // FEWEST_ROWS // smo.row_width(1) * smo.row_width(1)

    def _lay_out(self, width: int) -> None:
        """Divide the kernel values into slots for rows of a width."""
        self.width = width
        n_slots = len(self._values) // width
        self.kept = steps.KernelRows(
            self._values[: n_slots * width].reshape(n_slots, width),
            np.full(n_slots, -1, np.int32),
            *np.zeros((2, n_slots), np.int64),
        )
        self.counters[steps.FILLED] = 0

    def __len__(self) -> int:
        return int(self.counters[steps.POINTS])

    @property
    def indices(self) -> I8:
        """(p,) rows of the training set."""
        return self.points.row[: len(self)]

    @property
    def weights(self) -> F8:
        """a, (p,)."""
        return self.points.weights[: len(self)]

    @property
    def gradient(self) -> F8:
        """``−K̃a``, (p,), but for rounding; see `recompute`."""
        return self.points.gradient[: len(self)]

    @property
    def energy(self) -> float:
        """``R = aᵀK̃a``."""
        return -float(self.weights @ self.gradient)

    @property
    def beta(self) -> F8:
        """``y a``, (p,): what kernel rows are weighted by."""
        signed: F8 = self.points.signs[: len(self)] * self.weights
        return signed

    def places(self, indices: I8) -> I4:
        """Find the point that each of some rows, (m,), is; −1 if it is none."""
        order = np.argsort(self.indices)
        ascending = self.indices[order]
        place = np.minimum(np.searchsorted(ascending, indices), len(order) - 1)
        return np.where(ascending[place] == indices, order[place], -1).astype(np.int32)

    def outputs(self, rows: Rows | RowsAt) -> F8:
        """``Σ a_t y_t (k(x_t, x) + 1)`` of each row x, (m,)."""
        beta, out, first = self.beta, np.zeros(len(rows_at(rows).places)), 0
        for partners in self._partners():
            self._tiles.multiply(rows, partners, beta[first : first + partners.n], out)
            first += partners.n
        return out

    def rows(self) -> Rows:
        """All rows that have been absorbed, (p, d), in the order of `indices`."""
        if len(self._rows) > 1:
            joined = sp.vstack(self._rows, "csr") if self._is_sparse else np.vstack(self._rows)
            self._rows = [sp.csr_array(joined) if self._is_sparse else joined]
        return self._rows[0]

    def absorb(self, rows: Rows) -> None:
        """Keep the rows of the points that have joined last, in their order."""
        self._rows.append(rows)
        self._packed = []

    def _pack(self, rows: Rows) -> Partners:
        return Partners(self._tiles.values, rows, for_sparse_rows=self._is_sparse)

    def _partners(self) -> list[Partners]:
        """All rows that have been absorbed, packed; kept until there are others."""
        if not self._packed:
            self._packed = [self._pack(self.rows())]
        return self._packed

    @property
    def parts(self) -> I8:
        """Points of each part that is packed together; the last bit of sums depends on it."""
        parts = [partners.n for partners in self._packed] or [len(self)]
        return np.array(parts if len(self) else [], np.int64)

    def add(self, indices: I8, rows: Rows) -> None:
        """Add points without weight; distinct rows (q, d) at (q,) `indices`, none a point yet.

        Their kernel rows are computed where there is room without giving up others.
        """
        p, q = len(self), len(indices)
        while p + q > len(self.points.row):
            if not self.widen():
                raise MemoryBudgetError(
                    f"memory holds {self.capacity} points of a core set, and {p + q} are needed; "
                    "give more memory"
                )
        (segment,) = self._dual.formulation.segments(indices)
        points, new = self.points, slice(p, p + q)
        points.row[new], points.signs[new] = indices, segment.box.linear
        points.weights[new], points.gradient[new] = 0.0, 0.0
        points.ridge[new] = np.broadcast_to(segment.ridge, q)
        points.slots[new] = -1
        self.counters[steps.POINTS] = p + q
        self.absorb(rows)
        norms = self._partners()[-1].norms[-q:]
        points.diagonal[new] = self._tiles.values.diagonal(norms) + points.ridge[new]
        n_fetched = min(int(np.count_nonzero(self.kept.owner < 0)), q)
        for first in range(0, n_fetched, ROWS_AT_ONCE):
            stop = min(first + ROWS_AT_ONCE, n_fetched)
            self._fetch(np.arange(p + first, p + stop), rows[first:stop])

    def widen(self) -> bool:
        """Make room for more points; False if there is none.

        Kernel rows become longer, and if not all of them fit any more, those used least recently
        are given up.
        """
        if len(self.points.row) >= self.capacity:
            return False
        old, p = self.kept, len(self)
        self._lay_out(min(2 * self.width, smo.row_width(self.capacity)))
        size = min(self.width, self.capacity)
        arrays: list[Any] = [array[:p] for array in self.points]
        self.points = steps.Points(
            *(np.concatenate([array, np.zeros(size - p, array.dtype)]) for array in arrays)
        )
        self.points.slots[:] = -1
        held = np.flatnonzero(old.owner >= 0)
        newest = held[np.argsort(-old.used[held], kind="stable")][: len(self.kept.owner)]
        for place, slot in enumerate(np.sort(newest)):  # in place: rows move up, then apart
            old.values[place] = old.values[slot]
            owner = old.owner[slot]
            self.kept.owner[place], self.kept.used[place] = owner, old.used[slot]
            self.kept.length[place] = old.length[slot]
            self.points.slots[owner] = place
        for place in range(len(newest) - 1, -1, -1):
            row = old.values[place, :p].copy()
            self.kept.values[place, :p] = row
            self.kept.values[place, p:] = 0
        self.counters[steps.FILLED] = len(newest)
        written = (1 + int(held.max(initial=-1))) * old.values.shape[1]
        self._values[len(newest) * self.width : written] = 0
        return True

    def _evaluate(self, points: I8, rows: Rows, out: Floats, slots: I8) -> None:
        """Compute kernel rows of some points, (q,) with their rows, to ``out[slots]``."""
        first = 0
        for partners in self._partners():
            if first:  # Numba would compile again for a view that is not contiguous
                part = np.empty((len(slots), partners.n), out.dtype)
                self._tiles.evaluate(rows, partners, part)
                out[slots, first : first + partners.n] = part
            else:
                self._tiles.evaluate(rows, partners, out, slots=slots)
            first += partners.n
        signs = self.points.signs[:first].astype(out.dtype)
        for t, slot in zip(points.tolist(), slots.tolist(), strict=True):
            out[slot, :first] *= signs[t] * signs

    def fetch(self, wanted: I8) -> None:
        """Compute the kernel rows of some points, whose rows have all been absorbed."""
        self._fetch(wanted, self.rows()[wanted])

    def _fetch(self, wanted: I8, rows: Rows) -> None:
        p, points, kept = len(self), self.points, self.kept
        room = points.slots, kept.owner, kept.used, self.counters
        slots = np.array([steps.give_slot(*room, int(t)) for t in wanted], np.int64)
        self._evaluate(wanted, rows, kept.values, slots)
        for slot in slots.tolist():
            kept.values[slot, p:] = 0
            kept.length[slot] = p

    def solve(self, *, tol: float, max_steps: int) -> int:
        """Take pair steps until the ball of the points is within tol; returns how many."""
        if not max_steps:
            return 0
        p, points = len(self), self.points
        state = smo.make_state(
            self.weights, self.gradient, np.zeros(p), np.full(p, np.inf),
            points.diagonal[:p] - points.ridge[:p], ridge=points.ridge[:p],
        )  # fmt: skip
        state.number[smo.STAMP] = self.counters[steps.CLOCK]
        slots = np.full(max(p, state.alpha.shape[0]), -1, np.int32)
        kept = self.kept
        steps.complete_all(points.slots, kept.values, kept.length, p, slots)
        rows: Any = kept.values
        while True:
            left = max_steps - int(state.number[smo.STEPS])
            status, row = self._dual.advance_on_simplex(state, rows, slots, kept.used, tol, left)
            self.counters[steps.CLOCK] = state.number[smo.STAMP]
            if status != smo.NEED_ROW:
                break
            self.fetch(np.array([row]))
            steps.complete_all(points.slots, kept.values, kept.length, p, slots)
            state.number[smo.STAMP] = self.counters[steps.CLOCK]
        points.weights[:p], points.gradient[:p] = state.alpha[:p], state.gradient[:p]
        return int(state.number[smo.STEPS])

    def recompute(self) -> float:
        """Compute g from scratch; returns by how much it was off, at most, relative to R."""
        p = len(self)
        exact = np.empty(p)
        for first in range(0, p, ROWS_AT_ONCE):
            some = np.arange(first, min(first + ROWS_AT_ONCE, p))
            exact[some] = self._kernel_rows(some).astype(np.float64) @ self.weights
        exact = -(exact + self.points.ridge[:p] * self.weights)
        drift = float(np.abs(exact - self.gradient).max(initial=0.0))
        # After many steps the weights add up to 1 up to rounding.
        total = self.weights.sum()
        self.points.weights[:p] /= total
        self.points.gradient[:p] = exact / total
        return drift / max(abs(self.energy), np.finfo(np.float64).tiny)

    def _kernel_rows(self, some: I8) -> Floats:
        """Compute kernel rows of some points, (q, p)."""
        out = np.empty((len(some), len(self)), self._tiles.dtype)
        self._evaluate(some, self.rows()[some], out, np.arange(len(some)))
        return out

    def restore(self, source: RowSource, saved: SearchState) -> None:
        """Restore a saved core set, to the same bits."""
        for first, stop in itertools.pairwise([0, *np.cumsum(saved.parts).tolist()]):
            indices = saved.core[first:stop]
            self.add(indices, source.take(indices))
        self.weights[:], self.gradient[:] = saved.weights, saved.gradient

    def drop_weightless(self) -> bool:
        """Remove the points without weight if they are many; returns whether they were."""
        kept = np.flatnonzero(self.weights)
        p, q = len(self), len(kept)
        if p - q <= WORTH_DROPPING * p:
            return False
        self._rows, self._packed = [self.rows()[kept]], []
        number = np.full(p, -1, np.int32)
        number[kept] = np.arange(q)
        for array in self.points:
            array[:q] = array[kept]
        self.points.slots[q:p] = -1
        for slot in np.flatnonzero(self.kept.owner >= 0):
            self.kept.owner[slot] = number[self.kept.owner[slot]]
            self.kept.length[slot] = np.searchsorted(kept, self.kept.length[slot])
            if self.kept.owner[slot] < 0:
                self.kept.used[slot] = 0
            else:
                self.kept.values[slot, :q] = self.kept.values[slot, kept]
                self.kept.values[slot, q:p] = 0
        self.counters[steps.POINTS] = q
        return True


class FullCoreSet(CoreSet):
    """A core set with all kernel rows among its points, whose gradient is always known.

    It is packed in a few parts: most points together, the newest in parts of their own.
    """

    def __init__(
        self, dual: BallDual, tiles: KernelTiles, *, capacity: int, is_sparse: bool
    ) -> None:
        n_values = capacity * smo.row_width(capacity)
        super().__init__(dual, tiles, capacity=capacity, n_values=n_values, is_sparse=is_sparse)

    def absorb(self, rows: Rows) -> None:
        """Keep the rows of the points that have joined last, and pack them."""
        packed = [*self._packed, self._pack(rows)]
        super().absorb(rows)
        p, first = len(self), packed[0].n
        if p - first > REPACKED * p:
            return
        self._packed = packed if len(packed) <= 4 else [packed[0], self._pack(self.rows()[first:])]

    def add(self, indices: I8, rows: Rows) -> None:
        """Add points without weight, with their gradient and kernel rows; see `CoreSet.add`."""
        p = len(self)
        super().add(indices, rows)
        rows_of_new = self.kept.values[self.points.slots[p : len(self)], :p]
        self.gradient[p:] = -(rows_of_new.astype(np.float64) @ self.weights[:p])

    def _kernel_rows(self, some: I8) -> Floats:
        """Take kernel rows of some points, (q, p), from those kept."""
        slots = np.empty(len(self), np.int32)
        kept = self.kept
        steps.complete_all(self.points.slots, kept.values, kept.length, len(self), slots)
        kernel_rows: Floats = kept.values[slots[some], : len(self)]
        return kernel_rows

"""Audit: some results of each pass are computed again in this process, and workers have to agree.

Workers do not learn which. The first result of each is computed again before it is used, and at
least one result of each in every pass. Results do not depend on the choice.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.data.rows import is_sparse
from bigsvm.data.wrappers import DerivedRows
from bigsvm.errors import ClusterError
from bigsvm.executors.messages import SentPiece
from bigsvm.executors.replies import ReplyError
from bigsvm.executors.tasks import Halves
from bigsvm.gram import KernelTiles, Partners
from bigsvm.gram.partners import in_whole_tiles, rows_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bigsvm.arrays import F8, I8
    from bigsvm.data.row_source import RowSource
    from bigsvm.data.rows import Rows
    from bigsvm.executors.executor import WeightedRows
    from bigsvm.executors.workforce import Traffic

SHARE = 0.02
"""Most results of a pass that are computed again, besides one of each worker."""
LEAST_PROBES, PROBES_PER_THREAD = 64, 8
"""Rows that are checked in every pass over all of them: they are read once, and stay in memory."""
MOST_READ = 8
"""Rows of a product among chosen rows that are read again, besides one of each worker."""
ROUNDING = {np.dtype(np.float32): 1e-3, np.dtype(np.float64): 1e-8}
"""By how much sums of other processors may differ, in units of the sum of their terms' sizes."""
PARTNERS_AT_ONCE = in_whole_tiles(1 << 13)
"""Most weighted rows that are packed together here."""


class RowsReadAgain(DerivedRows):
    """Rows that this process reads again to check workers; the bytes are counted apart.

    `source` is one that no worker sends rows of; `threads` returns those of all workers.
    """

    def __init__(
        self, source: RowSource, traffic: Traffic, threads: Callable[[], int] = lambda: 1
    ) -> None:
        super().__init__(source)
        self._traffic, self._threads = traffic, threads

    @cached_property
    def probes(self) -> I8:
        """Rows whose sums are checked in passes over all rows, ascending."""
        n, most = self.n_rows, max(LEAST_PROBES, PROBES_PER_THREAD * self._threads())
        edges = np.linspace(0, n, max(1, min(most, int(SHARE * n))) + 1).astype(np.int64)
        return np.random.default_rng().integers(edges[:-1], edges[1:])

    @cached_property
    def _probe_rows(self) -> Rows:
        return self._taken(self.probes)

    def take(self, rows: I8) -> Rows:
        """Rows by number, which no worker has sent."""
        if np.isin(rows, self.probes).all():
            return self._probe_rows[np.searchsorted(self.probes, rows)]
        return self._taken(rows)

    def read(self, start: int, stop: int) -> Rows:
        """Rows ``start … stop - 1``."""
        with self._counted():
            return self._source.read(start, stop)

    def _taken(self, rows: I8) -> Rows:
        with self._counted():
            return self._source.take(rows)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        before = self.bytes_read
        try:
            yield
        finally:
            self._traffic.bytes_checked += self.bytes_read - before


class Auditor:
    """What the audits of an executor share; `known` are workers that have returned a right sum.

    Of the tiles the kernel, centre and offset are used.
    """

    def __init__(self, rows: RowsReadAgain, tiles: KernelTiles) -> None:
        self.rows, self._tiles = rows, tiles
        self.known: set[str] = set()

    def tiles(self, *, exact: bool) -> KernelTiles:
        """Make tiles of one thread, as workers have them."""
        of = self._tiles
        dtype: Any = np.float64 if exact else np.float32
        return KernelTiles(of.kernel, centre=of.centre, threads=1, dtype=dtype, offset=of.offset)


class Audit(ABC):
    """Chooses which results are computed again.

    Parameters
    ----------
    sizes : sequence of int
        Number of results of each call.
    most : int
        Most results that are chosen before the pass.
    preferred : callable, optional
        Given a call, returns the places that may be chosen of it.
    """

    n_evaluations = 0

    def __init__(
        self, sizes: Sequence[int], most: int, preferred: Callable[[int], I8] | None = None
    ) -> None:
        # Seeded by the system: the seed of the run would tell in advance.
        self._rng, self._sizes, self._seen = np.random.default_rng(), sizes, set[str]()
        self.places: dict[int, int] = {}
        for number in np.sort(self._rng.permutation(len(sizes))[: max(most, 1)]).tolist():
            among = np.arange(sizes[number]) if preferred is None else preferred(number)
            if len(among):
                self.places[number] = int(self._rng.choice(among))

    def drawn(self, number: int) -> int:
        """Draw the place of a result of a call."""
        return int(self._rng.integers(self._sizes[number]))

    def place(self, number: int, worker: str) -> int | None:
        """Return the place of the result of a call that is computed again; None if none is.

        It is not None for the first call of each worker.
        """
        place = self.places.get(number)
        if place is None and worker not in self._seen:
            place = self.drawn(number)
        if place is not None:
            self._seen.add(worker)
        return place

    @abstractmethod
    def verify(self, number: int, worker: str, values: Any, *, exactly: bool) -> bool:
        """Return whether some of the values that a worker returned for a call were computed again.

        `exactly` says whether they have to have the same bits.

        Raises
        ------
        ReplyError
            They are wrong.
        """

    def finish(self) -> None:
        """Check what is left at the end of the pass."""
        return


class RowsAudit(Audit):
    """Reads some rows again that workers have read, or computes a function of them again.

    Those are the same rows as in passes, which are read once, and one of the first reply of each
    worker.

    Parameters
    ----------
    rows : RowsReadAgain
    asked : sequence of (m,) int64
        The rows of each call, by number.
    function : callable, optional
        Given rows, returns a value of each; the rows themselves if None.
    """

    def __init__(
        self,
        rows: RowsReadAgain,
        asked: Sequence[I8],
        function: Callable[[Rows], Any] | None = None,
    ) -> None:
        super().__init__(
            [len(some) for some in asked], MOST_READ,
            lambda number: np.flatnonzero(np.isin(asked[number], rows.probes)),
        )  # fmt: skip
        self._again, self._asked, self._function = rows, asked, function

    def verify(self, number: int, worker: str, values: Any, *, exactly: bool) -> bool:
        """Check a row of a reply, if it was chosen or is the worker's first; see `Audit`."""
        place = self.place(number, worker)
        if place is None:
            return False
        row = self._asked[number][place]
        own: Any = self._again.take(np.array([row]))
        own, found = own if self._function is None else self._function(own), values[[place]]
        for part in ("indices", "data") if is_sparse(own) else ("base",):
            a, b = (getattr(one, part) if part != "base" else one for one in (found, own))
            if not np.array_equal(a, b):
                raise ReplyError(
                    f"returned another row {row} than this process reads: {_first(a, b)}"
                )
        return True


class SumsAudit(Audit):
    """Computes some sums of a pass again.

    Parameters
    ----------
    auditor : Auditor
    weighted : WeightedRows
    sizes : sequence of int
        Number of sums of each call.
    rows_of : callable
        Given a call, returns the numbers of the rows of its sums; where products are by halves,
        their places among the weighted rows.
    exact : bool
        Whether kernel values are float64.
    among : (p,) int64, optional
        Numbers of the weighted rows, where products are by halves.
    initial_of : callable
        Given a call, returns what its sums begin with, or None.
    preferred : callable, optional
        As for `Audit`.
    """

    def __init__(
        self,
        auditor: Auditor,
        weighted: WeightedRows,
        sizes: Sequence[int],
        rows_of: Callable[[int], I8],
        *,
        exact: bool,
        among: I8 | None = None,
        initial_of: Callable[[int], F8 | None] = lambda number: None,
        preferred: Callable[[int], I8] | None = None,
    ) -> None:
        most = int(SHARE * sum(sizes))
        super().__init__(sizes, most if preferred else min(most, MOST_READ), preferred)
        self._auditor, self._weighted, self._among = auditor, weighted, among
        self._rows_of, self._initial_of = rows_of, initial_of
        self._tiles = auditor.tiles(exact=exact)
        self._order = {number: j for j, number in enumerate(self.places)}
        self._left: dict[str, _Left] = {}
        self._known: _Products | _HalfProducts | None = None
        self._n_added = 0
        if self.places:
            rows, initial = zip(*itertools.starmap(self._asked, self.places.items()), strict=True)
            self._known = self._begun(np.concatenate(rows), np.concatenate(initial))

    @property
    def n_evaluations(self) -> int:  # type: ignore[override]  # counted by tiles
        """Kernel values computed so far."""
        return self._tiles.n_evaluations

    def sent(self, name: str) -> Iterator[SentPiece]:
        """Yield the pieces for workers; the chosen sums are computed meanwhile."""
        for piece in self._weighted.sent(name):
            self._add_known(piece)
            yield piece

    def verify(self, number: int, worker: str, values: Any, *, exactly: bool) -> bool:
        """Check a sum of a reply, if it was chosen or the worker is new; see `Audit`.

        Where sums are not finite, one of them is checked: it may be due to the rows.
        """
        place, known = self.places.get(number), self._order.get(number)
        off = ~np.isfinite(values.reshape(len(values), -1)).all(axis=1)
        if off.any() and (place is None or not off[place]):
            place, known = int(np.argmax(off)), None
        is_left = place is None and worker in self._auditor.known
        if is_left and (worker in self._seen or worker in self._left):
            return False
        if place is None:
            place = self.drawn(number)
        asked = _Left(*self._asked(number, place), np.array(values[place]), exactly)
        if is_left:
            self._left[worker] = asked
            return False
        expected = self._computed(asked)[0] if known is None else self._known_sums()[known]
        if fault := self._fault_of(asked, expected):
            raise ReplyError(fault)
        self._left.pop(worker, None)
        self._seen.add(worker)
        self._auditor.known.add(worker)
        return True

    def finish(self) -> None:
        """Check a sum of each worker of which none has been checked in this pass."""
        expected = self._computed(*self._left.values()) if self._left else ()
        for (worker, left), value in zip(self._left.items(), expected, strict=True):
            if fault := self._fault_of(left, value):
                raise ClusterError(
                    f"worker {worker} {fault}, and results of it were used; take it out of the "
                    "cluster, and resume the run from its checkpoint"
                )

    def _fault_of(self, asked: _Left, expected: F8) -> str:
        """Return what is wrong with a sum; empty if nothing is."""
        if np.array_equal(asked.found, expected, equal_nan=True):
            return ""
        if not asked.exactly and self._are_near(asked, expected):
            return ""
        return f"returned another sum than this process computes: {_first(asked.found, expected)}"

    def _asked(self, number: int, place: int) -> tuple[I8, F8]:
        """Return the row of a result, (1,), and what its sum begins with, (1, …)."""
        initial = self._initial_of(number)
        begin = np.zeros((1, *self._weighted.sums_shape))
        if initial is not None:
            begin[0] = initial[place if len(initial) > 1 else 0]
        return self._rows_of(number)[[place]], begin

    def _begun(self, rows: I8, initial: F8) -> _Products | _HalfProducts:
        if self._among is None:
            return _Products(self._tiles, self._auditor.rows.take(rows), initial)
        own = self._auditor.rows.take(self._among[rows])
        return _HalfProducts(self._tiles, own, rows, self._weighted.weights)

    def _computed(self, *asked: _Left) -> F8:
        """Compute sums that were not chosen before the pass."""
        rows, initial = (np.concatenate(parts) for parts in tuple(zip(*asked, strict=True))[:2])
        products = self._begun(rows, initial)
        for piece in self._weighted.sent(""):
            products.add(piece)
        return products.sums

    def _add_known(self, piece: SentPiece) -> None:
        if self._known is not None and piece.start == self._n_added:
            self._known.add(piece)
            self._n_added += piece.rows.shape[0]

    def _known_sums(self) -> F8:
        """Return the sums that were chosen before the pass."""
        if self._n_added < self._weighted.n:
            for piece in self._weighted.sent(""):
                self._add_known(piece)
        assert self._known is not None
        return self._known.sums

    def _are_near(self, asked: _Left, expected: F8) -> bool:
        """Whether sums differ by no more than the rounding of another processor."""
        row = asked.row if self._among is None else self._among[asked.row]
        terms = _Products(self._tiles, self._auditor.rows.take(row), np.abs(asked.initial))
        for piece in self._weighted.sent(""):
            terms.add(SentPiece("", piece.start, piece.rows, abs(piece.weights)))
        near = ROUNDING[self._tiles.dtype] * (np.abs(terms.sums[0]) + np.abs(expected))
        return bool((np.abs(asked.found - expected) <= near).all())


class _Left(NamedTuple):
    """A sum of a reply: its row, (1,), what it begins with, (1, …), and what was returned."""

    row: I8
    initial: F8
    found: F8
    exactly: bool


class _Products:
    """``initial + K(rows, weighted) @ weights``, to which pieces of the weighted rows are added."""

    def __init__(self, tiles: KernelTiles, rows: Rows, initial: F8) -> None:
        self._tiles, self._rows, self.sums = tiles, rows_at(rows), initial

    def add(self, piece: SentPiece) -> None:
        tiles, sparse = self._tiles, is_sparse(self._rows.rows)
        for low in range(0, piece.rows.shape[0], PARTNERS_AT_ONCE):
            part = slice(low, low + PARTNERS_AT_ONCE)
            partners = Partners(tiles.values, piece.rows[part], for_sparse_rows=sparse)
            weights = tiles.prepared(partners, piece.weights[part])
            tiles.multiply(self._rows, partners, weights, self.sums)


class _HalfProducts:
    """The same in the order of `KernelTiles.multiply_half`, at places of the weighted rows."""

    def __init__(self, tiles: KernelTiles, rows: Rows, places: I8, weights: Any) -> None:
        sparse = is_sparse(rows)
        self._halves = [
            Halves(tiles, SentPiece("", place, rows[[j]], weights[[place]]), is_sparse=sparse)
            for j, place in enumerate(places.tolist())
        ]

    def add(self, piece: SentPiece) -> None:
        for one in self._halves:
            one.add(piece)

    @property
    def sums(self) -> F8:
        return np.concatenate([one.sums for one in self._halves])


def _first(found: Any, expected: Any) -> str:
    """Show the first value that differs."""
    found, expected = np.ravel(found), np.ravel(expected)
    if len(found) != len(expected):
        return f"{len(found)} instead of {len(expected)} entries"
    at = int(np.argmax(~((found == expected) | (np.isnan(found) & np.isnan(expected)))))
    return f"{found[at]:.9g} instead of {expected[at]:.9g}"

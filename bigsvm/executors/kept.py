"""What a worker keeps up to a number of bytes: packed partners, and rows of units."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.allocator import give_back_freed_memory
from bigsvm.data.rows import RowsAt, bytes_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from bigsvm.arrays import I8
    from bigsvm.data.rows import Rows

FEW = 4
"""A unit that has to go leaves at most 1 / this of its rows: more would be much of the unit."""
SHARE_OF_FEW = 8
"""Such rows take 1 / this of what all may take at most, so that they leave room for units."""
FEWEST_BETWEEN = 4
"""Uses of other values between two uses of a value, at least: several tasks of a unit, done by some
threads, are one use."""


class Kept:
    """Values kept up to a number of bytes, by keys that begin with the name of a job.

    Parameters
    ----------
    in_cycles : bool
        Whether a job asks for its values in the same order again and again, as for units in each
        pass. Then the value used last goes first, as it is the last one to be asked for again: if
        the one used longest ago went, each would be gone before it is asked for. Values that are
        not in the cycle go before: those of other jobs, and those that were not used while another
        one was used three times. Otherwise the value used longest ago goes first.
    """

    def __init__(self, *, in_cycles: bool = False) -> None:
        self._in_cycles = in_cycles
        self._values: OrderedDict[Any, tuple[Any, int]] = OrderedDict()
        self._uses: dict[Any, tuple[int, int, int]] = {}
        self.nbytes = self._n_uses = 0
        self._lock, self._making = threading.Lock(), dict[Any, threading.Lock]()

    def get(self, key: Any, make: Callable[[], Any], limit: int) -> Any:
        """Return the value of a key, made once though several threads may ask."""
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            value = self.held(key)
            if value is None:
                value, size = make()
                self.put(key, value, size)
            with self._lock:
                self._making.pop(key, None)
        self.shrink(limit)
        return value

    def held(self, key: Any) -> Any:
        """Return the value of a key if it is kept."""
        with self._lock:
            held = self._values.get(key)
            if held is None:
                return None
            self._values.move_to_end(key)
            self._note_use(key)
            return held[0]

    def put(self, key: Any, value: Any, size: int) -> None:
        """Keep a value, instead of the one that its key has."""
        with self._lock:
            self.nbytes += size - self._values.pop(key, (None, 0))[1]
            self._values[key] = value, size
            self._note_use(key)

    def _note_use(self, key: Any) -> None:
        """Note the last three uses of a key; those by several tasks of a unit are one use."""
        if not self._in_cycles:
            return
        _, before, last = self._uses.get(key, (-1, -1, -1))
        if last < 0 or self._n_uses - last >= FEWEST_BETWEEN:
            self._n_uses += 1
            self._uses[key] = before, last, self._n_uses

    def shrink(self, limit: int) -> None:
        """Drop values until the others take at most `limit` bytes; the one used last stays."""
        dropped = []
        with self._lock:
            while self.nbytes > limit and len(self._values) > 1:
                key = self._next_to_go()
                value, size = self._values.pop(key)
                self.nbytes -= size
                dropped.append((key, value))
        if dropped:
            self._have_gone(dropped)
            del dropped
            give_back_freed_memory()

    def _have_gone(self, dropped: list[tuple[Any, Any]]) -> None:
        """Take leave of keys and values that were dropped."""

    def _next_to_go(self) -> Any:
        """Return the key of the value that is dropped first; not the one used last."""
        oldest = next(iter(self._values))
        if not self._in_cycles:
            return oldest
        newest = reversed(self._values)
        last = next(newest)
        is_skipped = self._uses[last][0] > self._uses[oldest][-1]
        return oldest if is_skipped or oldest[0] != last[0] else next(newest)

    def drop(self, is_dropped: Callable[[Any], bool]) -> None:
        """Drop the values of some keys."""
        with self._lock:
            for key in [key for key in self._values if is_dropped(key)]:
                self.nbytes -= self._values.pop(key)[1]
            self._uses = {key: uses for key, uses in self._uses.items() if not is_dropped(key)}


class KeptUnits(Kept):
    """Units of rows by keys; of one that has to go, the few rows that were listed stay.

    Rows of working sets and support vectors are asked for again, and are in all units.
    """

    def __init__(self) -> None:
        super().__init__(in_cycles=True)
        self._listed: dict[Any, NDArray[np.int32]] = {}
        self._few = Kept(in_cycles=True)

    def rows_of(self, key: Any, read: Callable[[], Rows], limit: int) -> Rows:
        """Return all rows of a unit, kept or read."""

        def make() -> tuple[Rows, int]:
            rows = read()
            self._few.drop(lambda other: other == key)
            return rows, bytes_of(rows)

        self._few.shrink(limit // SHARE_OF_FEW)
        rows: Rows = self.get(key, make, limit - self._few.nbytes)
        return rows

    def rows_at(self, key: Any, listed: I8, read: Callable[[], Rows], limit: int) -> RowsAt:
        """Return the rows at ascending places of a unit; it is read if they are not kept."""
        rows = self.held(key)
        if rows is None and (few := self._few.held(key)) is not None:
            at = np.minimum(np.searchsorted(few.places, listed), len(few.places) - 1)
            if np.array_equal(few.places[at], listed):
                return RowsAt(few.rows, at)
        rows = self.rows_of(key, read, limit)
        self._note(key, listed, int(rows.shape[0]) // FEW)
        return RowsAt(rows, listed)

    def drop(self, is_dropped: Callable[[Any], bool]) -> None:
        """Drop some units, and what was listed of them."""
        super().drop(is_dropped)
        self._few.drop(is_dropped)
        with self._lock:
            self._listed = {k: v for k, v in self._listed.items() if not is_dropped(k)}

    def _note(self, key: Any, listed: I8, most: int) -> None:
        """Note which rows of a unit were listed: all so far, or the last ones, if they are few."""
        with self._lock:
            places = listed.astype(np.int32)
            if key in self._listed:
                both = np.union1d(self._listed[key], places)
                places = both if len(both) <= most else places
            if 0 < len(places) <= most:
                self._listed[key] = places

    def _have_gone(self, dropped: list[tuple[Any, Any]]) -> None:
        for key, rows in dropped:
            places = self._listed.get(key)
            if places is not None:
                few = _Few(places, rows[places])
                self._few.put(key, few, places.nbytes + bytes_of(few.rows))


class _Few(NamedTuple):
    """Some rows of a unit, at ascending places of it."""

    places: NDArray[np.int32]
    rows: Rows

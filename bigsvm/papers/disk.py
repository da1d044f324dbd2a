"""Kernel rows on disk: a tier between the memory tier and the computation of rows.

An error of the disk does not end a run: it is logged, and rows are computed.
"""

from __future__ import annotations

import logging
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np

from bigsvm.gram.row_cache import RowTier
from bigsvm.papers.costs import OF_TILES, TierDecision, decide, kept_earlier, not_kept
from bigsvm.papers.row_file import RowFile, file_path

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from bigsvm.arrays import F4, I8

logger = logging.getLogger(__name__)

ADMITTED = 0.25
"""Chance that a row offered to a full file looks for a slot; see `DiskRows`."""
LONGEST_QUEUE = 64
"""Most rows that wait to be written."""
MOST_WARNINGS = 5
"""Most warnings of damaged rows in a run, as a file that was overwritten has some in each batch."""


class DiskRows(RowTier):
    """The disk tier: rows that memory gives up are kept in a file and read back.

    The tier above offers rows that it gives up and, at the end, the rows that it holds. Rows that
    are not on disk yet are copied to a queue, and a thread writes them. If the queue is full, a row
    is dropped, as waiting would take longer than computing it again. `fetch` reads rows in another
    thread while the tier below computes the missing ones. `fetch` and `offer` must be called from
    one thread only.

    While the file has free slots it takes every row. Once it is full, a row offered gets in with a
    chance of 1/4, in place of a random row that was not read since it was last chosen (second
    chance). The least recently used row would be the wrong one to give up: rows are needed in
    cycles, so the oldest row is needed next. The seed is for this choice; no result depends on it.

    `below` is None if the tier is put `over` it later. The file is a `RowFile`. If the decision is
    to keep no rows, no file is made, and all rows are fetched from the tier below. `queue_bytes` is
    memory for rows that wait to be written, at least one row and at most 64.

    Attributes
    ----------
    decision : TierDecision
        As given, or that no rows are kept, as the disk has failed.
    n_hits, n_misses : int
        Rows fetched from the disk or its queue, and from the tier below.
    n_damaged : int
        Rows on disk that were damaged, and slots without a valid variable.
    n_dropped : int
        Rows dropped because the queue was full.
    """

    def __init__(
        self,
        below: RowTier | None,
        folder: str | os.PathLike[str],
        *,
        n_variables: int,
        capacity_bytes: int,
        fingerprint: Mapping[str, str] | str,
        decision: TierDecision,
        queue_bytes: int = 64 << 20,
        seed: int = 0,
    ) -> None:
        if below is not None:
            self._below = below
        self._n = n_variables
        self._file: RowFile | None = None
        self.n_hits = self.n_misses = self.n_damaged = self.n_dropped = 0
        self.bytes_read = self.bytes_written = self._n_warnings = 0
        self.decision = decision
        if not decision.keep:
            return
        self._lock = threading.Lock()
        self._random = random.Random(seed)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="bigsvm-disk-read")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="bigsvm-disk-write")
        try:
            make_file = partial(
                RowFile, Path(folder), fingerprint,
                n_variables=n_variables, capacity_bytes=capacity_bytes,
            )  # fmt: skip
            self._open(make_file, queue_bytes)
        except BaseException:
            self.close()
            raise

    def _open(self, make_file: Callable[[], RowFile], queue_bytes: int) -> None:
        n_buffers = min(max(queue_bytes // (4 * self._n), 1), LONGEST_QUEUE)
        self._buffers = np.empty((n_buffers, self._n), np.float32)
        self._slots = np.full(self._n, -1, np.int32)
        try:
            self._take_stock(make_file())
        except OSError as error:
            self.decision = not_kept(error)
            self._leave()

    def _take_stock(self, file: RowFile) -> None:
        """Take the file over: find out which rows are in it, and prepare the queue."""
        self._file = file
        owners = file.owners()
        named, first = np.unique(owners, return_index=True)
        first = first[(named >= 0) & (named < self._n)]
        n_used = int(np.count_nonzero(owners != -1))
        self._slots[owners[first]] = first
        self._owner = np.full(file.n_slots, -1, np.int32)
        self._owner[first] = owners[first]
        self._used = np.zeros(file.n_slots, np.bool_)
        self._n_begun = int(first.max(initial=-1)) + 1
        self._holes = np.flatnonzero(self._owner[: self._n_begun] < 0).tolist()
        if n_used > len(first):
            self.n_damaged += n_used - len(first)
            logger.warning("%s: %d slots are damaged", file.path, n_used - len(first))
        self._idle = list(range(len(self._buffers)))
        self._pending: dict[int, int] = {}
        self._writing = True

    @property
    def nbytes(self) -> int:
        """Bytes of memory: the queue, and the records of variables and slots."""
        if self._file is None:
            return 0
        arrays = (self._slots, self._owner, self._used, self._file.digests, self._buffers)
        return sum(array.nbytes for array in arrays)

    @property
    def n_held(self) -> int:
        """Number of rows on disk or in the queue."""
        return 0 if self._file is None else int(np.count_nonzero(self._slots >= 0))

    @property
    def has_earlier_rows(self) -> bool:
        """Whether the file existed before."""
        return self._file is not None and not self._file.is_new

    def over(self, below: RowTier) -> DiskRows:
        """Put the tier above another one."""
        self._below = below
        return self

    def _leave(self) -> None:
        """Release file and memory; a file that had no rows before is removed."""
        if self._file is not None:
            self._file.close(remove=self._file.is_new)
            self._file = None
        self._buffers, self._slots = self._buffers[:0].copy(), self._slots[:0].copy()

    def close(self) -> None:
        """Write the queue and close the file; from then on all rows come from the tier below."""
        file, self._file = self._file, None
        if file is not None:
            self._reader.shutdown()
            # The writing thread closes the file after the queue. If this thread closed it, rows
            # still in the queue could be written to another file with the same descriptor.
            self._writer.submit(file.close)
            self._writer.shutdown()
            if self._n_warnings > MOST_WARNINGS:
                logger.warning(
                    "%s: %d rows or slots were damaged in all", file.path, self.n_damaged
                )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def drain(self) -> None:
        """Wait until the queue is empty."""
        if self._file is not None:
            self._writer.submit(int).result()

    def fetch(self, variables: I8, rows: F4, slots: I8) -> None:
        """Write the rows of `variables` (q,) to ``rows[slots]``; rows is (n_slots, ≥ n)."""
        file = self._file
        held = np.zeros(0, np.bool_) if file is None else self._slots[variables] >= 0
        if file is None or not held.any():
            self._below.fetch(variables, rows, slots)
            self.n_misses += len(variables)
            return
        kept, missing = variables[held], variables[~held]
        if len(missing) == 0:
            unread = self._read(file, kept, rows, slots)
        else:
            reading = self._reader.submit(self._read, file, kept, rows, slots[held])
            try:
                self._below.fetch(missing, rows, slots[~held])
            finally:
                unread = reading.result()  # only then the caller may use `rows`
        for i in np.flatnonzero(held)[unread].tolist():
            self._below.fetch(variables[i : i + 1], rows, slots[i : i + 1])
        self.n_misses += len(missing) + len(unread)
        self.n_hits += len(kept) - len(unread)

    def _read(self, file: RowFile, variables: I8, rows: F4, slots: I8) -> list[int]:
        """Read the rows of `variables`; return the places of those that could not be read."""
        in_file = self._slots[variables]
        for slot in in_file[in_file >= 0].tolist():
            file.prefetch(slot)
        unread, n_damaged = [], self.n_damaged
        for i, (variable, slot) in enumerate(zip(variables.tolist(), slots.tolist(), strict=True)):
            if not self._read_row(file, variable, rows[slot, : self._n]):
                unread.append(i)
        if self.n_damaged > n_damaged:
            self._n_warnings += 1
            if self._n_warnings <= MOST_WARNINGS:
                damaged = ", ".join(str(variables[i]) for i in unread)
                logger.warning("%s: damaged, so computed again: rows %s", file.path, damaged)
        return unread

    def _read_row(self, file: RowFile, variable: int, out: F4) -> bool:
        with self._lock:
            slot = int(self._slots[variable])
            if slot < 0:
                return False  # the disk has failed meanwhile
            self._used[slot] = True
            buffer = self._pending.get(variable)
            if buffer is not None:
                out[:] = self._buffers[buffer]
                return True
        try:
            if file.read(slot, variable, out):
                self.bytes_read += file.row_bytes
                return True
            self.n_damaged += 1
            self._forget(variable, slot)
        except OSError as error:
            # Nothing is read or written any more, as each further error could take a long time.
            logger.warning("%s: %s; kernel rows are computed from now on", file.path, error)
            with self._lock:
                self._writing = False
                self._slots.fill(-1)
        return False

    def _forget(self, variable: int, slot: int) -> None:
        with self._lock:
            if self._slots[variable] == slot:
                self._slots[variable] = self._owner[slot] = -1
                self._holes.append(slot)

    def offer(self, variables: I8, rows: F4, slots: I8) -> None:
        """Copy ``rows[slots]`` that are not on disk to the queue, until it is full."""
        file = self._file
        if file is None:
            return
        for variable, place in zip(variables.tolist(), slots.tolist(), strict=True):
            if not self._writing:
                return
            if self._slots[variable] >= 0:
                continue
            if not self._idle:
                self.n_dropped += 1
                continue
            if (slot := self._free_slot()) < 0 and (slot := self._given_up_slot()) < 0:
                continue
            buffer = self._idle.pop()
            self._buffers[buffer] = rows[place, : self._n]
            with self._lock:
                self._slots[variable], self._owner[slot] = slot, variable
                self._used[slot] = False
                self._pending[variable] = buffer
            self._writer.submit(self._write, file, variable, slot, buffer)

    def _free_slot(self) -> int:
        """Take a free slot; −1 if there is none."""
        if self._holes:
            return self._holes.pop()
        self._n_begun += 1
        if self._n_begun <= len(self._owner):
            return self._n_begun - 1
        self._n_begun = len(self._owner)
        return -1

    def _given_up_slot(self) -> int:
        """Take the slot of a random row that was not read lately; −1 if no row is given up."""
        slot = self._random.randrange(len(self._owner))
        if self._random.random() >= ADMITTED:
            return -1
        with self._lock:
            owner = self._owner[slot]
            if owner < 0 or self._used[slot]:
                self._used[slot] = False
                return -1
            self._slots[owner] = -1
        return slot

    def _write(self, file: RowFile, variable: int, slot: int, buffer: int) -> None:
        """In the writing thread: write a row, or forget it if the disk fails."""
        written = False
        try:
            if self._writing:
                file.write(slot, variable, self._buffers[buffer])
                written = True
                self.bytes_written += file.row_bytes
        except OSError as error:
            self._writing = False
            logger.warning("%s: %s; no more rows are written", file.path, error)
        finally:
            if not written:
                self._forget(variable, slot)
            with self._lock:
                if self._pending.get(variable) == buffer:
                    del self._pending[variable]
            self._idle.append(buffer)


class DiskCache(NamedTuple):
    """The disk tiers of a run: where kernel rows are kept, and how many bytes of them.

    The fingerprint is what the rows depend on: data and kernel, not C or labels. `value_seconds` is
    the time to compute a kernel value in a large tile, by all threads.
    """

    folder: Path
    capacity_bytes: int
    fingerprint: Mapping[str, str]
    value_seconds: float

    def opened(self, n_variables: int, *, is_kept: bool = False) -> DiskRows:
        """Open a tier, which is put `over` another one before it is used.

        Rows are kept where they cost more to compute than to read, where some are on disk, and
        where the run has kept them so far.
        """
        fingerprint = self.fingerprint
        if is_kept or file_path(self.folder, fingerprint, n_variables=n_variables).exists():
            decision = kept_earlier()
        else:
            decision = decide(
                compute_seconds=OF_TILES * self.value_seconds * n_variables,
                row_bytes=4 * n_variables,
            )
        return DiskRows(
            None,
            self.folder,
            n_variables=n_variables,
            capacity_bytes=self.capacity_bytes,
            fingerprint=fingerprint,
            decision=decision,
        )

"""Kernel rows on disk: a tier between the memory tier and the computation of rows.

No error of the disk is an error of the run: it is logged, and rows are computed.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from bigsvm.gram.costs import (
    PROBE_BATCH,
    PROBE_BATCHES,
    PROBE_BYTES,
    WORTH_KEEPING,
    TierDecision,
    decide,
    least_read_seconds,
    not_kept,
    time_computing,
)
from bigsvm.gram.row_file import RowFile, file_path

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from bigsvm.arrays import F4, I8
    from bigsvm.gram.row_cache import RowTier

logger = logging.getLogger(__name__)

ADMITTED = 0.25
"""Chance of a row offered to a full file to look for a slot; see `DiskRows`."""
LONGEST_QUEUE = 64
MOST_WARNINGS = 5
"""Of damaged rows, in a run: a file that was overwritten has one in every batch."""


class DiskRows:
    """The disk tier: rows that memory gives up are kept in a file and read back.

    A row is written when it is offered and not yet there: the tier above offers what it evicts and
    may, at the end, offer what it holds, in parts with `drain` between them. `offer` copies rows
    into a queue that a thread writes; with a full queue a row is dropped, as waiting would cost
    more than computing it again. `fetch` reads in another thread while the tier below computes what
    is missing, in one batch. Fetch and offer from one thread only.

    While the file has room it takes every row. Once full, a row offered gets in with a chance of
    1/4, in place of a random row that was not read since it was last looked at (second chance). The
    least recently used row would be the wrong one to give up: rows are asked for in cycles, and the
    oldest is the one needed next. Hit rates, simulated (300 slots) and the same in a file (100):

        variables in turn / slots        1.01   1.1   1.5     2     4
        least recently used goes         0      0     0       0     0
        a random row goes                0.98   0.83  0.43    0.20  0.02
        this rule                        0.99   0.91  0.66    0.49  0.21
        the best there is                0.99   0.91  0.67    0.50  0.25

    Of rows drawn at random by Zipf's law it hits 0.80 (least recently used: 0.79), and after a move
    to other variables half of the new rows are in after 10 cycles.

    Parameters
    ----------
    below : RowTier
        Brings the rows that are not on disk.
    folder : path
        Where the file is; made if absent. A local disk, as locks are not reliable elsewhere.
    n_variables : int
        Rows there are, n ≥ 1; each is n float32 long.
    capacity_bytes : int
        Most bytes of the file, all in all.
    fingerprint : mapping of str to str, or str
        What the rows are valid for: data, kernel, dtype, variables; not C, not labels.
    decision : TierDecision, optional
        Whether to keep rows. Measured here if not given, with at most 37 rows that are computed
        for it and stay in the file; without `keep` the tier hands everything on. Rows so cheap that
        no disk is fast enough for them make no file.
    queue_bytes : int
        Memory for rows that wait to be written, at least one row and at most 64 of them. Rows are
        also measured in it: with fewer than 12 computing looks more expensive than it is.
    seed : int
        Of the choice of rows to give up, which changes no value.

    Attributes
    ----------
    decision : TierDecision
    n_hits, n_misses : int
        Rows fetched that came from the disk or its queue, and from below.
    n_damaged : int
        Rows on disk that were not as written, and slots that named no variable.
    n_dropped : int
        Rows offered while the queue was full.
    bytes_read, bytes_written : int
    """

    def __init__(
        self,
        below: RowTier,
        folder: str | os.PathLike[str],
        *,
        n_variables: int,
        capacity_bytes: int,
        fingerprint: Mapping[str, str] | str,
        decision: TierDecision | None = None,
        queue_bytes: int = 64 << 20,
        seed: int = 0,
    ) -> None:
        self._below = below
        self._n = n_variables
        self._file: RowFile | None = None
        self.n_hits = self.n_misses = self.n_damaged = self.n_dropped = 0
        self.bytes_read = self.bytes_written = self._n_warnings = 0
        if decision is not None and not decision.keep:
            self.decision = decision
            return
        self._lock = threading.Lock()
        self._random = random.Random(seed)
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="bigsvm-disk-read")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="bigsvm-disk-write")
        try:
            self.decision = self._open(
                Path(folder), fingerprint, capacity_bytes, queue_bytes, decision
            )
        except BaseException:
            self.close()
            raise
        if not self.decision.keep:
            self._leave()

    def _open(
        self,
        folder: Path,
        fingerprint: Mapping[str, str] | str,
        capacity_bytes: int,
        queue_bytes: int,
        decision: TierDecision | None,
    ) -> TierDecision:
        n_buffers = min(max(queue_bytes // (4 * self._n), 1), LONGEST_QUEUE)
        self._buffers = np.empty((n_buffers, self._n), np.float32)
        self._slots = np.full(self._n, -1, np.int32)
        begin = partial(
            RowFile, folder, fingerprint, n_variables=self._n, capacity_bytes=capacity_bytes
        )
        file = None
        try:
            if decision is not None:
                self._take_stock(begin())
                return decision
            # What is there says which rows need not be computed again to be measured.
            if file_path(folder, fingerprint, n_variables=self._n).exists():
                file = self._take_stock(begin())
        except OSError as error:
            return not_kept(error)
        computed, seconds = self._time_computing()
        least = least_read_seconds(4 * self._n)
        at_best = decide(
            compute_seconds=seconds, read_seconds=least, write_seconds=math.nan, at_least=True
        )
        if not at_best.keep:
            return at_best
        try:
            file = self._take_stock(begin()) if file is None else file
            write, read = self._time_disk(file, computed)
        except OSError as error:
            return not_kept(error)
        return decide(compute_seconds=seconds, read_seconds=read, write_seconds=write)

    def _take_stock(self, file: RowFile) -> RowFile:
        """Own the file; find out which rows are in it; ready the queue."""
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
        return file

    def _time_computing(self) -> tuple[I8, float]:
        """Compute rows that are not on disk: those of them to be written; seconds per row."""
        n_few = max(PROBE_BYTES // (4 * self._n), 1)
        n_rows = min(max(n_few, PROBE_BATCH), PROBE_BATCH * PROBE_BATCHES, len(self._buffers))
        variables = np.flatnonzero(self._slots < 0)[:n_rows]
        if len(variables) == 0:
            variables = np.arange(min(n_rows, self._n))
        quick = WORTH_KEEPING * least_read_seconds(4 * self._n)
        n_computed, seconds = time_computing(self._below, variables, self._buffers, quick=quick)
        return variables[: min(n_computed, n_few)], seconds

    def _time_disk(self, file: RowFile, variables: I8) -> tuple[float, float]:
        """Write the rows just computed, read them back; seconds per row of either."""
        begun = time.perf_counter()
        written = []
        for variable, row in zip(variables.tolist(), self._buffers, strict=False):
            if self._slots[variable] < 0 and (slot := self._free_slot()) >= 0:
                file.write(slot, variable, row)
                self._slots[variable], self._owner[slot] = slot, variable
                self.bytes_written += file.row_bytes
                written.append(variable)
        file.push_out()
        write = (time.perf_counter() - begun) / len(written) if written else math.nan
        held = np.array(written or np.flatnonzero(self._slots >= 0)[: len(variables)])
        read = math.inf
        for part in np.array_split(held, min(PROBE_BATCHES, len(held))):
            begun = time.perf_counter()
            self._read(file, part, self._buffers, np.arange(len(part)))
            read = min(read, (time.perf_counter() - begun) / len(part))
        if not self._writing:
            raise OSError("what was written cannot be read")
        return write, read

    @property
    def nbytes(self) -> int:
        """Bytes of memory: what waits to be written, and what is known of variables and slots."""
        if self._file is None:
            return 0
        known = (self._slots, self._owner, self._used, self._file.digests, self._buffers)
        return sum(array.nbytes for array in known)

    @property
    def n_held(self) -> int:
        """Rows on disk or on their way."""
        return 0 if self._file is None else int(np.count_nonzero(self._slots >= 0))

    @property
    def has_earlier_rows(self) -> bool:
        """Whether the file was there before."""
        return self._file is not None and not self._file.is_new

    def _leave(self) -> None:
        """Do without file and memory; a file that had no rows before is removed."""
        if self._file is not None:
            self._file.close(remove=self._file.is_new)
            self._file = None
        self._buffers, self._slots = self._buffers[:0].copy(), self._slots[:0].copy()

    def close(self) -> None:
        """Write what is queued and give the file up; from then on rows come from below."""
        file, self._file = self._file, None
        if file is not None:
            self._reader.shutdown()
            # By the thread that writes: were this one interrupted here and the file closed, the
            # rest of the queue would go to whatever is opened next.
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
        """Wait until the queue is empty, so that as many rows may be offered again."""
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
                unread = reading.result()  # `rows` are the caller's again only then
        for i in np.flatnonzero(held)[unread].tolist():
            self._below.fetch(variables[i : i + 1], rows, slots[i : i + 1])
        self.n_misses += len(missing) + len(unread)
        self.n_hits += len(kept) - len(unread)

    def _read(self, file: RowFile, variables: I8, rows: F4, slots: I8) -> list[int]:
        """Read the rows of `variables`, and list the places of those that cannot be."""
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
                return False  # since it was looked for, the disk has failed
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
            # Nothing is read or written any more: a disk that fails takes its time to fail again.
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
        """Copy ``rows[slots]`` that are not on disk to the queue, as far as there is room."""
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
        """Take a slot that holds nothing; −1 where there is none."""
        if self._holes:
            return self._holes.pop()
        self._n_begun += 1
        if self._n_begun <= len(self._owner):
            return self._n_begun - 1
        self._n_begun = len(self._owner)
        return -1

    def _given_up_slot(self) -> int:
        """Take the slot of a row that is worth less than a new one; −1 where chance is against."""
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
        """In the writing thread: write a row; without a disk that takes it, forget it."""
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


class DiskCache:
    """The disk's part of the kernel row cache of a run.

    Parameters
    ----------
    folder : str
    capacity_bytes : int
    fingerprint : mapping of str to str
        Of what the rows depend on: data and kernel, not C and not the labels.
    """

    def __init__(self, folder: str, *, capacity_bytes: int, fingerprint: Mapping[str, str]) -> None:
        self._folder, self._capacity = folder, capacity_bytes
        self._fingerprint = dict(fingerprint)
        self._decision: TierDecision | None = None

    def above(self, below: RowTier, *, n_variables: int) -> DiskRows:
        """Put the disk tier above another one; whether it keeps rows is measured the first time."""
        tier = DiskRows(
            below,
            self._folder,
            n_variables=n_variables,
            capacity_bytes=self._capacity,
            fingerprint=self._fingerprint,
            decision=self._decision,
        )
        self._decision = tier.decision
        return tier

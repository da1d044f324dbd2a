"""PairLog: the state of each pair of classes, in memory and in a file that only grows.

    DIR/pairs.log            the finished pairs, one entry after the other: bytes of the body, its
                             xxh3 with the seed of the run, the body: a record, rows, coefficients
    DIR/generation-00000007  the pairs in progress, and sums over all

A kill can leave half an entry at the end, which its hash tells; all entries before it are whole.
The hash also tells entries of another run, of which none is read. A generation is written after
the entries of all pairs that finished before it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse as sp

from bigsvm.budget import show_bytes
from bigsvm.errors import CheckpointError, MemoryBudgetError
from bigsvm.files import open_own, open_regular, sync_directory
from bigsvm.one_vs_one.entries import (
    COUNTS,
    HEAD,
    REASONS,
    RECORD,
    VALUES,
    LogEntry,
    bodies,
    head_of,
    read_entry,
    sizes_of_entries,
)
from bigsvm.one_vs_one.saved import PairsContent, divided
from bigsvm.training.checkpoint import Generation
from bigsvm.training.result import PHASES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from bigsvm.arrays import F8, I8
    from bigsvm.data.row_source import RowSource
    from bigsvm.training.checkpoint import Checkpoint, Content
    from bigsvm.training.result import Certificate, StopReason

logger = logging.getLogger(__name__)

NAME = "pairs.log"
NONE = -1
"""Number of a slot's pair where it has none."""
UNKNOWN = ("objective", "gap", "duality_gap", "drift", "rho")
"""Values that a pair does not have before it is begun."""
BYTES_PER_COEFFICIENT = 32
"""Bytes in memory: 18 for row and value in arrays that grow, and 12 while pairs are joined."""


class Solved(NamedTuple):
    """One pair, trained as far as it got.

    Its support vectors among all rows, (p,) ascending, have coefficients, (p,), that are positive
    where a row pulls towards the second class. rho is NaN where the formulation has none.
    """

    rows: NDArray[np.integer]
    coefficients: F8
    intercept: float
    rho: float
    certificate: Certificate

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.rows.nbytes + self.coefficients.nbytes


def parts_of(number: int, solved: Solved) -> tuple[Any, bytes, bytes]:
    """Return what the entry of a pair is made of: record, rows and coefficients."""
    certificate, record = solved.certificate, np.zeros(1, RECORD)
    record["pair"], record["reason"] = number, REASONS.index(certificate.stop_reason)
    for name in COUNTS:
        record[name] = getattr(certificate, name)
    for name in VALUES:
        value = getattr(certificate, name)
        record[name] = np.nan if value is None else value
    for name in PHASES:
        record[name] = certificate.seconds_by_phase[name]
    record["n_support"] = len(solved.rows)
    record["intercept"], record["rho"] = solved.intercept, solved.rho
    rows, values = solved.rows.astype("<i8"), solved.coefficients.astype("<f8")
    return record[0], rows.tobytes(), values.tobytes()


class EntryCheck(Protocol):
    """Checks entries of the log against their problems.

    `recomputed` are the pairs whose outputs are computed again, as `choose` has decided.
    """

    recomputed: set[int]

    def choose(self, pairs: I8, n_support: I8) -> None:
        """Choose the pairs whose outputs are computed again; (m,) support vectors each."""

    def fault_of(self, entry: LogEntry) -> str:
        """Return what is wrong with an entry; an empty string if it solves its pair."""


class PairLog:
    """The results of the pairs so far.

    The checkpoint keeps finished pairs and those in progress; what it holds already is read.
    Without a check, entries are checked by themselves only, not against their problems. Any method
    raises MemoryBudgetError if the coefficients take more than `most_bytes`.

    Attributes
    ----------
    records : (n_pairs,) RECORD
    is_saved : bool
        Whether nothing has finished since the last time it was saved.
    n_not_recomputed : int
        Pairs that an earlier process finished, and whose outputs were not computed again.
    """

    def __init__(
        self,
        checkpoint: Checkpoint | None,
        n_pairs: int,
        source: RowSource,
        *,
        most_bytes: float,
        check: EntryCheck | None = None,
    ) -> None:
        self.records = np.zeros(n_pairs, RECORD)
        self.records["pair"], self.records["reason"] = np.arange(n_pairs), -1
        for name in UNKNOWN:
            self.records[name] = np.nan
        self.n_finished, self.n_not_recomputed, self._most_bytes = 0, 0, most_bytes
        self._totals = dict.fromkeys(COUNTS, 0)
        self._phases = dict.fromkeys(PHASES, 0.0)
        # Arrays that grow: two of NumPy's for each of half a million pairs would take more.
        self._order, self._rows, self._values = array("q"), array("q"), array("d")
        self._checkpoint, self._pending = checkpoint, bytearray()
        content = PairsContent(n_pairs, source.n_rows)
        saved = checkpoint.latest(content) if checkpoint else None
        self._before = saved.values if saved else {"seconds": 0.0, "bytes_read": 0}
        self._open = divided(saved.arrays, saved.values) if saved else {}
        self._source, self._began = source, time.monotonic()
        self._lock, self.is_saved = threading.RLock(), False
        if checkpoint:
            self._path, self._length = checkpoint.directory / NAME, 0
            self._seed = checkpoint.seed
            try:
                self._read(check, is_new=saved is None)
            except OSError as error:
                raise CheckpointError(f"cannot go on with {self._path}: {error}") from error

    # -- what is known ---------------------------------------------------------------------------

    @property
    def seconds(self) -> float:
        """Seconds of training so far, with those of earlier processes."""
        return float(self._before["seconds"]) + time.monotonic() - self._began

    @property
    def bytes_read(self) -> int:
        """Bytes of rows read so far, by earlier processes too."""
        return int(self._before["bytes_read"]) + self._source.bytes_read

    @property
    def in_progress(self) -> tuple[int, ...]:
        """Pairs with a saved state, from which their training continues."""
        return tuple(self._open)

    def total(self, name: str) -> int:
        """One of `COUNTS` over all pairs."""
        return self._totals[name]

    def seconds_by_phase(self) -> dict[str, float]:
        """Add the phases of all pairs; time outside pairs goes to the rest."""
        outside = max(0.0, self.seconds - sum(self._phases.values()))
        return {**self._phases, "rest": self._phases["rest"] + outside}

    def reasons(self) -> dict[StopReason, int]:
        """Count the pairs by why they stopped; those never begun are in none."""
        reasons = self.records["reason"]
        counts = np.bincount(reasons[reasons >= 0], minlength=len(REASONS)).tolist()
        return {reason: n for reason, n in zip(REASONS, counts, strict=True) if n}

    def coefficients(self, n_rows: int) -> tuple[I8, sp.csr_array]:
        """Join the pairs: their support vectors, (p,) ascending, and (p, n_pairs) coefficients."""
        order = np.frombuffer(self._order, np.int64) if self._order else np.empty(0, np.int64)
        ends = np.concatenate([[0], np.cumsum(self.records["n_support"][order])])
        rows = np.array(self._rows, np.int32 if n_rows <= np.iinfo(np.int32).max else np.int64)
        values = np.array(self._values)
        self._rows, self._values, self._order = array("q"), array("d"), array("q")
        by_pair = sp.csc_array((values, rows, ends), shape=(n_rows, len(order)))
        joined = by_pair.tocsr()
        support = np.flatnonzero(np.diff(joined.indptr))
        indptr = np.append(joined.indptr[support], joined.indptr[-1])
        columns = order[joined.indices].astype(joined.indices.dtype)
        shape = (len(support), len(self.records))
        coefficients = sp.csr_array((joined.data, columns, indptr), shape=shape)
        coefficients.sort_indices()
        return support, coefficients

    # -- what happens ----------------------------------------------------------------------------

    def latest(self, number: int) -> Generation | None:
        """Return the saved state of a pair; None if it has none."""
        return self._open.get(number)

    def forget(self, number: int) -> None:
        """Drop the saved state of a pair."""
        with self._lock:
            self._open.pop(number, None)

    def finish(self, number: int, solved: Solved) -> None:
        """Add the result of a pair that is finished."""
        with self._lock:
            body = self._take_in(number, solved)
            if self._checkpoint:
                self._pending += head_of(body, self._seed) + body
            self.n_finished += 1
            self._open.pop(number, None)
            self.is_saved = False

    def leave(self, number: int, solved: Solved) -> None:
        """Add the result of an unfinished pair, whose state has been saved."""
        with self._lock:
            self._take_in(number, solved)

    def save(
        self, number: int = NONE, state: Generation | None = None, *, keeps: bool = True
    ) -> int:
        """Write what has finished since the last time, and the pairs in progress.

        `state` is that of the pair `number`; the other pairs keep the state that was saved last.
        `keeps` says whether later calls write it again, until the pair is saved again. If the disk
        is full or fails, what was written before is untouched.
        """
        if self._checkpoint is None:
            return 0
        with self._lock:
            try:
                self._append()
            except OSError as error:
                raise self._checkpoint.not_saved(error) from error
            if state is not None:
                self._open[number] = state
            try:
                generation = self._checkpoint.save(*self._generation())
            finally:
                if not keeps:
                    self._open.pop(number, None)
            self.is_saved = True
            return generation

    # -- in between ------------------------------------------------------------------------------

    def _generation(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Join the states of all pairs in progress: their arrays and values."""
        in_progress = [dict(state.values) for state in self._open.values()]
        counts = {
            name: self.total(name) + sum(int(values.get(name, 0)) for values in in_progress)
            for name in COUNTS
        }
        gaps = (float(values.get("gap", 0.0)) for values in in_progress)
        about = {
            **counts,
            "phase": "pairs",
            "seconds": self.seconds,
            "bytes_read": self.bytes_read,
            "gap": max(float(np.nanmax(self.records["gap"], initial=0.0)), *gaps, 0.0),
            "objective": float(np.nansum(self.records["objective"])),
            "n_pairs": len(self.records),
            "n_finished": self.n_finished,
            "pairs": list(self._open),
            "of_pairs": in_progress,
        }
        arrays = {
            f"{number}.{name}": array
            for number, state in self._open.items()
            for name, array in state.arrays.items()
        }
        return arrays, about

    def _take_in(self, number: int, solved: Solved) -> bytes:
        """Keep a result in memory; return its bytes for the file."""
        self.records[number], rows, values = parts_of(number, solved)
        self._keep(number, rows, values)
        return bytes(self.records[number].tobytes() + rows + values)

    def _keep(self, number: int, rows: bytes, values: bytes) -> None:
        self._order.append(number)
        for name in COUNTS:
            self._totals[name] += int(self.records[number][name])
        for name in PHASES:
            self._phases[name] += float(self.records[number][name])
        self._rows.frombytes(rows)
        self._values.frombytes(values)
        if BYTES_PER_COEFFICIENT * len(self._values) > self._most_bytes:
            raise MemoryBudgetError(
                f"the {len(self._values)} coefficients of {len(self._order)} of "
                f"{len(self.records)} pairs take {show_bytes(self._most_bytes)}, which is their "
                "share of the memory; give more, and a saved run goes on with it"
            )

    def _read(self, check: EntryCheck | None, *, is_new: bool) -> None:
        """Read the entries of the file, up to half an entry that a kill has left."""
        if is_new:
            self._path.unlink(missing_ok=True)  # of a run that was killed before its first save
        if not os.path.lexists(self._path):
            return
        with open_regular(self._path, follow_links=False) as file:
            if check is not None:
                check.choose(*sizes_of_entries(file, n_pairs=len(self.records)))
                file.seek(0)
            for body in bodies(file, self._seed, most_rows=self._source.n_rows):
                try:
                    entry = self._believed(body, check)
                except ValueError as error:
                    logger.warning(
                        "%s: the entry after %d bytes is damaged, so the pairs from there on are "
                        "trained again: %s",
                        self._path, self._length, error,
                    )  # fmt: skip
                    return
                number = entry.number
                self.records[number] = entry.record
                self._keep(number, entry.rows.tobytes(), entry.coefficients.tobytes())
                self.n_finished += 1
                self.n_not_recomputed += check is None or number not in check.recomputed
                self._open.pop(number, None)  # the log may know more than the generation
                self._length += HEAD.itemsize + len(body)

    def _believed(self, body: bytes, check: EntryCheck | None) -> LogEntry:
        """Read an entry of this run; ValueError says why it cannot be one."""
        entry = read_entry(body, n_pairs=len(self.records), n_rows=self._source.n_rows)
        if self.records["reason"][entry.number] >= 0:
            raise ValueError(f"pair {entry.number} is there twice")
        if check is not None and (fault := check.fault_of(entry)):
            raise ValueError(fault)
        return entry

    def _append(self) -> None:
        if not self._pending:
            return
        is_new = not os.path.lexists(self._path)
        descriptor = open_own(self._path, os.O_WRONLY | os.O_CREAT)
        with os.fdopen(descriptor, "wb") as file:
            # Remove the part of an entry that a kill or a full disk has left.
            file.truncate(self._length)
            file.seek(self._length)
            file.write(self._pending)
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            sync_directory(self._path.parent)
        self._length += len(self._pending)
        self._pending.clear()


class Slot:
    """Saves pairs that are trained one after the other, one pair at a time.

    `copies` says whether states are copied, as they must be where several slots are used at once:
    the state of a pair is written again with the states of the others, while it changes.
    """

    def __init__(self, log: PairLog, *, copies: bool = False) -> None:
        self._log, self._copies = log, copies
        self._number = NONE

    def begin(self, number: int) -> None:
        """Save this pair from now on."""
        self._number = number

    def finish(self, solved: Solved) -> None:
        """Add the result of the pair that was begun last; it is finished."""
        self._log.finish(self._number, solved)
        self._number = NONE

    def leave(self, solved: Solved) -> None:
        """Add the result of the pair that was begun last; it is unfinished, and its state saved."""
        self._log.leave(self._number, solved)

    def latest(self, content: Content | None = None) -> Generation | None:
        """Read the state of the last pair that was begun; None if the pair must start again.

        If the state is invalid, the log says so, and the pair starts again.
        """
        saved = self._log.latest(self._number)
        if saved is None:
            return None
        try:
            if content is not None:
                content.check(saved.arrays, saved.values)
        except ValueError as error:
            logger.warning(
                "the saved state of pair %d is damaged, so the pair begins anew: %s",
                self._number, error,
            )  # fmt: skip
            self._log.forget(self._number)
            return None
        return self._copied(saved)

    def save(self, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> int:
        """Write the state of the pair in progress; without values, of the other slots alone."""
        if not values:
            return self._log.save()
        state = self._copied(Generation(0, dict(arrays), dict(values)))
        return self._log.save(self._number, state, keeps=self._copies)

    def _copied(self, state: Generation) -> Generation:
        """Copy a state that changes while it is being written."""
        if not self._copies:
            return state
        return state._replace(arrays={name: array.copy() for name, array in state.arrays.items()})

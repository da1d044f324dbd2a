"""Entries of the pair log: their format, and checks of what is read.

An entry is the size of its body in bytes, the xxh3 hash of the body with the seed of the run, and
the body: a record, the rows of the support vectors, and their coefficients.
"""

from __future__ import annotations

import os
from array import array
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import numpy as np
import xxhash

from bigsvm.training.result import PHASES, StopReason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bigsvm.arrays import F8, I8

REASONS = tuple(StopReason)
COUNTS = (
    "n_support", "n_bounded", "n_sweeps", "n_iter", "n_working_sets", "n_kernel_evaluations",
    "rows_swept", "row_misses", "row_reads",
)  # fmt: skip
"""Counts of a certificate, which are summed over the pairs."""
VALUES = ("tol", "objective", "gap", "duality_gap", "drift")
"""Values of a certificate, NaN if it has none."""
RECORD = np.dtype(
    [
        ("pair", "<i8"),
        ("reason", "<i8"),
        *((name, "<i8") for name in COUNTS),
        *((name, "<f8") for name in VALUES),
        *((name, "<f4") for name in PHASES),
        ("intercept", "<f8"),
        ("rho", "<f8"),
    ]
)
"""Record of a pair: its number in LIBSVM's order, the reason it stopped as an index of `REASONS`
(negative if it was never begun), its certificate with the seconds by
phase, its intercept, and the rho of nu-svc, else NaN."""
HEAD = np.dtype([("n_bytes", "<u8"), ("xxh3", "<u8")])
BYTES_PER_SUPPORT = 16
"""Bytes per support vector in the body: a row number and its coefficient."""
ENDS = (
    StopReason.CONVERGED, StopReason.STALLED, StopReason.SAMPLED, StopReason.CORE_FULL,
    StopReason.SETTLED, StopReason.USED_UP, StopReason.ENDLESS,
)  # fmt: skip
"""Stop reasons after which a pair is not trained again."""
MOST_COUNTED = 1 << 62


class LogEntry(NamedTuple):
    """A finished pair in the log: its RECORD, and its rows and their coefficients, (p,)."""

    record: np.void
    rows: I8
    coefficients: F8

    @property
    def number(self) -> int:
        """Number of the pair."""
        return int(self.record["pair"])


def read_entry(body: bytes, *, n_pairs: int, n_rows: int) -> LogEntry:
    """Read an entry, and check it even if its hash fits.

    ValueError says why it does not fit as many pairs and rows as there are.
    """
    n = (len(body) - RECORD.itemsize) // BYTES_PER_SUPPORT
    if n < 0 or len(body) != RECORD.itemsize + n * BYTES_PER_SUPPORT:
        raise ValueError(f"its length of {len(body)} bytes is none of an entry's")
    record = np.frombuffer(body, RECORD, 1)[0]
    rows = np.frombuffer(body, "<i8", n, RECORD.itemsize)
    coefficients = np.frombuffer(body, "<f8", n, RECORD.itemsize + 8 * n)
    if not 0 <= record["pair"] < n_pairs:
        raise ValueError(f"pair {record['pair']} is none of {n_pairs}")
    if not 0 <= record["reason"] < len(REASONS) or REASONS[record["reason"]] not in ENDS:
        raise ValueError("its pair has not ended")
    if record["n_support"] != n or any(not 0 <= record[name] <= MOST_COUNTED for name in COUNTS):
        raise ValueError("a count is negative, too large, or not that of its rows")
    if not all(0 <= record[name] <= MOST_COUNTED for name in PHASES):
        raise ValueError("the seconds of a phase are negative, too many, or no number")
    known = [record[name] for name in (*VALUES, "rho") if not np.isnan(record[name])]
    if not np.isfinite([*known, record["intercept"]]).all() or not record["tol"] > 0:
        raise ValueError("a value of the certificate is not finite, or tol is not above 0")
    has_converged = REASONS[record["reason"]] is StopReason.CONVERGED
    if has_converged and not 0 <= record["gap"] <= record["tol"]:
        raise ValueError(f"it is called converged with a gap of {record['gap']:g}")
    if n and not (rows[0] >= 0 and rows[-1] < n_rows and (rows[1:] > rows[:-1]).all()):
        raise ValueError("its rows are not ascending, or not all there")
    if not np.isfinite(coefficients).all():
        raise ValueError("a coefficient is not finite")
    return LogEntry(record, rows, coefficients)


def head_of(body: bytes, seed: int) -> bytes:
    """Return the head of a body."""
    return np.array([(len(body), xxhash.xxh3_64_intdigest(body, seed))], HEAD).tobytes()


def sizes_of_entries(file: BinaryIO, *, n_pairs: int) -> tuple[I8, I8]:
    """Numbers of pairs and of support vectors, as heads and records say, before any check.

    The list ends at the first entry that is cut off or names no pair.
    """
    end = os.fstat(file.fileno()).st_size
    pairs, n_support = array("q"), array("q")
    while len(head := file.read(HEAD.itemsize)) == HEAD.itemsize:
        n_bytes = int(np.frombuffer(head, HEAD)["n_bytes"][0])
        if not RECORD.itemsize <= n_bytes <= end - file.tell():
            break
        pair = int(np.frombuffer(file.read(RECORD.itemsize), RECORD)["pair"][0])
        if not 0 <= pair < n_pairs:
            break
        pairs.append(pair)
        n_support.append((n_bytes - RECORD.itemsize) // BYTES_PER_SUPPORT)
        file.seek(n_bytes - RECORD.itemsize, os.SEEK_CUR)
    return np.array(pairs, np.int64), np.array(n_support, np.int64)


def bodies(file: BinaryIO, seed: int, *, most_rows: int) -> Iterator[bytes]:
    """Yield the bodies of entries, up to the first that is damaged or has too many rows."""
    most = RECORD.itemsize + BYTES_PER_SUPPORT * most_rows
    while len(head := file.read(HEAD.itemsize)) == HEAD.itemsize:
        n_bytes = int(np.frombuffer(head, HEAD)["n_bytes"][0])
        is_there = n_bytes <= min(most, os.fstat(file.fileno()).st_size)
        body = file.read(n_bytes) if is_there else b""
        if head_of(body, seed) != head:
            return
        yield body

"""RowFile: one preallocated file of kernel rows, locked by its process.

Its name is the digest of what its rows depend on. Its layout:

    header     whole pages   a line of what this is, the digest of the text, the text (JSON: format,
                             dtype, n_variables, fingerprint), zeros
    group 0    table         one page: 256 entries (variable + 1, hash), little-endian uint64
               rows          256 slots of n_variables float32
    group 1    …             the last group ends with its last slot

The hash is xxh3 (64 bits) of the bytes of a row, seeded with its variable and the digest. It is
compared at every read, so a damaged row, a row of another variable and a row half written when the
process was killed are misses. Nothing else is trusted, so nothing needs to be synced. An entry of
zeros is a free slot. The place of a slot does not depend on the number of slots, so a file can be
used with another capacity; rows that do not fit are dropped. The file is read and written at
offsets and never mapped, as truncation of a mapped file or a full disk would end the process.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import struct
import sys
from typing import TYPE_CHECKING

import numpy as np
import xxhash

from bigsvm.files import try_lock

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bigsvm.arrays import F4, I8

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1
PAGE = 4096
ENTRY = struct.Struct("<QQ")
GROUP = PAGE // ENTRY.size
"""Slots per table."""


class RowFile:
    """Slots of rows at offsets in a file, owned by this process until closed.

    There are at most n_rows ≥ 1 rows, by default n, each of n values of float32. The folder is made
    if absent; it is on a local disk, as locks are not reliable elsewhere. The fingerprint is what
    the rows depend on: data, kernel, dtype and variables, not C or labels. The file `is_new` if it
    did not exist, or had no valid header.

    OSError is raised if the file cannot be made, is in use by another process, or does not fit the
    disk or the capacity.
    """

    def __init__(
        self,
        folder: Path,
        fingerprint: Mapping[str, str] | str,
        *,
        n_variables: int,
        capacity_bytes: int,
        n_rows: int | None = None,
    ) -> None:
        text = _valid_for(fingerprint, n_variables)
        digest = xxhash.xxh3_128(text.encode())
        self._seed = digest.intdigest() & 0xFFFFFFFFFFFFFFFF
        header = f"bigsvm kernel rows\n{digest.hexdigest()}\n{text}\n".encode()
        self._header = header + bytes(-len(header) % PAGE)
        self.row_bytes = 4 * n_variables
        self.n_slots = min(self._slots_within(capacity_bytes), n_rows or n_variables)
        if self.n_slots < 1:
            raise OSError(f"{capacity_bytes} bytes hold no row of {self.row_bytes} bytes")
        self.path = file_path(folder, fingerprint, n_variables=n_variables)
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = try_lock(self.path)
        if descriptor is None:
            raise BlockingIOError(errno.EWOULDBLOCK, "in use by another process", str(self.path))
        self._descriptor = descriptor
        try:
            self.is_new = self._make()
        except BaseException:
            self.close()
            raise
        self.digests = np.zeros(self.n_slots, np.uint64)

    def _slots_within(self, capacity_bytes: int) -> int:
        table_bytes = max(capacity_bytes - len(self._header), 0)
        groups, rest = divmod(table_bytes, PAGE + GROUP * self.row_bytes)
        return groups * GROUP + max(rest - PAGE, 0) // self.row_bytes

    def _make(self) -> bool:
        """Give the file its full length; return whether it is new."""
        before = os.fstat(self._descriptor).st_size
        anew = os.pread(self._descriptor, len(self._header), 0) != self._header
        if anew and before:
            logger.warning("%s: the header is damaged; the file is begun anew", self.path)
        size = self._row_offset(self.n_slots - 1) + self.row_bytes
        os.ftruncate(self._descriptor, 0 if anew else min(before, size))
        try:
            _allocate(self._descriptor, size)
            if anew:
                _write_all(self._descriptor, self._header, 0)
            elif before > size:
                # If the file grows again, these slots shall be free, not damaged.
                free = bytes(-self.n_slots % GROUP * ENTRY.size)
                _write_all(
                    self._descriptor, free, self._entry_offset(self.n_slots - 1) + ENTRY.size
                )
        except OSError:
            # Return what a full disk has allocated so far, but keep the rows that were there.
            os.ftruncate(self._descriptor, 0 if anew else min(before, size))
            if anew:
                self.path.unlink()
            raise
        return anew

    def close(self, *, remove: bool = False) -> None:
        """Close the file and, with `remove`, delete it."""
        with contextlib.suppress(OSError):
            if remove:
                self.path.unlink()
        with contextlib.suppress(OSError):
            os.close(self._descriptor)

    def _table_offset(self, group: int) -> int:
        return len(self._header) + group * (PAGE + GROUP * self.row_bytes)

    def _entry_offset(self, slot: int) -> int:
        return self._table_offset(slot // GROUP) + slot % GROUP * ENTRY.size

    def _row_offset(self, slot: int) -> int:
        return self._table_offset(slot // GROUP) + PAGE + slot % GROUP * self.row_bytes

    def _digest(self, variable: int, row: F4) -> int:
        return xxhash.xxh3_64_intdigest(row.data, (self._seed + variable) & 0xFFFFFFFFFFFFFFFF)

    def owners(self) -> I8:
        """Read the tables: the variable of each slot, (n_slots,) int64; −1 for a free slot.

        A damaged table has any numbers.
        """
        owners = np.empty(self.n_slots, np.int64)
        for group in range(-(-self.n_slots // GROUP)):
            page = os.pread(self._descriptor, PAGE, self._table_offset(group)).ljust(PAGE, b"\0")
            slots = slice(group * GROUP, (group + 1) * GROUP)
            entries = np.frombuffer(page, "<u8").reshape(GROUP, 2)[: len(owners[slots])]
            owners[slots] = entries[:, 0].astype(np.int64) - 1
            self.digests[slots] = entries[:, 1]
        return owners

    def read(self, slot: int, variable: int, out: F4) -> bool:
        """Read a row to `out` (n_variables,); return whether it is the row written for `variable`.

        Values that are not finite are refused too, as kernel rows are finite. If the disk fails, an
        OSError is raised.
        """
        rest, offset = out.data.cast("B"), self._row_offset(slot)
        while rest:
            count = os.preadv(self._descriptor, [rest], offset)
            if count == 0:
                return False
            rest, offset = rest[count:], offset + count
        is_as_written = self._digest(variable, out) == int(self.digests[slot])
        return is_as_written and bool(np.isfinite(out).all())

    def write(self, slot: int, variable: int, row: F4) -> None:
        """Write `row` (n_variables,), then its entry; an OSError if the disk is full or fails."""
        digest = self._digest(variable, row)
        _write_all(self._descriptor, row.data.cast("B"), self._row_offset(slot))
        entry = ENTRY.pack(variable + 1, digest)
        _write_all(self._descriptor, entry, self._entry_offset(slot))
        self.digests[slot] = digest

    def prefetch(self, slot: int) -> None:
        """Ask the system to start reading a row, so that several are read at once."""
        if sys.platform == "linux":
            offset = self._row_offset(slot)
            with contextlib.suppress(OSError):
                os.posix_fadvise(self._descriptor, offset, self.row_bytes, os.POSIX_FADV_WILLNEED)


def file_path(folder: Path, fingerprint: Mapping[str, str] | str, *, n_variables: int) -> Path:
    """Path of the file, whether it exists or not."""
    text = _valid_for(fingerprint, n_variables)
    return folder / f"kernel-rows-{xxhash.xxh3_128_hexdigest(text.encode())}"


def _valid_for(fingerprint: Mapping[str, str] | str, n_variables: int) -> str:
    valid_for = {
        "format": FORMAT_VERSION,
        "dtype": np.dtype(np.float32).str,
        "n_variables": n_variables,
        "fingerprint": fingerprint if isinstance(fingerprint, str) else dict(fingerprint),
    }
    return json.dumps(valid_for, sort_keys=True)


def _allocate(descriptor: int, size: int) -> None:
    """Allocate the bytes on the disk now, if the file system can."""
    if sys.platform == "linux":
        try:
            os.posix_fallocate(descriptor, 0, size)
            return
        except OSError as error:
            if error.errno not in {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}:
                raise
    os.ftruncate(descriptor, size)


def _write_all(descriptor: int, data: memoryview | bytes, offset: int) -> None:
    rest = memoryview(data)
    while rest:
        count = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[count:], offset + count

"""RowFile: one preallocated file of kernel rows, locked by its process.

It is named after the digest of what its rows are valid for:

    header     whole pages   a line of what this is, the digest of the text, the text (JSON: format,
                             dtype, n_variables, fingerprint), zeros
    group 0    table         one page: 256 entries (variable + 1, hash), little-endian uint64
               rows          256 slots of n_variables float32
    group 1    …             the last group ends with its last slot

The hash is xxh3 (64 bits) of a row's bytes, seeded with its variable and the digest, and compared
at every read: a damaged row, one of another variable and one half written when the process was
killed are each a miss. Nothing else is trusted, so nothing needs to be synced. An entry of zeros is
a free slot. Where a slot is does not depend on how many there are: a file is used with another
capacity as well, without the rows that do not fit. It is read and written at offsets, never mapped:
a mapped file that is truncated, or a full disk below it, would end the process.
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
"""Slots per table: the tables of 100 GB of rows are read in a few hundred reads when reopened."""


class RowFile:
    """Slots of rows at offsets in a file, owned by this process until closed.

    Parameters
    ----------
    folder : path
        Made if absent.
    fingerprint : mapping of str to str, or str
    n_variables : int
    capacity_bytes : int

    Attributes
    ----------
    digests : (n_slots,) uint64
    is_new : bool
        Whether the file held nothing that could be used.

    Raises
    ------
    OSError
        The file cannot be made, is in use by another process, or does not fit disk or capacity.
    """

    def __init__(
        self,
        folder: Path,
        fingerprint: Mapping[str, str] | str,
        *,
        n_variables: int,
        capacity_bytes: int,
    ) -> None:
        text = _valid_for(fingerprint, n_variables)
        digest = xxhash.xxh3_128(text.encode())
        self._seed = digest.intdigest() & 0xFFFFFFFFFFFFFFFF
        header = f"bigsvm kernel rows\n{digest.hexdigest()}\n{text}\n".encode()
        self._header = header + bytes(-len(header) % PAGE)
        self.row_bytes = 4 * n_variables
        self.n_slots = min(self._slots_within(capacity_bytes), n_variables)
        if self.n_slots < 1:
            raise OSError(f"{capacity_bytes} bytes hold no row of {self.row_bytes} bytes")
        self.path = file_path(folder, fingerprint, n_variables=n_variables)
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = try_lock(self.path)
        if descriptor is None:
            raise BlockingIOError(errno.EWOULDBLOCK, "in use by another process", str(self.path))
        self._descriptor = descriptor
        try:
            self.is_new = self._begin()
        except BaseException:
            self.close()
            raise
        self.digests = np.zeros(self.n_slots, np.uint64)

    def _slots_within(self, capacity_bytes: int) -> int:
        room = max(capacity_bytes - len(self._header), 0)
        groups, rest = divmod(room, PAGE + GROUP * self.row_bytes)
        return groups * GROUP + max(rest - PAGE, 0) // self.row_bytes

    def _begin(self) -> bool:
        """Make the file as long as it may get; whether it had to be begun anew."""
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
                # With more room again these slots are free, not damaged.
                free = bytes(-self.n_slots % GROUP * ENTRY.size)
                _write_all(
                    self._descriptor, free, self._entry_offset(self.n_slots - 1) + ENTRY.size
                )
        except OSError:
            # What a full disk has given so far is given back; the rows there were are not lost.
            os.ftruncate(self._descriptor, 0 if anew else min(before, size))
            if anew:
                self.path.unlink()
            raise
        return anew

    def close(self, *, remove: bool = False) -> None:
        """Give the file up and, to `remove` it, its place on the disk."""
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
        """Read the tables: the variable of each slot, (n_slots,) int64, or what damage made of it.

        A free slot has −1.
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
        """Read a row to `out` (n_variables,); False if it is not the row of `variable` as written.

        Also False for values that are not finite, as kernel rows are finite.

        Raises
        ------
        OSError
            The disk fails.
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
        """Write `row` (n_variables,), then its entry.

        Raises
        ------
        OSError
            The disk is full or fails.
        """
        digest = self._digest(variable, row)
        _write_all(self._descriptor, row.data.cast("B"), self._row_offset(slot))
        entry = ENTRY.pack(variable + 1, digest)
        _write_all(self._descriptor, entry, self._entry_offset(slot))
        self.digests[slot] = digest

    def prefetch(self, slot: int) -> None:
        """Have the disk begin to read a row; of several, 1.1 GB/s became 1.5."""
        if sys.platform == "linux":
            offset = self._row_offset(slot)
            with contextlib.suppress(OSError):
                os.posix_fadvise(self._descriptor, offset, self.row_bytes, os.POSIX_FADV_WILLNEED)

    def push_out(self) -> None:
        """Have what was written on the disk only, not in the system's memory as well."""
        os.fsync(self._descriptor)
        if sys.platform == "linux":
            os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)


def file_path(folder: Path, fingerprint: Mapping[str, str] | str, *, n_variables: int) -> Path:
    """Where the file is, or would be."""
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
    """Have the disk give the bytes now; where it cannot promise them, be full later on."""
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

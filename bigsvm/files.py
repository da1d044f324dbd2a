"""Files that are whole or absent after a crash: write, flush, sync, rename, sync the directory.

And locks that a process holds until it ends, however it ends.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import shutil
import stat
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from bigsvm.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator


def local_path(path: str | os.PathLike[str], name: str) -> Path:
    """Path on this machine of a file or folder that must lie here.

    Parameters
    ----------
    path : path
    name : str
        What the path is for, as the user calls it: a parameter, an option or an argument.

    Raises
    ------
    ParameterError
        It is a URL, which would be taken for a folder ``s3:``.
    """
    given = os.fspath(path)
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:/", given):
        raise ParameterError(
            f"{name} is {given!r}; it must be a path on this machine, not a URL (write "
            f"'./{given}' for a folder of that name)"
        )
    return Path(given)


def open_regular(path: Path, *, follow_links: bool) -> BinaryIO:
    """Open a regular file to read; of a pipe or device it never waits for a writer.

    Parameters
    ----------
    path : Path
    follow_links : bool
        True for a path that the user has named, False inside stores and checkpoints.

    Raises
    ------
    OSError
        It cannot be opened, is no regular file, or is a link that is not followed.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags if follow_links else flags | os.O_NOFOLLOW)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def parse_json(data: bytes | str) -> object:
    """Parse JSON whose origin is unknown.

    Raises
    ------
    ValueError
        It is not JSON, or nested too deeply to be parsed.
    """
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_tree(path: Path) -> None:
    """Make all files in a directory and below durable, and their names."""
    for folder, _, files in os.walk(path):
        for file in files:
            with (Path(folder) / file).open("rb") as handle:
                os.fsync(handle.fileno())
        sync_directory(Path(folder))


def try_lock(path: Path, *, create: bool = True) -> int | None:
    """Descriptor of the locked file, or None if another process holds the lock.

    Closing it, or the end of the process, gives the lock up.
    """
    descriptor = os.open(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def write_synced(path: Path, data: bytes | memoryview) -> None:
    """Write a new file and make its content durable."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replaceable(path: Path) -> Path:
    """Place of the file that a name stands for, to rename another one to; of a link its target.

    Raises
    ------
    OSError
        Something else than a file is there: a device or a pipe would be gone for everybody.
    """
    place = Path(os.path.realpath(path))
    if place.exists() and not stat.S_ISREG(place.stat().st_mode):
        raise OSError(errno.EINVAL, "Not a file, so it is not replaced", str(path))
    return place


@contextmanager
def part_of(path: Path) -> Iterator[Path]:
    """Replace a file, whole or not at all, by what is written to this place; of a link its target.

    What a killed process has left of the same file is removed first.
    """
    path = replaceable(path)
    _remove_left(path)
    prefix, suffix = f".{path.name}.", ".part"
    with tempfile.TemporaryDirectory(prefix=prefix, suffix=suffix, dir=path.parent) as name:
        folder = Path(name)
        lock = os.open(folder, os.O_RDONLY)
        try:
            # Where there are no locks, nothing is removed either: there `_remove_left` gets none.
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield folder / path.name
            sync_tree(folder)
            os.replace(folder / path.name, path)
        finally:
            os.close(lock)
    sync_directory(path.parent)


def _remove_left(path: Path) -> None:
    """Remove what `part_of` made for a file in processes that ended before it could remove it.

    It has something in it, which is never so before it is locked, and the lock is free.
    """
    ours = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]{{8}}\.part")
    with os.scandir(path.parent) as entries:
        found = [e.path for e in entries if ours.fullmatch(e.name) and not e.is_symlink()]
    for folder in found:
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue  # no folder, just removed, or somebody else's
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.listdir(lock):
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # being written, or on a file system without locks
        finally:
            os.close(lock)


def replace_synced(path: Path, data: bytes) -> None:
    """Replace a file by another content, whole or not at all; of a link what it points to."""
    with part_of(path) as part:
        part.write_bytes(data)

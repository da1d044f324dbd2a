"""Files that are whole or absent after a crash: write, flush, sync, rename, sync the directory.

And locks that a process holds until it ends, however it ends.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from pathlib import Path


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


def replace_synced(path: Path, data: bytes) -> None:
    """Replace a file by another content, whole or not at all; of a link what it points to."""
    path = replaceable(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.unlink(missing_ok=True)
    try:
        write_synced(part, data)
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)

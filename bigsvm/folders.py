"""Work folders of processes, and removal of those that killed processes left.

A folder holds a file ``lock``, which is locked while the process lives and is removed last. A
folder whose lock is free, or that has no lock yet, belongs to a process that died: the next process
that works at the same place removes it.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from bigsvm.files import remove, try_lock

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOCK = "lock"


def make_folder(parent: Path, prefix: str) -> tuple[Path, int]:
    """Make and lock a folder that only this user can enter.

    Returns the folder, and the descriptor of its lock, to be closed once the folder is removed.
    """
    while True:
        # Record the name first, so that an interrupted process can still remove the folder.
        folder = parent / f"{prefix}{os.getpid()}-{secrets.token_hex(8)}"
        try:
            folder.mkdir(mode=0o700)
            # Another process may remove it before it is locked; then try the next name.
            with suppress(FileNotFoundError):
                lock = _lock(folder, create=True)
                if lock is not None:
                    return folder, lock
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise


def folders_like(parent: Path, prefix: str) -> Iterator[Path]:
    """Folders, not links, whose names have this prefix, sorted by name."""
    with os.scandir(parent) as entries:
        names = [
            e.name for e in entries if e.name.startswith(prefix) and e.is_dir(follow_symlinks=False)
        ]
    return (parent / name for name in sorted(names))


def lock_left(folder: Path, prefix: str) -> int | None:
    """Lock a folder whose process has ended; None if the process is alive.

    A folder that `make_folder` did not make, that has just been removed, or that may not be entered
    raises OSError.
    """
    # Without a lock, only a name of `make_folder` proves that this is a work folder.
    made = re.fullmatch(rf"{re.escape(prefix)}\d+-[0-9a-f]{{16}}", folder.name)
    return _lock(folder, create=made is not None)


def _lock(folder: Path, *, create: bool) -> int | None:
    """Lock a folder; None if another process has locked it.

    A folder that has been removed meanwhile raises FileNotFoundError.
    """
    lock = try_lock(folder / _LOCK, create=create)
    if lock is not None and os.fstat(lock).st_nlink == 0:
        os.close(lock)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
    return lock


def remove_folder(folder: Path) -> None:
    """Remove a locked folder as far as possible; the lock is removed last."""
    with suppress(OSError):
        for name in os.listdir(folder):
            if name != _LOCK:
                with suppress(OSError):
                    remove(folder / name)
        if os.listdir(folder) == [_LOCK]:
            os.unlink(folder / _LOCK)
        os.rmdir(folder)


@contextmanager
def temporary_folder(parent: Path | None, prefix: str) -> Iterator[Path]:
    """Make a folder that goes away, at the latest when the next process makes one of this prefix.

    The parent is made if absent; None is the system's folder for temporary files.
    """
    where = Path(tempfile.gettempdir()) if parent is None else parent
    where.mkdir(parents=True, exist_ok=True)
    for left in folders_like(where, prefix):
        _remove_if_left(left, prefix)
    folder, lock = make_folder(where, prefix)
    try:
        yield folder
    finally:
        remove_folder(folder)
        os.close(lock)


def _remove_if_left(folder: Path, prefix: str) -> None:
    """Remove the folder of a process that was killed; one whose lock is held is in use."""
    try:
        lock = lock_left(folder, prefix)
    except OSError:
        return  # it belongs to another user, or was just removed
    if lock is not None:
        remove_folder(folder)
        os.close(lock)

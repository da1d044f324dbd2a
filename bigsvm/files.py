"""Files that are whole or absent after a crash: write, flush, sync, rename, sync the directory.

And locks that a process holds until it ends, however it ends.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, TextIO

from bigsvm.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBSVM_MODEL = b"svm_type "
"""First bytes of LIBSVM's models, which distinguish them from models of bigsvm."""


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:(/|$)")
"""A URL, or what is left of one in a `Path`. A single letter is a drive of Windows."""
_PART_SUFFIX = ".part"
_LONGEST_STEM = 200
"""Bytes of a name that others are made of; a name may have 255 on most file systems."""
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_RENAME_SWAP = 2
"""Constants of Linux's renameat2 and of macOS's renamex_np."""
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK)
"""Errors of a file system that does not make a hard link."""
_SYNC_THREADS = 8
"""Threads that wait for the disk; more wait hardly less."""
_MOST_LINKS = 40
"""Most symbolic links followed in a row, as in Linux."""


def is_url(text: str) -> bool:
    """Whether a text is a URL such as ``s3://bucket/name``."""
    return _URL.match(text) is not None and "://" in text


def local_path(path: str | os.PathLike[str], name: str) -> Path:
    """Path of a file or folder that must be on this machine; the parameter `name` is for messages.

    A URL is refused: it would name a local folder such as ``s3:``.
    """
    text = os.fspath(path)
    if _URL.match(text):
        raise ParameterError(
            f"{name} is {text!r}; it must be a path on this machine, not a URL (a file or folder "
            f"of that name is {os.path.abspath(text)!r})"
        )
    path = Path(text)
    # Path("./s3:/a") is "s3:/a", which a second call would take for a URL.
    return path.absolute() if _URL.match(str(path)) else path


def same_file(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> bool:
    """Whether two paths name the same existing file or folder, also by hard or symbolic links."""
    try:
        return os.path.samefile(first, second)
    except OSError:
        return False


def lies_in(path: Path, folder: str | os.PathLike[str]) -> bool:
    """Whether a path, which need not exist, is `folder` or lies inside it."""
    place = Path(os.path.realpath(path))
    return any(same_file(part, folder) for part in (path, place, *place.parents))


def descriptor_of(path: Path) -> int | None:
    """Return the descriptor that a path such as ``/dev/stdout`` names in this process; else None.

    Such a path resolves to the file behind the descriptor. Replacing that file would detach it from
    all other writers.
    """
    folders = {os.path.realpath(folder) for folder in ("/dev/fd", "/proc/self/fd")}
    for _ in range(_MOST_LINKS):
        path = Path(os.path.realpath(path.absolute().parent), path.name)
        if str(path.parent) in folders and path.name.isdecimal():
            return int(path.name)
        if not path.is_symlink():
            break
        path = path.parent / os.readlink(path)
    return None


def is_stream(path: Path) -> bool:
    """Whether a path is a device, a pipe or an open file, to be written into, not replaced."""
    return descriptor_of(path) is not None or (path.exists() and not path.is_file())


@contextmanager
def written(path: Path) -> Iterator[TextIO]:
    """Open text to write: a file is replaced, whole or not at all, a stream is written into."""
    if is_stream(path):
        number = descriptor_of(path)
        with open(path if number is None else os.dup(number), "w", encoding="utf-8") as file:
            yield file
    else:
        with part_of(path) as part, part.open("w", encoding="utf-8") as file:
            yield file


def open_regular(path: Path, *, follow_links: bool) -> BinaryIO:
    """Open a regular file to read; it never waits for the writer of a pipe or device.

    `follow_links` is True for a path that the user has named, False inside stores and checkpoints.
    A file that is not regular, or a link that must not be followed, raises OSError.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags if follow_links else flags | os.O_NOFOLLOW)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "Not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def parse_json(data: bytes | str) -> object:
    """Parse JSON whose origin is unknown; what is nested too deeply raises ValueError, too."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def exchange(first: Path, second: Path) -> bool:
    """Exchange two paths on one file system in one step.

    Returns False if the system or the file system has no such step; then nothing has changed.
    """
    # Few need it.
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(first), os.fsencode(second)
    if hasattr(library, "renameat2"):  # Linux
        failed = library.renameat2(
            _AT_FDCWD, names[0], _AT_FDCWD, names[1], ctypes.c_uint(_RENAME_EXCHANGE)
        )
    elif hasattr(library, "renamex_np"):  # macOS
        failed = library.renamex_np(*names, ctypes.c_uint(_RENAME_SWAP))
    else:
        return False
    error = ctypes.get_errno() if failed else 0
    if error in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP):
        return False
    if error:
        raise OSError(error, os.strerror(error), str(first), None, str(second))
    return True


def link_or_copy(path: Path, new: Path) -> None:
    """Give a file that is never written again another name; copies it where that cannot be."""
    try:
        os.link(path, new)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        shutil.copyfile(path, new)


def begin_sync(file: BinaryIO, start: int, n_bytes: int) -> None:
    """Have the system begin to write new bytes of a file to the disk, if it can be asked to.

    Nothing waits for them here; `sync_tree` then has less to wait for.
    """
    file.flush()
    if hasattr(os, "posix_fadvise"):
        # Linux writes such bytes at once, and forgets those that the disk already has: none here.
        with suppress(OSError):
            os.posix_fadvise(file.fileno(), start, n_bytes, os.POSIX_FADV_DONTNEED)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    _sync(path)


def sync_tree(path: Path) -> None:
    """Make all files in a directory and below durable, then their names."""
    # Takes 10 ms, which models and reports do not need to start.
    from concurrent.futures import ThreadPoolExecutor

    files: list[Path] = []
    folders: list[Path] = []
    for folder, _, names in os.walk(path):
        files.extend(Path(folder) / name for name in names)
        folders.append(Path(folder))
    # The disk makes those durable together that wait for it at the same time.
    with ThreadPoolExecutor(_SYNC_THREADS, thread_name_prefix="bigsvm-sync") as threads:
        for paths in (files, folders):
            for _ in threads.map(_sync, paths):
                pass


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove(path: Path) -> None:
    """Remove a file, or a folder with its contents; of a link, only the link itself."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def open_own(path: Path, flags: int, mode: int = 0o666) -> int:
    """Open a file to write to it; returns its descriptor.

    A symbolic link, what is not a regular file, and a file with another name (a hard link) raise
    OSError: writes would change a file elsewhere.
    """
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, mode)
    status = os.fstat(descriptor)
    fault = "Not a regular file" if not stat.S_ISREG(status.st_mode) else ""
    if status.st_nlink > 1:
        fault = "The file has another name too (a hard link); remove this one"
    if fault:
        os.close(descriptor)
        raise OSError(errno.EINVAL, fault, str(path))
    return descriptor


def try_lock(path: Path, *, create: bool = True) -> int | None:
    """Descriptor of the locked file, or None if another process holds the lock.

    Closing it, or the end of the process, gives the lock up. A link, or what is not a regular file,
    raises OSError: writes to the lock would go elsewhere.
    """
    descriptor = open_own(path, os.O_RDWR | (os.O_CREAT if create else 0), 0o600)
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

    What is not a plain file raises OSError: replacing a device, a pipe or a file that this process
    has open would take it away from all its users.
    """
    place = Path(os.path.realpath(path))
    if is_stream(path):
        raise OSError(errno.EINVAL, "Not a file, so it is not replaced", str(path))
    return place


def temporary_prefix(path: Path) -> str:
    """Give the start of the names of temporary folders beside a file or folder.

    It is hidden and has the name, or a hash of a name that leaves no room for more.
    """
    name = path.name
    if len(os.fsencode(name)) > _LONGEST_STEM:
        name = hashlib.blake2b(os.fsencode(name), digest_size=16).hexdigest()
    return f".{name}."


@contextmanager
def part_of(path: Path) -> Iterator[Path]:
    """Replace a file, whole or not at all, by what is written to this place; of a link its target.

    What a killed process has left of the same file is removed first.
    """
    path = replaceable(path)
    _remove_left(path)
    folder, lock = _make_part_folder(path)
    try:
        yield folder / path.name
        sync_tree(folder)
        os.replace(folder / path.name, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
    sync_directory(path.parent)


def _make_part_folder(path: Path) -> tuple[Path, int]:
    """Make a folder beside a file, and lock it where the file system has locks."""
    while True:
        folder = Path(
            tempfile.mkdtemp(prefix=temporary_prefix(path), suffix=_PART_SUFFIX, dir=path.parent)
        )
        # Another process may remove the folder before it is locked; then try the next name.
        with suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_ours = True
            except BlockingIOError:
                is_ours = False
            except OSError:
                # Without locks, `_remove_left` cannot lock a folder and removes nothing.
                is_ours = True
            if is_ours and folder.exists():
                return folder, lock
            os.close(lock)


def _remove_left(path: Path) -> None:
    """Remove what `part_of` made for a file in processes that ended before it could remove it.

    Its lock is free. A folder that was just made and is not locked yet may be removed as well.
    """
    prefix, suffix = re.escape(temporary_prefix(path)), re.escape(_PART_SUFFIX)
    ours = re.compile(rf"{prefix}[a-z0-9_]{{8}}{suffix}")
    with os.scandir(path.parent) as entries:
        left = [e.path for e in entries if ours.fullmatch(e.name) and not e.is_symlink()]
    for folder in left:
        try:
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue  # no folder, just removed, or somebody else's
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # being written, or on a file system without locks
        finally:
            os.close(lock)


def replace_synced(path: Path, data: bytes) -> None:
    """Replace a file by another content, whole or not at all; of a link what it points to."""
    with part_of(path) as part:
        part.write_bytes(data)

"""The folder beside a store in which it is made, and the step by which it becomes the store.

``.NAME.partial-PID-XXXX/`` holds ``lock``, ``store`` and whatever else the work needs. The lock is
held while the work is going on; a folder whose lock is free belongs to a process that died, and is
removed by the next one that makes the same store. The finished store is flushed to the disk and
renamed into place, so that a name never stands for half a store.
"""

from __future__ import annotations

import glob
import os
import secrets
import shutil
from typing import TYPE_CHECKING

from bigsvm.data.metadata import is_store
from bigsvm.errors import StoreError
from bigsvm.files import sync_directory, sync_tree, try_lock

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType


class Workspace:
    """A folder to make a store in; use it as a context manager.

    Parameters
    ----------
    target : Path
        Where the store is to be.
    overwrite : bool
        Replace a store that is there, once the new one is whole. Anything that is not a store is
        never replaced.

    Attributes
    ----------
    path : Path
        The folder.
    store : Path
        Where in it the store has to be made.

    Raises
    ------
    StoreError
        If the target exists (and must not or cannot be replaced), another process is making it, or
        the disk fails.
    """

    def __init__(self, target: Path, *, overwrite: bool) -> None:
        self.target = target.absolute()
        self._overwrite = overwrite

    def __enter__(self) -> Workspace:
        prefix = f".{self.target.name}.partial-"
        try:
            parent = self.target.parent
            if not parent.is_dir():
                raise StoreError(f"{parent}: no such directory; make it first")
            for left in sorted(parent.glob(f"{glob.escape(prefix)}*")):
                self._discard(left)
            self._check_target()
            # Named before it is made, so that a signal that comes in between can remove it.
            self.path = parent / f"{prefix}{os.getpid()}-{secrets.token_hex(8)}"
            self.store = self.path / "store"
            try:
                self.path.mkdir(mode=0o700)
                lock = try_lock(self.path / "lock")
            except BaseException:
                shutil.rmtree(self.path, ignore_errors=True)
                raise
        except OSError as error:
            raise StoreError(f"{self.target}: cannot be written ({error.strerror})") from error
        if lock is None:
            raise StoreError(f"{self.target}: another process just began to make it")
        self._descriptor = lock
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self._clear(self.path)
        except OSError as failure:
            raise StoreError(
                f"{self.target}: could not be replaced, nor put back ({failure.strerror}); it is "
                f"whole in {self.path / 'old'}: move it back"
            ) from (error or failure)
        finally:
            os.close(self._descriptor)
        if isinstance(error, OSError):
            raise StoreError(
                f"{self.target}: cannot be written ({error.strerror or error}); free some space "
                "on its file system, or put it elsewhere. Nothing is left behind"
            ) from error

    def commit(self) -> None:
        """Put the finished store in its place."""
        sync_tree(self.store)
        self._check_target()
        if self.target.exists():
            # Put back by `_clear` if all ends between the two renames.
            self.target.rename(self.path / "old")
        self.store.rename(self.target)
        sync_directory(self.target.parent)

    def _check_target(self) -> None:
        if not (self.target.exists() or self.target.is_symlink()):
            return
        if not self._overwrite:
            raise StoreError(
                f"{self.target}: already exists; choose another name, or give overwrite=True"
            )
        metadata = self.target / "zarr.json"
        if self.target.is_symlink() or not metadata.is_file():
            raise StoreError(
                f"{self.target}: not a store, so it is not overwritten; remove it first"
            )
        if not is_store(self.target):
            raise StoreError(
                f"{self.target}: a Zarr hierarchy of something else, so it is not overwritten; "
                "remove it first"
            )

    def _discard(self, left: Path) -> None:
        """Remove what a dead process left; StoreError if the process lives."""
        try:
            lock = try_lock(left / "lock")
        except (FileNotFoundError, NotADirectoryError):
            return
        if lock is None:
            pid = left.name.rpartition("partial-")[2].split("-")[0]
            raise StoreError(
                f"{self.target}: process {pid} is making it in {left.name}; wait for it, or stop it"
            )
        try:
            self._clear(left)
        finally:
            os.close(lock)

    def _clear(self, folder: Path) -> None:
        """Remove a work folder, but never the only copy of the store that was to be replaced."""
        old = folder / "old"
        if old.exists() and not self.target.exists():
            old.rename(self.target)
        shutil.rmtree(folder, ignore_errors=True)

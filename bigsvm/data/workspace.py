"""The folder beside a store in which it is made, and the step by which it becomes the store.

``.NAME.partial-PID-XXXX/`` holds ``lock``, ``store`` and other files of the work. The lock is
held while the work is going on; a folder whose lock is free belongs to a process that died, and is
removed by the next one that makes the same store. The finished store is flushed to the disk and
renamed into place, so that a name never stands for half a store. It is exchanged with a store that
it replaces. Where a file system cannot do that in one step, the old one is renamed to ``old`` in
the folder first, and gets its name back if all ends before the new one has it.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from bigsvm.data.far_workspace import FarWorkspace
from bigsvm.data.metadata import is_store
from bigsvm.data.place import Folder, Place, Prefix
from bigsvm.errors import ParameterError, StoreError
from bigsvm.files import exchange, local_path, sync_directory, sync_tree, temporary_prefix
from bigsvm.folders import folders_like, lock_left, make_folder, remove_folder

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

_OLD = "old"
_REMOVED = "removed"


def workspace_at(
    place: Place, *, overwrite: bool, cache_dir: str | os.PathLike[str] | None
) -> Workspace | FarWorkspace:
    """Make the workspace for a new store at `place`.

    A store in a folder may be replaced, which is refused at a URL. Temporary files of a store at a
    URL go to `cache_dir`; None is the system's folder.
    """
    if isinstance(place, Folder):
        if cache_dir is not None:
            raise ParameterError(
                f"cache_dir is for stores at URLs, and temporary files of {place} are beside it; "
                "leave it out"
            )
        return Workspace(place.path, overwrite=overwrite)
    if not isinstance(place, Prefix):
        raise AssertionError(place)
    if overwrite:
        raise ParameterError(
            f"overwrite=True with {place}: a store on object storage cannot be replaced, as "
            "readers would see parts of both; give another name, or delete it first"
        )
    return FarWorkspace(
        place, cache_dir=None if cache_dir is None else local_path(cache_dir, "cache_dir")
    )


class Workspace:
    """A folder, `path`, to make a store in; use it as a context manager.

    The store has to be made in `store`, which is in the folder, and becomes `target`. With
    `overwrite` it replaces a store that is there, once the new one is whole. Anything that is not a
    store is never replaced.
    """

    is_far = False

    def __init__(self, target: Path, *, overwrite: bool) -> None:
        self.target = target.absolute()
        self._overwrite = overwrite

    def __enter__(self) -> Workspace:
        try:
            parent = self.target.parent
            if not parent.is_dir():
                raise StoreError(f"{parent}: no such directory; make it first")
            for left in folders_like(parent, _prefix(self.target)):
                self._discard(left)
            self._check_target()
            self.path, self._descriptor = make_folder(parent, _prefix(self.target))
            self.store = self.path / "store"
        except OSError as error:
            raise StoreError(f"{self.target}: cannot be written ({error.strerror})") from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            _clear(self.path, self.target)
        except OSError as failure:
            raise StoreError(
                f"{self.target}: could not be replaced, nor put back ({failure.strerror}); it is "
                f"whole in {self.path / _OLD}: move it back"
            ) from (error or failure)
        finally:
            os.close(self._descriptor)
        if isinstance(error, OSError):
            raise StoreError(
                f"{self.target}: cannot be written ({error.strerror or error}); free some space "
                "on its file system, or put it elsewhere. Nothing is left behind"
            ) from error

    def finished(self, file: Path) -> None:
        """Take notice of a file of the store that is complete; it is where it has to be."""

    def commit(self) -> None:
        """Put the finished store in its place."""
        sync_tree(self.store)
        self._check_target()
        if not self.target.exists():
            self.store.rename(self.target)
        elif not exchange(self.store, self.target):
            # `_clear` or `put_back` restores it if the process ends between the two renames.
            self.target.rename(self.path / _OLD)
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
        if not is_store(Folder(self.target)):
            raise StoreError(
                f"{self.target}: a Zarr hierarchy of something else, so it is not overwritten; "
                "remove it first"
            )

    def _discard(self, left: Path) -> None:
        """Remove what a dead process left; StoreError if the process lives."""
        try:
            lock = lock_left(left, _prefix(self.target))
        except FileNotFoundError:
            return
        if lock is None:
            pid = left.name.rpartition("partial-")[2].split("-")[0]
            raise StoreError(
                f"{self.target}: process {pid} is making it in {left.name}; wait for it, or stop it"
            )
        try:
            _clear(left, self.target)
        finally:
            os.close(lock)


def _prefix(target: Path) -> str:
    """Prefix of the names of work folders for this store."""
    return f"{temporary_prefix(target)}partial-"


def _clear(folder: Path, target: Path) -> None:
    """Remove a work folder, but never the only copy of the store it was to replace."""
    old = folder / _OLD
    if old.is_dir() and not old.is_symlink():
        # What is under the first name is whole, so what is to be removed gets another one.
        old.rename(folder / _REMOVED if os.path.lexists(target) else target)
    remove_folder(folder)


def put_back(target: Path) -> None:
    """Give a store its name back if a process was killed while it replaced the store."""
    if os.path.lexists(target) or not target.parent.is_dir():
        return
    with suppress(PermissionError):
        for left in folders_like(target.parent, _prefix(target)):
            if not (left / _OLD).is_dir():
                continue
            try:
                lock = lock_left(left, _prefix(target))
                if lock is None:
                    continue
                try:
                    _clear(left, target)
                finally:
                    os.close(lock)
            except OSError as error:
                raise StoreError(
                    f"{target}: a process was killed that replaced it, and it cannot be put back "
                    f"({error.strerror}); it is whole in {left / _OLD}: move it back"
                ) from error

"""The making of a store on object storage, where nothing can be renamed.

The rows are sorted in a folder of this machine. Each shard that is complete becomes an object by
one request, and its file is removed. The root metadata, which say that the store is complete, are
written last: without them there is no store.

The object ``.making`` says who makes a store there. It is written again now and then; one that has
not been for a while belongs to a process that died, and the next one removes what that has left.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import socket
import tempfile
import threading
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from bigsvm.data.objects import Objects
from bigsvm.data.schema import MAKING, NAME
from bigsvm.errors import StoreError
from bigsvm.files import parse_json
from bigsvm.folders import temporary_folder
from bigsvm.interruption import CHECK_SECONDS, GivenUpError, GivingUp, check_interrupt, checked_by

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import TracebackType

    from bigsvm.data.place import Prefix

logger = logging.getLogger(__name__)

RENEWED_EVERY = 60.0
"""Seconds after which the owner writes ``.making`` again."""
LEFT_AFTER = 600.0
"""Seconds after which another writer may take ``.making``: more than `store_timeout`."""
_UPLOADS = 4
"""Shards on their way at once, and so files of 32 MB that wait on the disk."""
_CLEARING_SECONDS = 10.0
"""Time to remove what an interrupted process has written: a person waits for it."""
_PREFIX = "bigsvm-store-"
_OF_STORES = re.compile(r"(X|y|row|sample_weight|statistics|scaler)/.*")
"""Names of objects below a store, besides its root metadata and ``.making``."""


class FarWorkspace:
    """A folder of this machine to make a store of a URL in; use it as a context manager.

    `place` is where the store is to be. The folder, `path`, is made in `cache_dir`; None is the
    system's folder for temporary files. The store has to be made in `store`, which is in it.

    A URL with objects below it is refused, and so is one where another process makes a store.
    """

    is_far = True

    def __init__(self, place: Prefix, *, cache_dir: Path | None) -> None:
        self._objects, self._place, self._cache_dir = Objects(place), place, cache_dir
        self._lock = _Lock(self._objects)
        self._uploads: deque[Future[None]] = deque()
        self._given_up = GivingUp()
        self._committed = False

    def __enter__(self) -> FarWorkspace:
        if self._place.exists(NAME):
            raise self._exists()
        with ExitStack() as stack:
            try:
                self.path = stack.enter_context(temporary_folder(self._cache_dir, _PREFIX))
            except OSError as error:
                raise self._no_room(error) from error
            self.store = self.path / "store"
            was_left = self._lock.take()
            stack.callback(self._lock.close)
            self._check_names(was_left=was_left)
            self._threads = ThreadPoolExecutor(_UPLOADS, thread_name_prefix="bigsvm-upload")
            stack.callback(self._threads.shutdown)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._stack:
            if not self._committed:
                self._given_up.set()
                self._threads.shutdown(cancel_futures=True)
                self._clear()
        if isinstance(error, OSError):
            raise self._no_room(error) from error

    def finished(self, file: Path) -> None:
        """Send a complete file of the store on its way; it is removed once it is there.

        An error may be that of an earlier file.
        """
        self._lock.check()
        while len(self._uploads) >= _UPLOADS:
            self._wait_for_oldest()
        self._uploads.append(self._threads.submit(self._upload, file))

    def commit(self) -> None:
        """Write the other objects, and the root metadata last."""
        root = self.store / NAME
        for metadata in sorted(self.store.rglob(NAME)):
            if metadata != root:
                self.finished(metadata)
        while self._uploads:
            self._wait_for_oldest()
        self._lock.check(again=True)
        if not self._objects.create(NAME, root.read_bytes()):
            raise self._exists()
        self._committed = True

    def _upload(self, file: Path) -> None:
        with checked_by(self._given_up):
            self._objects.put(file.relative_to(self.store).as_posix(), file)
        file.unlink()

    def _wait_for_oldest(self) -> None:
        upload = self._uploads.popleft()
        while True:
            try:
                upload.result(CHECK_SECONDS)
            except TimeoutError:
                if upload.done():
                    raise
                check_interrupt()
            else:
                return

    def _check_names(self, *, was_left: bool) -> None:
        """Refuse a place where something is; what a dead process has left there is removed."""
        names = [name for name in self._objects.names() if name != MAKING]
        if NAME in names:
            raise self._exists()
        others = [name for name in names if not (was_left and _OF_STORES.fullmatch(name))]
        if others:
            raise StoreError(
                f"{self._place}: holds other objects ({others[0]}); give another name, or delete "
                "them first"
            )
        self._objects.delete(names)

    def _clear(self) -> None:
        """Remove what has been written, as far as that is possible soon."""
        try:
            with _soon():
                self._lock.check(again=True)
                self._objects.delete(filter(_OF_STORES.fullmatch, self._objects.names()))
        except (StoreError, GivenUpError) as error:
            self._lock.leave()
            logger.warning(
                "%s: some objects of the store that was not finished are left (%s); the next "
                "process that makes a store there removes them", self._place, error or "too slow",
            )  # fmt: skip

    def _exists(self) -> StoreError:
        return StoreError(
            f"{self._place}: already exists, and a store on object storage is not replaced; choose "
            "another name, or delete it first"
        )

    def _no_room(self, error: OSError) -> StoreError:
        where = self._cache_dir or tempfile.gettempdir()
        return StoreError(
            f"{self._place}: its temporary files cannot be written to {where} "
            f"({error.strerror or error}); free some space there, or give another cache_dir "
            "(--cache-dir). Nothing is left behind"
        )


@contextmanager
def _soon() -> Iterator[None]:
    """Give up waits in this block that take longer than a person waits."""
    end = time.monotonic() + _CLEARING_SECONDS

    def check() -> None:
        if time.monotonic() > end:
            raise GivenUpError

    with checked_by(check):
        yield


class _Lock:
    """The object ``.making`` of one process, written again while the process makes a store."""

    def __init__(self, objects: Objects) -> None:
        self._objects, self._place = objects, objects.place
        self._id = secrets.token_hex(8)
        self._given_up, self._end = GivingUp(), threading.Event()
        self._renewed = 0.0
        self._is_lost = self._is_left = False
        self._thread = threading.Thread(target=self._keep, name="bigsvm-lock", daemon=True)

    def take(self) -> bool:
        """Own the place, unless another process does; returns whether one that died has left it."""
        was_left = False
        if not self._objects.create(MAKING, self._record()):
            owner = self._owner()
            if owner is not None and owner["time"] > time.time() - LEFT_AFTER:
                raise self._in_use(owner)
            self._objects.write(MAKING, self._record())
            was_left = True
        self._renewed = time.time()
        if was_left:
            self.check(again=True)  # another process may have taken it at the same time
        self._thread.start()
        return was_left

    def check(self, *, again: bool = False) -> None:
        """Refuse to go on if another process owns the place; with `again`, the storage is asked."""
        if again:
            owner = self._owner()
            self._is_lost = self._is_lost or owner is None or owner["id"] != self._id
        if self._is_lost or time.time() > self._renewed + LEFT_AFTER:
            self._is_lost = True
            raise StoreError(
                f"{self._place}: {MAKING} is no longer that of this process, as another one has "
                "taken the place or it could not be written for a while; start again, under "
                "another name if another process makes this store"
            )

    def leave(self) -> None:
        """Have `close` leave the object there."""
        self._is_left = True

    def close(self) -> None:
        """Give the place up."""
        self._end.set()
        self._given_up.set()
        if self._thread.is_alive():
            self._thread.join()
        if not (self._is_lost or self._is_left):
            try:
                with _soon():
                    self._objects.delete([MAKING])
            except (StoreError, GivenUpError) as error:
                logger.warning(
                    "%s: the object %s is left, and of no use (%s)", self._place, MAKING,
                    error or "too slow",
                )  # fmt: skip

    def _keep(self) -> None:
        """Write the object again until the end."""
        while not self._end.wait(RENEWED_EVERY):
            try:
                with checked_by(self._given_up):
                    owner = self._owner()
                    if owner is None or owner["id"] != self._id:
                        self._is_lost = True
                        return
                    self._objects.write(MAKING, self._record())
                self._renewed = time.time()
            except StoreError:
                continue  # `check` counts the time
            except GivenUpError:
                return

    def _record(self) -> bytes:
        return json.dumps(
            {
                "process": os.getpid(),
                "host": socket.gethostname(),
                "id": self._id,
                "time": time.time(),
            }
        ).encode()

    def _owner(self) -> dict[str, Any] | None:
        """Read which writer makes a store there; None if there is none."""
        try:
            record = parse_json(self._place.read(MAKING, 1 << 16))
            if not (isinstance(record, dict) and isinstance(record["time"], int | float)):
                raise ValueError(record)
            _ = record["id"], record["process"], record["host"]
        except FileNotFoundError:
            return None
        except (ValueError, KeyError) as error:
            raise StoreError(
                f"{self._place}: has an object {MAKING} that bigsvm did not write; give another "
                "name, or delete it first"
            ) from error
        return record

    def _in_use(self, owner: dict[str, Any]) -> StoreError:
        seen = datetime.fromtimestamp(owner["time"], UTC)
        free = datetime.fromtimestamp(owner["time"] + LEFT_AFTER, UTC)
        return StoreError(
            f"{self._place}: process {owner['process']} on {owner['host']} is making it (seen "
            f"{seen:%H:%M:%S} UTC); wait for it, or stop it. If it was killed, the place is free "
            f"at {free:%H:%M:%S} UTC"
        )

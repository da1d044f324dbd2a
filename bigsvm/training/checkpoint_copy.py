"""A copy of a checkpoint on object storage, for machines that lose their disks.

    URL/generation-00000007-HASH/    the files of a generation, then manifest.json
    URL/pairs.log-…-HASH             parts of a file that only grows, listed in logs.json of a
                                     generation

The hash in the name of a generation is that of its manifest, so that two processes never write the
same objects with other contents. A generation without manifest.json is not complete.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import xxhash

from bigsvm.data.objects import Objects, download
from bigsvm.data.place import Place, Prefix
from bigsvm.declared import is_count, is_kind
from bigsvm.errors import BigsvmError, CheckpointError, ParameterError
from bigsvm.files import open_regular, parse_json
from bigsvm.interruption import GivenUpError, GivingUp, checked_by

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
_LOGS = "logs.json"
_GENERATION = re.compile(r"generation-([0-9]{8,18})-[0-9a-f]{16}")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.]*")
_FILE_PART = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.]*-[0-9]{16}-[0-9a-f]{32}")
_PART_BYTES = 4 << 20
"""Bytes of a part of a growing file, which is in memory while it is sent."""
_CLOSING_SECONDS = 20.0
"""Time to finish a copy when a run ends: Kubernetes kills a process 30 s after it has asked."""
_MOST_BYTES = 1 << 26
"""Most bytes of logs.json, and of a manifest."""


class _Part(NamedTuple):
    """A part of a growing file: the name of its object, where it starts, size and xxh3_128."""

    name: str
    start: int
    size: int
    digest: str


_FIELDS = [
    lambda name: isinstance(name, str) and _FILE_PART.fullmatch(name),
    int,
    lambda size: is_count(size) and 0 < size <= _PART_BYTES,
    str,
]
"""Kinds of the fields of a part."""


class _Task(NamedTuple):
    """A generation to be copied, and the sizes of growing files when it was saved."""

    number: int
    folder: Path
    logs: dict[str, int]


class CheckpointCopy:
    """Copies the generations of a checkpoint to object storage, in a thread of its own.

    A generation that is not copied yet when the next one is saved is left out. A copy that fails is
    a warning, and the run goes on. As many as `kept` generations are kept there.
    """

    def __init__(self, url: str, *, kept: int) -> None:
        place = Place.of(url, name="checkpoint_copy")
        if not isinstance(place, Prefix):
            raise ParameterError(
                f"checkpoint_copy is {url!r}; it must be a URL, such as s3://bucket/run"
            )
        self._place, self._objects, self._kept = place, Objects(place), kept
        self._parts: dict[str, list[_Part]] = {}
        self._state = threading.Condition()
        self._next: _Task | None = None
        self._now: _Task | None = None
        self._is_closing = self._has_failed = False
        self._given_up = GivingUp()
        self._thread = threading.Thread(target=self._work, name="bigsvm-copy", daemon=True)

    def __str__(self) -> str:
        return str(self._place)

    # -- what is there -------------------------------------------------------------------------

    def generations(self) -> list[tuple[int, str]]:
        """Numbers and names of the complete generations, the newest first; a store is refused."""
        names = self._objects.names()
        if "zarr.json" in names:
            raise CheckpointError(
                f"{self} is a store, in which a checkpoint has no place; give another URL"
            )
        found = []
        for name in names:
            folder, _, file = name.partition("/")
            match = _GENERATION.fullmatch(folder)
            if match and file == MANIFEST:
                found.append((int(match[1]), folder))
        return sorted(found, reverse=True)

    def manifest(self, name: str) -> bytes:
        """Read the manifest of a generation; FileNotFoundError if there is none."""
        return self._place.read(f"{name}/{MANIFEST}", _MOST_BYTES)

    def fetch(self, name: str, files: Sequence[str], folder: Path) -> None:
        """Write files of a generation, and its manifest, to a new folder of this machine.

        A missing object raises OSError, and a name that is none of a file ValueError.
        """
        folder.mkdir()
        for file in (*files, MANIFEST):
            if not _FILE.fullmatch(file):
                raise ValueError(f"it has no file {file!r}")
            download(self._place, f"{name}/{file}", folder / file)

    def fetch_logs(self, name: str, folder: Path) -> list[Path]:
        """Write the growing files of a generation to a new folder of this machine.

        A missing part raises OSError, and one that is not what was written ValueError.
        """
        folder.mkdir()
        paths = []
        for log, parts in self._parts_of(name).items():
            paths.append(folder / log)
            with paths[-1].open("wb") as file:
                for part in parts:
                    data = self._place.read(part.name, part.size)
                    if xxhash.xxh3_128_hexdigest(data) != part.digest or file.tell() != part.start:
                        raise ValueError(f"{part.name} is damaged")
                    file.write(data)
        return paths

    def _parts_of(self, name: str) -> dict[str, list[_Part]]:
        """Read which parts the growing files of a generation have."""
        try:
            logs: Any = parse_json(self._place.read(f"{name}/{_LOGS}", _MOST_BYTES))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise ValueError(f"{_LOGS} is damaged") from error
        if not is_kind(logs, {str: [_FIELDS]}) or not all(map(_FILE.fullmatch, logs)):
            raise ValueError(f"{_LOGS} is damaged")
        return {log: [_Part(*fields) for fields in parts] for log, parts in logs.items()}

    # -- copying -------------------------------------------------------------------------------

    def begin(self, number: int, folder: Path) -> None:
        """Copy a generation that has been saved, and the growing files beside it; returns at once.

        The folder must stay as long as `in_use` names it.
        """
        logs = {log.name: log.stat().st_size for log in folder.parent.glob("*.log")}
        with self._state:
            self._next = _Task(number, folder, logs)
            if not self._thread.is_alive():
                self._thread.start()
            self._state.notify_all()

    def in_use(self) -> set[Path]:
        """Folders that are being copied, or are next."""
        with self._state:
            return {task.folder for task in (self._next, self._now) if task is not None}

    def close(self) -> None:
        """Wait for the last copy, but not for long."""
        if not self._thread.is_alive():
            return
        end = time.monotonic() + _CLOSING_SECONDS
        with self._state:
            self._is_closing = True
            self._state.notify_all()
        self._thread.join(max(0.0, end - time.monotonic()))
        if self._thread.is_alive():
            self._given_up.set()
            self._thread.join()
            logger.warning(
                "%s: the last generation of the checkpoint is not copied, as that takes longer "
                "than %g s; the folder on this machine has it", self, _CLOSING_SECONDS,
            )  # fmt: skip

    def _work(self) -> None:
        """Copy what is next, until the end."""
        while True:
            with self._state:
                self._now = None
                self._state.wait_for(lambda: self._next is not None or self._is_closing)
                if self._next is None:
                    return
                self._now, self._next = self._next, None
                task = self._now
            try:
                with checked_by(self._given_up):
                    self._copy(task)
            except GivenUpError:
                return
            except (BigsvmError, OSError, ValueError) as error:
                self._tell(task, error)

    def _tell(self, task: _Task, error: Exception) -> None:
        """Log the first copy that fails."""
        if not self._has_failed:
            self._has_failed = True
            logger.warning(
                "%s: generation %d of the checkpoint is not copied (%s); the run goes on, and "
                "tries again with the next one. Check the URL, the credentials and the network",
                self, task.number, error,
            )  # fmt: skip

    def _copy(self, task: _Task) -> None:
        manifest = (task.folder / MANIFEST).read_bytes()
        name = f"generation-{task.number:08d}-{xxhash.xxh3_64_hexdigest(manifest)}"
        logs = {log: self._send_log(task, log, size) for log, size in task.logs.items()}
        for file in sorted(task.folder.iterdir()):
            if file.name != MANIFEST:
                self._objects.put(f"{name}/{file.name}", file)
        if logs:
            self._objects.write(f"{name}/{_LOGS}", json.dumps(logs).encode())
        self._objects.write(f"{name}/{MANIFEST}", manifest)
        self._remove_old(task.number)

    def _send_log(self, task: _Task, log: str, size: int) -> list[_Part]:
        """Write the new parts of a growing file; returns all of its parts."""
        with open_regular(task.folder.parent / log, follow_links=False) as file:
            if log not in self._parts:
                self._parts[log] = self._parts_there(log, file, size)
            parts = self._parts[log]
            start = parts[-1].start + parts[-1].size if parts else 0
            while start < size:
                file.seek(start)
                data = file.read(min(_PART_BYTES, size - start))
                if not data:
                    raise OSError(f"{log} is shorter than it was")
                digest = xxhash.xxh3_128_hexdigest(data)
                part = _Part(f"{log}-{start:016d}-{digest}", start, len(data), digest)
                self._objects.write(part.name, data)
                parts.append(part)
                start += len(data)
        return list(parts)

    def _parts_there(self, log: str, file: BinaryIO, size: int) -> list[_Part]:
        """Find which first parts of a file an earlier process has copied."""
        there = self.generations()
        parts = self._parts_of(there[0][1]).get(log, []) if there else []
        for n, part in enumerate(parts):
            file.seek(part.start)
            is_same = part.start + part.size <= size and part.digest == xxhash.xxh3_128_hexdigest(
                file.read(part.size)
            )
            if not is_same:
                return parts[:n]
        return parts

    def _remove_old(self, number: int) -> None:
        """Remove all generations but the newest, and those whose copies have broken off."""
        names = self._objects.names()
        complete = [name for _, name in self.generations()]
        old = {
            folder: int(match[1])
            for folder in {name.partition("/")[0] for name in names}
            if (match := _GENERATION.fullmatch(folder)) and folder not in complete[: self._kept]
        }
        removed = [name for name in names if old.get(name.partition("/")[0], number) < number]
        # A generation without manifest.json is none.
        for is_manifest in (True, False):
            self._objects.delete(n for n in removed if n.endswith(f"/{MANIFEST}") == is_manifest)

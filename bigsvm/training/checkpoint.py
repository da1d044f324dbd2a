"""Checkpoints that survive `kill -9`: generation directories, written whole or not at all.

    DIR/lock                          held by the running process (flock), names it
    DIR/run.json                      what is being trained, to resume from DIR alone
    DIR/ended.json                    why the run ended, once it has
    DIR/generation-00000007/          flat arrays, then manifest.json: sizes, xxh3, fingerprints

A generation is written under a temporary name, every file flushed and synced, then renamed, and the
directory synced. Two generations are kept, so that a damaged one costs an interval and not the run.

A hash proves that a file is unchanged, not that bigsvm wrote it. So everything that is read is
checked: the manifest here, arrays and values by the `Content` that the reader expects. Links are
not followed, and only regular files are opened.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np
import xxhash

from bigsvm.errors import CheckpointError
from bigsvm.files import (
    open_regular,
    remove,
    replace_synced,
    sync_directory,
    sync_tree,
    try_lock,
    write_synced,
)
from bigsvm.training.generations import (
    ENDED,
    array_of,
    bytes_of,
    generations_in,
    manifest_of,
    parse_manifest,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from bigsvm.training.checkpoint_copy import CheckpointCopy

logger = logging.getLogger(__name__)

FORMAT_VERSION = 5
KEPT = 2


class Generation(NamedTuple):
    """One checkpoint, read and verified; the caller may change its arrays."""

    number: int
    arrays: dict[str, NDArray[Any]]
    values: dict[str, Any]


class Content(Protocol):
    """Checks that a generation must pass before a run continues from it."""

    @property
    def most_bytes(self) -> int:
        """Most bytes that its arrays have together; no others are read."""

    def check(self, arrays: Mapping[str, NDArray[Any]], values: dict[str, Any]) -> None:
        """Check the values and the arrays; a ValueError says what is wrong."""


class Checkpoint:
    """A checkpoint directory, owned by this process until closed.

    The directory is made if absent. It must be local: locks and renames are not reliable on network
    file systems. The fingerprint is what a checkpoint belongs to (data, problem, kernel …); a
    resume under other values is refused and names the ones that differ. Generations are copied to
    `copy`, and one that is newer there is taken from there.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        fingerprint: Mapping[str, str],
        copy: CheckpointCopy | None = None,
    ) -> None:
        self.directory, self._copy, self._has_looked = Path(directory), copy, copy is None
        self._fingerprint = dict(fingerprint)
        self._told: set[str] = set()
        # A save removes these before the intact generation from which the run continues.
        self._damaged: set[Path] = set()
        try:
            if (self.directory / "zarr.json").exists():
                raise CheckpointError(
                    f"{self.directory} is a store, in which a checkpoint has no place; give "
                    "another directory"
                )
            self.directory.mkdir(parents=True, exist_ok=True)
            self._lock = self._own(self.directory / "lock")
            for litter in self.directory.glob(".generation-*"):
                remove(litter)
        except OSError as error:
            raise CheckpointError(
                f"cannot write a checkpoint to {self.directory}: {error}"
            ) from error

    def _own(self, path: Path) -> int:
        """Lock the directory, and say in the file by whom it is."""
        lock = try_lock(path)
        if lock is None:
            owner = _first_line(path) or "another process"
            raise CheckpointError(
                f"{self.directory} is in use by {owner}; wait for it, or stop it first"
            )
        os.ftruncate(lock, 0)
        os.write(lock, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        return lock

    @property
    def seed(self) -> int:
        """Hash of what the checkpoint belongs to, 64 bits: seed of the hashes of other files."""
        return xxhash.xxh3_64_intdigest(json.dumps(self._fingerprint, sort_keys=True).encode())

    def close(self) -> None:
        """Give the directory up, once the last copy is complete."""
        if self._copy is not None:
            self._copy.close()
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def save(self, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> int:
        """Write a new generation and drop all but the one before it; returns its number.

        The manifest has the time (`time.time`) of the call, up to which work is in it. If the disk
        is full or fails, the generations before are untouched.
        """
        taken = time.time()
        part = self.directory / ".generation-new"
        try:
            (self.directory / ENDED).unlink(missing_ok=True)
            held = generations_in(self.directory)
            number = held[0][0] + 1 if held else 1
            final = self.directory / f"generation-{number:08d}"
            part.mkdir()
            files = {}
            for name, array in arrays.items():
                data = np.ascontiguousarray(array)
                view = memoryview(data.reshape(-1).data).cast("B") if data.size else b""
                write_synced(part / f"{name}.bin", view)
                if (part / f"{name}.bin").stat().st_size != data.nbytes:
                    raise OSError(f"{name}.bin was not written whole")
                files[name] = {
                    "dtype": data.dtype.str,
                    "shape": list(data.shape),
                    "xxh3": xxhash.xxh3_128_hexdigest(view),
                }
            manifest = {
                "format_version": FORMAT_VERSION,
                "generation": number,
                "snapshot_time": taken,
                "fingerprint": self._fingerprint,
                "values": dict(values),
                "arrays": files,
            }
            text = json.dumps(manifest, indent=1).encode()
            digest = xxhash.xxh3_128_hexdigest(text)
            write_synced(part / "manifest.json", text + b"\n" + digest.encode() + b"\n")
            sync_directory(part)
            os.rename(part, final)
            sync_directory(self.directory)
            whole = [
                path for _, path in generations_in(self.directory) if path not in self._damaged
            ]
            in_use = set() if self._copy is None else self._copy.in_use()
            for old in (*whole[KEPT:], *self._damaged):
                if old not in in_use:
                    remove(old)
            self._damaged.clear()
        except OSError as error:
            with contextlib.suppress(OSError):
                remove(part)
            raise self.not_saved(error) from error
        if self._copy is not None:
            self._copy.begin(number, final)
        return number

    def end(self, reason: str, *, converged: bool) -> None:
        """Record why the run has ended, a `StopReason`, until it goes on and saves again."""
        record = {"format_version": 1, "stop_reason": reason, "converged": converged}
        try:
            replace_synced(self.directory / ENDED, json.dumps(record).encode())
        except OSError as error:
            self._tell(f"{self.directory} does not say that the run has ended: {error}")

    def not_saved(self, error: OSError) -> CheckpointError:
        """Error for a save that the system refused."""
        if not self.directory.is_dir():
            return CheckpointError(
                f"cannot write a checkpoint: the directory {self.directory} was removed while the "
                "run was using it; start the run again"
            )
        return CheckpointError(
            f"cannot write a checkpoint to {self.directory}: {error}; the one before is intact"
        )

    def latest(self, content: Content | None = None) -> Generation | None:
        """Read the newest generation that is whole; None where there is none at all.

        If a generation is damaged, or `content` refuses its values or arrays, the log names it, and
        the one before it is read instead. If all are damaged, CheckpointError is raised.
        """
        damage, damaged = [], set()
        if self._copy is not None and not self._has_looked:
            self._take_newer_from(self._copy)
            self._has_looked = True
        try:
            generations = generations_in(self.directory)
        except OSError as error:
            raise CheckpointError(f"cannot read {self.directory}: {error}") from error
        for number, path in generations:
            try:
                generation = self._read(number, path, content)
            except (OSError, ValueError) as error:
                damage.append(f"{path.name}: {error}")
                damaged.add(path)
                continue
            self._damaged = damaged
            for fault in damage:
                self._tell(
                    f"{self.directory}: damaged, so the generation before it is used: {fault}"
                )
            return generation
        if damage:
            raise CheckpointError(
                f"no whole checkpoint in {self.directory} ({'; '.join(damage)}); "
                "remove the directory to start over"
            )
        return None

    def _take_newer_from(self, copy: CheckpointCopy) -> None:
        """Take the newest whole generation of a copy, unless this directory has as new a one."""
        here = generations_in(self.directory)
        newest = here[0][0] if here else 0
        damage = []
        for number, name in copy.generations():
            try:
                self._check_manifest(str(copy), parse_manifest(copy.manifest(name)))
                if number <= newest:
                    return
                self._fetch(copy, number, name)
            except (FileNotFoundError, ValueError) as error:
                damage.append(f"{name}: {error}")
                self._tell(f"{copy}: damaged, so the generation before it is used: {damage[-1]}")
            except OSError as error:
                raise CheckpointError(
                    f"cannot copy the checkpoint from {copy} to {self.directory}: {error}"
                ) from error
            else:
                logger.info("%s: generation %d is taken from %s", self.directory, number, copy)
                return
        if damage and not here:
            raise CheckpointError(
                f"no whole checkpoint in {copy} ({'; '.join(damage)}); remove it to start over"
            )

    def _fetch(self, copy: CheckpointCopy, number: int, name: str) -> None:
        """Write a generation of a copy to this directory, if it is whole."""
        part, logs = (self.directory / f".generation-{what}" for what in ("new", "logs"))
        try:
            arrays = parse_manifest(copy.manifest(name))["arrays"]
            copy.fetch(name, [f"{array}.bin" for array in arrays], part)
            self._read(number, part, None)
            for log in copy.fetch_logs(name, logs):
                os.replace(log, self.directory / log.name)
            sync_tree(part)
            os.rename(part, self.directory / f"generation-{number:08d}")
            sync_tree(self.directory)
        finally:
            for left in (part, logs):
                with contextlib.suppress(FileNotFoundError):
                    remove(left)

    def _tell(self, warning: str) -> None:
        """Log a warning once."""
        if warning not in self._told:
            self._told.add(warning)
            logger.warning("%s", warning)

    def _read(self, number: int, path: Path, content: Content | None) -> Generation:
        manifest = manifest_of(path)
        self._check_manifest(str(self.directory), manifest)
        values, entries = manifest["values"], manifest["arrays"]
        n_bytes = sum(map(bytes_of, entries.values()))
        if content is not None and n_bytes > content.most_bytes:
            raise ValueError(f"its arrays have {n_bytes} bytes; there can be {content.most_bytes}")
        arrays = {name: array_of(path / f"{name}.bin", entry) for name, entry in entries.items()}
        if content is not None:
            content.check(arrays, values)
        return Generation(number, arrays, values)

    def _check_manifest(self, where: str, manifest: dict[str, Any]) -> None:
        """Refuse a manifest of another format or another run."""
        if manifest["format_version"] != FORMAT_VERSION:
            raise CheckpointError(
                f"{where} has format {manifest['format_version']}, and this bigsvm reads "
                f"{FORMAT_VERSION}; resume with the version of bigsvm that wrote it"
            )
        stored = manifest["fingerprint"]
        different = [
            f"{key} (checkpoint: {stored.get(key)}, now: {self._fingerprint.get(key)})"
            for key in sorted(stored.keys() | self._fingerprint.keys())
            if stored.get(key) != self._fingerprint.get(key)
        ]
        if different:
            raise CheckpointError(
                f"the checkpoint in {where} belongs to another run: "
                f"{'; '.join(different)}; give the same values, or another directory; in a search "
                "a CheckpointCallback gives each fit its own"
            )


def _first_line(path: Path) -> str:
    """Return the first line of a small file; an empty string if it cannot be read."""
    try:
        with open_regular(path, follow_links=False) as file:
            line = file.readline(200)
    except OSError:
        return ""
    return line.decode(errors="replace").strip()

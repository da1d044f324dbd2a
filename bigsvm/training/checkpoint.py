"""Checkpoints that survive `kill -9`: generation directories, written whole or not at all.

    DIR/lock                          held by the running process (flock), names it
    DIR/run.json                      what is being trained, to resume from DIR alone
    DIR/generation-00000007/          flat arrays, then manifest.json: sizes, xxh3, fingerprints

A generation is written under a temporary name, every file flushed and synced, then renamed, and the
directory synced. Two generations are kept, so that a damaged one costs an interval and not the run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import xxhash

from bigsvm.errors import CheckpointError
from bigsvm.files import sync_directory, try_lock, write_synced

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

FORMAT_VERSION = 1
KEPT = 2
_GENERATION = re.compile(r"generation-(\d{8})")


class Generation(NamedTuple):
    """One checkpoint, read and verified; its arrays are whoever asked for them's to change."""

    number: int
    arrays: dict[str, NDArray[Any]]
    values: dict[str, Any]


class Checkpoint:
    """A checkpoint directory, owned by this process until closed.

    Parameters
    ----------
    directory : path
        Made if absent. Must be local: locks and renames are not reliable on network file systems.
    fingerprint : mapping of str to str
        What a checkpoint belongs to (data, problem, kernel …); a resume under other values is
        refused and names the ones that differ.

    Raises
    ------
    CheckpointError
        The directory is a store or cannot be written, or another process is using it.
    """

    def __init__(self, directory: str | os.PathLike[str], fingerprint: Mapping[str, str]) -> None:
        self.directory = Path(directory)
        self._fingerprint = dict(fingerprint)
        if (self.directory / "zarr.json").exists():
            raise CheckpointError(
                f"{self.directory} is a store, in which a checkpoint has no place; give another "
                "directory"
            )
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._lock = self._own(self.directory / "lock")
            for litter in self.directory.glob(".generation-*"):
                shutil.rmtree(litter)
        except OSError as error:
            raise CheckpointError(
                f"cannot write a checkpoint to {self.directory}: {error}"
            ) from error

    def _own(self, path: Path) -> int:
        """Lock the directory, and say in the file by whom it is."""
        lock = try_lock(path)
        if lock is None:
            owner = path.read_text().strip() or "another process"
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
        """Give the directory up."""
        if self._lock >= 0:
            os.close(self._lock)
        self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _generations(self) -> list[tuple[int, Path]]:
        found = []
        for path in self.directory.iterdir():
            match = _GENERATION.fullmatch(path.name)
            if match:
                found.append((int(match[1]), path))
        return sorted(found, reverse=True)

    def save(self, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> int:
        """Write a new generation and drop all but the one before it; returns its number.

        The manifest has the time (`time.time`) of the call, up to which work is in it.

        Raises
        ------
        CheckpointError
            The disk is full or fails; the generations before are untouched.
        """
        taken = time.time()
        held = self._generations()
        number = held[0][0] + 1 if held else 1
        final = self.directory / f"generation-{number:08d}"
        part = self.directory / f".generation-{number:08d}"
        try:
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
            for _, old in self._generations()[KEPT:]:
                shutil.rmtree(old)
        except OSError as error:
            shutil.rmtree(part, ignore_errors=True)
            raise CheckpointError(
                f"cannot write a checkpoint to {self.directory}: {error}; the one before is intact"
            ) from error
        return number

    def latest(self) -> Generation | None:
        """Read the newest generation that is whole; None where there is none at all.

        Raises
        ------
        CheckpointError
            It belongs to another problem, was written by a newer version, or all are damaged.
        """
        damage = []
        for number, path in self._generations():
            try:
                return self._read(number, path)
            except (OSError, ValueError, KeyError) as error:
                damage.append(f"{path.name}: {error}")
        if damage:
            raise CheckpointError(
                f"no whole checkpoint in {self.directory} ({'; '.join(damage)}); "
                "remove the directory to start over"
            )
        return None

    def _read(self, number: int, path: Path) -> Generation:
        manifest = _manifest(path)
        if manifest["format_version"] > FORMAT_VERSION:
            raise CheckpointError(
                f"{path} has format {manifest['format_version']}, newer than {FORMAT_VERSION}; "
                "resume with the version of bigsvm that wrote it"
            )
        stored = manifest["fingerprint"]
        different = [
            f"{key} (checkpoint: {stored.get(key)}, now: {self._fingerprint.get(key)})"
            for key in sorted(stored.keys() | self._fingerprint.keys())
            if stored.get(key) != self._fingerprint.get(key)
        ]
        if different:
            raise CheckpointError(
                f"the checkpoint in {self.directory} belongs to another run: "
                f"{'; '.join(different)}; give the same values, or another directory"
            )
        arrays = {}
        for name, entry in manifest["arrays"].items():
            data = np.fromfile(path / f"{name}.bin", np.uint8)
            if xxhash.xxh3_128_hexdigest(data.data) != entry["xxh3"]:
                raise ValueError(f"{name}.bin is damaged")
            arrays[name] = data.view(np.dtype(entry["dtype"])).reshape(entry["shape"])
        return Generation(number, arrays, manifest["values"])


def newest_manifest(directory: Path) -> dict[str, Any] | None:
    """Read what the newest whole generation of a directory says, without owning the directory.

    Of its arrays nothing is read or checked. None where there is no generation that is whole.
    """
    for path in sorted(directory.glob("generation-*"), reverse=True):
        try:
            if _GENERATION.fullmatch(path.name):
                return _manifest(path)
        except (OSError, ValueError):
            continue  # damaged, or just removed by the run that owns it
    return None


def _manifest(path: Path) -> dict[str, Any]:
    text, _, digest = (path / "manifest.json").read_bytes().rstrip().rpartition(b"\n")
    if xxhash.xxh3_128_hexdigest(text).encode() != digest:
        raise ValueError("the manifest is damaged")
    manifest: dict[str, Any] = json.loads(text)
    return manifest

"""Files of a generation of a checkpoint: its manifest, and arrays as plain bytes.

Their origin is not known: every size, type and hash is checked before it is used.
"""

from __future__ import annotations

import math
import os
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from bigsvm.declared import FINITE, INTEGERS, REALS, check_fields
from bigsvm.files import open_regular, parse_json

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

ENDED = "ended.json"
"""Name of the file that says why a run has ended."""
MOST_ENDED_BYTES = 1 << 12
"""Largest record of an end in bytes."""
MOST_MANIFEST_BYTES = 1 << 26
"""Largest manifest in bytes: parsing takes several times as much memory."""
_GENERATION = re.compile(r"generation-([0-9]{8,18})")
_ARRAY_NAME = re.compile(r"[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)*")
_END = {"format_version": {1}, "stop_reason": str, "converged": bool}
"""Fields of the record of an end."""
_ARRAY = {"dtype": {REALS, INTEGERS}, "shape": [int], "xxh3": str}
_MANIFEST = {
    "format_version": int,
    "generation": int,
    "snapshot_time": FINITE,
    "fingerprint": {str: str},
    "values": dict,
    "arrays": {str: _ARRAY},
}
"""Fields of a manifest."""


def newest_manifest(directory: Path) -> dict[str, Any] | None:
    """Read what the newest whole generation of a directory says, without owning the directory.

    Arrays are neither read nor checked. None if no generation is whole.
    """
    if not directory.is_dir():
        return None
    for _, path in generations_in(directory):
        try:
            return manifest_of(path)
        except (OSError, ValueError):
            continue  # damaged, or just removed by the run that owns it
    return None


def recorded_end(directory: Path) -> tuple[str, bool] | None:
    """Read why the run in a checkpoint directory has ended, and whether it converged.

    None where it has not ended, or `Checkpoint.end` has not written what is there.
    """
    try:
        with open_regular(directory / ENDED, follow_links=False) as file:
            record: Any = parse_json(file.read(MOST_ENDED_BYTES))
        check_fields("the end", record, _END, required=_END)
    except (OSError, ValueError):
        return None
    return record["stop_reason"], record["converged"]


def generations_in(directory: Path) -> list[tuple[int, Path]]:
    """List numbers and folders of the generations, the newest first."""
    generations = []
    for path in directory.iterdir():
        match = _GENERATION.fullmatch(path.name)
        if match:
            generations.append((int(match[1]), path))
    return sorted(generations, reverse=True)


def manifest_of(path: Path) -> dict[str, Any]:
    """Read the manifest of a generation, and check the types of its entries."""
    if path.is_symlink():
        raise ValueError("it is a link, which is not followed")
    with open_regular(path / "manifest.json", follow_links=False) as file:
        return parse_manifest(file.read(MOST_MANIFEST_BYTES + 1))


def parse_manifest(data: bytes) -> dict[str, Any]:
    """Parse a manifest, and check its hash and the types of its entries."""
    if len(data) > MOST_MANIFEST_BYTES:
        raise ValueError("the manifest is too large")
    text, _, digest = data.rstrip().rpartition(b"\n")
    if xxhash.xxh3_128_hexdigest(text).encode() != digest:
        raise ValueError("the manifest is damaged")
    manifest: Any = parse_json(text)
    check_fields("the manifest", manifest, _MANIFEST, required=_MANIFEST)
    if not all(map(_ARRAY_NAME.fullmatch, manifest["arrays"])):
        raise ValueError("the manifest has an array with another name than bigsvm gives")
    checked: dict[str, Any] = manifest
    return checked


def bytes_of(entry: Mapping[str, Any]) -> int:
    """Size of an array in a manifest."""
    n_bytes: int = 8 * math.prod(entry["shape"])
    return n_bytes


def array_of(path: Path, entry: Mapping[str, Any]) -> NDArray[Any]:
    """Read an array of a manifest; its file must have exactly the size of its shape."""
    with open_regular(path, follow_links=False) as file:
        size, n_bytes = os.fstat(file.fileno()).st_size, bytes_of(entry)
        if size != n_bytes:
            raise ValueError(f"{path.name} has {size} bytes instead of {n_bytes}")
        data = np.fromfile(file, np.uint8, size)
    if xxhash.xxh3_128_hexdigest(data.data) != entry["xxh3"]:
        raise ValueError(f"{path.name} is damaged")
    array: NDArray[Any] = data.view(entry["dtype"]).reshape(entry["shape"])
    return array

"""Files of a generation of a checkpoint: its manifest, and arrays as plain bytes.

Their origin is not known: every size, type and hash is checked before it is used.
"""

from __future__ import annotations

import math
import os
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xxhash

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


class Outline(NamedTuple):
    """Type and shape of a saved array in the manifest."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        """Size of the file in bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


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
        version, reason, converged = (
            record[name] for name in ("format_version", "stop_reason", "converged")
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if version != 1 or not isinstance(reason, str) or not isinstance(converged, bool):
        return None
    return reason, converged


def generations_in(directory: Path) -> list[tuple[int, Path]]:
    """List numbers and folders of the generations, the newest first."""
    generations = []
    for path in directory.iterdir():
        match = _GENERATION.fullmatch(path.name)
        if match:
            generations.append((int(match[1]), path))
    return sorted(generations, reverse=True)


_MANIFEST_KINDS: dict[str, tuple[type, ...]] = {
    "format_version": (int,),
    "generation": (int,),
    "snapshot_time": (int, float),
    "fingerprint": (dict,),
    "values": (dict,),
    "arrays": (dict,),
}
"""Entries of a manifest and their types."""


def manifest_of(path: Path) -> dict[str, Any]:
    """Read the manifest of a generation, and check the types of its entries.

    Raises
    ------
    OSError, ValueError
    """
    if path.is_symlink():
        raise ValueError("it is a link, which is not followed")
    with open_regular(path / "manifest.json", follow_links=False) as file:
        return parse_manifest(file.read(MOST_MANIFEST_BYTES + 1))


def parse_manifest(data: bytes) -> dict[str, Any]:
    """Parse a manifest, and check its hash and the types of its entries.

    Raises
    ------
    ValueError
    """
    if len(data) > MOST_MANIFEST_BYTES:
        raise ValueError("the manifest is too large")
    text, _, digest = data.rstrip().rpartition(b"\n")
    if xxhash.xxh3_128_hexdigest(text).encode() != digest:
        raise ValueError("the manifest is damaged")
    manifest = parse_json(text)
    if not isinstance(manifest, dict):
        raise ValueError("the manifest is no JSON object")
    for name, kinds in _MANIFEST_KINDS.items():
        found = manifest.get(name)
        if not isinstance(found, kinds) or isinstance(found, bool):
            raise ValueError(f"{name} of the manifest is {_shown(found)}")
    for name, word in manifest["fingerprint"].items():
        if not isinstance(word, str):
            raise ValueError(f"{name} of the fingerprint is {_shown(word)}")
    return manifest


def outlines_in(arrays: dict[str, Any]) -> dict[str, Outline]:
    """Read type and shape of each array of a manifest."""
    outlines = {}
    for name, entry in arrays.items():
        if not _ARRAY_NAME.fullmatch(name) or not isinstance(entry, dict):
            raise ValueError(f"the manifest has no array {_shown(name)}")
        dtype, shape = entry.get("dtype"), entry.get("shape")
        if dtype not in ("<f8", "<i8"):
            raise ValueError(f"{name} is of type {_shown(dtype)}")
        if not isinstance(shape, list) or not all(_is_size(size) for size in shape):
            raise ValueError(f"the shape of {name} is {_shown(shape)}")
        outlines[name] = Outline(dtype, tuple(shape))
    return outlines


def outlines_of(arrays: Mapping[str, NDArray[Any]]) -> dict[str, Outline]:
    """Return type and shape of arrays in memory."""
    return {name: Outline(array.dtype.str, array.shape) for name, array in arrays.items()}


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value <= np.iinfo(np.int64).max


def array_of(path: Path, outline: Outline, digest: object) -> NDArray[Any]:
    """Read an array whose file must have exactly the size of its shape."""
    with open_regular(path, follow_links=False) as file:
        size = os.fstat(file.fileno()).st_size
        if size != outline.n_bytes:
            raise ValueError(f"{path.name} has {size} bytes instead of {outline.n_bytes}")
        data = np.fromfile(file, np.uint8, size)
    if xxhash.xxh3_128_hexdigest(data.data) != digest:
        raise ValueError(f"{path.name} is damaged")
    return data.view(np.dtype(outline.dtype)).reshape(outline.shape)


def _shown(value: object) -> str:
    """Show a value of unknown origin in a few characters."""
    word = repr(value) if not isinstance(value, dict | list) else f"a {type(value).__name__}"
    return word if len(word) <= 40 else f"{word[:37]}..."

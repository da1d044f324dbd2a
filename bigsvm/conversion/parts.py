"""Files of one data set: a folder of parts or a pattern stands for its files."""

from __future__ import annotations

import os
from glob import glob, has_magic
from pathlib import Path
from typing import TYPE_CHECKING

from bigsvm.conversion.streams import STANDARD_INPUT
from bigsvm.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bigsvm.conversion.streams import Source

HIDDEN = (".", "_")
"""First characters of files that are no parts: who writes parts may leave ``_SUCCESS`` there."""


def files_of(sources: Iterable[Source]) -> list[Source]:
    """Replace local folders and patterns such as ``parts/*.txt`` by their files, in order of names.

    A name with ``*``, ``?`` or ``[`` is a pattern only if no file has it. URLs and standard input
    are left alone. Files whose name begins with a dot or an underscore are left out of a folder. A
    folder of Zarr, or one with folders or no files, is refused, and so is a pattern that no file
    matches.
    """
    found: list[Source] = []
    for source in sources:
        name = os.fspath(source)
        if name == STANDARD_INPUT or "://" in name:
            found.append(source)
        elif Path(name).is_dir():
            found += _files_below(Path(name))
        elif has_magic(name) and not Path(name).exists():
            matches = sorted(glob(name))
            if not matches:
                raise DataError(f"{name}: no file matches; check the path")
            found += matches
        else:
            found.append(source)
    return found


def _files_below(folder: Path) -> list[Source]:
    """Files of a folder, in the order of their names."""
    if (folder / "zarr.json").exists():
        raise DataError(
            f"{folder}: this is Zarr and no text; a store is used as it is, and "
            "`bigsvm.write_store` makes one of other arrays"
        )
    files: list[Source] = [
        path for path in sorted(folder.iterdir()) if not path.name.startswith(HIDDEN)
    ]
    if not files:
        raise DataError(f"{folder}: there are no files in this folder; check the path")
    if any(Path(file).is_dir() for file in files):
        raise DataError(f"{folder}: there are folders in this folder; give the files of text")
    return files

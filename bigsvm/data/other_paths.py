"""Messages for paths that are not stores: what is there, and what to give instead."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from bigsvm.data.place import Folder
from bigsvm.data.schema import MAKING
from bigsvm.data.signatures import HEAD_BYTES, other_format
from bigsvm.files import open_regular

if TYPE_CHECKING:
    from bigsvm.data.place import Place

_MOST_BYTES = 1 << 20
"""Most bytes of Zarr metadata that are read to identify an array or group."""


def not_a_store(place: Place) -> str:
    """Sentence that says what is at a place and what to give instead."""
    kind = _zarr_kind(place)
    if kind is not None:
        return (
            f"{place}: a Zarr {kind}, but not a bigsvm store; give zarr.open_{kind}({str(place)!r})"
            ", or make a store of that with bigsvm.write_store"
        )
    if not isinstance(place, Folder):
        if place.exists(MAKING):
            return (
                f"{place}: is being made, or the process that made it was stopped; wait for it, or "
                "convert the data again"
            )
        return (
            f"{place}: no store there (no zarr.json); check the URL, or make one with `bigsvm "
            "convert`"
        )
    path = place.path
    if path.is_dir():
        return f"{path}: not a store (no zarr.json); make one with `bigsvm convert`"
    if not path.exists():
        return f"{path}: no such folder; check the path"
    try:
        with open_regular(path, follow_links=True) as file:
            other = other_format(file.read(HEAD_BYTES))
    except OSError as error:
        return f"{path}: not a store, and cannot be read ({error.strerror or error})"
    if other is not None:
        what, remedy = other
        return f"{path}: this is {what}, not a store; {remedy}"
    return (
        f"{path}: a file, and a store is a folder; make one of LIBSVM text with `bigsvm convert` "
        "or `bigsvm.convert`, and of arrays with `bigsvm.write_store`"
    )


def _zarr_kind(place: Place) -> str | None:
    """Tell whether a place is an array or a group of Zarr, of either format."""
    try:
        for name, kind in ((".zarray", "array"), (".zgroup", "group")):
            if place.exists(name):
                return kind
        content = json.loads(place.part("zarr.json", 0, _MOST_BYTES))
        kind = content["node_type"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return kind if kind in ("array", "group") else None

"""What a store says about itself, read and checked before a byte of its data is."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigsvm.data.place import Folder
from bigsvm.data.schema import (
    CSR,
    DENSE,
    FORMAT_VERSION,
    KEY,
    MAKING,
    MOST_COLUMNS,
    NAME,
    REMEDY,
    ZSTD_LEVEL,
    ArraySpec,
    StoreAttributes,
    array_metadata,
    checksum,
    fingerprints,
)
from bigsvm.data.signatures import HEAD_BYTES, other_format
from bigsvm.declared import FINITE, Within, check_fields, is_count
from bigsvm.encoding import ENCODING, check_encoding
from bigsvm.errors import DataCorruptionError, StoreError, brief
from bigsvm.files import open_regular, parse_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bigsvm.data.place import Place

MAX_CHUNK_BYTES = 4 << 20
"""Most decoded bytes of a chunk with several rows: conversion writes chunks of at most twice
`schema.CHUNK_BYTES`."""
MAX_ROW_BYTES = 256 << 20
"""Most bytes of a row, which may be a chunk by itself."""
_MAX_CHUNKS_PER_SHARD = 1 << 16
_MAX_ROOT_JSON = 64 << 20
"""Largest metadata file in bytes: room for the hashes of about three terabytes."""
MAX_ARRAY_JSON = 1 << 16
"""Largest metadata file of an array in bytes."""
_MAX_BRACKETS = 1 << 16
"""Most lists and objects in a file: `MAX_LABEL_COUNTS` pairs, and a few more."""
_LEAST_BYTES_OF_ITEMS = 12
"""Fewest bytes of text per list item: Zarr indents its lists of hashes and names, so items are
longer. Shorter items would take many times the memory of their text."""


def _parse(data: bytes, where: str) -> dict[str, Any]:
    """Parse the JSON object of a file, in memory of a few times its size."""
    items = data.count(b",") + data.count(b"[") + data.count(b"{")
    if (
        data.count(b"[") + data.count(b"{") > _MAX_BRACKETS
        or items > _MAX_BRACKETS + len(data) // _LEAST_BYTES_OF_ITEMS
    ):
        raise DataCorruptionError(f"{where}: has more items than a store needs; {REMEDY}")
    try:
        content = parse_json(data)
    except ValueError as error:
        raise DataCorruptionError(f"{where}: not valid JSON ({error}); {REMEDY}") from error
    if not isinstance(content, dict):
        raise DataCorruptionError(f"{where}: not a JSON object; {REMEDY}")
    return content


def _record(content: dict[str, Any]) -> dict[str, Any] | None:
    """Return the record under `KEY` in the metadata of a hierarchy, None if it is no store's."""
    attributes = content.get("attributes")
    record = attributes.get(KEY) if isinstance(attributes, dict) else None
    return record if content.get("node_type") == "group" and isinstance(record, dict) else None


def is_store(place: Place) -> bool:
    """Whether the metadata at a place is that of a store, complete or not."""
    try:
        return _record(_parse(place.read(NAME, _MAX_ROOT_JSON), f"{place}/{NAME}")) is not None
    except (StoreError, OSError):
        return False


def check_files(path: Path) -> None:
    """Refuse a store that contains anything other than folders and regular files.

    A link may lead out of the store, and reading a pipe or a device may never end.
    """
    folders = [path]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(Path(entry.path))
                elif not entry.is_file(follow_symlinks=False):
                    kind = "symbolic link" if entry.is_symlink() else "pipe, socket or device"
                    raise StoreError(
                        f"{path}: {Path(entry.path).relative_to(path)} is a {kind}, which a store "
                        "has none of; copy the store itself"
                    )


def read_attributes(place: Place) -> StoreAttributes:
    """Read and check the attributes of the store at a place."""
    try:
        content = _parse(place.read(NAME, _MAX_ROOT_JSON), f"{place}/{NAME}")
    except (FileNotFoundError, NotADirectoryError):
        raise StoreError(not_a_store(place)) from None
    record = _record(content)
    if record is None:
        raise StoreError(not_a_store(place))
    if record.get("complete") is not True:
        raise StoreError(f"{place}: not complete, its conversion did not finish; {REMEDY}")
    version = record.get("format_version")
    if type(version) is not int or version < 1:
        raise DataCorruptionError(f"{place}: format_version is {version!r}; {REMEDY}")
    if version > FORMAT_VERSION:
        raise StoreError(
            f"{place}: format version {version}, but this bigsvm reads up to {FORMAT_VERSION}; "
            "install a newer bigsvm"
        )
    try:
        if record.get("checksum") != checksum(record):
            raise DataCorruptionError(
                f"{place}: the attributes were changed after writing; {REMEDY}"
            )
        return _attributes_from_json(record)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise DataCorruptionError(
            f"{place}: attributes are not valid ({error}); {REMEDY}"
        ) from error


ATTRIBUTES = {
    **dict.fromkeys(("format_version", "n_rows", "n_columns", "n_nonzero"), int),
    "dtype": {"float32", "float64"},
    "layout": {DENSE, CSR},
    "shuffled": bool,
    "seed": (Within(0, 2**64 - 1, is_whole=True), None),
    "label_counts": ([[FINITE, Within(1, 2**63 - 1, is_whole=True)]], None),
    # Those of very large values are infinite or NaN.
    **dict.fromkeys(("mean", "variance"), float),
    "sources": [str],
    "first_index": ({0, 1}, None),
    "manifest": {str: [str]},
    **dict.fromkeys(("fingerprint", "rows_fingerprint"), str),
    "scaler": (str, None),
    **dict.fromkeys(("feature_names", "class_names"), ([str], None)),
    "encoding": (ENCODING, None),
    **dict.fromkeys(("listed_columns", "scaler_columns"), (int, None)),
    "earlier": ([[Within(1, 2**63 - 1, is_whole=True), str]], None),
}
"""Fields of the record of a store. Those that may be None may be absent."""


def _attributes_from_json(record: Mapping[str, Any]) -> StoreAttributes:
    """Build the attributes; raises `ValueError` or `OverflowError` if the record makes no sense."""
    values: dict[str, Any] = {name: record.get(name) for name in ATTRIBUTES}
    check_fields("the attributes", values, ATTRIBUTES)
    for name, value in values.items():
        if isinstance(value, list):
            values[name] = tuple(value)
    for name in ("mean", "variance"):
        values[name] = float(values[name])
    values["manifest"] = {path: tuple(hashes) for path, hashes in values["manifest"].items()}
    if values["label_counts"] is not None:
        values["label_counts"] = tuple((float(label), n) for label, n in values["label_counts"])
    if values["earlier"] is not None:
        values["earlier"] = tuple((n, rows) for n, rows in values["earlier"])
    a = StoreAttributes(**values)
    if a.n_rows < 1 or a.n_columns < 1 or a.n_nonzero > a.n_rows * a.n_columns:
        raise ValueError(
            f"{a.n_rows} rows of {a.n_columns} columns with {a.n_nonzero} values other than 0"
        )
    n_values = a.n_rows * a.n_columns if a.layout == DENSE else max(a.n_rows, a.n_nonzero)
    if n_values * 8 >= 2**63 or (a.layout == CSR and a.n_columns > MOST_COLUMNS):
        raise ValueError(f"{a.n_rows} rows of {a.n_columns} columns are too many")
    for listed in (a.listed_columns, a.scaler_columns):
        if listed is not None and not (a.layout == CSR and listed <= a.n_columns):
            raise ValueError(f"{listed} of {a.n_columns} columns are listed")
    if a.earlier is not None and not (a.earlier and max(a.earlier)[0] < a.n_rows):
        raise ValueError(f"earlier stores of more than {a.n_rows} rows, or none")
    if a.scaler is None and a.scaler_columns is not None:
        raise ValueError("columns of a scaler are listed, but there is none")
    if a.feature_names is not None and len(a.feature_names) != a.n_columns:
        raise ValueError(f"{len(a.feature_names)} names of {a.n_columns} columns")
    check_encoding(a.encoding, a.feature_names)
    if a.label_counts is not None:
        labels, counted = [label for label, _ in a.label_counts], sum(n for _, n in a.label_counts)
        if sorted(set(labels)) != labels or counted != a.n_rows:
            raise ValueError(
                f"label_counts do not ascend, or add up to {counted} rows instead of {a.n_rows}"
            )
    if a.class_names is not None:
        if not a.class_names or sorted(set(a.class_names)) != list(a.class_names):
            raise ValueError("class_names are empty or not in ascending order")
        if a.label_counts and labels != list(range(len(a.class_names))):
            raise ValueError(f"label_counts has other labels than {len(a.class_names)} class_names")
    expected = fingerprints(a.n_rows, a.n_columns, a.dtype, a.layout, a.manifest)
    if (a.fingerprint, a.rows_fingerprint) != expected:
        raise ValueError("the fingerprint is not that of the manifest")
    return a


def check_array(where: str, data: bytes | None, expected: ArraySpec, n_hashes: int) -> ArraySpec:
    """Compare the metadata of one array with the attributes; `expected` with its real chunks.

    Messages call the array `where`. `data` is its metadata file, None if there is none; the
    manifest has `n_hashes` chunks.
    """
    if data is None:
        raise DataCorruptionError(f"{where} is missing; {REMEDY}")
    metadata = _parse(data, where)
    try:
        spec = _with_chunks(expected, metadata)
    except (LookupError, TypeError, ValueError) as error:
        raise DataCorruptionError(f"{where} is not as written ({error}); {REMEDY}") from error
    limit = MAX_ROW_BYTES if spec.chunk_rows == 1 else MAX_CHUNK_BYTES
    if spec.chunk_bytes > limit:
        raise DataCorruptionError(
            f"{where} has chunks of {spec.chunk_bytes} bytes, more than the limit {limit}; {REMEDY}"
        )
    if spec.n_chunks != n_hashes:
        raise DataCorruptionError(
            f"{where} has {spec.n_chunks} chunks, but the manifest has {n_hashes}; {REMEDY}"
        )
    return spec


def _with_chunks(expected: ArraySpec, metadata: dict[str, Any]) -> ArraySpec:
    """Return `expected` with the chunks of the metadata, which must be those of such an array.

    Raises `LookupError`, `TypeError` or `ValueError` if the metadata are not what
    `bigsvm.data.schema.array_metadata` makes for any chunks.
    """
    sharding, n = metadata["codecs"][0]["configuration"], expected.shape[0]
    [shard, *_], [chunk, *_] = (
        about["chunk_shape"] for about in (metadata["chunk_grid"]["configuration"], sharding)
    )
    if (
        not (is_count(shard) and is_count(chunk))
        or not 1 <= chunk <= shard <= chunk * _MAX_CHUNKS_PER_SHARD
        or shard % chunk
        or chunk > max(n, 1)
    ):
        raise ValueError(
            f"chunks of {brief(chunk)} rows in shards of {brief(shard)} rows of an array of {n}"
        )
    spec = expected._replace(chunk_rows=chunk, chunks_per_shard=shard // chunk)
    # Any level of compression is read; fill values, attributes and names of axes do not matter.
    sharding["codecs"][1]["configuration"]["level"] = ZSTD_LEVEL
    for name, wanted in array_metadata(spec).items():
        if name in ("fill_value", "attributes", "dimension_names"):
            continue
        found = metadata[name]
        if _text(found) != _text(wanted):  # as text, true is not 1
            raise ValueError(f"{name} is {brief(found)} instead of {brief(wanted)}")
    return spec


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True)


# -- what is at other paths ---------------------------------------------------------------------

_MOST_ZARR_JSON = 1 << 20
"""Most bytes of Zarr metadata that are read to identify an array or group."""


def not_a_store(place: Place) -> str:
    """Sentence that says what is at a place and what to give instead."""
    kind = _zarr_kind(place)
    if kind is not None:
        way = f"zarr.open_{kind}({str(place)!r})"
        if any(place.exists(f"X/{name}") for name in ("zarr.json", ".zarray", ".zgroup")):
            way += "['X']"  # the matrix of AnnData
        return (
            f"{place}: a Zarr {kind}, but not a bigsvm store; give {way}"
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
        "or `bigsvm.convert`, and of arrays with `bigsvm.write_store`; of CSV name the column of "
        "its labels, as with --label, label= or the y of fit"
    )


def _zarr_kind(place: Place) -> str | None:
    """Tell whether a place is an array or a group of Zarr, of either format."""
    try:
        for name, kind in ((".zarray", "array"), (".zgroup", "group")):
            if place.exists(name):
                return kind
        content = json.loads(place.part("zarr.json", 0, _MOST_ZARR_JSON))
        kind = content["node_type"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return kind if kind in ("array", "group") else None

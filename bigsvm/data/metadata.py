"""What a store says about itself, read and checked before a byte of its data is."""

from __future__ import annotations

import math
import os
import reprlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from bigsvm.data.other_paths import not_a_store
from bigsvm.data.schema import (
    CSR,
    DENSE,
    FORMAT_VERSION,
    KEY,
    MOST_COLUMNS,
    NAME,
    REMEDY,
    ArraySpec,
    StoreAttributes,
    checksum,
    fingerprints,
)
from bigsvm.errors import DataCorruptionError, StoreError
from bigsvm.files import parse_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bigsvm.data.place import Place

T = TypeVar("T")
MAX_CHUNK_BYTES = 4 << 20
"""Most decoded bytes of a chunk with several rows: conversion writes chunks of at most twice
`schema.CHUNK_BYTES`."""
MAX_ROW_BYTES = 256 << 20
"""Most bytes of a row, which may be a chunk by itself."""
_MAX_CHUNKS_PER_SHARD = 1 << 16
_MAX_ROOT_JSON = 64 << 20
"""Largest metadata file in bytes: room for the hashes of about three terabytes."""
_MAX_ARRAY_JSON = 1 << 16
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

    Raises
    ------
    StoreError
        If there is a link, a pipe or a device: a link may lead out of the store, and reading a
        pipe or a device may never end.
    OSError
        If a folder cannot be read.
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
    """Read and check the attributes of the store at a place.

    Raises
    ------
    StoreError
        If there is no store, or it is not complete, has a newer format or cannot be reached.
    DataCorruptionError
        If the attributes are not those that were written.
    """
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


def _field(record: Mapping[str, Any], name: str, kind: type[T], *, optional: bool = False) -> T:
    """Value of an attribute of exactly this type; None if it is optional and absent."""
    if name not in record and not optional:
        raise KeyError(f"{name} is missing")
    value = record.get(name)
    # The exact type is compared, as True is an int too.
    if type(value) is not kind and not (optional and value is None):
        raise TypeError(f"{name} is {reprlib.repr(value)}, which is no {kind.__name__}")
    if type(value) is int and not 0 <= value < 2**64:
        raise ValueError(f"{name} is {reprlib.repr(value)}")
    return cast("T", value)


def _number(record: Mapping[str, Any], name: str) -> float:
    """Value of a float attribute, which JSON may write as an integer."""
    value = record.get(name)
    return float(value) if type(value) is int else _field(record, name, float)


def _list(record: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Value of an attribute that is a list of words."""
    values = _field(record, name, list)
    if not all(type(value) is str for value in values):
        raise TypeError(f"{name} is no list of words")
    return tuple(values)


def _label_counts(record: Mapping[str, Any], n_rows: int) -> tuple[tuple[float, int], ...] | None:
    """Labels in ascending order with their numbers of rows, which add up to all rows."""
    pairs = cast("Any", _field(record, "label_counts", list, optional=True))
    if pairs is None:
        return None
    counts = []
    for pair in pairs:
        if type(pair) is not list or [type(part) for part in pair] not in (
            [float, int],
            [int, int],
        ):
            raise TypeError(
                f"label_counts has {reprlib.repr(pair)} instead of a label and its rows"
            )
        counts.append((float(pair[0]), pair[1]))
    labels = [label for label, _ in counts]
    rows = [n for _, n in counts]
    if not all(map(math.isfinite, labels)) or sorted(set(labels)) != labels:
        raise ValueError("label_counts has labels that are not finite, or do not ascend")
    if min(rows, default=0) < 1 or sum(rows) != n_rows:
        raise ValueError(f"label_counts adds up to {sum(rows)} rows instead of {n_rows}")
    return tuple(counts)


def _check_class_names(
    names: tuple[str, ...], label_counts: tuple[tuple[float, int], ...] | None
) -> None:
    """Refuse names that are not sorted, or labels that are not places in them.

    Raises
    ------
    ValueError
    """
    if not names or sorted(set(names)) != list(names):
        raise ValueError("class_names are empty or not in ascending order")
    places = [label for label, _ in label_counts or ()]
    if places and places != list(range(len(names))):
        raise ValueError(f"label_counts has other labels than {len(names)} class_names")


def _attributes_from_json(record: Mapping[str, Any]) -> StoreAttributes:
    """Build the attributes.

    Raises
    ------
    KeyError, TypeError, ValueError
        If the record makes no sense.
    """
    n_rows = _field(record, "n_rows", int)
    hashes = _field(record, "manifest", dict)
    names, classes = (
        _field(record, name, list, optional=True) for name in ("feature_names", "class_names")
    )
    a = StoreAttributes(
        format_version=_field(record, "format_version", int),
        n_rows=n_rows,
        n_columns=_field(record, "n_columns", int),
        n_nonzero=_field(record, "n_nonzero", int),
        dtype=_field(record, "dtype", str),
        layout=_field(record, "layout", str),
        shuffled=_field(record, "shuffled", bool),
        seed=_field(record, "seed", int, optional=True),
        label_counts=_label_counts(record, n_rows),
        mean=_number(record, "mean"),
        variance=_number(record, "variance"),
        sources=_list(record, "sources"),
        first_index=_field(record, "first_index", int, optional=True),
        manifest={path: _list(hashes, path) for path in hashes},
        fingerprint=_field(record, "fingerprint", str),
        rows_fingerprint=_field(record, "rows_fingerprint", str),
        scaler=_field(record, "scaler", str, optional=True),
        feature_names=None if names is None else _list(record, "feature_names"),
        class_names=None if classes is None else _list(record, "class_names"),
        listed_columns=_field(record, "listed_columns", int, optional=True),
        scaler_columns=_field(record, "scaler_columns", int, optional=True),
    )
    if a.dtype not in {"float32", "float64"} or a.layout not in {DENSE, CSR}:
        raise ValueError(
            f"dtype {reprlib.repr(a.dtype)} or layout {reprlib.repr(a.layout)} is unknown"
        )
    if a.n_rows < 1 or a.n_columns < 1 or not 0 <= a.n_nonzero <= a.n_rows * a.n_columns:
        raise ValueError(
            f"{a.n_rows} rows of {a.n_columns} columns with {a.n_nonzero} values other than 0"
        )
    n_values = a.n_rows * a.n_columns if a.layout == DENSE else max(a.n_rows, a.n_nonzero)
    if n_values * 8 >= 2**63 or (a.layout == CSR and a.n_columns > MOST_COLUMNS):
        raise ValueError(f"{a.n_rows} rows of {a.n_columns} columns are too many")
    for listed in (a.listed_columns, a.scaler_columns):
        if listed is not None and not (a.layout == CSR and listed <= a.n_columns):
            raise ValueError(f"{listed} of {a.n_columns} columns are listed")
    if a.scaler is None and a.scaler_columns is not None:
        raise ValueError("columns of a scaler are listed, but there is none")
    if a.feature_names is not None and len(a.feature_names) != a.n_columns:
        raise ValueError(f"{len(a.feature_names)} names of {a.n_columns} columns")
    if a.class_names is not None:
        _check_class_names(a.class_names, a.label_counts)
    if a.first_index not in (None, 0, 1):
        raise ValueError(f"first_index is {a.first_index}")
    expected = fingerprints(a.n_rows, a.n_columns, a.dtype, a.layout, a.manifest)
    if (a.fingerprint, a.rows_fingerprint) != expected:
        raise ValueError("the fingerprint is not that of the manifest")
    return a


def _codec_names(codecs: object) -> list[tuple[str, dict[str, Any]]]:
    """Names and configurations of a chain of codecs."""
    return [(c["name"], c.get("configuration", {})) for c in cast("list[dict[str, Any]]", codecs)]


def _sizes(values: object, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of chunks or shards, which span all columns of their array."""
    if type(values) is not list or not all(type(size) is int for size in values):
        raise TypeError(f"{reprlib.repr(values)} is no shape")
    if len(values) != len(shape) or tuple(values[1:]) != shape[1:]:
        raise ValueError(f"chunks {reprlib.repr(values)} do not span the columns of {shape}")
    return tuple(values)


def _chunks(metadata: Mapping[str, Any], shape: tuple[int, ...]) -> tuple[int, int]:
    """Rows per chunk and chunks per shard; array metadata that `writer` cannot write is refused.

    Raises
    ------
    KeyError, TypeError, ValueError, AttributeError
        If it cannot.
    """
    shard = _sizes(metadata["chunk_grid"]["configuration"]["chunk_shape"], shape)
    if metadata["chunk_grid"]["name"] != "regular" or metadata.get("storage_transformers"):
        raise ValueError("chunks that are not on a regular grid")
    keys = metadata["chunk_key_encoding"]
    if keys["name"] != "default" or keys.get("configuration", {}).get("separator", "/") != "/":
        raise ValueError("chunks under other names")
    [(name, sharding)] = _codec_names(metadata["codecs"])
    (bytes_name, endian), (zstd_name, zstd) = _codec_names(sharding["codecs"])
    if (name, bytes_name, zstd_name) != ("sharding_indexed", "bytes", "zstd"):
        raise ValueError("codecs other than sharding, bytes, zstd")
    if endian.get("endian", "little") != "little" or zstd.get("checksum") is not True:
        raise ValueError("a zstd codec without checksum, or big-endian bytes")
    if [n for n, _ in _codec_names(sharding["index_codecs"])] != ["bytes", "crc32c"]:
        raise ValueError("a shard index without crc32c")
    if sharding.get("index_location", "end") != "end":
        raise ValueError("a shard index that is not at the end")
    chunk = _sizes(sharding["chunk_shape"], shape)
    if (
        not 1 <= chunk[0] <= shard[0] <= chunk[0] * _MAX_CHUNKS_PER_SHARD
        or shard[0] % chunk[0]
        or chunk[0] > max(shape[0], 1)
    ):
        raise ValueError(
            f"chunks of {chunk[0]} rows in shards of {shard[0]} rows of an array of {shape[0]}"
        )
    return chunk[0], shard[0] // chunk[0]


def read_array_metadata(place: Place, names: Sequence[str]) -> list[bytes | None]:
    """Read the metadata files of arrays, at once if they are far; None for those missing.

    Raises
    ------
    StoreError
        If one cannot be reached, or is larger than any of a store.
    OSError
        If one cannot be read.
    """
    return place.read_each([f"{name}/{NAME}" for name in names], _MAX_ARRAY_JSON)


def check_array(where: str, data: bytes | None, expected: ArraySpec, n_hashes: int) -> ArraySpec:
    """Compare the metadata of one array with the attributes; `expected` with its real chunks.

    Parameters
    ----------
    where : str
        What to call the array in messages.
    data : bytes or None
        Its metadata file, from `read_array_metadata`.
    expected : ArraySpec
    n_hashes : int
        Chunks that the manifest has.

    Raises
    ------
    DataCorruptionError
        If the array is missing or is not what the attributes say.
    """
    if data is None:
        raise DataCorruptionError(f"{where} is missing; {REMEDY}")
    metadata = _parse(data, where)
    try:
        if metadata["node_type"] != "array" or metadata["shape"] != list(expected.shape):
            raise ValueError(f"shape {reprlib.repr(metadata['shape'])} instead of {expected.shape}")
        if metadata["data_type"] != expected.dtype.name:
            raise ValueError(
                f"type {reprlib.repr(metadata['data_type'])} instead of {expected.dtype.name}"
            )
        chunk_rows, chunks_per_shard = _chunks(metadata, expected.shape)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataCorruptionError(f"{where} is not as written ({error}); {REMEDY}") from error
    spec = expected._replace(chunk_rows=chunk_rows, chunks_per_shard=chunks_per_shard)
    limit = MAX_ROW_BYTES if chunk_rows == 1 else MAX_CHUNK_BYTES
    if spec.chunk_bytes > limit:
        raise DataCorruptionError(
            f"{where} has chunks of {spec.chunk_bytes} bytes, more than the limit {limit}; {REMEDY}"
        )
    if spec.n_chunks != n_hashes:
        raise DataCorruptionError(
            f"{where} has {spec.n_chunks} chunks, but the manifest has {n_hashes}; {REMEDY}"
        )
    return spec

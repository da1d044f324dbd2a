"""What a store says about itself, read and checked before a byte of its data is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from bigsvm.data.schema import (
    CSR,
    DENSE,
    FORMAT_VERSION,
    KEY,
    REMEDY,
    ArraySpec,
    StoreAttributes,
    checksum,
    fingerprints,
)
from bigsvm.errors import DataCorruptionError, StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_CHUNK_BYTES = 256 << 20
"""Decoded size of the largest chunk that is read: what a hostile store can make us allocate."""
_MAX_ROOT_JSON = 512 << 20
_MAX_ARRAY_JSON = 1 << 20


def _read_json(file: Path, limit: int, remedy: str) -> dict[str, Any]:
    """Read a JSON object from a file of at most `limit` bytes."""
    try:
        if file.stat().st_size > limit:
            raise StoreError(f"{file}: larger than {limit} bytes, which no store needs; {remedy}")
        content = json.loads(file.read_bytes())
    # A deeply nested document ends in RecursionError, bytes that are not UTF-8 in ValueError.
    except (ValueError, RecursionError) as error:
        raise DataCorruptionError(f"{file}: not valid JSON ({error}); {remedy}") from error
    if not isinstance(content, dict):
        raise DataCorruptionError(f"{file}: not a JSON object; {remedy}")
    return content


def _record(content: dict[str, Any]) -> dict[str, Any] | None:
    """Return the record under `KEY` in the metadata of a hierarchy, None if it is no store's."""
    attributes = content.get("attributes")
    record = attributes.get(KEY) if isinstance(attributes, dict) else None
    return record if content.get("node_type") == "group" and isinstance(record, dict) else None


def is_store(path: Path) -> bool:
    """Whether the metadata at `path` is that of a store, complete or not."""
    try:
        return _record(_read_json(path / "zarr.json", _MAX_ROOT_JSON, REMEDY)) is not None
    except StoreError:
        return False


def read_attributes(path: Path) -> StoreAttributes:
    """Read and check the attributes of the store at `path`.

    Raises
    ------
    StoreError
        If `path` is not a store, is not complete, or has a newer format.
    DataCorruptionError
        If the attributes are not those that were written.
    """
    file = path / "zarr.json"
    if not file.is_file():
        if path.is_file():
            raise StoreError(
                f"{path}: a file, and a store is a folder; make one of LIBSVM text with `bigsvm "
                "convert` or `bigsvm.convert`, and of arrays with `bigsvm.write_store`"
            )
        if not path.exists():
            raise StoreError(f"{path}: no such folder; check the path")
        raise StoreError(f"{path}: not a store (no zarr.json); make one with `bigsvm convert`")
    content = _read_json(file, _MAX_ROOT_JSON, REMEDY)
    record = _record(content)
    if record is None:
        raise StoreError(
            f"{path}: a Zarr {content.get('node_type', 'hierarchy')}, but not a bigsvm store; make "
            "one with `bigsvm convert` or `bigsvm.write_store`"
        )
    if record.get("complete") is not True:
        raise StoreError(f"{path}: not complete, its conversion did not finish; {REMEDY}")
    version = record.get("format_version")
    if not isinstance(version, int) or version < 1:
        raise DataCorruptionError(f"{path}: format_version is {version!r}; {REMEDY}")
    if version > FORMAT_VERSION:
        raise StoreError(
            f"{path}: format version {version}, but this bigsvm reads up to {FORMAT_VERSION}; "
            "install a newer bigsvm"
        )
    if record.get("checksum") != checksum(record):
        raise DataCorruptionError(f"{path}: the attributes were changed after writing; {REMEDY}")
    try:
        return _attributes_from_json(record)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DataCorruptionError(
            f"{path}: attributes are not valid ({error}); {REMEDY}"
        ) from error


def _attributes_from_json(record: Mapping[str, Any]) -> StoreAttributes:
    """Build the attributes; an exception of Python's own where the record makes no sense."""
    manifest = {
        str(path): tuple(str(h) for h in hashes) for path, hashes in record["manifest"].items()
    }
    counts = record["label_counts"]
    attributes = StoreAttributes(
        format_version=int(record["format_version"]),
        n_rows=int(record["n_rows"]),
        n_columns=int(record["n_columns"]),
        n_nonzero=int(record["n_nonzero"]),
        dtype=str(record["dtype"]),
        layout=str(record["layout"]),
        shuffled=bool(record["shuffled"]),
        seed=None if record["seed"] is None else int(record["seed"]),
        label_counts=None if counts is None else tuple((float(y), int(n)) for y, n in counts),
        mean=float(record["mean"]),
        variance=float(record["variance"]),
        sources=tuple(str(source) for source in record["sources"]),
        first_index=None if record["first_index"] is None else int(record["first_index"]),
        manifest=manifest,
        fingerprint=str(record["fingerprint"]),
        rows_fingerprint=str(record["rows_fingerprint"]),
        scaler=None if record.get("scaler") is None else str(record["scaler"]),
    )
    a = attributes
    if a.dtype not in {"float32", "float64"} or a.layout not in {DENSE, CSR}:
        raise ValueError(f"dtype {a.dtype!r} or layout {a.layout!r} is unknown")
    if a.n_rows < 1 or a.n_columns < 0 or a.n_nonzero < 0:
        raise ValueError(f"negative size: {a.n_rows} rows, {a.n_columns} columns")
    if max(a.n_rows * max(a.n_columns, 1), a.n_nonzero) * 8 >= 2**63:
        raise ValueError(f"{a.n_rows} rows of {a.n_columns} columns are too many")
    expected = fingerprints(a.n_rows, a.n_columns, a.dtype, a.layout, manifest)
    if (a.fingerprint, a.rows_fingerprint) != expected:
        raise ValueError("the fingerprint is not that of the manifest")
    return attributes


def _codec_names(codecs: object) -> list[tuple[str, dict[str, Any]]]:
    """Names and configurations of a chain of codecs."""
    return [(c["name"], c.get("configuration", {})) for c in cast("list[dict[str, Any]]", codecs)]


def _chunk_rows(metadata: Mapping[str, Any], shape: tuple[int, ...]) -> int:
    """Rows of a chunk, from array metadata whose codecs are those that `writer` writes.

    Raises
    ------
    KeyError, TypeError, ValueError
        If they are not.
    """
    shard = tuple(int(s) for s in metadata["chunk_grid"]["configuration"]["chunk_shape"])
    [(name, sharding)] = _codec_names(metadata["codecs"])
    (bytes_name, endian), (zstd_name, zstd) = _codec_names(sharding["codecs"])
    if (name, bytes_name, zstd_name) != ("sharding_indexed", "bytes", "zstd"):
        raise ValueError("codecs other than sharding, bytes, zstd")
    if endian.get("endian", "little") != "little" or zstd.get("checksum") is not True:
        raise ValueError("a zstd codec without checksum, or big-endian bytes")
    if [n for n, _ in _codec_names(sharding["index_codecs"])] != ["bytes", "crc32c"]:
        raise ValueError("a shard index without crc32c")
    chunk = tuple(int(c) for c in sharding["chunk_shape"])
    if chunk[1:] != shape[1:] or shard[1:] != shape[1:]:
        raise ValueError(f"chunks {chunk} in shards {shard} do not span the columns of {shape}")
    if chunk[0] < 1 or shard[0] < chunk[0] or shard[0] % chunk[0] or shard[0] // chunk[0] > 1 << 16:
        raise ValueError(f"chunks of {chunk[0]} rows in shards of {shard[0]} rows")
    return chunk[0]


def check_array(path: Path, name: str, expected: ArraySpec, n_hashes: int) -> ArraySpec:
    """Compare the metadata of one array with the attributes; `expected` with its real chunks.

    Raises
    ------
    DataCorruptionError
        If the array is missing or is not what the attributes say.
    """
    where = f"{path}: array {name!r}"
    file = path / name / "zarr.json"
    if not file.is_file():
        raise DataCorruptionError(f"{where} is missing; {REMEDY}")
    metadata = _read_json(file, _MAX_ARRAY_JSON, REMEDY)
    try:
        shape = tuple(int(s) for s in metadata["shape"])
        if metadata["node_type"] != "array" or shape != expected.shape:
            raise ValueError(f"shape {shape} instead of {expected.shape}")
        if metadata["data_type"] != expected.dtype.name:
            raise ValueError(f"type {metadata['data_type']!r} instead of {expected.dtype.name}")
        spec = expected._replace(chunk_rows=_chunk_rows(metadata, shape))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise DataCorruptionError(f"{where} is not as written ({error}); {REMEDY}") from error
    if spec.chunk_bytes > MAX_CHUNK_BYTES:
        raise DataCorruptionError(
            f"{where} has chunks of {spec.chunk_bytes} bytes, more than the limit "
            f"{MAX_CHUNK_BYTES}; {REMEDY}"
        )
    if spec.n_chunks != n_hashes:
        raise DataCorruptionError(
            f"{where} has {spec.n_chunks} chunks, but the manifest has {n_hashes}; {REMEDY}"
        )
    return spec

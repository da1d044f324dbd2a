"""The store: its layout, and what it says about itself.

A store is a directory, a Zarr v3 group::

    zarr.json              attributes, under the key "bigsvm": see `StoreAttributes`
    X                      (n, d) float32 or float64, or a group in anndata's encoding
                           csr_matrix 0.1.0: data (nnz,), indices (nnz,) int32,
                           indptr (n + 1,) int64
    y                      (n,) float64, labels as they were given; of labels that are words, their
                           places in the attribute `class_names`
    row                    (n,) int64, number of the row in the input, from 0
    sample_weight          (n,) float64, optional
    statistics/            minimum, maximum, mean, variance: (d,) float64 each; zeros of sparse rows
                           count, the variance is the population's
    scaler/                offset, factor: (d,) float64, by which X was scaled; optional

If few of very many columns occur, `statistics` holds only those, (m,), and another array,
``column``, (m,) int32, lists their numbers in ascending order. The same holds for `scaler`.

Every array is cut along its first axis into chunks (units of reading) inside shards (files), each
chunk compressed with zstd and its checksum. The manifest holds a hash (xxh3, 64 bits) of the
decoded values of each chunk, so that a chunk that is missing, old, or in another's place is found
as well as one with a flipped bit. Fill values are those that no array can hold (NaN, -1): what Zarr
puts in place of a missing chunk never matches.

Hashes do not prove that values are right, as a forger can change the hashes too. So each array has
a range of values (`ArraySpec`), and `bigsvm.data.store_rows` checks that the arrays agree with each
other when they are read.

The last functions make the metadata of groups and arrays, as Zarr version 3 writes them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xxhash

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from bigsvm.encoding import Encoding

FORMAT_VERSION = 4
"""Read up to this, and written as low as possible. 2 has a scaler: who reads no more than 1 would
train models on scaled rows that do not know it. 3 lists columns: who reads no more than 2 would
look for those of all. 4 has appended rows: who reads no more than 3 would take the first rows for
a sample of all."""
KEY = "bigsvm"
DENSE, CSR = "dense", "csr"

CHUNK_BYTES = 2 << 20
"""An X chunk has this or up to twice as much: 2 to 4 ms of decoding, so that the 0.3 ms zarr takes
for each do not matter, and two chunks fit the caches."""
SMALL_CHUNK_BYTES = 1 << 20
CHUNKS_OF_A_STORE = 128
"""Chunks of a smaller X, none below `SMALL_CHUNK_BYTES`: eight chunks are read together, and should
be a small part of a budget smaller than the data."""

VECTOR_CHUNK_BYTES = 1 << 19
"""A chunk of the other arrays has this or up to twice as much: they are read whole, a few
chunks at a time, which should be little beside a small budget."""
MOST_CLASS_NAMES = 1 << 16
"""Most distinct words as labels; more are names of rows, and would make the attributes long."""
MAX_LABEL_COUNTS = 1000
"""More labels are those of a regression; their counts would only make the attributes long."""
NO_CHUNK = 2**64 - 1
"""Offset and size of a chunk that was never written, in the index of a shard, as Zarr has them."""
CRC_BYTES = 4
"""Bytes of the checksum of that index."""
ZSTD_LEVEL = -1
"""Level 1 and up code the letters of values that are noise, a tenth smaller, and are then several
times slower to write and to read; what repeats is nearly as small with this one."""

EXTREMES = ("minimum", "maximum")
STATISTICS = (*EXTREMES, "mean", "variance")
SCALER = ("offset", "factor")
COLUMN = "column"
"""Array that lists the columns of the statistics or the scaler, if these are not all columns."""
MOST_COLUMNS = 2**31 - 1
"""Most columns of sparse rows, whose column numbers are int32."""
REMEDY = "convert the data again"
MAKING = ".making"
"""Object beside a store at a URL that says who makes it."""


SAMPLE, FEATURE, ENTRY = "sample", "feature", "entry"
"""Names of axes: rows, columns, and the stored entries of CSR."""


class ArraySpec(NamedTuple):
    """One array of a store: its shape, its type, its chunks, and the values it may hold.

    The last of the chunks of `chunk_rows` may extend beyond the end of the array. The range of the
    values includes `least` and `largest`; None is for any value. `dimensions` are what the axes
    are, for xarray. `chunks_per_shard` is known once the array has been written.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunk_rows: int
    least: float | None = None
    largest: float | None = None
    dimensions: tuple[str, ...] | None = None
    chunks_per_shard: int = 1

    @property
    def n_chunks(self) -> int:
        """Chunks that hold rows; zarr makes one even for an empty array, which is never read."""
        return -(-self.shape[0] // self.chunk_rows)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row, decoded."""
        return self.dtype.itemsize * int(np.prod(self.shape[1:], dtype=np.int64))

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a whole chunk, decoded."""
        return self.chunk_rows * self.row_bytes

    @property
    def fill_value(self) -> float:
        """Value of a missing chunk, which is never written."""
        return -1 if self.dtype.kind == "i" else float("nan")


@dataclass(frozen=True, kw_only=True)
class StoreAttributes:
    """What a store says about itself.

    Attributes
    ----------
    n_nonzero : int
        Counts the stored entries of CSR, the nonzero values of a dense X.
    dtype : str
        "float32" or "float64".
    layout : str
        "dense" or "csr".
    shuffled : bool
        Whether the rows are in random order, drawn with `seed`.
    label_counts : tuple of (label, count) or None
        Sorted by label; None where there are more than 1000 labels.
    mean, variance : float
        Mean and population variance of all entries of X together.
    sources : tuple of str
        Names of the inputs, without directories.
    first_index : int or None
        Index of column 0 in LIBSVM text, 0 or 1; None of rows that were not text.
    manifest : mapping of str to tuple of str
        Hash of each chunk of each array, as 16 hexadecimal digits.
    fingerprint : str
        Hash of shape, dtype, layout and the chunks of all but the statistics: the identity of the
        content.
    rows_fingerprint : str
        Hash of shape, dtype, layout and the chunks of X.
    scaler : str or None
        Method of the scaler that X has been scaled by.
    feature_names : tuple of str or None
        Names of the columns. Left out where there are none; readers of earlier versions ignore
        them, and read the same rows.
    class_names : tuple of str or None
        Words that the labels are, sorted; array ``y`` then has places in it. Left out where labels
        are numbers; readers of earlier versions take the places for labels.
    encoding : dict or None
        How the rows were made from a table with words or missing values; see `bigsvm.encoding`.
    listed_columns, scaler_columns : int or None
        Numbers of columns that the statistics and the scaler list; None, and then not written, if
        they have all columns.
    earlier : tuple of (n_rows, rows_fingerprint) or None
        Stores that rows were appended to, the oldest first: the first rows are theirs. None, and
        then not written, of a store that was written at once.
    """

    format_version: int
    n_rows: int
    n_columns: int
    n_nonzero: int
    dtype: str
    layout: str
    shuffled: bool
    seed: int | None
    label_counts: tuple[tuple[float, int], ...] | None
    mean: float
    variance: float
    sources: tuple[str, ...]
    first_index: int | None
    manifest: Mapping[str, tuple[str, ...]]
    fingerprint: str
    rows_fingerprint: str
    scaler: str | None = None
    feature_names: tuple[str, ...] | None = None
    class_names: tuple[str, ...] | None = None
    encoding: Encoding | None = None
    listed_columns: int | None = None
    scaler_columns: int | None = None
    earlier: tuple[tuple[int, str], ...] | None = None

    @property
    def has_weights(self) -> bool:
        """Whether the store has an array `sample_weight`."""
        return "sample_weight" in self.manifest

    @property
    def parts(self) -> tuple[tuple[int, str], ...] | None:
        """`earlier` of a store with other rows in the same order, which are no other store's."""
        return None if self.earlier is None else tuple((n, "") for n, _ in self.earlier)


def hash_values(values: NDArray[Any]) -> str:
    """Hash of the bytes of a C-contiguous array: its chunk's entry in the manifest."""
    return xxhash.xxh3_64_hexdigest(values.data.cast("B") if values.size else b"")


def array_specs(
    n_rows: int,
    n_columns: int,
    n_entries: int,
    *,
    dtype: np.dtype[Any],
    layout: str,
    weights: bool,
    scaled: bool = False,
    listed_columns: int | None = None,
    scaler_columns: int | None = None,
) -> dict[str, ArraySpec]:
    """Arrays of a store of this size, with the chunks that a new one gets.

    The last two are as `StoreAttributes` has them.

    The chunks depend on shape and type alone, so that the manifest does not depend on the memory,
    threads or order of the conversion.
    """
    float64, int64 = np.dtype(np.float64), np.dtype(np.int64)
    finite = float(np.finfo(dtype).max)
    finite64 = float(np.finfo(np.float64).max)

    def spec(
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        least: float | None,
        largest: float | None,
        dimensions: tuple[str, ...] = (SAMPLE,),
        target: int | None = None,
    ) -> ArraySpec:
        row_bytes = dtype.itemsize * int(np.prod(shape[1:], dtype=np.int64))
        if target is None:
            wanted = max(SMALL_CHUNK_BYTES, shape[0] * row_bytes // CHUNKS_OF_A_STORE)
            target = min(CHUNK_BYTES, wanted)
        rows = max(1, target // max(row_bytes, 1))
        chunk_rows = max(1, min(1 << (rows - 1).bit_length(), shape[0]))
        return ArraySpec(shape, dtype, chunk_rows, least, largest, dimensions)

    vector = partial(spec, target=VECTOR_CHUNK_BYTES)
    column = partial(vector, dtype=np.dtype(np.int32), least=0, largest=n_columns - 1)
    specs = {}
    if layout == DENSE:
        specs["X"] = spec((n_rows, n_columns), dtype, -finite, finite, (SAMPLE, FEATURE))
    else:
        specs["X/data"] = spec((n_entries,), dtype, -finite, finite, (ENTRY,))
        specs["X/indices"] = spec((n_entries,), np.dtype(np.int32), 0, n_columns - 1, (ENTRY,))
        specs["X/indptr"] = vector((n_rows + 1,), int64, 0, n_entries, ("boundary",))
    specs["y"] = vector((n_rows,), float64, -finite64, finite64)
    specs["row"] = vector((n_rows,), int64, 0, n_rows - 1)
    if weights:
        specs["sample_weight"] = vector((n_rows,), float64, 0, finite64)
    size = n_columns if listed_columns is None else listed_columns
    for name in STATISTICS:
        # Means and variances of very large values overflow; `store_rows` checks them instead.
        limit = finite64 if name in EXTREMES else None
        least = None if limit is None else -limit
        specs[f"statistics/{name}"] = vector((size,), float64, least, limit, (FEATURE,))
    if listed_columns is not None:
        specs[f"statistics/{COLUMN}"] = column((size,), dimensions=(FEATURE,))
    if scaled:
        size = n_columns if scaler_columns is None else scaler_columns
        for name in SCALER:
            specs[f"scaler/{name}"] = vector((size,), float64, -finite64, finite64, (FEATURE,))
        if scaler_columns is not None:
            specs[f"scaler/{COLUMN}"] = column((size,), dimensions=(FEATURE,))
    return specs


def fingerprints(
    n_rows: int, n_columns: int, dtype: str, layout: str, manifest: Mapping[str, tuple[str, ...]]
) -> tuple[str, str]:
    """`StoreAttributes.fingerprint` and `StoreAttributes.rows_fingerprint`.

    Statistics are left out: they follow from X.
    """
    head = f"{n_rows} {n_columns} {dtype} {layout}"
    chunks = {
        path: ",".join(hashes)
        for path, hashes in manifest.items()
        if not path.startswith("statistics/")
    }

    def digest(paths: list[str]) -> str:
        text = "\n".join([head, *(f"{path}:{chunks[path]}" for path in sorted(paths))])
        return xxhash.xxh3_128_hexdigest(text.encode())

    return digest(list(chunks)), digest([path for path in chunks if path.split("/")[0] == "X"])


def checksum(record: Mapping[str, Any]) -> str:
    """Hash of a record of attributes, which is kept beside them."""
    body = {key: value for key, value in record.items() if key not in {"checksum", "complete"}}
    return xxhash.xxh3_128_hexdigest(json.dumps(body, sort_keys=True).encode())


def attributes_to_json(attributes: StoreAttributes) -> dict[str, Any]:
    """Return the record under `KEY`, with its checksum and ``complete``, which makes it a store."""
    # Through JSON, so that the checksum is that of what is read back (lists, not tuples).
    record: dict[str, Any] = json.loads(json.dumps(asdict(attributes)))
    names = ("feature_names", "class_names", "encoding", "listed_columns", "scaler_columns")
    for name in (*names, "earlier"):
        if record[name] is None:
            del record[name]
    return {**record, "checksum": checksum(record), "complete": True}


NAME = "zarr.json"
_LITTLE = {"name": "bytes", "configuration": {"endian": "little"}}
_ZSTD = {"name": "zstd", "configuration": {"level": ZSTD_LEVEL, "checksum": True}}


def write_group(folder: Path, attributes: Mapping[str, Any]) -> None:
    """Make a folder that is a group, or write the attributes of the group again."""
    folder.mkdir(exist_ok=True)
    _write(folder, {"attributes": attributes, "zarr_format": 3, "node_type": "group"})


def write_array(folder: Path, spec: ArraySpec) -> None:
    """Make a folder that is an array without chunks."""
    folder.mkdir()
    _write(folder, array_metadata(spec))


def array_metadata(spec: ArraySpec) -> dict[str, Any]:
    """Return the metadata of an array of a store, as Zarr has them in JSON."""
    rest = spec.shape[1:]
    sharding = {
        "chunk_shape": [spec.chunk_rows, *rest],
        "codecs": [_LITTLE, _ZSTD],
        "index_codecs": [_LITTLE, {"name": "crc32c"}],
        "index_location": "end",
    }
    shard_rows = spec.chunk_rows * spec.chunks_per_shard
    return {
        "shape": spec.shape,
        "data_type": spec.dtype.name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [shard_rows, *rest]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": spec.fill_value if spec.dtype.kind == "i" else "NaN",
        "codecs": [{"name": "sharding_indexed", "configuration": sharding}],
        # anndata reads arrays that say so.
        "attributes": {"encoding-type": "array", "encoding-version": "0.2.0"},
        "dimension_names": spec.dimensions,
        "zarr_format": 3,
        "node_type": "array",
        "storage_transformers": [],
    }


def _write(folder: Path, content: Mapping[str, Any]) -> None:
    (folder / NAME).write_text(json.dumps(content, indent=2), encoding="utf-8")

"""Which chunks of a foreign Zarr array its store has.

Zarr reads a missing chunk as the fill value, whether the chunk was left out because it holds
nothing else or was lost. Only the keys of the store and the index of each shard show which chunks
exist.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bigsvm.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import dask.array as da
    import zarr
    from numpy.typing import NDArray

_MOST_CHUNKS = 1 << 26
"""Most chunks of an accepted array: the table of chunks takes one byte each."""
ABSENT = np.uint64(2**64 - 1)
"""Offset and length of a missing chunk in the index of a shard."""


class Grid(NamedTuple):
    """Chunks of an array, those of shards included.

    Attributes
    ----------
    shape, chunks : tuple of int
    shards : tuple of int
        Shape of a file: that of a shard, or of a chunk without shards.
    """

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    shards: tuple[int, ...]

    @property
    def n_chunks(self) -> tuple[int, ...]:
        """Chunks along each axis."""
        return tuple(-(-n // size) for n, size in zip(self.shape, self.chunks, strict=True))

    @property
    def n_shards(self) -> tuple[int, ...]:
        """Shards along each axis."""
        return tuple(-(-n // size) for n, size in zip(self.shape, self.shards, strict=True))

    @property
    def per_shard(self) -> tuple[int, ...]:
        """Chunks of a shard along each axis."""
        return tuple(a // b for a, b in zip(self.shards, self.chunks, strict=True))

    def of_shard(self, shard: tuple[int, ...]) -> tuple[slice, ...]:
        """Chunks of one shard, in the table of all."""
        sizes = zip(shard, self.per_shard, self.n_chunks, strict=True)
        return tuple(slice(i * size, min((i + 1) * size, n)) for i, size, n in sizes)


def grid_of(array: zarr.Array[Any]) -> Grid:
    """Chunks and shards of an array."""
    return Grid(array.shape, array.chunks, array.shards or array.chunks)


def check_chunks(array: zarr.Array[Any], name: str = "X") -> None:
    """Refuse an array that lacks some of its chunks.

    Parameters
    ----------
    array : zarr.Array
        Zarr array of format 2 or 3, in any store.
    name : str
        What to call it.

    Raises
    ------
    DataError
        A chunk is missing, or this cannot be determined.
    """
    present = _present(array, name)
    if present.all():
        return
    count = present.size - int(np.count_nonzero(present))
    place = tuple(map(int, np.unravel_index(int(present.argmin()), present.shape)))
    raise DataError(
        f"{name} lacks {count} of {present.size} chunks, the first of them at row "
        f"{place[0] * array.chunks[0]}, which Zarr reads as {array.fill_value}: restore what was "
        "lost; where nothing was, as Zarr leaves out chunks that are all fill value, make a store "
        "with bigsvm.write_store(…, allow_missing=True) and use that"
    )


def arrays_below(X: da.Array) -> Iterator[zarr.Array[Any]]:
    """Zarr arrays with the same number of columns that are found in the graph of a Dask array.

    Parameters
    ----------
    X : dask.array.Array, (n_rows, n_columns)
    """
    import zarr

    seen = set()
    for layer in X.dask.layers.values():
        # The array is a separate task, or an argument of all tasks.
        values = [value for value, _ in getattr(layer, "indices", ())]
        if type(layer).__name__ == "MaterializedLayer":
            values += [getattr(task, "value", task) for task in layer.values()]
        for value in values:
            if isinstance(value, zarr.Array) and id(value) not in seen:
                seen.add(id(value))
                if value.ndim == 2 and value.shape[1] == X.shape[1]:
                    yield value


def _present(array: zarr.Array[Any], name: str) -> NDArray[np.bool_]:
    """Which chunks exist, one value for each, in the shape of the grid."""
    from zarr.core.sync import sync

    grid = grid_of(array)
    if 0 in grid.shape:
        return np.ones((), bool)
    if np.prod(grid.n_chunks, dtype=float) > _MOST_CHUNKS:
        raise DataError(
            f"{name} is stored in {np.prod(grid.n_chunks, dtype=float):.3g} chunks, more than "
            f"{_MOST_CHUNKS}; write it again in larger ones"
        )
    files: NDArray[np.bool_] = sync(files_of(array, grid))
    if array.shards is None:
        return files
    present = np.zeros(grid.n_chunks, bool)
    for place in np.argwhere(files):
        shard = tuple(map(int, place))
        among = grid.of_shard(shard)
        index = sync(index_of(array, grid, shard, name))
        inside = tuple(slice(part.stop - part.start) for part in among)
        present[among] = (index != ABSENT).any(axis=-1)[inside]
    return present


def key_of(array: zarr.Array[Any], place: tuple[int, ...]) -> str:
    """Key of a chunk, or shard, in the store."""
    prefix = f"{array.path}/" if array.path else ""
    key: str = prefix + array.metadata.encode_chunk_key(place)
    return key


async def files_of(array: zarr.Array[Any], grid: Grid) -> NDArray[np.bool_]:
    """Which chunks, or shards, have a key in the store."""
    exists = np.zeros(grid.n_shards, bool)
    if not array.store.supports_listing:
        for place in itertools.product(*map(range, grid.n_shards)):
            exists[place] = await array.store.exists(key_of(array, place))
        return exists
    prefix = f"{array.path}/" if array.path else ""
    async for key in array.store.list_prefix(prefix):
        if not key.startswith(prefix):
            continue
        numbers = tuple(map(int, re.findall(r"\d+", key[len(prefix) :])))[-exists.ndim :]
        if len(numbers) == exists.ndim and all(
            i < n for i, n in zip(numbers, exists.shape, strict=True)
        ):
            exists[numbers] |= key_of(array, numbers) == key
    return exists


async def index_of(
    array: zarr.Array[Any], grid: Grid, shard: tuple[int, ...], name: str
) -> NDArray[np.uint64]:
    """Offset and length of each chunk of a shard, (…, 2), from its index."""
    from zarr.abc.store import RangeByteRequest, SuffixByteRequest
    from zarr.buffer import default_buffer_prototype

    record: dict[str, Any] = array.metadata.to_dict()
    # Other codecs around the shards, or nested shards, hide where chunks are.
    codec: dict[str, Any] = record["codecs"][0] if len(record["codecs"]) == 1 else {"name": None}
    sharding: dict[str, Any] = codec.get("configuration", {})
    ways = [c["name"] for c in sharding.get("index_codecs", ())]
    nested = any(c["name"] == "sharding_indexed" for c in sharding.get("codecs", ()))
    known = ways in (["bytes"], ["bytes", "crc32c"]) and not nested
    if codec["name"] != "sharding_indexed" or not known:
        raise DataError(
            f"{name} has shards whose index is encoded by {', '.join(ways) or 'other codecs'}, so "
            "that missing chunks do not show; copy it to an array without shards"
        )
    shape = (*grid.per_shard, 2)
    n_bytes = 8 * int(np.prod(shape))
    size = n_bytes + 4 * (len(ways) - 1)
    start = sharding.get("index_location", "end") == "start"
    key = key_of(array, shard)
    buffer = await array.store.get(
        key,
        default_buffer_prototype(),
        byte_range=RangeByteRequest(0, size) if start else SuffixByteRequest(size),
    )
    data = b"" if buffer is None else buffer.to_bytes()
    if len(data) != size:
        raise DataError(f"{name}: shard {shard} is shorter than its index; restore {key!r}")
    big = sharding["index_codecs"][0].get("configuration", {}).get("endian") == "big"
    return np.frombuffer(data[:n_bytes], ">u8" if big else "<u8").reshape(shape)

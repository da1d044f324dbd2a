"""Arrays of a store as zarr-python opens them; `zarrs` decodes their chunks where it is installed.

Zarr is imported with this module, which takes a tenth of a second: only those import it who read.
"""

from __future__ import annotations

from importlib.util import find_spec
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import zarr
from zarr.abc.store import RangeByteRequest, SuffixByteRequest
from zarr.buffer.cpu import NDBuffer
from zarr.storage import LocalStore, MemoryStore, StorePath

from bigsvm.data.place import Folder
from bigsvm.data.schema import CRC_BYTES, NO_CHUNK, array_metadata

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype

    from bigsvm.data.place import Place
    from bigsvm.data.schema import ArraySpec

HAS_ZARRS = find_spec("zarrs") is not None
"""Whether chunks are decoded by the codecs of `zarrs`, in half of the time of Zarr's own."""


class FetchedChunks(MemoryStore):  # type: ignore[misc] # Zarr has no types
    """A Zarr store of chunks that have been fetched: each is given once.

    Zarr asks for the chunks of a shard one after the other, and for its index each time.
    """

    def __init__(self) -> None:
        super().__init__(read_only=True)
        self._chunks: dict[tuple[str, int], list[memoryview]] = {}
        self._indices: dict[str, bytes] = {}
        self._lock = Lock()

    def put(self, name: str, index: bytes, offset: int, chunk: memoryview) -> None:
        """Keep a chunk at `offset` of a shard until Zarr asks for it."""
        with self._lock:
            self._indices[name] = index
            # Several threads may want the same chunk.
            self._chunks.setdefault((name, offset), []).append(chunk)

    def _pop(self, name: str, offset: int) -> memoryview:
        with self._lock:
            kept = self._chunks[name, offset]
            chunk = kept.pop()
            if not kept:
                del self._chunks[name, offset]
        return chunk

    async def get(
        self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Return the index of a shard, one of its chunks, or all of it."""
        if isinstance(byte_range, SuffixByteRequest):
            return prototype.buffer.from_bytes(self._indices[key])
        if isinstance(byte_range, RangeByteRequest):
            chunk = self._pop(key, byte_range.start)
            return prototype.buffer.from_array_like(np.frombuffer(chunk, np.uint8))
        # The whole shard: its chunks lie one after another.
        chunks, end = [self._pop(key, 0)], len(self._indices[key])
        offsets = np.frombuffer(self._indices[key][: end - CRC_BYTES], "<u8").reshape(-1, 2)[1:, 0]
        chunks += [self._pop(key, int(offset)) for offset in offsets if offset != NO_CHUNK]
        return prototype.buffer.from_bytes(b"".join([*chunks, self._indices[key]]))


def open_array(place: Place, spec: ArraySpec, fetched: FetchedChunks | None) -> zarr.Array[Any]:
    """Open an array of a store, whose metadata has been checked."""
    store, options = fetched, {}
    if isinstance(place, Folder):
        store = LocalStore(place.path, read_only=True)
    if HAS_ZARRS and fetched is None:
        # One thread of `zarrs`, the caller's: a forked child does not have its other threads.
        options = {"codec_pipeline.path": "zarrs.ZarrsCodecPipeline", "threading.max_workers": 1}
    with zarr.config.set(options):
        return zarr.Array.from_dict(StorePath(store), array_metadata(spec))


def read_rows(array: zarr.Array[Any], start: int, out: NDArray[Any]) -> None:
    """Fill `out` with the rows of an array from `start` on."""
    array.get_basic_selection(slice(start, start + len(out)), out=NDBuffer(out))

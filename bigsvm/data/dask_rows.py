"""Rows of a Dask array, computed block by block: in this process, or by the client of a cluster."""

from __future__ import annotations

import sys
import uuid
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.data.blocked import (
    BlockedRows,
    converted,
    size_of_csr,
)
from bigsvm.data.row_source import DASK_BLOCK_BYTES, RemoteBlocks
from bigsvm.data.rows import Digest, bytes_of, check_finite, check_shape, float_type, is_sparse
from bigsvm.data.statistics import ColumnStatistics, Moments, Statistics, may_be_listed, moments_of
from bigsvm.errors import ClusterError, DataError
from bigsvm.interruption import check_interrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import dask.array as da
    from numpy.typing import NDArray

    from bigsvm.data.rows import Rows

BLOCKS_AHEAD = 8
"""Tasks that workers have at a time while results are used in the order of the blocks."""


class DaskRows(BlockedRows):
    """Rows of a dask array, computed block by block by Dask's own choice of scheduler.

    That is an open client, or threads. With a client, or where the array has results on a cluster,
    its workers compute the blocks and their statistics, and choose rows of them; `remote_blocks`
    are then used where they are. By default the client is that of the results that X has. Results
    on another cluster are refused.

    Blocks of X are numpy or scipy.sparse; two blocks must fit in memory. Unknown chunk sizes are
    computed; several chunks along the columns are merged. For sparse blocks, `bytes_per_row` is an
    estimate from some random blocks.
    """

    def __init__(self, X: da.Array, *, client: Any = None) -> None:
        if X.ndim != 2:
            raise DataError(f"X has {X.ndim} dimensions; it must have two: rows and columns")
        self._client = client_of(X, client)
        # None is Dask's own choice, which finds results of an open client that are hidden in tasks.
        self._scheduler = self._client
        if any(np.isnan(size) for sizes in X.chunks for size in sizes):
            # Imported here, as rows in memory do not need it.
            import dask

            chosen = {} if self._scheduler is None else {"scheduler": self._scheduler}
            with dask.config.set(chosen):
                X = X.compute_chunk_sizes()
        if X.numblocks[1] > 1:
            X = X.rechunk({1: -1})
        check_shape(*map(int, X.shape))
        self._blocks = X
        self._results = {future.key: future for future in _results_in(X)}
        self._keys = [keys[0] for keys in X.__dask_keys__()]
        super().__init__(
            n_columns=int(X.shape[1]),
            dtype=float_type(X.dtype),
            edges=np.concatenate([[0], np.cumsum(X.chunks[0], dtype=np.int64)]),
            is_sparse=is_sparse(X._meta),
        )

    def as_dask(self, *, block_bytes: int = DASK_BLOCK_BYTES) -> da.Array:
        """Return the array itself, with one chunk along the columns."""
        return self._blocks.astype(self.dtype)

    def remote_blocks(self) -> RemoteBlocks | None:
        """Blocks as results of Dask, if there is a client."""
        if self._client is None:
            return None
        return RemoteBlocks(
            np.unique(self._edges),
            lambda start: self._future(self._number(start)),
            self._form,
            self._holders,
        )

    @property
    def _form(self) -> BlockForm:
        return BlockForm(self.n_columns, self.dtype, self.is_sparse)

    def _number(self, start: int) -> int:
        """Return the number of the block that begins with a row, and is not empty."""
        return int(np.searchsorted(self._edges, start, side="right")) - 1

    def _future(self, i: int) -> Any:
        """Return the future of a block, which is computed unless it is a result already."""
        result = self._results.get(self._keys[i])
        return self._client.compute(self._blocks.blocks[i]) if result is None else result

    def _holders(self) -> dict[int, str]:
        futures = [self._results[key] for key in self._keys if key in self._results]
        if not futures:
            return {}
        addresses = self._client.who_has(futures)
        return {
            int(self._edges[i]): addresses[key][0]
            for i, key in enumerate(self._keys)
            if addresses.get(key) and self._edges[i] < self._edges[i + 1]
        }

    def read_whole(self) -> Rows:
        """All rows; without a client their statistics and their hash are found on the way."""
        return super().read_whole() if self._client is None else self.read(0, self.n_rows)

    def _load(self, i: int) -> Any:
        return self._computed([i])[0]

    def _loaded(self, numbers: list[int]) -> list[Any]:
        """Blocks that ascend, computed together."""
        found = {} if self._last is None else dict([self._last])
        missing = [i for i in numbers if i not in found]
        if len(missing) < 2:
            return super()._loaded(numbers)
        found.update(zip(missing, self._computed(missing), strict=True))
        self._bytes_read += sum(bytes_of(found[i]) for i in missing)
        self._last = numbers[-1], found[numbers[-1]]
        return [found[i] for i in numbers]

    def _computed(self, numbers: list[int]) -> list[Any]:
        """Compute blocks, together, and convert them."""
        # Imported here, as rows in memory do not need it.
        import dask

        last = "" if len(numbers) == 1 else f" to {numbers[-1]}"
        which = f"block{'s' if last else ''} {numbers[0]}{last}"
        try:
            blocks = dask.compute(
                *(self._blocks.blocks[i] for i in numbers), scheduler=self._scheduler
            )
        except OSError as error:
            raise DataError(f"{which} of X cannot be read ({error}); check its source") from error
        except self._losses() as error:
            raise _lost(which, error) from error
        starts, stops = self._edges[:-1].tolist(), self._edges[1:].tolist()
        return [
            self._form(block, starts[i], stops[i]) for i, block in zip(numbers, blocks, strict=True)
        ]

    # -- on workers ------------------------------------------------------------------------------

    def _on_workers(
        self,
        function: Callable[..., Any],
        calls: Iterable[tuple[int, tuple[Any, ...]]],
    ) -> Iterator[Any]:
        """Yield the results of a function of blocks, each given by its number and arguments."""
        waiting: deque[tuple[int, Any]] = deque()

        def first() -> Any:
            i, future = waiting.popleft()
            try:
                return future.result()
            except OSError as error:
                raise DataError(
                    f"block {i} of X cannot be read ({error}); check its source"
                ) from error
            except self._losses() as error:
                raise _lost(f"block {i}", error) from error

        name = f"bigsvm-{function.__name__.strip('_').replace('_', '-')}"
        for i, given in calls:
            check_interrupt()
            start, stop = int(self._edges[i]), int(self._edges[i + 1])
            future = self._client.submit(
                function, self._future(i), self._form, start, stop, *given,
                key=f"{name}-{uuid.uuid4().hex}", pure=False,
            )  # fmt: skip
            waiting.append((i, future))
            if len(waiting) >= BLOCKS_AHEAD:
                yield first()
        while waiting:
            yield first()

    def _losses(self) -> tuple[type[BaseException], ...]:
        """Errors of Dask that say that a block is lost."""
        if self._client is None:
            return ()
        from distributed import CancelledError, KilledWorker

        return CancelledError, KilledWorker

    def _rows_of_blocks(self, chosen: list[tuple[int, NDArray[np.int64]]]) -> Iterator[Rows]:
        if self._client is None:
            yield from super()._rows_of_blocks(chosen)
            return
        calls = ((i, (places,)) for i, places in chosen)
        for rows in self._on_workers(_rows_of_block, calls):
            self._bytes_read += bytes_of(rows)
            yield rows

    def _sizes_of_blocks(self, numbers: list[int]) -> Iterator[tuple[int, int, int]]:
        if self._client is None:
            return super()._sizes_of_blocks(numbers)
        return self._on_workers(_size_of_block, ((i, ()) for i in numbers))

    def _survey(self, blocks: Iterable[Any] | None = None) -> Statistics:
        # The hash depends on the blocks where workers compute it.
        if self._client is None or may_be_listed(self.n_columns, sparse=self.is_sparse):
            return super()._survey(blocks)
        if self._statistics is None:
            statistics = ColumnStatistics(self.n_columns)
            hashes: list[str] = []
            calls = ((i, ()) for i in range(len(self._keys)))
            for moments, parts in self._on_workers(_survey_of_block, calls):
                for part in moments:
                    statistics.merge(part)
                hashes += parts
            self._statistics = statistics.result()
            self._hash = self._hash_of_parts(hashes)
        return self._statistics


@dataclass(frozen=True)
class BlockForm:
    """What the rows of all blocks have in common; converts blocks, on workers too."""

    n_columns: int
    dtype: np.dtype[Any]
    is_sparse: bool

    def __call__(self, block: Any, start: int, stop: int) -> Rows:
        """Make rows ``start … stop - 1`` of a block; one of another shape is refused."""
        expected = (stop - start, self.n_columns)
        if block.shape != expected:
            raise DataError(
                f"the block of X that begins with row {start} has shape {block.shape}, but its "
                f"chunks say {expected}; call X.compute_chunk_sizes() first"
            )
        rows: Rows = converted(block, self.dtype, sparse=self.is_sparse)
        return rows


def client_of(X: Any, client: Any = None) -> Any:
    """Return the client that computes a Dask collection; None if any scheduler can.

    A client that the user gave is returned; X with results of another one is refused.
    """
    futures = _results_in(X)
    if not futures:
        return client
    theirs = futures[0].client
    if client is not None and theirs is not client:
        raise DataError(
            f"X has results of the client of {theirs.scheduler.address}, and client is another one "
            f"(of {client.scheduler.address}); give the client that X was persisted with"
        )
    if theirs.status != "running":
        raise DataError(
            f"X has results on a cluster, but their client is {theirs.status}; make X again"
        )
    return theirs


def _results_in(X: Any) -> list[Any]:
    """Futures that the graph of a collection has."""
    if "distributed" not in sys.modules:
        return []
    from distributed.client import futures_of

    futures: list[Any] = futures_of(X)
    return futures


def _lost(which: str, error: BaseException) -> ClusterError:
    return ClusterError(
        f"the cluster has lost {which} of X ({type(error).__name__}: {error}); make X again from "
        "its source, or give workers more memory"
    )


def _rows_of_block(
    block: Any, form: BlockForm, start: int, stop: int, places: NDArray[np.int64]
) -> Rows:
    """Rows of a block, by their places."""
    return form(block, start, stop)[places]


def _size_of_block(block: Any, form: BlockForm, start: int, stop: int) -> tuple[int, int, int]:
    """Size of a sparse block, as `size_of_csr`."""
    return size_of_csr(form(block, start, stop))


def _survey_of_block(
    block: Any, form: BlockForm, start: int, stop: int
) -> tuple[list[Moments], list[str]]:
    """Moments of the columns of a block, whose values must be finite, and hashes of its values."""
    rows = form(block, start, stop)
    check_finite(rows, start)
    digest = Digest()
    digest.add(rows)
    return list(moments_of(rows)), digest.parts()

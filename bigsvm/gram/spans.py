"""Spans: a few rows are prepared once, then their kernel values with partners are computed.

The spans of a call are shared by a `Team` of threads, which have the scratch memory.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections import deque
from concurrent.futures import ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from bigsvm.core import field_kernels, gram, products
from bigsvm.processors import works_alone

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import scipy.sparse as sp
    from numpy.typing import NDArray

    from bigsvm.arrays import F4, F8, I8
    from bigsvm.gram.partners import Partners, Tile
    from bigsvm.gram.values import KernelValues

    Floats = F4 | F8
    Task = TypeVar("Task")

NO_SUMS, NO_SLOTS = np.empty(0), np.empty(0, np.int64)


class Team:
    """The calling thread and a pool of at most `threads` helpers, named after `name`."""

    def __init__(self, threads: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._local = threading.local()

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown()

    def share_out(
        self,
        work: Callable[[Task], None],
        tasks: Sequence[Task],
        n_helpers: int,
        *,
        abandon: Callable[[], None] = lambda: None,
    ) -> None:
        """Call `work` for each task, in this thread and in `n_helpers` of the pool.

        This thread works too, as another one may take as long to wake up as a batch of kernel rows
        takes. The others have its context, and so its checks for an interruption. When the call
        returns or raises, no thread is at work any more. If it is interrupted while it waits for
        the others, it calls `abandon`, so that they can end long tasks early. An exception of
        `work` is raised.
        """
        if n_helpers <= 0 or works_alone():
            for task in tasks:
                work(task)
            return
        waiting = deque(tasks)

        def take_tasks() -> None:
            while waiting:
                try:
                    task = waiting.popleft()
                except IndexError:  # another thread was faster
                    return
                work(task)

        helpers = [self._pool.submit(copy_context().run, take_tasks) for _ in range(n_helpers)]
        try:
            take_tasks()
        finally:
            waiting.clear()
            awake = [helper for helper in helpers if not helper.cancel()]
            try:
                wait(awake)
            except BaseException:
                abandon()
                wait(awake)
                raise
        for helper in awake:
            helper.result()

    def scratch(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an array of this thread, reused from call to call; fresh pages are expensive."""
        size = math.prod(shape)
        held: NDArray[Any] | None = self._local.__dict__.get(name)
        if held is None or held.size < size:
            held = np.empty(size, dtype)
            self._local.__dict__[name] = held
        return held[:size].reshape(shape)

    def places(self, n_features: int) -> NDArray[np.int32]:
        """Return an array of this thread with −1 for each feature, to be restored after use."""
        held: NDArray[np.int32] | None = self._local.__dict__.get("places")
        if held is None or held.size < n_features:
            held = np.full(n_features, -1, np.int32)
            self._local.__dict__["places"] = held
        return held


class Span(ABC):
    """m of the rows of an array, to be used on the thread that made the span.

    Kernel values are in scratch memory of the thread, which the team has, until the next ones are
    computed.
    """

    def __init__(self, values: KernelValues, team: Team) -> None:
        self._values, self._team = values, team

    @abstractmethod
    def kernel_values(self, tile: Tile) -> Floats:
        """Kernel values with the partners of a tile, (m, ≥ p), in scratch memory."""

    def add_sums(self, partners: Partners, weights: F8, sums: F8) -> None:
        """Add ``K @ weights`` to sums (m,), tile by tile; weights (p,)."""
        for tile in partners:
            gram.weighted_sums(self.kernel_values(tile), weights[tile.start : tile.stop], sums)

    def store(self, partners: Partners, out: Floats, slots: I8) -> None:
        """Write the kernel values of row i to row slots_i of out (n_slots, ≥ p)."""
        for tile in partners:
            values = self.kernel_values(tile)[:, : tile.stop - tile.start]
            out[slots, tile.start : tile.stop] = values


class ComputedSpan(Span):
    """Kernel values from products, in one call for all tiles if the core has the kernel."""

    norms: Floats

    @abstractmethod
    def _run(
        self, tile: Tile, block: Floats, weights: F8, sums: F8, out: Floats, slots: I8
    ) -> None:
        """Call the core with these rows.

        `tile` may be all partners in one; `block` is as wide as its widest tile.
        """

    def _block(self, width: int) -> Floats:
        """Scratch memory for the products with a tile."""
        rows = -(-len(self.norms) // gram.MR) * gram.MR
        panel = gram.NR32 if self._values.dtype == np.float32 else gram.NR64
        return self._team.scratch("dots", (rows, -(-width // panel) * panel), self._values.dtype)

    def _no_rows(self) -> Floats:
        return np.empty((0, 0), self._values.dtype)

    def kernel_values(self, tile: Tile) -> Floats:
        """Compute the products with one tile, and kernel values from them."""
        block = self._block(tile.stop - tile.start)
        self._run(tile, block, NO_SUMS, NO_SUMS, self._no_rows(), NO_SLOTS)
        kernel_values = block[: len(self.norms)]
        if not self._values.is_fused:
            self._values.replace(kernel_values, self.norms, tile.norms)
        return kernel_values

    def add_sums(self, partners: Partners, weights: F8, sums: F8) -> None:
        """Do all tiles in one call, but those of lists.

        In their code the compiler makes another loop of the sums, with other bits. Whether a tile
        is listed depends on the others.
        """
        if not self._values.is_fused or partners.whole.listed:
            super().add_sums(partners, weights, sums)
        elif partners.n:
            block, out = self._block(partners.widest), self._no_rows()
            self._run(partners.whole, block, weights, sums, out, NO_SLOTS)

    def store(self, partners: Partners, out: Floats, slots: I8) -> None:
        """Do all tiles in one call."""
        if not self._values.is_fused or out.dtype != self._values.dtype:
            super().store(partners, out, slots)
        elif partners.n:
            block = self._block(partners.widest)
            self._run(partners.whole, block, NO_SUMS, NO_SUMS, out, slots)


class DenseSpan(ComputedSpan):
    """Dense rows, packed."""

    def __init__(self, values: KernelValues, team: Team, rows: Floats, places: I8) -> None:
        super().__init__(values, team)
        centre = np.zeros(rows.shape[1]) if values.centre is None else values.centre
        if values.column_factors is not None:
            rows, places, centre = _as_partners(values, rows[places])
        shape = -(-len(places) // gram.MR), rows.shape[1], gram.MR
        self._packed = team.scratch("rows", shape, values.dtype)
        products.pack_rows(rows, places, centre, self._packed)
        self.norms = values.packed_norms(self._packed, len(places))

    def _run(
        self, tile: Tile, block: Floats, weights: F8, sums: F8, out: Floats, slots: I8
    ) -> None:
        if self._values.of_pairs is not None:
            field_kernels.dense_pairs(self._packed, tile.vectors, self._values.of_pairs, block)
            return
        gram.dense_span(
            self._packed, self.norms, tile.vectors, tile.norms,
            self._values.product, self._values.formula, block, weights, sums, out, slots,
        )  # fmt: skip


def _as_partners(values: KernelValues, rows: Floats) -> tuple[Floats, I8, F8]:
    """Rows with the bits that partners have, their places, and no centre to subtract."""
    return values.dense(rows), np.arange(len(rows)), np.zeros(rows.shape[1])


class SparseSpan(ComputedSpan):
    """Sparse rows."""

    def __init__(self, values: KernelValues, team: Team, rows: sp.csr_array, places: I8) -> None:
        super().__init__(values, team)
        data, indices, indptr = values.taken(rows, places)
        self._rows = data.astype(values.dtype, copy=False), indices, indptr
        self.norms = np.empty(len(places), values.dtype)
        values.sparse_norms(self._rows[0], indptr, self.norms)
        values.check(self.norms)
        self._place = team.places(rows.shape[1])

    def _run(
        self, tile: Tile, block: Floats, weights: F8, sums: F8, out: Floats, slots: I8
    ) -> None:
        of_bytes = tile.vectors.dtype != self._values.dtype
        rows = self._rows
        if of_bytes and self._values.clips:
            rows = np.minimum(rows[0], 1), *rows[1:]
        elif self._values.of_pairs is not None:
            chunk = gram.CHUNK_BYTES // self._values.dtype.itemsize
            field_kernels.sparse_pairs(
                *rows, self._place, tile.vectors, tile.used, tile.stop - tile.start, chunk,
                self._values.of_pairs, block,
            )  # fmt: skip
            return
        span = gram.listed_span if tile.listed else gram.sparse_span
        (gram.byte_span if of_bytes else span)(
            *rows, self.norms, self._place, tile.vectors, tile.used, tile.edges, tile.norms,
            self._values.product, self._values.formula, block, weights, sums, out, slots,
        )  # fmt: skip


class LookedUpSpan(Span):
    """Rows of a kernel matrix: their kernel values are looked up."""

    def __init__(self, values: KernelValues, team: Team, rows: Floats, places: I8) -> None:
        super().__init__(values, team)
        self._rows, self._places = rows, places

    def kernel_values(self, tile: Tile) -> Floats:
        """Copy the values of the matrix."""
        shape = len(self._places), tile.stop - tile.start
        kernel_values = self._team.scratch("dots", shape, self._values.dtype)
        gram.looked_up(self._rows, self._places, tile.used, kernel_values)
        self._values.check_looked_up(kernel_values)
        no_norms = np.zeros(len(kernel_values), kernel_values.dtype)
        self._values.replace(kernel_values, no_norms, tile.norms)
        return kernel_values

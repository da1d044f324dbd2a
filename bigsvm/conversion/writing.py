"""What all conversions share: their limits, their progress, and the store that a spool becomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np

from bigsvm.budget import parse_bytes
from bigsvm.data.schema import CSR, DENSE, MOST_COLUMNS
from bigsvm.data.statistics import DENSE_BYTES
from bigsvm.data.store_writer import StoreWriter
from bigsvm.errors import DataError, MemoryBudgetError, ParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.data.far_workspace import FarWorkspace
    from bigsvm.data.scaler import Scaler
    from bigsvm.data.shuffle import Spool
    from bigsvm.data.workspace import Workspace
    from bigsvm.encoding import Encoding

Layout: TypeAlias = Literal["auto", "dense", "sparse"]
DType: TypeAlias = Literal["float32", "float64"]

DENSE_FROM_DENSITY = 0.25
"""Share of nonzero values from which X is stored dense. A nonzero takes 8 bytes as float32 CSR, a
value 4 bytes dense, so that dense X takes twice the space here; it pays only if products of dense
rows are more than four times faster per value than sparse ones, which has not been measured."""

_SMALLEST_MEMORY = 32 << 20


class ConversionProgress(NamedTuple):
    """How far a conversion is.

    stage : "read" (unit: bytes of the sources as stored) or "write" (unit: rows);
    done, total : int, total None where it is not known.
    """

    stage: Literal["read", "write"]
    done: int
    total: int | None


OnProgress: TypeAlias = Callable[[ConversionProgress], None]


def memory_bytes(memory: str | int) -> int:
    """Bytes meant by ``"1GB"``, ``"512 MiB"`` or a number; refuses less than a conversion needs."""
    size = parse_bytes(memory)
    if size < _SMALLEST_MEMORY:
        raise ParameterError(
            f"memory={memory!r} is too little; the least is {_SMALLEST_MEMORY} bytes"
        )
    return size


def check_seed(seed: int) -> None:
    """Refuse a seed that is not an unsigned 64-bit number."""
    if not 0 <= seed < 2**64:
        raise ParameterError(f"seed={seed}; it must be from 0 to 2**64 - 1")


def write_spool(
    spool: Spool,
    work: Workspace | FarWorkspace,
    *,
    n_columns: int,
    first_index: int | None,
    layout: str,
    dtype: np.dtype[np.float32] | np.dtype[np.float64],
    weights: bool,
    scaler: Scaler | None = None,
    feature_names: tuple[str, ...] | None = None,
    encoding: Encoding | None = None,
    seed: int | None,
    sources: tuple[str, ...],
    budget: int,
    report: OnProgress,
    class_names: tuple[str, ...] | None = None,
    places: NDArray[np.float64] | None = None,
) -> None:
    """Write the rows of a spool, in its order, as the store of `work`.

    `first_index` is that of the column that becomes column 0, None where the rows are no text's.
    `places` are those among the class names that the labels of the spool stand for; without it the
    labels are places.
    """
    check_columns(n_columns, layout, budget)
    writer = StoreWriter(
        work,
        n_rows=spool.n_rows,
        n_columns=n_columns,
        n_entries=spool.n_entries,
        dtype=dtype,
        layout=layout,
        weights=weights,
        scaler=scaler,
        memory_bytes=budget // 4,
        statistics_bytes=budget // 4,
    )
    done = 0
    for batch in spool.batches(n_columns, first_index or 0, step=writer.block_rows):
        if places is not None:
            batch = batch._replace(labels=places[batch.labels.astype(np.intp)])
        writer.append(batch)
        done += len(batch.labels)
        report(ConversionProgress("write", done, spool.n_rows))
    writer.finish(
        shuffled=seed is not None,
        seed=seed,
        sources=sources,
        first_index=first_index,
        feature_names=feature_names,
        class_names=class_names,
        encoding=encoding,
    )


def check_columns(n_columns: int, layout: str, budget: int) -> None:
    """Refuse more columns than a store can have, or than their statistics have memory for."""
    if layout == CSR:
        if n_columns > MOST_COLUMNS:
            raise DataError(
                f"X has {n_columns} columns, but a store {MOST_COLUMNS} at most; renumber the "
                "features, or hash them into fewer"
            )
        return
    needed = DENSE_BYTES * n_columns
    if needed > budget // 4:
        raise MemoryBudgetError(
            f"{n_columns} columns: their statistics take {needed} bytes, more than a quarter of "
            f"memory={budget}; use memory={4 * needed}, or the sparse layout"
        )


def choose_layout(layout: Layout, *, n_entries: int, n_rows: int, n_columns: int) -> str:
    """Return "dense" or "csr"."""
    if layout == "auto":
        return DENSE if n_entries >= DENSE_FROM_DENSITY * n_rows * n_columns else CSR
    return DENSE if layout == "dense" else CSR

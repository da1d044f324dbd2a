"""Predictions as lazy Dask arrays; the model is in the graph once, or on the workers already."""

from __future__ import annotations

import itertools
import math
import sys
import weakref
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from bigsvm.data.frames import frame_type, frame_values
from bigsvm.data.row_values import to_input_order
from bigsvm.data.rows import bytes_of
from bigsvm.data.sources import as_row_source

if TYPE_CHECKING:
    from collections.abc import Callable

    import dask.array as da
    from numpy.typing import NDArray

    from bigsvm.arrays import I8
    from bigsvm.data.row_source import RowSource
    from bigsvm.models import KernelExpansion

    Evaluate: TypeAlias = Callable[[KernelExpansion, RowSource, int], NDArray[Any]]

LARGEST_IN_GRAPH = 1 << 20
"""Bytes of a model that is sent within a graph: Dask warns of graphs that are larger than 10 MB."""
ORDERED_BLOCK = 32 << 20
"""Most bytes of a block in the order of the input: a billion values are then 240 blocks, which
exchange 57 600 parts."""
_SENT: weakref.WeakValueDictionary[tuple[str, str], Any] = weakref.WeakValueDictionary()
"""Futures of models on workers, by client and content, while a lazy array needs them."""


def evaluated_lazily(
    array: da.Array, model: KernelExpansion, evaluate: Evaluate, of_none: NDArray[Any]
) -> da.Array:
    """Evaluate a model at the blocks of a Dask array (n, d), lazily.

    The array has one chunk along the columns. A model of more than `LARGEST_IN_GRAPH` bytes is
    copied to the workers now if a client of a cluster is current; only that client can compute the
    result. `evaluate` is given the model, rows and threads, and returns (n,) or (n, m). `of_none`
    is what that is of no rows.
    """
    wide = {}
    if of_none.ndim > 1:
        wide = {"new_axis": 1, "chunks": (array.chunks[0], of_none.shape[1:])}
    return array.map_blocks(
        _block_values, model=_once(model), evaluate=evaluate, of_none=of_none,
        drop_axis=1, dtype=of_none.dtype, meta=of_none, **wide,
    )  # fmt: skip


def evaluated_beside_frame(
    frame: Any, model: KernelExpansion, evaluate: Evaluate, of_none: NDArray[Any]
) -> Any:
    """Evaluate a model at the partitions of a Dask data frame, lazily; see `evaluated_lazily`.

    Returns a series, or for values (n, m) a data frame with the columns 0 … m - 1. It has the index
    and the divisions of the frame.
    """
    return frame.map_partitions(
        _partition_values, _once(model), evaluate=evaluate, of_none=of_none,
        dtype=frame_type(frame._meta), meta=_as_pandas(of_none, frame._meta.index),
    )  # fmt: skip


def _partition_values(
    frame: Any, model: KernelExpansion, evaluate: Evaluate, of_none: Any, dtype: Any
) -> Any:
    """Values of one partition of a Dask data frame; see `_block_values`."""
    values = _block_values(frame_values(frame, dtype), model, evaluate, of_none)
    return _as_pandas(values, frame.index)


def _as_pandas(values: NDArray[Any], index: Any) -> Any:
    pandas = sys.modules["pandas"]  # imported already, as there is a frame
    return (pandas.Series if values.ndim == 1 else pandas.DataFrame)(values, index=index)


def in_input_order(values: da.Array, rows: RowSource) -> da.Array:
    """Put values of the rows of a store, (n,) or (n, m), into the order of its input, lazily.

    Blocks have at most `ORDERED_BLOCK` bytes. Each needs a part of every block of values, as any
    row of the store may be in it.
    """
    # Imported here, as rows in memory do not need it.
    import dask
    import dask.array as da

    of_row = values.dtype.itemsize * math.prod(values.shape[1:])
    edges = [*range(0, len(values), max(1, ORDERED_BLOCK // of_row)), len(values)]
    spans = list(itertools.pairwise(edges))
    sizes = tuple(stop - start for start, stop in spans)
    whole = values.rechunk((sizes, *((m,) for m in values.shape[1:])))
    places, part = dask.delayed(_input_places)(rows), dask.delayed(_part)
    blocks = [
        (block, places[start:stop])
        for (start, stop), block in zip(spans, whole.to_delayed().ravel(), strict=True)
    ]
    ordered = [
        da.from_delayed(
            dask.delayed(_put)([part(*block, start, stop) for block in blocks], stop - start),
            (stop - start, *values.shape[1:]), dtype=values.dtype, meta=values._meta,
        )
        for start, stop in spans
    ]  # fmt: skip
    return da.concatenate(ordered)


def _input_places(rows: RowSource) -> I8:
    """Place of each row of a store in the order of its input."""
    return to_input_order(np.arange(rows.n_rows), rows.original_rows()).argsort(kind="stable")


def _part(values: NDArray[Any], places: I8, start: int, stop: int) -> tuple[I8, NDArray[Any]]:
    """Values whose places are ``start … stop - 1``, with these, counted from `start`."""
    some = (places >= start) & (places < stop)
    return places[some] - start, values[some]


def _put(parts: list[tuple[I8, NDArray[Any]]], size: int) -> NDArray[Any]:
    """Put values, which have places, in one array."""
    ordered = np.empty((size, *parts[0][1].shape[1:]), parts[0][1].dtype)
    for places, values in parts:
        ordered[places] = values
    return ordered


def _block_values(rows: Any, model: KernelExpansion, evaluate: Evaluate, of_none: Any) -> Any:
    """Values of one block of a Dask array; on one thread, as Dask runs many at once."""
    return evaluate(model, as_row_source(rows), 1) if rows.shape[0] else of_none


def _once(model: KernelExpansion) -> Any:
    """Give a model to a graph under a key of its own, which all tasks refer to."""
    # Imported here, as rows in memory do not need it.
    import dask
    from dask.base import tokenize

    token = tokenize(model)
    client = _current_client()
    large = bytes_of(model.support_vectors) + bytes_of(model.coefficients) > LARGEST_IN_GRAPH
    if client is None or not large:
        return dask.delayed(model, name=f"bigsvm-model-{token}", traverse=False)
    key = client.id, token
    future = _SENT.get(key)
    if future is None or future.status != "finished":
        # In a list: Dask takes some classes apart. Not to all workers at once: if one of them dies
        # meanwhile, Dask tries for ever to copy the model to it.
        (future,) = client.scatter([model], hash=False)
        _SENT[key] = future
    return future


def _current_client() -> Any:
    """Return the client that Dask computes with now; None if it is this process."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        client = distributed.Client.current()
    except ValueError:
        return None
    # Imported here, as rows in memory do not need it.
    from dask.base import get_scheduler

    # Another scheduler may be set for a while.
    return client if get_scheduler() == client.get else None

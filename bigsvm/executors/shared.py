"""A value that all tasks of a pass need: sent to each worker in parts, and put together there."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.data.rows import bytes_of, is_sparse, stack_rows
from bigsvm.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from bigsvm.data.rows import Rows

PART_BYTES = 4 << 20
"""Most bytes of a part, which Dask sends in one message."""


class Part:
    """A part of a value, of that name; of a class of its own, as Dask takes tuples apart.

    Its pieces are bytes, (m,) uint8, with the number of the buffer of the pickled value they are
    from; `rows` are some of the rows that belong to the value.
    """

    def __init__(
        self, name: str, pieces: list[tuple[int, NDArray[np.uint8]]], rows: Rows | None = None
    ) -> None:
        self.name, self.pieces, self.rows = name, pieces, rows

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        rows = 0 if self.rows is None else bytes_of(self.rows)
        return rows + sum(piece.nbytes for _, piece in self.pieces)

    def __sizeof__(self) -> int:
        return 100 + self.nbytes


def buffers_of(value: Any) -> list[NDArray[np.uint8]]:
    """Pickle a value as Dask does; its arrays are not copied."""
    from distributed.protocol.pickle import dumps

    arrays: list[pickle.PickleBuffer] = []
    pickled = dumps(value, buffer_callback=arrays.append)
    return [np.frombuffer(one, np.uint8) for one in (pickled, *(a.raw() for a in arrays))]


def split(name: str, buffers: list[NDArray[np.uint8]], rows: Iterable[Rows] = ()) -> Iterator[Part]:
    """Yield a value in parts under a name: those of its buffers, then rows as they come."""
    pieces: list[tuple[int, NDArray[np.uint8]]] = []
    for number, buffer in enumerate(buffers):
        for low in range(0, max(len(buffer), 1), PART_BYTES):
            piece = buffer[low : low + PART_BYTES]
            if pieces and sum(len(one) for _, one in pieces) + len(piece) > PART_BYTES:
                yield Part(name, pieces)
                pieces = []
            pieces.append((number, piece))
    yield Part(name, pieces)
    for some in rows:
        yield Part(name, [], some)


def put_together(parts: list[Part]) -> tuple[Any, Rows | None]:
    """Return a value, and its rows if it has some.

    Raises
    ------
    ClusterError
        It needs a module that this process cannot import.
    """
    pieces: dict[int, list[NDArray[np.uint8]]] = {}
    for part in parts:
        for number, piece in part.pieces:
            pieces.setdefault(number, []).append(piece)
    pickled, *arrays = (np.concatenate(some) for some in pieces.values())
    try:
        value = pickle.loads(pickled.data, buffers=[array.data for array in arrays])
    except (ImportError, AttributeError) as error:
        raise ClusterError(
            f"cannot open the scores or the kernel of the run ({error}); those of your own must be "
            "in a module that workers can import"
        ) from error
    rows = [part.rows for part in parts if part.rows is not None]
    if not rows:
        return value, None
    first = rows[0]
    return value, stack_rows(rows, first.shape[1], first.dtype, sparse=is_sparse(first))

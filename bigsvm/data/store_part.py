"""StorePart: some rows of a store, as scikit-learn's splits of a data set choose them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np

from bigsvm.data.row_values import OR_LEAVE_OUT, RowValues, in_order_of
from bigsvm.data.wrappers import PartRows
from bigsvm.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.data.row_source import RowSource
    from bigsvm.data.row_values import Order
    from bigsvm.data.schema import StoreAttributes


class _HasLabels(Protocol):
    """A store, or a part of one."""

    def labels(self) -> NDArray[Any]: ...
    def sample_weight(self) -> NDArray[np.float64] | None: ...


class _Store(_HasLabels, Protocol):
    """What is used of a store, which imports this module."""

    attributes: StoreAttributes
    rows: RowSource


class StorePart:
    """Rows of a store that were chosen by their numbers; nothing of X has been read.

    ``store[numbers]`` makes it, and so do the splits of scikit-learn, such as those of
    ``cross_val_score(estimator, store, store.labels())``. The estimators take it as they take a
    store. Rows are read in blocks; if their numbers do not ascend, each block is read from all over
    the store, which takes long if the store is larger than memory.

    Attributes
    ----------
    store : Store
    chosen : (m,) int64
        Numbers of the rows, in the order of the store.
    rows : RowSource
    """

    def __init__(self, store: _Store, chosen: NDArray[np.int64]) -> None:
        self.store: _Store = store
        self.chosen: NDArray[np.int64] = np.ascontiguousarray(chosen, np.int64)
        self.rows: RowSource = PartRows(store.rows, self.chosen)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self.chosen), self.rows.n_columns

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, key: Any) -> StorePart:
        return StorePart(self.store, self.chosen[row_numbers(key, len(self))])

    __iter__ = None  # one row at a time would be read slowly

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NoReturn:
        refuse_array(self.store)

    def __repr__(self) -> str:
        return f"<{len(self)} rows of the store {self.store}>"

    def labels(self) -> NDArray[Any]:
        """Labels of the rows, (m,)."""
        labels: NDArray[Any] = self.store.labels()[self.chosen]
        return labels

    def sample_weight(self) -> NDArray[np.float64] | None:
        """Weights of the rows, (m,) float64, or None if there are none."""
        weights = self.store.sample_weight()
        return None if weights is None else weights[self.chosen]

    def beside(
        self, values: Any, name: str, order: Order | None, *, instead: str = OR_LEAVE_OUT
    ) -> NDArray[Any]:
        """Convert values for these rows, or `RowValues` for all rows of the store, to an array.

        `order` is "store" if the values are known to have the order of these rows. Else values for
        a shuffled store that are not its own are refused: they may have the order of its input.
        Messages call the values `name` and advise `instead`.
        """
        if isinstance(values, RowValues):
            return in_order_of(self.store.attributes, values, name)[self.chosen]
        array = np.asarray(values)
        if order == "input":
            raise DataError(
                "y_order is 'input', but rows that are chosen from a store have the order in which "
                f"they were chosen; give {name} in that order, and y_order='store'"
            )
        is_known = order == "store" or not self.store.attributes.shuffled
        if is_known or is_own(self, array, name):
            return array
        raise DataError(
            f"{name} is not what the shuffled store has for these rows, and may have the order of "
            f"its input; give store.labels() or store.sample_weight(), or {instead}"
        )


def is_own(rows: _HasLabels, values: Any, name: str) -> bool:
    """Whether values are the labels or weights that a store has for some of its rows.

    `name` is "y", "sample_weight", or something else, which a store does not have.
    """
    own: Any = None
    if not isinstance(values, RowValues):
        own = {"y": rows.labels, "sample_weight": rows.sample_weight}.get(name, lambda: None)()
    return own is not None and bool(np.array_equal(np.asarray(values), own))


def row_numbers(key: Any, n_rows: int) -> NDArray[np.int64]:
    """Numbers of the rows that an index chooses, (m,) int64.

    The key is a slice, a list or an array of numbers or of booleans; or a tuple of one and an
    ellipsis. Columns, a single row and rows that do not exist are refused.
    """
    if isinstance(key, tuple) and len(key) == 2 and key[1] in (Ellipsis, slice(None)):
        key = key[0]
    if isinstance(key, tuple | str) or np.ndim(key) != 1 - isinstance(key, slice):
        raise DataError(
            f"the index {key!r} does not choose rows of a store; give a slice, or a list of "
            "numbers or booleans (kernel matrices: use bigsvm.cross_validate, or an array)"
        )
    try:
        numbers: NDArray[np.int64] = np.arange(n_rows)[key if isinstance(key, slice) else [*key]]
    except IndexError as error:
        raise DataError(f"a store of {n_rows} rows has no such rows: {error}") from None
    if not len(numbers):
        raise DataError("no row of the store is chosen; at least one is needed")
    return numbers


def refuse_array(store: _Store) -> NoReturn:
    """Refuse to read all rows of a store into an array."""
    raise DataError(
        f"{store} is not read into memory as an array; give the store to an estimator of bigsvm, "
        "or use store.rows.as_dask()"
    )

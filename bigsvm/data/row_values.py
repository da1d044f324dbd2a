"""Values for the rows of a store, such as labels or weights, in a known order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from bigsvm.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from bigsvm.data.schema import StoreAttributes

Order: TypeAlias = Literal["input", "store"]

OR_LEAVE_OUT = "leave it out to use the store's own, or "


@dataclass(frozen=True, eq=False)
class RowValues:
    """One value for each row of a store, in the order of its rows; made by `Store.row_values`.

    NumPy takes it for an array.

    Attributes
    ----------
    values : (n_rows,) array
    order : tuple of str
        Hashes of the input row numbers, which identify the order.
    """

    values: NDArray[Any]
    order: tuple[str, ...]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the values."""
        return np.array(self.values, dtype, copy=copy)

    def __len__(self) -> int:
        return len(self.values)


def put_in_order(
    values: Any,
    order: Order,
    attributes: StoreAttributes,
    original_rows: Callable[[], NDArray[np.int64]],
) -> RowValues:
    """Put values into the order of a store; see `Store.row_values`.

    `original_rows` reads the input number of each row.
    """
    if order not in get_args(Order):
        raise ParameterError(f"order is {order!r}; it must be 'input' or 'store'")
    array = np.asarray(values)
    n_rows = attributes.n_rows
    if array.shape != (n_rows,):
        raise DataError(f"values have shape {array.shape}; the store needs one a row, ({n_rows},)")
    if order == "input":
        array = array[original_rows()]
    return RowValues(array, _order_of(attributes))


def in_order_of(
    attributes: StoreAttributes, values: Any, name: str, *, instead: str = OR_LEAVE_OUT
) -> NDArray[Any]:
    """Convert values for the rows of a store to an array.

    Parameters
    ----------
    attributes : StoreAttributes
        Attributes of the store.
    values : RowValues, or where the store is not shuffled (n_rows,) array
    name : str
        Name of the argument, for messages.
    instead : str
        Alternative to suggest in the message.

    Raises
    ------
    DataError
        The store is shuffled and the order of the values is unknown, or the values have the order
        of another store.
    """
    if not isinstance(values, RowValues):
        if attributes.shuffled:
            raise DataError(
                f"{name} is given beside a shuffled store, whose rows have another order than its "
                f"input; {instead}say which order it has: store.row_values({name}, "
                "order='input'), or order='store'"
            )
        return np.asarray(values)
    if values.order != _order_of(attributes):
        raise DataError(
            f"{name} has the order of another store; make it with row_values of this one"
        )
    return values.values


def _order_of(attributes: StoreAttributes) -> tuple[str, ...]:
    return tuple(attributes.manifest["row"])

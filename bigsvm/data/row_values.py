"""Values for the rows of a store, such as labels or weights, in a known order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from bigsvm.errors import DataError, ParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.data.store import Store

Order: TypeAlias = Literal["input", "store"]

OWN = "leave it out to use the store's own, or "


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


def put_in_order(store: Store, values: Any, order: Order) -> RowValues:
    """Do what `Store.row_values` promises."""
    if order not in get_args(Order):
        raise ParameterError(f"order is {order!r}; it must be 'input' or 'store'")
    array = np.asarray(values)
    n_rows = store.attributes.n_rows
    if array.shape != (n_rows,):
        raise DataError(f"values have shape {array.shape}; the store needs one a row, ({n_rows},)")
    return RowValues(array[store.original_rows()] if order == "input" else array, _order_of(store))


def in_order_of(store: Store, values: Any, name: str, *, instead: str = OWN) -> NDArray[Any]:
    """Convert values for the rows of a store to an array.

    Parameters
    ----------
    store : Store
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
        if store.attributes.shuffled:
            raise DataError(
                f"{name} is given beside a shuffled store, whose rows have another order than its "
                f"input; {instead}say which order it has: store.row_values({name}, "
                "order='input'), or order='store'"
            )
        return np.asarray(values)
    if values.order != _order_of(store):
        raise DataError(
            f"{name} has the order of another store; make it with row_values of this one"
        )
    return values.values


def _order_of(store: Store) -> tuple[str, ...]:
    return tuple(store.attributes.manifest["row"])

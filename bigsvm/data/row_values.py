"""Values for the rows of a store, such as labels or weights, in a known order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np

from bigsvm.data.rows import refuse_masked
from bigsvm.errors import DataError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from bigsvm.data.schema import StoreAttributes

Order: TypeAlias = Literal["input", "store"]

WHICH_ORDER = "say which order it has: y_order='input', or y_order='store'"
OR_LEAVE_OUT = f"leave it out to use the store's own, or {WHICH_ORDER}"
"""What to do about values without an order; the latter where the store's own may be used."""


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


def check_order(order: str, name: str = "order") -> None:
    """Refuse a word that is no order."""
    if order not in get_args(Order):
        raise ParameterError(f"{name} is {order!r}; it must be 'input' or 'store'")


def put_in_order(
    values: Any,
    order: Order,
    attributes: StoreAttributes,
    original_rows: Callable[[], NDArray[np.int64]],
) -> RowValues:
    """Put values into the order of a store; see `Store.row_values`.

    `original_rows` reads the input number of each row.
    """
    check_order(order)
    refuse_masked(values, "values")
    array = np.asarray(values)
    n_rows = attributes.n_rows
    if array.shape != (n_rows,):
        raise DataError(f"values have shape {array.shape}; the store needs one a row, ({n_rows},)")
    if order == "input":
        array = array[original_rows()]
    return RowValues(array, _order_of(attributes))


def to_input_order(values: NDArray[Any], original_rows: NDArray[np.int64]) -> NDArray[Any]:
    """Put values from the order of a store into that of its input; see `Store.in_input_order`."""
    if len(values) != len(original_rows):
        raise DataError(
            f"values have shape {values.shape}; the store needs one for each of its "
            f"{len(original_rows)} rows"
        )
    # Some of the rows of an input have gaps between their numbers.
    return values[np.argsort(original_rows, kind="stable")]


def check_y_order(y_order: Order, given: Iterable[Any], *, beside_store: bool) -> None:
    """Refuse an order of labels and weights that would be ignored."""
    check_order(y_order, "y_order")
    if not beside_store:
        raise ParameterError(
            f"y_order is {y_order!r}, which is for labels and weights beside a store; those beside "
            "other rows have the order of the rows: leave it out"
        )
    if all(values is None or isinstance(values, RowValues) for values in given):
        raise ParameterError(
            f"y_order is {y_order!r}, but no labels or weights are given that lack an order; leave "
            "it out"
        )


def in_order_of(
    attributes: StoreAttributes,
    values: Any,
    name: str,
    *,
    order: Order | None = None,
    original_rows: Callable[[], NDArray[np.int64]] | None = None,
    instead: str = OR_LEAVE_OUT,
) -> NDArray[Any]:
    """Convert values for the rows of a store to an array.

    Values that are no `RowValues` have the order `order`; `original_rows`, needed for it, reads the
    input number of each row. Values of unknown order beside a shuffled store are refused, and so
    are those in the order of another store. Messages call the values `name` and advise `instead`.
    """
    if not isinstance(values, RowValues):
        refuse_masked(values, name)
        if order is not None and original_rows is not None:
            return put_in_order(values, order, attributes, original_rows).values
        if attributes.shuffled:
            raise DataError(
                f"{name} is given beside a shuffled store, whose rows have another order than its "
                f"input; {instead}"
            )
        return np.asarray(values)
    if values.order != _order_of(attributes):
        raise DataError(
            f"{name} has the order of another store; make it with row_values of this one"
        )
    return values.values


def _order_of(attributes: StoreAttributes) -> tuple[str, ...]:
    return tuple(attributes.manifest["row"])

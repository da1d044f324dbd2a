"""What values and arrays of files must be: a table for each kind of file, and what applies it.

A hash proves that a file is unchanged, not that bigsvm wrote it. So everything that is read is
checked before it is used. A table says for each field of a JSON object of which kind its value is,
and for each array its type and its shape. Relations between fields are checked by the reader of the
file.

A kind is one of

- ``bool``, ``str`` and ``dict``; ``float``, any number, infinite ones and NaN included; ``int``, a
  number of rows or the like, from 0 to 2**63 - 1; and None;
- ``{"a", "b"}``, one of these words or whole numbers;
- ``[kind]``, a list of values of a kind, and ``{str: kind}``, an object of them;
- ``[kind, kind]``, a list of two values;
- ``{"a": kind, "b": kind}``, an object of these fields and no others;
- ``(kind, kind)``, a value of one of these kinds;
- ``Within(least, most)``, a number from one to the other;
- a function that says whether a value is right.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from bigsvm.errors import brief

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

Kind: TypeAlias = Any
"""See above."""

DEEPEST = 16
"""Most nesting levels of a value; training writes five. Recursion must not exhaust the stack."""
LARGEST = 1e150
"""Largest real number in arrays: the product of two is finite."""
REALS, INTEGERS = "<f8", "<i8"


def is_count(value: object) -> bool:
    """Whether this is a whole number from 0 to 2**63 - 1."""
    return type(value) is int and 0 <= value < 2**63


def is_number(value: object) -> bool:
    """Whether this is a float, of any value, or a whole number of 64 bits."""
    return isinstance(value, float) or (type(value) is int and abs(value) < 2**63)


@dataclass(frozen=True)
class Within:
    """The kind of numbers from `least` to `most`, which NaN is not; perhaps of whole ones only."""

    least: float
    most: float
    is_whole: bool = False


_MOST = math.nextafter(math.inf, 0)
FINITE, AMOUNT = Within(-_MOST, _MOST), Within(0, _MOST)
"""Numbers that are finite, and those of 0 or more."""


def is_kind(value: Any, kind: Kind) -> bool:  # noqa: ANN401 (as JSON has it)
    """Whether a value is of a kind."""
    if kind is None:
        return value is None
    if isinstance(kind, tuple):
        return any(map(is_kind, repeat(value), kind))
    if isinstance(kind, Within):
        known = type(value) is int if kind.is_whole else is_number(value)
        return known and bool(kind.least <= value <= kind.most)
    if isinstance(kind, set):
        return (isinstance(value, str) or is_count(value)) and value in kind
    if isinstance(kind, list):
        if not isinstance(value, list) or len(kind) not in (1, len(value)):
            return False
        return all(map(is_kind, value, kind if len(kind) > 1 else repeat(kind[0])))
    if isinstance(kind, dict) and isinstance(value, dict) and str in kind:
        return all(map(is_kind, value.values(), repeat(kind[str])))
    if isinstance(kind, dict):
        return (
            isinstance(value, dict)
            and value.keys() == kind.keys()
            and all(map(is_kind, map(value.get, kind), kind.values()))
        )
    if kind in (int, float):
        return is_count(value) if kind is int else is_number(value)
    return isinstance(value, kind) if isinstance(kind, type) else bool(kind(value))


def check_fields(
    what: str,
    record: Any,  # noqa: ANN401 (as JSON has it)
    fields: Mapping[str, Kind],
    *,
    required: Collection[str] = (),
) -> None:
    """Refuse a value that is no JSON object, or has a field of another kind than declared.

    Fields that are not declared may have any value, but must not be nested too deeply. Declared
    ones that are not required may be absent. Messages call the object `what`.
    """
    if not isinstance(record, dict):
        raise ValueError(f"{what} is no JSON object")
    level: list[Any] = [record]
    for _ in range(DEEPEST):
        level = [
            item
            for container in level
            for item in (container.values() if isinstance(container, dict) else container)
            if isinstance(item, dict | list)
        ]
    if level:
        raise ValueError(f"{what} is nested too deeply")
    for name in required:
        if name not in record:
            raise ValueError(f"{what} has no {name}")
    for name, kind in fields.items():
        if name in record and not is_kind(record[name], kind):
            words = sorted(map(str, kind)) if isinstance(kind, set) else ()
            known = f"; known are {', '.join(words)}" if words else ""
            raise ValueError(f"{name} of {what} is {brief(record[name])}{known}")


class Kept(NamedTuple):
    """One array of a file; reals must be finite.

    `shape` has names of sizes: the first array that uses a name sets its size. `below` names a
    size: integers must be in [0, size) and strictly ascending.
    """

    dtype: str
    shape: tuple[str, ...]
    below: str | None = None


def check_arrays(
    arrays: Mapping[str, NDArray[Any]],
    table: Mapping[str, Kept],
    sizes: dict[str, tuple[int, ...]],
) -> None:
    """Check names, types, shapes and values of arrays; a ValueError says what is wrong.

    `sizes` has those that are known; those that arrays set are added. A size may be of no dimension
    or of several.
    """
    if unknown := sorted(arrays.keys() ^ table.keys()):
        raise ValueError(f"arrays are missing, or unknown: {', '.join(unknown)}")
    for name, kept in table.items():
        array = arrays[name]
        if array.dtype.str != kept.dtype:
            raise ValueError(f"{name} is of type {array.dtype.str} instead of {kept.dtype}")
        rest = array.shape
        for part in kept.shape:
            size = sizes.setdefault(part, rest[:1] or (0,))
            if rest[: len(size)] != size:
                break
            rest = rest[len(size) :]
        else:
            if not rest:
                _check_values(name, array, kept, sizes)
                continue
        raise ValueError(f"{name} has the shape {array.shape}, which does not fit the others")


def _check_values(
    name: str, array: NDArray[Any], kept: Kept, sizes: Mapping[str, tuple[int, ...]]
) -> None:
    # Comparisons with NaN are False.
    if (
        kept.dtype == REALS
        and not -LARGEST < array.min(initial=0) <= array.max(initial=0) < LARGEST
    ):
        raise ValueError(f"{name} has values that are not finite, or very large")
    if kept.below is not None and not ascend_below(array, sizes[kept.below][0]):
        raise ValueError(f"{name} is not ascending, or not all within 0 and {kept.below}")


def ascend_below(numbers: NDArray[Any], limit: int) -> bool:
    """Whether whole numbers ascend strictly, from 0 or more to less than `limit`."""
    if numbers.dtype.kind != "i" or numbers.ndim != 1:
        return False
    if not len(numbers):
        return True
    return bool(numbers[0] >= 0 and numbers[-1] < limit and (numbers[1:] > numbers[:-1]).all())

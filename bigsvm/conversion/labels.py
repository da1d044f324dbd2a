"""Labels and weights as a store has them: float64, of words their places among the sorted ones."""

from __future__ import annotations

from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.conversion.label_words import ClassNames, Words
from bigsvm.data.in_memory import in_memory
from bigsvm.errors import DataError

if TYPE_CHECKING:
    from numpy.typing import NDArray


_WORDS_AT_ONCE = 1 << 16
"""Labels that are words of one length at the same time: each takes the room of the longest."""


def _vector(values: Any, n_rows: int, name: str) -> NDArray[Any]:
    array = np.asarray(in_memory(values, name))
    if array.shape != (n_rows,):
        raise DataError(
            f"{name} has shape {array.shape}, but X has {n_rows} rows; it must be ({n_rows},)"
        )
    return array


def label_numbers(y: Any, n_rows: int) -> tuple[NDArray[np.float64], tuple[str, ...] | None]:
    """Labels as float64; of words their places among the distinct ones, and these, sorted.

    Integers that float64 does not hold are refused, and so are too many different words.
    """
    array = _vector(y, n_rows, "y")
    if not are_words(array):
        return label_values(array), None
    labels = Labels("y")
    starts = range(0, n_rows, _WORDS_AT_ONCE)
    numbers = np.concatenate([labels.numbers(array[i : i + _WORDS_AT_ONCE], i) for i in starts])
    names, places = labels.class_names()
    return numbers if places is None else places[numbers.astype(np.intp)], names


def are_words(array: NDArray[Any]) -> bool:
    """Whether labels are words, by the first of them."""
    is_object = array.dtype == object and len(array) > 0
    return array.dtype.kind in "UT" or bool(is_object and isinstance(array[0], str))


def label_values(array: NDArray[Any], name: str = "y", first_row: int = 0) -> NDArray[np.float64]:
    """Labels that are numbers, as float64, of rows from `first_row` on.

    Refuses numbers that are not finite, and integers that float64 does not hold.
    """
    if not _are_numbers(array):
        raise DataError(f"{name} has type {array.dtype}; labels must be numbers or words")
    labels = array.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(labels))
    if len(bad):
        raise DataError(
            f"{name} has {labels[bad[0]]} in row {first_row + bad[0]} (from 0); remove the row"
        )
    if (array.dtype.kind in "ui" and array.dtype.itemsize == 8) or array.dtype == object:
        beyond = np.flatnonzero((array > 2**53) | (array < -(2**53)))
        row = next((row for row in beyond if isinstance(array[row], Integral)), None)
        if row is not None:
            raise DataError(
                f"{name} has {array[row]} in row {first_row + row}; integers beyond "
                "2**53 are not float64 numbers: renumber the labels"
            )
    return labels


def _are_numbers(array: NDArray[Any]) -> bool:
    """Whether an array holds numbers, those that are Python objects included."""
    if array.dtype == object:
        return all(isinstance(value, Real) for value in array)
    return array.dtype.kind in "buif"


def weight_array(weights: Any, n_rows: int) -> NDArray[np.float64]:
    """Weights as float64, one for each row; a message names the row."""
    return weight_values(_vector(weights, n_rows, "sample_weight"))


def weight_values(array: NDArray[Any], first_row: int = 0) -> NDArray[np.float64]:
    """Weights of rows from `first_row` on, as float64; a message names the row."""
    if not _are_numbers(array):
        raise DataError(f"sample_weight has type {array.dtype}; weights must be numbers")
    numbers = array.astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(numbers) | (numbers < 0))
    if len(bad):
        raise DataError(
            f"sample_weight has {numbers[bad[0]]} in row {first_row + bad[0]} (from 0); weights "
            "must be finite and not negative"
        )
    return numbers


class Labels:
    """Labels of one batch after the other, as float64: numbers, or all of them words.

    Messages call the labels `name`.
    """

    def __init__(self, name: str) -> None:
        self._name, self._words = name, ClassNames()
        self._are_words: bool | None = None

    def numbers(self, values: Any, first_row: int) -> NDArray[np.float64]:
        """Labels of rows from `first_row` on, (m,); of words the numbers in order of appearance."""
        array = np.asarray(values)
        words = are_words(array)
        if self._are_words not in (None, words):
            kinds = ("numbers", "words") if words else ("words", "numbers")
            raise DataError(
                f"{self._name} has {kinds[0]} up to row {first_row - 1} (from 0), and {kinds[1]} "
                "after it; give all labels as one of them"
            )
        self._are_words = words
        if not words:
            return label_values(array, self._name, first_row)
        given = array.tolist()
        missing = np.flatnonzero([not isinstance(word, str) for word in given])
        if len(missing):
            row = int(missing[0])
            raise DataError(
                f"{self._name} has {array[row]!r} in row {first_row + row} (from 0), and words "
                "elsewhere; give all labels as words, or remove the row"
            )
        distinct, places = np.unique(np.array(given, str), return_inverse=True)
        try:
            encoded = [word.encode() for word in distinct.tolist()]
        except UnicodeEncodeError as error:
            raise DataError(
                f"{self._name} has the label {error.object!r}, which is no valid text"
            ) from None
        return self._words.numbers(Words(encoded, places.astype(np.int32)), self._name)

    def class_names(self) -> tuple[tuple[str, ...] | None, NDArray[np.float64] | None]:
        """All words in order, and the place of each number among them; None without words."""
        return self._words.sorted()

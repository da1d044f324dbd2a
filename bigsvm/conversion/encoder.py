"""Tables with words and missing values: what is learned of them in a pass, and their columns of X.

Words become one-hot columns, and missing values numbers; see `bigsvm.encoding`.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.conversion.columns import listed, missing_values
from bigsvm.data.frames import arrow_values
from bigsvm.encoding import names_of_x
from bigsvm.errors import DataError, brief

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from numpy.typing import NDArray

    from bigsvm.conversion.columns import Encode
    from bigsvm.encoding import Encoding

LONGEST_WORD = 1000
"""Most characters of a category; longer ones are texts."""
MOST_BYTES = 4 << 20
"""Largest record as JSON: a model has it and the names of its columns in its header."""


def is_words(kind: Any) -> bool:
    """Whether a type of Arrow is that of words, or of categories of any kind."""
    import pyarrow as pa

    return any(
        test(kind)
        for test in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_string_view,
            pa.types.is_dictionary,
        )
    )


def words_of(column: Any, name: str, where: str) -> tuple[list[str | None], NDArray[np.intp]]:
    """Words of a column of a record batch, each once, and which of them each row has; -1 is none.

    Words stay in their dictionary: one may be long, and in many rows.
    """
    import pyarrow as pa

    if pa.types.is_null(column.type) or pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    codes = column.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    used, codes = np.unique(codes, return_inverse=True)
    n_none = int(len(used) and used[0] < 0)
    try:
        words = column.dictionary.cast(pa.large_string()).take(pa.array(used[n_none:])).to_pylist()
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(
            f"{where}: column {name!r} holds {column.type}, which is no text ({error}); leave it "
            "out"
        ) from None
    return words, codes - n_none


class Learner:
    """What a first pass learns of the columns of a table, given record batches of these columns.

    `words` are the columns of words. `where` is what messages call the table.
    """

    def __init__(
        self, names: Sequence[str], words: Collection[str], encode: Encode, where: str
    ) -> None:
        self._names, self._encode, self._where = names, encode, where
        self.categories: dict[str, set[str]] = {name: set() for name in names if name in words}
        self._sums = dict.fromkeys(names, 0.0)
        self._n_known = dict.fromkeys(names, 0)
        self.n_rows = 0

    def add(self, table: Any) -> None:
        """Learn of a record batch, whose columns have these names."""
        self.n_rows += table.num_rows
        for name in self._names:
            if name in self.categories:
                known = self._add_words(name, table.column(name))
            else:
                values = arrow_values(table.select([name]), np.dtype(np.float64))[:, 0]
                values = values[~np.isnan(values)]
                known = len(values)
                # One after the other, so that the sum does not depend on the size of batches.
                with np.errstate(over="ignore", invalid="ignore"):
                    self._sums[name] = np.cumsum(np.append(self._sums[name], values))[-1]
            self._n_known[name] += known

    def _add_words(self, name: str, column: Any) -> int:
        words, codes = words_of(column, name, self._where)
        found, most = self.categories[name], self._encode.max_categories
        found.update(word for word in words if word is not None)
        if len(found) > most:
            raise DataError(
                f"{self._where}: column {name!r} has {len(found)} different words in the first "
                f"{self.n_rows} rows, more than max_categories={most}; give a larger "
                "max_categories, or leave the column out"
            )
        longest = max(map(len, found), default=0)
        if longest > LONGEST_WORD:
            raise DataError(
                f"{self._where}: column {name!r} has a word of {longest} characters, and a "
                f"category {LONGEST_WORD} at most; leave the column out"
            )
        none = [place for place, word in enumerate(words) if word is None]
        return int((~np.isin(codes, [-1, *none])).sum())

    @property
    def numbers(self) -> list[str]:
        """Columns of numbers."""
        return [name for name in self._names if name not in self.categories]

    def means(self) -> list[float]:
        """Mean of each column of numbers, without what is missing; NaN if all are."""
        return [
            float(self._sums[name]) / self._n_known[name] if self._n_known[name] else math.nan
            for name in self.numbers
        ]

    def encoding(self, fills: Iterable[float] | None) -> Encoding | None:
        """Return the record, with these fills of the columns of numbers; None if none is needed."""
        missing = {name: self.n_rows - known for name, known in self._n_known.items()}
        if fills is None and any(missing.values()):
            raise missing_values(missing, self._where, learned=False)
        if fills is None and not self.categories:
            return None
        empty = [name for name in self._names if not self._n_known[name]]
        if empty:
            raise DataError(f"{self._where}: {listed(empty)} has no values; leave it out")
        of_numbers = dict(zip(self.numbers, fills or (), strict=fills is not None))
        for name, fill in of_numbers.items():
            if not math.isfinite(fill):
                raise DataError(
                    f"{self._where}: column {name!r} has values that are infinite or too large: "
                    f"its {self._encode.missing} is {fill}; remove these rows, or rescale it"
                )
        lacking = [name for name, count in missing.items() if count]
        encoding: Encoding = {
            "columns": list(self._names),
            "categories": {name: sorted(words) for name, words in self.categories.items()},
            "fills": None if fills is None else [of_numbers.get(name, 0.0) for name in self._names],
            "indicators": lacking if self._encode.missing_indicator else [],
            "unknown": self._encode.unknown,
        }
        names = names_of_x(encoding)
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise DataError(
                f"{self._where}: words of a column make a second column {twice!r}; rename one"
            )
        size = len(json.dumps(encoding))
        if size > MOST_BYTES:
            raise DataError(
                f"{self._where}: the names of columns and words take {size} bytes, more than the "
                f"{MOST_BYTES} of a model; leave some columns out"
            )
        return encoding


class Encoder:
    """Makes rows of X of record batches of a table, by a record."""

    def __init__(self, encoding: Encoding, dtype: np.dtype[Any]) -> None:
        self._encoding, self._dtype = encoding, dtype
        self._n_columns = len(names_of_x(encoding))
        self._places: dict[str, dict[str | None, int]] = {
            name: {word: place for place, word in enumerate(words)}
            for name, words in encoding["categories"].items()
        }

    def rows(self, table: Any, where: str, first_row: int) -> NDArray[Any]:
        """Rows of a record batch, (m, d); messages name a file and count rows from `first_row`."""
        columns, fills = self._encoding["columns"], self._encoding["fills"]
        X = np.zeros((table.num_rows, self._n_columns), self._dtype)
        start = 0
        for i, name in enumerate(columns):
            column = table.column(name)
            if name in self._places:
                codes = self._codes(column, name, where, first_row)
                rows = np.flatnonzero(codes >= 0)
                X[rows, start + codes[rows]] = 1
                missing = codes == -1
                start += len(self._places[name])
            else:
                values = arrow_values(table.select([name]), self._dtype)[:, 0]
                missing = np.isnan(values)
                if fills is not None:
                    values[missing] = fills[i]
                X[:, start] = values
                start += 1
            if fills is None and missing.any():
                raise missing_values({name: int(missing.sum())}, where, learned=True)
            if name in self._encoding["indicators"]:
                X[:, start] = missing
                start += 1
        return X

    def _codes(self, column: Any, name: str, where: str, first_row: int) -> NDArray[np.intp]:
        """Place of the word of each row among the categories; -1 is missing, and -2 unknown."""
        words, codes = words_of(column, name, where)
        known = self._places[name]
        places = [-1 if word is None else known.get(word, -2) for word in words]
        of_rows = np.array([*places, -1], np.intp)[codes]
        if self._encoding["unknown"] == "refuse" and -2 in places:
            row = int((of_rows == -2).argmax())
            raise DataError(
                f"{where}: column {name!r} has {brief(words[codes[row]])} in row {first_row + row} "
                "(from 0), which the training data lack; remove the row, or make all columns of "
                "the word 0 by unknown='zeros'"
            )
        return of_rows

"""Tables with words and missing values: what is learned of them in a pass, and their columns of X.

Words become one-hot columns, and missing values numbers; see `bigsvm.encoding`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from bigsvm.conversion.columns import listed, missing_values
from bigsvm.data.frames import arrow_values, frame_type
from bigsvm.encoding import names_of_x
from bigsvm.errors import DataError, MemoryBudgetError, brief

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from bigsvm.conversion.columns import Columns, Encode
    from bigsvm.encoding import Encoding

LONGEST_WORD = 1000
"""Most characters of a category; longer ones are texts."""
MOST_BYTES = 4 << 20
"""Largest record as JSON: a model has it and the names of its columns in its header."""


def kinds_of(schema: Any, asked: Columns, where: str) -> tuple[frozenset[str], np.dtype[Any]]:
    """Columns of words among those that X is made of, and the type of its values.

    Columns of words are refused if nothing is asked of them, and so are those of dates.
    """
    import pyarrow as pa

    words, kinds = set(), []
    known = None if asked.encoding is None else asked.encoding["categories"]
    for name in asked.features or ():
        kind = schema.field(name).type
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        is_text |= pa.types.is_string_view(kind) or pa.types.is_dictionary(kind)
        if pa.types.is_temporal(kind):
            raise DataError(
                f"{where}: column {name!r} holds {kind}; make it a number, such as days since a "
                "date, or leave it out"
            )
        if pa.types.is_null(kind):  # missing numbers, or missing words
            is_text, kind = known is not None and name in known, pa.bool_()
        if known is not None and is_text != (name in known):
            needed = "words" if name in known else "numbers"
            raise DataError(f"{where}: column {name!r} holds {kind}, and {needed} in training")
        if is_text:
            words.add(name)
        kinds.append((name, pa.bool_() if is_text else kind))  # words become 0 and 1
    if words and known is None and asked.encode.categories is None:
        raise DataError(
            f"{where}: {listed(sorted(words))} of X holds words, not numbers; make columns of them "
            "by categories='onehot', or leave it out"
        )
    try:
        return frozenset(words), frame_type(pa.schema(kinds).empty_table())
    except DataError as error:
        raise DataError(f"{where}: {error}") from None


def words_of(column: Any, name: str, where: str) -> tuple[list[str], NDArray[np.intp]]:
    """Words of a column of a record batch, each once, and which of them each row has; -1 is none.

    Words stay in their dictionary: one may be long, and in many rows.
    """
    import pyarrow as pa

    if pa.types.is_null(column.type) or pa.types.is_string_view(column.type):
        column = column.cast(pa.large_string())
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    codes = column.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    used, codes = np.unique(np.append(codes, -1), return_inverse=True)
    try:
        words = column.dictionary.cast(pa.large_string()).take(pa.array(used[1:])).to_pylist()
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise DataError(
            f"{where}: column {name!r} holds {column.type}, which is no text ({error}); leave it "
            "out"
        ) from None
    # A dictionary may have null among its words.
    places = np.array([-1, *(-1 if word is None else i for i, word in enumerate(words))])
    return words, places[codes[:-1]]


def _numbers_of(table: Any, name: str, dtype: Any = np.float64) -> NDArray[Any]:
    """Numbers of a column of a record batch; NaN is missing."""
    values: NDArray[Any] = arrow_values(table.select([name]), np.dtype(dtype))[:, 0]
    return values


def learned(
    tables: Callable[[Sequence[str]], Iterator[Any]],
    asked: Columns,
    words: frozenset[str],
    where: str,
    budget: int,
) -> tuple[Encoding | None, int]:
    """Learn the record of a table in a first pass; None if it needs none. Also counts the rows.

    `tables` gives record batches of columns of the names it is given. Messages call the table
    `where`.
    """
    encode, names = asked.encode, asked.features or ()
    categories: dict[str, set[str]] = {name: set() for name in names if name in words}
    sums, n_known, n_rows = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0), 0
    for table in tables(names):
        n_rows += table.num_rows
        for name in names:
            if name in words:
                found, codes = words_of(table.column(name), name, where)
                categories[name].update(word for word in found if word is not None)
                _check_words(categories[name], f"{where}: column {name!r}", n_rows, encode)
                n_known[name] += int((codes >= 0).sum())
                continue
            values = _numbers_of(table, name)
            values = values[~np.isnan(values)]
            n_known[name] += len(values)
            # One after the other, so that the sum does not depend on the size of batches.
            with np.errstate(over="ignore", invalid="ignore"):
                sums[name] = np.cumsum(np.append(sums[name], values))[-1]
    missing = {name: n_rows - known for name, known in n_known.items()}
    lacking = [name for name in names if missing[name]]
    if encode.missing is None and lacking:
        raise missing_values(missing, where, learned=False)
    if encode.missing is None and not words:
        return None, n_rows
    empty = [name for name in lacking if not n_known[name]]
    if empty:
        raise DataError(f"{where}: {listed(empty)} has no values; leave it out")
    numbers = [name for name in names if name not in words]
    fills = dict.fromkeys(names, 0.0)
    if encode.missing == "mean":
        fills |= {name: float(sums[name]) / n_known[name] for name in numbers if n_rows}
    elif encode.missing == "median" and n_rows:
        fills |= _medians(tables, numbers, n_rows, where, budget)
    for name, fill in fills.items():
        if not math.isfinite(fill):
            raise DataError(
                f"{where}: column {name!r} has values that are infinite or too large: its "
                f"{encode.missing} is {fill}; remove these rows, or rescale it"
            )
    encoding: Encoding = {
        "columns": list(names),
        "categories": {name: sorted(found) for name, found in categories.items()},
        "fills": None if encode.missing is None else list(fills.values()),
        "indicators": lacking if encode.missing_indicator else [],
        "unknown": encode.unknown,
    }
    [name, n_times] = Counter(names_of_x(encoding)).most_common(1)[0]
    if n_times > 1:
        raise DataError(f"{where}: words make a second column {name!r}; rename one")
    size = len(json.dumps(encoding))
    if size > MOST_BYTES:
        raise DataError(
            f"{where}: the names of columns and words take {size} bytes, and those of a model "
            f"{MOST_BYTES} at most; leave some columns out"
        )
    return encoding, n_rows


def _check_words(found: set[str], column: str, n_rows: int, encode: Encode) -> None:
    """Refuse more words, or longer ones, than a column may have; `n_rows` have been read."""
    if len(found) > encode.max_categories:
        raise DataError(
            f"{column} has {len(found)} different words in the first {n_rows} rows, more than "
            f"max_categories={encode.max_categories}; give a larger max_categories, or leave the "
            "column out"
        )
    longest = max(map(len, found), default=0)
    if longest > LONGEST_WORD:
        raise DataError(
            f"{column} has a word of {longest} characters, and a category {LONGEST_WORD} at most; "
            "leave the column out"
        )


def _medians(
    tables: Callable[[Sequence[str]], Iterator[Any]],
    names: Sequence[str],
    n_rows: int,
    where: str,
    budget: int,
) -> dict[str, float]:
    """Median of each column of numbers; as many columns as fit are read together."""
    medians: dict[str, float] = {}
    together = budget // 3 // (8 * n_rows) - 2  # a median takes two copies of its column
    if names and together < 1:
        raise MemoryBudgetError(
            f"{where}: the median of {n_rows} values takes more than a third of memory; use "
            f"memory={9 * 8 * n_rows}, or missing='mean'"
        )
    for start in range(0, len(names), max(1, together)):
        group, done = names[start : start + together], 0
        values = np.empty((len(group), n_rows))
        for table in tables(group):
            first, done = done, done + table.num_rows
            for i, name in enumerate(group if done <= n_rows else ()):
                values[i, first:done] = _numbers_of(table, name)
        if done != n_rows:
            raise DataError(f"{where}: has changed while it was read; read it again")
        medians |= {
            name: float(np.median(column[~np.isnan(column)]))
            for name, column in zip(group, values, strict=True)
        }
    return medians


def encoded(
    encoding: Encoding, table: Any, dtype: np.dtype[Any], where: str, first_row: int
) -> NDArray[Any]:
    """Rows of X of a record batch, (m, d), by a record.

    Messages name the file `where`, and count rows from `first_row`.
    """
    fills, start = encoding["fills"], 0
    X = np.zeros((table.num_rows, len(names_of_x(encoding))), dtype)
    for i, name in enumerate(encoding["columns"]):
        words = encoding["categories"].get(name)
        if words is None:
            values = _numbers_of(table, name, dtype)
            missing = np.isnan(values)
            values[missing] = 0 if fills is None else fills[i]
            X[:, start] = values
        else:
            found, codes = words_of(table.column(name), name, where)
            known = {word: place for place, word in enumerate(words)}
            places = np.array([*(known.get(word, -1) for word in found), -1])[codes]
            missing = codes < 0
            others = (places < 0) & ~missing
            if encoding["unknown"] == "refuse" and others.any():
                row = int(others.argmax())
                raise DataError(
                    f"{where}: column {name!r} has {brief(found[codes[row]])} in row "
                    f"{first_row + row} (from 0), which the training data lack; remove the row, or "
                    "make all columns of the word 0 by unknown='zeros'"
                )
            rows = np.flatnonzero(places >= 0)
            X[rows, start + places[rows]] = 1
        if fills is None and missing.any():
            rows_read = f"{where}, rows {first_row} to {first_row + len(X) - 1} (from 0)"
            raise missing_values({name: int(missing.sum())}, rows_read, learned=True)
        start += 1 if words is None else len(words)
        if name in encoding["indicators"]:
            X[:, start] = missing
            start += 1
    return X

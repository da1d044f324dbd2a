"""The record of how the columns of a table become columns of X, which stores and models keep.

It is a plain object of JSON with the fields of `ENCODING`:

- ``columns``, the columns of the table that X is made of, in order;
- ``categories``, by column of words its words, sorted; each has a column ``column=word`` of X;
- ``fills``, for each column the number in place of a missing value; 0 for words, which are then all
  0; None if missing values are refused;
- ``indicators``, the columns that are followed by ``column=missing``, 1 where a value is missing;
- ``unknown``, what becomes of other words: "refuse", or "zeros" in all columns of the words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from bigsvm.declared import FINITE

if TYPE_CHECKING:
    from collections.abc import Sequence

Encoding: TypeAlias = dict[str, Any]

UNKNOWN = ("refuse", "zeros")
ENCODING = {
    "columns": [str],
    "categories": {str: [str]},
    "fills": ([FINITE], None),
    "indicators": [str],
    "unknown": set(UNKNOWN),
}
"""Kinds of the fields, for `bigsvm.declared`."""


def names_of_x(encoding: Encoding) -> tuple[str, ...]:
    """Names of the columns of X."""
    names, followed = [], set(encoding["indicators"])
    for column in encoding["columns"]:
        words = encoding["categories"].get(column)
        names += [column] if words is None else [f"{column}={word}" for word in words]
        names += [f"{column}=missing"] if column in followed else []
    return tuple(names)


def check_encoding(encoding: Encoding | None, names: Sequence[str] | None) -> None:
    """Refuse a record, whose fields have their kinds, that does not make columns of these names."""
    if encoding is None:
        return
    columns, fills = encoding["columns"], encoding["fills"]
    for words in encoding["categories"].values():
        if not words or sorted(set(words)) != words:
            raise ValueError("categories of a column are none, or do not ascend")
    if (
        not encoding["categories"].keys() | set(encoding["indicators"]) <= set(columns)
        or len(set(columns)) != len(columns)
        or len(columns if fills is None else fills) != len(columns)
        or (fills is None and encoding["indicators"])
    ):
        raise ValueError("the encoding has columns twice, or others than its categories and fills")
    if names is None or names_of_x(encoding) != tuple(names) or len(set(names)) != len(names):
        raise ValueError("the encoding makes columns of other names")

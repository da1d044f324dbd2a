"""Which columns of a table are features, which one is the label, and which one the weight."""

from __future__ import annotations

import difflib
from collections import Counter
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args

from bigsvm.encoding import UNKNOWN
from bigsvm.errors import DataError, ParameterError, brief

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bigsvm.encoding import Encoding

SHOWN = 5
"""Most names that a message lists."""
Fill: TypeAlias = Literal["mean", "median", "zero"]


class Encode(NamedTuple):
    """What becomes of words and missing values of a table; see `bigsvm.write_store`."""

    categories: Literal["onehot"] | None = None
    max_categories: int = 100
    missing: Fill | None = None
    missing_indicator: bool = False
    unknown: Literal["refuse", "zeros"] = "refuse"

    @property
    def is_asked(self) -> bool:
        """Whether anything is to be learned from the table."""
        return self.categories is not None or self.missing is not None

    def check(self) -> None:
        """Refuse values without a meaning."""
        for name, known in (
            ("categories", ("onehot",)), ("missing", get_args(Fill)), ("unknown", UNKNOWN)
        ):  # fmt: skip
            value = getattr(self, name)
            if value not in known and (value is not None or name == "unknown"):
                raise ParameterError(f"{name}={value!r}; it must be one of {', '.join(known)}")
        if type(self.max_categories) is not int or self.max_categories < 1:
            raise ParameterError(f"max_categories={self.max_categories!r}; it must be 1 or more")
        if self.missing_indicator and self.missing is None:
            raise ParameterError("missing_indicator=True needs missing, as missing='mean'")


class Columns(NamedTuple):
    """What is asked of a table, by names of columns.

    Without a label none is needed. Features are the columns of X, in this order; None for all that
    are neither label nor weight. An encoding is one that was learned before.
    """

    label: str | None = None
    weight: str | None = None
    features: tuple[str, ...] | None = None
    encode: Encode = Encode()
    encoding: Encoding | None = None

    @property
    def beside(self) -> tuple[str, ...]:
        """Label and weight, as far as they are asked for."""
        return tuple(name for name in (self.label, self.weight) if name is not None)

    def of(self, names: Sequence[str], where: str) -> Columns:
        """Return the same with the features named, for a table that has columns of these names.

        Columns that are missing, occur twice, or are asked for as two things are refused.
        """
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise DataError(f"{where}: has {listed(twice)} more than once; give each its own name")
        asked = [*self.beside, *(self.features or ())]
        both = [name for name, count in Counter(asked).items() if count > 1]
        if both:
            raise ParameterError(
                f"column {both[0]!r} is asked for twice, as label, weight or one of the columns; "
                "name it once"
            )
        missing = [name for name in asked if name not in names]
        if missing:
            near = difflib.get_close_matches(missing[0], names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f", but {listed(names)}"
            raise DataError(f"{where}: there is no column {missing[0]!r}{hint}")
        if self.features is not None:
            return self
        features = tuple(name for name in names if name not in self.beside)
        if not features:
            raise DataError(f"{where}: there is no column but {listed(self.beside)}; X needs one")
        return self._replace(features=features)

    def check_only(self, names: Sequence[str], where: str, first: str) -> None:
        """Refuse a further table of a data set that has columns which the first one lacks.

        The order of the columns does not matter, as they are read by name.
        """
        known = {*(self.features or ()), *self.beside}
        more = [name for name in names if name not in known]
        if more:
            raise DataError(
                f"{where}: has {listed(more)}, which {first} lacks; all files of a data set must "
                "have the same columns"
            )


def missing_values(counts: Mapping[str, int], where: str, *, learned: bool) -> DataError:
    """Refuse columns with so many missing values; `learned` if the training data had none."""
    found = [f"{name!r} ({count})" for name, count in counts.items() if count]
    more = f" and {len(found) - SHOWN} more columns" if len(found) > SHOWN else ""
    way = "train with missing='mean'" if learned else "fill them by missing='mean'"
    return DataError(
        f"{where}: values are missing in {', '.join(found[:SHOWN])}{more}; {way}, or leave out "
        f"these rows{'' if learned else ' or columns'}"
    )


def listed(names: Sequence[str]) -> str:
    """Name a few columns for a message."""
    shown = ", ".join(map(brief, names[:SHOWN]))
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"column{'s' if len(names) > 1 else ''} {shown}{more}"

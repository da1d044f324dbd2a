"""Problem: what is known of a training problem row by row, whatever family solves it."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from bigsvm.errors import CheckpointError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.arrays import F8, I4, I8, Mask

    Selection = slice | I8


class EarlierModel(NamedTuple):
    """A model of the same rows that a problem can start from.

    `rows`, (p,), are its support vectors, with coefficients (p,) or (p, k). `C` and `bounds`, (p,),
    are as its problem had them; bounds are None where they were not kept. `rho` is as its
    certificate has it.
    """

    rows: I8
    coefficients: F8
    C: float | None
    rho: float | None
    bounds: F8 | None


class FingerprintEntry(StrEnum):
    """Entries of every checkpoint's fingerprint besides the chosen parameters."""

    DATA = "data"
    LABELS = "labels and weights"
    CLASS_WEIGHTS = "class weights"


def recorded_in(entry: FingerprintEntry) -> dict[str, FingerprintEntry]:
    """Metadata that marks a field of a problem as recorded by this entry of the fingerprint."""
    return {"entry": entry}


@dataclass(frozen=True, kw_only=True)
class Problem(ABC):
    """One training problem: weights of the rows, and what subclasses add.

    A row without weight has no part in the problem.
    """

    name: ClassVar[str]
    compares_rows: ClassVar[bool] = True
    """Whether equal rows are looked for, to be one variable: labels are often equal."""

    sample_weight: F8 | None = field(default=None, metadata=recorded_in(FingerprintEntry.LABELS))

    @property
    @abstractmethod
    def per_row(self) -> NDArray[np.generic]:
        """Labels or targets, (n,)."""

    @abstractmethod
    def take(self, rows: I4 | I8) -> Self:
        """Restrict the problem to `rows`, in their order."""

    @abstractmethod
    def zeros(self, n_rows: int) -> F8:
        """Alpha of 0 for some rows."""

    @abstractmethod
    def per_output(self, alpha: F8) -> F8:
        """Sum up the variables of each row: what its kernel row is weighted by.

        (m,), or (m, k) of k functions, which are trained together: f is (n, k) then. One working
        set, one kernel row and one sweep are for all of them.
        """

    def netted(self, alpha: F8) -> F8:
        """Return the best alpha of all rows with this `per_output`; itself where it is that."""
        return alpha

    @property
    def held_bytes(self) -> int:
        """Bytes of weights and targets, which are in memory for the whole run."""
        return 0 if self.sample_weight is None else self.sample_weight.nbytes

    @property
    def n_outputs(self) -> int:
        """Functions that are trained together, k."""
        return 1

    @property
    def offset(self) -> float:
        """Added to every kernel value: with 1 the bias is one of the weights."""
        return 0.0

    @classmethod
    @functools.cache
    def chosen_names(cls) -> tuple[str, ...]:
        """Names of the parameters of the problem: the fields that no `FingerprintEntry` covers."""
        return tuple(
            entry.name
            for entry in fields(cls)
            if not isinstance(entry.metadata.get("entry"), FingerprintEntry)
        )

    def chosen(self) -> dict[str, Any]:
        """Parameters of the problem by name.

        A checkpoint records them, so that it is not resumed with other values. So a field must be a
        plain value, or be recorded in an entry.
        """
        parameters = {}
        for name in self.chosen_names():
            value = parameters[name] = getattr(self, name)
            if not isinstance(value, Real | str | np.bool_ | None):
                raise CheckpointError(
                    f"field {name!r} of {type(self).__name__} is a {type(value).__name__}, for "
                    "which the fingerprint of a checkpoint has no place; make it a number or a "
                    "word, or name the entry that depends on it with recorded_in"
                )
        return parameters

    def __len__(self) -> int:
        return len(self.per_row)

    def scale(self, thresholds: tuple[float, ...]) -> float:
        """Distance of outputs that makes a difference; 1 for labels ±1."""
        return 1.0

    def mistakes(self, outputs: F8, rows: Selection, thresholds: tuple[float, ...]) -> Mask:
        """Which of `rows`, (m,), a model with such outputs and thresholds gets wrong.

        Classifiers only.
        """
        raise NotImplementedError

    def importance(self, rows: Selection) -> F8:
        """How much a mistake at each of `rows` counts, (m,)."""
        return self.weights(rows)

    def weighted(self, sample_weight: F8) -> Self:
        """Return the same problem with other weights of the rows."""
        return replace(self, sample_weight=sample_weight)

    def summed(self, rows: I4 | I8, starts: I8) -> Self:
        """Return the problem of variables that each stand for some equal rows.

        `rows` are those of the first variable, then of the second, …; `starts`, (n + 1,), is where
        those of each variable begin, and where the last ones end.
        """
        first = self.take(rows[starts[:-1]])
        if len(starts) - 1 == len(rows):
            return first
        return first.weighted(np.add.reduceat(self.weights(rows), starts[:-1]))

    def weights(self, rows: Selection | I4) -> F8:
        """Weights of `rows`, (m,)."""
        if self.sample_weight is None:
            return np.ones(len(self.per_row[rows]))
        return self.sample_weight[rows]

    def _weights_of(self, rows: I4 | I8) -> F8 | None:
        return None if self.sample_weight is None else self.sample_weight[rows]

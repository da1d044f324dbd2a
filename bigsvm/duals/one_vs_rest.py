"""One against the rest: k classifiers of two classes over the same rows, trained together.

Function r separates class r (+1) from all others (−1).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np

from bigsvm.duals.functions import Functions
from bigsvm.duals.problem import FingerprintEntry, recorded_in

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bigsvm.arrays import F8, I4, I8, Mask
    from bigsvm.duals.formulations import Classification, Signs
    from bigsvm.duals.problem import Selection


class OneClassSigns:
    """Signs: +1 for rows of one class, −1 for the others; computed when read, not kept."""

    def __init__(self, label: I4, positive: int) -> None:
        self._label, self._positive = label, positive

    def __getitem__(self, rows: Selection | I4, /) -> NDArray[np.int8]:
        """Signs of `rows`, (m,)."""
        return np.where(self._label[rows] == self._positive, np.int8(1), np.int8(-1))


class MakeFunction(Protocol):
    """Makes the problem of one function; see `bigsvm.duals.formulations.Classification`."""

    def __call__(
        self, *, sign: Signs, class_weight: tuple[float, float], sample_weight: F8 | None
    ) -> Classification:
        """Make the problem."""


@dataclass(frozen=True, kw_only=True)
class OneVsRest(Functions):
    """The problems of all functions, made by `make`.

    `label`, (n,), is the class of each row, in 0 … k − 1. `class_weight` has the weights of the
    rest and of the class, for each of the k functions. A class without a row of positive weight, or
    without any other, is refused.
    """

    name = "one against the rest"

    label: I4 = field(metadata=recorded_in(FingerprintEntry.LABELS))
    class_weight: tuple[tuple[float, float], ...] = field(
        metadata=recorded_in(FingerprintEntry.CLASS_WEIGHTS)
    )
    make: MakeFunction

    @functools.cached_property
    def functions(self) -> tuple[Classification, ...]:
        """The problem of each function."""
        return tuple(
            self.make(
                sign=OneClassSigns(self.label, c),
                class_weight=weights,
                sample_weight=self.sample_weight,
            )
            for c, weights in enumerate(self.class_weight)
        )

    @property
    def per_row(self) -> I4:
        return self.label

    def mistakes(self, outputs: F8, rows: Selection, thresholds: tuple[float, ...]) -> Mask:
        finished = [
            function.finish(self.thresholds_of(c, thresholds))
            for c, function in enumerate(self.functions)
        ]
        values = outputs * [decision.scale for decision in finished] + [
            decision.intercept for decision in finished
        ]
        wrong: Mask = values.argmax(axis=1) != self.label[rows]
        return wrong

    def take(self, rows: I4 | I8) -> Self:
        return replace(self, label=self.label[rows], sample_weight=self._weights_of(rows))

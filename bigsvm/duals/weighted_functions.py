"""One problem with several weights of its rows: a function for each, such as the folds of one fit.

Rows without weight in a function have no part in it: their variables are 0. What follows from the
weights, such as balanced weights of the classes, is each function's own.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from bigsvm.duals.functions import Functions
from bigsvm.duals.problem import FingerprintEntry, recorded_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bigsvm.arrays import I4, I8
    from bigsvm.duals.box_problem import Formulation


@dataclass(frozen=True, kw_only=True)
class WeightedFunctions(Functions):
    """The problems of all functions; make it with `of`.

    Attributes
    ----------
    sample_weight : (n,) float64
        Largest weight of each row in any function.
    problems : tuple of Formulation
        One for each function: of the same rows and labels, with weights of its own.
    """

    name = "weighted functions"
    alike = True

    problems: tuple[Formulation, ...] = field(metadata=recorded_in(FingerprintEntry.LABELS))

    @classmethod
    def of(cls, problems: Sequence[Formulation]) -> Self:
        """Gather problems, each of which has weights."""
        weights = [problem.weights(slice(None)) for problem in problems]
        return cls(problems=tuple(problems), sample_weight=functools.reduce(np.maximum, weights))

    @property
    def functions(self) -> tuple[Formulation, ...]:
        return self.problems

    @property
    def per_row(self) -> NDArray[np.generic]:
        return self.problems[0].per_row

    @property
    def held_bytes(self) -> int:
        return super().held_bytes + sum(problem.held_bytes for problem in self.problems)

    def take(self, rows: I4 | I8) -> Self:
        taken = tuple(problem.take(rows) for problem in self.problems)
        return replace(self, problems=taken, sample_weight=self._weights_of(rows))

    def summed(self, rows: I4 | I8, starts: I8) -> Self:
        return self.of([problem.summed(rows, starts) for problem in self.problems])
